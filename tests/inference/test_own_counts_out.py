"""Own counts out as a rule: its plan, what topics hold after each kind of step, and what gradients are of."""

import copy

import numpy as np
import pytest
import torch
from scipy import sparse

import pyro_prme as prme
from pyro_prme.inference.options import Origin, RunOptions
from pyro_prme.inference.rules.topics import OwnCountsOut
from pyro_prme.inference.rules.topics.memory import Memory
from pyro_prme.inference.session import evaluating
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.kernels.own_counts import ONE, Kept, add_kept_
from pyro_prme.models.networks.layers import LinearDecoder
from pyro_prme.models.prme import PRME, ShapePRME
from tests.inference.fits import corpus

K, D = 5, 40


def built(kind=ShapePRME, size=60, **options):
    sizes = {"h_dim": 3, "ell_dim": 3} if issubclass(kind, PRME) else {}
    model = kind(K, D, size, gamma0=0.1, **sizes)
    return PRMEGuide(model, topics=OwnCountsOut(**options))


def trainer(kind=ShapePRME, counts=None, options=None, **train):
    counts = corpus() if counts is None else counts
    return Trainer(
        built(kind, counts.shape[0], **(options or {})), Counts(counts), TrainOptions(batch_size=25, **train)
    )


def from_memory(fit: Trainer) -> torch.Tensor:
    """gamma as the memory of all documents has it."""
    topics, batch = fit.guide.topics, fit.data.batch(np.arange(len(fit.data)))[0]
    held = topics.memory.held(fit.data, np.arange(len(fit.data)), batch.indptr, batch.count)
    gamma = topics.prior().expand_as(topics.gamma).clone()
    add_kept_(gamma, batch.word, held.tokens, held.kept)
    return gamma


@pytest.mark.parametrize("kind", [prme.HDP, prme.DILN, PRME, ShapePRME])
def test_the_plan_names_it_and_topics_are_the_counts_of_all_documents(kind):
    fit = trainer(kind)
    assert "own counts out" in str(fit.guide.plan())
    before = []
    fit.fit(3, lambda trainer, record: before.append(record["bound"]))
    topics = fit.guide.topics
    torch.testing.assert_close(topics.gamma, from_memory(fit), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(topics.gamma.sum(0), topics.total, rtol=1e-6, atol=1e-6)
    assert float(topics.gamma.sum()) == pytest.approx(corpus().sum() + 0.1 * K * D)
    assert before[2] > before[0]


@pytest.mark.parametrize("steps", [1, 2])
def test_within_a_pass_each_batch_moves_the_topics_by_its_new_counts_less_its_old_ones(steps):
    fit = trainer()
    fit.epoch()
    start = fit.guide.topics.gamma.clone()
    for rows in (np.arange(25), np.arange(25, 50))[:steps]:
        fit.step(rows)
    topics = fit.guide.topics
    assert float((topics.gamma - start).abs().max()) > 0.1
    torch.testing.assert_close(topics.gamma, from_memory(fit), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(topics.gamma.sum(0), topics.total, rtol=1e-6, atol=1e-6)


def test_online_a_document_fades_from_the_topics_as_they_do():
    fit = trainer(mode="online", delay=1.0, decay=0.6)
    rates = [(1.0 + t) ** -0.6 for t in (1, 2)]
    for rows in (np.arange(30), np.arange(30, 60)):
        fit.step(rows)
    memory = fit.guide.topics.memory
    np.testing.assert_allclose(memory.share(np.arange(30)), 2 * rates[0] * (1 - rates[1]))
    np.testing.assert_allclose(memory.share(np.arange(30, 60)), 2 * rates[1])


def test_documents_of_the_fit_are_explained_without_their_words_and_others_are_not():
    fit = trainer()
    fit.fit(2)
    rows = np.arange(25)
    args = fit.data.batch(rows)
    with torch.no_grad(), evaluating(fit.guide.model, fit.guide):
        own, new, elsewhere = (
            fit.guide.run(*args, options=RunOptions(origin=origin, sweeps=50)).terms()["X"]
            for origin in (Origin(fit.data, rows), None, Origin(Counts(corpus()), rows))
        )
    assert float(own) < float(new) - 1
    torch.testing.assert_close(elsewhere, new)


def test_the_score_of_a_word_is_its_probability_given_all_others():
    fit = trainer(prme.HDP)
    fit.fit(2)
    rows = np.arange(60)
    with torch.no_grad(), evaluating(fit.guide.model, fit.guide):
        run = fit.guide.run(*fit.data.batch(rows), options=RunOptions(origin=Origin(fit.data, rows)))
    found = run.local["Z"]
    score = float((found.batch.count * found.step.log_normalizer).sum())
    terms = run.terms()
    assert float(terms["X"]) == pytest.approx(score)
    assert [float(terms[name]) for name in ("theta", "Z", "C")] == [0, 0, 0]
    assert -np.log(D) < score / corpus().sum() < -0.5


def test_gradients_are_of_the_completion_of_what_the_network_does_not_see():
    """Against differences of the probability of the words that are not seen, with what was folded in held."""
    fit = trainer(options={"objective": "completion"})
    fit.fit(1)
    rows = np.arange(60)
    args = fit.data.batch(rows)
    with torch.no_grad(), evaluating(fit.guide.model, fit.guide):
        run = fit.guide.run(*args, options=RunOptions(origin=Origin(fit.data, rows)))
    torch.manual_seed(0)
    shown = fit.guide.for_gradients(args)
    batch, seen = args[0], shown[0].seen
    assert bool((seen <= batch.count).all())
    assert 0.2 < float(seen.sum() / batch.count.sum()) < 0.8
    fit.guide.eval()
    held = fit.guide.run(*shown, options=RunOptions(held=run.local))
    objective = held.objective()
    (gradient,) = torch.autograd.grad(objective, fit.guide.claim("V").free)
    assert float(gradient.abs().max()) > 0
    everything = fit.guide.run(args[0].showing(batch.count), options=RunOptions(held=run.local))
    topics = fit.guide.topics
    assert float(topics.objective(everything)["Z"].detach()) == 0  # nothing is left to predict
    nothing = fit.guide.run(args[0].showing(torch.zeros_like(batch.count)), options=RunOptions(held=run.local))
    words = float(batch.count.sum())
    prior_only = float(topics.objective(nothing)["Z"].detach()) / words
    half = float(topics.objective(held)["Z"].detach()) / float((batch.count - seen).sum())
    assert half > prior_only + 0.05  # what is seen helps to predict the rest


def test_the_other_objective_is_the_profiled_bound():
    fit = trainer(options={"objective": "profiled"})
    args = fit.data.batch(np.arange(25))
    assert fit.guide.for_gradients(args) is args
    with pytest.raises(ValueError, match="choose 'completion' or 'profiled'"):
        OwnCountsOut(objective="plain")


def test_it_finds_the_topics_that_made_the_documents():
    rng = np.random.default_rng(0)
    made = np.kron(np.eye(4), np.full(D // 4, 4 / D))
    counts = np.stack([rng.multinomial(40, rng.dirichlet(np.full(4, 0.2)) @ made) for _ in range(200)])
    fit = trainer(counts=sparse.csr_matrix(counts))
    fit.fit(20)
    blocks = (fit.guide.topics.gamma / fit.guide.topics.total).mT.reshape(K, 4, D // 4).sum(-1)
    purest = blocks.max(0).values
    assert float(purest.min()) > 0.9


def test_memory_knows_documents_by_their_rows_and_forgets_other_data():
    memory, data, other = Memory(2, 100), Counts(sparse.eye(3).tocsr()), Counts(sparse.eye(3).tocsr())
    rows, indptr = np.array([2, 0]), torch.tensor([0, 2, 3])
    kept = Kept(
        torch.tensor([[1, 0], [2, 0], [3, 1]], dtype=torch.int16), torch.tensor([[ONE, 0]] * 3, dtype=torch.int16)
    )
    count = torch.tensor([1.0, 2.0, 3.0])
    assert float(memory.held(data, rows, indptr, count).tokens.sum()) == 0
    memory.keep_(rows, indptr, kept, now=False, amount=2.0)
    assert float(memory.held(data, rows, indptr, count).tokens.sum()) == 0  # until the natural step
    memory.step(0.5)
    back = memory.held(data, rows[::-1].copy(), torch.tensor([0, 1, 3]), count[[2, 0, 1]])
    assert back.tokens.tolist() == [3.0, 1.0, 2.0]
    assert back.kept.topics[:, 0].tolist() == [3, 1, 2]
    assert float(memory.held(data, np.array([7]), torch.tensor([0, 3]), count).tokens.sum()) == 0
    state = memory.state()
    assert float(memory.held(other, rows, indptr, count).tokens.sum()) == 0
    memory.restore(state, other)
    assert memory.held(other, rows, indptr, count).tokens.tolist() == [1.0, 2.0, 3.0]
    assert float(memory.held(other, rows, torch.tensor([0, 1, 3]), count).tokens.sum()) == 0  # other lengths
    with pytest.raises(ValueError, match="out of range"):
        memory.restore(state | {"begin": state["begin"] + 9}, other)
    with pytest.raises(ValueError, match="do not fit together"):
        memory.restore(state | {"share": state["share"][:1]}, other)


def test_a_corpus_too_large_to_remember_is_forgotten_online_and_remembered_in_batch_passes():
    nothing, all_of_it = trainer(options={"most": 100}, mode="online"), trainer(options={"most": 100})
    small = trainer(options={"most": 10_000}, mode="online")
    for fit in (nothing, all_of_it, small):
        fit.fit(2)
    entries = corpus().nnz
    assert [len(fit.guide.topics.memory.state()["topics"]) for fit in (nothing, all_of_it, small)] == [
        0,
        entries,
        entries,
    ]
    assert len(nothing.guide.topics.memory.state()["begin"]) == 0
    rows = np.arange(60)
    batch = nothing.data.batch(rows)[0]
    held = nothing.guide.topics.memory.held(nothing.data, rows, batch.indptr, batch.count)
    assert not held.tokens.any()
    torch.testing.assert_close(all_of_it.guide.topics.gamma, from_memory(all_of_it), rtol=1e-6, atol=1e-6)


def test_memories_of_several_workers_are_joined_by_the_rows_that_each_has():
    fits = [trainer(options={"keep": 3}) for _ in range(2)]
    whole = trainer(options={"keep": 3})
    for fit, rows in ((whole, np.arange(60)), (fits[0], np.arange(0, 60, 2)), (fits[1], np.arange(1, 60, 2))):
        for part in np.array_split(rows, 2):
            batch = fit.data.batch(part)[0]
            memory = fit.guide.topics.memory
            memory.held(fit.data, part, batch.indptr, batch.count)
            numbers = torch.from_numpy(part).repeat_interleave(batch.indptr.diff())
            kept = Kept(*(((numbers[:, None] + torch.arange(3)) % m).to(torch.int16) for m in (5, 1000)))
            memory.keep_(part, batch.indptr, kept, True, 1.0)
    joined = Memory.joined([fit.guide.topics.memory.state() for fit in fits])
    fresh = trainer(options={"keep": 3})
    fresh.guide.topics.memory.restore(joined, fresh.data)
    rows, batch = np.arange(60), fresh.data.batch(np.arange(60))[0]
    one, other = (f.guide.topics.memory.held(f.data, rows, batch.indptr, batch.count) for f in (fresh, whole))
    assert torch.equal(one.tokens, other.tokens)
    assert one.tokens.any()
    assert all(torch.equal(x, y) for x, y in zip(one.kept, other.kept, strict=True))


def test_a_fit_that_is_taken_up_goes_on_as_if_never_interrupted():
    fit, again = trainer(), trainer()
    fit.fit(2)
    state = copy.deepcopy({name: part for name, part in fit.state_dict().items()})
    again.load_state_dict(state)
    for one in (fit, again):
        one.epoch()
    assert fit.history[-1] == again.history[-1]
    torch.testing.assert_close(fit.guide.topics.gamma, again.guide.topics.gamma, rtol=0, atol=0)
    lost = trainer()
    lost.load_state_dict(state | {"memory": {}})
    lost.epoch()
    assert lost.history[-1]["bound"] != pytest.approx(fit.history[-1]["bound"], rel=1e-3)


def test_the_default_of_the_doors_leaves_own_counts_out_and_says_so():
    fitted = prme.PRMETopicModel(4, max_iter=2, random_state=0).fit(corpus())
    rule = fitted.guide_.topics.rule
    assert isinstance(rule, OwnCountsOut)
    assert rule.objective == "completion"
    assert isinstance(fitted.model_, ShapePRME)
    assert isinstance(fitted.model_.decoder, LinearDecoder)
    assert (fitted.model_.beta, fitted.model_.gamma0, fitted.model_.h_scale) == (3.0, 0.05, 10.0)
    assert fitted.trainer_.options.learning_rate == 5e-3
    assert "own counts out" in repr(fitted.posterior_)
    assert fitted.history_[0]["bound_name"] == "log probability of each word given all others"
    dirichlet = prme.PRMETopicModel(4, preset="dirichlet", max_iter=1, random_state=0).fit(corpus())
    assert not isinstance(dirichlet.guide_.topics.rule, OwnCountsOut)
    assert dirichlet.model_.gamma0 == 0.2
    assert prme.PRMETopicModel(4, model="diln", max_iter=1, random_state=0).fit(corpus()).perplexity(corpus()) < 40
