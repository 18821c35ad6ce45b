"""One natural step of the closed-form sites that are kept between batches."""

from __future__ import annotations

from typing import Any

import torch

from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.rules.conjugate import ConjugateFactors
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
    claims: list[Any] = list(guide.claims)
    for claim in claims:
        if not isinstance(claim, ConjugateFactors):
            claim.gather(run)
            claim.natural_step(rate)
            continue
        for name in claim.kept:
            run.factors.update(name, rate)
            claim.set_natural(name, run.factors.natural[name])
