r"""Discrete sites with one factor together: exact marginals of chains and trees, and of what is not much wider.

With :math:`\eta` the tables that all terms together make of sites and pairs of sites, :math:`q \propto \exp \sum \eta`.
Summing out one site after the other gives :math:`\ln \sum \exp \sum \eta`, and going back the marginals: on a chain
these are forward and backward messages. The entropy is the former less :math:`\sum \mu \eta`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy.families.base import Natural, Statistics
from pyro_prme.conjugacy.families.elimination import Plates, Step, Table, Where, elimination, named
from pyro_prme.conjugacy.families.finite import Finite, OneHot
from pyro_prme.conjugacy.families.group import Conditionals, Group
from pyro_prme.conjugacy.indices import (
    Entry,
    Index,
    indices_of,
    laid_along,
    put,
    same_entries,
    substitute,
    take,
)
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import Factor

__all__ = ["FiniteGroup", "table_of"]

_LARGEST = 20_000_000  # numbers in the largest table over several sites
_MOST_STATES = 10_000  # of the sites of one table together, for one member


class _Forward(NamedTuple):
    """What one pass found: by step the sum of its tables and its message, and the logarithm of the normaliser."""

    wholes: list[Tensor]
    messages: list[Tensor]
    log_normaliser: Tensor


class FiniteGroup(Group):
    """Indicators of the values of each site, and of those pairs and larger sets of sites that some term multiplies.

    Args:
        members: the sites' own families.
        uses: for each term, its factors that are of these sites.
        hidden: members without a density or data, by site, which count nowhere.

    Raises:
        Refused: the tables would be too large, or no order of elimination is found.
    """

    kind = "jointly"
    title = "Categorical"
    discrete = True
    statistics: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        members: Mapping[str, Finite],
        uses: Iterable[Sequence[Factor]],
        hidden: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(next(iter(members.values())).variable)
        self.members: Mapping[str, Finite] = dict(members)
        self.hidden = dict(hidden or {})
        self.hides = any(bool(mask.any()) for mask in self.hidden.values())
        self._sizes = {name: len(f.values) for name, f in members.items()}
        self._shapes = {name: tuple(f.members) for name, f in members.items()}
        self._order = {name: n for n, name in enumerate(members)}
        self._plates: Plates = {}
        self._tables: dict[str, Table] = {str(n): self._single(name) for n, name in enumerate(members)}
        for factors in uses:
            if len(factors) > 1:
                self._include(factors)
        self._check_sizes(self._tables.values())
        found = elimination(tuple(self._tables.values()), self._sizes, self._shapes, self._plates)
        if found is None:
            raise self._refused("they do not lie in each other's plates")
        self._steps, self._all = found
        self._check_sizes(step.whole for step in self._steps)
        self._last: tuple[Natural, _Forward] | None = None

    def _refused(self, why: str) -> Refused:
        return Refused([f.variable for f in self.members.values()], why)

    def _check_sizes(self, tables: Iterable[Table]) -> None:
        for table in tables:
            states = math.prod(self._sizes[s] for s in table.sites)
            if states > _MOST_STATES or states * math.prod(table.shape) > _LARGEST:
                together = f"{', '.join(table.sites[:3])}{' and others' if len(table.sites) > 3 else ''}"
                raise self._refused(f"a table over {together} would have {states * math.prod(table.shape)} numbers")

    def _single(self, site: str) -> Table:
        return Table((site,), (None,), self._shapes[site])

    def _own_plates(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        return named(shape, self._plates)

    # What terms ask for.

    def _laid(self, factors: Sequence[Factor]) -> tuple[Table, tuple[Entry, ...]]:
        """The table of the factors of a term, and its index there."""
        fs = sorted(factors, key=lambda f: self._order[f.variable.name])
        return table_of(fs, self._shapes, self._plates)

    def _include(self, factors: Sequence[Factor]) -> None:
        table, _ = self._laid(factors)
        base = ",".join(str(self._order[s]) for s in table.sites)
        for n in range(len(self._tables) + 1):
            key = base if n == 0 else f"{base}#{n}"
            if key not in self._tables:
                self._tables[key] = table
                return
            if _alike(self._tables[key], table):
                return

    def operand(self, factors: Sequence[Factor]) -> tuple[str, tuple[Entry, ...]]:
        table, entries = self._laid(factors)
        base = ",".join(str(self._order[s]) for s in table.sites)
        keys = (base, *(f"{base}#{n}" for n in range(1, len(self._tables))))
        key = next((k for k in keys if k in self._tables and _alike(self._tables[k], table)), None)
        if key is None:
            raise self._refused("on these data other members of them are multiplied than before")
        return key, entries

    # The factor.

    def _forward(self, natural: Natural) -> _Forward:
        last = self._last  # read once: another thread may replace it
        if last is not None and last[0] is natural:
            return last[1]
        values = dict(enumerate(natural[key] for key in self._tables))
        wholes, messages, log_normaliser = [], [], torch.zeros(())
        for step in self._steps:
            whole = self._along(values.pop(step.inputs[0]), self._all[step.inputs[0]], step.whole)
            for number in step.inputs[1:]:
                whole = whole + self._along(values.pop(number), self._all[number], step.whole)
            message = whole.logsumexp(len(step.whole.shape))
            wholes.append(whole)
            messages.append(message)
            if step.output is None:
                log_normaliser = log_normaliser + message.sum()
            else:
                values[step.output] = self._moved(message, step)
        found = _Forward(wholes, messages, log_normaliser)
        self._last = natural, found
        return found

    def _along(self, values: Tensor, table: Table, whole: Table) -> Tensor:
        """A table with its dimensions in the order of a larger one, and of size one for the sites that it has not."""
        n = len(table.shape)
        own = [Index(self._sizes[s]) for s in table.sites]
        at = dict(zip(table.sites, own, strict=True))
        rows: list[Any] = [Index(m) for m in table.shape]
        every = [*rows, *(at.get(s) or Index(1) for s in whole.sites)]
        return laid_along(values, [*rows, *own], every) if n + len(own) else values

    def _moved(self, message: Tensor, step: Step) -> Tensor:
        """A message, added up where its sites have their members."""
        if step.placed is None:
            return message
        output = self._all[step.output]  # type: ignore[index]
        own: Any = [p if isinstance(p, Index) else Index(1) for p in self._own_plates(step.whole.shape)]
        values = [Index(self._sizes[s]) for s in output.sites]
        shape = (*output.shape, *(i.size for i in values))
        there = indices_of(step.placed)
        gone = [d for d, i in enumerate(own) if i not in there]
        summed = message.sum(gone) if gone else message
        return put(summed, [*(i for i in own if i in there), *values], (*step.placed, *values), shape)

    def _belief_there(self, belief: Tensor, step: Step) -> Tensor:
        """What is known of the sites of a message, laid along the members that it came from."""
        if step.placed is None:
            return belief
        output = self._all[step.output]  # type: ignore[index]
        own: Any = [p if isinstance(p, Index) else Index(1) for p in self._own_plates(step.whole.shape)]
        return self._taken(belief, step.placed, [Index(self._sizes[s]) for s in output.sites], own)

    @staticmethod
    def _taken(values: Tensor, where: tuple[Entry, ...], inner: Sequence[Index], own: Sequence[Index]) -> Tensor:
        taken, indices = take(values, (*where, *inner))
        order = (*own, *inner)
        return laid_along(taken, indices, order).expand([i.size for i in order])

    def means(self, natural: Natural) -> dict[str, Tensor]:
        found, beliefs = self._forward(natural), dict[int, Tensor]()
        for step, whole, message in zip(
            reversed(self._steps), reversed(found.wholes), reversed(found.messages), strict=True
        ):
            n = len(step.whole.shape)
            joint = (whole - torch.where(message == -math.inf, 0.0, message).unsqueeze(n)).exp()
            if step.output is not None:
                joint = joint * self._belief_there(beliefs.pop(step.output), step).unsqueeze(n)
            for number in step.inputs:
                table = self._all[number]
                gone = [n + d for d, s in enumerate(step.whole.sites) if s not in table.sites]
                left = [s for s in step.whole.sites if s in table.sites]
                part = joint.sum(gone) if gone else joint
                beliefs[number] = part.permute([*range(n), *(n + left.index(s) for s in table.sites)])
        return {key: beliefs[number] for number, key in enumerate(self._tables)}

    def entropy(self, natural: Natural, means: Statistics) -> Tensor:
        total = self._forward(natural).log_normaliser
        for key, part in natural.items():
            inner = means[key] * part
            if not bool(torch.isfinite(inner.sum())):  # values that are excluded have minus infinity
                inner = torch.where(means[key] > 0, inner, 0.0)
            total = total - inner.sum()
        return total - sum(float(mask.sum()) * math.log(self._sizes[site]) for site, mask in self.hidden.items())

    def empty(self) -> dict[str, Tensor]:
        dtype = torch.get_default_dtype()
        return {
            key: torch.zeros(*table.shape, *(self._sizes[s] for s in table.sites), dtype=dtype)
            for key, table in self._tables.items()
        }

    def holds(self, natural: Natural) -> bool:
        return bool(torch.isfinite(self._forward(natural).log_normaliser))

    def reads_hidden(self, slopes: Natural) -> bool:
        """Whether derivatives at hidden members are not zero: then these count somewhere after all."""
        for key, table in self._tables.items():
            own: Any = [p if isinstance(p, Index) else Index(1) for p in self._own_plates(table.shape)]
            for site, where in zip(table.sites, table.where, strict=True):
                if site in self.hidden:
                    mask = self.hidden[site]
                    there = mask if where is None else self._taken(mask, where, [], own).reshape(table.shape)
                    if bool(slopes[key][there].any()):
                        return True
        return False

    def at_values(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        hot = {name: family.at_point(values[name])["chosen"] for name, family in self.members.items()}
        out = {}
        for key, table in self._tables.items():
            own: Any = [p if isinstance(p, Index) else Index(1) for p in self._own_plates(table.shape)]
            n = len(table.shape)
            product = torch.ones(())
            for d, (site, where) in enumerate(zip(table.sites, table.where, strict=True)):
                inner = [Index(self._sizes[site])]
                each = hot[site] if where is None else self._taken(hot[site], where, inner, own)
                product = product * each.reshape(
                    [*each.shape[:n], *(-1 if e == d else 1 for e in range(len(table.sites)))]
                )
            out[key] = product
        return out

    def start_at(self, values: Mapping[str, Tensor], count: float = 1.0) -> dict[str, Tensor]:
        return self.with_logits({n: f.start(values[n], count)["chosen"] for n, f in self.members.items()})

    def with_logits(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Natural parameters of a factor whose sites are independent, each with its logits."""
        singles = {str(self._order[name]): part for name, part in logits.items()}
        return {key: singles.get(key, part) for key, part in self.empty().items()}

    def marginal(self, site: str, natural: Natural) -> Distribution:
        probs = self.means(natural)[str(self._order[site])]
        return self.members[site].distribution({"chosen": probs.log()})

    def conditionals(self, natural: Natural) -> Conditionals:
        found, at = self._forward(natural), dict[str, Tensor]()
        for step, whole in zip(reversed(self._steps), reversed(found.wholes), strict=True):
            logits = self._given(whole, step.whole, at)
            site, family = step.site, self.members[step.site]
            value = yield site, family.distribution({"chosen": logits})
            at[site] = value.argmax(-1) if isinstance(family, OneHot) else _positions(value, family.values)

    def _given(self, whole: Tensor, table: Table, at: Mapping[str, Tensor]) -> Tensor:
        """The logits of a table's first site where the others have values."""
        others = table.sites[1:]
        if not others:
            return whole
        own: Any = [p if isinstance(p, Index) else Index(1) for p in self._own_plates(table.shape)]
        flat: Tensor = torch.zeros(table.shape, dtype=torch.int64)
        for site, where in zip(others, table.where[1:], strict=True):
            value = at[site] if where is None else self._taken(at[site], where, [], own)
            flat = flat * self._sizes[site] + value.reshape(table.shape)
        size = self._sizes[table.sites[0]]
        rows = whole.reshape(-1, size, math.prod(self._sizes[s] for s in others))
        return rows[torch.arange(len(rows)), :, flat.reshape(-1)].reshape(*table.shape, size)


def _positions(value: Tensor, values: Tensor) -> Tensor:
    return (value.unsqueeze(-1) == values).to(torch.int64).argmax(-1)


def _alike(a: Table, b: Table) -> bool:
    """Whether two tables are over the same sites at the same places."""

    def same(x: Where, y: Where) -> bool:
        return x is y if x is None or y is None else same_entries(x, y)

    return a.sites == b.sites and a.shape == b.shape and all(same(x, y) for x, y in zip(a.where, b.where, strict=True))


def table_of(
    fs: Sequence[Factor], shapes: Mapping[str, tuple[int, ...]], plates: Plates
) -> tuple[Table, tuple[Entry, ...]]:
    """The table that holds the product of indicators of several sites, and the index of the product there.

    Args:
        fs: indicators, one of each site.
        shapes: of the members of each site.
        plates: names of the dimensions of such members, to which new ones are added.

    Raises:
        Refused: the members are not those of one site's plates.
    """
    names, values = tuple(f.variable.name for f in fs), tuple(f.entries[-1] for f in fs)
    variables = [f.variable for f in fs]
    if len(set(names)) < len(names):
        raise Refused(variables, "a term multiplies two members of one of them")
    each = [shapes[n] for n in names]
    first = fs[0].entries[:-1]
    if all(s == each[0] and same_entries(f.entries[:-1], first) for f, s in zip(fs, each, strict=True)):
        return Table(names, tuple(None for _ in fs), each[0]), (*first, *values)
    for f, shape in zip(fs, each, strict=True):
        own = f.entries[:-1]
        plain = [e for e, n in zip(own, shape, strict=True) if n != 1]
        if not all(isinstance(e, Index) for e in plain) or len(set(plain)) < len(plain):
            continue
        indices = set(indices_of(own))
        if not all(set(indices_of(g.entries[:-1])) <= indices for g in fs):
            continue
        here: Any = {e: p for e, p, n in zip(own, named(shape, plates), shape, strict=True) if n != 1}
        where = tuple(
            None
            if s == shape and same_entries(g.entries[:-1], own)
            else tuple(substitute(e, here) for e in g.entries[:-1])
            for g, s in zip(fs, each, strict=True)
        )
        return Table(names, where, shape), (*own, *values)
    raise Refused(variables, "a term multiplies members of them that do not lie in one another's plates")
