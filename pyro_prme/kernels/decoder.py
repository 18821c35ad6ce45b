"""The decoder's layers on all pairs of a document and a topic, forward and backward, in memory kept between steps.

A layer of the decoder holds documents x topics x width numbers, 16 MB with the defaults. Written as torch modules, each
activation, each normalised one and each gradient is allocated anew, and the system's mapping of fresh memory can take
longer than the arithmetic. Here batch norm is folded into the weights of the layer behind it, so that one table a layer
is all that is kept for the backward pass, and the tables lie in memory that is used again (`Buffers`).

The plain form is :class:`pyro_prme.models.networks.layers.Stack`, which decoders with residual connections use; tests
hold the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pyro_prme.kernels.buffers import Buffers

__all__ = ["over_pairs"]

_BLOCK = 8192  # pairs at a time where no gradient is needed: their tables stay in the processor's cache


class _Level(NamedTuple):
    """A norm and the linear layer behind it: n = r S + T with S = weight / sqrt(variance + eps), then n W' + b."""

    W: Tensor  # (out, in)
    folded: Tensor  # (out, in) W S
    offset: Tensor  # (out,) W T + b
    S: Tensor  # (in,)
    T: Tensor  # (in,)
    mean: Tensor  # (in,) of the norm
    inverse: Tensor  # (in,) 1 / sqrt(variance + eps)
    of_batch: bool  # whether mean and variance are those of r

    @classmethod
    def of(cls, layer: nn.Linear, norm: Any, r: Any = None) -> _Level:
        """For rows r (N, in): a norm in training mode takes their moments, and its running ones follow."""
        W, b = layer.weight.detach(), layer.bias.detach()
        if isinstance(norm, nn.Identity):
            one = torch.ones_like(W[0])
            return cls(W, W, b, one, 0 * one, 0 * one, one, False)
        mean, variance = norm.running_mean, norm.running_var
        if norm.training:
            norm.num_batches_tracked.add_(1)
            mean, variance = torch.batch_norm_update_stats(r, mean, variance, norm.momentum)
        inverse = (variance + norm.eps).rsqrt()
        S = norm.weight.detach() * inverse
        T = norm.bias.detach() - mean * S
        return cls(W, W * S, W @ T + b, S, T, mean, inverse, norm.training)

    def forward(self, r: Tensor, out: Tensor | None = None) -> Tensor:
        """Shape (N, out)."""
        return torch.addmm(self.offset, r, self.folded.mT, out=out)

    def backward(self, r: Tensor, g: Tensor, out: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """From the gradient g of what `forward` returned: that of the pre-activation of r, and those of parameters."""
        G, total = g.mT @ r, g.sum(0)  # (out, in), (out,)
        bias = total @ self.W  # of the norm, (in,): the sum over rows of the gradient of n
        weight = self.inverse * ((self.W * G).sum(0) - self.mean * bias)
        slope, shift = torch.zeros_like(bias), torch.zeros_like(bias)
        if self.of_batch:
            slope = -self.S * self.inverse * weight / len(r)
            shift = -self.S * bias / len(r) - slope * self.mean
        torch.addmm(shift, g, self.folded, out=out)
        if self.of_batch:
            out.addcmul_(r, slope)
        torch.ops.aten.threshold_backward.grad_input(out, r, 0, grad_input=out)
        return out, {"W": G * self.S + total.outer(self.T), "b": total, "weight": weight, "bias": bias}


class _OverPairs(torch.autograd.Function):
    """Parameters are given for autograd's sake, layer by layer: W, b, and the norm's weight and bias where it has."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, layers: list[nn.Linear], norms: list[nn.Module], memory: Buffers, *_: Tensor
    ) -> Tensor:
        tables = [memory.empty((len(x) * len(y), layer.in_features), x) for layer in layers]
        r, *rest = tables
        torch.add(x.unsqueeze(-2), y, out=r.view(len(x), len(y), -1)).relu_()
        levels = []
        for layer, norm, out in zip(layers, norms, [*rest, None], strict=True):
            levels.append(_Level.of(layer, norm, r))
            r = levels[-1].forward(r, out)
            if out is not None:
                r.relu_()
        ctx.tables, ctx.memory, ctx.levels, ctx.sizes = tables, memory, levels, (len(x), len(y))
        ctx.normed = [isinstance(norm, nn.BatchNorm1d) for norm in norms]
        return r

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple:
        found: list[list[Tensor]] = []
        g = g.contiguous()
        for level, r, normed in zip(reversed(ctx.levels), reversed(ctx.tables), reversed(ctx.normed), strict=True):
            g, parts = level.backward(r, g, ctx.memory.empty(r.shape, r))
            found.insert(0, [parts[key] for key in ("W", "b", *(("weight", "bias") if normed else ()))])
        pairs = g.view(*ctx.sizes, -1)
        return pairs.sum(1), pairs.sum(0), None, None, None, *(part for parts in found for part in parts)


def over_pairs(
    x: Tensor, y: Tensor, layers: Sequence[nn.Linear], norms: Sequence[nn.Module], memory: Buffers
) -> Tensor:
    r"""Layers on the sums of all pairs: relu, norm and linear layer, as often as there are layers.

    .. math:: r_0 = \mathrm{relu}(x_n + y_k), \qquad r_{i + 1} = \mathrm{relu}(W_i\, \mathrm{norm}_i(r_i) + b_i)

    The last linear layer has no relu behind it.

    Args:
        x: shape (B, width).
        y: shape (K, width).
        layers: linear layers with biases.
        norms: for each layer, the batch norm or identity in front of it.
        memory: where tables come from.

    Returns:
        Shape (B, K, out).
    """
    parameters = [p for pair in zip(layers, norms, strict=True) for module in pair for p in module.parameters()]
    frozen = not any(norm.training for norm in norms if isinstance(norm, nn.BatchNorm1d))
    if frozen and not (torch.is_grad_enabled() and any(p.requires_grad for p in (x, y, *parameters))):
        levels = [_Level.of(*pair) for pair in zip(layers, norms, strict=True)]
        return torch.cat([_without_gradient(part, y, levels) for part in x.split(max(1, _BLOCK // len(y)))])
    out = _OverPairs.apply(x, y, list(layers), list(norms), memory, *parameters)
    return out.view(len(x), len(y), -1)


def _without_gradient(x: Tensor, y: Tensor, levels: Sequence[_Level]) -> Tensor:
    r = (x.unsqueeze(-2) + y).flatten(0, 1)
    for level in levels:
        r = level.forward(r.relu_())
    return r.view(len(x), len(y), -1)
