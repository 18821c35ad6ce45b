"""Which sites have one factor together: discrete or Normal ones that terms multiply, such as the states of a chain.

Two sites go together if every term that has both is within what a joint factor has statistics of: a product of
indicators whose members lie in one another's plates, or a square of Normal variables. So the states of a chain go
together, and the loadings and scores of a factor model, which enter by the fourth power, do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pyro_prme.conjugacy.families import Family, Finite, FiniteGroup, Group, Normal, NormalGroup, OneHot
from pyro_prme.conjugacy.families.finite_group import table_of
from pyro_prme.conjugacy.families.normal_group import LARGEST
from pyro_prme.conjugacy.indices import same_entry
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import POWER, Factor, Term, term_variables
from pyro_prme.conjugacy.tracing import Site

if TYPE_CHECKING:
    from pyro_prme.conjugacy.program import Program
    from pyro_prme.conjugacy.structure import Structure

__all__ = ["Grouping", "find_groups", "make_group"]


class Grouping(NamedTuple):
    """What was found.

    Args:
        groups: sites that have one factor together, in the model's order.
        apart: of sites that a term multiplies and that have factors of their own all the same, why.
    """

    groups: tuple[tuple[str, ...], ...]
    apart: Mapping[str, str]


def find_groups(structure: Structure, names: Iterable[str]) -> Grouping:
    """Groups among some of the closed sites of a model.

    Args:
        structure: of the model.
        names: of the sites.
    """
    found = _Clusters(structure, names)
    groups, apart = [], dict(found.apart)
    for cluster in found.clusters():
        try:
            program = structure.grouped([cluster])
            if _counts_where_hidden(program, cluster, structure):
                raise Refused((), "members that a mask hides are multiplied with others")
        except Refused as refused:
            apart |= {name: f"the {len(cluster) - 1} that it goes with: {refused.reason}" for name in cluster}
            continue
        groups.append(cluster)
    together = {name for group in groups for name in group}
    return Grouping(tuple(groups), {name: why for name, why in apart.items() if name not in together})


def _counts_where_hidden(program: Program, names: Sequence[str], structure: Structure) -> bool:
    """Whether something is asked of members that a mask hides."""
    unit = program.unit_of(names[0])
    group = program.families[unit]
    if not isinstance(group, FiniteGroup | NormalGroup) or not group.hides:
        return False
    statistics = program.at_values({name: structure.value(name) for name in structure.closed})
    target = program.target(unit, statistics, group.empty())
    return group.reads_hidden(target)


class _Clusters:
    """Sites put together, two clusters at a time, those first that are nearest in the model."""

    def __init__(self, structure: Structure, names: Iterable[str]) -> None:
        wanted = set(names)
        terms = [t.term for _, parts in structure.program.parts.values() for t in parts]
        inside = {v.name for t in terms if t.bounds for v in term_variables(t._replace(factors=()))}
        self._sites = {
            site.name: site
            for site in structure.run_sites
            if site.variable is not None and site.name in wanted - inside and _kind(site) is not None
        }
        self._order = {name: n for n, name in enumerate(self._sites)}
        self._of: dict[str, frozenset[str]] = {name: frozenset({name}) for name in self._sites}
        self._factors = [[f for f in t.factors if f.variable.name in self._sites] for t in terms]
        self._terms_of: dict[str, list[int]] = {name: [] for name in self._sites}
        for n, factors in enumerate(self._factors):
            for name in {f.variable.name for f in factors}:
                self._terms_of[name].append(n)
        self.apart: dict[str, str] = {}
        self._refused: set[frozenset[str]] = set()
        pairs: set[tuple[str, str]] = set()
        for factors in self._factors:
            present = sorted({f.variable.name for f in factors}, key=self._order.__getitem__)
            pairs.update(itertools.combinations(present, 2))
        for a, b in sorted(pairs, key=self._distance):
            self._join(a, b)

    def _distance(self, pair: tuple[str, str]) -> tuple[int, int]:
        """How far apart two sites are in the model: the states of a chain are nearer to each other than to the rest."""
        a, b = (self._order[name] for name in pair)
        return b - a, a

    def clusters(self) -> list[tuple[str, ...]]:
        """Those of two sites and more."""
        found = {cluster for cluster in self._of.values() if len(cluster) > 1}
        laid = [tuple(sorted(cluster, key=self._order.__getitem__)) for cluster in found]
        return sorted(laid, key=lambda cluster: self._order[cluster[0]])

    def _join(self, a: str, b: str) -> None:
        first, second = self._of[a], self._of[b]
        pair = frozenset({a, b})
        if first is second or pair in self._refused:
            return
        if (kind := _kind(self._sites[a])) != _kind(self._sites[b]):
            return
        why = self._why_not(first, second, kind)
        if why is not None:
            self._refused.add(pair)
            if why:
                self.apart |= {a: f"{b}: {why}", b: f"{a}: {why}"}
            return
        both = first | second
        for name in both:
            self._of[name] = both

    def _why_not(self, first: frozenset[str], second: frozenset[str], kind: str | None) -> str | None:
        """Why two clusters cannot be one: a clause, or nothing for what is plain mean field; None if they can."""
        if self._batches(first) != self._batches(second):
            return "one of them belongs to a batch"
        both, small = first | second, min(first, second, key=len)
        touched = {n for name in small for n in self._terms_of[name]}
        here = [[f for f in self._factors[n] if f.variable.name in both] for n in sorted(touched)]
        if kind == "Normal":
            return self._why_not_normal(both, here)
        shapes = {name: _members(self._sites[name]) for name in both}
        for factors in here:
            try:
                if len(factors) > 1:
                    table_of(factors, shapes, {})
            except Refused as refused:
                return refused.reason
        return None

    def _why_not_normal(self, both: Collection[str], here: Iterable[Sequence[Factor]]) -> str | None:
        if any(f.kind != POWER for factors in here for f in factors):
            return ""
        if any(sum(f.power for f in factors) > 2 for factors in here):
            return ""
        plates = set.intersection(*(_plates(self._sites[name]) for name in both))
        shared = math.prod(size for _, size in plates)
        size = sum(math.prod(_shape(self._sites[name])) // max(shared, 1) for name in both)
        if size > LARGEST:
            return f"a joint Normal would have {size} members, and {LARGEST} are the most"
        return None

    def _batches(self, cluster: frozenset[str]) -> set[tuple[str, ...]]:
        return {tuple(sorted(f.name for f in self._sites[n].plates if f.size != f.full_size)) for n in cluster}


def _kind(site: Site) -> str | None:
    family = site.variable.family if site.variable is not None else None
    if family is Normal:
        return "Normal"
    return "discrete" if family in (Finite, OneHot) else None


def _shape(site: Site) -> tuple[int, ...]:
    return tuple(site.variable.shape) if site.variable is not None else ()


def _members(site: Site) -> tuple[int, ...]:
    """The shape of a site without the dimensions of one value of a discrete one."""
    values = site.variable.values if site.variable is not None else None
    event = values.dim() - 1 if values is not None else 0
    return _shape(site)[: len(_shape(site)) - event]


def _plates(site: Site) -> set[tuple[str, int]]:
    return {(frame.name, frame.size) for frame in site.plates if frame.dim is not None}


def make_group(sites: Sequence[Site], families: Mapping[str, Family], terms: Iterable[Term]) -> tuple[Group, Tensor]:
    """The factor of a group, and the weight of its sites.

    Args:
        sites: of the group, in the model's order.
        families: that sites have on their own.
        terms: of the expected log joint.

    Raises:
        Refused: there is no such factor.
    """
    names = {site.name for site in sites}
    uses = [factors for t in terms if (factors := [f for f in t.factors if f.variable.name in names])]
    variables = [site.variable for site in sites if site.variable is not None]
    weights = {float(w) for site in sites for w in site.weight.unique() if float(w) != 0}
    if len(weights) > 1:
        raise Refused(variables, "they have different scales")
    weight = torch.tensor(weights.pop() if weights else 1.0)
    members = {site.name: families[site.name] for site in sites}
    finite = {name: f for name, f in members.items() if isinstance(f, Finite)}
    hidden = {site.name: _hidden(site) for site in sites if not bool((site.weight != 0).all())}
    if len(finite) == len(members):
        return FiniteGroup(finite, uses, hidden), weight
    normal = {name: f for name, f in members.items() if type(f) is Normal}
    if len(normal) < len(members):
        raise Refused(variables, "they are not all Normal now")
    return NormalGroup(normal, _shared(sites, uses), hidden), weight


def _hidden(site: Site) -> Tensor:
    """Members of a site that its mask hides."""
    batch = site.variable.batch_shape if site.variable is not None else torch.Size()
    members = _members(site)
    laid = (site.weight == 0).expand(batch)
    return laid.reshape([*batch, *[1] * (len(members) - len(batch))]).expand(members)


def _shared(sites: Sequence[Site], uses: Iterable[Sequence[Factor]]) -> dict[str, tuple[int, ...]]:
    """Of each site, its dimensions that are plates of all sites within which no term multiplies different members."""
    common = set.intersection(*(_plates(site) for site in sites))
    place = {
        site.name: {f.name: len(site.variable.batch_shape) + f.dim for f in site.plates if f.dim is not None}
        for site in sites
        if site.variable is not None
    }
    shared = sorted(name for name, _ in common)
    for factors in uses:
        first = factors[0]
        for plate in list(shared):
            at = first.entries[place[first.variable.name][plate]]
            if not all(same_entry(at, f.entries[place[f.variable.name][plate]]) for f in factors[1:]):
                shared.remove(plate)
    dims = {name: tuple(at[plate] for plate in shared) for name, at in place.items()}
    for site in sites:
        if site.variable is not None and not site.variable.subsampled <= set(dims[site.name]):
            raise Refused({site.variable}, "a term couples members of its subsampled plate")
    return dims
