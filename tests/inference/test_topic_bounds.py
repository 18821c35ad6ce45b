"""The analytic bound is the ELBO: against particles, token by token, batch by batch; stock SVI; round trips."""

import pyro
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO

from pyro_prme import HDP, PRME, BagOfWordsEncoder, Batch, ClosedForm_ELBO, PRMEGuide, RunOptions, ShapePRME
from pyro_prme.inference.rules import Topics
from tests.conftest import DOCUMENTS, entries_of, small_model

PARTICLES = 300


@pytest.fixture(params=["scale", "shape", "shape, points for topics"])
def form(request):
    """Keywords of `fitted`: where the random function stands, and what q has for the topics."""
    kind = PRME if request.param == "scale" else ShapePRME
    return {"kind": kind, "topics": Topics(points="points" in request.param)}


def step(guide, run, rate=0.5):
    guide.topics.gather(run)
    guide.topics.natural_step(rate)


def fitted(batch, num_documents=4, topics=None, **kwargs):
    """A model and guide that have moved away from where they began, in evaluation mode."""
    model = small_model(num_documents, **kwargs)
    guide = PRMEGuide(model, topics=topics)
    guide.plan(batch)
    optimizer = torch.optim.Adam([*guide.parameters(), *model.parameters()], lr=0.02)
    for _ in range(5):
        optimizer.zero_grad()
        run = guide.run(batch)
        (-run.objective()).backward()
        optimizer.step()
        step(guide, run)
    return model.eval(), guide.eval()


def bound(guide, batch, **options):
    with torch.no_grad():
        return guide.run(batch, options=RunOptions(**options)).terms()


def test_the_analytic_elbo_is_the_elbo_of_particles(tokens, form):
    model, guide = fitted(tokens, **form)
    analytic = -float(sum(bound(guide, tokens, bound="quadrature").values()))
    if guide.topics.rule.points:  # Pyro's ELBO has no Jacobian
        analytic += float(guide.posterior("theta").mean.log().sum())
    with torch.no_grad():
        draws = torch.tensor([Trace_ELBO().loss(model, guide, tokens) for _ in range(PARTICLES)])
    error = draws.std() / len(draws) ** 0.5
    assert abs(draws.mean() - analytic) < 4 * error
    assert error < 0.03 * abs(analytic), "the comparison is sharp enough to notice a wrong term"


def test_gradients_agree_with_finite_differences(tokens, form):
    """With the E-step held, the bound is a smooth function of every parameter."""
    model, guide = fitted(tokens, **form)
    held = RunOptions(held=guide.run(tokens).local)
    parameters = [*guide.parameters(), *model.parameters()]
    directions = [torch.randn_like(p) for p in parameters]
    for read in (lambda run: run.bound(), lambda run: run.objective()):
        gradients = torch.autograd.grad(read(guide.run(tokens, options=held)), parameters)
        slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
        values = []
        for size in (1e-6, -2e-6, 1e-6):
            with torch.no_grad():
                for p, d in zip(parameters, directions, strict=True):
                    p += size * d
                values.append(guide.run(tokens, options=held).bound())
        torch.testing.assert_close((values[0] - values[1]) / 2e-6, slope, rtol=1e-4, atol=1e-5)


def test_gradients_agree_with_particles(tokens):
    """One random direction each for ell, V, the encoder and the decoder."""
    model, guide = fitted(tokens, kind=PRME)
    groups = [list(guide.claim(site).parameters()) for site in ("ell", "V", "h")] + [list(model.decoder.parameters())]
    parameters = [p for group in groups for p in group]
    directions = [torch.randn_like(p) for p in parameters]

    def slopes(loss):
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        dots = iter([0.0 if g is None else float((g * d).sum()) for g, d in zip(gradients, directions, strict=True)])
        return torch.tensor([sum(next(dots) for _ in group) for group in groups])

    analytic = slopes(ClosedForm_ELBO()(model, guide)(tokens))
    draws = torch.stack([slopes(Trace_ELBO().differentiable_loss(model, guide, tokens)) for _ in range(200)])
    error = draws.std(0) / 200**0.5
    assert ((draws.mean(0) - analytic).abs() < 4 * error).all(), (draws.mean(0) - analytic) / error


def test_tokens_and_entries_have_the_same_bound_and_updates(tokens, entries, form):
    guide = fitted(tokens, **form)[1]
    terms, targets = [], []
    for batch in (tokens, entries):
        terms.append(bound(guide, batch))
        run = guide.run(batch)
        guide.topics.gather(run)
        targets.append((guide.topics.pending.clone(), run.factor("Z").concentration, run.factor("Z").rate))
        guide.topics.pending.zero_()
    for name, term in terms[0].items():
        assert float(term) == pytest.approx(float(terms[1][name]), rel=1e-12, abs=1e-12), name
    for left, right in zip(*targets, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_subsampling_is_unbiased_for_the_bound_and_the_statistics(entries, form):
    """Evaluation mode: the mean over all batches of two is the full bound and the full statistics."""
    guide = fitted(entries, **form)[1]
    topics, full = guide.topics, bound(guide, entries)
    topics.gather(guide.run(entries))
    statistics = topics.pending.clone()
    topics.pending.zero_()
    pairs = [(i, j) for i in range(4) for j in range(i)]
    parts = []
    for i, j in pairs:
        batch = entries_of([DOCUMENTS[i], DOCUMENTS[j]])
        batch = Batch(torch.tensor([i, j]), batch.indptr, batch.word, batch.count)
        parts.append(bound(guide, batch))
        topics.gather(guide.run(batch), 1 / len(pairs))
    for name, term in full.items():
        mean = float(sum(part[name] for part in parts)) / len(pairs)
        assert mean == pytest.approx(float(term), rel=1e-10, abs=1e-10), name
    torch.testing.assert_close(topics.pending, statistics, rtol=1e-10, atol=1e-10)


def test_what_stands_for_the_logarithm_of_a_sum_is_a_choice(tokens):
    guide = fitted(tokens)[1]
    totals = {name: float(sum(bound(guide, tokens, bound=name).values())) for name in ("epsilon", "quadrature")}
    torch.manual_seed(0)
    particles = float(sum(bound(guide, tokens, bound="particles").values()))
    assert totals["epsilon"] < totals["quadrature"]
    assert particles == pytest.approx(totals["quadrature"], abs=0.5)
    assert guide.bound_name("quadrature") != guide.bound_name()
    with pytest.raises(ValueError, match="bound is 'exact': it must be one of epsilon"):
        RunOptions(bound="exact")


@pytest.mark.parametrize("make", [small_model, lambda: HDP(5, 10, 4)])
def test_stock_svi_in_the_default_param_store_mode(make, tokens):
    model = make()
    guide = PRMEGuide(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), ClosedForm_ELBO(rate=0.5))
    losses = [svi.step(tokens) for _ in range(30)]
    assert losses[-1] < losses[0] - 5
    assert svi.evaluate_loss(tokens) == pytest.approx(losses[-1], rel=0.2)


def test_the_loss_wants_a_closed_form_guide(tokens):
    with pytest.raises(ValueError, match="needs a ClosedFormGuide, and this guide is function"):
        ClosedForm_ELBO().loss(small_model(), lambda batch: None, tokens)


def test_state_dict_round_trip(tokens, tmp_path):
    model, guide = fitted(tokens)
    torch.save({"model": model.state_dict(), "guide": guide.state_dict()}, tmp_path / "weights.pt")
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    other = small_model().eval()
    again = PRMEGuide(other).eval()
    again.plan(tokens)
    other.load_state_dict(state["model"])
    again.load_state_dict(state["guide"])
    assert bound(again, tokens) == bound(guide, tokens)


def test_a_bag_of_words_encoder_serves_as_well(entries):
    model = small_model()
    guide = PRMEGuide(model, BagOfWordsEncoder(10, 3, (7,)))
    (-guide.run(entries).objective()).backward()
    assert guide.claim("h").encoder.words.weight.grad.abs().sum() > 0


def test_a_plan_leaves_modes_and_the_random_state_alone(tokens):
    model = small_model()
    model.decoder.norm.eval()
    guide = PRMEGuide(model)
    before = torch.get_rng_state(), [m.training for m in model.modules()], model.decoder.running_mean.clone()
    guide.plan(tokens)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == [m.training for m in model.modules()]
    assert torch.equal(before[2], model.decoder.running_mean)


def test_a_plan_leaves_the_batch_alone(tokens):
    """Words that a document repeats are not added up in the batch's own memory."""
    before = tokens.count.clone(), tokens.word.clone(), tokens.indptr.clone()
    PRMEGuide(small_model()).plan(tokens)
    for now, then in zip((tokens.count, tokens.word, tokens.indptr), before, strict=True):
        assert torch.equal(now, then)
