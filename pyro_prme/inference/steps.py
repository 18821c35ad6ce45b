"""One natural step of the closed-form sites that are kept between batches."""

from __future__ import annotations

import torch

from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.run import Run

__all__ = ["natural_step"]


@torch.no_grad()
def natural_step(guide: ClosedFormGuide, run: Run, rate: float = 1.0) -> None:
    """Moves each kept site towards its optimum in natural parameters, one site after the other.

    Args:
        guide: whose sites move.
        run: of the guide on a batch; its factors move along.
        rate: how far, 1 being all the way.
    """
    for claim in list(guide.claims):
        for name in getattr(claim, "kept", ()):
            run.factors.update(name, rate)
            claim.set_natural(name, run.factors.natural[name])  # type: ignore[operator]
