"""The page of swaps: every swapped model of `pyro_prme.swaps` with its equation and its plan, printed when built."""

from __future__ import annotations

import inspect
import re

import torch

from pyro_prme import PRME, swaps
from pyro_prme.corpora.batch import Batch
from pyro_prme.guide import PRMEGuide
from pyro_prme.swaps.factors import FactorModel

TOPICS, WORDS, DOCUMENTS = 4, 12, 8
#: Arguments that a model needs, by its name.
GIVEN = {"CovariatePRME": {"metadata": torch.zeros(DOCUMENTS, 2)}}


def models() -> list[type[PRME]]:
    """The public models of the package, those with another likelihood first; their bases are called something else."""
    found = [getattr(swaps, name) for name in swaps.__all__ if name.endswith("PRME")]
    return sorted(found, key=lambda kind: (not issubclass(kind, FactorModel), kind.__module__, kind.__name__))


def plan_of(kind: type[PRME]) -> str:
    """The printed plan of a small model of this kind, as a Markdown table."""
    torch.manual_seed(0)
    model = kind(TOPICS, WORDS, DOCUMENTS, h_dim=3, ell_dim=2, **GIVEN.get(kind.__name__, {}))
    if isinstance(model, FactorModel):
        X, _ = swaps.simulate(model, DOCUMENTS)
        batch = model.batch_of(X)
    else:
        batch = Batch.from_tokens(torch.randint(WORDS, (DOCUMENTS, 5)).tolist())
    guide = model.make_guide() if hasattr(model, "make_guide") else PRMEGuide(model)
    rows = [re.split(r"\s{2,}", line) for line in str(guide.plan(batch)).splitlines()]
    lines = [f"| `{site}` | {factor} | {' '.join(note)} |" for site, factor, *note in rows]
    return "\n".join(["| site | posterior factor | notes |", "| --- | --- | --- |", *lines])


def fragment() -> str:
    """Markdown of all swaps, with those of the likelihood and those of a prior under a heading each."""
    parts, headings = [], {True: "## Other likelihoods", False: "## Other priors"}
    for kind in models():
        if heading := headings.pop(issubclass(kind, FactorModel), None):
            parts.append(heading)
        lead, *rest = (inspect.getdoc(kind) or "").split("\n\n")
        equation = next((p for p in rest if p.startswith(".. math::")), "")
        link = f":py:obj:`API <{kind.__module__}.{kind.__name__}>`"
        parts.append(f"### {kind.__name__}\n\n```{{eval-rst}}\n{lead} ({link})\n\n{equation}\n```\n\n{plan_of(kind)}")
    return "\n\n".join(parts) + "\n"
