"""The page of closed forms, from the models and ways of writing that the tests of the engine go through."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyro
import torch

from pyro_prme.conjugacy import find_groups, find_structure

#: What to do about a refusal, by what its reason says; the first that fits is taken.
ADVICE: tuple[tuple[str, str, str], ...] = (
    (
        r"differs between two runs|same sites at each run|another prior than before|same prior and shape|"
        r"writes into the value",
        "The model is not a function of its sites",
        "The whole model is turned down. Make networks and other constants outside of it, let it have the same sites "
        "at each run, and write `x = x + 1` in place of `x += 1`.",
    ),
    (
        r"^its prior is",
        "The prior is not in one of the families",
        "Normal, MultivariateNormal, Gamma, Exponential, InverseGamma, Beta, Dirichlet, and discrete distributions "
        "with finitely many values are known. Take one of them (a Gamma for a precision instead of a HalfCauchy for "
        "a scale), or leave the site to gradients, which is what happens by itself.",
    ),
    (
        r"is not a statistic of",
        "The family has no such statistic",
        "A Gamma has E x and E ln x and no E x^-2: let it be a precision and not a scale. An InverseGamma has "
        "E 1/x: let it be a variance. A Normal has E x and E x^2, and no higher powers.",
    ),
    (
        r"product of two of its members|couples members|are coupled",
        "Members of one site are coupled",
        "Only Normal members have a joint factor. Make two sites of what is multiplied: discrete ones then have a "
        "factor together, others are updated one after the other.",
    ),
    (
        r"reads? its value|below the level|fails on tensors|mask that chooses|one_hot is called|"
        r"turned into whole numbers",
        "The model reads a value",
        "A random tensor has no number in it. Replace `if` by `torch.where` on a discrete site, `.item()` and numpy by "
        "operations of torch, and a boolean mask by a plate or `poutine.mask`.",
    ),
    (
        r"written into a tensor in place",
        "It is written into a tensor",
        "Build the tensor with `torch.stack` or `torch.cat` from its parts.",
    ),
    (
        r"logarithm of a sum|only its logarithm|logsumexp",
        "A logarithm of a sum",
        "It is bounded where all summands are positive and the sign in front is known, as in mixtures and "
        "normalised weights. Otherwise introduce the choice of a summand as a discrete site.",
    ),
    (
        r"in the (shape|concentration|covariance|logits|mask|scale)|in a covariance|number of trials|limit of a|"
        r"place of a Delta|enters the logits",
        "A parameter in which the density is no sum of statistics",
        "Shapes, limits, numbers of trials, covariances and logits of a site have no conjugate prior here. Put the "
        "prior on what has one (a rate and not a shape, a precision and not a covariance, a probability and not its "
        "logit), or leave the site to gradients.",
    ),
    (
        r"goes through|under an exp|raised to the power",
        "It goes through a function",
        "The expectation of a nonlinear function is not known in the family. Products, sums, reshapes, constant "
        "matrices, gathers, `cumsum`, `cumprod` of sticks, `where`, and `einsum` are followed; leave the site to "
        "gradients, or write the function as a product of sites.",
    ),
)


def tables(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tests' models and idioms."""
    if str(root) not in sys.path:
        sys.path.append(str(root))
    from tests.conjugacy import idioms
    from tests.conjugacy.idioms.table import IDIOMS
    from tests.conjugacy.models import CASES

    for module in pkgutil.iter_modules(idioms.__path__):
        importlib.import_module(f"{idioms.__name__}.{module.name}")
    return dict(CASES), dict(IDIOMS)


def fragment(root: Path) -> str:
    """Markdown of what is found, and of what is not with what to do then."""
    dtype, state = torch.get_default_dtype(), torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        cases, idioms = tables(root)
        parts = ["## Models whose closed forms are found", found(cases), ways(idioms), *refusals(idioms)]
    finally:
        torch.set_default_dtype(dtype)
        torch.set_rng_state(state)
    return "\n\n".join(parts) + "\n"


def found(cases: dict[str, Any]) -> str:
    """A table of models with the family of each site's factor."""
    lines = ["| model | factors | bound |", "| --- | --- | --- |"]
    for name, case in cases.items():
        pyro.set_rng_seed(0)
        structure = find_structure(case.model, case.args())
        groups = find_groups(structure, structure.closed).groups
        factors = []
        for site, family in structure.families.items():
            joint = f", joint over {getattr(family, 'joint_size', 1)}" if family.joint else ""
            factors.append(f"`{site}` {family.title}{joint}")
        factors += [f"{', '.join(f'`{n}`' for n in names)} together" for names in groups]
        factors += [f"`{site}` none: {structure.refusals[site]}" for site in structure.open]
        exact = "a logarithm of a sum is bounded" if case.bounded else "exact expectations"
        lines.append(f"| {words(name)} | {'; '.join(factors)} | {exact} |")
    return "\n".join(lines)


def ways(idioms: dict[str, Any]) -> str:
    """The ways of writing that are followed, by the file of the tests that has them."""
    groups: dict[str, list[str]] = {}
    for name, one in idioms.items():
        if not one.refused and not one.error:
            groups.setdefault(one.model.__module__.rsplit(".", 1)[-1], []).append(words(name))
    count = sum(map(len, groups.values()))
    lines = [f"## Ways of writing that are followed\n\nThe tests go through {count} of them:\n"]
    lines += [f"- **{words(group)}**: {', '.join(names)}." for group, names in groups.items()]
    return "\n".join(lines)


def refusals(idioms: dict[str, Any]) -> list[str]:
    """A section for each piece of advice: the reasons that it is for, and one of the models that has it."""
    reasons: dict[int, dict[str, list[str]]] = {place: {} for place in range(len(ADVICE))}
    for name, one in idioms.items():
        for reason in dict.fromkeys([*one.refused.values(), *([one.error] if one.error else [])]):
            place = next((i for i, (pattern, *_) in enumerate(ADVICE) if re.search(pattern, reason)), None)
            if place is None:
                raise ValueError(f"There is no advice for {reason!r}: add some to ADVICE in {Path(__file__).name}.")
            reasons[place].setdefault(reason, []).append(name)
    parts = ["## What is not found, and what to do then"]
    for place, (_, heading, advice) in enumerate(ADVICE):
        rows = [
            f"| {escaped(r)} | {', '.join(words(n) for n in names)} |" for r, names in sorted(reasons[place].items())
        ]
        each = [source(idioms[name]) for names in reasons[place].values() for name in names]
        shortest = min(each, key=lambda code: ("pyro.sample" not in code, len(code)))
        parts += [
            f"### {heading}",
            advice,
            "\n".join(["| the reason given | ways of writing |", "| --- | --- |", *rows]),
            f"For example:\n\n```py\n{shortest}\n```",
        ]
    return parts


def words(name: str) -> str:
    """A name of the tests in words."""
    return name.replace("_", " ")


def escaped(text: str) -> str:
    """Text that Markdown and its tables leave alone."""
    return re.sub(r"([\\|*_<>\[\]])", r"\\\1", text)


def source(one: Any) -> str:
    """The code of an idiom, without what says to the tests what to expect."""
    code = dedent(inspect.getsource(one.model))
    return code[code.index("def ") :].rstrip()
