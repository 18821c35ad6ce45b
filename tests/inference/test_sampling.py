"""Gibbs sampling as a rule: its plan, the state of the chain and the mean over states, what gradients are of."""

import copy

import numpy as np
import pytest
import torch
from pyro import poutine
from scipy import sparse

import pyro_prme as prme
from pyro_prme.inference.build import check_passes
from pyro_prme.inference.options import Origin, RunOptions
from pyro_prme.inference.rules import Conjugate
from pyro_prme.inference.rules.topics import OwnCountsOut, Sampling
from pyro_prme.inference.rules.topics.sampling import SamplingFactors
from pyro_prme.inference.rules.topics.token_memory import TokenMemory
from pyro_prme.inference.session import evaluating
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.inference.workers import Workers
from pyro_prme.kernels.own_counts import add_kept_
from pyro_prme.kernels.sampling import Assigned, sample_topics
from pyro_prme.models.prme import PRME, ShapePRME
from tests.inference.fits import corpus
from tests.inference.test_gibbs import chain

K, D = 5, 40


def built(kind=ShapePRME, size=60, **options):
    sizes = {"h_dim": 3, "ell_dim": 3} if issubclass(kind, PRME) else {}
    model = kind(K, D, size, gamma0=0.1, **sizes)
    return PRMEGuide(model, topics=Sampling(**options))


def trainer(kind=ShapePRME, counts=None, options=None, **train):
    counts = corpus() if counts is None else counts
    guide = built(kind, counts.shape[0], **({"warm_up": 0, "burn_in": 2, "sweeps": 1} | (options or {})))
    return Trainer(guide, Counts(counts), TrainOptions(batch_size=25, **train))


def state_of(fit):
    """Topics of all words, and of which word each is."""
    topics, rows = fit.guide.topics, np.arange(len(fit.data))
    batch = fit.data.batch(rows)[0]
    assigned = topics.tokens_of_data.held(fit.data, rows, batch.length.numpy().astype(int), began=True)
    return assigned, batch.word.repeat_interleave(batch.count.long()), batch


def counts_of_state(fit):
    """Counts of topics, from the topics of all words."""
    assigned, word, _ = state_of(fit)
    counts = torch.zeros(D, K)
    return counts.index_put_((word, assigned.topics.long()), torch.ones(len(word)), accumulate=True)


def states_of(fit, passes):
    """What the chain's state predicts after each pass, and its sums."""
    found = []

    def after(trainer, record):
        topics = trainer.guide.topics
        gamma = topics.chain + 0.1
        found.append((gamma / gamma.sum(0), gamma.sum(0)))

    fit.fit(passes, after)
    return found


@pytest.mark.parametrize("kind", [prme.HDP, PRME, ShapePRME])
@pytest.mark.parametrize("objective", ["completion", "profiled"])
def test_the_plan_names_it_and_the_chain_has_the_counts_of_all_words(kind, objective):
    fit = trainer(kind, options={"objective": objective})
    assert "collapsed Gibbs" in str(fit.guide.plan())
    assert "after 0 passes by expected counts, and 2 of the chain" in str(fit.guide.plan())
    sticks = fit.guide.claim("V").free.detach().clone()
    for _ in range(3):
        fit.epoch()
        torch.testing.assert_close(fit.guide.topics.chain, counts_of_state(fit), rtol=0, atol=0)
        torch.testing.assert_close(fit.guide.topics.chain_total, fit.guide.topics.chain.double().sum(0))
    assert float((fit.guide.claim("V").free.detach() - sticks).abs().max()) > 0.01
    slope = state_of(fit)[0].slope
    assert bool((slope > 0).all())
    mass = state_of(fit)[2].length.double()
    assert torch.allclose(slope, mass / 5.0, rtol=1e-3) == (kind is not PRME)  # drawn where rates differ
    assert fit.history[-1]["bound_name"].startswith("log probability of each word given all others")
    assert fit.history[-1]["bound"] > fit.history[0]["bound"]


def test_topics_are_those_of_the_state_during_the_burn_in_and_then_the_mean_of_what_states_predict():
    fit = trainer(prme.HDP)
    found = states_of(fit, 2)
    topics = fit.guide.topics
    assert topics.num_states == 0
    torch.testing.assert_close(topics.gamma, topics.chain + 0.1)
    torch.testing.assert_close(topics.total, topics.gamma.sum(0))
    found += states_of(fit, 3)
    assert topics.num_states == 3
    mean = sum(theta for theta, _ in found[2:]) / 3
    torch.testing.assert_close(topics.gamma / topics.total, mean)
    torch.testing.assert_close(topics.total, sum(total for _, total in found[2:]) / 3)
    assert float((mean - found[-1][0]).abs().max()) > 1e-3
    posterior = prme.Posterior(fit.guide)
    np.testing.assert_allclose(posterior.topics().values, mean.mT.numpy(), rtol=1e-5)
    assert float(topics.tokens().sum()) == pytest.approx(corpus().sum(), rel=1e-5)


def test_a_chain_begins_where_expected_counts_have_led():
    fit, plain = trainer(prme.HDP, options={"warm_up": 2}), trainer(prme.HDP)
    other = Trainer(
        PRMEGuide(prme.HDP(K, D, 60, gamma0=0.1), topics=OwnCountsOut()), Counts(corpus()), TrainOptions(batch_size=25)
    )
    for one in (fit, other, plain):
        one.fit(2)
    topics = fit.guide.topics
    torch.testing.assert_close(topics.gamma, other.guide.topics.gamma, rtol=0, atol=0)
    assert float(topics.chain.sum()) == 0
    warm = topics.gamma / topics.total
    fit.epoch()
    assert float(topics.chain.sum()) == corpus().sum()
    assert topics.memory.state()["begin"].numel() == 0
    overlap = [float(torch.minimum(warm, t.chain / t.chain.sum(0)).sum(0).mean()) for t in (topics, plain.guide.topics)]
    assert overlap[0] > overlap[1] + 0.02
    fit.fit(3)
    assert topics.num_states == 2


def test_the_seed_decides_everything():
    one, same, other = (trainer(prme.HDP, seed=seed) for seed in (1, 1, 2))
    for fit in (one, same, other):
        fit.fit(3)
    assert torch.equal(state_of(one)[0].topics, state_of(same)[0].topics)
    assert one.history == same.history
    assert one.history[-1]["bound"] != other.history[-1]["bound"]


def test_words_are_drawn_anew_at_each_visit_and_sweep():
    fit = trainer(prme.HDP)
    fit.fit(3)
    before = state_of(fit)[0].topics
    fit.epoch()
    after = state_of(fit)[0].topics
    assert 0.01 < float((before != after).float().mean()) < 0.95
    rows = np.arange(25)
    args, origin = fit.data.batch(rows), Origin(fit.data, rows)
    draws = []
    for sweeps in (1, 2):
        with torch.no_grad(), evaluating(fit.guide.model, fit.guide):
            run = fit.guide.run(*args, options=RunOptions(origin=origin, sweeps=sweeps))
        draws.append(run.local["Z"].assigned.topics)
    assert not torch.equal(*draws)
    assert torch.equal(state_of(fit)[0].topics, after)  # a run alone changes nothing
    twice = trainer(prme.HDP, options={"sweeps": 2})
    twice.fit(1)
    once = trainer(prme.HDP)
    once.fit(1)
    assert twice.history[0]["bound"] > once.history[0]["bound"]


def test_every_visit_has_random_numbers_of_its_own_and_so_has_every_document(monkeypatch):
    fit, seen = trainer(prme.HDP), []

    def spied(*args, key, rows, **options):
        seen.append((key, rows.tolist()))
        return sample_topics(*args, key=key, rows=rows, **options)

    monkeypatch.setattr("pyro_prme.inference.rules.topics.sampling.sample_topics", spied)
    fit.fit(2)
    assert len({key for key, _ in seen}) == len(seen) == 6
    assert sorted(n for _, rows in seen[:3] for n in rows) == list(range(60))


@pytest.mark.parametrize("kind", [PRME, ShapePRME])
def test_a_document_without_words_does_no_harm(kind):
    counts = corpus().tolil()
    counts[7] = 0
    fit = trainer(kind, sparse.csr_matrix(counts), options={"objective": "profiled"})
    fit.fit(3)
    assert all(bool(torch.isfinite(p).all()) for p in (*fit.guide.parameters(), *fit.model.parameters()))
    assert np.isfinite(fit.history[-1]["bound"])


def test_the_score_is_the_probability_of_the_words_when_they_were_drawn():
    fit = trainer(prme.HDP)
    fit.fit(2)
    rows = np.arange(60)
    with torch.no_grad(), evaluating(fit.guide.model, fit.guide):
        run = fit.guide.run(*fit.data.batch(rows), options=RunOptions(origin=Origin(fit.data, rows)))
        terms = run.terms()
        new = fit.guide.run(*fit.data.batch(rows)).terms()
    assert float(terms["X"]) == pytest.approx(float(run.local["Z"].log_predictive.sum()))
    assert [float(terms[name]) for name in ("theta", "Z", "C")] == [0, 0, 0]
    assert -np.log(D) < float(terms["X"]) / corpus().sum() < -0.5
    assert float(new["X"]) > float(terms["X"])  # as new documents, they are in the topics that explain them


def test_gradients_see_topics_without_the_document_s_own_words():
    fit = trainer()
    fit.fit(3)
    rows = np.arange(25)
    args = fit.data.batch(rows)
    with torch.no_grad(), evaluating(fit.guide.model, fit.guide):
        run = fit.guide.run(*args, options=RunOptions(origin=Origin(fit.data, rows)))
    topics = fit.guide.topics
    topics.gather(run, 25 / 60)
    given, total, own = topics._without_own(run.local["Z"])
    left = given.clone()
    add_kept_(left, args[0].local_word, -own.tokens, own.kept)
    assigned, word, batch = state_of(fit)
    others = torch.arange(60).repeat_interleave(batch.length.long()) >= 25
    expected = torch.full((D, K), 0.1)
    expected.index_put_((word[others], assigned.topics.long()[others]), torch.ones(int(others.sum())), accumulate=True)
    torch.testing.assert_close(left, expected[args[0].words], rtol=1e-3, atol=2e-2)
    torch.testing.assert_close(total, (topics.chain + 0.1).double().sum(0))


def test_a_fit_that_is_taken_up_goes_on_as_if_never_interrupted():
    fit, again = trainer(PRME), trainer(PRME)
    fit.fit(3)
    state = copy.deepcopy(fit.state_dict())
    again.load_state_dict(state)
    for one in (fit, again):
        one.epoch()
    assert fit.history[-1] == again.history[-1]
    torch.testing.assert_close(fit.guide.topics.gamma, again.guide.topics.gamma, rtol=0, atol=0)
    lost = trainer(PRME)
    lost.load_state_dict(state | {"memory": {}})
    with pytest.raises(ValueError, match="state of these documents is not known"):
        lost.epoch()


def test_another_start_forgets_the_chain():
    fit = trainer()
    fit.fit(3)
    fit.guide.begin(fit.data, "random", 0)
    topics = fit.guide.topics
    assert float(topics.chain.sum()) == 0
    assert topics.num_states == 0
    fit.epoch()
    torch.testing.assert_close(topics.chain, counts_of_state(fit), rtol=0, atol=0)


def test_the_first_pass_draws_from_the_topics_of_the_start():
    rng = np.random.default_rng(0)
    made = np.kron(np.eye(4), np.full(D // 4, 4 / D))
    counts = np.stack([rng.multinomial(40, rng.dirichlet(np.full(4, 0.2)) @ made) for _ in range(200)])
    fit = trainer(counts=sparse.csr_matrix(counts))
    start = (fit.guide.topics.gamma / fit.guide.topics.total).clone()
    fit.epoch()
    chain = fit.guide.topics.chain / fit.guide.topics.chain.sum(0)
    overlap = torch.minimum(start, chain).sum(0)
    assert float(overlap.mean()) > 0.6
    fit.fit(20)
    blocks = (fit.guide.topics.gamma / fit.guide.topics.total).mT.reshape(K, 4, D // 4).sum(-1)
    assert float(blocks.max(0).values.min()) > 0.9


def test_what_has_no_sweeps_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="goes over all documents in one process"):
        trainer(mode="online")
    with pytest.raises(ValueError, match="one worker"):
        Trainer(built(), Counts(corpus()), workers=Workers(0, 2))
    with pytest.raises(ValueError, match="DILN's function has a Gaussian factor"):
        prme.build(4, D, 60, model="diln", inference="gibbs")
    with pytest.raises(ValueError, match="inference is 'mcmc'"):
        prme.build(4, D, 60, inference="mcmc")
    with pytest.raises(ValueError, match="own_words counts tables"):
        prme.build(4, D, 60, own_words=True, inference="gibbs")
    with pytest.raises(ValueError, match="burn_in is -1"):
        Sampling(burn_in=-1)
    with pytest.raises(ValueError, match="max_iter is 20: inference='gibbs' averages states after 20 passes"):
        check_passes("max_iter", 20, {"inference": "gibbs"})
    check_passes("max_iter", 6, {"inference": "gibbs", "warm_up": 2, "burn_in": 3})
    check_passes("max_iter", 1, {})
    with pytest.raises(ValueError, match="too many to hold the topic of each"):
        TokenMemory().held(None, np.arange(1), np.array([2**31]), began=False)
    fit = trainer()
    with pytest.raises(ValueError, match="no online steps"):
        fit.guide.topics.natural_step(0.5)
    run = fit.guide.run(*fit.data.batch(np.arange(25)))
    with pytest.raises(ValueError, match="each of which counts once"):
        fit.guide.topics.gather(run, 25 / 60)


def test_memory_holds_documents_by_their_rows():
    memory, data, other = TokenMemory(), Counts(sparse.eye(3).tocsr()), Counts(sparse.eye(3).tocsr())
    rows, size = np.array([2, 0]), np.array([2, 1])
    state = Assigned(torch.tensor([4, 1, 3], dtype=torch.int16), torch.tensor([0.5, 2.0]).double())
    assert memory.held(data, rows, size, began=False).topics.tolist() == [-1, -1, -1]
    memory.keep_(rows, size, state)
    back = memory.held(data, rows[::-1].copy(), size[::-1].copy(), began=True)
    assert back.topics.tolist() == [3, 4, 1]
    assert back.slope.tolist() == [2.0, 0.5]
    assert memory.held(data, rows, size, began=False).topics.tolist() == [-1, -1, -1]
    kept = memory.state()
    with pytest.raises(ValueError, match="not known"):
        memory.held(other, rows, size, began=True)
    memory.restore(kept, other)
    assert memory.held(other, rows, size, began=True).topics.tolist() == [4, 1, 3]
    with pytest.raises(ValueError, match="not those of the chain"):
        memory.held(other, rows, size[::-1].copy(), began=True)
    with pytest.raises(ValueError, match="out of range"):
        memory.restore(kept | {"begin": kept["begin"] + 9}, other)
    with pytest.raises(ValueError, match="do not fit together"):
        memory.restore(kept | {"slope": kept["slope"][:1]}, other)


@pytest.mark.slow
def test_it_agrees_with_gibbs_sampling_of_the_same_model():
    """Next words of each document, and how often two words share a topic, of a small HDP whose sticks are known."""
    rng = np.random.default_rng(1)
    counts = sparse.csr_matrix(rng.poisson(0.8, (4, 5)).astype(float))
    weights = torch.tensor([0.5, 0.6])
    model = poutine.condition(prme.HDP(3, 5, 4, beta=2.0, gamma0=0.5), {"V": weights})
    guide = prme.ClosedFormGuide(model, candidates=(Sampling(warm_up=0, burn_in=0), Conjugate()))
    fit = Trainer(guide, Counts(counts), TrainOptions(batch_size=4))
    factors: SamplingFactors = next(c for c in guide.claims if isinstance(c, SamplingFactors))
    a = 2.0 * torch.tensor([0.5, 0.3, 0.2])
    drawn = []

    def after(trainer, record):
        run = trainer.guide.run
        gamma = factors.chain + 0.5
        batch = trainer.data.batch(np.arange(4))[0]
        size = batch.length.numpy().astype(int)
        z = factors.tokens_of_data.held(trainer.data, np.arange(4), size, began=True).topics.long()
        n = torch.zeros(4, 3)
        n.index_put_((torch.arange(4).repeat_interleave(batch.length.long()), z), torch.ones(len(z)), accumulate=True)
        proportions = (a + n) / (a + n).sum(1, keepdim=True)
        assert run is not None
        drawn.append(proportions @ (gamma / gamma.sum(0)).mT)

    fit.fit(1500, after)
    ours = torch.stack(drawn[50:]).mean(0)
    batch = prme.Batch.from_tokens([np.repeat(np.arange(5), row.astype(int)).tolist() for row in counts.toarray()])
    draws = chain(model, batch, samples=1500, warmup=50)
    Z, theta = draws["Z"].reshape(-1, 4, 3), draws["theta"].reshape(-1, 3, 5)
    theirs = ((Z / Z.sum(-1, keepdim=True)) @ theta).mean(0)
    torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=0, atol=0.012)
