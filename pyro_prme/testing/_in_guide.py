"""Three checks of a rule in a guide of version 0.1, and two of them, draws and subsampling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from pyro.distributions import Delta
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.corpora.batch import Batch
from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.equations.expectations import natural_parameters
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.models.distributions import WordMajorPoint
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import Rule, Run
from pyro_prme.testing._copies import copied, stepped
from pyro_prme.testing._double import in_double
from pyro_prme.testing._draws import sampled_term
from pyro_prme.testing._parameters import base_of
from pyro_prme.testing._stationary import check_stationary
from pyro_prme.testing.report import Check, RuleError, RuleReport

__all__ = ["check_in_guide"]


def check_in_guide(
    guide: ClosedFormGuide,
    *args: Any,
    site: str,
    parts: Sequence[tuple[Any, ...]] | None = None,
    below: bool = False,
    particles: int = 300,
    tolerance: float = 1e-5,
    seed: int = 0,
) -> RuleReport:
    r"""Checks the rule of one site: stationary, its term against draws, subsampling without bias.

    * Stationary: with everything else held, the gradient of the bound in the posterior's parameters vanishes and small
      moves do not raise the bound. A rule with natural steps is looked at after one of rate 1. Rules that are
      moved by gradients, and q = p, are left out: they make no such claim. Where terms of the bound read a drawn value
      of the site, as that of an observed child without a rule of its own does, the slope of the bound is taken over
      draws and must be zero within four standard errors; where it is too noisy to tell, that is said. Profiled
      terms (`objective="profiled"`) are read in their plain form here; a term of one's own that does not read
      `run.posterior(site)` shows nothing.
    * Particles: the rule's term and the whole bound against the mean over draws from the guide of
      ln p - ln q, within four standard errors. Point masses are left out on both sides. A rule with natural steps is
      looked at half a step on, where it is neither the prior nor the optimum.
    * Subsampling: the size-weighted mean of the rule's term over parts of the data equals that of the whole, and so do
      the natural parameters after a natural step of rate 1.

    All is done on copies in float64, whatever the model's and the default type, and in evaluation mode: the guide is
    left as it was, and so are the param store and the random state. A rule can be checked alone, before the sites
    that depend on its own have rules.

    Args:
        guide: holds the rule.
        args: what the model is called with.
        site: whose rule to check.
        parts: arguments for parts of the data of equal size that together are `args`; documents of a `Batch` are split
            in two by default, and without either this check is left out.
        below: the rules bound the likelihood, so that the bound may lie below what draws say, and must not lie above.
        particles: number of draws; for the slope at least 200.
        tolerance: relative size of the gradient that counts as zero.
        seed: of the draws.

    Returns:
        What was looked at.

    Raises:
        RuleError: the rule is wrong, with the first reason.
    """
    guide.plan(*args)
    if site not in guide.rules:
        raise RuleError(f"Site {site} has no rule: the plan has {', '.join(guide.rules)}.")
    report = RuleReport(site, type(guide.rule(site)).__name__)
    with torch.random.fork_rng(devices=[]), in_double(guide, args, parts) as copies:
        guide, args, parts = copies
        torch.manual_seed(seed)
        with eval_mode(guide.model, guide):
            _check_form(guide, args, site)
            report.checks.append(check_stationary(guide, args, site, tolerance, particles))
            report.checks.append(_particles(guide, args, site, below, particles))
            report.checks.append(_subsampling(guide, args, site, parts))
    return report


@torch.no_grad()
def _check_form(guide: ClosedFormGuide, args: tuple, site: str) -> None:
    """Refuses a posterior that is no distribution, or is not of the site's shape."""
    with copied(guide, site) as rule:
        given = rule.posterior

        def posterior(name: str, prior: Any, run: Run) -> Any:
            q = given(name, prior, run)
            if not isinstance(q, Distribution | Tensor):
                raise RuleError(
                    f"The posterior of {name} is {type(q).__name__}: it must be a distribution, or a tensor of a point."
                )
            shape, expected = (x.shape if isinstance(x, Tensor) else x.batch_shape + x.event_shape for x in (q, prior))
            if any(a not in (1, b) for a, b in zip_longest(shape[::-1], expected[::-1], fillvalue=1)):
                raise RuleError(f"The posterior of {name} has shape {tuple(shape)}, and the site {tuple(expected)}.")
            return q

        rule.posterior = posterior
        guide.expectations(*args)


# particles


@torch.no_grad()
def _particles(guide: ClosedFormGuide, args: tuple, site: str, below: bool, particles: int) -> Check:
    with copied(guide, site) as rule:
        stepped(rule, site, guide.expectations(*args), 0.5)
        return _against_draws(guide, args, site, below, particles)


def _against_draws(guide: ClosedFormGuide, args: tuple, site: str, below: bool, particles: int) -> Check:
    elbo = ClosedForm_ELBO(bound="quadrature")
    gaps: list[list[float]] = []
    analytic: list[dict[str, float]] = []
    for _ in range(particles):
        guide(*args)
        run = guide.run
        points = [name for name, node in run.trace.nodes.items() if isinstance(node.get("fn"), Delta | WordMajorPoint)]
        if len(analytic) < 2 or analytic[0] != analytic[1]:  # terms that depend on no draw are computed twice only
            terms = elbo.terms_of(run).items()
            analytic.append({name: float(term) for name, term in terms if name not in points})
        gap = {name: term - float(sampled_term(name, run)) for name, term in analytic[-1].items()}
        gaps.append([gap.get(site, 0.0), sum(gap.values())])
    mean, error = torch.tensor(gaps).mean(0), torch.tensor(gaps).std(0) / particles**0.5
    if site in points:
        return Check("particles", False, "a point mass has nothing to draw.")
    own = {terms.get(site) for terms in analytic}
    if len(own) > 1 and not any(gap[0] for gap in gaps):
        return Check("particles", False, "the term is that of the draw itself, and there is nothing to compare.")
    observed = guide.rule(site).observed
    sizes = abs(analytic[-1].get(site, 0.0)), abs(sum(analytic[-1].values()))
    for i, (what, may_be_below) in enumerate(((f"term of {site}", below and observed), ("whole bound", below))):
        slack = 4 * float(error[i]) + 1e-9 * max(1.0, sizes[i])  # the second part for float error
        if float(mean[i]) > slack or (float(mean[i]) < -slack and not may_be_below):
            hint = "; a model whose rules bound the likelihood needs `below=True`" if float(mean[i]) < 0 else ""
            raise RuleError(
                f"The {what} is {float(mean[i]):+.4g} from the mean over {particles} draws, and four standard errors "
                f"are {4 * float(error[i]):.2g}{hint}."
            )
    return Check("particles", True, f"term {float(mean[0]):+.2g} from draws, standard error {float(error[0]):.2g}.")


# subsampling


@torch.no_grad()
def _subsampling(guide: ClosedFormGuide, args: tuple, site: str, parts: Sequence[tuple[Any, ...]] | None) -> Check:
    name = "subsampling"
    weighted = [(1 / len(parts), part) for part in parts] if parts else _halves(args)
    if not weighted:
        return Check(name, False, "give `parts` to look at it.")
    whole_term, whole_natural = _term_and_target(guide, args, site)
    again_term, again_natural = _term_and_target(guide, args, site)
    pairs = [(weight, _term_and_target(guide, part, site)) for weight, part in weighted]
    found = "the term depends on draws"
    if again_term == whole_term:
        term = sum(weight * value for weight, (value, _) in pairs)
        if abs(term - whole_term) > 1e-6 * max(1.0, abs(whole_term)):
            raise RuleError(
                f"Subsampling is biased: the term of {site} is {whole_term:.6g} and its mean over {len(pairs)} parts "
                f"{term:.6g}."
            )
        found = f"term {whole_term:.6g} is its mean over {len(pairs)} parts"
    if type(guide.rule(site)).natural_step is Rule.natural_step:
        return Check(name, again_term == whole_term, f"{found}.")
    if whole_natural is None:
        return Check(name, False, f"{found}; `natural_parameters` does not know the posterior's family.")
    if not all(map(torch.equal, again_natural or (), whole_natural)):
        return Check(name, False, f"{found}; the natural parameters depend on draws.")
    for i, whole in enumerate(whole_natural):
        mean = sum(weight * natural[i] for weight, (_, natural) in pairs if natural is not None)
        gap = float((mean - whole).abs().max())
        if gap > 1e-6 * max(1.0, float(whole.abs().max())):
            raise RuleError(
                f"Subsampling is biased: the natural parameters of {site} after a step of rate 1 differ by {gap:.3g} "
                "from their mean over parts; do the statistics carry N / B?"
            )
    if again_term != whole_term:
        return Check(name, True, f"natural parameters are their means over {len(pairs)} parts; {found}.")
    return Check(name, True, f"term and natural parameters are their means over {len(pairs)} parts.")


def _term_and_target(guide: ClosedFormGuide, args: tuple, site: str) -> tuple[float, tuple[Tensor, ...] | None]:
    with copied(guide, site) as rule:
        run = guide.expectations(*args)
        term = float(ClosedForm_ELBO().terms_of(run).get(site, 0.0)) if run.has(site) else 0.0
        if not stepped(rule, site, run, 1.0):
            return term, None
        q: Any = rule.posterior(site, run.prior(site), run)
        return term, natural_parameters(base_of(q))


def _halves(args: tuple) -> list[tuple[float, tuple[Any, ...]]]:
    """The arguments with the documents of their batch split in two, with shares."""
    at = [i for i, arg in enumerate(args) if isinstance(arg, Batch)]
    if not at or args[at[0]].size < 2:
        return []
    batch, middle, out = args[at[0]], (args[at[0]].size + 1) // 2, []
    for start, stop in ((0, middle), (middle, batch.size)):
        part = batch.part(start, stop)
        out.append((part.size / batch.size, (*args[: at[0]], part, *args[at[0] + 1 :])))
    return out
