"""Sweeps of the sampler: against plain Python, against the posterior by enumeration, and as a joint distribution."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_prme.kernels import sampling
from pyro_prme.kernels.own_counts import ONE
from pyro_prme.kernels.sampling import Assigned, kept_of_tokens, sample_topics

TWO_64 = 2**64


def uniforms(key, row):
    """The random numbers of a document, in whole numbers of Python."""

    def mixed(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % TWO_64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % TWO_64
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    state = mixed(mixed((key + golden) % TWO_64) ^ (row * golden % TWO_64))
    while True:
        state = (state + golden) % TWO_64
        yield (mixed(state) >> 11) * 2.0**-53


def make_case(seed=0, documents=6, topics=19, words=12, tokens=15):
    """Documents with the state of a chain; topics hold what it says, and gamma0."""
    rng = np.random.default_rng(seed)
    rows = [np.unique(rng.integers(words, size=rng.poisson(tokens)), return_counts=True) for _ in range(documents)]
    rows[2] = (np.empty(0, int), np.empty(0, int))
    indptr = np.cumsum([0, *(len(row) for row, _ in rows)])
    word, count = (np.concatenate([row[i] for row in rows]) for i in range(2))
    z = rng.integers(topics, size=count.sum())
    gamma = np.full((words, topics), 0.1)
    np.add.at(gamma, (np.repeat(word, count), z), 1)
    total = gamma.sum(0) + 2.5  # words that the batch does not have
    prior = 3 * rng.dirichlet(np.ones(topics), documents) + 1e-3
    tensors = (indptr, word, count.astype(float), gamma, total, prior)
    state = Assigned(torch.as_tensor(z.astype(np.int16)), torch.zeros(documents, dtype=torch.float64))
    return [torch.as_tensor(x) for x in tensors], state


@pytest.mark.parametrize("known", [True, False])
def test_a_sweep_is_that_of_plain_python(known):
    (indptr, word, count, topics, total, prior), state = make_case()
    z = state.topics.long().tolist() if known else [-1] * len(state.topics)
    e, rows = torch.as_tensor(np.random.default_rng(1).gamma(5.0, 0.2, tuple(prior.shape))), torch.arange(6) + 40
    slope = torch.linspace(0.5, 2, 6).double()
    begin = Assigned(torch.tensor(z, dtype=torch.int16), slope)
    found = sample_topics(indptr, word, count, topics, total, prior, e, begin, key=7, rows=rows)
    gamma, sums, t, logs = topics.clone(), total.clone(), 0, []
    for n in range(6):
        random, n_k, log = uniforms(7, 40 + n), prior[n].clone(), 0.0
        entries = range(int(indptr[n]), int(indptr[n + 1]))
        first, size = t, int(sum(count[m] for m in entries))
        for k in z[first : first + size]:
            n_k[k] += k >= 0
        for m in entries:
            for _ in range(int(count[m])):
                old = z[t]
                if old >= 0:
                    gamma[word[m], old] -= 1
                    sums[old] -= 1
                    n_k[old] -= 1
                side = n_k / (e[n] + slope[n])
                weight = gamma[word[m]] / sums * side
                log += math.log(float(weight.sum() / side.sum()))
                order = [old, *(k for k in range(19) if k != old)] if old >= 0 else list(range(19))
                ends = weight[order].cumsum(0).numpy()
                k = order[int(np.searchsorted(ends, next(random) * ends[-1], "right"))]
                z[t], t = k, t + 1
                gamma[word[m], k] += 1
                sums[k] += 1
                n_k[k] += 1
        logs.append(log)
    assert found.assigned.topics.tolist() == z
    torch.testing.assert_close(found.topics, gamma)
    torch.testing.assert_close(found.total, sums)
    torch.testing.assert_close(found.log_predictive, torch.tensor(logs, dtype=torch.float64))
    torch.testing.assert_close(found.concentration, prior + found.counts)
    torch.testing.assert_close(found.rate, e + found.assigned.slope.unsqueeze(-1))
    assert found.counts.sum(1).tolist() == [float(count[indptr[n] : indptr[n + 1]].sum()) for n in range(6)]
    assert begin.topics.tolist() != z  # and what was given is as it was
    assert float(topics.sum()) == pytest.approx(0.1 * topics.numel() + len(z))


TINY = [[0, 0, 1], [1, 2], [2, 0]]
A, GAMMA0 = np.array([0.6, 1.1]), np.array([[0.9, 0.3, 0.2], [0.2, 0.4, 0.8]])


def grid_of_u():
    """Points and weights for an integral over u from 0 to infinity."""
    x, w = np.polynomial.legendre.leggauss(400)
    x, w = (x + 1) / 2, w / 2
    return x / (1 - x), w / (1 - x) ** 2


def integrand(n_k, e, u):
    """What the words of one document say of u and their topics, Z integrated out."""
    mass = n_k.sum()
    logs = (mass - 1) * np.log(u) - math.lgamma(mass)
    for a, n, b in zip(A, n_k, e, strict=True):
        logs = logs + a * math.log(b) + math.lgamma(a + n) - math.lgamma(a) - (a + n) * np.log(b + u)
    return np.exp(logs)


def exact(e):
    """All topics of the tiny corpus and their posterior, with theta integrated out, and Z and u by quadrature."""
    tokens = [(n, w) for n, document in enumerate(TINY) for w in document]
    states = np.array(list(itertools.product(range(2), repeat=len(tokens))))
    u, weight = grid_of_u()
    probabilities = []
    for state in states:
        m, n_nk = GAMMA0.copy(), np.zeros((3, 2))
        np.add.at(m, (state, [w for _, w in tokens]), 1)
        np.add.at(n_nk, ([n for n, _ in tokens], state), 1)
        log = sum(map(math.lgamma, m.flat)) - sum(map(math.lgamma, m.sum(1)))
        probabilities.append(np.exp(log) * np.prod([integrand(n_nk[n], e[n], u) @ weight for n in range(3)]))
    return states, np.array(probabilities) / sum(probabilities)


def swept(states, slopes, e, sweeps=1, key=0):
    """Where one call takes each of these states: their numbers among all states, and u."""
    indptr, word, count = [0], [], []
    for document in TINY:
        words, counts = np.unique(document, return_counts=True)
        word, count = [*word, *words], [*count, *counts]
        indptr.append(len(word))
    tokens = np.repeat(word, count)
    numbers, found_u = [], []
    for i, (state, u) in enumerate(zip(states, slopes, strict=True)):
        topics = GAMMA0.T.copy()
        np.add.at(topics, (tokens, state), 1)
        topics = torch.as_tensor(topics)
        begin = Assigned(torch.as_tensor(state.astype(np.int16)), torch.as_tensor(u))
        found = sample_topics(
            *(torch.tensor(indptr), torch.tensor(word), torch.tensor(count).double(), topics, topics.sum(0)),
            *(torch.as_tensor(A), torch.as_tensor(e), begin), key=(key << 32) + (i << 16), rows=torch.arange(3),
            sweeps=sweeps,
        )  # fmt: skip
        numbers.append(int("".join(map(str, found.assigned.topics.tolist())), 2))
        found_u.append(found.assigned.slope.numpy())
    return np.array(numbers), np.array(found_u)


def ordered(states):
    """States with the tokens of each document sorted by word, as entries are."""
    order = np.concatenate([3 * (n > 0) + 2 * (n > 1) + np.argsort(d, kind="stable") for n, d in enumerate(TINY)])
    return states[:, order]


@pytest.mark.parametrize("flat", [True, False], ids=["the same rates", "rates that differ"])
@pytest.mark.parametrize("sweeps", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_the_posterior_is_left_as_it_is_and_reached(flat, sweeps):
    """From draws of the exact posterior, one sweep leads to draws of it; so do twelve from a single state."""
    e = np.ones((3, 2)) if flat else np.array([[0.4, 3.0], [2.5, 0.5], [1.0, 6.0]])
    states, probability = exact(e)
    states = ordered(states)
    rng, size = np.random.default_rng(3), 2500
    chosen = states[rng.choice(len(states), size, p=probability) if sweeps == 1 else np.full(size, 5)]
    u, weight = grid_of_u()
    slopes = np.ones((size, 3))
    for n in range(3):  # u given the topics, by its distribution on the grid
        begin = [0, 3, 5, 7][n]
        ones = chosen[:, begin : begin + len(TINY[n])].sum(1)
        for many in np.unique(ones):
            density = integrand(np.array([len(TINY[n]) - many, many]), e[n], u) * weight
            here = ones == many
            slopes[here, n] = u[np.searchsorted(density.cumsum() / density.sum(), rng.uniform(size=here.sum()))]
    numbers, drawn = swept(chosen, slopes, e, sweeps, key=11)
    expected = np.zeros(2**7)
    np.add.at(expected, [int("".join(map(str, state)), 2) for state in states], size * probability)
    observed = np.bincount(numbers, minlength=2**7)
    many = expected >= 5
    table = [np.append(x[many], x[~many].sum()) for x in (observed, expected)]
    assert stats.chisquare(*table).pvalue > 1e-3
    if not flat:
        n_k = np.array([len(TINY[0]) - 1, 1])
        density = integrand(n_k, e[0], u) * weight
        bits = (numbers[:, None] >> np.arange(6, 3, -1)) & 1
        here = drawn[bits.sum(1) == 1, 0]
        logs = (density * np.log(u)).sum() / density.sum()
        assert abs(np.log(here).mean() - logs) < 4.5 * np.log(here).std() / len(here) ** 0.5


@pytest.mark.slow
def test_documents_and_their_topics_keep_their_joint_distribution():
    """Geweke: draws of words given topics and of topics given words, in turn, stay draws from the prior."""
    rng, size, documents, length = np.random.default_rng(0), 800, 3, 4
    a, gamma0 = np.array([0.5, 0.9, 0.4]), 0.5

    def words_given(z):
        m, x = np.full((4, 3), gamma0), np.empty(documents * length, int)
        for t, k in enumerate(z):
            x[t] = rng.choice(4, p=m[:, k] / m[:, k].sum())
            m[x[t], k] += 1
        return x

    def summary(z, x):
        first, second = z[:length], z[length : 2 * length]
        same = (z[:, None] == z) & (x[:, None] == x)
        return [(first == 0).sum() ** 2, (first == 2).sum() * (second == 2).sum(), same.sum(), (x == x[0]).sum()]

    before, after = [], []
    for i in range(size):
        z = np.concatenate([rng.choice(3, length, p=rng.dirichlet(a)) for _ in range(documents)])
        x = words_given(z)
        before.append(summary(z, x))
        for turn in range(3):
            order = np.concatenate([n * length + np.argsort(x[n * length :][:length]) for n in range(documents)])
            entries = [np.unique(x[n * length :][:length], return_counts=True) for n in range(documents)]
            topics = np.full((4, 3), gamma0)
            np.add.at(topics, (x, z), 1)
            found = sample_topics(
                torch.tensor(np.cumsum([0, *(len(w) for w, _ in entries)])),
                torch.tensor(np.concatenate([w for w, _ in entries])),
                torch.tensor(np.concatenate([c for _, c in entries])).double(),
                *(torch.as_tensor(topics), torch.as_tensor(topics.sum(0)), torch.as_tensor(a), torch.ones(3)),
                Assigned(torch.as_tensor(z[order].astype(np.int16)), torch.zeros(documents)),
                key=(i << 40) + (turn << 20), rows=torch.arange(documents),
            )  # fmt: skip
            z[order] = found.assigned.topics.numpy()
            x = words_given(z)
        after.append(summary(z, x))
    before, after = np.array(before, float), np.array(after, float)
    error = np.sqrt((before.var(0) + after.var(0)) / size)
    assert (np.abs(before.mean(0) - after.mean(0)) < 4 * error).all()


def test_a_large_batch_in_parts_gives_the_same_with_any_number_of_threads_and_loses_no_word(monkeypatch):
    (*given, prior), state = make_case(documents=40, words=60, tokens=30)
    monkeypatch.setattr(sampling, "_LARGE", 1)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(sample_topics(*given, prior, torch.ones(19), state, key=3, rows=torch.arange(40), sweeps=2))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            parts = zip(one, two, strict=True) if isinstance(one, Assigned) else [(one, two)]
            assert all(torch.equal(x, y) for x, y in parts)
    word, count = given[1], given[2].long()
    again = torch.full_like(given[3], 0.1)
    tokens = word.repeat_interleave(count)
    again.index_put_((tokens, found[0].assigned.topics.long()), torch.ones(len(tokens)).double(), accumulate=True)
    torch.testing.assert_close(found[0].topics, again)
    torch.testing.assert_close(found[0].total, again.sum(0) + 2.5)
    assert (found[0].assigned.topics != state.topics).float().mean() > 0.5
    monkeypatch.setattr(sampling, "_LARGE", 10**9)
    whole = sample_topics(*given, prior, torch.ones(19), state, key=3, rows=torch.arange(40), sweeps=2)
    assert float(whole.log_predictive.sum()) == pytest.approx(float(found[0].log_predictive.sum()), rel=0.1)


@pytest.mark.parametrize("shape", [0.2, 1.0, 7.5])
def test_gamma_draws_have_their_law(shape):
    state = np.array([5], np.uint64)
    draws = [sampling._gamma(shape, state) for _ in range(4000)]
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-3


def test_topics_of_an_entry_become_its_commonest_responsibilities():
    count, topics = torch.tensor([3.0, 0.0, 1.0, 4.0]), torch.tensor([2, 5, 2, 1, 7, 3, 3, 9], dtype=torch.int16)
    kept = kept_of_tokens(count, topics, 2)
    assert kept.topics[[0, 2]].tolist() == [[2, 5], [1, 0]]
    assert kept.shares.sum(1).tolist() == [ONE, 0, ONE, ONE]
    np.testing.assert_allclose(kept.fractions[[0, 2]], [[2 / 3, 1 / 3], [1, 0]], atol=2 / ONE)


def test_what_cannot_be_sampled_is_refused():
    (*given, prior), state = make_case()
    rest = {"key": 0, "rows": torch.arange(6)}
    with pytest.raises(ValueError, match="topics of 3 words"):
        sample_topics(*given, prior, torch.ones(19), state._replace(topics=state.topics[:3]), **rest)
    wide = [*given[:3], torch.ones(12, 40_000), torch.ones(40_000), torch.ones(40_000), torch.ones(40_000)]
    with pytest.raises(ValueError, match="at most 32767"):
        sample_topics(*wide, state, **rest)
