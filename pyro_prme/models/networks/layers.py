"""Layers of the paper's section 4.3 (MLP or ResNet, with or without batch norm) and the decoder f made of them.

The paper counts the layers of g and f together and leaves the decoder's last one out: a network of depth 2, 4, 6 or 8
has half of them in each (its Table 3): `encoders.encoder_of_depth` and `decoder_of_depth` build them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from pyro_prme.checks import all_settings, flag, refusal
from pyro_prme.kernels.buffers import Buffers
from pyro_prme.kernels.decoder import over_pairs

__all__ = [
    "BatchNorm",
    "Decoder",
    "LinearDecoder",
    "RandomFunction",
    "Stack",
    "batch_mean",
    "check_depth",
    "decoder_of_depth",
    "mean_of_rows",
]

_DEPTHS = (2, 4, 6, 8)
_MIN_VARIANCE = 1e-4  # of max_variance


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that uses its running statistics for a batch of one row, where torch's refuses."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 1:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(x)


class Stack(nn.Module):
    """Hidden layers: Linear, ReLU, batch norm, each with an optional residual connection.

    The residual is the layer's input where widths agree and a linear projection of it where they do not.

    Args:
        widths: of the input and of each layer.
        batch_norm: normalise after each ReLU.
        residual: add the input of each layer to its output.
    """

    def __init__(self, widths: Sequence[int], *, batch_norm: bool = True, residual: bool = False) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairs)
        self.norms = nn.ModuleList(BatchNorm(o) if batch_norm else nn.Identity() for _, o in pairs)
        self.shortcuts = nn.ModuleList(
            nn.Identity() if i == o else nn.Linear(i, o, bias=False) for i, o in pairs if residual
        )

    def forward(self, x: Tensor) -> Tensor:
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            y = norm(layer(x).relu())
            x = y + self.shortcuts[i](x) if len(self.shortcuts) else y
        return x


def mean_of_rows(x: Tensor) -> Tensor | None:
    """The mean over rows; None for a single one, which says nothing of the others."""
    return x.mean(0) if len(x) > 1 else None


#: The mean over a batch's documents, of which another process may have some.
_mean_over_batch: ContextVar[Callable[[Tensor], Tensor | None]] = ContextVar("mean_over_batch", default=mean_of_rows)


@contextmanager
def batch_mean(mean: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Within it, and in this thread, decoders centre f by this mean over a batch's documents, not by that of its rows.

    Args:
        mean: of a table's rows; None where they say nothing of the others.
    """
    token = _mean_over_batch.set(mean)
    try:
        yield
    finally:
        _mean_over_batch.reset(token)


class RandomFunction(nn.Module):
    """What every decoder has: centring and bounds, so that sum_k Z_nk stays finite. A subclass has `topic_centred`.

    The mean is centred over topics (a common shift is absorbed by epsilon), then over documents by a running mean for
    each topic, then truncated to (-max_mean, max_mean). The variance lies between 1e-4 and 1 times max_variance; the
    objective has it only as + sigma2 / 2 in E[exp(-f)], which drives it to its lower bound.

    Differs from the paper: centring over documents is a restriction (a constant in n is a scale, p_k a shape); without
    it f kills topics.

    Args:
        num_topics: K.
        max_mean: bound on the mean. To suppress a topic, exp(-f) must beat M_n / epsilon_n: 3 does nothing for long
            documents, 8 does.
        max_variance: bound on the variance.
    """

    running_mean: Tensor

    def __init__(self, num_topics: int, max_mean: float, max_variance: float) -> None:
        super().__init__()
        all_settings(max_mean=max_mean, max_variance=max_variance)
        self.max_mean, self.max_variance = max_mean, max_variance
        self.register_buffer("running_mean", torch.zeros(num_topics))
        self.momentum = 0.1

    def topic_centred(self, h: Tensor, ell: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, centred over topics, and the variance before its truncation layer: each (B, K)."""
        raise NotImplementedError

    def forward(self, h: Tensor, ell: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f.

        Args:
            h: shape (B, h_dim).
            ell: shape (K, ell_dim).

        Returns:
            mu_f and sigma2_f, each (B, K).
        """
        mean, variance = self.topic_centred(h, ell)
        centre = _mean_over_batch.get()(mean) if self.training else None
        if centre is None:
            centre = self.running_mean
        else:
            self.running_mean.lerp_(centre.detach(), self.momentum)
        return self.truncate(mean - centre), self.bound_variance(variance)

    def bound_variance(self, variance: Tensor) -> Tensor:
        """The truncation layer of the variance."""
        return self.max_variance * (_MIN_VARIANCE + (1 - _MIN_VARIANCE) * variance.sigmoid())

    def truncate(self, mean: Tensor) -> Tensor:
        """The truncation layer of the mean."""
        return self.max_mean * (mean / self.max_mean).tanh()


class Decoder(RandomFunction):
    """The decoder network of the paper: mean and variance of f(h_n, ell_k) from a stack of layers on (h, ell).

    The first layer is linear in (h, ell), so W_h h + W_ell ell is computed and added, and no concatenated rows are
    formed. Without residual connections the layers run in :mod:`pyro_prme.kernels.decoder`.

    Args:
        num_topics: K.
        h_dim: length of h.
        ell_dim: length of ell.
        hidden: widths of the hidden layers.
        batch_norm: whether layers normalise their batch, see `Stack`.
        residual: whether layers are added to their input, see `Stack`.
        max_mean: bound of the mean of f, see `RandomFunction`.
        max_variance: bound of its variance, see `RandomFunction`.
    """

    def __init__(
        self,
        num_topics: int,
        h_dim: int,
        ell_dim: int,
        hidden: Sequence[int] = (80, 80),
        *,
        batch_norm: bool = True,
        residual: bool = False,
        max_mean: float = 8.0,
        max_variance: float = 1.0,
    ) -> None:
        super().__init__(num_topics, max_mean, max_variance)
        self.from_h = nn.Linear(h_dim, hidden[0])
        self.from_ell = nn.Linear(ell_dim, hidden[0], bias=False)
        self.norm = BatchNorm(hidden[0]) if batch_norm else nn.Identity()
        self.stack = Stack(hidden, batch_norm=batch_norm, residual=residual)
        self.head = nn.Linear(hidden[-1], 2)
        self.memory = Buffers()

    def topic_centred(self, h: Tensor, ell: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.rows(self.from_h(h), self.from_ell(ell)).unbind(-1)
        return mean - mean.mean(-1, keepdim=True), variance

    def rows(self, x: Tensor, y: Tensor) -> Tensor:
        """Outputs of the head for all sums of a row of x (B, width) and one of y (K, width), shape (B, K, 2)."""
        traced = type(x) is not Tensor  # a subclass follows torch's operations: so Pyro finds a site's parents
        if not (len(self.stack.shortcuts) or traced):
            layers, norms = [*self.stack.layers, self.head], [self.norm, *self.stack.norms]
            return over_pairs(x, y, layers, norms, self.memory)
        pairs = x.unsqueeze(-2) + y  # (B, K, width)
        return self.head(self.stack(self.norm(pairs.flatten(0, 1).relu()))).unflatten(0, pairs.shape[:2])


class LinearDecoder(RandomFunction):
    r"""A random function that is linear in ell, with weights that are linear in h: the ablation without a network.

    .. math:: \mu_f(h_n, \ell_k) = (W h_n + w)^\top \ell_k

    DILN's Gaussian process with a linear kernel on ell has the same functions; here an inference network finds them.
    The variance is one number for all.

    Args:
        num_topics: K.
        h_dim: length of h.
        ell_dim: length of ell.
        max_mean: bound of the mean of f, see `RandomFunction`.
        max_variance: bound of its variance, see `RandomFunction`.
    """

    def __init__(
        self, num_topics: int, h_dim: int, ell_dim: int, *, max_mean: float = 8.0, max_variance: float = 1.0
    ) -> None:
        super().__init__(num_topics, max_mean, max_variance)
        self.weights = nn.Linear(h_dim, ell_dim)
        self.variance = nn.Parameter(torch.zeros(()))

    def topic_centred(self, h: Tensor, ell: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.weights(h) @ ell.mT  # (B, K)
        return mean - mean.mean(-1, keepdim=True), self.variance.expand_as(mean)


def check_depth(depth: int, residual: bool) -> None:
    """Refuses depths that the paper's Table 3 does not have."""
    if depth not in _DEPTHS:
        raise refusal("depth", depth, f"one of {', '.join(map(str, _DEPTHS))}, as in the paper's networks")
    flag("residual", residual)
    if residual and depth == 2:
        raise ValueError("A network of depth 2 has no residual form: choose depth 4, 6 or 8, or residual=False.")


def decoder_of_depth(
    depth: int,
    num_topics: int,
    h_dim: int,
    ell_dim: int,
    width: int = 80,
    *,
    batch_norm: bool = True,
    residual: bool = False,
    max_mean: float = 8.0,
    max_variance: float = 1.0,
) -> Decoder:
    """The paper's decoder network of Table 3 at the given total depth."""
    check_depth(depth, residual)
    return Decoder(
        num_topics,
        h_dim,
        ell_dim,
        [width] * (depth // 2),
        batch_norm=batch_norm,
        residual=residual,
        max_mean=max_mean,
        max_variance=max_variance,
    )
