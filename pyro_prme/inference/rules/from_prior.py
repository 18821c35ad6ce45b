"""A site whose posterior is its prior, so that the two cancel and only its moments remain."""

from __future__ import annotations

from typing import Any

import torch
from pyro import poutine
from torch.distributions import Distribution

from pyro_prme.conjugacy import Structure
from pyro_prme.conjugacy.families import FAMILY, GivenNormal
from pyro_prme.conjugacy.families.base import unwrapped
from pyro_prme.conjugacy.program import compile_program
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.structure import other_values
from pyro_prme.conjugacy.tracing import symbolic_run
from pyro_prme.inference.claims import Claim, GivenClaim, OneSiteRule, OpenClaim

__all__ = ["FromPrior"]


class FromPrior(OneSiteRule):
    """Claims the first free site with a Normal prior: q = p.

    Where a density asks for another expectation of it than is known, its value is drawn from the prior in each run.

    Differs from the paper: there it is left unsaid of f; q has no factor for it.
    """

    def claim(self, structure: Structure, name: str) -> Claim | str:
        prior = unwrapped(structure.trace.nodes[name]["fn"])
        if not isinstance(prior, torch.distributions.Normal):
            return f"its prior is {type(prior).__name__}, and moments are known for a Normal"
        return PriorNormal(name) if has_expectations(structure, name) else PriorDraw(name)


def has_expectations(structure: Structure, name: str) -> bool:
    """Whether all that densities ask of a Normal site, with all others at values, has an expectation."""

    def asks(site: Any) -> Any:
        return {FAMILY: GivenNormal} if site["name"] == name else {}

    model = poutine.infer_config(structure.model, asks)
    latent = [other for other in structure.sites if other not in structure.observed]
    values = other_values(structure.trace, latent)
    try:
        compile_program(symbolic_run(model, structure.args, structure.kwargs, frozenset({name}), values))
    except Refused:
        return False
    return True


class PriorDraw(OpenClaim):
    """The prior itself as the factor of a site, whose value is drawn in each run.

    Args:
        name: of the site.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.sites = (name,)

    def title(self, name: str) -> str:
        return "its prior, q = p, drawn"

    def posterior(self, name: str, prior: Any, context: Any) -> Distribution:
        return prior


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
