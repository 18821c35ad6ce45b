r"""The expected log joint of a model, :math:`F(\mu) = E_q \ln p`, as contractions of constants with mean parameters.

Its gradient in the mean parameters of one factor is the natural parameter of that factor's optimum, prior and all
messages, plates, scales and masks included: :math:`\eta_i \leftarrow \partial F / \partial \mu_i`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyro
import torch
from torch import Tensor

from pyro_prme.conjugacy.contraction import Memory, contract
from pyro_prme.conjugacy.densities import log_density, randoms_of
from pyro_prme.conjugacy.families import Family, Natural, Request, Statistics
from pyro_prme.conjugacy.indices import Index, Indices, indices_of, laid_along, put, take, taken_indices
from pyro_prme.conjugacy.operations.arithmetic import multiply
from pyro_prme.conjugacy.operations.reductions import total
from pyro_prme.conjugacy.random_tensor import Random, align, lifted_values, variables_in
from pyro_prme.conjugacy.refusal import Refused, reason_of
from pyro_prme.conjugacy.terms import Constant, LogSum, Term, is_zero, product, summed, term_variables
from pyro_prme.conjugacy.tracing import Site
from pyro_prme.conjugacy.variables import Variable

__all__ = ["Program", "compile_program", "site_terms"]

_DENSE = (
    1_000_000  # numbers; constants are contracted with each other up to this size even where that makes them larger
)

#: Statistics whose expectation is never negative.
_NEVER_NEGATIVE = ("chosen", "x", "inverse")


class Operand(NamedTuple):
    """A statistic in a term: whose, which, and where."""

    name: str
    statistic: str
    entries: tuple[Any, ...]
    key: tuple[Any, ...]


class CompiledTerm:
    """One term as a contraction; constants that no statistic touches are contracted once.

    Args:
        term: the term.
        families: by name of the variable.
        kept: indices of the result that the constants must keep, for a term inside of a bound.
        dtype: in which constants and statistics are taken.
    """

    def __init__(self, term: Term, families: Mapping[str, Family], kept: Iterable[Index], dtype: torch.dtype) -> None:
        self.term, self.coefficient, self.dtype = term, term.coefficient, dtype
        self.operands = [_operand(families[variable.name], request) for variable, request in requests_of(term)]
        live = {i for o in self.operands for i in indices_of(o.entries)} | {i for b in term.bounds for i in b.indices}
        constants = [Constant(c.tensor.to(dtype), c.indices) for c in term.constants]
        self.constants = _contracted(constants, live | set(kept))
        self.bounds = [CompiledBound(b, families, dtype) for b in term.bounds]
        self.names = {v.name for v in term_variables(term)}
        self.has_gradient = has_gradient(term)
        self._keys: list[Any] = [("constant", id(c.tensor)) for c in self.constants] + [o.key for o in self.operands]
        if self.bounds:
            self._check_sign(term, families)

    def _check_sign(self, term: Term, families: Mapping[str, Family]) -> None:
        """A bound needs a coefficient whose sign is known: constants, indicators and positive statistics."""
        variables = term_variables(term)
        signed = [o for o in self.operands if o.statistic not in _NEVER_NEGATIVE or not _never_negative(o, families)]
        if len(self.bounds) > 1 or signed:
            raise Refused(variables, "the logarithm of a sum times something of unknown sign")
        twice = term_variables(term._replace(factors=())) & {f.variable for f in term.factors}
        if twice:  # the expectation of such a product is not that of its parts
            raise Refused(twice, "it multiplies the logarithm of a sum that it is in")
        below = [bool((c.tensor < 0).any()) for c in self.constants]
        if len(below) == 1:
            negative = bool((self.constants[0].tensor * self.coefficient < 0).any())
        else:
            negative = self.coefficient < 0 or any(below)
        if negative and self.bounds[0].upper is None:
            raise Refused(variables, "the logarithm of a sum with a negative weight")

    def taken(self, statistics: Mapping[str, Statistics]) -> list[tuple[Tensor, Indices]]:
        """Constants and statistics with the names of their dimensions."""
        found: list[tuple[Tensor, Indices]] = [(c.tensor, c.indices) for c in self.constants]
        return found + [self._take(o, statistics) for o in self.operands]

    def _take(self, operand: Operand, statistics: Mapping[str, Statistics]) -> tuple[Tensor, Indices]:
        return take(statistics[operand.name][operand.statistic].to(self.dtype), operand.entries)

    def value(self, statistics: Mapping[str, Statistics], out: Sequence[Index], memory: Memory | None) -> Tensor:
        """The term, summed over all indices but those of the result that it carries."""
        operands = self.taken(statistics)
        if not self.bounds:
            return _scaled_product(self.coefficient, operands, tuple(out), memory, self._keys)
        bound = self.bounds[0]
        carried = tuple(dict.fromkeys(i for _, own in operands for i in own))
        weight = self.coefficient * (contract(operands, carried) if operands else torch.ones(()))
        return sum(
            (contract([(part, carried), (side, bound.indices)], out) for part, side in bound.sides(weight, statistics)),
            start=torch.zeros(()),
        )

    def message(self, name: str, statistics: Mapping[str, Statistics], memory: Memory | None) -> list[Message]:
        """The derivative in each statistic of a variable: the contraction of all the other operands."""
        if self.bounds:
            return self._message_through_bound(name, statistics)
        fixed: list[tuple[Tensor, Indices]] = [(c.tensor, c.indices) for c in self.constants]
        taken = {n: self._take(o, statistics) for n, o in enumerate(self.operands) if o.name != name}
        out = []
        for n, operand in enumerate(self.operands):
            if operand.name != name:
                continue
            for m, twin in enumerate(self.operands):
                if twin.name == name and m != n and m not in taken:
                    taken[m] = self._take(twin, statistics)
            others = [m for m in range(len(self.operands)) if m != n]
            rest = fixed + [taken[m] for m in others]
            keys = self._keys[: len(fixed)] + [self._keys[len(fixed) + m] for m in others]
            own = taken_indices(operand.entries)
            carried = {i for _, indices in rest for i in indices}
            kept = tuple(i for i in own if i in carried)
            slope = _scaled_product(self.coefficient, rest, kept, memory, keys)
            out.append(Message(operand.statistic, slope, kept, own, operand.entries))
        return out

    def _message_through_bound(self, name: str, statistics: Mapping[str, Statistics]) -> list[Message]:
        own = {key: value.detach().requires_grad_() for key, value in statistics[name].items()}
        with torch.enable_grad():
            value = self.value({**statistics, name: own}, (), None)
            slopes = torch.autograd.grad(value, list(own.values()), allow_unused=True)
        return [
            Message(key, slope, None, None, None) for key, slope in zip(own, slopes, strict=True) if slope is not None
        ]


def _scaled_product(
    coefficient: float, operands: list[tuple[Tensor, Indices]], out: Indices, memory: Memory | None, keys: list[Any]
) -> Tensor:
    """A contraction times a number, which is multiplied into whatever is smaller: an operand or the result."""
    if coefficient == 1 or not operands:
        return contract(operands, out, memory=memory, keys=keys) * coefficient
    size = math.prod(i.size for i in out)
    small = min(range(len(operands)), key=lambda n: operands[n][0].numel())
    if operands[small][0].numel() >= size:
        return contract(operands, out, memory=memory, keys=keys) * coefficient
    tensor, own = operands[small]
    scaled = [*operands[:small], (tensor * coefficient, own), *operands[small + 1 :]]
    return contract(scaled, out)


class Message(NamedTuple):
    """A derivative in a statistic.

    Args:
        statistic: which.
        slope: laid along `kept`; along the statistic's own dimensions where that is None.
        kept: names of the slope's dimensions.
        own: names that the statistic had in the term; the slope is constant along those that are not kept.
        entries: where in the statistic.
    """

    statistic: str
    slope: Tensor
    kept: Indices | None
    own: Indices | None
    entries: tuple[Any, ...] | None


class CompiledBound:
    r"""Both sides of E ln of a sum of positive monomials m.

    .. math:: \ln \sum_m \exp E \ln m \;\le\; E \ln \sum_m m \;\le\; \ln \sum_m E m

    The left one is used where the coefficient is positive, the right one where it is negative; both are tight at
    points.
    """

    def __init__(self, bound: LogSum, families: Mapping[str, Family], dtype: torch.dtype) -> None:
        self.indices = bound.indices
        self.logs = [
            ([CompiledTerm(t, families, (*own, *bound.indices), dtype) for t in terms], own)
            for terms, own in bound.logs
        ]
        self.upper: list[CompiledTerm] | None = None
        if bound.terms:
            try:
                self.upper = [CompiledTerm(t, families, bound.indices, dtype) for t in bound.terms]
            except Refused:
                self.upper = None

    def sides(self, weight: Tensor, statistics: Mapping[str, Statistics]) -> list[tuple[Tensor, Tensor]]:
        """Parts of the coefficient, each with the side of the bound that it asks for."""
        if bool((weight >= 0).all()):
            return [(weight, self._from_below(statistics))]
        if bool((weight <= 0).all()):
            return [(weight, self._from_above(statistics))]
        below, above = self._from_below(statistics), self._from_above(statistics)
        return [(weight.clamp(min=0), below), (weight.clamp(max=0), above)]

    def _from_below(self, statistics: Mapping[str, Statistics]) -> Tensor:
        parts = []
        for terms, own in self.logs:
            logs = _dense(terms, (*own, *self.indices), statistics)
            parts.append(logs.logsumexp(tuple(range(len(own)))) if own else logs)
        return parts[0] if len(parts) == 1 else torch.stack(torch.broadcast_tensors(*parts)).logsumexp(0)

    def _from_above(self, statistics: Mapping[str, Statistics]) -> Tensor:
        if self.upper is None:
            raise ValueError("A bound from above was asked of a sum whose parts have no expectations.")
        return _dense(self.upper, self.indices, statistics).log()


def _dense(terms: Sequence[CompiledTerm], indices: Indices, statistics: Mapping[str, Statistics]) -> Tensor:
    """The sum of terms, laid along indices."""
    out = torch.zeros(())
    for term in terms:
        carried = {i for _, own in term.taken(statistics) for i in own} | {i for b in term.bounds for i in b.indices}
        kept = tuple(i for i in indices if i in carried)
        out = out + laid_along(term.value(statistics, kept, None), kept, indices)
    return out.expand([i.size for i in indices])


def has_gradient(term: Term) -> bool:
    """Whether a gradient passes through a constant of the term."""
    inside = (t for b in term.bounds for terms, _ in b.logs for t in terms)
    return any(c.tensor.requires_grad for c in term.constants) or any(has_gradient(t) for t in inside)


def requests_of(term: Term) -> list[tuple[Variable, Request]]:
    """The statistics that a term asks for."""
    by_variable: dict[Variable, list[Any]] = {}
    for f in term.factors:
        by_variable.setdefault(f.variable, []).append(f)
    return [(v, r) for v, factors in by_variable.items() for r in v.family.requests(v, factors)]


def all_requests(term: Term) -> list[tuple[Variable, Request]]:
    """Those of a term and of all terms inside of its bounds."""
    found = requests_of(term)
    for bound in term.bounds:
        for terms, _ in bound.logs:
            found += [request for t in terms for request in all_requests(t)]
    return found


def _operand(family: Family, request: Request) -> Operand:
    entries = family.operand_entries(request)
    name = family.variable.name
    return Operand(name, request.statistic, entries, (name, request.statistic, *(id(e) for e in entries)))


def _never_negative(operand: Operand, families: Mapping[str, Family]) -> bool:
    family = families[operand.name]
    return family.discrete or family.positive


def _contracted(constants: Sequence[Constant], live: set[Index]) -> list[Constant]:
    """Constants with the indices that only they carry summed out, unless that makes them larger."""
    dead = {i for c in constants for i in c.indices} - live
    groups: list[list[Constant]] = []
    for c in constants:
        joined = [g for g in groups if any(set(c.indices) & set(d.indices) & dead for d in g)]
        groups = [g for g in groups if not any(g is other for other in joined)]
        groups.append([*(d for g in joined for d in g), c])
    out: list[Constant] = []
    for group in groups:
        indices = tuple(dict.fromkeys(i for c in group for i in c.indices))
        kept = tuple(i for i in indices if i not in dead)
        size = math.prod(i.size for i in kept)
        if len(kept) < len(indices) and size <= max(_DENSE, sum(c.tensor.numel() for c in group)):
            out.append(Constant(contract([(c.tensor, c.indices) for c in group], kept), kept))
        else:
            out += group
    return out


class Program:
    """The expected log joint of one run, site by site.

    Args:
        families: by name of the variable.
        parts: by site, a plain number and the terms.
        weights: by variable, scale times mask of its site.
    """

    def __init__(
        self,
        families: Mapping[str, Family],
        parts: Mapping[str, tuple[Tensor, list[CompiledTerm]]],
        weights: Mapping[str, Tensor],
    ) -> None:
        self.families, self.parts, self.weights = families, parts, weights
        self._memory = Memory()
        self._terms_of: dict[str, list[CompiledTerm]] = {name: [] for name in families}
        for _, terms in parts.values():
            for term in terms:
                for name in term.names:
                    self._terms_of[name].append(term)

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

    def children(self, name: str) -> list[str]:
        """Sites other than its own in whose density a variable occurs."""
        return [s for s, (_, terms) in self.parts.items() if s != name and any(name in t.names for t in terms)]

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
        sums: dict[str, _Sum] = {key: _Sum(value.shape) for key, value in now.items()}
        for term in self.parts[name][1] if own else self._terms_of[name]:
            for message in term.message(name, statistics, memory) if name in term.names else ():
                sums[message.statistic].add(message)
        weight = self.weights[name]
        slopes = {key: part.result(now[key]) for key, part in sums.items()}
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
        self._laid: dict[Any, tuple[Tensor, Message]] = {}

    def add(self, message: Message) -> None:
        """Adds a message to those of the same layout."""
        key = None if message.kept is None else (frozenset(message.kept), tuple(map(id, message.entries or ())))
        known = self._laid.get(key)
        if known is None:
            self._laid[key] = (message.slope, message)
            return
        before, first = known
        if first.kept is not None and message.kept != first.kept:
            order = [message.kept.index(i) for i in first.kept]  # type: ignore[union-attr]
            message = message._replace(slope=message.slope.permute(order))
        self._laid[key] = (before + message.slope, first)

    def result(self, like: Tensor) -> Tensor:
        """The sum, of the statistic's shape."""
        parts = [self._placed(slope, message) for slope, message in self._laid.values()]
        if not parts:
            return torch.zeros((), dtype=like.dtype).expand(self.shape)
        parts.sort(key=lambda part: -part.numel())
        out = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        for part in parts[2:]:
            within = not out.requires_grad and torch.broadcast_shapes(out.shape, part.shape) == out.shape
            out = out.add_(part) if within else out + part
        return out.expand(self.shape) if out.shape != self.shape else out

    def _placed(self, slope: Tensor, message: Message) -> Tensor:
        if message.kept is None or message.own is None or message.entries is None:
            return slope
        own, kept = message.own, message.kept
        plain = all(isinstance(e, Index) for e in message.entries) and len(set(own)) == len(message.entries)
        if plain:  # broadcast later: dimensions of size one where the slope is constant
            return laid_along(slope, kept, own)
        whole = laid_along(slope, kept, own).expand([i.size for i in own])
        return put(whole, own, message.entries, self.shape)


def compile_program(
    sites: Sequence[Site],
    coupled: Mapping[str, Collection[int]] | None = None,
    covered: Collection[str] = (),
) -> Program:
    """The program of a symbolic run.

    Args:
        sites: of the run.
        coupled: dimensions that are joint already, by variable.
        covered: sites whose densities are left out, since a fused rule computes them.

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
    compiled = {
        name: (plain, [CompiledTerm(t, families, (), dtype) for t in parts]) for name, (plain, parts) in terms.items()
    }
    return Program(families, compiled, weights)


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
