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

from pyro_prme.conjugacy.families import variable_of
from pyro_prme.conjugacy.random_tensor import of_variable
from pyro_prme.conjugacy.variables import Variable

__all__ = ["Site", "is_deterministic", "is_model_site", "numeric_run", "symbolic_run"]


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
    """Whether a latent site is given by the sites before it: its distribution is a Delta."""
    return not site["is_observed"] and isinstance(site["fn"], dist.Delta)


def weight_of(site: Any) -> Tensor:
    """Scale times mask, broadcastable to the site's batch shape."""
    weight = torch.as_tensor(site["scale"], dtype=torch.get_default_dtype())
    mask = site["mask"]
    if mask is None or mask is True:
        return weight
    return weight * torch.as_tensor(mask, dtype=weight.dtype)


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
            local = [frame.dim for frame in msg["cond_indep_stack"] if frame.size != frame.full_size]
            variable = variable_of(name, msg["fn"], local)
            if variable is None:
                raise ValueError(
                    f"Site {name} has another prior than before: a model must have the same form each time."
                )
            self._variables[name] = variable
            msg["value"] = of_variable(variable)
        elif name in self.values:
            msg["value"] = self.values[name]
        else:
            raise ValueError(f"Site {name} was not there before: a model must have the same sites each time.")
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
    return tracer.sites


def numeric_run(model: Callable, args: tuple, kwargs: Mapping[str, Any], values: Mapping[str, Any]) -> poutine.Trace:
    """A trace of the model with some sites at given values and the others drawn."""
    with torch.no_grad(), poutine.block():
        return poutine.trace(poutine.condition(model, data=dict(values)) if values else model).get_trace(
            *args, **kwargs
        )
