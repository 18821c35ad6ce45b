"""The bound as a loss, for `pyro.infer.SVI`: gradient steps by the optimizer, natural steps by the loss itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import torch
from pyro.infer import ELBO
from torch import Tensor

from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.steps import natural_step

__all__ = ["ClosedForm_ELBO"]


class ClosedForm_ELBO(ELBO):
    """The negative bound of a `ClosedFormGuide`; in `SVI.step` it moves the closed-form sites too.

    Args:
        rate: of the natural steps, a number or a function of the step from 1; 1 is coordinate ascent.
    """

    def __init__(self, rate: float | Callable[[int], float] = 1.0) -> None:
        super().__init__()
        self._rate, self._steps = rate, 0

    @staticmethod
    def _checked(guide: Any) -> ClosedFormGuide:
        if not isinstance(guide, ClosedFormGuide):
            raise ValueError(f"ClosedForm_ELBO needs a ClosedFormGuide, and this guide is {type(guide).__name__}.")
        return guide

    def _get_trace(self, model: Callable, guide: Callable, args: Any, kwargs: Any) -> Any:
        raise ValueError("ClosedForm_ELBO has no traces: the bound comes from guide.run(...).bound().")

    def differentiable_loss(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> Tensor:
        """Minus the bound. The model is the guide's own."""
        return -self._checked(guide).run(*args, **kwargs).bound()

    @torch.no_grad()
    def loss(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> float:
        """Minus the bound as a number; nothing moves."""
        return float(self.differentiable_loss(model, guide, *args, **kwargs))

    def loss_and_grads(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> float:
        """Minus the bound; adds gradients to parameters, and moves the closed-form sites by a natural step."""
        checked = self._checked(guide)
        run = checked.run(*args, **kwargs)
        pyro.module(checked.store_name, checked)  # SVI moves what is in its store
        loss = -run.bound()
        if loss.requires_grad:
            loss.backward()
        self._steps += 1
        natural_step(checked, run, self._rate(self._steps) if callable(self._rate) else self._rate)
        return float(loss.detach())
