"""Coordinate ascent over the closed-form sites of a structure: updates, sweeps and the bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families import Statistics
from pyro_prme.conjugacy.program import Program
from pyro_prme.conjugacy.structure import Structure

__all__ = ["Ascent"]


class Ascent:
    """Posterior factors of the closed-form sites, moved one at a time.

    Args:
        structure: what was found in the model.
        natural: natural parameters to start from, by site; those of a factor round the prior draw if left out.
    """

    def __init__(self, structure: Structure, natural: Mapping[str, Mapping[str, Tensor]] | None = None) -> None:
        self.structure, self.program = structure, structure.program
        self.natural: dict[str, Mapping[str, Tensor]] = {
            name: family.start(structure.value(name)) for name, family in structure.families.items()
        }
        self.natural.update(natural or {})
        self._known: dict[str, tuple[Mapping[str, Tensor], Statistics]] = {}

    def statistics(self) -> dict[str, Statistics]:
        """Mean parameters, computed anew only where the natural parameters are new."""
        for name, family in self.program.families.items():
            known = self._known.get(name)
            if known is None or known[0] is not self.natural[name]:
                self._known[name] = self.natural[name], family.means(self.natural[name])
        return {name: self._known[name][1] for name in self.program.families}

    @torch.no_grad()
    def update(self, name: str, rate: float = 1.0) -> None:
        """Moves one factor to its optimum given the others, or a part of the way in natural parameters."""
        old = self.natural[name]
        new = self.program.target(name, self.statistics(), old)
        if not self.program.families[name].holds(new):
            raise ValueError(
                f"The update of {name} has no proper distribution: its natural parameters have left their domain."
            )
        # not lerp, which has no number for values that were excluded and stay so
        self.natural[name] = new if rate == 1 else {key: (1 - rate) * old[key] + rate * new[key] for key in new}

    def sweep(self, names: Iterable[str] | None = None, rate: float = 1.0) -> None:
        """Updates the factors one after the other, in the model's order if no other is given."""
        for name in names or self.structure.closed:
            self.update(name, rate)

    def bound(self, program: Program | None = None) -> Tensor:
        """The evidence lower bound: the expected log joint and the weighted entropies."""
        program = program or self.program
        statistics = self.statistics()
        entropies = (program.entropy(name, self.natural[name], statistics[name]) for name in program.families)
        return sum(entropies, start=program.total(statistics))

    def posterior(self, name: str) -> Distribution:
        """A factor as a distribution."""
        return self.program.families[name].distribution(self.natural[name])
