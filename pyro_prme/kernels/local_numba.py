"""The compiled loops of the local step on numpy arrays; open it to change their arithmetic or their speed.

A word's row of exp(E ln theta) is shifted by its maximum, and exp(E ln Z) of a document is scaled to sum to one. Each
document's rows are gathered once into a contiguous buffer, where all sweeps run. An entry whose normaliser is too small
for that is computed in log space, in float64. What is of size K per document is float64 throughout.

Each loop takes (first, step) and handles every step-th item, so that Python threads can share it out.
"""

from __future__ import annotations

import math

import numpy as np

from pyro_prme.kernels.arithmetic import (
    cached,
    elog_gamma,
    exp_elog_gamma,
    exp_in_place,
    fast,
    maximum,
    responsibilities,
    solve_epsilon,
)
from pyro_prme.kernels.threads import share_out
from pyro_prme.kernels.words import entries_by_word

__all__ = ["run"]

_SAFE = {"float32": np.float32(1e-25), "float64": np.float64(1e-250)}  # a smaller normaliser: log space
_ZERO = 1e-12  # times it: what is rounded to zero, lest arithmetic on denormal numbers be slow
_LANES = 16  # a document's rows are padded with zeros to a multiple of this many topics
_ROWS = 4096  # the most rows gathered at a time
_SMALL = 200_000  # entries times topics below which one thread is enough


def run(
    indptr: np.ndarray,
    word: np.ndarray,
    count: np.ndarray,
    elog_theta: np.ndarray,
    prior: np.ndarray,
    e: np.ndarray,
    start: tuple[np.ndarray, np.ndarray],
    max_sweeps: int,
    tolerance: float,
    by_mean: bool,
    normalised: bool,
    threads: int,
    table: np.ndarray,
    result: tuple[np.ndarray, ...],
) -> None:
    """The local step into the arrays of `result`, which are those of a `LocalStep`; `start` is (0, K) for none.

    `table` is of the shape of `elog_theta`, for exp(E ln theta) over its largest in a row.
    """
    counts, concentration, rate, epsilon, elog_loadings, log_normalizer, statistics, sweeps = result
    dtype, num_documents, num_topics = elog_theta.dtype, len(counts), elog_theta.shape[1]
    peak = np.empty(len(elog_theta), dtype)  # table = exp(E ln theta - peak)
    loadings, ratio = np.zeros_like(counts), np.empty_like(count)  # phi_m(k) = ratio_m loadings_nk table_mk / c_m
    elog = np.empty((num_documents, num_topics))
    shared = (table, peak, loadings, ratio, elog)
    corpus = indptr, word, count
    limits = max_sweeps, tolerance, _SAFE[dtype.name], by_mean, normalised
    out = (counts, concentration, rate, epsilon, log_normalizer, sweeps)
    pieces = 1 if threads == 1 or len(word) * num_topics < _SMALL else 8 * threads
    share_out(_word_table, pieces, threads, elog_theta, limits[2], table, peak)
    share_out(_documents, pieces, threads, corpus, elog_theta, prior, e, start, limits, shared, out)
    by_word = entries_by_word(indptr, word, len(elog_theta))
    share_out(_statistics, pieces, threads, by_word, count, elog_theta, shared, statistics)
    elog_loadings[:] = elog


@fast
def _add_rows(size, rows, count, weights, safe, total, normalizer, ratio):
    """Eq. update_c, four entries at a time: adds n_k / w_k to `total`; the number of unsafe entries.

    `rows` and `count` are padded to a multiple of four, `count` with zeros. An entry whose normaliser is not above
    `safe` adds nothing and has ratio -1.
    """
    zero = weights.dtype.type(0)
    for group in range((size + 3) // 4):
        m = 4 * group
        t0, t1, t2, t3 = rows[m], rows[m + 1], rows[m + 2], rows[m + 3]
        s0, s1, s2, s3 = zero, zero, zero, zero
        for k in range(weights.size):
            s0 += weights[k] * t0[k]
            s1 += weights[k] * t1[k]
            s2 += weights[k] * t2[k]
            s3 += weights[k] * t3[k]
        r0 = count[m] / s0 if s0 > safe else zero
        r1 = count[m + 1] / s1 if s1 > safe else zero
        r2 = count[m + 2] / s2 if s2 > safe else zero
        r3 = count[m + 3] / s3 if s3 > safe else zero
        for k in range(weights.size):
            total[k] += r0 * t0[k] + r1 * t1[k] + r2 * t2[k] + r3 * t3[k]
        normalizer[m], normalizer[m + 1], normalizer[m + 2], normalizer[m + 3] = s0, s1, s2, s3
        ratio[m], ratio[m + 1], ratio[m + 2], ratio[m + 3] = r0, r1, r2, r3
    unsafe = 0
    for m in range(size):
        if not normalizer[m] > safe:
            ratio[m] = -1
            unsafe += 1
    return unsafe


@fast
def _gather(words, table, rows):
    """Copy the words' rows of the table."""
    for m in range(words.size):
        source, target = table[words[m]], rows[m]
        for k in range(source.size):
            target[k] = source[k]


@cached
def _word_table(first, step, elog_theta, safe, table, peak):
    """exp(E ln theta - peak) of words first, first + step, ...; the columns past K stay zero."""
    num_topics = elog_theta.shape[1]
    x, power = np.empty(num_topics), np.empty(num_topics)
    for w in range(first, table.shape[0], step):
        peak[w] = maximum(elog_theta[w])
        for k in range(num_topics):
            x[k] = elog_theta[w, k] - peak[w]
        exp_in_place(x, power)
        for k in range(num_topics):
            table[w, k] = x[k] if x[k] > _ZERO * safe else 0.0


@fast
def _log_weights(a, rate, by_mean, out):
    """What phi is formed by: E ln Z, or ln E Z."""
    if by_mean:
        for k in range(a.size):
            out[k] = math.log(a[k] / rate[k])
    else:
        elog_gamma(a, rate, out)


@fast
def _fixed_point(word, table, elog_theta, prior, e, q_z, warm, limits, entries, log_normalizer, vectors, scratch):
    """All sweeps of one document with tokens: (sweeps, epsilon, ln of the weights' scale); the rest in the arrays."""
    max_sweeps, tolerance, safe, by_mean, normalised = limits
    a, rate, elog, n = q_z
    rows, count, normalizer, ratio = entries
    weights, total = vectors
    a_before, rate_before, phi, power = scratch
    num_topics, mass, prior_mass, flat = prior.size, 0.0, 0.0, True
    for m in range(word.size):
        mass += count[m]
    for k in range(num_topics):
        prior_mass += prior[k]
        flat &= e[k] == e[0]  # then epsilon is known: sum_k a_k = M + sum_k beta p_k
    epsilon = prior_mass / e[0] if flat else 0.0
    if not normalised:  # nothing divides the loadings by their sum: their rate is known
        flat, epsilon = True, np.inf
    if not warm:
        for k in range(num_topics):
            a[k] = prior[k] + mass / num_topics
        if not flat:
            epsilon = solve_epsilon(a, e, mass, prior_mass, epsilon)
        for k in range(num_topics):
            rate[k] = e[k] + mass / epsilon
    sweeps, change, scale = 0, np.inf, 0.0
    while sweeps < max_sweeps and not change < tolerance * mass:
        if by_mean:
            for k in range(num_topics):
                phi[k] = a[k] / rate[k]
        else:
            exp_elog_gamma(a, rate, phi, power)
        scale = 0.0
        for k in range(num_topics):
            scale += phi[k]
        for k in range(num_topics):
            weights[k] = phi[k] / scale if phi[k] > _ZERO * safe * scale else 0.0
        for k in range(total.size):
            total[k] = 0
        unsafe = 0
        for begin in range(0, word.size, _ROWS):
            end = min(begin + _ROWS, word.size)
            if sweeps == 0 or word.size > _ROWS:
                _gather(word[begin:end], table, rows)
            unsafe += _add_rows(
                end - begin, rows, count[begin:], weights, safe, total, normalizer[begin:], ratio[begin:]
            )
        for k in range(num_topics):
            n[k] = weights[k] * total[k]
        if unsafe > 0:
            _log_weights(a, rate, by_mean, elog)
            for m in range(word.size):
                if ratio[m] < 0:
                    log_normalizer[m] = responsibilities(elog, elog_theta[word[m]], phi, power)
                    for k in range(num_topics):
                        n[k] += count[m] * phi[k]
        change = 0.0
        for k in range(num_topics):
            a_before[k], rate_before[k] = a[k], rate[k]
            a[k] = prior[k] + n[k]
            change += abs(a[k] - a_before[k])
        if not flat:
            epsilon = solve_epsilon(a, e, mass, prior_mass, epsilon)
        for k in range(num_topics):
            rate[k] = e[k] + mass / epsilon
        sweeps += 1
    _log_weights(a_before, rate_before, by_mean, elog)
    return sweeps, epsilon, math.log(scale) if scale > 0.0 else 0.0


@cached
def _documents(first, step, corpus, elog_theta, prior, e, start, limits, shared, out):
    """The local step of documents first, first + step, ..., each on its own."""
    indptr, word, count = corpus
    table, peak, loadings, ratio, elog = shared
    counts, concentration, rate, epsilon, log_normalizer, sweeps = out
    num_topics, warm, dtype = prior.shape[1], len(start[0]) > 0, table.dtype
    longest = 0
    for n in range(first, sweeps.size, step):
        longest = max(longest, indptr[n + 1] - indptr[n])
    width = (num_topics + _LANES - 1) // _LANES * _LANES
    rows = np.zeros((min(longest, _ROWS) + 3, width), dtype)
    weights, total = np.zeros(width, dtype), np.zeros(width, dtype)
    c, s, q = np.zeros(longest + 3, dtype), np.zeros(longest + 3, dtype), np.zeros(longest + 3, dtype)
    x = np.zeros((9, num_topics))
    a, r, n_k, p, exp_neg_f, scratch = x[0], x[1], x[2], x[3], x[4], (x[5], x[6], x[7], x[8])
    for n in range(first, sweeps.size, step):
        begin, size = indptr[n], indptr[n + 1] - indptr[n]
        words, mass = word[begin : begin + size], 0.0
        for m in range(size):
            c[m] = count[begin + m]
            mass += c[m]
        for m in range(size, size + 3):
            c[m] = 0
        for k in range(num_topics):
            p[k] = prior[n if len(prior) > 1 else 0, k]
            exp_neg_f[k] = e[n if len(e) > 1 else 0, k]
            a[k] = start[0][n, k] if warm else p[k]
            r[k] = start[1][n, k] if warm else exp_neg_f[k]
        if mass > 0.0:
            sweeps[n], epsilon[n], shift = _fixed_point(
                words, table, elog_theta, p, exp_neg_f, (a, r, elog[n], n_k), warm, limits,
                (rows, c, s, q), log_normalizer[begin : begin + size], (weights, total), scratch,
            )  # fmt: skip
            for m in range(size):
                ratio[begin + m] = q[m]
                if q[m] >= 0:
                    log_normalizer[begin + m] = math.log(s[m]) + peak[words[m]] + shift
            for k in range(num_topics):
                loadings[n, k] = weights[k]
        else:  # q(Z) is the prior
            sweeps[n], mean = 0, 0.0
            for k in range(num_topics):
                a[k], r[k], n_k[k] = p[k], exp_neg_f[k], 0.0
                mean += a[k] / r[k]
            epsilon[n] = mean
            _log_weights(a, r, limits[3], elog[n])
            for m in range(size):
                ratio[begin + m] = 0
                log_normalizer[begin + m] = responsibilities(elog[n], elog_theta[words[m]], scratch[0], scratch[1])
        for k in range(num_topics):
            counts[n, k], concentration[n, k], rate[n, k] = n_k[k], a[k], r[k]


@cached
def _statistics(first, step, by_word, count, elog_theta, shared, statistics):
    """The statistics of words first, first + step, ..., each summed in document order."""
    offset, order, owner = by_word
    table, _, loadings, ratio, elog_loadings = shared
    num_topics = elog_theta.shape[1]
    total, extra = np.zeros(num_topics, table.dtype), np.zeros(num_topics)
    phi, power = np.zeros(num_topics), np.zeros(num_topics)
    for w in range(first, statistics.shape[0], step):
        for k in range(num_topics):
            total[k], extra[k] = 0, 0
        for i in range(offset[w], offset[w + 1]):
            m, n = order[i], owner[i]
            if ratio[m] >= 0:
                for k in range(num_topics):
                    total[k] += ratio[m] * loadings[n, k]
            else:
                responsibilities(elog_loadings[n], elog_theta[w], phi, power)
                for k in range(num_topics):
                    extra[k] += count[m] * phi[k]
        for k in range(num_topics):
            statistics[w, k] = table[w, k] * total[k] + extra[k]
