"""Which optimizer moves which parameter. gamma is not among them: it is a buffer and moves by natural steps."""

from __future__ import annotations

import torch
from torch import nn

from pyro_prme.guide import ClosedFormGuide
from pyro_prme.inference.lazy_adam import LazyAdam
from pyro_prme.rules import Point

__all__ = ["make_optimizers"]


def make_optimizers(
    objective: nn.Module, guide: ClosedFormGuide, learning_rate: float, stick_rate: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Adam for the networks and ell, another rate for V and single numbers; lazy Adam for vocabulary-wide embeddings.

    Only the batch's words have a gradient in an embedding of the vocabulary: the lazy form touches no other row.

    Args:
        objective: module that holds all parameters.
        guide: its rules for V and for single numbers, where it has them, get `stick_rate`.
        learning_rate, stick_rate: step sizes.
        weight_decay: for all but V, single numbers and the embeddings.
    """
    for module in objective.modules():
        if isinstance(module, nn.Embedding):
            module.sparse = True
    wide = [m.weight for m in objective.modules() if isinstance(m, nn.Embedding)]
    sticks = [p for name, rule in guide.rules.items() if name == "V" or _is_number(rule) for p in rule.parameters()]
    apart = {id(p) for p in (*wide, *sticks)}
    rest = [p for p in objective.parameters() if id(p) not in apart and p.requires_grad]
    groups = [
        {"params": rest, "lr": learning_rate, "weight_decay": weight_decay},
        {"params": sticks, "lr": stick_rate, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups)] if groups else []
    return optimizers + ([LazyAdam(wide, lr=learning_rate)] if wide else [])


def _is_number(rule: nn.Module) -> bool:
    """Whether it is a point mass at one number, such as a learned concentration."""
    return isinstance(rule, Point) and rule.free.numel() == 1
