"""Points that would shrink together with a scale that is itself unknown: found by looking, before a fit is lost."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.distributions import biject_to

from pyro_prme.conjugacy import Structure
from pyro_prme.conjugacy.tracing import is_model_site, numeric_run
from pyro_prme.inference.rules.normal_guide import is_real
from pyro_prme.inference.session import seeded

__all__ = ["shrinking"]

_REACH, _STEPS = 24.0, 97  # of the unconstrained scale that is looked at, and in how many places
_LARGE = 10_000  # numbers of a site from which on it is taken for no scale
_RULED_OUT = 2.0  # nats of a prior below its largest density


def shrinking(structure: Structure, name: str) -> str | None:
    r"""Why points for a real-valued site would shrink together with a scale that is itself a site, or None.

    At its mode a site of n numbers with scale s has the density :math:`s^{-n}`, n being those of all the data. With the
    prior of s this may grow without limit (half-Cauchy, or Gamma of shape below n), or have its maximum where that
    prior has next to nothing (inverse Gamma: at s of order 1 / n).
    """
    if not is_real(structure.trace.nodes[name]["fn"]):
        return None
    with seeded(0):
        large = {n: site["value"] for n, site in _latent(structure).items() if site["value"].numel() > _LARGE}
        first, second = (_run(structure, large) for _ in range(2))
        if _at_mode(first[name]) == _at_mode(second[name]):
            return None
        values = {n: first[n]["value"] for n in _latent(structure)}
        for parent in list(values)[: list(values).index(name)]:
            if parent in large or first[parent]["fn"].support.is_discrete:
                continue
            moved = _run(structure, {**values, parent: second[parent]["value"]})
            if _at_mode(moved[name]) == _at_mode(first[name]):
                continue
            prior, both = _along(structure, parent, name, values, first[parent])
            if prior[both.argmax()] < prior.max() - _RULED_OUT:
                return (
                    f"its density at its mode, with that of {parent}, has no maximum where the prior of {parent} lies: "
                    "points shrink together"
                )
    return None


def _latent(structure: Structure) -> dict[str, Any]:
    """The latent sites of the model, in its order."""
    return {n: structure.trace.nodes[n] for n in structure.sites if n not in structure.observed}


def _run(structure: Structure, values: Mapping[str, Any]) -> dict[str, Any]:
    """The sites of a run of the model on numbers."""
    nodes = numeric_run(structure.model, structure.args, structure.kwargs, values).nodes
    return {n: site for n, site in nodes.items() if is_model_site(site)}


def _along(structure: Structure, parent: str, name: str, values: Mapping[str, Any], site: Any) -> tuple[Tensor, Tensor]:
    """The log prior of a site along its unconstrained scale, and the same with its child's density at the mode."""
    transform = biject_to(site["fn"].support)
    free = transform.inv(site["value"])
    prior, both = [], []
    for x in torch.linspace(-_REACH, _REACH, _STEPS):
        place = torch.full_like(free, float(x))
        value = transform(place)
        run = _run(structure, {**values, parent: value})
        jacobian = transform.log_abs_det_jacobian(place, value).sum()
        prior.append(_scaled(site, run[parent]["fn"].log_prob(value)) + site["scale"] * jacobian)
        both.append(prior[-1] + _at_mode(run[name]))
    tables = [torch.stack(heights).nan_to_num(nan=-torch.inf) for heights in (prior, both)]
    return tables[0], tables[1]


def _at_mode(site: Any) -> Tensor:
    """The scaled log density of a site at its mode, else at its mean; zero where neither is known."""
    for middle in ("mode", "mean"):
        with suppress(NotImplementedError):
            return _scaled(site, site["fn"].log_prob(getattr(site["fn"], middle)))
    return torch.zeros(())


def _scaled(site: Any, log_prob: Tensor) -> Tensor:
    return (site["scale"] * log_prob).sum()
