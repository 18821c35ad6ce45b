"""A site whose posterior is its prior, so that the two cancel and only its moments remain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pyro_prme.conjugacy import Structure
from pyro_prme.conjugacy.families import GivenNormal
from pyro_prme.conjugacy.families.base import unwrapped
from pyro_prme.inference.claims import Claim, GivenClaim, Refusal, Rule

__all__ = ["FromPrior"]


class FromPrior(Rule):
    """Claims the first free site with a Normal prior: q = p.

    Differs from the paper: there it is left unsaid of f; q has no factor for it.
    """

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, str] = {}
        for name in free:
            prior = unwrapped(structure.trace.nodes[name]["fn"])
            if isinstance(prior, torch.distributions.Normal):
                return PriorNormal(name)
            reasons[name] = f"its prior is {type(prior).__name__}, and moments are known for a Normal"
        return Refusal(reasons)


class PriorNormal(GivenClaim):
    """The prior itself as the factor of a site.

    Args:
        name: of the site.
    """

    family = GivenNormal

    def __init__(self, name: str) -> None:
        super().__init__()
        self.sites = (name,)

    def title(self, name: str) -> str:
        return "its prior, q = p"

    def natural(self, prior: Any) -> dict[str, torch.Tensor]:
        base = unwrapped(prior)
        loc, scale = torch.broadcast_tensors(base.loc, base.scale)
        shape = prior.shape()
        precision = scale.expand(shape) ** -2
        return {"x": precision * loc.expand(shape), "xx": -0.5 * precision}
