"""In which order discrete sites are summed out: found once for a group, from what its tables are laid along.

A table is over the values of some sites, one for each member of its home, the site with the most plates among them. A
site is summed out where all tables that have it are laid along its own members; the result is a table over the sites
that were in these tables beside it. For a chain the order is forward, and going back over it gives the marginals.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyro_prme.conjugacy.indices import Entry, Index, indices_of, position, same_entries, substitute

__all__ = ["Plates", "Step", "Table", "Where", "elimination", "named"]

#: Names of the dimensions of members, by their shape.
Plates = dict[tuple[int, ...], tuple[Entry, ...]]

#: Of a site in a table, where its members are in terms of the home's; None where they are the same.
Where = tuple[Entry, ...] | None


class Table(NamedTuple):
    """What a table is over, and what it is laid along.

    Args:
        sites: whose values its last dimensions are.
        where: of each of these sites.
        shape: of the members of its home, its first dimensions.
    """

    sites: tuple[str, ...]
    where: tuple[Where, ...]
    shape: tuple[int, ...]


class Step(NamedTuple):
    """One site is summed out of all tables that have it.

    Args:
        site: which.
        inputs: numbers of the tables.
        whole: the table of their sum, over the site and all others that occur.
        output: number of the table that results; None if nothing is left.
        placed: where the output's members are in terms of the site's; None where they are the same.
    """

    site: str
    inputs: tuple[int, ...]
    whole: Table
    output: int | None
    placed: Where


def elimination(
    tables: Sequence[Table], sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], plates: Plates
) -> tuple[list[Step], list[Table]] | None:
    """Steps that sum out all sites, the smallest tables first, and the tables with the results behind the given ones.

    Args:
        tables: to begin with; each site has at least one.
        sizes: number of values of each site.
        shapes: of each site's members.
        plates: the names in terms of which the tables say where sites are; new ones are added.

    Returns:
        None where no order is found, since sites do not lie in each other's plates.
    """
    all_tables, owner = list(tables), {site: set[int]() for site in sizes}
    for number, table in enumerate(tables):
        for site in table.sites:
            owner[site].add(number)
    order = {site: n for n, site in enumerate(sizes)}
    queue: list[tuple[int, int, str]] = []

    def cost(site: str) -> int | None:
        whole = _whole(site, [all_tables[n] for n in owner[site]], shapes[site])
        return None if whole is None else math.prod(whole.shape) * math.prod(sizes[s] for s in whole.sites)

    known: dict[str, int | None] = {}

    def push(site: str) -> None:
        known[site] = price = cost(site)
        if price is not None:
            heapq.heappush(queue, (price, order[site], site))

    for site in sizes:
        push(site)
    steps: list[Step] = []
    while queue:
        price, _, site = heapq.heappop(queue)
        if site not in owner or known[site] != price:
            continue
        inputs = tuple(sorted(owner.pop(site)))
        whole = _whole(site, [all_tables[n] for n in inputs], shapes[site])
        if whole is None:
            raise RuntimeError("A site that could be summed out cannot any more: this is a fault.")
        left = Table(whole.sites[1:], whole.where[1:], whole.shape)
        for s in left.sites:
            owner[s] -= set(inputs)
        if not left.sites:
            steps.append(Step(site, inputs, whole, None, None))
            continue
        result, placed = _placed(left, shapes, plates)
        all_tables.append(result)
        steps.append(Step(site, inputs, whole, len(all_tables) - 1, placed))
        for s in left.sites:
            owner[s].add(len(all_tables) - 1)
        for s in left.sites:
            push(s)
    return None if owner else (steps, all_tables)


def named(shape: tuple[int, ...], plates: Plates) -> tuple[Entry, ...]:
    """Names of the dimensions of members of this shape."""
    if shape not in plates:
        plates[shape] = tuple(Index(n) if n != 1 else position(0) for n in shape)
    return plates[shape]


def _whole(site: str, tables: Sequence[Table], shape: tuple[int, ...]) -> Table | None:
    """The table of a sum over tables that are all laid along the members of a site, which comes first."""
    found: dict[str, Where] = {site: None}
    for table in tables:
        where = dict(zip(table.sites, table.where, strict=True))
        if where[site] is not None:
            return None
        for other, place in where.items():
            if other not in found:
                found[other] = place
            elif not _same(found[other], place):
                return None
    return Table(tuple(found), tuple(found.values()), shape)


def _placed(table: Table, shapes: Mapping[str, tuple[int, ...]], plates: Plates) -> tuple[Table, Where]:
    """The table laid along the members of one of its sites, and where these are; as it is if one has the members."""
    if any(place is None for place in table.where):
        return table, None
    for site, place in zip(table.sites, table.where, strict=True):
        moved = [
            None
            if shapes[other] == shapes[site] and _same(there, place)
            else _through(there, place, shapes[site], plates)
            for other, there in zip(table.sites, table.where, strict=True)
        ]
        if _LOST not in moved:
            return Table(table.sites, tuple(moved), shapes[site]), place
    return table, None


_LOST: tuple[Entry, ...] = (position(-1),)  # of members that another site's do not decide


def _through(there: Where, place: Where, shape: tuple[int, ...], plates: Plates) -> Where:
    """Where members are in terms of another site's, given where both are in terms of a third's."""
    there, place = there or (), place or ()
    if not indices_of(there):
        return there
    plain = {
        e: p
        for e, p, n in zip(place, named(shape, plates), shape, strict=True)
        if n != 1 and isinstance(e, Index) and e.size == n
    }
    if len(plain) < sum(n != 1 for n in shape) or not set(indices_of(there)) <= set(plain):
        return _LOST
    return tuple(substitute(e, plain) for e in there)


def _same(a: Where, b: Where) -> bool:
    if a is None or b is None:
        return a is b
    return same_entries(a, b)
