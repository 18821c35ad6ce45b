"""The rule that claims the loadings and the factors of a Poisson factorisation together."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from pyro_prme.conjugacy import Factors, Structure
from pyro_prme.inference.claims import Claim, Refusal, Rule
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.poisson.claim import PoissonFactors
from pyro_prme.inference.rules.poisson.form import NotPoissonSums, poisson_form

__all__ = ["PoissonSums", "difference_from_engine"]

_MANY_SWEEPS = 5000
_ALLOWED = {torch.float64: 1e-6, torch.float32: 1e-2}  # relative, of natural parameters at the fixed point


class PoissonSums(Rule):
    """Claims loadings and factors of one table of counts whose rates are their product."""

    def match(self, structure: Structure, free: Sequence[str]) -> Claim | Refusal:
        reasons: dict[str, str] = {}
        for name in structure.sites:
            if name not in structure.observed or not structure.program.parts[name][1]:
                continue
            try:
                return _claim(structure, name, free)
            except NotPoissonSums as reason:
                reasons[name] = f"the fused updates of Poisson sums do not hold: {reason}"
        return Refusal(reasons)


def _claim(structure: Structure, words: str, free: Sequence[str]) -> PoissonFactors:
    """The claim for one observed site, compared with the engine's own updates on the prototype."""
    form = poisson_form([t.term for t in structure.program.parts[words][1]])
    loadings, factors = form.loadings.name, form.factors.name
    taken = [name for name in (loadings, factors) if name not in free or name not in structure.closed]
    if taken:
        raise NotPoissonSums(f"{taken[0]} has another rule")
    rest = structure.rebuilt_without((words,))
    if rest.coupled((loadings, factors)):
        raise NotPoissonSums(f"{loadings} and {factors} enter another density together")
    if factors_weight(structure, factors) != 1 or form.factors.subsampled:
        raise NotPoissonSums(f"{factors} is scaled or belongs to a batch")
    weight = structure.program.weights[loadings]
    if not torch.allclose(weight, torch.full_like(weight, form.weight)):
        raise NotPoissonSums(f"{words} and {loadings} are not scaled alike")
    claim = PoissonFactors(structure, words, {"loadings": loadings, "topics": factors}, form.by_column)
    difference = difference_from_engine(claim, structure)
    if not difference <= _ALLOWED[torch.get_default_dtype()]:
        raise NotPoissonSums(f"the compiled update differs from the engine's by {difference:.0e}")
    return claim


def factors_weight(structure: Structure, name: str) -> float:
    """The one weight of a site, or 0 where members have different ones."""
    weight = structure.program.weights[name]
    first = float(weight.reshape(-1)[0])
    return first if bool((weight == first).all()) else 0.0


@torch.no_grad()
def difference_from_engine(claim: PoissonFactors, structure: Structure) -> float:
    """The largest relative difference of natural parameters between the compiled updates and the engine's."""
    program = structure.program
    sites = {site.name: site for site in structure.run_sites}
    natural = {name: family.start(structure.value(name)) for name, family in program.families.items()}
    factors = Factors(structure.rebuilt_without(claim.covered), natural, ())
    found = claim.solve(sites, factors, RunOptions(sweeps=_MANY_SWEEPS, word_tolerance=0.0))
    full = Factors(program, factors.natural, ())
    run: Any = SimpleNamespace(local=found, factors=factors)
    messages = claim.messages(run)
    prior = factors.program.target(claim.factors, factors.statistics(), claim.natural())
    own = {
        claim.loadings: factors.natural[claim.loadings],
        claim.factors: {key: prior[key] + messages[key].reshape(prior[key].shape) for key in prior},
    }
    differences = []
    for name, parts in own.items():
        target = full.program.target(name, full.statistics(), program.families[name].empty())
        differences += [float(((target[key] - x).abs() / (1 + x.abs())).max()) for key, x in parts.items()]
    return max(differences)
