r"""Random functions f(h, ell) for a PRME; open this to see what a truncation layer is, or to write your own.

A decoder is any callable that maps object embeddings h ([draw,] N, d_h) and feature positions ell ([draw,] K, d_ell) to
the mean and variance of f, each ([draw,] N, K). Those here take numpy arrays and torch tensors alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pyro_prme.checks import positive, whole
from pyro_prme.measures._common import Seed, generator

__all__ = ["Decoder", "RandomDecoder", "linear_decoder", "random_decoder", "zero_decoder"]

#: Mean and variance of f at each pair of an h (N, d_h) and an ell (K, d_ell), each (N, K).
Decoder = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class RandomDecoder:
    r"""One hidden layer with fixed random weights and truncated outputs (paper, section 4.1).

    .. math:: \mu_f = m \tanh(o_1 / m), \quad \sigma_f^2 = s\,(1 + \tanh o_2)/2, \quad
              o = w^\top \tanh(W_h h + W_\ell \ell + c)

    so that :math:`\mathbb{E} e^f \le e^{m + s/2}`, which keeps the row sums of a PRME finite.
    """

    W_h: np.ndarray
    W_ell: np.ndarray
    c: np.ndarray
    w: np.ndarray
    mean_bound: float
    variance_bound: float

    @property
    def bound(self) -> float:
        """Upper bound on the expectation of exp(f)."""
        return float(np.exp(self.mean_bound + self.variance_bound / 2))

    def __call__(self, h: Any, ell: Any) -> tuple[Any, Any]:
        """Mean and variance of f, each ([draw,] N, K)."""
        torchy = isinstance(h, torch.Tensor)
        W_h, W_ell, c, w = (
            torch.as_tensor(v, dtype=h.dtype, device=h.device) if torchy else v
            for v in (self.W_h, self.W_ell, self.c, self.w)
        )
        tanh: Any = torch.tanh if torchy else np.tanh
        if (h.shape[-1], ell.shape[-1]) != (len(W_h), len(W_ell)):
            raise ValueError(
                f"h and ell have {h.shape[-1]} and {ell.shape[-1]} dimensions, but the decoder takes {len(W_h)} and "
                f"{len(W_ell)}; make it with dim_h and dim_ell of theirs."
            )
        left, right = h @ W_h + c, ell @ W_ell  # ([draw,] N, H), ([draw,] K, H)
        first: Any = 0.0
        second: Any = 0.0
        for j in range(left.shape[-1]):  # unit by unit: no N x K x H array
            unit = tanh(left[..., :, None, j] + right[..., None, :, j])
            first, second = first + w[j, 0] * unit, second + w[j, 1] * unit
        mean = self.mean_bound * tanh(first / self.mean_bound)
        return mean, self.variance_bound * (1 + tanh(second)) / 2


def random_decoder(
    dim_h: int = 2,
    dim_ell: int = 2,
    hidden: int = 16,
    mean_bound: float = 2.0,
    variance_bound: float = 0.1,
    seed: Seed = None,
) -> RandomDecoder:
    """A `RandomDecoder` with normal weights, its outputs bounded by the truncation layer of the paper's section 4.1.

    Args:
        dim_h: Dimension of h.
        dim_ell: Dimension of ell.
        hidden: Hidden units.
        mean_bound: Bound on the absolute mean of f.
        variance_bound: Bound on the variance of f.
        seed: Seed or numpy generator.
    """
    rng, hidden = generator(seed), whole("hidden", hidden)
    return RandomDecoder(
        W_h=rng.normal(size=(whole("dim_h", dim_h), hidden)),
        W_ell=rng.normal(size=(whole("dim_ell", dim_ell), hidden)),
        c=rng.normal(size=hidden),
        w=rng.normal(size=(hidden, 2)) * 2 / np.sqrt(hidden),
        mean_bound=positive("mean_bound", mean_bound),
        variance_bound=positive("variance_bound", variance_bound),
    )


def zero_decoder(h: Any, ell: Any) -> tuple[Any, Any]:
    """f = 0: the hierarchical Dirichlet process (paper, section 3.2); h and ell may differ in dimension."""
    zero = 0 * (h[..., :, None, 0] + ell[..., None, :, 0])  # (..., N, K)
    return zero, zero


def linear_decoder(h: Any, ell: Any) -> tuple[Any, Any]:
    r"""The linear kernel of DILN (paper, appendix): :math:`\mu_f = h^\top \ell`, without noise; not bounded."""
    if h.shape[-1] != ell.shape[-1]:
        raise ValueError(f"h has {h.shape[-1]} dimensions but ell {ell.shape[-1]}; a linear decoder needs as many.")
    product = h @ ell.mT if isinstance(h, torch.Tensor) else h @ np.swapaxes(ell, -1, -2)
    return product, 0 * product
