"""Gibbs sampling of any Pyro model, from the same structure as its closed forms: a kernel for `pyro.infer.MCMC`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel
from torch import Tensor

from pyro_prme.conjugacy import Program, Structure, find_groups, find_structure
from pyro_prme.conjugacy.conditionals import conditional, without_augmentation
from pyro_prme.conjugacy.families import Group, Statistics
from pyro_prme.conjugacy.tracing import numeric_run
from pyro_prme.inference.gibbs_steps import GradientStep, ValueStep, weight_of_draws
from pyro_prme.inference.session import alone, evaluating

__all__ = ["Gibbs"]


class Gibbs(MCMCKernel):
    """Gibbs sampling: each site in turn from its complete conditional given all others.

    Sites whose complete conditionals are in an exponential family are drawn from them exactly: their natural parameters
    are the derivative of the expected log joint at the values of the others. Logarithms of sums are made linear by
    exact auxiliary draws, not bounded as in `ClosedFormGuide`. Other continuous sites move together by a NUTS step
    within each sweep, other discrete sites are drawn value by value, one member after the other.

    .. code-block:: python

        mcmc = MCMC(prme.Gibbs(model), num_samples=1000, warmup_steps=100)
        mcmc.run(x)
        mcmc.get_samples()["mu"]

    Apply handlers (`condition`, `scale`, ...) to the model first. `MCMC` keeps all draws in one floating type;
    `typed` gives discrete sites their own type back, with which `Predictive` can index.

    Args:
        model: a Pyro model. All its data are needed: a subsampled plate is an error.
        leave: sites that are not to be drawn from their conditional, but by NUTS or value by value.
        max_tree_depth: of the NUTS step.
        target_accept_prob: of the NUTS step, whose size adapts during the warm-up.
    """

    def __init__(
        self,
        model: Callable,
        *,
        leave: Collection[str] = (),
        max_tree_depth: int = 5,
        target_accept_prob: float = 0.8,
    ) -> None:
        self.model = model
        self._leave = {name: "another step was asked for" for name in leave}
        self._nuts = {"max_tree_depth": max_tree_depth, "target_accept_prob": target_accept_prob}
        self._structure: Structure | None = None
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._initial: dict[str, Tensor] | None = None
        self.transforms: dict[str, Any] = {}  # MCMC asks for them: the values are those of the model

    @property
    def structure(self) -> Structure:
        """What was found in the model, once sampling has begun."""
        if self._structure is None:
            raise ValueError("Nothing is known of the model yet: run MCMC first, or call setup with its arguments.")
        return self._structure

    @property
    def updates(self) -> dict[str, str]:
        """How each latent site is drawn, in words."""
        structure, out = self.structure, {}
        for name in structure.sites:
            if name in structure.families:
                others = next((len(g) - 1 for g in self._groups if name in g), 0)
                with_them = f", together with {others} other{'s' if others > 1 else ''}" if others else ""
                out[name] = f"exact, {structure.families[name].title}{with_them}"
            elif name not in structure.observed:
                way = "value by value" if name in self._values else "NUTS"
                out[name] = f"{way}: {structure.refusals[name]}"
        return out

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Finds the structure and draws where to start; `MCMC` calls it.

        Raises:
            ValueError: a site cannot be sampled, with the reason.
        """
        self._args, self._kwargs = args, kwargs
        with alone(), evaluating(self.model):
            self._structure = structure = self._find(args, kwargs)
            self._groups = find_groups(structure, structure.closed).groups
            weights = {name: weight_of_draws(structure.trace.nodes[name]) for name in structure.closed}
            self._fixed = {name: weight == 0 for name, weight in weights.items() if not bool(weight.all())}
            start = numeric_run(self.model, args, kwargs, {})
            drawn: dict[str, Any] = {n: start.nodes[n]["value"] for n in (*structure.closed, *structure.open)}
            drawn |= self._given(drawn)
            self._initial = {
                n: structure.families[n].inside(v) if n in structure.families else v for n, v in drawn.items()
            }
            discrete = [n for n in structure.open if structure.trace.nodes[n]["fn"].support.is_discrete]
            self._values = {name: ValueStep(self.model, args, kwargs, name, structure) for name in discrete}
            moved = [name for name in structure.open if name not in discrete]
            self._gradients = None
            if moved:
                self._gradients = GradientStep(self.model, args, kwargs, moved, warmup_steps, self._nuts, drawn)
            self._points: dict[str, Statistics] = {}
            self._program: Program | None = None

    def _find(self, args: tuple, kwargs: Mapping[str, Any]) -> Structure:
        """The structure, without the sites whose sums cannot be made linear."""
        leave = dict(self._leave)
        while True:
            structure = find_structure(self.model, args, kwargs, leave=leave)
            unknown = [name for name in self._leave if name not in structure.sites or name in structure.observed]
            if unknown:
                raise ValueError(f"leave names {unknown[0]!r}, which is not a latent site of the model.")
            at = {name: family.at_point(structure.value(name)) for name, family in structure.families.items()}
            lost = without_augmentation(structure.program, at)
            if not lost:
                return structure
            leave |= lost

    def typed(self, samples: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Draws in the types that the sites have in the model: whole numbers for a Categorical."""
        types = {name: self.structure.value(name).dtype for name in samples}
        return {name: value.to(types[name]) for name, value in samples.items()}

    def _given(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Values to start from that were given, in the type and shape of the site."""
        given = self._initial or {}
        for name, value in given.items():
            if name not in drawn:
                raise ValueError(f"initial_params has {name!r}, which is not a latent site of the model.")
            if value.shape != drawn[name].shape:
                raise ValueError(
                    f"initial_params has shape {tuple(value.shape)} for site {name}: it must be "
                    f"{tuple(drawn[name].shape)}."
                )
        return {name: value.to(drawn[name].dtype) for name, value in given.items()}

    @property
    def initial_params(self) -> dict[str, Tensor]:
        """The values that a chain starts from: a draw from the prior, unless others are set."""
        return _floating(self._initial or {})

    @initial_params.setter
    def initial_params(self, params: Mapping[str, Tensor]) -> None:
        self._initial = dict(params)

    @torch.no_grad()
    def sample(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One sweep over all sites."""
        with alone(), evaluating(self.model):
            values = self.typed(params)
            for unit in dict.fromkeys(map(self._program_at(values).unit_of, self.structure.closed)):
                values |= self._draw(unit, values)
            for name, step in self._values.items():
                values[name] = step(values)
            if self._gradients is not None:
                values |= self._gradients(values)
            if self.structure.open:
                self._program = None  # its constants are functions of what has moved
            return _floating(values)

    def _draw(self, unit: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A site, or sites with one conditional together, from the complete conditional."""
        program = self._program_at(values)
        family, names = program.families[unit], program.sites_of(unit)
        natural = conditional(program, unit, self._points)
        if isinstance(family, Group):
            self._check(family.holds(natural), unit)
            drawn = family.drawn(natural)
            for name in names:
                if name in self._fixed:  # members without a density stay as they are
                    stays = _along(self._fixed[name], self.structure.families[name].batch_shape, drawn[name])
                    drawn[name] = torch.where(stays, values[name], drawn[name])
            self._points[unit] = family.at_values(drawn)
            return drawn
        hidden = self._fixed.get(unit)
        if hidden is not None:
            held = family.start(values[unit])
            laid = {key: _along(hidden, family.batch_shape, part) for key, part in natural.items()}
            natural = {key: torch.where(laid[key], held[key], part) for key, part in natural.items()}
        self._check(family.holds(natural), unit)
        value = family.draw(natural)
        if hidden is not None:
            value = torch.where(_along(hidden, family.batch_shape, value), values[unit], value)
        self._points[unit] = family.at_point(value)
        return {unit: value}

    @staticmethod
    def _check(holds: bool, unit: str) -> None:
        if not holds:
            raise ValueError(
                f"The complete conditional of {unit} is not a proper distribution: give it a prior that is proper, or "
                "start from values that the model allows."
            )

    def _program_at(self, values: Mapping[str, Tensor]) -> Program:
        """The expected log joint with the open sites at their values, and the statistics of the closed ones."""
        if self._program is None:
            structure = self.structure
            others = {name: values[name] for name in structure.open}
            if others:
                self._program = structure.rebuilt(self._args, self._kwargs, others, self._groups)
            else:
                self._program = structure.grouped(self._groups) if self._groups else structure.program
            self._points = dict(self._program.at_values(values))
        return self._program

    def end_warmup(self) -> None:
        if self._gradients is not None:
            self._gradients.end_warmup()

    def logging(self) -> OrderedDict[str, str]:
        """The NUTS step's size and acceptance, where there is one."""
        return OrderedDict() if self._gradients is None else self._gradients.logging()

    def diagnostics(self) -> dict[str, Any]:
        """Divergent sweeps of the NUTS step; none where all is exact."""
        return {"divergences": []} if self._gradients is None else self._gradients.diagnostics()

    def cleanup(self) -> None:
        self._initial, self._program, self._points = None, None, {}


def _floating(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values in floating types, in which `MCMC` can stack them and compute diagnostics."""
    dtype = torch.get_default_dtype()
    return {name: value if value.is_floating_point() else value.to(dtype) for name, value in values.items()}


def _along(weight: Tensor, batch: torch.Size, value: Tensor) -> Tensor:
    """Something known for each member of a batch, laid along a tensor that has more dimensions behind it."""
    return weight.expand(batch).reshape([*batch, *[1] * (value.dim() - len(batch))])
