"""The analytic ELBO is the ELBO: against particles, token by token, batch by batch."""

import pyro
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO

from pyro_prme import HDP, PRME, BagOfWordsEncoder, Batch, ShapePRME
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.equations.bounds import NORMALIZERS
from pyro_prme.guide import PRMEGuide
from pyro_prme.rules import PointTopics
from tests.conftest import DOCUMENTS, entries_of, small_model

PARTICLES = 1500


@pytest.fixture(params=["scale", "shape", "shape, points for topics"])
def form(request):
    """Keywords of `fitted`: where the random function stands, and what q has for the topics."""
    kind = PRME if request.param == "scale" else ShapePRME
    return {"kind": kind, "rules": {"theta": PointTopics()} if "points" in request.param else None}


def fitted(batch, num_documents=4, rules=None, **kwargs):
    """A model and guide that have moved away from where they began, in evaluation mode."""
    model = small_model(num_documents, **kwargs)
    guide = PRMEGuide(model, rules=rules)
    objective = ClosedForm_ELBO()(model, guide)
    objective(batch)
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.02)
    for _ in range(5):
        optimizer.zero_grad()
        objective(batch).backward()
        optimizer.step()
        guide.gather()
        guide.natural_step(0.5)
    return model.eval(), guide.eval()


def test_the_analytic_elbo_is_the_elbo_of_particles(tokens, form):
    model, guide = fitted(tokens, **form)
    analytic = ClosedForm_ELBO(bound="quadrature").loss(model, guide, tokens)
    if isinstance(guide.rule("theta"), PointTopics):  # Pyro's ELBO has no Jacobian
        analytic += float(guide.rule("theta").topics().log().sum())
    with torch.no_grad():
        draws = torch.tensor([Trace_ELBO().loss(model, guide, tokens) for _ in range(PARTICLES)])
    error = draws.std() / PARTICLES**0.5
    assert abs(draws.mean() - analytic) < 4 * error
    assert error < 0.01 * abs(analytic), "the comparison is sharp enough to notice a wrong term"


def test_gradients_agree_with_particles(tokens, form):
    """One random direction each for ell, V, the encoder and the decoder."""
    model, guide = fitted(tokens, **form)
    groups = {
        "ell": list(guide.rules["ell"].parameters()),
        "V": list(guide.rules["V"].parameters()),
        "encoder": list(guide.rules["h"].parameters()),
        "decoder": list(model.decoder.parameters()),
    }
    parameters = [p for group in groups.values() for p in group]
    directions = [torch.randn_like(p) for p in parameters]

    def slopes(loss):
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        dots = iter([0.0 if g is None else float((g * d).sum()) for g, d in zip(gradients, directions, strict=True)])
        return torch.tensor([sum(next(dots) for _ in group) for group in groups.values()])

    analytic = slopes(ClosedForm_ELBO()(model, guide)(tokens))
    draws = torch.stack([slopes(Trace_ELBO().differentiable_loss(model, guide, tokens)) for _ in range(PARTICLES)])
    error = draws.std(0) / PARTICLES**0.5
    assert ((draws.mean(0) - analytic).abs() < 4 * error).all(), (draws.mean(0) - analytic) / error
    assert (analytic.abs() > 3 * error).sum() >= 3, "most directions are told apart from zero"


def test_gradients_agree_with_finite_differences(tokens, form):
    """With the E-step held, the loss is a smooth function of every parameter."""
    model, guide = fitted(tokens, **form)
    objective = ClosedForm_ELBO()(model, guide)
    with guide.hold(guide.local_step(tokens)):
        parameters = [p for p in objective.parameters() if p.requires_grad]
        directions = [torch.randn_like(p) for p in parameters]
        gradients = torch.autograd.grad(objective(tokens), parameters)
        slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
        losses = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                for p, d in zip(parameters, directions, strict=True):
                    p += step * d
                losses.append(objective(tokens))
    torch.testing.assert_close((losses[0] - losses[1]) / 2e-6, slope, rtol=1e-4, atol=1e-5)


def test_tokens_and_entries_have_the_same_bound_and_updates(tokens, entries, form):
    _model, guide = fitted(tokens, **form)
    reports, targets = [], []
    for batch in (tokens, entries):
        reports.append(ClosedForm_ELBO().report(guide, batch))
        guide.gather()
        targets.append(guide.rules["theta"].pending.clone())
        guide.rules["theta"].pending.zero_()
        q = guide.run.posterior("Z")
        targets.append(torch.stack([q.concentration, q.rate]))
    for name, term in reports[0].terms.items():
        assert term == pytest.approx(reports[1].terms[name], rel=1e-12, abs=1e-12), name
    for left, right in zip(targets[:2], targets[2:], strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_subsampling_is_unbiased_for_the_bound_and_the_statistics(entries, form):
    """Evaluation mode: the mean over all minibatches of two is the full bound and the full statistics."""
    _model, guide = fitted(entries, **form)
    topics = guide.rules["theta"]
    full = ClosedForm_ELBO().report(guide, entries)
    guide.gather()
    statistics = topics.pending.clone()
    topics.pending.zero_()
    pairs = [(i, j) for i in range(4) for j in range(i)]
    reports = []
    for i, j in pairs:
        batch = entries_of([DOCUMENTS[i], DOCUMENTS[j]])
        batch = Batch(torch.tensor([i, j]), batch.indptr, batch.word, batch.count)
        reports.append(ClosedForm_ELBO().report(guide, batch))
        guide.gather(scale=2.0 / len(pairs))
    for name, term in full.terms.items():
        mean = sum(report.terms[name] for report in reports) / len(pairs)
        assert mean == pytest.approx(term, rel=1e-10, abs=1e-10), name
    torch.testing.assert_close(topics.pending, statistics, rtol=1e-10, atol=1e-10)


def test_a_bound_says_its_name_and_its_parts(tokens):
    model, guide = fitted(tokens)
    reports = {bound: ClosedForm_ELBO(bound=bound).report(guide, tokens) for bound in NORMALIZERS}
    for bound, report in reports.items():
        assert report.name == NORMALIZERS[bound]
        assert list(report.terms) == ["ell", "V", "theta", "h", "f", "Z", "C", "X"]
        assert report.total == pytest.approx(sum(report.terms.values()))
    assert reports["epsilon"].total < reports["quadrature"].total
    assert reports["particles"].total == pytest.approx(reports["quadrature"].total, abs=0.5)
    loss = ClosedForm_ELBO()(model, guide)(tokens)
    assert -float(loss.detach()) == pytest.approx(reports["epsilon"].total)


def test_leaving_out_the_constants_keeps_the_gradient(tokens, form):
    model, guide = fitted(tokens, **form)
    gradients = []
    for constants in (True, False):
        objective = ClosedForm_ELBO(constants=constants)(model, guide)
        gradients.append(torch.autograd.grad(objective(tokens), list(objective.parameters())))
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right)


def test_the_plain_objective_has_the_same_value_and_gradient(tokens, form):
    model, guide = fitted(tokens, **form)
    results = []
    for objective in ("profiled", "plain"):
        guide.rules["Z"].objective = objective
        module = ClosedForm_ELBO()(model, guide)
        loss = module(tokens)
        results.append((loss, *torch.autograd.grad(loss, list(module.parameters()))))
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


def test_placeholders_change_no_number(tokens, form):
    """The bound is the same when theta, f, Z and C are drawn after all."""
    _model, guide = fitted(tokens, **form)
    lazy = ClosedForm_ELBO().report(guide, tokens)
    with torch.no_grad():
        guide(tokens)
        drawn = ClosedForm_ELBO().terms_of(guide.run)
    for name, term in lazy.terms.items():
        assert float(drawn[name]) == pytest.approx(term), name


@pytest.mark.parametrize("make", [small_model, lambda: HDP(5, 10, 4)])
def test_stock_svi_in_the_default_param_store_mode(make, tokens):
    model = make()
    guide = PRMEGuide(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), ClosedForm_ELBO())
    losses = []
    for _ in range(30):
        losses.append(svi.step(tokens))
        guide.gather()
        guide.natural_step(0.5)
    assert losses[-1] < losses[0] - 5
    assert svi.evaluate_loss(tokens) == pytest.approx(losses[-1], rel=0.2)


def test_state_dict_round_trip(tokens, tmp_path):
    model, guide = fitted(tokens)
    torch.save({"model": model.state_dict(), "guide": guide.state_dict()}, tmp_path / "weights.pt")
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    other = small_model().eval()
    again = PRMEGuide(other).eval()
    again.plan(tokens)
    other.load_state_dict(state["model"])
    again.load_state_dict(state["guide"])
    assert ClosedForm_ELBO().report(again, tokens) == ClosedForm_ELBO().report(guide, tokens)


def test_a_bag_of_words_encoder_serves_as_well(entries):
    model = small_model()
    guide = PRMEGuide(model, BagOfWordsEncoder(10, 3, (7,)))
    objective = ClosedForm_ELBO()(model, guide)
    objective(entries).backward()
    assert guide.rules["h"].encoder.words.weight.grad.abs().sum() > 0
