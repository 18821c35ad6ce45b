"""The page of swaps: every model with a part swapped, with its equation and its plan, printed when built."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from pyro_prme import PRMEGuide, simulate
from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.data import Rows
from pyro_prme.models.count_rows import NegativeBinomialPRME, PoissonPRME
from pyro_prme.models.covariates import CovariatePRME
from pyro_prme.models.factor_model import FactorModel
from pyro_prme.models.gaussian_process import GaussianProcessPRME
from pyro_prme.models.priors import FiniteDirichletPRME, HorseshoePRME, LogNormalPRME, PitmanYorPRME
from pyro_prme.models.prme import PRME
from pyro_prme.models.real_rows import BinaryPRME, GaussianPRME

TOPICS, WORDS, DOCUMENTS = 4, 12, 8

#: By heading, the models with one part swapped.
MODELS: dict[str, tuple[type, ...]] = {
    "Other likelihoods": (PoissonPRME, NegativeBinomialPRME, GaussianPRME, BinaryPRME),
    "Other priors": (
        CovariatePRME,
        FiniteDirichletPRME,
        GaussianProcessPRME,
        HorseshoePRME,
        LogNormalPRME,
        PitmanYorPRME,
    ),
}
#: Arguments that a model needs, by its name.
_METADATA = torch.arange(2.0 * DOCUMENTS).reshape(DOCUMENTS, 2) % 3
GIVEN: dict[str, dict[str, Any]] = {"CovariatePRME": {"metadata": _METADATA}}


def plan_of(kind: type) -> str:
    """The printed plan of a small model of this kind, as a Markdown table."""
    torch.manual_seed(0)
    sizes = {"ell_dim": 2} | ({"h_dim": 3} if issubclass(kind, PRME) else {})
    model = kind(TOPICS, WORDS, DOCUMENTS, **sizes, **GIVEN.get(kind.__name__, {}))
    batch: Any
    if isinstance(model, FactorModel):
        (batch,) = Rows(simulate(model, DOCUMENTS)[0]).batch()
    else:
        batch = Batch.from_tokens(torch.randint(WORDS, (DOCUMENTS, 5)).tolist())
    lines = ["| site | posterior factor | notes |", "| --- | --- | --- |"]
    plan = PRMEGuide(model).plan(batch)
    for entry in plan.entries.values():
        lines.append(f"| `{entry.name}` | {entry.update} | {entry.reason} |")
    return "\n".join(lines)


def parts_of(kind: type) -> tuple[str, str]:
    """The first sentence and the first equation of a model, or of the class that it is made with."""
    for owner in kind.__mro__:
        lead, *rest = (inspect.cleandoc(owner.__doc__ or "")).split("\n\n")
        if equation := next((p for p in rest if p.startswith(".. math::")), ""):
            own = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
            return own or lead, equation
    return "", ""


def fragment() -> str:
    """Markdown of all swaps, with those of the likelihood and those of a prior under a heading each."""
    parts = []
    for heading, kinds in MODELS.items():
        parts.append(f"## {heading}")
        for kind in kinds:
            lead, equation = parts_of(kind)
            link = f":py:obj:`API <{kind.__module__}.{kind.__name__}>`"
            parts.append(
                f"### {kind.__name__}\n\n```{{eval-rst}}\n{lead} ({link})\n\n{equation}\n```\n\n{plan_of(kind)}"
            )
    return "\n\n".join(parts) + "\n"
