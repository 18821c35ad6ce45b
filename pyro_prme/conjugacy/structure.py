"""Which latent sites of a model have closed-form updates, why the others do not, and the proof that it is right.

The expected log joint F is multi-affine in the statistics, apart from bounded logarithms of sums. So it is right if it
equals the model's own log density where every factor is a point: that is checked, site by site, at random points.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyro
import torch
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from pyro_prme.conjugacy.families import Family, family_of
from pyro_prme.conjugacy.families.base import unwrapped
from pyro_prme.conjugacy.program import Program, compile_program
from pyro_prme.conjugacy.refusal import Refused, reason_of
from pyro_prme.conjugacy.tracing import AnotherForm, Site, is_model_site, numeric_run, symbolic_run
from pyro_prme.conjugacy.variables import Variable

__all__ = ["Structure", "batches_drawn", "find_structure"]

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}


class Structure(NamedTuple):
    """What was found in a model.

    Args:
        model, args, kwargs: the model and what it was called with.
        sites: names of its sample sites, in order.
        observed: names of those that are observed.
        closed: names of the latent sites with a closed form, in order.
        refusals: of the other latent sites, why.
        errors: by site, the largest relative difference of F at points from the model's own log density.
        priors: by site, the name of its distribution.
        trace: a run with all values drawn.
        program: the expected log joint; other sites have the values of the trace.
        run_sites: what the symbolic run of the program recorded.
    """

    model: Callable
    args: tuple
    kwargs: Mapping[str, Any]
    sites: tuple[str, ...]
    observed: frozenset[str]
    closed: tuple[str, ...]
    refusals: Mapping[str, str]
    errors: Mapping[str, float]
    priors: Mapping[str, str]
    trace: Any
    program: Program
    run_sites: tuple[Site, ...]

    @property
    def families(self) -> Mapping[str, Family]:
        """Of the sites with a closed form."""
        return self.program.families

    @property
    def open(self) -> tuple[str, ...]:
        """Names of the latent sites without a closed form."""
        return tuple(name for name in self.sites if name not in self.observed and name not in self.closed)

    def value(self, name: str) -> Tensor:
        """A site's value in the trace."""
        return self.trace.nodes[name]["value"]

    def rebuilt(
        self,
        args: tuple,
        kwargs: Mapping[str, Any],
        values: Mapping[str, Any],
        groups: Sequence[Sequence[str]] = (),
    ) -> Program:
        """The expected log joint on other data, with other values of the open sites.

        Args:
            args, kwargs: what the model is called with.
            values: of the open sites.
            groups: sites that have one factor together.

        Raises:
            ValueError: a site has no closed form there, or not the same one.
        """
        try:
            program, sites = _compiled(self.model, args, kwargs, frozenset(self.closed), values, _joint(self.program))
        except Refused as refused:
            why = ", ".join(f"{v.name}: {reason}" for v, reason in refused.why.items())
            raise ValueError(f"On these data there is no closed form any more ({why}).") from refused
        for name, family in self.families.items():
            if name not in program.families or type(program.families[name]) is not type(family):
                raise AnotherForm(f"On these data site {name} has another prior than where the structure was found.")
            if program.families[name].joint != family.joint:
                raise AnotherForm(
                    f"On these data members of site {name} are coupled that are not where the structure was found: "
                    "find it on data of which no coefficient is zero throughout."
                )
        return compile_program(sites, _joint(self.program), (), groups) if groups else program

    def grouped(self, groups: Sequence[Sequence[str]]) -> Program:
        """The expected log joint on the same data with one factor for each group of sites."""
        return compile_program(self.run_sites, _joint(self.program), (), groups)

    def rebuilt_without(self, covered: Collection[str]) -> Program:
        """The expected log joint on the same data without the densities of some sites."""
        joint = {name: family.joint for name, family in self.families.items()}
        return compile_program(self.run_sites, joint, covered)


def find_structure(
    model: Callable,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    leave: Mapping[str, str] | None = None,
    draws: int = 2,
) -> Structure:
    """Finds the closed forms of a model from one run on random tensors, and checks them at random points.

    Args:
        model: any Pyro model.
        args, kwargs: what it is called with.
        leave: sites that are to have another posterior, with the reason.
        draws: at how many random points F is compared with the model's log density.

    Raises:
        ValueError: the model's density is not a function of its sites.
    """
    kwargs = kwargs or {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trace = numeric_run(model, args, kwargs, {})
        names = tuple(name for name, site in trace.nodes.items() if is_model_site(site))
        latent = [name for name in names if not trace.nodes[name]["is_observed"]]
        refusals = dict(leave or {})
        chosen = []
        for name in latent:
            fn = trace.nodes[name]["fn"]
            if name in refusals:
                continue
            if family_of(fn, trace.nodes[name]["infer"]) is None:
                refusals[name] = (
                    f"its prior is {_prior_name(fn)}, which is not among the exponential families known here"
                )
            else:
                chosen.append(name)
        points = [_interior_run(model, args, kwargs, trace, chosen, seed) for seed in range(draws)]
        coupled: dict[str, frozenset[int]] = {}
        while True:
            found, run_sites = _discover(model, args, kwargs, trace, chosen, refusals, coupled)
            chosen = list(found.families)
            try:
                there = [_program_at(model, args, kwargs, names, found, point) for point in points]
            except Refused as refused:
                chosen = _without(chosen, refused, refusals)
                continue
            coupled = {
                name: f.joint.union(*(p.families[name].joint for p in there)) for name, f in found.families.items()
            }
            if coupled != _joint(found):
                continue
            errors = _errors(names, there, points)
            wrong = [name for name in names if not errors[name] <= _tolerance(trace)]
            if not wrong:
                break
            involved = {v for name in wrong for t in found.parts[name][1] for v in t.names}
            if not involved:
                raise ValueError(
                    f"The density of {', '.join(wrong)} differs between two runs with the same values: the model must "
                    "be a function of its sites. Make modules and other constants outside of it."
                )
            for name in wrong:
                for v in sorted({v for t in found.parts[name][1] for v in t.names}):
                    refusals.setdefault(v, f"its expected log density of {name} is not the log density at a point")
            chosen = [name for name in chosen if name not in involved]
    closed = tuple(name for name in names if name in found.families)
    observed = frozenset(name for name in names if trace.nodes[name]["is_observed"])
    priors = {name: _prior_name(trace.nodes[name]["fn"]) for name in names}
    refusals = {name: refusals[name] for name in names if name in refusals}
    return Structure(model, args, kwargs, names, observed, closed, refusals, errors, priors, trace, found, run_sites)


def _tolerance(trace: Any) -> float:
    """How large a difference may be rounding, by the least precise type among the values."""
    values = [site["value"] for site in trace.nodes.values() if is_model_site(site)]
    types = {v.dtype for v in values if isinstance(v, Tensor) and v.is_floating_point()} | {torch.get_default_dtype()}
    return max(_TOLERANCE.get(dtype, 1e-3) for dtype in types)


def _joint(program: Program) -> dict[str, frozenset[int]]:
    return {name: family.joint for name, family in program.families.items()}


def _prior_name(fn: Any) -> str:
    return type(unwrapped(fn)).__name__


def other_values(trace: Any, names: Any) -> dict[str, Any]:
    """Values of the latent sites in a trace, and of plates that subsample."""
    kept = {name: trace.nodes[name]["value"] for name in names}
    return kept | batches_drawn(trace)


def batches_drawn(trace: Any) -> dict[str, Any]:
    """The batches that plates have drawn in a trace; those that they were given are the model's own."""
    plates = (
        (name, site) for name, site in trace.nodes.items() if site["type"] == "sample" and site_is_subsample(site)
    )
    return {name: site["value"] for name, site in plates if len(site["value"]) != site["fn"].size}


def _latent(trace: Any, names: Any = None) -> list[str]:
    return [n for n, s in trace.nodes.items() if is_model_site(s) and (names is None or n in names)]


def _discover(
    model: Callable,
    args: tuple,
    kwargs: Mapping[str, Any],
    trace: Any,
    chosen: list[str],
    refusals: dict[str, str],
    coupled: Mapping[str, frozenset[int]],
) -> tuple[Program, tuple[Site, ...]]:
    """Drops variables that are blamed, one run after the other, until a run goes through."""
    values = other_values(trace, _latent(trace))
    while True:
        try:
            return _compiled(model, args, kwargs, frozenset(chosen), values, coupled)
        except Refused as refused:
            chosen = _without(chosen, refused, refusals)


def _without(chosen: list[str], refused: Refused, refusals: dict[str, str]) -> list[str]:
    """The chosen sites that are not blamed; the reasons are written down."""
    lost = {v.name: why for v, why in refused.why.items() if v.name in chosen}
    if not lost:
        raise ValueError(f"The model cannot be followed: {refused.reason}.") from refused
    refusals.update(lost)
    return [name for name in chosen if name not in lost]


def _compiled(
    model: Callable,
    args: tuple,
    kwargs: Mapping[str, Any],
    chosen: frozenset[str],
    values: Mapping[str, Any],
    coupled: Mapping[str, frozenset[int]],
) -> tuple[Program, tuple[Site, ...]]:
    """The program of one run, and what the run recorded.

    The model may be code that a tensor without values goes through with an error of its own. Then the sites are blamed
    with which, one at a time, the error comes, and all of them if it takes several.
    """
    try:
        sites = tuple(symbolic_run(model, args, kwargs, chosen, values))
        return compile_program(sites, coupled), sites
    except (Refused, AnotherForm):
        raise
    except Exception as error:
        if not chosen:
            raise
        why: dict[Variable, str] = {}
        for name in chosen if len(chosen) > 1 else ():
            try:
                _compiled(model, args, kwargs, frozenset({name}), values, coupled)
            except Refused as refused:
                why.update(refused.why)
        reason = f"the model fails on tensors without values ({reason_of(error)})"
        raise Refused(why or {_named(name): reason for name in chosen}) from error


def _named(name: str) -> Variable:
    """A variable of which nothing but the name is of interest."""
    return Variable(name, Family, torch.Size(), torch.Size(), torch.get_default_dtype())


def _interior_run(
    model: Callable, args: tuple, kwargs: Mapping[str, Any], trace: Any, chosen: list[str], seed: int
) -> Any:
    """A run at points inside of the supports: a draw of a sparse Dirichlet has zeros, at which nothing can be seen."""
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, Any] = batches_drawn(trace)
    for name in chosen:
        fn, value = trace.nodes[name]["fn"], trace.nodes[name]["value"]
        family = family_of(fn, trace.nodes[name]["infer"])
        if family is not None and not family.discrete:
            values[name] = family.interior_point(value.shape, generator).to(value.dtype)
    return numeric_run(model, args, kwargs, values)


def _program_at(
    model: Callable, args: tuple, kwargs: Mapping[str, Any], names: tuple[str, ...], found: Program, point: Any
) -> Program:
    """The program with the open sites as they are at a point, which must have the form of the one that was found."""
    there = tuple(_latent(point))
    program, _ = _compiled(model, args, kwargs, frozenset(found.families), other_values(point, there), _joint(found))
    for others in (there, tuple(program.parts)):
        if set(others) != set(names):
            differ = ", ".join(sorted(set(others) ^ set(names)))
            raise AnotherForm(f"The model does not have the same sites at each run: {differ}.")
    for name, family in program.families.items():
        first = found.families[name]
        if type(first) is not type(family) or first.shape != family.shape:
            raise AnotherForm(f"Site {name} does not have the same prior and shape at each run of the model.")
    return program


def _errors(names: tuple[str, ...], programs: list[Program], points: list[Any]) -> dict[str, float]:
    """By site, how far F at points is from the model's own log density."""
    errors = dict.fromkeys(names, 0.0)
    for program, trace in zip(programs, points, strict=True):
        with pyro.validation_enabled(False):
            trace.compute_log_prob()
        statistics = {name: f.at_point(trace.nodes[name]["value"]) for name, f in program.families.items()}
        for name in names:
            exact = float(trace.nodes[name]["log_prob_sum"].detach())
            here = float(program.at(name, statistics).detach())
            error = abs(exact - here) / (1 + abs(exact)) if exact != here else 0.0
            errors[name] = max(errors[name], error) if error == error else float("nan")
    return errors
