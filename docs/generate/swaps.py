"""The page of swaps: every swapped model of `pyro_prme.models` with its equation and its plan, printed when built."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.data import Rows
from pyro_prme.inference.topic_guide import PRMEGuide
from pyro_prme.models import count_rows, covariates, gaussian_process, priors, real_rows
from pyro_prme.models.factor_model import FactorModel
from pyro_prme.models.simulation import simulate

TOPICS, WORDS, DOCUMENTS = 4, 12, 8
#: Where the swapped models are.
MODULES = (count_rows, real_rows, covariates, gaussian_process, priors)
#: Arguments that a model needs, by its name.
GIVEN = {"CovariatePRME": {"metadata": torch.arange(2.0 * DOCUMENTS).reshape(DOCUMENTS, 2) % 3}}


def models() -> list[Any]:
    """The public models of each module, those with another likelihood first; their bases are called something else."""
    found = [getattr(module, name) for module in MODULES for name in module.__all__ if name.endswith("PRME")]
    return sorted(found, key=lambda kind: (not issubclass(kind, FactorModel), kind.__module__, kind.__name__))


def plan_of(kind: Any) -> str:
    """The plan of a small model of this kind, as a Markdown table."""
    torch.manual_seed(0)
    sizes = {"h_dim": 3, "ell_dim": 2} if hasattr(kind, "sample_h") else {"ell_dim": 2}
    model = kind(TOPICS, WORDS, DOCUMENTS, **sizes, **GIVEN.get(kind.__name__, {}))
    if isinstance(model, FactorModel):
        args: tuple = Rows(simulate(model, DOCUMENTS)[0]).batch()
    else:
        args = (Batch.from_tokens(torch.randint(WORDS, (DOCUMENTS, 5)).tolist()),)
    entries = PRMEGuide(model).plan(*args).entries.values()
    reasons = {e.name: "" if e.reason == "another posterior was asked for" else e.reason for e in entries}
    lines = [f"| `{e.name}` | {e.update} | {reasons[e.name]} |" for e in entries]
    return "\n".join(["| site | posterior factor | why not a closed form |", "| --- | --- | --- |", *lines])


def description(kind: Any) -> list[str]:
    """The paragraphs about a model; one that only puts a part before PRME is described by that part."""
    own = (inspect.getdoc(kind) or "").split("\n\n")
    if any(p.startswith(".. math::") for p in own):
        return own
    part = (inspect.getdoc(kind.__bases__[0]) or "").split("\n\n")
    return [part[0], *part[1:]]


def fragment() -> str:
    """Markdown of all swaps, with those of the likelihood and those of a prior under a heading each."""
    parts, headings = [], {True: "## Other likelihoods", False: "## Other priors"}
    for kind in models():
        if heading := headings.pop(issubclass(kind, FactorModel), None):
            parts.append(heading)
        lead, *rest = description(kind)
        equation = next((p for p in rest if p.startswith(".. math::")), "")
        link = f":py:obj:`API <{kind.__module__}.{kind.__name__}>`"
        parts.append(f"### {kind.__name__}\n\n```{{eval-rst}}\n{lead} ({link})\n\n{equation}\n```\n\n{plan_of(kind)}")
    return "\n\n".join(parts) + "\n"
