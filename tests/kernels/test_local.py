"""The local step against a reference with an explicit phi, on both backends."""

import logging
from typing import NamedTuple

import numba
import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor

from pyro_prme.kernels import LocalStep, arithmetic, local, local_numba, local_step
from pyro_prme.kernels.local_torch import local_step_torch


class Case(NamedTuple):
    """The arguments of a local step."""

    indptr: Tensor
    word: Tensor
    count: Tensor
    elog_theta: Tensor
    prior: Tensor
    e: Tensor

    def to(self, dtype: torch.dtype) -> "Case":
        return Case(*(x.to(dtype) if x.is_floating_point() else x for x in self))


def make_case(seed=0, documents=12, topics=7, words=40, tokens=60, gamma0=0.1, beta=5.0, f_scale=1.0) -> Case:
    """A float64 batch whose values are exact in float32; document 3 is empty."""
    rng = np.random.default_rng(seed)
    rows = [np.unique(rng.integers(words, size=rng.poisson(tokens)), return_counts=True) for _ in range(documents)]
    rows[3 % documents] = (np.empty(0, int), np.empty(0, int))
    indptr = np.cumsum([0, *(len(row) for row, _ in rows)])
    gamma = torch.as_tensor(gamma0 + rng.gamma(0.1, 10.0, (words, topics)))
    floats = (
        torch.as_tensor(np.concatenate([count for _, count in rows]), dtype=torch.float64),
        torch.digamma(gamma) - torch.digamma(gamma.sum(0)),
        torch.as_tensor(beta * rng.dirichlet(np.ones(topics)) + 1e-8),
        torch.as_tensor(np.exp(f_scale * rng.normal(size=(documents, topics)))),
    )
    word = np.concatenate([row for row, _ in rows])
    return Case(torch.as_tensor(indptr), torch.as_tensor(word), *(x.float().double() for x in floats))


def solve_epsilon(a, e, prior, mass):
    """The root of sum_k a_k e_k eps / (e_k eps + M) = sum_k prior_k in ln eps, with no use of its shape."""
    a, e, prior, mass = (x.numpy() for x in (a, e, prior, mass))

    def excess(log_epsilon):
        scaled = e * np.exp(log_epsilon)
        return (a * scaled / (scaled + mass)).sum() / prior.sum() - 1

    return float(np.exp(brentq(excess, -60, 60, xtol=1e-14, rtol=1e-14)))


def reference(case: Case, max_sweeps=20, tolerance=1e-3, start=None, by_mean=False) -> LocalStep:
    """Eq. update_c and eq. update_z, one document at a time, with its (entries, K) matrix phi in memory."""
    indptr, word, count, elog_theta, prior, e = case.to(torch.float64)
    documents, (words, topics) = len(indptr) - 1, elog_theta.shape
    log_of = torch.log if by_mean else torch.digamma
    prior, e = (x.expand(documents, topics) for x in (prior, e))
    statistics, log_normalizer = torch.zeros(words, topics).double(), torch.zeros(len(word)).double()
    rows = []
    for n in range(documents):
        entries = slice(indptr[n], indptr[n + 1])
        c, theta = count[entries, None], elog_theta[word[entries]]
        mass, sweeps = c.sum(), 0
        if mass == 0:
            elog = log_of(prior[n]) - e[n].log()
            log_normalizer[entries] = (elog + theta).logsumexp(-1)
            rows.append((torch.zeros(topics), prior[n], e[n], (prior[n] / e[n]).sum(), elog, torch.tensor(0)))
            continue
        a = prior[n] + mass / topics
        rate = e[n] + mass / solve_epsilon(a, e[n], prior[n], mass)
        if start is not None:
            a, rate = start[0][n].double(), start[1][n].double()
        change = torch.tensor(torch.inf)
        while sweeps < max_sweeps and not change < tolerance * mass:
            elog = log_of(a) - rate.log()
            phi = (elog + theta).softmax(-1)  # (entries, K)
            counts = (c * phi).sum(0)
            change = (prior[n] + counts - a).abs().sum()
            a = prior[n] + counts
            epsilon = solve_epsilon(a, e[n], prior[n], mass)
            rate = e[n] + mass / epsilon
            sweeps += 1
        log_normalizer[entries] = (elog + theta).logsumexp(-1)
        statistics.index_add_(0, word[entries], c * phi)
        rows.append((counts, a, rate, torch.tensor(epsilon), elog, torch.tensor(sweeps)))
    counts, a, rate, epsilon, elog, sweeps = (torch.stack(column) for column in zip(*rows, strict=True))
    return LocalStep(counts, a, rate, epsilon, elog, log_normalizer, statistics, sweeps)


def torch_backend(*args, max_sweeps=20, tolerance=1e-3, start=(), by_mean=False, normalised=True) -> LocalStep:
    *rest, prior, e = args
    topics = prior.shape[-1]
    prior, e = prior.reshape(-1, topics), e.reshape(-1, topics)
    return local_step_torch(*rest, prior, e, max_sweeps, tolerance, start, by_mean, normalised)


BACKENDS = {"numba": local_step, "torch": torch_backend}
FLOATS = [torch.float32, torch.float64]


def assert_close(actual: LocalStep, expected: LocalStep, relative: float) -> None:
    for name, x, y in zip(LocalStep._fields, actual, expected, strict=True):
        assert torch.isfinite(x).all(), name
        if "log" in name:  # its absolute error is the relative error of what it is the logarithm of
            scale = 1 + y.abs()
        elif y.ndim == 2:  # a topic with next to nothing of a document or word is measured by the others
            scale = y.abs() + y.abs().mean(-1, keepdim=True)
        else:
            scale = y.abs()
        error = ((x.double() - y).abs() / (scale + 1e-30)).max() if y.numel() else torch.tensor(0.0)
        assert error < relative, (name, float(error))


def assert_same(left: LocalStep, right: LocalStep) -> None:
    for name, x, y in zip(LocalStep._fields, left, right, strict=True):
        assert torch.equal(x, y), name


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


@pytest.mark.parametrize("by_mean", [False, True])
@pytest.mark.parametrize("gamma0", [0.1, 1e-3])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(12, 7), (5, 2), (3, 37)])
def test_agrees_with_the_reference(backend, dtype, shape, gamma0, by_mean):
    case = make_case(seed=shape[1], documents=shape[0], topics=shape[1], gamma0=gamma0)
    result = backend(*case.to(dtype), by_mean=by_mean)
    assert all(x.dtype == dtype for x in result[:-1])
    assert result.sweeps.dtype == torch.int64
    assert_close(result, reference(case, by_mean=by_mean), 1e-5 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("dtype", FLOATS)
def test_without_a_sum_of_loadings_the_rate_is_as_given(backend, dtype):
    """Written out: phi from E ln Z with the rate e, and counts added to the prior, to the fixed point."""
    case = make_case()
    indptr, word, count, elog_theta, prior, e = case
    document = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    a = prior + torch.zeros(len(indptr) - 1, 1).index_add_(0, document, count[:, None]) / len(prior)
    for _ in range(2000):
        phi = ((a.digamma() - e.log())[document] + elog_theta[word]).softmax(-1)
        a = prior + torch.zeros_like(e).index_add_(0, document, count[:, None] * phi)
    result = backend(*case.to(dtype), max_sweeps=2000, tolerance=1e-9, normalised=False)
    relative = 1e-4 if dtype == torch.float32 else 1e-6
    torch.testing.assert_close(result.concentration.double(), a, rtol=relative, atol=relative)
    assert torch.equal(result.rate, e.to(dtype))
    statistics = torch.zeros_like(elog_theta).index_add_(0, word, count[:, None] * phi)
    torch.testing.assert_close(result.statistics.double(), statistics, rtol=relative, atol=relative)


@pytest.mark.parametrize("dtype", FLOATS)
def test_warm_start(backend, dtype):
    case = make_case()
    first = reference(case, max_sweeps=3, tolerance=0.0)
    start = tuple(x.float().double() for x in (first.concentration, first.rate))
    result = backend(*case.to(dtype), max_sweeps=4, tolerance=0.0, start=tuple(x.to(dtype) for x in start))
    relative = 1e-5 if dtype == torch.float32 else 1e-10
    assert_close(result, reference(case, max_sweeps=4, tolerance=0.0, start=start), relative)
    whole = reference(case, max_sweeps=7, tolerance=0.0)
    torch.testing.assert_close(result.counts.double(), whole.counts, rtol=1e-4, atol=1e-5)


def test_every_document_has_its_own_stopping_test(backend):
    case = make_case(documents=15, tokens=25)
    result = backend(*case, max_sweeps=100, tolerance=1e-3)
    expected = reference(case, max_sweeps=100, tolerance=1e-3)
    assert torch.equal(result.sweeps, expected.sweeps)
    assert len(result.sweeps.unique()) > 3
    assert result.sweeps.max() < 100


@pytest.mark.parametrize("max_sweeps", [0, 1, 2])
def test_the_number_of_sweeps_is_bounded_and_at_least_one(max_sweeps):
    result = local_step(*make_case(), max_sweeps=max_sweeps, tolerance=0.0)
    expected = torch.full((12,), max(1, max_sweeps))
    expected[3] = 0
    assert torch.equal(result.sweeps, expected)


def test_epsilon_is_the_root(backend):
    case = make_case(f_scale=3.0)
    result = backend(*case)
    for n in torch.nonzero(result.sweeps)[:, 0]:
        a, e, epsilon = result.concentration[n], case.e[n], result.epsilon[n]
        mass = case.count[case.indptr[n] : case.indptr[n + 1]].sum()
        left = (a * e * epsilon / (e * epsilon + mass)).sum()
        torch.testing.assert_close(left, case.prior.sum(), rtol=1e-12, atol=0)
        torch.testing.assert_close(result.rate[n], e + mass / epsilon)


@pytest.mark.parametrize("dtype", FLOATS)
def test_epsilon_of_an_hdp_is_beta(backend, dtype):
    case = make_case()
    hdp = case._replace(e=torch.ones(1, 7))
    result = backend(*hdp.to(dtype), max_sweeps=3)
    used = result.sweeps > 0
    torch.testing.assert_close(result.epsilon[used].double(), case.prior.sum().expand(11), rtol=1e-7, atol=0)
    nearly = backend(*case._replace(e=1 + 1e-9 * case.e), max_sweeps=3)  # Newton's method comes to the same
    torch.testing.assert_close(nearly.epsilon[used], case.prior.sum().expand(11), rtol=1e-7, atol=0)


def test_shapes_of_prior_and_f_broadcast(backend):
    case = make_case()
    full = case._replace(e=case.e[0].expand(12, 7))
    for prior in (case.prior, case.prior[None], case.prior.expand(12, 7)):
        for e in (case.e[0], case.e[:1], full.e):
            assert_same(backend(*case._replace(prior=prior, e=e)), backend(*full))


def test_empty_documents_have_their_prior(backend):
    case = make_case()
    result = backend(*case)
    assert result.sweeps[3] == 0
    assert torch.equal(result.counts[3], torch.zeros(7).double())
    assert torch.equal(result.concentration[3], case.prior)
    assert torch.equal(result.rate[3], case.e[3])
    torch.testing.assert_close(result.epsilon[3], (case.prior / case.e[3]).sum())


@pytest.mark.parametrize("documents", [0, 4])
@pytest.mark.parametrize("words", [0, 5])
def test_a_batch_without_tokens(backend, documents, words):
    indptr, word = torch.zeros(documents + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    result = backend(indptr, word, torch.zeros(0), torch.zeros(words, 3), torch.ones(3), torch.ones(1, 3))
    assert torch.equal(result.concentration, torch.ones(documents, 3))
    assert torch.equal(result.statistics, torch.zeros(words, 3))
    assert torch.equal(result.epsilon, torch.full((documents,), 3.0))


def test_entries_of_count_zero_add_nothing(backend):
    case = make_case()
    indptr = case.indptr + torch.arange(13)  # one entry of count zero at the end of each document
    where = indptr[1:] - 1
    word, count = torch.full((int(indptr[-1]),), 5), torch.zeros(int(indptr[-1])).double()
    kept = torch.ones(len(word), dtype=torch.bool)
    kept[where] = False
    word[kept], count[kept] = case.word, case.count
    padded = case._replace(indptr=indptr, word=word, count=count)
    assert_close(backend(*padded), reference(padded), 1e-10)
    torch.testing.assert_close(backend(*padded).statistics, backend(*case).statistics)


def test_repeated_words_are_summed_counts(backend):
    case = make_case()
    times = case.count.long()
    document = torch.repeat_interleave(torch.arange(12), case.indptr.diff())
    tokens = torch.repeat_interleave(torch.arange(len(times)), times)
    indptr = torch.cat([torch.zeros(1), torch.bincount(document[tokens], minlength=12).cumsum(0)]).long()
    flat = case._replace(indptr=indptr, word=case.word[tokens], count=torch.ones(len(tokens)).double())
    left, right = backend(*flat), backend(*case)
    for name in ("counts", "concentration", "rate", "epsilon", "elog_loadings", "statistics", "sweeps"):
        torch.testing.assert_close(getattr(left, name), getattr(right, name), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(left.log_normalizer, right.log_normalizer[tokens])


def test_identities_of_the_result(backend):
    case = make_case()
    result = backend(*case)
    mass = torch.stack([case.count[i:j].sum() for i, j in zip(case.indptr, case.indptr[1:], strict=False)])
    torch.testing.assert_close(result.counts.sum(-1), mass)
    torch.testing.assert_close(result.concentration, case.prior + result.counts)
    torch.testing.assert_close(result.statistics.sum(0), result.counts.sum(0))
    totals = torch.zeros(40).double().index_add_(0, case.word, case.count)
    torch.testing.assert_close(result.statistics.sum(-1), totals)


def test_by_mean_maximises_the_likelihood_with_the_prior_as_counts(backend):
    """With f = 0 the proportions maximise sum_m c_m ln sum_k z_k theta_k + sum_k beta p_k ln z_k: EM's fixed point."""
    case = make_case()._replace(e=torch.ones(1, 7).double())
    result = backend(*case, max_sweeps=5000, tolerance=1e-10, by_mean=True)
    free = (result.concentration / result.rate).log().requires_grad_()
    document = torch.repeat_interleave(torch.arange(12), case.indptr.diff())
    words = (free.log_softmax(-1)[document] + case.elog_theta[case.word]).logsumexp(-1)
    value = (case.count * words).sum() + (case.prior * free.log_softmax(-1)).sum()
    assert torch.autograd.grad(value, free)[0].abs().max() < 1e-6


EXTREMES = {
    "tiny gamma0 and prior": {"gamma0": 1e-3, "beta": 1e-7},
    "tiny prior": {"beta": 1e-7, "gamma0": 0.2},
    "gamma0 of a hundred-thousandth": {"gamma0": 1e-5},
    "wide f": {"f_scale": 8.0},
    "two topics": {"topics": 2, "gamma0": 1e-3},
    "three hundred topics": {"topics": 300, "documents": 4, "gamma0": 1e-2},
    "one word": {"tokens": 0.8, "topics": 50},
    "long documents": {"tokens": 100_000, "words": 3_000, "documents": 2, "topics": 20},
    "more rows than the buffer": {"tokens": 20_000, "words": 9_000, "documents": 2, "topics": 5},
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_extreme_values(backend, dtype, name):
    case = make_case(**EXTREMES[name])
    result = backend(*case.to(dtype), max_sweeps=5, tolerance=0.0)
    # a sweep of a fixed point with elog of magnitude 1e3 and more magnifies the rounding of float32
    assert_close(result, reference(case, max_sweeps=5, tolerance=0.0), 2e-4 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_word_that_lives_only_where_loadings_are_dead(backend, dtype):
    """Both factors of phi underflow in every topic, yet phi is well defined."""
    case = Case(
        indptr=torch.tensor([0, 2]),
        word=torch.tensor([0, 1]),
        count=torch.tensor([100.0, 3.0]).double(),
        elog_theta=torch.tensor([[-1.0, -1000.0, -1000.0], [-5000.0, -1.0, -2.0]]).double(),
        prior=torch.tensor([5.0, 2.0**-26, 2.0**-26]).double(),
        e=torch.ones(1, 3).double(),
    )
    start = (torch.tensor([[100.0, 2.0**-26, 2.0**-26]]).double(), torch.ones(1, 3).double())
    result = backend(*case.to(dtype), max_sweeps=1, start=tuple(x.to(dtype) for x in start))
    assert_close(result, reference(case, max_sweeps=1, start=start), 1e-5)


def test_same_numbers_for_any_number_of_threads():
    case = make_case(documents=300, topics=20, words=500, gamma0=1e-2).to(torch.float32)
    threads, pieces = torch.get_num_threads(), local_numba._SMALL
    assert len(case.word) * 20 > pieces  # so threads are used
    try:
        torch.set_num_threads(1)
        one = local_step(*case)
        for number in (2, 3):
            torch.set_num_threads(number)
            assert_same(local_step(*case), one)
            assert_same(local_step(*case), one)
    finally:
        torch.set_num_threads(threads)


def test_a_document_alone_is_the_document_in_its_batch():
    case = make_case(gamma0=1e-3).to(torch.float32)
    batch = local_step(*case)
    for n in range(12):
        entries = slice(int(case.indptr[n]), int(case.indptr[n + 1]))
        size = torch.tensor([0, entries.stop - entries.start])
        alone = local_step(size, case.word[entries], case.count[entries], case.elog_theta, case.prior, case.e[n])
        for name in ("counts", "concentration", "rate", "epsilon", "elog_loadings", "sweeps"):
            assert torch.equal(getattr(alone, name)[0], getattr(batch, name)[n]), name
        assert torch.equal(alone.log_normalizer, batch.log_normalizer[entries])


def test_inputs_are_left_alone_and_carry_no_gradient():
    case = make_case()
    copies = [x.clone() for x in case]
    result = local_step(*case._replace(e=case.e.clone().requires_grad_()))
    assert not any(x.requires_grad for x in result)
    assert all(torch.equal(x, y) for x, y in zip(case, copies, strict=True))


def test_strides_and_integer_counts_do_not_matter():
    case = make_case()
    transposed = case._replace(elog_theta=case.elog_theta.T.contiguous().T, count=case.count.int())
    assert_same(local_step(*transposed), local_step(*case))


WRONG = {
    "elog_theta must be": {"elog_theta": torch.zeros(40)},
    "float32 or float64": {"elog_theta": torch.zeros(40, 7, dtype=torch.int64)},
    "word must be a vector of integers": {"word": torch.zeros(3)},
    "indptr must be a vector of integers": {"indptr": torch.zeros(3)},
    "count must have one number": {"count": torch.zeros(3)},
    "indptr must increase": {"indptr": torch.tensor([0, 3, 2])},
    "word must index the 2 rows": {"elog_theta": torch.zeros(2, 7)},
    "prior_concentration must be": {"prior": torch.ones(6)},
    "prior_concentration must be positive": {"prior": torch.zeros(7)},
    "expected_exp_neg_f must be": {"e": torch.ones(2, 7)},
    "expected_exp_neg_f must be positive": {"e": torch.full((7,), torch.nan)},
    "all tensors must be on the device": {"prior": torch.ones(7, device="meta")},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_give_a_sentence(message):
    with pytest.raises(ValueError, match=message):
        local_step(*make_case()._replace(**WRONG[message]))


def test_wrong_start_and_negative_counts_give_a_sentence():
    case = make_case()
    with pytest.raises(ValueError, match="concentration of start must be"):
        local_step(*case, start=(torch.ones(7), torch.ones(12, 7)))
    with pytest.raises(ValueError, match="start must be a pair"):
        local_step(*case, start=(torch.ones(12, 7),))
    with pytest.raises(ValueError, match="count must not be negative"):
        local_step(*case._replace(count=-case.count))


def test_without_a_cache_directory_it_still_compiles(monkeypatch):
    njit = numba.njit

    def njit_without_locator(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", njit_without_locator)
    compiled = arithmetic.cached(lambda x: x + 1)
    monkeypatch.undo()  # numba itself uses it when it first compiles
    assert compiled(1) == 2


def test_a_compilation_is_logged_once(monkeypatch, caplog):
    local_step(*make_case())
    monkeypatch.setattr(arithmetic.CompilationLog, "said", False)
    with caplog.at_level(logging.INFO, "pyro_prme"):
        local_step(*make_case())
        assert caplog.records == []  # it is compiled by now
        with numba.core.event.install_listener("numba:compile", arithmetic.CompilationLog()):
            numba.njit(lambda x: x + 1)(1)
            numba.njit(lambda x: x + 2)(1)
    assert [record.getMessage()[:9] for record in caplog.records] == ["compiling"]


def test_other_devices_go_to_the_torch_form(monkeypatch):
    called = []
    monkeypatch.setattr("pyro_prme.kernels.local_torch.local_step_torch", lambda *args: called.append(args))
    monkeypatch.setattr(local, "_check", lambda *args: None)
    local_step(*(x.to("meta") for x in make_case()))
    assert len(called) == 1
