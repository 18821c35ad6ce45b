"""Which optimizer moves which parameter. Natural parameters are not among them: they are buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from pyro_prme.inference.claims import Claim
from pyro_prme.inference.lazy_adam import LazyAdam

__all__ = ["make_optimisers", "slower"]


def make_optimisers(
    claims: Sequence[Claim],
    modules: Sequence[nn.Module],
    others: Sequence[torch.Tensor],
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
) -> list[torch.optim.Optimizer]:
    """Adam for all that gradients move, by groups; lazy Adam for embeddings, of which a batch moves few rows.

    Args:
        claims: those with a learning rate of their own get it, and no weight decay.
        modules: that hold all parameters, those of the claims among them.
        others: parameters that no module holds.
        learning_rate, weight_decay: of everything else; embeddings have no weight decay.
    """
    embeddings = [m for module in modules for m in module.modules() if isinstance(m, nn.Embedding) and m.sparse]
    wide = _distinct([m.weight for m in embeddings])
    groups: list[dict[str, Any]] = []
    apart = {id(p) for p in wide}
    for claim in claims:
        own = [p for p in claim.parameters() if p.requires_grad and id(p) not in apart]
        if claim.learning_rate is not None and own:
            groups.append({"params": own, "lr": claim.learning_rate, "weight_decay": 0.0})
            apart |= {id(p) for p in own}
    every = _distinct([*(p for module in modules for p in module.parameters()), *others])
    rest = [p for p in every if p.requires_grad and id(p) not in apart]
    if rest:
        groups.insert(0, {"params": rest, "lr": learning_rate, "weight_decay": weight_decay})
    optimisers: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups)] if groups else []
    return optimisers + ([LazyAdam(wide, lr=learning_rate)] if wide else [])


@contextmanager
def slower(optimiser: torch.optim.Optimizer, share: float) -> Iterator[None]:
    """Within it, learning rates are this share of what they are."""
    if share == 1:
        yield
        return
    rates = [group["lr"] for group in optimiser.param_groups]
    try:
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = share * rate
        yield
    finally:
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate


def _distinct(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(p): p for p in parameters}.values())
