"""The guide: posterior factors for the sites of any Pyro model, in closed form wherever the structure has one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.nn import PyroModule
from pyro.poutine.runtime import _PYRO_STACK
from pyro.poutine.trace_messenger import TraceMessenger
from torch import Tensor, nn
from torch.distributions import Distribution

from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.conjugacy.program import compile_program
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.equations.bounds import NORMALIZERS
from pyro_prme.inference.claims import Claim, Context, GivenClaim, OpenClaim, Rule, SolvedClaim
from pyro_prme.inference.handlers import Guided, Placed, drawn_together
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.plan import Plan, make_plan, structure_for
from pyro_prme.inference.rules import Conjugate, MeanFieldNormal, OneByOne, PoissonSums, Topics
from pyro_prme.inference.rules.conjugate import ConjugateFactors
from pyro_prme.inference.rules.poisson.claim import PoissonFactors
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.rules.topics.gaussian_function import FunctionFactors
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import alone, evaluating, seeded
from pyro_prme.inference.starts import start_factors

__all__ = ["RULES", "ClosedFormGuide"]

#: The rules that a guide tries if it is given no others, the most special first.
RULES: tuple[Rule, ...] = (Topics(), PoissonSums(), Conjugate(), OneByOne(), MeanFieldNormal())

_names = (f"closed_form_guide_{i}" for i in itertools.count())


class ClosedFormGuide(PyroModule):
    """A guide for any Pyro model.

    Sites whose complete conditionals are in an exponential family get exact coordinate updates, found from one run of
    the model on random tensors and checked against its own log density; other continuous sites get a Normal that
    gradients move. `plan` says which and why. Fit it with `fit`, or sample with `Gibbs`.

    Apply handlers (`condition`, `scale`, ...) to the model first and then build the guide.

    Args:
        model: a Pyro model.
        rules: by site, instead of the candidates; None for a site asks for the generic posterior.
        candidates: rules that are tried, the most special first.
        defaults: by site, rules that hold where the model has a latent site of that name and `rules` has none for it.
        name: prefix of this guide's parameters in Pyro's param store; each guide gets its own by default.
    """

    def __init__(
        self,
        model: Callable,
        rules: Mapping[str, Rule | None] | None = None,
        *,
        candidates: Sequence[Rule] = RULES,
        defaults: Mapping[str, Rule] = MappingProxyType({}),
        name: str | None = None,
    ) -> None:
        super().__init__(name or next(_names))
        self._model = (model,)
        self._defaults = {name: rule for name, rule in defaults.items() if name not in (rules or {})}
        self._rules, self._candidates = dict(rules or {}), tuple(candidates)
        self._planned: tuple[Plan, Structure] | None = None
        self.claims = nn.ModuleList()

    @property
    def store_name(self) -> str:
        """The prefix of its parameters in Pyro's param store."""
        return self._pyro_name

    @property
    def model(self) -> Callable:
        """The model that the guide was made for."""
        return self._model[0]

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Which site is updated how, and why; made on the first call and kept.

        Args:
            args: what the model is called with, by position.
            kwargs: the same by name.
        """
        if self._planned is None:
            with alone(), evaluating(self.model):
                structure = structure_for(self.model, args, kwargs, self._rules, self._defaults)
                latent = set(structure.sites) - structure.observed
                rules = self._rules | {name: rule for name, rule in self._defaults.items() if name in latent}
                plan, claims = make_plan(structure, rules, self._candidates)
                self.claims.extend(claims)
                self.claims.train(self.training)
                self._planned = plan, structure
                self.restart(0)
        return self._planned[0]

    @property
    def is_planned(self) -> bool:
        """Whether the plan has been made."""
        return self._planned is not None

    @property
    def roles(self) -> dict[str, str]:
        """Which site plays which role, such as "topics": what the claims know, over what the model itself says."""
        found: dict[str, str] = dict(getattr(self.model, "roles", {}))
        claims: list[Any] = list(self.claims)
        for claim in reversed(claims):
            found |= claim.roles
        return found

    def bound_name(self, bound: str = "epsilon") -> str:
        """Which bound, or what else, the numbers of a run are.

        Args:
            bound: of the run's options.
        """
        claims: list[Any] = list(self.claims)
        score = next((claim.score for claim in claims if claim.score is not None), None)
        if score is not None:
            return score
        return NORMALIZERS[bound] if any(claim.bounds_a_sum for claim in claims) else "ELBO"

    @property
    def structure(self) -> Structure:
        """What was found in the model, once there is a plan."""
        if self._planned is None:
            raise ValueError("The guide has no plan yet: call plan with the model's arguments first.")
        return self._planned[1]

    @torch.no_grad()
    def restart(self, seed: int) -> None:
        """Puts the factors of closed sites back to a start that the seed decides."""
        claims: list[Any] = list(self.claims)
        for claim in claims:
            claim.restart(torch.Generator().manual_seed(seed))
        closed = self._conjugate()
        if closed is None:
            return
        generator = torch.Generator().manual_seed(seed)
        program = self.structure.grouped(closed.groups) if closed.groups else self.structure.program
        start = start_factors(program, closed.units, generator)
        for name in closed.kept:
            closed.set_natural(name, start[name])

    def begin(self, data: Any, start: str, seed: int) -> None:
        """Puts the factors where a fit begins; guides of particular models begin nearer to the answer.

        Args:
            data: what will be fitted.
            start: how; "default" is the best that is known.
            seed: decides the start.
        """
        self.restart(seed)
        claims: list[Any] = list(self.claims)
        for claim in claims:
            claim.begin(data, start, seed)

    def for_gradients(self, args: tuple) -> tuple:
        """What the model is called with for a gradient step, given what it was called with for the E-step."""
        return args

    def after_epoch(self, data: Any) -> None:
        """What is left to do between passes over the data: nothing, in general."""

    def _conjugate(self) -> ConjugateFactors | None:
        return next((c for c in list(self.claims) if isinstance(c, ConjugateFactors)), None)

    def claim(self, name: str) -> Claim:
        """The claim that holds a site."""
        claims: list[Any] = list(self.claims)
        found = next((c for c in claims if name in c.sites), None)
        if found is None:
            sites = ", ".join(n for c in claims for n in c.sites)
            raise ValueError(f"There is no factor for {name!r}: the guide has factors for {sites or 'no site yet'}.")
        return found

    def run(self, *args: Any, options: RunOptions | None = None, **kwargs: Any) -> Run:
        """One run of the model: open sites take a value, closed ones stay random, local factors are solved."""
        self.plan(*args, **kwargs)
        options = options or RunOptions()
        with alone():
            tracer = Guided(tuple(self.claims), args, kwargs)  # type: ignore[arg-type]
            with pyro.validation_enabled(False), poutine.block(hide_types=["sample", "observe"]), tracer:
                self.model(*args, **kwargs)
            try:
                return self._solved(args, kwargs, tracer, options)
            except Refused as refused:
                sites = ", ".join(sorted(v.name for v in refused.why))
                raise ValueError(
                    f"The factors that were asked for do not go with the model (site {sites}: {refused.reason}): give "
                    "another rule."
                ) from refused

    def _solved(self, args: tuple, kwargs: Mapping[str, Any], tracer: Guided, options: RunOptions) -> Run:
        """The factors of a run: given ones, then those of fused rules and the conjugate ones."""
        claims: tuple[Any, ...] = tuple(self.claims)
        sites = {site.name: site for site in tracer.sites}
        joint = {name: family.joint for name, family in self.structure.families.items() if name in sites}
        try:
            covered = [name for claim in claims for name in claim.covered]
            groups = [group for claim in claims if isinstance(claim, ConjugateFactors) for group in claim.groups]
            program = compile_program(tracer.sites, joint, covered, groups)
        except Refused as refused:
            names = " and ".join(sorted(v.name for v in refused.why))
            raise ValueError(
                f"The update of {names} does not hold in this model: {refused.reason}. Give another rule for it."
            ) from None
        factors = Factors(program, {}, ())
        local: dict[str, Any] = {}
        for claim in claims:
            if isinstance(claim, GivenClaim):
                for name in claim.sites:
                    means = program.families[name].means(claim.natural(sites[name].fn))
                    factors.elsewhere[name] = partial(_same, means)
        for claim in claims:
            if isinstance(claim, ConjugateFactors):
                factors.order = claim.units
                local |= claim.solve(factors, options)
        topics = [claim for claim in claims if isinstance(claim, TopicFactors)]
        for claim in claims:
            if isinstance(claim, FunctionFactors):
                found, options = claim.solve(sites, factors, options, args, topics)
                local |= found
        for claim in claims:
            if isinstance(claim, SolvedClaim):
                local |= claim.solve(sites, factors, options, args)
        return Run(
            args, kwargs, sites, claims, tracer.open, factors, local, options, tracer.fixed, tuple(tracer.decided)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Draws all latent sites from their factors, after a run on the same arguments.

        It may stand beside the model in `pyro.infer.Predictive`.
        """
        if any(isinstance(h, TraceMessenger) and h.param_only for h in _PYRO_STACK):
            raise ValueError(
                "This loss does not move closed-form sites: call pyro_prme.fit(guide, ...), or give SVI the loss "
                "ClosedForm_ELBO()."
            )
        with poutine.block(hide_types=["sample", "observe"]):
            run = self.run(*args, **kwargs)
        values: dict[str, Tensor] = {}
        for site in run.sites.values():
            if site.is_observed or site.name in values:
                continue
            steps = run.factors.conditionals(site.name)
            if steps is not None:
                values |= drawn_together(steps, run)
                continue
            fn: Any = run.factor(site.name)
            if isinstance(fn, Tensor):
                fn = pyro.distributions.Delta(fn, event_dim=site.fn.event_dim)
            with Placed(site, site.value if site.name in run.open else None):
                values[site.name] = pyro.sample(site.name, fn)
        for site in run.decided:
            with Placed(site, None):
                values[site.name] = pyro.sample(site.name, site.fn)
        return values

    def posterior(self, name: str) -> Distribution:
        """The posterior factor of a site as a distribution.

        A site of a subsampled plate has a factor in each run only: take it from `run(...).factor(name)`.
        """
        claim = self.claim(name)
        site = self.structure.trace.nodes[name]
        if isinstance(claim, OpenClaim):
            context = Context(self.structure.args, self.structure.kwargs, tuple(self.claims))  # type: ignore[arg-type]
            with torch.no_grad():
                found = claim.posterior(name, site["fn"], context)
            if isinstance(found, Tensor):
                return pyro.distributions.Delta(found.detach(), event_dim=site["fn"].event_dim)
            return found
        if isinstance(claim, ConjugateFactors) and claim.unit_of[name] in claim.local:
            raise ValueError(
                f"{name} belongs to a subsampled plate, so that its factor is that of a batch: take it from "
                f"guide.run(...).factor({name!r})."
            )
        if isinstance(claim, TopicFactors) and name == claim.roles["topics"]:
            return claim.topics_posterior()
        if isinstance(claim, PoissonFactors) and name == claim.factors:
            return self.structure.families[name].distribution(claim.natural())
        if not isinstance(claim, ConjugateFactors):
            raise ValueError(
                f"{name} is found anew for the documents of each run: take its factor from "
                f"guide.run(...).factor({name!r})."
            )
        return claim.posterior(name)

    def draw(self, *args: Any, seed: int | None = None, **kwargs: Any) -> dict[str, Tensor]:
        """Draws from the factors; the global random state stays as it was where a seed is given."""
        with seeded(seed), torch.no_grad():
            return self(*args, **kwargs)


def _same(x: Any) -> Any:
    return x
