r"""The expected log joint of a model, :math:`F(\mu) = E_q \ln p`, as contractions of constants with mean parameters.

Its gradient in the mean parameters of one factor is the natural parameter of that factor's optimum, prior and all
messages, plates, scales and masks included: :math:`\eta_i \leftarrow \partial F / \partial \mu_i`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyro
import torch
from torch import Tensor

from pyro_prme.conjugacy.compiled import CompiledTerm, FactorTable, Message, all_requests
from pyro_prme.conjugacy.contraction import Memory
from pyro_prme.conjugacy.densities import log_density, randoms_of
from pyro_prme.conjugacy.families import Family, Group, Natural, Statistics
from pyro_prme.conjugacy.grouping import make_group
from pyro_prme.conjugacy.indices import Index, laid_along, put
from pyro_prme.conjugacy.operations.arithmetic import multiply
from pyro_prme.conjugacy.operations.reductions import total
from pyro_prme.conjugacy.random_tensor import Random, align, lifted_values, variables_in
from pyro_prme.conjugacy.refusal import Refused, reason_of
from pyro_prme.conjugacy.terms import Constant, Term, is_zero, product, summed
from pyro_prme.conjugacy.tracing import Site

__all__ = ["Program", "compile_program", "site_terms"]


class Program:
    """The expected log joint of one run, site by site.

    A unit is what has a factor: a variable, or a group of several with one factor together.

    Args:
        families: by unit.
        parts: by site, a plain number and the terms.
        weights: by unit, scale times mask of its site.
    """

    def __init__(
        self,
        families: Mapping[str, Family],
        parts: Mapping[str, tuple[Tensor, list[CompiledTerm]]],
        weights: Mapping[str, Tensor],
    ) -> None:
        self.families, self.parts, self.weights = families, parts, weights
        self._unit_of = {s: unit for unit, f in families.items() if isinstance(f, Group) for s in f.sites}
        self._memory = Memory()
        self._terms_of: dict[str, list[CompiledTerm]] = {name: [] for name in families}
        for _, terms in parts.values():
            for term in terms:
                for name in term.names:
                    self._terms_of[name].append(term)

    def unit_of(self, site: str) -> str:
        """The unit that a site belongs to."""
        return self._unit_of.get(site, site)

    def sites_of(self, unit: str) -> tuple[str, ...]:
        """The sites of a unit."""
        family = self.families[unit]
        return family.sites if isinstance(family, Group) else (unit,)

    def at_values(self, values: Mapping[str, Tensor]) -> dict[str, Statistics]:
        """Statistics of all units where each site has a value."""
        return {
            unit: f.at_values(values) if isinstance(f, Group) else f.at_point(values[unit])
            for unit, f in self.families.items()
        }

    def start_at(self, values: Mapping[str, Tensor], count: float = 1.0) -> dict[str, Natural]:
        """Natural parameters of factors round values of the sites, worth so many observations."""
        return {
            unit: f.start_at(values, count) if isinstance(f, Group) else f.start(values[unit], count)
            for unit, f in self.families.items()
        }

    def at(self, site: str, statistics: Mapping[str, Statistics]) -> Tensor:
        """One site's part of the expected log joint."""
        plain, terms = self.parts[site]
        return plain + sum((t.value(statistics, (), self._memory) for t in terms), start=torch.zeros(()))

    def moving(self, site: str, statistics: Mapping[str, Statistics], given: Collection[str] = ()) -> Tensor:
        """What of a site's part depends on something that gradients move.

        Args:
            site: its name.
            statistics: of all variables.
            given: variables through whose statistics gradients pass.
        """
        if site not in self.parts:
            return torch.zeros(())
        plain, terms = self.parts[site]
        total = plain if plain.requires_grad else torch.zeros(())
        live = (t for t in terms if t.has_gradient or t.names.intersection(given))
        return sum((t.value(statistics, (), None) for t in live), start=total)

    def total(self, statistics: Mapping[str, Statistics]) -> Tensor:
        """The expected log joint."""
        return sum((self.at(site, statistics) for site in self.parts), start=torch.zeros(()))

    def terms_of(self, name: str) -> Sequence[CompiledTerm]:
        """The terms that have statistics of a variable."""
        return self._terms_of[name]

    def gathered(self, name: str, messages: Iterable[Message], like: Natural) -> dict[str, Tensor]:
        """The sum of messages to a variable.

        Args:
            name: of the variable.
            messages: derivatives in its statistics.
            like: tensors of the shapes and types of its natural parameters.
        """
        sums: dict[str, _Sum] = {key: _Sum(value.shape) for key, value in like.items()}
        for message in messages:
            sums[message.statistic].add(message)
        return {key: part.result(like[key]) for key, part in sums.items()}

    def forget(self, statistics: Statistics) -> None:
        """Lets go of what was computed from statistics that have been replaced."""
        self._memory.forget(statistics.values())

    def children(self, name: str) -> list[str]:
        """Sites other than its own in whose density a unit occurs."""
        own = self.sites_of(name)
        return [s for s, (_, terms) in self.parts.items() if s not in own and any(name in t.names for t in terms)]

    def coupled(self, names: Collection[str]) -> bool:
        """Whether some term has statistics of two or more of these variables."""
        return any(len(t.names.intersection(names)) > 1 for _, terms in self.parts.values() for t in terms)

    def target(
        self, name: str, statistics: Mapping[str, Statistics], now: Natural, *, own: bool = False
    ) -> dict[str, Tensor]:
        """Natural parameters of the optimal factor given the statistics of the others.

        Args:
            name: of the variable.
            statistics: of all variables.
            now: the natural parameters as they are, kept where the site is masked out.
            own: count the site's own density alone, which gives its prior.
        """
        memory = None if torch.is_grad_enabled() else self._memory
        if own:
            terms = [t for site in self.sites_of(name) for t in self.parts[site][1] if name in t.names]
        else:
            terms = self._terms_of[name]
        messages = (m for term in terms for m in term.message(name, statistics, memory))
        slopes, weight = self.gathered(name, messages, now), self.weights[name]
        return {key: self._divided(name, s, weight, now[key]).to(now[key].dtype) for key, s in slopes.items()}

    def _divided(self, name: str, slope: Tensor, weight: Tensor, now: Tensor) -> Tensor:
        """The slope over the site's own weight."""
        if not weight.dim():
            return slope if float(weight) == 1 else now if float(weight) == 0 else slope / weight
        batch = self.families[name].batch_shape
        along = weight.expand(batch).reshape(*batch, *[1] * (slope.dim() - len(batch)))
        hidden = along == 0
        return torch.where(hidden, now, slope / torch.where(hidden, torch.ones_like(along), along))

    def entropy(self, name: str, natural: Natural, means: Statistics) -> Tensor:
        """The weighted entropy of a factor."""
        family, weight = self.families[name], self.weights[name]
        entropy = family.entropy(natural, means)
        if not weight.dim():
            return weight * entropy.sum() if float(weight) != 0 else torch.zeros(())
        batch = family.batch_shape
        along = weight.expand(batch).reshape(*batch, *[1] * (len(family.shape) - len(batch)))
        for d in family.joint:
            along = along.select(d, 0).unsqueeze(d)
        along = along.expand(entropy.shape)
        return torch.where(along == 0, torch.zeros_like(entropy), entropy * along).sum()


class _Sum:
    """Messages to one statistic, added up; those of one layout first, so that large tensors are passed over once."""

    def __init__(self, shape: torch.Size) -> None:
        self.shape = shape
        self._laid: dict[Any, tuple[Tensor, Message, bool]] = {}  # a sum, its layout, and whether it is ours

    def add(self, message: Message) -> None:
        """Adds a message to those of the same layout."""
        key = None if message.kept is None else (frozenset(message.kept), tuple(map(id, message.entries or ())))
        known = self._laid.get(key)
        if known is None:
            self._laid[key] = (message.slope, message, message.fresh)
            return
        before, first, ours = known
        if first.kept is not None and message.kept != first.kept:
            order = [message.kept.index(i) for i in first.kept]  # type: ignore[union-attr]
            message = message._replace(slope=message.slope.permute(order))
        total, _ = _added(before, ours, message.slope, message.fresh)
        self._laid[key] = (total, first, True)

    def result(self, like: Tensor) -> Tensor:
        """The sum, of the statistic's shape."""
        parts: list[tuple[Tensor, bool]] = []
        scattered: Tensor | None = None
        for slope, message, ours in self._laid.values():
            own, kept, entries = message.own, message.kept, message.entries
            if kept is None or own is None or entries is None:
                parts.append((slope, ours))
            elif all(isinstance(e, Index) for e in entries) and len(set(own)) == len(entries):
                parts.append((laid_along(slope, kept, own), ours))  # broadcast later: of size one where it is constant
            else:
                whole = laid_along(slope, kept, own).expand([i.size for i in own])
                scattered = put(whole, own, entries, self.shape, scattered)
        if scattered is not None:
            parts.append((scattered, True))
        if not parts:
            return torch.zeros((), dtype=like.dtype).expand(self.shape)
        parts.sort(key=lambda part: part[0].numel())  # the small ones first, so that large tensors are passed over once
        out, ours = parts[0]
        for part, also_ours in parts[1:]:
            out, ours = _added(out, ours, part, also_ours)
        return out.expand(self.shape) if out.shape != self.shape else out


def _added(a: Tensor, a_is_ours: bool, b: Tensor, b_is_ours: bool) -> tuple[Tensor, bool]:
    """The sum, written to one of the two where that is allowed: new memory costs more than the addition."""
    if not a.requires_grad and not b.requires_grad:
        shape = torch.broadcast_shapes(a.shape, b.shape)
        if a_is_ours and shape == a.shape:
            return a.add_(b), True
        if b_is_ours and shape == b.shape:
            return b.add_(a), True
    return a + b, True


def compile_program(
    sites: Sequence[Site],
    coupled: Mapping[str, Collection[int]] | None = None,
    covered: Collection[str] = (),
    groups: Sequence[Sequence[str]] = (),
) -> Program:
    """The program of a symbolic run.

    Args:
        sites: of the run.
        coupled: dimensions that are joint already, by variable.
        covered: sites whose densities are left out, since a fused rule computes them.
        groups: sites that have one factor together; see `find_groups`.

    Raises:
        Refused: with the variables whose statistics do not suffice.
    """
    terms = {site.name: site_terms(site) for site in sites if site.name not in covered}
    joint = {site.name: set((coupled or {}).get(site.name, ())) for site in sites if site.variable is not None}
    for _, parts in terms.values():
        for variable, request in (r for t in parts for r in all_requests(t)):
            joint[variable.name] |= request.couples
    variables = {site.name: site.variable for site in sites if site.variable is not None}
    families = {name: v.family(v, frozenset(joint[name])) for name, v in variables.items()}
    weights = {site.name: site.weight for site in sites if site.variable is not None}
    for name, family in families.items():
        _check_weight(family, weights[name])
    dtype = torch.get_default_dtype()
    for v in variables.values():
        dtype = torch.promote_types(dtype, v.dtype) if v.dtype.is_floating_point else dtype
    units, unit_weights = dict(families), dict(weights)
    every = [t for _, parts in terms.values() for t in parts]
    for names in groups:
        group, weight = make_group([s for s in sites if s.name in names], families, every)
        for name in names:
            del units[name], unit_weights[name]
        unit = f"{', '.join(names)} together"
        units[unit], unit_weights[unit] = group, weight
    factors = FactorTable(units)
    compiled = {
        name: (plain, [CompiledTerm(t, factors, (), dtype) for t in parts]) for name, (plain, parts) in terms.items()
    }
    return Program(units, compiled, unit_weights)


def _check_weight(family: Family, weight: Tensor) -> None:
    """Members with one factor together must have one weight."""
    if not weight.dim() or not family.joint:
        return
    along = weight.expand(family.batch_shape)
    for d in family.joint:
        if d < along.dim() and not bool((along == along.select(d, 0).unsqueeze(d)).all()):
            raise Refused({family.variable}, "its members are coupled and have different scales or masks")


def _density(site: Site) -> Any:
    """A site's log density; where it fails, because of the variables in it."""
    try:
        with pyro.validation_enabled(False):
            return log_density(site.fn, site.value)
    except Refused:
        raise
    except Exception as error:
        involved = variables_in(randoms_of([site.fn, site.value]))
        if not involved:
            raise
        raise Refused(involved, f"the log density of {site.name} fails on it ({reason_of(error)})") from error


def _hidden_left_out(density: Random, weight: Tensor) -> Random:
    """The density in the shape of the weight; constants that a mask hides are zero, as they may be no numbers."""
    (density, along), dims, shape = align(density, weight)
    if bool((weight != 0).all()):
        return density
    laid, indices = lifted_values(along, [i for i in dims if i is not None]), [i for i in dims if i is not None]
    carried = [d for d in range(len(indices)) if laid.shape[d] > 1]
    mask, own = laid.squeeze() == 0, [indices[d] for d in carried]

    def visible(c: Constant) -> Constant:
        if not set(own) <= set(c.indices) or bool(torch.isfinite(c.tensor).all()):
            return c
        return Constant(c.tensor.masked_fill(laid_along(mask, own, c.indices), 0), c.indices)

    terms = [t._replace(constants=tuple(map(visible, t.constants))) for t in density.terms or ()]
    return Random.make(shape, dims, terms, density.selections, dtype=density.dtype)


def site_terms(site: Site) -> tuple[Tensor, tuple[Term, ...]]:
    """A site's weighted, summed expected log density: a plain number and terms."""
    density, weight = _density(site), site.weight
    if not isinstance(density, Random):
        whole = density * weight
        return (torch.where(weight == 0, 0.0, whole) if weight.dim() else whole).sum(), ()
    if density.terms is None:
        why = density.blame or dict.fromkeys(density.variables, "only its logarithm has an expectation")
        raise Refused(why)
    if weight.dim():
        density = _hidden_left_out(density, weight)
    whole = total(multiply(density, float(weight) if not weight.dim() else weight))
    terms = list(whole.terms or ())
    for s in whole.selections:  # choices outside of any plate
        terms = [product(t, Term(1.0, (), (s.chosen(),))) for t in terms]
    return torch.zeros(()), tuple(summed(t, (), set()) for t in terms if not is_zero(t))
