"""One posterior factor for several sites that terms multiply: what all such groups have in common."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import ClassVar

from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.base import Family, Natural
from pyro_prme.conjugacy.indices import Entry
from pyro_prme.conjugacy.terms import Factor

__all__ = ["Conditionals", "Group"]

#: Yields a site and its distribution given the values of those before it, and is sent the site's value.
Conditionals = Generator[tuple[str, Distribution], Tensor, None]


class Group(Family):
    """A factor of several sites together. Its statistics include those of products of different sites.

    Args:
        members: the families that the sites would have on their own, by site in the model's order.
    """

    #: What the plan calls a factor of this kind.
    kind: ClassVar[str]

    members: Mapping[str, Family]

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the model's order."""
        return tuple(self.members)

    def operand(self, factors: Sequence[Factor]) -> tuple[str, tuple[Entry, ...]]:
        """The statistic that the factors of one term ask for, and its index.

        Args:
            factors: of sites of the group, all that the term has.
        """
        raise NotImplementedError

    def at_values(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The statistics where each site has a value."""
        raise NotImplementedError

    def start_at(self, values: Mapping[str, Tensor], count: float = 1.0) -> dict[str, Tensor]:
        """Natural parameters of a factor round values of the sites, worth so many observations."""
        raise NotImplementedError

    def marginal(self, site: str, natural: Natural) -> Distribution:
        """The factor of one site alone."""
        raise NotImplementedError

    def conditionals(self, natural: Natural) -> Conditionals:
        """The factor as distributions of one site after the other, each given the values of those before it."""
        raise NotImplementedError

    def drawn(self, natural: Natural) -> dict[str, Tensor]:
        """Values of all sites, drawn together."""
        steps, values = self.conditionals(natural), dict[str, Tensor]()
        try:
            site, each = next(steps)
            while True:
                values[site] = each.sample()
                site, each = steps.send(values[site])
        except StopIteration:
            return values
