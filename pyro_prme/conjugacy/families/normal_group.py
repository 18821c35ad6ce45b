r"""Normal sites that terms multiply, with one joint Normal: states of a linear chain are smoothed, not taken apart.

The members of all sites are laid end to end along one dimension; plates that all sites share, and within which no term
multiplies different members, stay dimensions of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from pyro import distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.base import Natural, Statistics
from pyro_prme.conjugacy.families.group import Conditionals, Group
from pyro_prme.conjugacy.families.normal import JointNormal, Normal
from pyro_prme.conjugacy.indices import Entry, Gather, Index, indices_of, laid_along
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import POWER, Factor
from pyro_prme.conjugacy.variables import Variable

__all__ = ["LARGEST", "NormalGroup"]

#: Members of all sites together, for one member of the shared plates.
LARGEST = 1000


class NormalGroup(Normal, Group):
    """A joint Normal over the members of several sites.

    Args:
        members: the sites' own families.
        shared: of each site, the dimensions of its shape that are shared plates, in the same order for all.
        hidden: members without a density or data, by site, which count nowhere; they are kept as standard Normals.

    Raises:
        Refused: there are too many members.
    """

    kind = "jointly"

    def __init__(
        self,
        members: Mapping[str, Normal],
        shared: Mapping[str, Sequence[int]],
        hidden: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.members: Mapping[str, Normal] = dict(members)
        self._shared = {name: tuple(dims) for name, dims in shared.items()}
        self._own = {n: [d for d in range(len(f.shape)) if d not in self._shared[n]] for n, f in members.items()}
        sizes = {n: math.prod(f.shape[d] for d in self._own[n]) for n, f in members.items()}
        ends = torch.tensor([0, *sizes.values()]).cumsum(0).tolist()
        self._span = {name: slice(a, b) for name, a, b in zip(members, ends[:-1], ends[1:], strict=True)}
        first = next(iter(members.values())).variable
        if ends[-1] > LARGEST:
            raise Refused(
                [f.variable for f in members.values()],
                f"they have {ends[-1]} members together, and a joint Normal over sites is kept for {LARGEST}",
            )
        plates = tuple(first.shape[d] for d in self._shared[first.name])
        dtype = first.dtype
        for family in members.values():
            dtype = torch.promote_types(dtype, family.variable.dtype)
        shape = torch.Size((*plates, ends[-1]))
        variable = Variable(first.name, Normal, shape, torch.Size(plates), dtype)
        super().__init__(variable, frozenset({len(plates)}))
        masks = {n: torch.zeros(f.shape, dtype=dtype) for n, f in members.items()}
        self._hidden = self._flat(masks | {n: mask.to(dtype) for n, mask in (hidden or {}).items()})
        self.hides = bool(self._hidden.any())

    def _precision_root(self, natural: Natural) -> Tensor:
        if not self.hides:
            return super()._precision_root(natural)
        half = self._matrices(natural["xx"])
        return torch.linalg.cholesky(-(half + half.mT) + torch.diag_embed(self._hidden))

    def holds(self, natural: Natural) -> bool:
        if not self.hides:
            return super().holds(natural)
        half = self._matrices(natural["xx"]) - 0.5 * torch.diag_embed(self._hidden)
        return super().holds({"x": natural["x"], "xx": half})

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        entropy = super().entropy(natural, means)
        count = self._hidden.sum(-1, keepdim=True)
        return entropy - 0.5 * math.log(2 * math.pi * math.e) * count

    def reads_hidden(self, slopes: Natural) -> bool:
        """Whether derivatives at hidden members are not zero: then these count somewhere after all."""
        there = self._hidden > 0
        rows = slopes["xx"].abs().sum(-1) + slopes["xx"].abs().sum(-2)
        return bool(slopes["x"][there].any()) or bool(rows[there].any())

    def operand(self, factors: Sequence[Factor]) -> tuple[str, tuple[Entry, ...]]:
        if any(f.kind != POWER for f in factors) or sum(f.power for f in factors) > 2:
            raise Refused([f.variable for f in factors], "a term has more than a square of them")
        places = [self._place(f) for f in factors for _ in range(int(f.power))]
        plates = places[0][0]
        if len(places) == 1:
            return "x", (*plates, places[0][1])
        return "xx", (*plates, places[0][1], places[1][1])

    def _place(self, f: Factor) -> tuple[tuple[Entry, ...], Entry]:
        """The shared plates and the place along the joint dimension."""
        name = f.variable.name
        plates = tuple(f.entries[d] for d in self._shared[name])
        own = [f.entries[d] for d in self._own[name]]
        indices = indices_of(own)
        at: Tensor = torch.tensor(self._span[name].start)
        stride = 1
        for d, entry in reversed(list(zip(self._own[name], own, strict=True))):
            where = laid_along(*_positions(entry), indices)
            at = at + stride * where
            stride *= f.variable.shape[d]
        return plates, Gather(at.expand([i.size for i in indices]), indices)

    def _flat(self, values: Mapping[str, Tensor]) -> Tensor:
        """Values of all sites, laid end to end."""
        rows = []
        for name, family in self.members.items():
            value = values[name].permute([*self._shared[name], *self._own[name]])
            rows.append(value.reshape(*self.shape[:-1], -1).to(family.variable.dtype))
        return torch.cat(rows, -1)

    def at_values(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.at_point(self._flat(values))

    def start_at(self, values: Mapping[str, Tensor], count: float = 1.0) -> dict[str, Tensor]:
        return self.start(self._flat(values), count)

    def _of_site(self, site: str, mean: Tensor, covariance: Tensor) -> Distribution:
        """A Normal over the members of one site."""
        variable = self.members[site].variable
        own, event = self._own[site], len(variable.shape) - len(variable.batch_shape)
        if mean.shape[-1] == 1:
            back = [[*self._shared[site], *own].index(d) for d in range(len(variable.shape))]
            laid = [*self.shape[:-1], *(1 for _ in own)]
            loc, scale = (t.reshape(laid).permute(back) for t in (mean, covariance.squeeze(-1).sqrt()))
            return dist.Normal(loc, scale).to_event(event)
        family = Normal(variable, frozenset(own))
        if own == list(range(len(variable.batch_shape), len(variable.shape))) == [len(variable.shape) - 1]:
            return dist.MultivariateNormal(mean, covariance)
        return JointNormal(family, mean, covariance)

    def marginal(self, site: str, natural: Natural) -> Distribution:
        mean, covariance = self.moments(natural)
        span = self._span[site]
        return self._of_site(site, mean[..., span], covariance[..., span, span])

    def conditionals(self, natural: Natural) -> Conditionals:
        mean, covariance = self.moments(natural)
        root = torch.linalg.cholesky(covariance)
        noise = torch.zeros(*mean.shape[:-1], 0, dtype=mean.dtype)
        for site, span in self._span.items():
            given = mean[..., span] + (root[..., span, : span.start] @ noise.unsqueeze(-1)).squeeze(-1)
            own = root[..., span, span]
            value = yield site, self._of_site(site, given, own @ own.mT)
            laid = value.permute([*self._shared[site], *self._own[site]]).reshape(given.shape)
            step = torch.linalg.solve_triangular(own, (laid - given).unsqueeze(-1), upper=False).squeeze(-1)
            noise = torch.cat([noise, step], -1)


def _positions(entry: Entry) -> tuple[Tensor, tuple[Index, ...]]:
    if isinstance(entry, Gather):
        return entry.at, entry.indices
    return torch.arange(entry.size), (entry,)
