"""Where fitting starts: factors near the prior, slightly apart, and discrete sites by clusters of what they explain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from pyro_prme.conjugacy import Factors, Program
from pyro_prme.conjugacy.families import Family, Finite, FiniteGroup, Natural, Normal
from pyro_prme.conjugacy.terms import CHOSEN

__all__ = ["prior_factor", "start_factors"]

_APART = 0.2  # spread of the logarithms of starting values, so that members that are alike do not stay alike
_MOST_FEATURES = 50_000_000  # numbers that clusters are looked for in
_SURE = 4.0  # logit of the cluster that a member starts in


@torch.no_grad()
def prior_factor(program: Program, name: str, factors: Factors) -> Natural:
    """The factor that the site's own prior asks for, given the other factors so far; else one near its middle."""
    family = program.families[name]
    empty = family.empty()
    for other in program.families:
        factors.natural.setdefault(other, default_factor(program.families[other]))
    natural = program.target(name, factors.statistics(), empty, own=True)
    if family.discrete:
        return empty
    return {key: part.clone() for key, part in natural.items()} if family.holds(natural) else default_factor(family)


def default_factor(family: Family) -> Natural:
    """A factor round the middle of the support."""
    if family.discrete:
        return family.empty()
    point = family.interior_point(family.shape, torch.Generator().manual_seed(0)).to(family.variable.dtype)
    return family.start(point)


@torch.no_grad()
def start_factors(program: Program, names: Sequence[str], generator: torch.Generator) -> dict[str, Natural]:
    """Factors to start from, in the model's order.

    Args:
        program: of the model on all its data.
        names: of the closed sites.
        generator: decides all that is random.
    """
    factors = Factors(program, {}, names)
    for name in names:
        family = program.families[name]
        natural = prior_factor(program, name, factors)
        factors.natural[name] = _apart(family, natural, generator)
    for name in names:
        family = program.families[name]
        if isinstance(family, Finite | FiniteGroup):
            factors.natural[name] = _responsibilities(program, family, generator)
    return {name: factors.natural[name] for name in names}


def _apart(family: Family, natural: Natural, generator: torch.Generator) -> Natural:
    """The factor moved a little at random: what is alike by symmetry would stay alike."""
    if family.discrete:
        return natural
    means = family.means(natural)
    if isinstance(family, Normal):
        noise = torch.randn(family.shape, generator=generator, dtype=means["x"].dtype)
        spread = _marginal_variance(family, natural).sqrt().clamp(max=1.0)
        moved = means["x"] + spread * noise
        return {**natural, "x": family.precision_times(natural, moved)}
    out = {}
    for key, part in natural.items():
        noise = torch.randn(part.shape, generator=generator, dtype=part.dtype)
        out[key] = (part + 1) * (_APART * noise).exp() - 1 if key.startswith("log") else part * (_APART * noise).exp()
    return out if family.holds(out) else natural


def _marginal_variance(family: Normal, natural: Natural) -> Tensor:
    if not family.joint:
        return -0.5 / natural["xx"]
    return family.distribution(natural).variance


def _responsibilities(program: Program, family: Finite | FiniteGroup, generator: torch.Generator) -> Natural:
    """Clusters of the data that the choices explain, as logits; random ones where no data are seen."""
    if isinstance(family, Finite):
        return {"chosen": _logits(program, [family], generator)[0]}
    alike: dict[int, list[str]] = {}  # states of a chain have the same clusters
    for site, member in family.members.items():
        alike.setdefault(len(member.values), []).append(site)
    logits: dict[str, Tensor] = {}
    for sites in alike.values():
        found = _logits(program, [family.members[site] for site in sites], generator)
        logits |= dict(zip(sites, found, strict=True))
    return family.with_logits(logits)


def _logits(program: Program, families: Sequence[Finite], generator: torch.Generator) -> list[Tensor]:
    """Logits of the clusters in which all members of some variables start, which are clustered together."""
    empty = [family.empty()["chosen"] for family in families]
    size = empty[0].shape[-1]
    features = [_features(program, family) for family in families]
    widths = [f.shape[-1] for f in features if f is not None]
    width = max(set(widths), key=widths.count) if widths else 0
    seen = [n for n, f in enumerate(features) if f is not None and f.shape[-1] == width]
    rows = _standardised(np.concatenate([features[n] for n in seen])) if seen else None  # type: ignore[misc]
    if rows is None or len(rows) < 2 * size:
        return [torch.randn(e.shape, generator=generator, dtype=torch.float64).to(e.dtype) for e in empty]
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    some = np.random.default_rng(seed).permutation(len(rows))[: max(10_000, 20 * size)]
    kmeans = KMeans(size, n_init=1, random_state=seed % 2**31, max_iter=50).fit(rows[some])
    labels = torch.as_tensor(kmeans.predict(rows), dtype=torch.int64)
    parts = dict(zip(seen, labels.split([len(features[n]) for n in seen]), strict=True))  # type: ignore[arg-type]
    return [
        _SURE * torch.nn.functional.one_hot(parts[n], size).to(e.dtype).reshape(e.shape) if n in parts else e
        for n, e in enumerate(empty)
    ]


def _features(program: Program, family: Finite) -> np.ndarray | None:
    """Constants that stand beside the choices in a term, one row a member."""
    name, columns = family.variable.name, list[Tensor]()
    members = math.prod(family.members)
    seen: list[Tensor] = []
    for _, terms in program.parts.values():
        for compiled in terms:
            chosen = [f for f in compiled.term.factors if f.kind == CHOSEN and f.variable.name == name]
            if len(chosen) != 1 or any(not hasattr(e, "size") for e in chosen[0].entries[:-1]):
                continue
            own = chosen[0].entries[:-1]
            if members == 1 and not compiled.term.constants and len(compiled.term.factors) > 1:
                columns.append(torch.full((1, 1), compiled.term.coefficient, dtype=torch.float64))
            for c in compiled.term.constants:
                first = [i for i in own if i in c.indices]
                rest = [i for i in c.indices if i not in own]
                if len(first) != len(own) or chosen[0].entries[-1] in rest:
                    continue
                table = c.tensor.detach().permute([c.indices.index(i) for i in (*own, *rest)]).reshape(members, -1)
                if table.numel() > _MOST_FEATURES or _is_known(table, seen):
                    continue
                seen.append(table)
                columns.append(table.double())
    if not columns:
        return None
    return torch.cat(columns, -1).numpy()


def _standardised(features: np.ndarray) -> np.ndarray | None:
    """Columns that vary, over their standard deviations."""
    spread = features.std(0, ddof=1) if len(features) > 1 else np.zeros(features.shape[-1])
    features = features[:, spread > 0] / spread[spread > 0]
    return features if features.size and np.isfinite(features).all() else None


def _is_known(table: Tensor, seen: Sequence[Tensor]) -> bool:
    """Whether a table is one that was seen, its square, or constant."""
    same = [t for t in seen if t.shape == table.shape]
    return any(torch.allclose(table, t) or torch.allclose(table, t * t) for t in same)
