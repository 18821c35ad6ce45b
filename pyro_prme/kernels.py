"""The local step: the coordinate-ascent sweeps over q(C_n) and q(Z_n), compiled.

Open this to see, or to call, the inner loop of inference: for each document of a batch it alternates eq. update_c and
eq. update_z until the document's own stopping test is met, and never stores a responsibility. On the CPU it is one numba
kernel, parallel over documents; on any other device :mod:`pyro_prme.kernels_torch` has the same contract.

The numbers do not depend on the number of threads: a document is handled by one thread alone, and the statistics of a
word are summed by one thread in document order.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numba.core import event
from torch import Tensor

__all__ = ["LocalStep", "local_step"]

logger = logging.getLogger("pyro_prme")

_SAFE = {torch.float32: np.float32(1e-25), torch.float64: np.float64(1e-250)}  # below it, an entry goes to log space
_LANES = 16  # rows of the word table are padded to a multiple of this
_NEWTON_STEPS = 50


class LocalStep(NamedTuple):
    """What a local step returns: B documents, K topics, E entries, W distinct words."""

    counts: Tensor  # (B, K) n_nk = sum_m c_m phi_nm(k)
    concentration: Tensor  # (B, K) beta p_k + n_nk
    rate: Tensor  # (B, K) E[exp(-f_nk)] + M_n / epsilon_n
    epsilon: Tensor  # (B,)
    elog_loadings: Tensor  # (B, K) the E ln Z_nk that formed phi: of q(Z) before its last update
    log_normalizer: Tensor  # (E,) ln sum_k exp(elog_loadings_nk + elog_theta_mk)
    statistics: Tensor  # (W, K) sum over a word's entries of c_m phi_m(k)
    sweeps: Tensor  # (B,) int64


def local_step(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    elog_theta: Tensor,
    prior_concentration: Tensor,
    expected_exp_neg_f: Tensor,
    *,
    max_sweeps: int = 20,
    tolerance: float = 1e-3,
    start: tuple[Tensor, Tensor] | None = None,
) -> LocalStep:
    r"""The fixed point of q(C_n) and q(Z_n) for every document of a batch (eq. update_c, eq. update_z).

    .. math::
        \phi_{nm}(k) &\propto \exp(E \ln Z_{nk} + E \ln \theta_{k, x_m}), \qquad n_{nk} = \sum_m c_m \phi_{nm}(k) \\
        Z_{nk} &\sim \mathrm{Gamma}(\beta p_k + n_{nk},\ \mathrm{rate} = E e^{-f_{nk}} + M_n / \epsilon_n)

    A document stops when :math:`\sum_k |\Delta a_{nk}| < \mathrm{tolerance}\, M_n`, or after `max_sweeps` pairs of
    updates. The step ends on the update of Z; `counts`, `log_normalizer` and `statistics` are those of the last phi.

    Differs from the paper: epsilon is solved, not recomputed. Given a, it is the only positive root of
    :math:`\sum_k a_k e_k \epsilon / (e_k \epsilon + M) = \sum_k \beta p_k` with :math:`e_k = E e^{-f_k}`.

    Args:
        indptr: (B + 1,) int64; the entries of document n are `indptr[n]:indptr[n + 1]`.
        word: (E,) int64, rows of `elog_theta`; a word may be repeated within a document.
        count: (E,) how often the word occurs.
        elog_theta: (W, K) E ln theta of the batch's distinct words; its dtype is that of the result.
        prior_concentration: (K,), (1, K) or (B, K) beta p_k, positive.
        expected_exp_neg_f: (K,), (1, K) or (B, K) E[exp(-f_nk)], positive; ones for an HDP.
        max_sweeps: the most pairs of updates; at least one.
        tolerance: of the stopping test; 0 runs all of `max_sweeps`.
        start: (concentration, rate) of q(Z), each (B, K); otherwise concentration = beta p_k + M_n / K.

    Returns:
        A :class:`LocalStep`. An empty document has q(Z) equal to its prior and zero sweeps.
    """
    dtype, (num_words, num_topics), num_documents = elog_theta.dtype, elog_theta.shape, len(indptr) - 1
    arrays = [count, elog_theta, *(x.reshape(-1, num_topics) for x in (prior_concentration, expected_exp_neg_f))]
    arrays += [torch.empty(0, num_topics)] * 2 if start is None else list(start)
    floats = [x.detach().to(dtype).contiguous().numpy() for x in arrays]
    ints = [x.detach().to(torch.int64).contiguous().numpy() for x in (indptr, word)]

    rows, entries = (num_documents, num_topics), len(word)
    real = floats[0].dtype
    counts, concentration, rate, elog_loadings = (np.empty(rows, real) for _ in range(4))
    epsilon, log_normalizer, sweeps = np.empty(num_documents, real), np.empty(entries, real), np.zeros(len(counts), int)
    statistics = np.empty((num_words, num_topics), real)
    out = (counts, concentration, rate, epsilon, elog_loadings, log_normalizer, statistics, sweeps)
    with _compilation_logged():
        _run(*ints, *floats, max(1, max_sweeps), float(tolerance), _SAFE[dtype], numba.get_num_threads(), out)
    return LocalStep(*map(torch.from_numpy, out))


class _CompilationLog(event.Listener):
    """Says, once in a process, that numba really compiles; a hit of numba's cache is silent."""

    said = False

    def on_start(self, event: Any) -> None:
        if not _CompilationLog.said:
            _CompilationLog.said = True
            logger.info("compiling the local step, once for this machine; it takes some seconds")

    def on_end(self, event: Any) -> None:
        pass


@contextlib.contextmanager
def _compilation_logged() -> Iterator[None]:
    with event.install_listener("numba:compile", _CompilationLog()):
        yield


def _cached(function: Callable) -> Callable:
    """Compile in parallel with numba's on-disk cache, or without it where no cache directory can be written."""
    options = {"parallel": True, "error_model": "numpy", "nogil": True}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba: "cannot cache function ...: no locator available"
        return numba.njit(**options)(function)


_inner = numba.njit(error_model="numpy", nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"})


@_inner
def _digamma_parts(x):
    """(s, t) with digamma(x) = ln s - t: ten steps of the recurrence, then the asymptotic series of exp(digamma)."""
    # sum_{i<10} 1 / (x + i), by pairs (x + i)(x + 9 - i) = v + i (9 - i)
    v = x * (x + 9.0)
    d, q = 1.0, v
    d, q = d * (v + 8.0) + q, q * (v + 8.0)
    d, q = d * (v + 14.0) + q, q * (v + 14.0)
    d, q = d * (v + 18.0) + q, q * (v + 18.0)
    d, q = d * (v + 20.0) + q, q * (v + 20.0)
    t = (2.0 * x + 9.0) * (d / q)
    y = 1.0 / (x + 9.5)
    z = y * y
    s = x + 9.5 + y * (1 / 24 + z * (-37 / 5760 + z * (10313 / 2903040 - z * (5509121 / 1393459200))))
    return s, t


@_inner
def _solve_epsilon(a, e, mass, prior_mass, epsilon):
    """The root of sum_k a_k e_k eps / (e_k eps + M) = sum_k prior_k by Newton's method from any guess eps >= 0.

    The left side is concave and increasing: a step from the right of the root lands left of it (here, at 0 or above),
    and from the left the steps climb to the root.
    """
    for _ in range(_NEWTON_STEPS):
        value, slope = 0.0, 0.0
        for k in range(a.size):
            inverse = 1.0 / (e[k] * epsilon + mass)
            value += a[k] * e[k] * inverse
            slope += a[k] * e[k] * inverse * inverse
        before = epsilon
        epsilon = max(0.0, before + (prior_mass - value * before) / (slope * mass))
        if abs(epsilon - before) <= 1e-13 * epsilon:
            break
    return epsilon


@_inner
def _update_counts(words, counts, table, weights, inverse_weights, normalizer, safe, acc):
    """n_k / w_k of the entries whose normaliser is safe, four entries at a time; the others get a ratio of -1."""
    zero = weights[0] * 0
    minus_one = zero - 1
    num_unsafe = 0
    acc[:] = zero
    m = 0
    while m < words.size:
        last = words.size - 1
        m1, m2, m3 = min(m + 1, last), min(m + 2, last), min(m + 3, last)
        t0, t1, t2, t3 = table[words[m]], table[words[m1]], table[words[m2]], table[words[m3]]
        s0, s1, s2, s3 = zero, zero, zero, zero
        for k in range(weights.size):
            s0 += weights[k] * t0[k]
            s1 += weights[k] * t1[k]
            s2 += weights[k] * t2[k]
            s3 += weights[k] * t3[k]
        r0 = counts[m] / s0 if s0 > safe else zero
        r1 = counts[m1] / s1 if s1 > safe and m + 1 <= last else zero
        r2 = counts[m2] / s2 if s2 > safe and m + 2 <= last else zero
        r3 = counts[m3] / s3 if s3 > safe and m + 3 <= last else zero
        for k in range(weights.size):
            acc[k] += (r0 * t0[k] + r1 * t1[k]) + (r2 * t2[k] + r3 * t3[k])
        for i, s in ((m, s0), (m1, s1), (m2, s2), (m3, s3)):
            normalizer[i] = s
            inverse_weights[i] = counts[i] / s if s > safe else minus_one
        m += 4
    for m in range(words.size):
        if inverse_weights[m] < 0:
            num_unsafe += 1
    return num_unsafe


@_inner
def _add_unsafe(words, counts, elog_theta, elog_loadings, ratio, normalizer, n):
    """Eq. update_c in log space for the entries with ratio -1: adds to n, leaves the log-normaliser in `normalizer`."""
    for m in range(words.size):
        if ratio[m] < 0:
            row = elog_theta[words[m]]
            peak = elog_loadings[0] + row[0]
            for k in range(n.size):
                peak = max(peak, elog_loadings[k] + row[k])
            total = 0.0
            for k in range(n.size):
                total += math.exp(elog_loadings[k] + row[k] - peak)
            for k in range(n.size):
                n[k] += counts[m] / total * math.exp(elog_loadings[k] + row[k] - peak)
            normalizer[m] = peak + math.log(total)


@_inner
def _elog_gamma(a, rate, out):
    """E ln Z of Gamma(a, rate)."""
    for k in range(a.size):
        s, t = _digamma_parts(a[k])
        out[k] = math.log(s) - t - math.log(rate[k])


@_inner
def _document(
    words, count, table, peak, elog_theta, prior, e, a, rate, warm, max_sweeps, tolerance, safe, scratch, out
):
    """All sweeps of one document. In `a`, `rate`: the start if `warm`, and the result. Returns (sweeps, epsilon)."""
    weights, acc, a_before, rate_before, elog, n = scratch
    counts, elog_loadings, log_normalizer, ratio = out
    num_topics = prior.size
    mass, prior_mass = 0.0, 0.0
    for m in range(words.size):
        mass += count[m]
    for k in range(num_topics):
        prior_mass += prior[k]
    if not mass > 0.0:  # no tokens: q(Z) is the prior
        epsilon = 0.0
        for k in range(num_topics):
            a[k], rate[k], n[k] = prior[k], e[k], 0.0
            epsilon += a[k] / e[k]
        _elog_gamma(a, rate, elog)
        for k in range(num_topics):
            counts[k], elog_loadings[k] = 0.0, elog[k]
            weights[k] = 0.0
        ratio[:] = -1.0
        n[:] = 0.0
        _add_unsafe(words, count, elog_theta, elog, ratio, log_normalizer, n)
        return 0, epsilon
    epsilon = 0.0
    if not warm:
        for k in range(num_topics):
            a[k] = prior[k] + mass / num_topics
        epsilon = _solve_epsilon(a, e, mass, prior_mass, epsilon)
        for k in range(num_topics):
            rate[k] = e[k] + mass / epsilon
    sweeps, num_unsafe, top = 0, 0, 0.0
    while sweeps < max_sweeps:
        sweeps += 1
        top = 0.0
        for k in range(num_topics):
            s, t = _digamma_parts(a[k])
            n[k] = s * math.exp(-t) / rate[k]
            top = max(top, n[k])
        for k in range(num_topics):
            weights[k] = n[k] / top if top > 0.0 else 0.0
        num_unsafe = _update_counts(words, count, table, weights, ratio, log_normalizer, safe, acc)
        for k in range(num_topics):
            n[k] = weights[k] * acc[k]
        if num_unsafe > 0:
            _elog_gamma(a, rate, elog)
            _add_unsafe(words, count, elog_theta, elog, ratio, log_normalizer, n)
        change = 0.0
        for k in range(num_topics):
            a_before[k], rate_before[k] = a[k], rate[k]
            a[k] = prior[k] + n[k]
            change += abs(a[k] - a_before[k])
        epsilon = _solve_epsilon(a, e, mass, prior_mass, epsilon)
        for k in range(num_topics):
            rate[k] = e[k] + mass / epsilon
        if change < tolerance * mass:
            break
    _elog_gamma(a_before, rate_before, elog)
    for k in range(num_topics):
        counts[k], elog_loadings[k] = n[k], elog[k]
    shift = math.log(top) if top > 0.0 else 0.0
    for m in range(words.size):
        if ratio[m] >= 0:
            log_normalizer[m] = math.log(log_normalizer[m]) + peak[words[m]] + shift
    return sweeps, epsilon


@_cached
def _run(indptr, word, count, elog_theta, prior, e, start_a, start_rate, max_sweeps, tolerance, safe, chunks, out):
    """The local step on arrays: a table of shifted exp(E ln theta), the documents, then the statistics by word."""
    counts, concentration, rate, epsilon, elog_loadings, log_normalizer, statistics, sweeps = out
    (num_documents, num_topics), num_words, dtype = counts.shape, len(elog_theta), elog_theta.dtype
    width = (num_topics + _LANES - 1) // _LANES * _LANES
    table = np.zeros((num_words, width), dtype)
    peak = np.zeros(num_words, dtype)
    for w in numba.prange(num_words):
        peak[w] = elog_theta[w].max()
        for k in range(num_topics):
            table[w, k] = math.exp(elog_theta[w, k] - peak[w])

    ratio = np.empty(len(word), dtype)
    loadings = np.zeros((num_documents, num_topics), dtype)
    for chunk in numba.prange(chunks):
        weights, acc = np.zeros(width, dtype), np.zeros(width, dtype)
        a, r, beta, exp_neg_f = np.zeros(num_topics), np.zeros(num_topics), np.zeros(num_topics), np.zeros(num_topics)
        scratch = (weights, acc, np.zeros(num_topics), np.zeros(num_topics), np.zeros(num_topics), np.zeros(num_topics))
        warm = len(start_a) > 0
        for n in range(chunk, num_documents, chunks):
            begin, end = indptr[n], indptr[n + 1]
            beta[:] = prior[n if len(prior) > 1 else 0]
            exp_neg_f[:] = e[n if len(e) > 1 else 0]
            if warm:
                a[:] = start_a[n]
                r[:] = start_rate[n]
            results = (counts[n], elog_loadings[n], log_normalizer[begin:end], ratio[begin:end])
            sweeps[n], epsilon[n] = _document(
                word[begin:end], count[begin:end], table, peak, elog_theta, beta, exp_neg_f, a, r,
                warm, max_sweeps, tolerance, safe, scratch, results,
            )  # fmt: skip
            for k in range(num_topics):
                concentration[n, k], rate[n, k], loadings[n, k] = a[k], r[k], weights[k]

    order, owner, offset = _by_word(indptr, word, num_words)
    for w in numba.prange(num_words):
        total, extra = np.zeros(num_topics, dtype), np.zeros(num_topics, dtype)
        for i in range(offset[w], offset[w + 1]):
            m, n = order[i], owner[i]
            if ratio[m] >= 0:
                for k in range(num_topics):
                    total[k] += ratio[m] * loadings[n, k]
            else:
                for k in range(num_topics):
                    extra[k] += count[m] * math.exp(elog_loadings[n, k] + elog_theta[w, k] - log_normalizer[m])
        for k in range(num_topics):
            statistics[w, k] = table[w, k] * total[k] + extra[k]


@_inner
def _by_word(indptr, word, num_words):
    """The entries sorted by word, in document order within a word, with their documents: a counting sort."""
    offset = np.zeros(num_words + 1, np.int64)
    for m in range(word.size):
        offset[word[m] + 1] += 1
    for w in range(num_words):
        offset[w + 1] += offset[w]
    order, owner, place = np.empty(word.size, np.int64), np.empty(word.size, np.int64), offset[:-1].copy()
    for n in range(indptr.size - 1):
        for m in range(indptr[n], indptr[n + 1]):
            order[place[word[m]]], owner[place[word[m]]] = m, n
            place[word[m]] += 1
    return order, owner, offset
