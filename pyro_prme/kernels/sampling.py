r"""Sweeps of a collapsed Gibbs sampler over the topics of a batch's words, compiled.

Open this to see, or to call, the inner loop of ``inference="gibbs"``. Topics theta are integrated out, and so are the
proportions of each document; what is left are the topics of the single words, two bytes each. A sweep draws each of
them given all others, with counts n_nk of document n and m_kd of word d without the word that is drawn:

.. math::
    p(C_i = k \mid C_{-i}, u, X) \propto \frac{\gamma_0 + m_{k x_i}}{D \gamma_0 + m_k} \cdot
        \frac{a_{nk} + n_{nk}}{e^{-f_{nk}} + u_n}

Where exp(-f) is the same for all topics (HDP, f in the shape) the denominator drops out, and this is the
Dirichlet-multinomial with prior a_n. Elsewhere u_n makes the logarithm of a sum linear, exactly: it comes in by
:math:`S^{-M} = \int u^{M-1} e^{-uS} du / \Gamma(M)`, so that given the words' topics
:math:`Z_{nk} \sim \mathrm{Gamma}(a_{nk} + n_{nk}, e^{-f_{nk}} + u_n)`, and given these
:math:`u_n \sim \mathrm{Gamma}(M_n, \sum_k Z_{nk})`. The words' topics are drawn with Z integrated out, then Z and u.

Small batches are swept word by word in one go, which is exact. A large batch is cut into `PARTS` groups of documents
and as many classes of words, whatever the number of threads; groups that are swept at one time have different classes,
so that they never touch the same counts m_kd, and only the sums m_k of the others are those of a fraction of a sweep
ago. Each document has a random stream of its own, made from a key and its number. So numbers depend on the seed and the
data alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyro_prme.kernels.arithmetic import cached, fast
from pyro_prme.kernels.own_counts import ONE, Kept
from pyro_prme.kernels.threads import share_out

__all__ = ["PARTS", "Assigned", "Sampled", "kept_of_tokens", "sample_topics"]

#: Groups of documents that a large batch is cut into.
PARTS = 4

_LARGE = 20_000  # tokens from which a batch is cut
_BLOCK = 16  # topics whose weights are added up together
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UNIT = 2.0**-53


class Assigned(NamedTuple):
    """The state of the chain in B documents of T tokens, entry by entry."""

    topics: Tensor  # (T,) int16; -1 where a word has no topic yet
    slope: Tensor  # (B,) u_n; 0 where there is none yet


class Sampled(NamedTuple):
    """What the sweeps left, for B documents, K topics, W words, E entries."""

    assigned: Assigned
    topics: Tensor  # (W, K) gamma with the new topics of the batch's words
    total: Tensor  # (K,)
    counts: Tensor  # (B, K) n_nk
    concentration: Tensor  # (B, K) a_nk + n_nk
    rate: Tensor  # (B, K) exp(-f_nk) + u_n
    log_predictive: Tensor  # (B,) sum over words of ln p(x | topics of all other words), when each was drawn


def sample_topics(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    topics: Tensor,
    total: Tensor,
    prior_concentration: Tensor,
    exp_neg_f: Tensor,
    assigned: Assigned,
    *,
    key: int,
    rows: Tensor,
    sweeps: int = 1,
) -> Sampled:
    """Draws the topic of every word of a batch, given all others, `sweeps` times; what is given stays as it is.

    Args:
        indptr: (B + 1,) int64; the entries of document n are `indptr[n]:indptr[n + 1]`.
        word: (E,) int64, rows of `topics`.
        count: (E,) how often the word occurs, whole numbers.
        topics: (W, K) gamma of the batch's distinct words, with the words that have a topic in `assigned`.
        total: (K,) sums of gamma over all words.
        prior_concentration: (K,), (1, K) or (B, K) a_nk, positive.
        exp_neg_f: (K,), (1, K) or (B, K), positive; ones for an HDP.
        assigned: where the chain is. A word without a topic gets its first one given those that have one.
        key: of the random numbers; another one for each visit.
        rows: (B,) number of each document, which tells its random numbers from those of the others.
        sweeps: at least one.
    """
    num_topics, num_documents, dtype = topics.shape[1], len(indptr) - 1, topics.dtype
    if num_topics > ONE:
        raise ValueError(f"There are {num_topics} topics, and sampling holds at most {ONE}.")
    if topics.device.type != "cpu":
        raise ValueError("Gibbs sampling runs on the processor: move model and guide there, or use other inference.")
    each = count.numpy().astype(np.int64)
    start = np.concatenate([[0], each.cumsum()])
    bounds = indptr.numpy()
    mass = start[bounds[1:]] - start[bounds[:-1]]
    if len(assigned.topics) != start[-1]:
        raise ValueError(f"The chain has topics of {len(assigned.topics)} words, and the batch {start[-1]} words.")
    given = tuple(x.to(dtype).reshape(-1, num_topics).contiguous().numpy() for x in (prior_concentration, exp_neg_f))
    z, slope = assigned.topics.numpy().copy(), assigned.slope.numpy().astype(np.float64)
    flat = np.ascontiguousarray(given[1].max(1) == given[1].min(1))
    first = np.where(slope > 0, slope, mass / (given[0] / given[1]).sum(1))
    slope = np.where(flat, mass / (given[0].sum(1) / given[1][:, 0]), first)
    new, sums = topics.clone(), total.to(torch.float64).numpy().copy()
    parts = PARTS if start[-1] >= _LARGE else 1
    threads = min(torch.get_num_threads(), parts)
    cut = _cut(mass, parts), _cut(np.bincount(word.numpy(), each, len(topics)), parts)
    corpus = bounds, word.numpy(), start
    log_predictive, moved = np.zeros(num_documents), np.zeros((parts, num_topics))
    counts, concentration, rate = (topics.new_empty(num_documents, num_topics) for _ in range(3))
    arrays = tuple(x.numpy() for x in (counts, concentration, rate))
    stream, numbers = np.uint64(key % 2**64), rows.numpy().astype(np.int64)
    for sweep in range(max(1, int(sweeps))):
        log_predictive[:] = 0
        for turn in range(parts):
            where = (*cut, turn, stream + np.uint64(sweep * (PARTS + 1) + turn))
            tables = new.numpy(), sums, moved
            share_out(_sweep, parts, threads, corpus, tables, (*given, slope), where, numbers, z, log_predictive)
            sums += moved.sum(0)
        last = stream + np.uint64(sweep * (PARTS + 1) + PARTS)
        share_out(_loadings, parts, threads, corpus, given, slope, flat, last, numbers, z, arrays)
    state = Assigned(torch.from_numpy(z), torch.from_numpy(slope))
    sampled = torch.from_numpy(sums).to(total.dtype)
    return Sampled(state, new, sampled, counts, concentration, rate, torch.from_numpy(log_predictive))


def _cut(sizes: np.ndarray, parts: int) -> np.ndarray:
    """Where to cut items into parts of about the same total size."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.searchsorted(ends, np.arange(1, parts) * ends[-1] / parts)
    return np.concatenate([[0], cuts, [len(sizes)]]).astype(np.int64)


@fast
def _mixed(x):
    """A number that looks random, from one that counts (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@fast
def _stream(key, row):
    """Where the random numbers of a document begin."""
    return _mixed(_mixed(key + _GOLDEN) ^ (np.uint64(row) * _GOLDEN))


@fast
def _uniform(state):
    """A number from 0 up to one; `state`, an array of one number, moves on."""
    state[0] += _GOLDEN
    return (_mixed(state[0]) >> np.uint64(11)) * _UNIT


@cached
def _sweep(first, step, corpus, tables, prior, where, numbers, z, log_predictive):
    """Groups first, first + step, ... of documents: their words of one class each."""
    indptr, word, start = corpus
    topics, total, moved = tables
    shapes, e, slope = prior
    documents, classes, turn, key = where
    parts, num_topics, dtype = documents.size - 1, total.size, topics.dtype
    blocks = num_topics // _BLOCK
    vectors, sums = np.empty((5, num_topics), dtype), np.zeros(blocks + 1, dtype)
    loads, b, inverse, side, p = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    state, one, touched = np.empty(1, np.uint64), dtype.type(1), dtype.type(0)
    own = np.empty(num_topics)
    for g in range(first, parts, step):
        low, high = classes[(g + turn) % parts], classes[(g + turn) % parts + 1]
        for k in range(num_topics):
            own[k] = total[k]
            inverse[k] = one / own[k]
        for n in range(documents[g], documents[g + 1]):
            state[0] = _stream(key, numbers[n])
            for k in range(num_topics):
                loads[k] = shapes[n if len(shapes) > 1 else 0, k]
                b[k] = one / (e[n if len(e) > 1 else 0, k] + slope[n])
            for t in range(start[indptr[n]], start[indptr[n + 1]]):
                if z[t] >= 0:
                    loads[z[t]] += one
            whole = 0.0
            for k in range(num_topics):
                whole += loads[k] * b[k]
                side[k] = loads[k] * b[k] * inverse[k]
            probability = 1.0
            for m in range(indptr[n], indptr[n + 1]):
                d = word[m]
                if d < low or d >= high:
                    continue
                ahead = word[min(m + 1, word.size - 1)]  # brings the row of the next word into the cache
                for j in range(0, num_topics, _BLOCK):
                    touched += topics[ahead, j]
                for t in range(start[m], start[m + 1]):
                    k = z[t]
                    if k >= 0:
                        loads[k] -= one
                        whole -= b[k]
                        own[k] -= one
                        topics[d, k] -= one
                        inverse[k] = one / own[k]
                        side[k] = loads[k] * b[k] * inverse[k]
                    for i in range(blocks):
                        part, base = dtype.type(0), i * _BLOCK
                        for j in range(_BLOCK):
                            p[base + j] = topics[d, base + j] * side[base + j]
                            part += p[base + j]
                        sums[i] = part
                    part = dtype.type(0)
                    for j in range(blocks * _BLOCK, num_topics):
                        p[j] = topics[d, j] * side[j]
                        part += p[j]
                    sums[blocks] = part
                    mass = 0.0
                    for i in range(blocks + 1):
                        mass += sums[i]
                    rest, old = _uniform(state) * mass, k
                    if old < 0:
                        k = _chosen(rest, sums, p)
                    elif rest >= p[old]:  # the old topic comes first: often it is drawn again
                        k = _another(rest - p[old], old, sums, p)
                    probability *= mass / whole
                    if probability < 1e-200:
                        log_predictive[n] += math.log(probability)
                        probability = 1.0
                    z[t] = k
                    loads[k] += one
                    whole += b[k]
                    own[k] += one
                    topics[d, k] += one
                    inverse[k] = one / own[k]
                    side[k] = loads[k] * b[k] * inverse[k]
            log_predictive[n] += math.log(probability)
        for k in range(num_topics):
            moved[g, k] = own[k] - total[k]
        sums[0] = touched


@fast
def _chosen(rest, sums, p):
    """The topic whose share of the weights holds a number, found by blocks; one with a weight whatever is rounded."""
    i = 0
    while i < sums.size - 1 and rest >= sums[i]:
        rest -= sums[i]
        i += 1
    k, end = i * _BLOCK, min((i + 1) * _BLOCK, p.size)
    if k >= end:
        k, rest = k - _BLOCK, np.inf
        end = p.size
    while k < end - 1 and rest >= p[k]:
        rest -= p[k]
        k += 1
    while k > 0 and not p[k] > 0:
        k -= 1
    return k


@fast
def _another(rest, old, sums, p):
    """As `_chosen`, without one topic, whose weight is taken out."""
    p[old] = 0
    i = old // _BLOCK
    part = p.dtype.type(0)
    for k in range(i * _BLOCK, min((i + 1) * _BLOCK, p.size)):
        part += p[k]
    sums[i] = part
    return _chosen(rest, sums, p)


@cached
def _loadings(first, step, corpus, prior, slope, flat, key, numbers, z, out):
    """Counts of documents first, first + step, ..., with the factor of their loadings; a new u_n where it matters."""
    indptr, _, start = corpus
    shapes, e = prior
    counts, concentration, rate = out
    state = np.empty(1, np.uint64)
    for n in range(first, slope.size, step):
        shape, scale = shapes[n if len(shapes) > 1 else 0], e[n if len(e) > 1 else 0]
        mass = start[indptr[n + 1]] - start[indptr[n]]
        for k in range(shape.size):
            counts[n, k] = 0
        for t in range(start[indptr[n]], start[indptr[n + 1]]):
            counts[n, z[t]] += 1
        if mass > 0 and not flat[n if len(flat) > 1 else 0]:
            state[0] = _stream(key, numbers[n])
            total = 0.0
            for k in range(shape.size):
                total += _gamma(shape[k] + counts[n, k], state) / (scale[k] + slope[n])
            slope[n] = _gamma(float(mass), state) / total
        for k in range(shape.size):
            concentration[n, k] = shape[k] + counts[n, k]
            rate[n, k] = scale[k] + slope[n]


@fast
def _gamma(shape, state):
    """A draw of Gamma(shape, 1), by the squeeze of Marsaglia and Tsang on normals of Box and Muller."""
    boost = 1.0
    if shape < 1:
        boost = (1 - _uniform(state)) ** (1 / shape)
        shape += 1
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        radius = math.sqrt(-2 * math.log(1 - _uniform(state)))
        x = radius * math.cos(2 * math.pi * _uniform(state))
        v = (1 + c * x) ** 3
        if v > 0 and math.log(1 - _uniform(state)) < x * x / 2 + d - d * v + d * math.log(v):
            return boost * d * v


def kept_of_tokens(count: Tensor, topics: Tensor, keep: int) -> Kept:
    """The topics of each entry's words as responsibilities: the commonest few, and their shares.

    Args:
        count: (E,) how often each entry's word occurs.
        topics: (T,) of the words, entry by entry.
        keep: most topics of an entry.
    """
    each = count.numpy().astype(np.int64)
    found = Kept(*(torch.zeros(len(each), keep, dtype=torch.int16) for _ in range(2)))
    start = np.concatenate([[0], each.cumsum()])
    share_out(_kept, 1, 1, start, topics.numpy(), *(x.numpy() for x in found))
    return found


@cached
def _kept(first, step, start, z, topics, shares):
    if first > 0:
        return
    keep = topics.shape[1]
    for m in range(start.size - 1):
        size, known = start[m + 1] - start[m], 0
        for t in range(start[m], start[m + 1]):
            j = 0
            while j < known and topics[m, j] != z[t]:
                j += 1
            if j == known and known < keep:
                topics[m, j] = z[t]
                known += 1
            if j < known:
                shares[m, j] += 1
        total, left = 0, ONE
        for j in range(known):
            total += shares[m, j]
        for j in range(known):
            shares[m, j] = int(shares[m, j] / total * ONE)
            left -= shares[m, j]
        if size > 0:
            shares[m, 0] += left
