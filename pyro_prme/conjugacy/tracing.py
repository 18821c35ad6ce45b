"""One run of a Pyro model on random tensors, and one on numbers: what it asks of each site."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from pyro_prme.conjugacy.families import FAMILY, variable_of
from pyro_prme.conjugacy.random_tensor import Random, of_variable
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.variables import Variable

__all__ = ["AnotherForm", "Site", "is_deterministic", "is_model_site", "numeric_run", "symbolic_run"]


class Site(NamedTuple):
    """What a run recorded of a sample site."""

    name: str
    fn: Any
    value: Any
    weight: Tensor  # scale times mask
    is_observed: bool
    plates: tuple[Any, ...]
    variable: Variable | None


def is_model_site(site: Any) -> bool:
    """Whether a record is of a sample statement with a density, and not of a plate or a deterministic value."""
    if site["type"] != "sample" or site_is_subsample(site) or site["infer"].get("_deterministic"):
        return False
    return not is_deterministic(site)


def is_deterministic(site: Any) -> bool:
    """Whether a latent site is given by the sites before it: its distribution is a Delta, and has no other density."""
    fn = site["fn"]
    if site["is_observed"] or not isinstance(fn, dist.Delta) or isinstance(fn.log_density, Random):
        return False
    return not bool(torch.as_tensor(fn.log_density).any())


def weight_of(site: Any) -> Tensor:
    """Scale times mask, broadcastable to the site's batch shape."""
    for part, what in ((site["scale"], "scale"), (site["mask"], "mask")):
        if isinstance(part, Random):
            raise Refused(part.variables, f"it is in the {what} of {site['name']}")
    weight = torch.as_tensor(site["scale"], dtype=torch.get_default_dtype())
    mask = site["mask"]
    if mask is None or mask is True:
        return weight
    return weight * torch.as_tensor(mask, dtype=weight.dtype)


class AnotherForm(ValueError):
    """The model is not the same function of its sites at each run."""


def _version(value: Any) -> int:
    """How often a tensor has been written to."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


class _Symbolic(Messenger):
    """Gives chosen sites their random tensors and the others a value, and records what was asked.

    Args:
        chosen: names of the sites that are variables.
        values: of the other latent sites, and of plates that subsample.
    """

    def __init__(self, chosen: frozenset[str], values: Mapping[str, Any]) -> None:
        super().__init__()
        self.chosen, self.values = chosen, values
        self.sites: list[Site] = []
        self._variables: dict[str, Variable] = {}
        self._versions: dict[str, int] = {}

    def check_values(self) -> None:
        """Raises an error if the model has written into a value that it was given."""
        for name, version in self._versions.items():
            if _version(self.values[name]) != version:
                raise AnotherForm(
                    f"The model writes into the value of site {name} in place: it needs a new tensor, as in "
                    "x = x + 1 in place of x += 1."
                )

    def _pyro_sample(self, msg: Any) -> None:
        name = msg["name"]
        if site_is_subsample(msg):
            if name in self.values:
                msg["value"], msg["done"] = self.values[name], True
            return
        if msg["is_observed"]:
            return
        if is_deterministic(msg):
            msg["value"], msg["done"] = msg["fn"].v, True
            return
        if name in self.chosen:
            frames = msg["cond_indep_stack"]
            local = [f.dim for f in frames if f.dim is not None and f.size != f.full_size]
            variable = variable_of(name, msg["fn"], local, msg["infer"].get(FAMILY))
            if variable is None:
                raise AnotherForm(
                    f"Site {name} has another prior than before: a model must have the same form each time."
                )
            self._variables[name] = variable
            msg["value"] = of_variable(variable)
        elif name in self.values:
            msg["value"] = self.values[name]
            self._versions[name] = _version(msg["value"])
        else:
            raise AnotherForm(f"Site {name} was not there before: a model must have the same sites each time.")
        msg["done"] = True

    def _pyro_post_sample(self, msg: Any) -> None:
        if not is_model_site(msg):
            return
        name = msg["name"]
        plates = tuple(msg["cond_indep_stack"])
        variable = self._variables.get(name)
        self.sites.append(Site(name, msg["fn"], msg["value"], weight_of(msg), msg["is_observed"], plates, variable))


def symbolic_run(
    model: Callable, args: tuple, kwargs: Mapping[str, Any], chosen: frozenset[str], values: Mapping[str, Any]
) -> list[Site]:
    """The sites of one run with the chosen ones random."""
    tracer = _Symbolic(chosen, values)
    with pyro.validation_enabled(False), poutine.block(), tracer:
        model(*args, **kwargs)
    tracer.check_values()
    return tracer.sites


def numeric_run(model: Callable, args: tuple, kwargs: Mapping[str, Any], values: Mapping[str, Any]) -> poutine.Trace:
    """A trace of the model with some sites at given values and the others drawn."""
    with torch.no_grad(), poutine.block():
        return poutine.trace(poutine.condition(model, data=dict(values)) if values else model).get_trace(
            *args, **kwargs
        )
