"""Coordinate ascent over closed-form sites: posterior factors, their updates, sweeps and the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families import Group, Natural, Statistics
from pyro_prme.conjugacy.families.group import Conditionals
from pyro_prme.conjugacy.program import Program
from pyro_prme.conjugacy.structure import Structure

__all__ = ["Ascent", "Factors"]


class _Lazy(Mapping[str, Any]):
    """Values by name, each computed when it is asked for."""

    def __init__(self, names: Iterable[str], compute: Callable[[str], Any]) -> None:
        self._names, self._compute = tuple(names), compute

    def __getitem__(self, name: str) -> Any:
        return self._compute(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Factors:
    """Posterior factors under one program, moved one at a time.

    Args:
        program: the expected log joint.
        natural: natural parameters, by variable.
        order: in which a sweep visits the variables.
        statistics: of variables whose natural parameters others hold, as functions that compute them.
    """

    def __init__(
        self,
        program: Program,
        natural: Mapping[str, Natural],
        order: Sequence[str],
        statistics: Mapping[str, Callable[[], Statistics]] | None = None,
    ) -> None:
        self.program, self.order = program, tuple(order)
        self.natural: dict[str, Natural] = dict(natural)
        self.elsewhere = dict(statistics or {})
        self._known: dict[str, tuple[Natural, Statistics]] = {}

    def statistics(self) -> Mapping[str, Statistics]:
        """Mean parameters, computed when asked for, and anew only where the natural parameters are new."""
        return _Lazy(self.program.families, self._statistics_of)

    def _statistics_of(self, name: str) -> Statistics:
        if name in self.elsewhere:
            return self.elsewhere[name]()
        natural, known = self.natural[name], self._known.get(name)
        if known is None or known[0] is not natural:
            if known is not None:  # their memory is needed for the new ones
                self.program.forget(self._known.pop(name)[1])
                known = None
            known = natural, self.program.families[name].means(natural)
            self._known[name] = known
        return known[1]

    def target(self, name: str) -> dict[str, Tensor]:
        """Natural parameters of the optimal factor given the others."""
        new = self.program.target(name, self.statistics(), self.natural[name])
        if not self.program.families[name].holds(new):
            raise ValueError(
                f"The update of {name} gives no proper distribution. If its prior is improper or nearly so, give it "
                "one that is proper; if the bound is not finite, start elsewhere."
            )
        return new

    @torch.no_grad()
    def update(self, name: str, rate: float = 1.0) -> None:
        """Moves one factor to its optimum given the others, or a part of the way in natural parameters."""
        old, new = self.natural[name], self.target(name)
        # not lerp, which has no number for values that were excluded and stay so
        self.natural[name] = new if rate == 1 else {key: (1 - rate) * old[key] + rate * new[key] for key in new}

    def sweep(self, names: Iterable[str] | None = None, rate: float = 1.0) -> None:
        """Updates the factors one after the other."""
        for name in names or self.order:
            self.update(name, rate)

    def entropy(self, name: str) -> Tensor:
        """The weighted entropy of a factor."""
        return self.program.entropy(name, self.natural[name], self.statistics()[name])

    def entropy_at(self, site: str) -> Tensor:
        """What a site's factor adds to the bound; that of a group is counted at its first site."""
        unit = self.program.unit_of(site)
        if unit not in self.natural or self.program.sites_of(unit)[0] != site:
            return torch.zeros(())
        return self.entropy(unit)

    def conditionals(self, site: str) -> Conditionals | None:
        """The factor of the group of a site, as distributions of one site after the other; None if it is in none."""
        unit = self.program.unit_of(site)
        family = self.program.families.get(unit)
        return family.conditionals(self.natural[unit]) if isinstance(family, Group) else None

    def entropies(self) -> Tensor:
        """The weighted entropies of all factors that are held here."""
        held = (name for name in self.program.families if name in self.natural)
        return sum((self.entropy(name) for name in held), start=torch.zeros(()))

    def bound(self) -> Tensor:
        """The evidence lower bound: the expected log joint and the entropies."""
        return self.program.total(self.statistics()) + self.entropies()

    def posterior(self, name: str) -> Distribution:
        """The factor of a site as a distribution; of a site of a group, its marginal."""
        unit = self.program.unit_of(name)
        family = self.program.families[unit]
        if isinstance(family, Group) and unit != name:
            return family.marginal(name, self.natural[unit])
        return family.distribution(self.natural[unit])


class Ascent(Factors):
    """The factors of a model's closed-form sites, on the data that its structure was found on.

    Args:
        structure: what was found in the model.
        natural: natural parameters to start from, by site; those of a factor round the prior draw if left out.
        groups: sites that have one factor together, as `find_groups` finds them.
    """

    def __init__(
        self,
        structure: Structure,
        natural: Mapping[str, Natural] | None = None,
        groups: Sequence[Sequence[str]] = (),
    ) -> None:
        program = structure.grouped(groups) if groups else structure.program
        start = program.start_at({name: structure.value(name) for name in structure.closed})
        order = tuple(dict.fromkeys(map(program.unit_of, structure.closed)))
        super().__init__(program, start | dict(natural or {}), order)
