r"""The local step that leaves a document's own counts out of the topics that explain it, compiled.

Open this to see, or to call, the collapsed inner loop. Topics theta and the proportions of Z are integrated out; the
topics C of the words are left. Their exact conditional, with counts n_nk of document n and m_kd of word d without the
token itself, is

.. math::
    p(C_e = k \mid C_{-e}, X) \propto \frac{\gamma_0 + m_{k x_e}^{-e}}{D \gamma_0 + m_k^{-e}} \, (a_{nk} + n_{nk}^{-e})

The step puts expected counts into it (the zero-order collapsed bound, CVB0): it is exact where all other tokens are
certain of their topics. It has a fixed point, and no bound on the evidence. Two things are left out: from a document's
counts, the whole entry (all occurrences of its word), and from the counts of topics, the whole document. Left in, they
let each word vouch for itself: after some passes every word has its topic, and short texts are explained by topics that
hold these texts' own words.

Of an entry's responsibilities only the few largest are kept between passes, topic and share in four bytes, so that what
a document has put into the topics can be taken out again. Numbers do not depend on how many threads there are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyro_prme.kernels.arithmetic import cached, fast, solve_epsilon
from pyro_prme.kernels.threads import share_out

__all__ = [
    "KEPT",
    "ONE",
    "Held",
    "Kept",
    "OwnCountsOut",
    "add_kept_",
    "log_completion",
    "nothing_held",
    "own_counts_out",
]

#: Responsibilities that are kept of an entry.
KEPT = 8
#: A share of one, in the whole numbers that are kept.
ONE = 32767

_LANES = 16
_SMALL = 200_000  # entries times topics below which one thread is enough
_TINY = 1e-30
_LEAST = 1e-6  # of a topic's count of a word is left at least, lest rounding leave nothing


class Kept(NamedTuple):
    """The largest responsibilities of E entries, which sum to one: `shares` are whole numbers up to `ONE`."""

    topics: Tensor  # (E, kept) int16
    shares: Tensor  # (E, kept) int16

    @property
    def fractions(self) -> Tensor:
        """The shares as numbers up to one, (E, kept)."""
        return self.shares.to(torch.float32) / ONE


class Held(NamedTuple):
    """What topics hold of E entries."""

    kept: Kept  # phi' of each entry
    tokens: Tensor  # (E,) s_e: how many times phi' is in the topics; 0 for not at all


class OwnCountsOut(NamedTuple):
    """What the step returns, for B documents, K topics, E entries."""

    counts: Tensor  # (B, K) n_nk = sum_e c_e phi_e(k)
    concentration: Tensor  # (B, K) a_nk + n_nk
    rate: Tensor  # (B, K) E exp(-f_nk) + M_n / epsilon_n
    epsilon: Tensor  # (B,)
    log_predictive: Tensor  # (E,) ln p(x_e | everything but the entry in the document, but the document in the topics)
    kept: Kept
    sweeps: Tensor  # (B,) int64


def own_counts_out(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    topics: Tensor,
    total: Tensor,
    prior_concentration: Tensor,
    expected_exp_neg_f: Tensor,
    *,
    held: Held | None = None,
    warm: bool = True,
    max_sweeps: int = 20,
    tolerance: float = 1e-3,
    keep: int = KEPT,
) -> OwnCountsOut:
    r"""Responsibilities of every document of a batch, in topics without the document's own counts.

    .. math::
        \phi_e(k) \propto \frac{\gamma_{k x_e} - s_e \phi'_e(k)}{\gamma_k - \sum_{e'} s_{e'} \phi'_{e'}(k)}
            \cdot \frac{a_{nk} + n_{nk} - c_e \phi_e(k)}{E e^{-f_{nk}} + M_n / \epsilon_n}

    with phi' the responsibilities that gamma holds of the document, each s_e times. Where E exp(-f) is the same for all
    topics (HDP, f in the shape), the rate drops out and this is CVB0; elsewhere epsilon is solved as in
    :func:`pyro_prme.kernels.local.local_step`. Entries are updated one after the other. A document stops when
    :math:`\sum_k |\Delta n_{nk}| < \mathrm{tolerance}\, M_n` over a sweep, or after `max_sweeps`.

    Args:
        indptr: (B + 1,) int64; the entries of document n are `indptr[n]:indptr[n + 1]`.
        word: (E,) int64, rows of `topics`; a word occurs once in a document.
        count: (E,) how often the word occurs; 0 for an entry that is not seen.
        topics: (W, K) gamma of the batch's distinct words; its dtype is that of the result.
        total: (K,) sums of gamma over all words.
        prior_concentration: (K,), (1, K) or (B, K) a_nk, positive.
        expected_exp_neg_f: (K,), (1, K) or (B, K), positive; ones for an HDP.
        held: what gamma holds of the documents; None for documents that it holds nothing of.
        warm: start a document from the responsibilities that gamma holds, if there are any.
        max_sweeps: at least one.
        tolerance: of the stopping test.
        keep: responsibilities kept of an entry; with 0, none are, and `counts` are sums of all responsibilities.

    Returns:
        An :class:`OwnCountsOut`; its `counts` are sums of the responsibilities that are kept.
    """
    dtype, num_topics, num_documents = topics.dtype, topics.shape[1], len(indptr) - 1
    if num_topics > ONE:
        raise ValueError(f"There are {num_topics} topics, and leaving own counts out holds at most {ONE}.")
    held = nothing_held(len(word)) if held is None else held
    keep = min(keep, num_topics)
    if topics.device.type != "cpu":
        from pyro_prme.kernels.own_counts_torch import own_counts_out_torch

        given = indptr, word, count, topics, total, prior_concentration, expected_exp_neg_f
        return own_counts_out_torch(*given, held, warm, max(1, int(max_sweeps)), float(tolerance), keep)
    shape = (num_documents, num_topics)
    kept = Kept(*(torch.empty(len(word), keep, dtype=torch.int16) for _ in range(2)))
    counts, concentration, rate = (topics.new_empty(shape) for _ in range(3))
    epsilon, log_predictive = topics.new_empty(num_documents), topics.new_zeros(len(word))
    sweeps = torch.empty(num_documents, dtype=torch.int64)
    threads = torch.get_num_threads()
    share_out(
        _documents,
        _pieces(len(word) * num_topics, threads),
        threads,
        _arrays(indptr, word, count.to(dtype)),
        _topics_and_held(topics, total, held),
        _arrays(*(x.to(dtype).reshape(-1, num_topics) for x in (prior_concentration, expected_exp_neg_f))),
        (max(1, int(max_sweeps)), float(tolerance), bool(warm)),
        _arrays(counts, concentration, rate, epsilon, log_predictive, *kept, sweeps),
    )
    return OwnCountsOut(counts, concentration, rate, epsilon, log_predictive, kept, sweeps)


def log_completion(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    topics: Tensor,
    total: Tensor,
    proportions: Tensor,
    held: Held | None = None,
) -> Tensor:
    r"""Log probability of words given a document's proportions, in topics without the document's own counts.

    .. math::
        \sum_e c_e \ln \sum_k \pi_{nk}
            \frac{\gamma_{k x_e} - s_e \phi'_e(k)}{\gamma_k - \sum_{e'} s_{e'} \phi'_{e'}(k)}

    Its gradient flows to the proportions alone.

    Args:
        indptr, word, topics, total, held: as in :func:`own_counts_out`.
        count: (E,) words to predict; entries with 0 cost nothing.
        proportions: (B, K), rows that sum to one.

    Returns:
        Of each document, shape (B,).
    """
    held = nothing_held(len(word)) if held is None else held
    if topics.device.type != "cpu":
        from pyro_prme.kernels.own_counts_torch import log_completion_torch

        return log_completion_torch(indptr, word, count, topics, total, proportions, held)
    return _LogCompletion.apply(proportions, (indptr, word, count), (topics, total), held)


class _LogCompletion(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, proportions: Tensor, corpus: Any, topics: Any, held: Held) -> Tensor:
        (indptr, word, count), dtype = corpus, proportions.dtype
        gradient, value = torch.zeros_like(proportions), proportions.new_zeros(len(proportions))
        threads = torch.get_num_threads()
        share_out(
            _completion,
            _pieces(len(word) * proportions.shape[1], threads),
            threads,
            _arrays(indptr, word, count.to(dtype)),
            _topics_and_held(topics[0].to(dtype), topics[1], held),
            *_arrays(proportions, gradient, value),
        )
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream.unsqueeze(-1), None, None, None


def nothing_held(entries: int) -> Held:
    """What gamma holds of documents that it has not seen."""
    empty = torch.zeros(entries, 1, dtype=torch.int16)
    return Held(Kept(empty, empty), torch.zeros(entries))


def _pieces(size: int, threads: int) -> int:
    return 1 if threads == 1 or size < _SMALL else 8 * threads


def _arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(x.detach().contiguous().numpy() for x in tensors)


def _topics_and_held(topics: Tensor, total: Tensor, held: Held) -> tuple[np.ndarray, ...]:
    each = held.tokens.to(topics.dtype) / ONE
    return _arrays(topics, total.to(topics.dtype), *held.kept, each)


@fast
def _topics_of(words, first, given, owned, inverse, rows):
    """Topics of a document's words without what they hold of it: (size, K) rows; whether they hold anything.

    `owned` becomes the document's counts in the topics, `inverse` one over the totals without them.
    """
    topics, total, old_topics, old_shares, each = given
    owns = False
    for k in range(owned.size):
        owned[k] = 0
    for m in range(words.size):
        if each[first + m] > 0:
            owns = True
            for j in range(old_topics.shape[1]):
                owned[old_topics[first + m, j]] += each[first + m] * old_shares[first + m, j]
    for k in range(owned.size):
        inverse[k] = 1 / max(total[k] - owned[k], _TINY)
    for m in range(words.size):
        source, row = topics[words[m]], rows[m]
        for k in range(owned.size):
            row[k] = source[k]
        if each[first + m] > 0:
            for j in range(old_topics.shape[1]):
                k = old_topics[first + m, j]
                row[k] = max(row[k] - each[first + m] * old_shares[first + m, j], source[k] * _LEAST)
        for k in range(owned.size):
            row[k] *= inverse[k]
    return owns


@cached
def _documents(first, step, corpus, given, prior, limits, out):
    """The step of documents first, first + step, ..., each on its own."""
    indptr, word, count = corpus
    shapes, e = prior
    counts, concentration, rate, epsilon, log_predictive, kept_topics, kept_shares, sweeps = out
    num_topics, dtype, keep = shapes.shape[1], log_predictive.dtype, kept_topics.shape[1]
    longest = 0
    for n in range(first, sweeps.size, step):
        longest = max(longest, indptr[n + 1] - indptr[n])
    rows, phi = np.empty((longest, num_topics), dtype), np.empty((longest, num_topics), dtype)
    vectors, values = np.empty((6, num_topics), dtype), np.empty(keep, dtype)
    peaks = np.empty((num_topics + _LANES - 1) // _LANES, dtype)
    owned, inverse, a, b, loadings, new = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], vectors[5]
    wide = np.empty((3, num_topics))
    n_k, exp_neg_f, scratch = wide[0], wide[1], wide[2]
    for n in range(first, sweeps.size, step):
        begin, size = indptr[n], indptr[n + 1] - indptr[n]
        words, numbers = word[begin : begin + size], count[begin : begin + size]
        owns = _topics_of(words, begin, given, owned, inverse, rows)
        mass, prior_mass, flat = 0.0, 0.0, True
        for m in range(size):
            mass += numbers[m]
        for k in range(num_topics):
            a[k] = shapes[n if len(shapes) > 1 else 0, k]
            exp_neg_f[k] = e[n if len(e) > 1 else 0, k]
            prior_mass += a[k]
            flat &= exp_neg_f[k] == exp_neg_f[0]
            n_k[k] = mass / num_topics
        eps = prior_mass / exp_neg_f[0]
        if not flat:
            eps = _rates(a, n_k, exp_neg_f, mass, prior_mass, eps, b, scratch)
        else:
            for k in range(num_topics):
                b[k] = 1 / (exp_neg_f[k] + mass / eps)
        for m in range(size):
            if limits[2] and owns:
                _unpacked(given[2][begin + m], given[3][begin + m], phi[m])
            else:
                _normalised(rows[m], a, b, phi[m])
        for k in range(num_topics):
            n_k[k] = 0
        for m in range(size):
            for k in range(num_topics):
                n_k[k] += numbers[m] * phi[m, k]
        done, change = 0, np.inf
        while mass > 0 and done < limits[0] and not change < limits[1] * mass:
            for k in range(num_topics):
                loadings[k] = a[k] + n_k[k]
                scratch[k] = n_k[k]
            for m in range(size):
                if numbers[m] > 0:
                    log_predictive[begin + m] = _update(rows[m], numbers[m], a, b, loadings, phi[m], new)
            change = 0.0
            for k in range(num_topics):
                n_k[k] = max(loadings[k] - a[k], 0.0)
                change += abs(n_k[k] - scratch[k])
            if not flat:
                eps = _rates(a, n_k, exp_neg_f, mass, prior_mass, eps, b, scratch)
            done += 1
        sweeps[n], epsilon[n] = done, eps
        for k in range(num_topics):
            n_k[k] = n_k[k] if keep == 0 else 0
        for m in range(size if keep > 0 else 0):
            _keep_largest(phi[m], kept_topics[begin + m], kept_shares[begin + m], values, peaks)
            for j in range(keep):
                n_k[kept_topics[begin + m, j]] += numbers[m] / ONE * kept_shares[begin + m, j]
        for k in range(num_topics):
            counts[n, k], concentration[n, k], rate[n, k] = n_k[k], a[k] + n_k[k], 1 / b[k]


@fast
def _rates(a, n_k, exp_neg_f, mass, prior_mass, guess, b, scratch):
    """epsilon, and in `b` one over the rates of the loadings."""
    for k in range(a.size):
        scratch[k] = a[k] + n_k[k]
    if mass > 0:
        epsilon = solve_epsilon(scratch, exp_neg_f, mass, prior_mass, guess)
    else:
        epsilon = 0.0
        for k in range(a.size):
            epsilon += a[k] / exp_neg_f[k]
    for k in range(a.size):
        b[k] = 1 / (exp_neg_f[k] + mass / epsilon)
    return epsilon


@cached
def _completion(first, step, corpus, given, proportions, gradient, value):
    """The completion of documents first, first + step, ..., with its gradient; both arrays begin as zeros."""
    indptr, word, count = corpus
    num_topics, dtype, longest = proportions.shape[1], proportions.dtype, 0
    for n in range(first, value.size, step):
        longest = max(longest, indptr[n + 1] - indptr[n])
    rows, vectors = np.empty((longest, num_topics), dtype), np.empty((2, num_topics), dtype)
    for n in range(first, value.size, step):
        begin, size = indptr[n], indptr[n + 1] - indptr[n]
        _topics_of(word[begin : begin + size], begin, given, vectors[0], vectors[1], rows)
        share, slope = proportions[n], gradient[n]
        for m in range(size):
            c, row, total = count[begin + m], rows[m], dtype.type(0)
            if c > 0:
                for k in range(num_topics):
                    total += row[k] * share[k]
                value[n] += c * math.log(total)
                for k in range(num_topics):
                    slope[k] += c / total * row[k]


@fast
def _unpacked(topics, shares, phi):
    """Kept responsibilities in full."""
    for k in range(phi.size):
        phi[k] = 0
    for j in range(topics.size):
        phi[topics[j]] += shares[j] / ONE


@fast
def _normalised(row, a, b, phi):
    """phi in proportion to row * a * b."""
    total = row.dtype.type(0)
    for k in range(row.size):
        phi[k] = row[k] * a[k] * b[k]
        total += phi[k]
    for k in range(row.size):
        phi[k] /= total


@fast
def _update(row, c, a, b, loadings, phi, new):
    """One entry: `phi` and `loadings` are changed; the logarithm of its probability given the others."""
    total, whole = row.dtype.type(0), row.dtype.type(0)
    for k in range(row.size):
        left = max(loadings[k] - c * phi[k], a[k]) * b[k]
        whole += left
        new[k] = row[k] * left
        total += new[k]
    inverse = 1 / total
    for k in range(row.size):
        moved = new[k] * inverse
        loadings[k] += c * (moved - phi[k])
        phi[k] = moved
    return math.log(total / whole)


@fast
def _keep_largest(phi, topics, shares, values, peaks):
    """The largest responsibilities, divided by their sum, in whole numbers that sum to `ONE`; `phi` loses them.

    Peaks of groups of lanes say where the next one is: this has no branch a processor could guess wrong for each topic.
    `values` (one a share) and `peaks` (one a group) are scratch.
    """
    total, left = phi.dtype.type(0), ONE
    for group in range(peaks.size):
        peaks[group] = _peak(phi[group * _LANES : (group + 1) * _LANES])
    for j in range(topics.size):
        group = 0
        for other in range(1, peaks.size):
            group = other if peaks[other] > peaks[group] else group
        if peaks[group] * ONE < total:  # a share of it would be none
            topics[j], values[j] = 0, 0
            continue
        lanes = phi[group * _LANES : (group + 1) * _LANES]
        lane = 0
        while lane < lanes.size - 1 and lanes[lane] < peaks[group]:
            lane += 1
        topics[j], values[j] = group * _LANES + lane, lanes[lane]
        total += lanes[lane]
        lanes[lane] = 0
        peaks[group] = _peak(lanes)
    for j in range(topics.size):
        shares[j] = int(values[j] / total * ONE)
        left -= shares[j]
    shares[0] += left


@fast
def _peak(lanes):
    top = lanes.dtype.type(0)
    for k in range(lanes.size):
        top = max(top, lanes[k])
    return top


def add_kept_(counts: Tensor, word: Tensor, tokens: Tensor, kept: Kept) -> None:
    """Adds s_e phi_e(k) to the rows of word-major counts (D, K), in the order of the entries.

    Args:
        counts: changed in place.
        word: (E,) rows of `counts`.
        tokens: (E,) s_e, of either sign.
        kept: phi of the entries.
    """
    each = (tokens / ONE).to(counts.dtype).contiguous()
    arrays = counts.numpy(), word.contiguous().numpy(), each.numpy(), *(x.contiguous().numpy() for x in kept)
    share_out(_add_kept, 1, 1, *arrays)
    torch.autograd.graph.increment_version(counts)


@cached
def _add_kept(first, step, counts, word, each, topics, shares):
    if first > 0:
        return
    for m in range(word.size):
        for j in range(topics.shape[1]):
            counts[word[m], topics[m, j]] += each[m] * shares[m, j]
