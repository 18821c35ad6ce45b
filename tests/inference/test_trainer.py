"""Inference: monotone blocks, finite training in extremes, seeds, resuming, starts."""

import copy
import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pyro_prme import HDP, Batch, Counts, PRMEGuide, Trainer, TrainOptions
from pyro_prme.conjugacy.random_tensor import Random
from pyro_prme.equations.bounds import NORMALIZERS
from pyro_prme.equations.updates import robbins_monro_rate
from pyro_prme.inference import trainer as trainer_module
from pyro_prme.inference.build import build
from pyro_prme.inference.session import evaluating
from pyro_prme.inference.topic_starts import STARTS, kmeans_start
from tests.inference.fits import closed_form_bounds, corpus, trainer


@pytest.mark.parametrize("model", ["prme", "hdp"])
@pytest.mark.parametrize("max_sweeps", [1, 20])
def test_the_bound_never_falls_over_the_closed_form_blocks(model, max_sweeps):
    t = trainer(corpus(), model=model, hyper={"encoder": "words"})
    t.fit(2)
    bounds = closed_form_bounds(t.guide, Batch.from_csr(corpus()), 15, sweeps=max_sweeps)
    assert (bounds.diff() > -1e-9 * bounds[0].abs()).all()
    assert bounds[-1] > bounds[0] + 1


EXTREMES = {
    "gamma0 of 1e-3": lambda: (corpus(), 6, {"gamma0": 1e-3}, "kmeans"),
    "one-word documents": lambda: (corpus(length=1), 6, {}, "kmeans"),
    "a document of 100,000 tokens": lambda: (
        sparse.vstack([corpus(), sparse.csr_matrix(np.full((1, 40), 2500))]).tocsr(), 6, {}, "kmeans"),
    "an empty document": lambda: (sparse.vstack([corpus(), sparse.csr_matrix((1, 40))]).tocsr(), 6, {}, "kmeans"),
    "K = 2": lambda: (corpus(), 2, {}, "kmeans"),
    "K = 300": lambda: (corpus(), 300, {}, "random"),
    "a topic dies": lambda: (corpus(), 6, {"beta": 0.1}, "kmeans"),
}  # fmt: skip


@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("mode", ["batch", "online"])
def test_float32_training_stays_finite_and_its_blocks_monotone(case, mode, float32):
    counts, num_topics, hyper, start = EXTREMES[case]()
    t = trainer(counts, num_topics, hyper={"encoder": "words"} | hyper, start=start, mode=mode)
    if case == "a topic dies":
        with torch.no_grad():
            t.guide.topics.gamma[:, -1] = 0.2
            t.guide.claim("V").free[-1] = 30.0
    records = t.fit(4)
    assert all(np.isfinite(record["bound"]) for record in records)
    for part in (t.model, t.guide):
        assert all(torch.isfinite(x).all() for x in part.state_dict().values())
    bounds = closed_form_bounds(t.guide, Batch.from_csr(counts), 8)
    # stated float error: 1e-6 of the sum of the terms' sizes (they nearly cancel for long documents)
    size = sum(abs(x) for x in t.bound().terms.values())
    assert (bounds.diff() > -1e-6 * size).all(), bounds.diff().min() / size


@pytest.mark.parametrize("model", ["prme", "hdp"])
def test_batches_of_empty_documents_train_and_keep_the_prior(model):
    counts = sparse.vstack([sparse.csr_matrix((9, 40)), corpus(20)]).tocsr()
    t = trainer(counts, model=model, batch_size=1)
    assert np.isfinite(t.fit(1)[0]["bound"])
    with torch.no_grad(), evaluating(t.model, t.guide):
        run = t.guide.run(Batch.from_csr(counts, [0, 1]))
        values = run.values() | run.fixed
        f = values.get("f", torch.zeros(()))
        shape = t.model.shape(values["V"], f) if model == "prme" else t.model.concentration(values["V"])
    q = run.factor("Z")
    torch.testing.assert_close(q.concentration, shape.expand(2, -1))
    torch.testing.assert_close(q.rate, torch.ones(2, 6))


def test_a_corpus_without_words_is_refused():
    with pytest.raises(ValueError, match="3 documents have no words"):
        trainer(sparse.csr_matrix((3, 40)))


def test_repeated_documents_leave_some_clusters_empty():
    counts = sparse.vstack([corpus(2)] * 10).tocsr()
    assert np.isfinite(trainer(counts).fit(1)[0]["bound"])


def test_batch_mode_is_coordinate_ascent_for_an_hdp():
    """One natural step an epoch from the statistics of all batches: gamma = gamma0 + statistics."""
    t = trainer(corpus(), model="hdp")
    t.epoch()
    gamma = t.guide.topics.gamma
    assert float(gamma.sum()) == pytest.approx(0.2 * gamma.numel() + corpus().sum(), rel=1e-9)


def test_online_steps_are_scaled_by_the_corpus_and_the_rate():
    counts = corpus()
    t = trainer(counts, model="hdp", mode="online", delay=1.0, decay=0.6)
    batch = Batch.from_csr(counts, np.arange(20))
    before = t.guide.topics.gamma.clone()
    with torch.no_grad(), evaluating(t.guide):
        statistics = t.guide.run(batch).local["Z"].step.statistics
    target = torch.full_like(before, 0.2)
    target[batch.words] += 60 / 20 * statistics
    t.step(np.arange(20))
    rate = robbins_monro_rate(1, 1.0, 0.6)
    torch.testing.assert_close(t.guide.topics.gamma, (1 - rate) * before + rate * target)


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("encoder", ["topics", "words"])
def test_the_same_seed_gives_the_same_numbers(mode, encoder):
    runs = [trainer(corpus(), seed=seed, mode=mode, hyper={"encoder": encoder}).fit(3) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_training_leaves_the_global_random_state_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    trainer(corpus()).fit(1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("encoder", ["topics", "words"])
@pytest.mark.parametrize("mode", ["batch", "online"])
def test_an_interrupted_run_ends_with_the_same_numbers(mode, encoder):
    hyper = {"encoder": encoder}
    whole = trainer(corpus(), mode=mode, hyper=hyper)
    whole.fit(4)
    first = trainer(corpus(), mode=mode, hyper=hyper)
    first.fit(2)
    state = first.state_dict()
    second = trainer(corpus(), mode=mode, hyper=hyper, start=None)
    second.load_state_dict(state)
    second.fit(2)
    assert second.history == whole.history
    assert torch.equal(second.guide.topics.gamma, whole.guide.topics.gamma)


class Ended(Exception):
    """Stands for the end of the process."""


def ended_after(fit, steps):
    """The state of a fit that ends after so many steps, wherever that is."""
    states = []

    def end(trainer):
        if trainer.steps == steps:
            states.append(copy.deepcopy(trainer.state_dict()))
            raise Ended

    with pytest.raises(Ended):
        fit.fit(10, between=end)
    return states[0]


@pytest.mark.parametrize("hyper", [{}, {"topics": "own-counts-out"}])
@pytest.mark.parametrize("model", ["prme", "diln"])
@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("steps", [1, 8])
def test_a_fit_that_ends_within_an_epoch_goes_on_to_the_same_numbers(mode, model, hyper, steps):
    given = {"mode": mode, "model": model, "hyper": hyper, "batch_size": 13}  # five steps an epoch
    whole = trainer(corpus(), **given)
    whole.fit(3)
    state = ended_after(trainer(corpus(), **given), steps)
    assert 0 < state["underway"]["done"] < 60
    assert len(state["history"]) == (steps > 5)
    second = trainer(corpus(), start=None, **given)
    second.load_state_dict(state)
    second.fit(3 - len(second.history))
    assert second.history == whole.history
    assert second.steps == whole.steps
    for one, other in ((second.guide, whole.guide), (second.model, whole.model)):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_what_fits_no_epoch_under_way_is_refused():
    state = ended_after(trainer(corpus(), batch_size=13), 2)
    for change, message in (
        ({"done": 60}, "rows done is 60"),
        ({"totals": [{"Z": float("nan")}]}, "Z is nan"),
        ({"pending": [{f"{i}.counts": torch.zeros(3, 2) for i in range(6)}]}, "pending"),
    ):
        fit = trainer(corpus(), batch_size=13, start=None)
        with pytest.raises(ValueError, match=message):
            fit.load_state_dict(state | {"underway": state["underway"] | change})


def test_steps_shrink_to_nothing_over_the_last_share_of_a_planned_fit(monkeypatch):
    fit = trainer(corpus(), mode="online", batch_size=12, cooling=0.5)  # five steps an epoch, ten in all
    rates, speeds, optimiser = [], [], fit.optimisers[0]
    before = [group["lr"] for group in optimiser.param_groups]
    monkeypatch.setattr(fit, "_natural_step", rates.append)
    monkeypatch.setattr(optimiser, "step", lambda: speeds.append(optimiser.param_groups[0]["lr"] / before[0]))
    fit.fit(2)
    ease = [min(1.0, 2 - step / 5) for step in range(10)]
    assert rates == pytest.approx([e * robbins_monro_rate(t, 100.0, 0.75) for t, e in enumerate(ease, 1)])
    assert speeds == pytest.approx(ease)
    assert [group["lr"] for group in optimiser.param_groups] == before
    rates.clear()
    fit.steps_on_all()  # of no planned end
    assert rates == pytest.approx([robbins_monro_rate(t, 100.0, 0.75) for t in range(11, 16)])


def test_an_online_pass_centres_f_again_on_the_way(monkeypatch):
    monkeypatch.setattr(trainer_module, "_CENTRING", 2)
    fit, calls = trainer(corpus(), mode="online", batch_size=13), []
    monkeypatch.setattr(fit.guide, "after_epoch", lambda data: calls.append(fit.steps))
    fit.epoch()
    assert calls == [2, 4, 5]
    batch = trainer(corpus(), mode="batch", batch_size=13)
    monkeypatch.setattr(batch.guide, "after_epoch", lambda data: calls.append(batch.steps))
    batch.epoch()
    assert calls[3:] == [5]


def test_history_and_callback():
    seen = []
    history = trainer(corpus()).fit(3, lambda t, record: seen.append((t.steps, record["bound"])))
    assert [record["epoch"] for record in history] == [1, 2, 3]
    assert [steps for steps, _ in seen] == [3, 6, 9]
    assert list(history[0]["terms"]) == ["ell", "V", "h", "Z", "C", "X", "theta"]
    assert history[-1]["bound"] > history[0]["bound"]
    assert history[0]["bound_name"] == "ELBO with the epsilon bound on E ln sum Z"


def test_the_bound_of_the_corpus_does_not_depend_on_the_batches():
    counts = corpus()
    t = trainer(counts)
    t.fit(2)
    small = t.bound()
    t.options = replace(t.options, batch_size=60)
    whole = t.bound()
    assert small.total == pytest.approx(whole.total, rel=1e-10)
    assert sum(whole.terms.values()) == whole.total
    assert t.bound("quadrature").total > whole.total
    assert (whole.name, t.bound("quadrature").name) == (NORMALIZERS["epsilon"], NORMALIZERS["quadrature"])


def test_the_running_mean_of_f_is_recomputed_exactly():
    t = trainer(corpus())
    t.fit(2)
    with torch.no_grad(), evaluating(t.model, t.guide):
        h = t.guide.embeddings(Batch.from_csr(corpus()))
        mean, _ = t.model.decoder.topic_centred(h, t.guide.claim("ell").value())
    torch.testing.assert_close(t.model.decoder.running_mean, mean.mean(0))


@pytest.mark.parametrize("start", STARTS)
def test_starts_set_positive_gamma_and_are_seeded(start):
    counts = corpus()
    gammas = []
    for seed in (0, 0, 1):
        t = trainer(counts, start=start, seed=seed)
        gammas.append(t.guide.topics.gamma.clone())
        assert (gammas[-1] > 0.2).all()
    assert torch.equal(gammas[0], gammas[1])
    assert not torch.equal(gammas[0], gammas[2])


def test_kmeans_finds_separated_groups_and_orders_them_by_size():
    sizes = [30, 20, 10]
    rows = [np.eye(3)[k].repeat(4) * 5 for k, size in enumerate(sizes) for _ in range(size)]
    start = kmeans_start(sparse.csr_matrix(np.stack(rows)), 3, np.random.default_rng(0))
    np.testing.assert_allclose(start.shares, np.array(sizes) / 60)
    np.testing.assert_allclose(start.centres, np.eye(3).repeat(4, axis=1) / 4, atol=1e-6)


def test_kmeans_works_on_a_sample_of_a_large_corpus():
    counts = corpus()
    many = sparse.vstack([counts] * 200).tocsr()
    start = kmeans_start(many, 4, np.random.default_rng(0))
    assert start.centres.shape == (4, 40)
    np.testing.assert_allclose(start.centres.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["decoder.head.weight", "ell", "V"])
def test_a_fit_that_has_diverged_says_so(name):
    fit = trainer(corpus())
    fit.epoch()
    named = dict(fit.model.named_parameters())
    parameter = named[name] if name in named else fit.guide.claim(name).free
    with torch.no_grad():
        parameter.view(-1)[0] = torch.nan
    with pytest.raises(ValueError, match=rf"After 3 steps .*{name}.* is not finite: the fit has diverged; start again"):
        fit.epoch()


def test_a_bound_that_is_not_finite_says_so():
    fit = trainer(corpus())
    fit.model.ell_scale = float("inf")
    with pytest.raises(ValueError, match="After 0 steps the bound at site ell is not finite"):
        fit.epoch()


def test_wrong_starts_and_settings_get_one_sentence():
    counts = corpus()
    with pytest.raises(ValueError, match="61 topics and 60 documents"):
        trainer(counts, num_topics=61)
    with pytest.raises(ValueError, match="start is 'best'"):
        trainer(counts, start="best")
    with pytest.raises(ValueError, match="mode is 'fast'"):
        trainer(counts, mode="fast")
    with pytest.raises(ValueError, match=r"decay is 0\.5: it must be a finite number above 0\.5 and at most 1"):
        trainer(counts, decay=0.5)
    guide = PRMEGuide(HDP(4, 41, 60))
    guide.plan(Batch.from_csr(counts))
    with pytest.raises(ValueError, match="corpus has 40 words and the model 41"):
        guide.begin(Counts(counts), "default", 0)
    with pytest.raises(ValueError, match="model is 'lda'"):
        build(4, 40, 60, model="lda")
    with pytest.raises(ValueError, match="encoder is 'bert'"):
        build(4, 40, 60, encoder="bert")


class NewStorages(TorchDispatchMode):
    """Bytes of every storage that torch makes within it."""

    def __init__(self):
        super().__init__()
        alive = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor) and not issubclass(type(x), Random)]
        self.known = {x.untyped_storage().data_ptr() for x in alive if not x.is_sparse}
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if not isinstance(x, torch.Tensor) or isinstance(x, Random) or x.is_sparse:
                continue  # a random tensor has no storage
            if x.untyped_storage().data_ptr() not in self.known:
                self.sizes.append(x.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("settings", [{"model": "hdp"}, {"model": "prme"}, {"model": "prme", "encoder": "words"}])
def test_a_step_makes_nothing_of_the_size_of_entries_by_topics_or_words_by_topics(settings, float32):
    """Most is B x K x the decoder's width; the vocabulary by topics is touched by the natural step alone."""
    K, D, B, width = 10, 1000, 5, 8
    rng = np.random.default_rng(0)
    counts = sparse.lil_matrix((2 * B, D), dtype=int)
    counts[:, rng.choice(D, 60, replace=False)] = rng.poisson(3.0, (2 * B, 60))
    hidden = {"encoder_hidden": (width,), "decoder_hidden": (width, width)}
    _, guide = build(K, D, 2 * B, **settings, **hidden)
    trainer = Trainer(guide, Counts(counts), TrainOptions(batch_size=B), start="random")
    rows = next(trainer.batches(shuffle=False))
    batch = Batch.from_csr(counts, rows)
    trainer.step(rows)
    with NewStorages() as made:
        trainer.step(rows)
    most = 8 * max(batch.words.numel() * K, B * K * width, D)
    assert 0 < max(made.sizes) <= most < 4 * min(batch.num_entries, D) * K
