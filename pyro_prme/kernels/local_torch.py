"""The local step in torch operations, for devices other than the CPU; open it to run or read the step without numba.

The entries are a sparse matrix of documents by words. A sweep samples the product of exp(E ln Z) and exp(E ln theta) at
its entries (the normalisers), and multiplies the entries' ratios with exp(E ln theta) (the counts): nothing of size
entries by topics is stored. The contract is that of :func:`pyro_prme.kernels.local.local_step`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pyro_prme.kernels import LocalStep

__all__ = ["local_step_torch"]

_SAFE = {torch.float32: 1e-25, torch.float64: 1e-250}  # a smaller normaliser: log space


def local_step_torch(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    elog_theta: Tensor,
    prior: Tensor,
    e: Tensor,
    max_sweeps: int,
    tolerance: float,
    start: Sequence[Tensor] = (),
    by_mean: bool = False,
    normalised: bool = True,
) -> LocalStep:
    """Eq. update_c and eq. update_z to the fixed point with sparse matrix products; what is (B, K) is float64 inside.

    Args:
        indptr: (B + 1,) int64.
        word: (E,) int64.
        count: (E,).
        elog_theta: (W, K).
        prior: (1, K) or (B, K) beta p_k.
        e: (1, K) or (B, K) E[exp(-f_nk)].
        max_sweeps: at least one.
        tolerance: of the stopping test.
        start: empty, or (concentration, rate), each (B, K).
        by_mean: whether ln E Z forms phi, and not E ln Z.
        normalised: whether loadings are divided by their sum; if not, epsilon is infinite.
    """
    dtype, (num_words, num_topics), num_documents = elog_theta.dtype, elog_theta.shape, len(indptr) - 1
    document = torch.repeat_interleave(torch.arange(num_documents, device=word.device), indptr.diff())
    pair, document, word, count = _coalesced(document, word, count, num_words)
    indptr = _offsets(document, num_documents)
    peak = elog_theta.amax(-1)  # (W,)
    table = (elog_theta - peak[:, None]).exp()  # (W, K)
    prior, e = (x.double().expand(num_documents, num_topics) for x in (prior, e))
    mass = prior.new_zeros(num_documents).index_add_(0, document, count.double())  # (B,)
    empty = mass == 0  # such a document goes along with a mass of one, and gets its prior at the end
    mass = torch.where(empty, 1, mass)[:, None]

    a, epsilon = prior + mass / num_topics, torch.zeros_like(mass)
    epsilon = _epsilon(a, e, prior, mass, epsilon) if normalised else torch.full_like(mass, torch.inf)
    rate = e + mass / epsilon
    if start:
        a, rate = (torch.where(empty[:, None], x, y.double()) for x, y in zip((a, rate), start, strict=True))
    log_of = torch.log if by_mean else torch.digamma
    active, sweeps = ~empty, torch.zeros(num_documents, dtype=torch.int64, device=word.device)
    for _ in range(max_sweeps):
        elog = log_of(a) - rate.log()  # (B, K)
        shift = elog.amax(-1)
        weights = (elog - shift[:, None]).exp().to(dtype)
        normalizer = _sampled_product(indptr, word, weights, table)  # (E,)
        safe = normalizer > _SAFE[dtype]
        ratio = torch.where(safe, count / normalizer, 0)
        n = (weights * _product(indptr, word, ratio, table)).double()
        for some, phi, _ in _in_log_space(~safe, document, word, elog, elog_theta):
            n.index_add_(0, document[some], phi * count[some, None])
        change = (prior + n - a).abs().sum(-1)
        after = torch.where(empty[:, None], a, prior + n)
        epsilon = _epsilon(after, e, prior, mass, epsilon) if normalised else epsilon
        sweeps += active
        active &= ~(change < tolerance * mass[:, 0])
        if not active.any():
            break
        a = torch.where(active[:, None], after, a)  # a document that has stopped repeats its last sweep
        rate = torch.where(active[:, None], e + mass / epsilon, rate)

    n[empty] = 0
    elog = torch.where(empty[:, None], log_of(prior) - e.log(), elog)
    safe = safe & ~empty[document]
    log_normalizer = normalizer.double().log() + peak[word] + shift[document]
    order = torch.argsort(word, stable=True)
    statistics = table * _product(_offsets(word[order], num_words), document[order], ratio[order], weights)
    for some, phi, value in _in_log_space(~safe, document, word, elog, elog_theta):
        log_normalizer[some] = value
        statistics.index_add_(0, word[some], (phi * count[some, None]).to(dtype))
    return LocalStep(
        counts=n.to(dtype),
        concentration=(prior + n).to(dtype),
        rate=torch.where(empty[:, None], e, e + mass / epsilon).to(dtype),
        epsilon=torch.where(empty, (prior / e).sum(-1), epsilon[:, 0]).to(dtype),
        elog_loadings=elog.to(dtype),
        log_normalizer=log_normalizer[pair].to(dtype),
        statistics=statistics,
        sweeps=sweeps,
    )


def _epsilon(a: Tensor, e: Tensor, prior: Tensor, mass: Tensor, guess: Tensor) -> Tensor:
    """(B, 1) root of sum_k a_k e_k eps / (e_k eps + M) = sum_k beta p_k by Newton's method from a guess >= 0."""
    prior_mass = prior.sum(-1, keepdim=True)
    if (e == e[:, :1]).all():  # then it is known: sum_k a_k = M + sum_k beta p_k
        return prior_mass / e[:, :1]
    epsilon = guess
    for _ in range(50):
        inverse = 1 / (e * epsilon + mass)
        value = a * e * inverse
        slope = mass * (value * inverse).sum(-1, keepdim=True)
        before = epsilon
        epsilon = (before + (prior_mass - before * value.sum(-1, keepdim=True)) / slope).clamp_min(0)
        if ((epsilon - before).abs() <= 1e-7 * epsilon).all():
            break
    return epsilon


def _coalesced(document: Tensor, word: Tensor, count: Tensor, num_words: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Entries sorted by document and word with repeated words summed, and for each old entry its new one."""
    key = document * num_words + word
    if bool((key.diff() > 0).all()):
        return torch.arange(len(key), device=key.device), document, word, count
    key, pair = torch.unique(key, return_inverse=True)
    summed = count.new_zeros(len(key)).index_add_(0, pair, count)
    return pair, key // num_words, key % num_words, summed


def _offsets(sorted_rows: Tensor, num_rows: int) -> Tensor:
    """(num_rows + 1,) where each row begins among sorted row numbers."""
    return torch.searchsorted(sorted_rows, torch.arange(num_rows + 1, device=sorted_rows.device))


def _csr(indptr: Tensor, column: Tensor, value: Tensor, num_columns: int) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        size = (len(indptr) - 1, num_columns)
        return torch.sparse_csr_tensor(indptr, column, value, size, check_invariants=False)


def _sampled_product(indptr: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """(E,) the product left @ right.T at the entries."""
    if len(column) == 0:
        return left.new_empty(0)
    entries = _csr(indptr, column, left.new_zeros(len(column)), len(right))
    return torch.sparse.sampled_addmm(entries, left, right.T, beta=0).values()


def _product(indptr: Tensor, column: Tensor, value: Tensor, right: Tensor) -> Tensor:
    """The sparse matrix of the entries times a dense one."""
    if len(column) == 0:
        return right.new_zeros(len(indptr) - 1, right.shape[1])
    return _csr(indptr, column, value, len(right)) @ right


def _in_log_space(
    chosen: Tensor, document: Tensor, word: Tensor, elog: Tensor, elog_theta: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(entries, phi, log-normaliser) of the chosen entries, a bounded number at a time, in float64."""
    for some in chosen.nonzero()[:, 0].split(max(1, 2**20 // elog.shape[1])):
        scores = elog[document[some]] + elog_theta[word[some]].double()
        value = scores.logsumexp(-1)
        yield some, (scores - value[:, None]).exp(), value
