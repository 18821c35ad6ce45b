"""Inference networks g: what reads a document and says where it lies, h_n = g(X_n) (paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pyro_prme.checks import all_settings
from pyro_prme.corpora.batch import Batch
from pyro_prme.kernels.buffers import Buffers
from pyro_prme.kernels.words import sums_by_word
from pyro_prme.models.networks.layers import BatchNorm, Stack, check_depth

__all__ = ["BagOfWordsEncoder", "TopicEncoder", "encoder_of_depth", "hide_words"]


def hide_words(batch: Batch, word_dropout: float) -> Tensor:
    """Counts with some tokens hidden: each document hides a share drawn uniformly between 0 and `word_dropout`.

    A share that varies teaches g what little evidence means: with a fixed one, g is sure of itself on short documents.

    Returns:
        Shape (E,), binomial draws from every count.
    """
    kept = 1 - word_dropout * torch.rand(batch.size, dtype=batch.count.dtype)
    return torch.binomial(batch.count, kept[batch.document])


def _shares(batch: Batch, word_dropout: float) -> Tensor:
    """What g sees: counts, some of them hidden, divided by the document's length, shape (E,)."""
    count = batch.count
    if word_dropout:
        count = hide_words(batch, word_dropout) if batch.seen is None else batch.seen
    length = count.new_zeros(batch.size).index_add_(0, batch.document, count).clamp(min=1)
    return count / length[batch.document]


class _WordSums(torch.autograd.Function):
    """Weighted sum of a table's rows (D, width) over the entries of each document.

    The gradient of the table is the sum over a word's entries, the same sum with documents and words changed over; of
    rows other than the batch's words none is read, written or kept.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, share: Tensor, batch: Batch, sparse: bool, memory: Buffers) -> Tensor:
        ctx.save_for_backward(share)
        ctx.batch, ctx.size, ctx.sparse, ctx.memory = batch, table.shape, sparse, memory
        return _bags(table, batch.words[batch.local_word], batch.indptr[:-1], share)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        batch, (share,) = ctx.batch, ctx.saved_tensors
        rows = sums_by_word(batch.indptr, batch.local_word, len(batch.words), share, gradient, ctx.memory)  # (W, width)
        table = torch.sparse_coo_tensor(
            batch.words.unsqueeze(0), rows, ctx.size, is_coalesced=True, check_invariants=False
        )
        return table if ctx.sparse else table.to_dense(), None, None, None, None


def _bags(table: Tensor, rows: Tensor, begin: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums of rows of a table, one for each run of `rows` that starts at `begin`."""
    return nn.functional.embedding_bag(rows, table, begin, mode="sum", per_sample_weights=weight)


class BagOfWordsEncoder(nn.Module):
    """g of the paper: h_n from the bag of words divided by its length.

    Args:
        vocab_size: D.
        h_dim: length of h.
        hidden: widths of the hidden layers; empty for a linear g.
        batch_norm: whether layers normalise their batch, see `Stack`.
        residual: whether layers are added to their input, see `Stack`.
        word_dropout: largest share of a document's tokens that g does not see in training (the E-step sees all).
            Without it g overfits long before the topics do.
        sparse: give the first layer's weights a sparse gradient, with rows for the words of the batch alone. The
            library's trainer takes it; of torch's optimizers only some do.
    """

    topics_site: str | None = None

    def __init__(
        self,
        vocab_size: int,
        h_dim: int,
        hidden: Sequence[int] = (1000,),
        *,
        batch_norm: bool = True,
        residual: bool = False,
        word_dropout: float = 1.0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        all_settings(word_dropout=word_dropout)
        self.word_dropout = word_dropout
        first, *rest = [*hidden, h_dim]
        self.words = nn.Embedding(vocab_size, first, sparse=sparse)
        nn.init.normal_(self.words.weight, std=first**-0.5)
        self.bias = nn.Parameter(torch.zeros(first))
        self.norm = BatchNorm(first) if batch_norm and rest else nn.Identity()
        self.stack = Stack([first, *rest[:-1]], batch_norm=batch_norm, residual=residual)
        self.head = nn.Linear([first, *rest][-2], h_dim) if rest else nn.Identity()
        self.memory = Buffers()

    def forward(self, batch: Batch, topics: Tensor | None = None) -> Tensor:
        """h of each document, shape (B, h_dim)."""
        share = _shares(batch, self.word_dropout if self.training else 0.0).to(self.bias.dtype)
        x = _WordSums.apply(self.words.weight, share, batch, self.words.sparse, self.memory) + self.bias
        if isinstance(self.head, nn.Identity):
            return x
        return self.head(self.stack(self.norm(x.relu())))


class TopicEncoder(nn.Module):
    """g on topic responsibilities: h_n from the mean over a document's words of E theta, normalised over topics.

    Differs from the paper: K numbers from q(theta) in place of D word weights. It generalises as well, trains faster
    and has no vocabulary-wide layer. h moves with q(theta), so a natural step is no longer pure coordinate ascent.

    Args:
        num_topics: K.
        h_dim: length of h.
        hidden: widths of the hidden layers.
        batch_norm: see `BagOfWordsEncoder`.
        residual: see `BagOfWordsEncoder`.
        word_dropout: see `BagOfWordsEncoder`.
    """

    topics_site: str | None = "theta"
    reads_topics = True

    def __init__(
        self,
        num_topics: int,
        h_dim: int,
        hidden: Sequence[int] = (100,),
        *,
        batch_norm: bool = True,
        residual: bool = False,
        word_dropout: float = 1.0,
    ) -> None:
        super().__init__()
        all_settings(word_dropout=word_dropout)
        self.word_dropout = word_dropout
        self.norm = BatchNorm(num_topics) if batch_norm else nn.Identity()
        self.stack = Stack([num_topics, *hidden], batch_norm=batch_norm, residual=residual)
        self.head = nn.Linear([num_topics, *hidden][-1], h_dim)

    def forward(self, batch: Batch, topics: Tensor) -> Tensor:
        """h of each document, shape (B, h_dim), from E theta of the batch's words, shape (W, K)."""
        share = _shares(batch, self.word_dropout if self.training else 0.0).to(topics.dtype)
        share = share / topics.sum(-1)[batch.local_word]  # responsibilities are rows over their sums
        features = _bags(topics, batch.local_word, batch.indptr[:-1], share)
        return self.head(self.stack(self.norm(features * topics.shape[-1])))


def encoder_of_depth(
    depth: int,
    vocab_size: int,
    h_dim: int,
    width: int = 1000,
    *,
    batch_norm: bool = True,
    residual: bool = False,
    word_dropout: float = 1.0,
) -> BagOfWordsEncoder:
    """The paper's inference network of Table 3 at the given total depth."""
    check_depth(depth, residual)
    hidden = [width] * (depth // 2 - 1)
    return BagOfWordsEncoder(
        vocab_size, h_dim, hidden, batch_norm=batch_norm, residual=residual, word_dropout=word_dropout
    )
