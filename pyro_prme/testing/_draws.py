"""The bound where terms of it read drawn values: its terms at given draws, and its slope in a site's posterior."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from pyro_prme.elbo import ClosedForm_ELBO
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.rules import Run
from pyro_prme.testing._parameters import free_parameters, with_parameters
from pyro_prme.testing.report import Check, RuleError

__all__ = ["drawn_sites", "reading", "sampled_term", "slope_by_draws"]

_VISIBLE = 0.25  # a posterior that is a quarter of its standard deviation off has this slope


def sampled_term(name: str, run: Run) -> Tensor:
    """ln p - ln q at the drawn value, under the site's scale."""
    node, value = run.trace.nodes[name], run.value(name)
    term = run.prior(name).log_prob(value)
    if not node["is_observed"]:
        term = term - run.posterior(name).log_prob(value)
    return scale_and_mask(term, scale=node["scale"], mask=node["mask"]).sum()


def drawn_sites(guide: ClosedFormGuide, run: Run, site: str) -> list[str]:
    """The latent sites, but for this one, that are drawn when the bound is computed."""
    latent = (name for name in run.rules if run.has(name) and not run.trace.nodes[name]["is_observed"])
    return [name for name in latent if name != site and name not in guide.plan().undrawn]


def reading(guide: ClosedFormGuide, run: Run, names: Sequence[str]) -> set[str]:
    """Sites whose term changes with the drawn values of these sites, by more than it is rounded."""
    if not names:
        return set()
    with torch.random.fork_rng(devices=[]):
        draws = [ClosedForm_ELBO().terms_of(_redrawn(guide, run, names)) for _ in range(3)]
    values = {name: [float(terms[name]) for terms in draws] for name in draws[0]}
    return {name for name, found in values.items() if max(found) - min(found) > 1e-10 * max(1.0, *map(abs, found))}


def _redrawn(guide: ClosedFormGuide, run: Run, names: Sequence[str]) -> Run:
    """The run with new draws of some sites; all other values and all posteriors are held, and priors follow."""
    trace = run.trace.copy()
    for name in names:
        trace.nodes[name] = {**trace.nodes[name], "value": run.posterior(name).sample()}
    with poutine.block():
        model = poutine.trace(poutine.replay(guide.model, trace=trace)).get_trace(*run.args)
    for name, node in trace.nodes.items():
        if "rule" in node.get("infer", {}):
            there = model.nodes[name]
            infer = {**node["infer"], "prior": there["fn"]}
            trace.nodes[name] = {**node, "infer": infer, "value": there["value"]}
    out = copy.copy(run)
    out.trace = trace
    return out


def slope_by_draws(
    guide: ClosedFormGuide, run: Run, site: str, own: set[str], others: Sequence[str], particles: int
) -> Check:
    r"""Whether the bound's slope in a posterior is zero, where terms of the bound read drawn values.

    With z drawn from q, t(z) the terms that read z, and r the others, the bound's gradient in the parameters of q is

    .. math:: \mathrm{Cov}\big(\nabla \ln q(z),\, t(z)\big) + E \nabla r

    At the optimum of a conjugate pair t(z) is one number for all z and there is no noise. Half of the draws say in
    which direction the parameters should go, the other half how steep it is there.

    Args:
        guide: whose model is run.
        run: holds the posteriors.
        site: whose posterior is looked at.
        own: sites whose term reads the draws of this site.
        others: sites that are drawn anew as well.
        particles: number of draws.
    """
    draws = [_gradient_parts(_redrawn(guide, run, [site, *others]), site, own) for _ in range(particles)]
    halves = [[torch.stack(part) for part in zip(*half, strict=True)] for half in (draws[::2], draws[1::2])]
    (scores, terms, rest), again = ((s - s.mean(0), t - t.mean(), r) for s, t, r in halves)
    count = len(scores)
    fisher = scores.mT @ scores / count
    if not fisher.any():
        return Check("stationary", False, f"the draws of {site} are all alike.")
    ridge = len(fisher) / count * fisher.diagonal().mean()  # for more parameters than draws
    direction = torch.linalg.solve(fisher + ridge * torch.eye(len(fisher)), scores.mT @ terms / count + rest.mean(0))
    scores, terms, rest = again
    direction /= (scores @ direction).std().clamp(min=torch.finfo(direction.dtype).tiny)
    along, rest = scores @ direction, rest @ direction
    slope = float((along @ terms) / (len(along) - 1) + rest.mean())
    rounding = 1e-9 * max(1.0, float(halves[1][1].abs().max()))
    if float(rest.abs().max()) < rounding:  # if there is no slope, terms have nothing to do with the score
        terms = terms - along * (along @ terms) / (along @ along).clamp(min=0.5)
    error = float((along * terms + rest).std()) / len(along) ** 0.5
    if abs(slope) > 4 * error + rounding:
        raise RuleError(
            f"The posterior of {site} is not stationary: by {particles} draws the bound's slope is {slope:.3g} for a "
            f"move by one standard deviation, and four standard errors are {4 * error:.2g}."
        )
    detail = f"by {particles} draws slope {slope:.2g} for a move by one standard deviation, standard error {error:.2g}"
    if 4 * error > _VISIBLE:
        return Check("stationary", False, f"{detail}: too noisy to tell, give more `particles`.")
    return Check("stationary", True, f"{detail}.")


@torch.enable_grad()
def _gradient_parts(run: Run, site: str, own: set[str]) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of ln q(z), the terms that read z, and the gradient of what reads q itself, at a draw."""
    leaves = {key: value.requires_grad_() for key, value in free_parameters(run.posterior(site)).items()}
    q = with_parameters(run.posterior(site), leaves)
    run.trace.nodes[site]["fn"] = q
    terms = {name: torch.as_tensor(term).sum() for name, term in ClosedForm_ELBO().terms_of(run).items()}
    if own:
        terms[site] = sampled_term(site, run).detach()
    drawn = [terms[name].detach() for name in own | {site}] if own else [torch.zeros(())]

    score = _gradient(q.log_prob(run.value(site)).sum(), list(leaves.values()))
    return score, torch.stack(drawn).sum(), _gradient(torch.stack([*terms.values()]).sum(), list(leaves.values()))


def _gradient(value: Tensor, leaves: list[Tensor]) -> Tensor:
    """The gradient in all leaves, laid end to end; zero where there is none."""
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if value.requires_grad:
        found = torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=True)
    return torch.cat([(torch.zeros_like(x) if g is None else g).flatten() for g, x in zip(found, leaves, strict=True)])
