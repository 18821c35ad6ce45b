"""The page on what differs from the paper: evidence computed here, and every docstring's own words."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import torch

from generate.links import with_bars
from pyro_prme.equations.sticks import log_stick_weights
from pyro_prme.equations.updates import loadings_update, solve_epsilon

MARK = "Differs from the paper:"


def collected(package: Path) -> Iterator[tuple[str, str]]:
    """Every "Differs from the paper" paragraph of a docstring, with the name of what it documents."""
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        yield from _of_node(ast.parse(path.read_text(encoding="utf-8")), module)


def _of_node(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
            if MARK in paragraph:
                yield name, " ".join(paragraph[paragraph.index(MARK) + len(MARK) :].split())
        for child in node.body:
            yield from _of_node(child, f"{name}.{getattr(child, 'name', '')}")


def paragraphs(package: Path) -> str:
    """All of them, as a list in reStructuredText inside Markdown."""
    items = []
    for name, text in collected(package):
        role = f":py:obj:`{name.removeprefix('pyro_prme.')} <{name}>`"
        items.append(f"* {role}: {with_bars(text)}")
    body = "\n".join(textwrap.fill(item, 110, subsequent_indent="  ", break_long_words=False) for item in items)
    return f"```{{eval-rst}}\n{body}\n```\n"


def epsilon_sweeps(length: float = 500.0, beta: float = 5.0, num_topics: int = 50) -> str:
    """How far the paper's recomputation of epsilon is from its fixed point after so many sweeps."""
    generator = torch.Generator().manual_seed(0)
    prior = torch.full((1, num_topics), beta / num_topics, dtype=torch.float64)
    share = torch.distributions.Dirichlet(torch.full((num_topics,), 0.1, dtype=torch.float64))
    torch.manual_seed(0)
    counts = length * share.sample((1,))
    exp_neg_f = torch.randn(1, num_topics, dtype=torch.float64, generator=generator).exp()
    M = torch.tensor([length], dtype=torch.float64)
    root = solve_epsilon(prior + counts, exp_neg_f, M, prior.sum(-1))
    epsilon, rows = M.clone(), []
    for sweep in range(1, 1001):
        concentration, rate = loadings_update(prior, counts, exp_neg_f, M, epsilon)
        epsilon = (concentration / rate).sum(-1)
        if sweep in (1, 10, 20, 100, 300, 1000):
            rows.append(f"| {sweep} | {float(epsilon / root):.3g} |")
    return (
        f"A document of {length:.0f} tokens, $\\beta = {beta:g}$, {num_topics} topics, from $\\varepsilon = M$:\n\n"
        "| sweeps | recomputed $\\varepsilon$ / its fixed point |\n| ---: | ---: |\n" + "\n".join(rows) + "\n"
    )


def lost_sticks(num_topics: int = 100, draws: int = 4000) -> str:
    """How often a prior draw in single precision has a weight of zero when sticks are multiplied as written."""
    torch.manual_seed(0)
    V = torch.distributions.Beta(torch.tensor(1.0), torch.tensor(1.0)).sample((draws, num_topics - 1))
    plain = torch.cat([V, V.new_ones(draws, 1)], -1) * torch.cat([V.new_ones(draws, 1), (1 - V).cumprod(-1)], -1)
    lost, infinite = (plain == 0).any(-1).float().mean(), log_stick_weights(V).isinf().any(-1).float().mean()
    return (
        f"Of {draws:,} prior draws in single precision ($K = {num_topics}$, $\\alpha = 1$), {100 * lost:.0f}% have "
        f"some $p_k = 0$ when the sticks are multiplied as written; in log space {100 * infinite:.0f}% have an "
        "infinite $\\ln p_k$.\n"
    )


def fragments(root: Path) -> dict[str, str]:
    """Markdown by file name."""
    return {
        "differences.md": paragraphs(root / "pyro_prme"),
        "epsilon.md": epsilon_sweeps(),
        "sticks.md": lost_sticks(),
    }
