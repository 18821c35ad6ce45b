"""Closed forms of every family, found by the engine: one rule for all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.conjugacy import Factors, Structure, find_groups
from pyro_prme.conjugacy.families import Family, Group, Natural
from pyro_prme.inference.claims import Claim, Refusal, Rule
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.starts import prior_factor

if TYPE_CHECKING:
    from pyro_prme.inference.run import Run

__all__ = ["Conjugate", "ConjugateFactors", "LocalFactor"]


_MOST_SWEEPS = 50  # over the sites of a batch, if nothing else is asked for


class LocalFactor(NamedTuple):
    """A factor of a site of a batch.

    Args:
        natural: its natural parameters.
        own: what of them the site's own density asked for.
    """

    natural: Natural
    own: Natural


class Conjugate(Rule):
    """Claims every free site whose complete conditional is in an exponential family.

    Discrete sites that terms multiply, such as the states of a chain, have one factor together, and so have Normal
    ones: see `find_groups`.

    Args:
        each_batch: sites that belong to a batch, beside those of subsampled plates: their factors are not kept. The
            tokens of a batch, say, have a plate of their own.
        together: whether sites have factors together; if not, each has one of its own.
    """

    def __init__(self, each_batch: Collection[str] = (), *, together: bool = True) -> None:
        self.each_batch, self.together = frozenset(each_batch), together

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        names = [name for name in free if name in structure.closed]
        if not names:
            return Refusal({name: structure.refusals.get(name, "it has no closed form") for name in free})
        return ConjugateFactors(structure, names, self.each_batch, together=self.together)


class ConjugateFactors(Claim):
    """Natural parameters of closed sites: global ones are kept, those of a batch's members are solved in each run.

    They are held by unit, which is a site, or several sites with one factor together.

    Args:
        structure: of the model.
        names: of the sites.
        each_batch, together: see `Conjugate`.
    """

    def __init__(
        self, structure: Structure, names: Sequence[str], each_batch: Collection[str] = (), *, together: bool = True
    ) -> None:
        super().__init__()
        self.sites = tuple(names)
        self.groups: tuple[tuple[str, ...], ...] = ()
        apart: dict[str, str] = {}
        for part in ([n for n in names if n not in each_batch], [n for n in names if n in each_batch]):
            if together and len(part) > 1:
                found = find_groups(structure, part)
                self.groups += found.groups
                apart |= found.apart
        program = structure.grouped(self.groups) if self.groups else structure.program
        self.families = program.families
        self.unit_of = {name: program.unit_of(name) for name in names}
        self.units = tuple(dict.fromkeys(self.unit_of.values()))
        own = structure.families
        inside = {n for n in names if own[n].variable.subsampled or n in each_batch}
        self.local = tuple(dict.fromkeys(self.unit_of[n] for n in names if n in inside))
        self.kept = tuple(unit for unit in self.units if unit not in self.local)
        self._titles = {n: self._title_of(own[n], self.families[self.unit_of[n]], n in inside) for n in names}
        self._titles |= {n: f"{self._titles[n]}, apart from {why}" for n, why in apart.items()}
        self.family_of = {unit: type(self.families[unit]) for unit in self.units}
        self._layout = {unit: tuple(self.families[unit].empty()) for unit in self.units}
        for place, unit in enumerate(self.kept):
            for key, value in self.families[unit].empty().items():
                self.register_buffer(f"natural_{place}_{key}", value)
        self._pending: dict[str, dict[str, Tensor]] = {}

    @staticmethod
    def _title_of(own: Family, factor: Family, local: bool) -> str:
        size = getattr(own, "joint_size", 1) if own.joint else 1
        joint = f", joint over {size}" if size > 1 else ""
        if isinstance(factor, Group):
            joint = f", joint over {len(factor.sites)} sites"
        where = ", for each batch" if local else ""
        return f"closed form, {own.title}{joint}{where}"

    def title(self, name: str) -> str:
        return self._titles[name]

    def factor(self, name: str, run: Run) -> Distribution:
        return run.factors.posterior(name)

    def posterior(self, name: str) -> Distribution:
        """The factor of a site of a kept unit; of one among several, its marginal."""
        unit = self.unit_of[name]
        family = self.families[unit]
        natural = self.natural(unit)
        return family.marginal(name, natural) if isinstance(family, Group) else family.distribution(natural)

    def natural(self, name: str) -> dict[str, Tensor]:
        """Natural parameters of a kept unit."""
        place = self.kept.index(name)
        return {key: getattr(self, f"natural_{place}_{key}") for key in self._layout[name]}

    def set_natural(self, name: str, natural: Natural) -> None:
        """Replaces the natural parameters of a kept unit."""
        place = self.kept.index(name)
        for key, value in natural.items():
            setattr(self, f"natural_{place}_{key}", value.detach().clone())

    @torch.no_grad()
    def gather(self, run: Run, share: float = 1.0) -> None:
        for name in self.kept:
            target = run.factors.target(name)
            pending = self._pending.get(name)
            self._pending[name] = {
                key: share * part if pending is None else pending[key] + share * part for key, part in target.items()
            }

    def pending_parts(self) -> dict[str, Tensor]:
        return {f"{name}.{key}": part for name, target in self._pending.items() for key, part in target.items()}

    def restore_pending(self, parts: Mapping[str, Tensor]) -> None:
        self._pending = {}
        for name, part in parts.items():
            site, _, key = name.rpartition(".")
            self._pending.setdefault(site, {})[key] = part

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        for name, target in self._pending.items():
            old = self.natural(name)
            self.set_natural(name, target if rate == 1 else {key: old[key].lerp(target[key], rate) for key in target})
        self._pending = {}

    @torch.no_grad()
    def solve(self, factors: Factors, options: RunOptions) -> dict[str, LocalFactor]:
        """Puts the factors of one run in place: kept ones as they are, local ones by sweeps until nothing moves.

        Returns:
            The local ones, by unit, for a later run to start from or to hold. What is held is the part of the others:
            a factor goes along with its own prior, as it does where a gradient step has moved that.
        """
        for name in self.kept:
            factors.natural[name] = self.natural(name)
        for name in self.local:
            given: LocalFactor | None = options.held.get(name) or options.started.get(name)
            factors.natural[name] = prior_factor(factors.program, name, factors) if given is None else given.natural
        if not self.local:
            return {}
        if not options.held:
            sweep_until_still(factors, self.local, options)
            return {name: LocalFactor(factors.natural[name], _own_prior(factors, name)) for name in self.local}
        moved = {name: (options.held[name], _own_prior(factors, name)) for name in self.local if name in options.held}
        for name, (held, own) in moved.items():
            natural = {key: part + own[key] - held.own[key] for key, part in held.natural.items()}
            if factors.program.families[name].holds(natural):
                factors.natural[name] = natural
        return {name: held for name, (held, _) in moved.items()}


def _own_prior(factors: Factors, name: str) -> dict[str, Tensor]:
    """What a site's own density asks of its factor."""
    empty = factors.program.families[name].empty()
    return factors.program.target(name, factors.statistics(), empty, own=True)


@torch.no_grad()
def sweep_until_still(factors: Factors, names: Sequence[str], options: RunOptions) -> int:
    """Sweeps over some sites until none of their natural parameters moves; returns the number of sweeps."""
    alone = not factors.program.coupled(names)
    most = options.sweeps or _MOST_SWEEPS
    for sweep in range(1, most + 1):
        before = {name: factors.natural[name] for name in names}
        factors.sweep(names)
        if alone or all(_still(before[name], factors.natural[name], options.tolerance) for name in names):
            return sweep
    return most


def _still(before: Mapping[str, Tensor], after: Mapping[str, Tensor], tolerance: float) -> bool:
    """Whether natural parameters have moved by less than the tolerance."""
    return all(
        bool(((after[key] - before[key]).abs() <= tolerance * after[key].abs().amax().clamp(min=1e-30)).all())
        for key in after
    )
