"""Leaving own counts out, in plain torch on any device: open it to read the step, or to check the compiled one."""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_prme.kernels.own_counts import ONE, Held, Kept, OwnCountsOut

__all__ = ["log_completion_torch", "own_counts_out_torch", "topics_without_own"]

_TINY = 1e-30
_LEAST = 1e-6


def own_counts_out_torch(
    indptr: Tensor,
    word: Tensor,
    count: Tensor,
    topics: Tensor,
    total: Tensor,
    prior: Tensor,
    e: Tensor,
    held: Held,
    warm: bool,
    max_sweeps: int,
    tolerance: float,
    keep: int,
) -> OwnCountsOut:
    """`own_counts_out`; the entries at one place in all documents are updated together."""
    dtype, num_topics, num_documents = topics.dtype, topics.shape[1], len(indptr) - 1
    shape = (num_documents, num_topics)
    count, a, e = count.to(dtype), prior.to(dtype).expand(shape), e.to(dtype).expand(shape)
    length = indptr.diff()
    document = torch.arange(num_documents, device=word.device).repeat_interleave(length)
    rows = topics_without_own(indptr, word, topics, total, held)
    mass = count.new_zeros(num_documents).index_add_(0, document, count)
    epsilon, rate = _rates(a, mass.unsqueeze(-1) / num_topics, e, mass)
    phi = rows * (a / rate)[document]
    phi = phi / phi.sum(-1, keepdim=True)
    if warm:
        holds = count.new_zeros(num_documents).index_add_(0, document, held.tokens.to(dtype)) > 0
        phi = torch.where(holds[document].unsqueeze(-1), unpacked(held.kept, num_topics).to(dtype), phi)
    n = count.new_zeros(shape).index_add_(0, document, count.unsqueeze(-1) * phi)
    log_predictive, sweeps = torch.zeros_like(count), torch.zeros_like(length)
    active = mass > 0
    for _ in range(max_sweeps):
        before = n.clone()
        for place in range(int(length.max()) if len(length) else 0):
            d = torch.nonzero(active & (length > place)).squeeze(-1)
            m = indptr[d] + place
            d, m = d[count[m] > 0], m[count[m] > 0]
            c = count[m].unsqueeze(-1)
            left = torch.maximum(a[d] + n[d] - c * phi[m], a[d]) / rate[d]
            new = rows[m] * left
            log_predictive[m] = (new.sum(-1) / left.sum(-1)).log()
            new = new / new.sum(-1, keepdim=True)
            n[d] += c * (new - phi[m])
            phi[m] = new
        n = n.clamp(min=0)
        sweeps += active
        solved, rates = _rates(a, n, e, mass)
        epsilon = torch.where(active, solved, epsilon)
        rate = torch.where(active.unsqueeze(-1), rates, rate)
        active = active & ((n - before).abs().sum(-1) >= tolerance * mass)
    kept = largest(phi, keep)
    phi = unpacked(kept, num_topics).to(dtype) if keep else phi
    n = count.new_zeros(shape).index_add_(0, document, count.unsqueeze(-1) * phi)
    return OwnCountsOut(n, a + n, rate, epsilon, log_predictive, kept, sweeps)


def log_completion_torch(
    indptr: Tensor, word: Tensor, count: Tensor, topics: Tensor, total: Tensor, proportions: Tensor, held: Held
) -> Tensor:
    """`log_completion`, by torch's own gradients."""
    document = torch.arange(len(indptr) - 1, device=word.device).repeat_interleave(indptr.diff())
    each = count * (topics_without_own(indptr, word, topics, total, held) * proportions[document]).sum(-1).log()
    return proportions.new_zeros(len(proportions)).index_add(0, document, each)


def topics_without_own(indptr: Tensor, word: Tensor, topics: Tensor, total: Tensor, held: Held) -> Tensor:
    """Topics of each entry's word without what they hold of its document, shape (E, K)."""
    document = torch.arange(len(indptr) - 1, device=word.device).repeat_interleave(indptr.diff())
    own = held.tokens.to(topics.dtype).unsqueeze(-1) * unpacked(held.kept, topics.shape[1]).to(topics.dtype)
    owned = topics.new_zeros(len(indptr) - 1, topics.shape[1]).index_add_(0, document, own)
    left = torch.maximum(topics[word] - own, topics[word] * _LEAST)
    return left / (total.to(topics.dtype) - owned).clamp(min=_TINY)[document]


def _rates(a: Tensor, n: Tensor, e: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """epsilon by bisection, and the rates e + M / epsilon."""
    concentration, wide = (a + n).double(), e.double()
    target, m = a.double().sum(-1), mass.double().unsqueeze(-1)
    low, high = torch.zeros_like(target), (target + mass) / wide.min(-1).values + 1
    for _ in range(200):
        middle = (low + high) / 2
        scaled = wide * middle.unsqueeze(-1)
        above = (concentration * scaled / (scaled + m)).sum(-1) > target
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    epsilon = torch.where(mass > 0, (low + high) / 2, (a / e).sum(-1).double()).to(a.dtype)
    return epsilon, e + mass.unsqueeze(-1) / epsilon.unsqueeze(-1)


def unpacked(kept: Kept, num_topics: int) -> Tensor:
    """Kept responsibilities in full, (E, K) float64."""
    full = torch.zeros(len(kept.topics), num_topics, dtype=torch.float64, device=kept.topics.device)
    return full.scatter_add_(1, kept.topics.long(), kept.shares.double() / ONE)


def largest(phi: Tensor, keep: int) -> Kept:
    """The largest responsibilities, divided by their sum, in whole numbers that sum to `ONE`."""
    values, topics = phi.topk(keep)
    shares = (values / values.sum(-1, keepdim=True) * ONE).to(torch.int16)
    shares[:, :1] += (ONE - shares.sum(-1, keepdim=True)).to(torch.int16)
    return Kept(topics.to(torch.int16), shares)
