"""Handlers round a run of the model: what gives sites their factors, and what puts draws where the model has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyro
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from pyro_prme.conjugacy.families import variable_of
from pyro_prme.conjugacy.families.group import Conditionals
from pyro_prme.conjugacy.random_tensor import Random, of_variable
from pyro_prme.conjugacy.tracing import Site, is_deterministic, is_model_site, weight_of
from pyro_prme.inference.claims import Claim, Context, OpenClaim
from pyro_prme.inference.rules.conjugate import ConjugateFactors
from pyro_prme.inference.run import OpenSite, Run

__all__ = ["Guided", "Placed", "drawn_together"]


class Placed(Messenger):
    """Puts a sample statement into the plates of the model's site, with its scale and mask.

    Args:
        site: of a run of the model.
        value: that it took in the run, if it took one.
    """

    def __init__(self, site: Site, value: Tensor | None) -> None:
        super().__init__()
        self._site, self._value = site, value

    def _pyro_sample(self, msg: Any) -> None:
        if self._value is not None:
            msg["value"], msg["done"] = self._value, True
        msg["cond_indep_stack"] = (*self._site.plates, *msg["cond_indep_stack"])
        msg["scale"] = msg["scale"] * self._site.weight


class Guided(Messenger):
    """Gives closed sites their random tensors and open ones a value from their factor, and records every site.

    Args:
        claims: which hold the sites.
        args: what the model is called with, by position.
        kwargs: the same by name.
    """

    def __init__(self, claims: tuple[Claim, ...], args: tuple, kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._context = Context(args, kwargs, claims)
        self._claim_of: dict[str, Claim] = {name: claim for claim in claims for name in claim.sites}
        self.sites: list[Site] = []
        self.open: dict[str, OpenSite] = {}
        self.fixed: dict[str, Tensor] = {}
        self.decided: list[Site] = []
        self._variables: dict[str, Any] = {}
        self._posteriors: dict[str, Any] = {}

    def _pyro_sample(self, msg: Any) -> None:
        if site_is_subsample(msg) or msg["is_observed"] or msg["infer"].get("_deterministic"):
            return
        if is_deterministic(msg):
            msg["value"], msg["done"] = msg["fn"].v, True
            return
        name = msg["name"]
        claim = self._claim_of.get(name)
        if claim is None:
            raise ValueError(f"The model has a site {name!r} that it did not have when the plan was made.")
        if isinstance(claim, OpenClaim):
            posterior = claim.posterior(name, msg["fn"], self._context)
            self._posteriors[name] = posterior
            msg["value"] = posterior if isinstance(posterior, Tensor) else posterior.rsample()
        else:
            local = [frame.dim for frame in msg["cond_indep_stack"] if frame.size != frame.full_size]
            variable = variable_of(name, msg["fn"], local, claim.family)
            kept = isinstance(claim, ConjugateFactors) and claim.unit_of[name] in claim.kept
            if variable is None or (kept and local):
                raise ValueError(
                    f"Site {name} has another form than when the plan was made: make the plan on a batch like those "
                    "that follow."
                )
            self._variables[name] = variable
            msg["value"] = of_variable(variable)
        msg["done"] = True

    def _pyro_post_sample(self, msg: Any) -> None:
        if not is_model_site(msg):
            value = msg["value"]
            if not site_is_subsample(msg) and isinstance(value, Tensor) and not isinstance(value, Random):
                self.fixed[msg["name"]] = value
                if not msg["infer"].get("_deterministic"):
                    plates = tuple(msg["cond_indep_stack"])
                    self.decided.append(Site(msg["name"], msg["fn"], value, weight_of(msg), False, plates, None))
            return
        name = msg["name"]
        plates = tuple(msg["cond_indep_stack"])
        site = Site(
            name, msg["fn"], msg["value"], weight_of(msg), msg["is_observed"], plates, self._variables.get(name)
        )
        self.sites.append(site)
        if name in self._posteriors:
            claim: Any = self._claim_of[name]
            self.open[name] = OpenSite(claim, self._posteriors[name], site)


def drawn_together(steps: Conditionals, run: Run) -> dict[str, Tensor]:
    """Values of sites with one factor together, drawn one after the other."""
    values: dict[str, Tensor] = {}
    try:
        name, fn = next(steps)
        while True:
            with Placed(run.sites[name], None):
                values[name] = pyro.sample(name, fn)  # type: ignore[arg-type]
            name, fn = steps.send(values[name])
    except StopIteration:
        return values
