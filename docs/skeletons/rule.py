"""A skeleton to copy: a rule of your own, which says how the posterior factor of some sites is found.

Here: a Normal with a free location for each element and one common scale, for a site of real numbers that has no closed
form. `tests/docs/test_skeletons.py` fits a model with it. A rule that has an update in closed form is compared with the
engine by `pyro_prme.testing.check_rule`.
"""

from typing import Any

import torch
from pyro import distributions as dist
from torch import Tensor, nn

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, OneSiteRule, OpenClaim
from pyro_prme.inference.rules.normal_guide import is_real

__all__ = ["OneScale", "OneScaleFactor"]


class OneScale(OneSiteRule):
    """Claims the first free site of real numbers that belongs to no subsampled plate.

    A rule is a value without state. It looks at what a site *is* (prior, support, plates), never at what it is called,
    and says for each site why it does not claim it: the plan prints that.
    """

    def claim(self, structure: Structure, name: str) -> Claim | str:
        site = structure.trace.nodes[name]
        if not is_real(site["fn"]):
            return "its values are not all real numbers"
        if any(frame.size != frame.full_size for frame in site["cond_indep_stack"]):
            return "it belongs to a subsampled plate, and a location for each member is not kept"
        return OneScaleFactor(name, site["value"])


class OneScaleFactor(OpenClaim):
    """The factor: what gradients move is a parameter, and what you update yourself would be a buffer.

    Args:
        name: of the site.
        value: of the prior, for the shape.
    """

    def __init__(self, name: str, value: Tensor) -> None:
        super().__init__()
        self.sites = (name,)
        self.loc = nn.Parameter(torch.zeros_like(value))
        self.log_scale = nn.Parameter(torch.tensor(-2.0, dtype=value.dtype))

    def title(self, name: str) -> str:
        return "Normal with one scale, reparameterised gradient"

    def posterior(self, name: str, prior: Any, context: Any) -> dist.Distribution:
        return dist.Normal(self.loc, self.log_scale.exp()).to_event(prior.event_dim)
