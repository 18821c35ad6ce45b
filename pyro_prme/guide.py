"""The guide: a handler round the model that asks each site's rule for its posterior factor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from pyro.infer.autoguide.effect import AutoMessenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor, nn

from pyro_prme.corpora.batch import Batch
from pyro_prme.models.diln import DILN
from pyro_prme.models.networks.encoders import TopicEncoder
from pyro_prme.models.prme import PRME
from pyro_prme.models.topic_model import TopicModel
from pyro_prme.plan import Plan, make_plan
from pyro_prme.prototype import Prototype, eval_mode
from pyro_prme.rules import Amortized, GammaLoadings, GaussianFunction, Rule, Run

__all__ = ["ClosedFormGuide", "PRMEGuide", "converged"]

_names = (f"guide_{i}" for i in itertools.count())


class ClosedFormGuide(AutoMessenger):  # type: ignore[metaclass]
    """A guide for any Pyro model whose sites have registered rules; other continuous sites get a Normal.

    Apply handlers to the model first and then build the guide: a messenger guide runs the model that it was built with.

    Args:
        model: a Pyro model.
        rules: rules by site name, instead of the registered ones; None for a site asks for the generic posterior.
        head: makes an encoder with a given number of outputs, for per-document sites without a closed form.
        name: prefix of this guide's parameters in Pyro's param store; each guide gets its own by default.
    """

    def __init__(
        self,
        model: Callable,
        rules: Mapping[str, Rule | None] | None = None,
        *,
        head: Callable[[int], nn.Module] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(model)
        self._pyro_name = name or next(_names)
        self._asked, self._head = dict(rules or {}), head
        self._offered: dict[str, Rule] = {}
        self._plan: Plan | None = None
        self._draw = True
        self._held: dict[str, Any] = {}
        self._started: dict[str, Any] = {}
        self.rules = nn.ModuleDict()

    def plan(self, *args: Any) -> Plan:
        """Which site is updated how, and why; made on the first call and kept.

        Args:
            args: what the model is called with.
        """
        if self._plan is None:
            prototype = Prototype(self.model, args)
            plan = make_plan(prototype, self._asked, self._offered, self._head)
            with torch.random.fork_rng(devices=[]):
                for name, rule in plan.rules.items():
                    rule.setup(name, prototype)
            self.rules.update(plan.rules)
            self.rules.train(self.training)
            self._plan = plan
        return self._plan

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Draws from the posterior and runs the model on the draws; returns the value of every site."""
        self.plan(*args)
        return super().__call__(*args, **kwargs)

    def expectations(self, *args: Any) -> Run:
        """Runs the model under the guide for its moments: sites whose value nobody reads are not drawn."""
        self._draw = False
        try:
            self(*args)
        finally:
            self._draw = True
        return self.run

    @torch.no_grad()
    def local_step(self, *args: Any) -> dict[str, Any]:
        """The E-step on a batch, in evaluation mode: what the local rules found, for `hold`."""
        with eval_mode(self.model, self):
            return self.expectations(*args).local

    @contextmanager
    def hold(self, local: Mapping[str, Any]) -> Iterator[None]:
        """Within it, runs take these local results instead of an E-step of their own."""
        self._held = dict(local)
        try:
            yield
        finally:
            self._held = {}

    @contextmanager
    def resume(self, local: Mapping[str, Any]) -> Iterator[None]:
        """Within it, E-steps on the same batch go on from these local results instead of starting afresh."""
        self._started = dict(local)
        try:
            yield
        finally:
            self._started = {}

    def gather(self, run: Run | None = None, scale: float | None = None) -> None:
        """Adds the statistics of a run (default: the last one) to those pending for the next natural step."""
        run = run or self.run
        for name, rule in run.rules.items():
            rule.gather(name, run, scale)

    def natural_step(self, rate: float = 1.0) -> None:
        """Moves the natural parameters towards the target of the pending statistics; rate 1 replaces them."""
        for name in self.rules:
            self.rule(name).natural_step(rate)

    def rule(self, name: str) -> Any:
        """The rule of a site, once the plan has been made."""
        return self.rules[name]

    def __enter__(self) -> ClosedFormGuide:
        args, _ = self.args_kwargs
        rules: dict[str, Any] = dict(self.rules.items())
        super().__enter__()
        self.run = Run(args, rules, self._held, self._started)
        self.run.trace = self.trace
        return self

    def _pyro_sample(self, msg: Any) -> None:
        if site_is_subsample(msg):
            return
        rule = self.run.rules.get(msg["name"])
        msg["infer"]["rule"] = rule
        if msg["is_observed"]:
            return
        super()._pyro_sample(msg)
        if rule is not None and not self._draw and msg["name"] in self.plan().undrawn:
            msg["value"] = rule.placeholder(msg["fn"])

    def get_posterior(self, name: str, prior: Any) -> Any:
        rule = self.run.rules.get(name)
        if rule is None:
            raise ValueError(
                f"The model has a site {name!r} that it did not have when the plan was made: build a new guide."
            )
        return rule.posterior(name, prior, self.run)


class PRMEGuide(ClosedFormGuide):
    """The paper's guide: point masses for ell and V, g for h, closed forms for Z, C and theta.

    Args:
        model: a `TopicModel`.
        encoder: the inference network g; default a `TopicEncoder`.
        rules, name: see `ClosedFormGuide`.
        head: see `ClosedFormGuide`; default a `TopicEncoder`.
        offered: rules by site name to try before the registered ones.
    """

    def __init__(
        self,
        model: TopicModel,
        encoder: nn.Module | None = None,
        rules: Mapping[str, Rule | None] | None = None,
        *,
        head: Callable[[int], nn.Module] | None = None,
        offered: Mapping[str, Rule] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(model, rules, head=head or (lambda size: TopicEncoder(model.num_topics, size)), name=name)
        if encoder is None and isinstance(model, PRME):
            encoder = TopicEncoder(model.num_topics, model.h_dim)
        if encoder is not None:
            self._offered = {"h": Amortized(encoder)}
        if isinstance(model, DILN):
            self._offered["f"] = GaussianFunction(model)
        self._offered.update(offered or {})

    def embeddings(self, batch: Batch) -> Tensor:
        """h of each document, or its mean, shape (B, h_dim), in the guide's current mode."""
        rule = self.rule("h")
        site = getattr(rule.encoder, "topics_site", None)
        return rule.locations(batch, self.rule(site).rows(batch.words) if site else None)


@contextmanager
def converged(guide: ClosedFormGuide, max_sweeps: int = 200, tolerance: float = 1e-4) -> Iterator[None]:
    """Within it, E-steps run until they have converged."""
    rule = guide.rules["Z"]
    if not isinstance(rule, GammaLoadings):
        yield
        return
    before = rule.max_sweeps, rule.tolerance
    rule.max_sweeps, rule.tolerance = max_sweeps, tolerance
    try:
        yield
    finally:
        rule.max_sweeps, rule.tolerance = before
