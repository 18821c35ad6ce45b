"""The Chinese restaurant of a document that repeats words: its law, and what comes next; pure functions of tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["log_seating", "next_word", "tables_of"]


def tables_of(count: Tensor, growth: float) -> Tensor:
    r"""How many tables the n tokens of a word have, a whole number from 1 to n (0 for no token).

    .. math:: t(n) = \max(1, \mathrm{round}(n^{g}))

    With g = 0 there is one table for each different word, which is presence. The n customers of a restaurant with
    discount d have about n^d tables, so that g near d is what the restaurant itself would have.

    Args:
        count: n, whole numbers.
        growth: g, from 0 to 1.
    """
    tables = (count**growth).round().clamp(min=1).minimum(count)
    return torch.where(count > 0, tables, torch.zeros_like(tables))


def log_seating(
    count: Tensor, tables: Tensor, before: Tensor, tables_before: Tensor, concentration: Any, discount: Any
) -> Tensor:
    r"""Log probability that a word's customers sit down as they do, after those of the words before it.

    .. math::
        \ln \frac{\prod_{i=0}^{t-1} (c + d (T' + i))}{\prod_{j=0}^{n-1} (c + N' + j)}
        \frac{\Gamma(n - t + 1 - d)}{\Gamma(1 - d)}

    in a Pitman-Yor restaurant with N' customers at T' tables. The n customers of the word have t tables, of which one
    has n - t + 1 customers and each other one. Summed over the words of a document this is the log probability of one
    seating of its tokens, whatever their order; with t = 1 the sum over all ways to deal N tokens out to words is one.

    Args:
        count: n, shape (E,); an entry without tokens has 0.
        tables: t, shape (E,).
        before: N', shape (E,).
        tables_before: T', shape (E,).
        concentration: c, positive.
        discount: d, from 0 to 1.
    """
    c, d = (torch.as_tensor(x, dtype=count.dtype) for x in (concentration, discount))
    ratio = c / d + tables_before
    opened = tables * d.log() + (ratio + tables).lgamma() - ratio.lgamma()
    seated = (c + before + count).lgamma() - (c + before).lgamma()
    joined = (count - tables + 1 - d).lgamma() - (1 - d).lgamma()
    return torch.where(count > 0, opened - seated + joined, torch.zeros_like(count))


def next_word(
    count: Any, tables: Any, total: Any, total_tables: Any, base: Any, concentration: Any, discount: Any
) -> Any:
    r"""Probability that a document's next token is a word, given its tokens so far; for arrays or tensors.

    .. math::
        p(w) = \frac{n_w - d t_w + (c + d T) p_0(w)}{N + c}

    Args:
        count: n_w, tokens of the word in the document.
        tables: t_w, their tables.
        total: N, all tokens of the document.
        total_tables: T, all tables.
        base: p_0(w), the word's probability by the document's topics.
        concentration: c.
        discount: d.
    """
    return (count - discount * tables + (concentration + discount * total_tables) * base) / (total + concentration)
