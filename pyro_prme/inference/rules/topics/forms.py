r"""What a site's expected log density must look like for the fused updates, whatever the sites are called.

Words X chosen through C from topics theta, and C from loadings Z of the word's document d(a):

.. code-block:: text

    X:  chosen C[a, b]  ln theta[b, w(a)]
    C:  chosen C[a, b]  ln Z[d(a), b]                       Z Dirichlet, or
        chosen C[a, b]  ln Z[d(a), b]  -  ln sum_c Z[d(a), c]    Z Gamma
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_prme.conjugacy.families import Dirichlet, Gamma
from pyro_prme.conjugacy.indices import Entry, Gather, Index, laid_along
from pyro_prme.conjugacy.terms import CHOSEN, LOG, POWER, Factor, Term
from pyro_prme.conjugacy.variables import Variable

__all__ = ["ChoiceForm", "NotThisForm", "WordForm", "choice_form", "word_form"]


class NotThisForm(Exception):
    """Why a density has another form: a clause."""


class WordForm(NamedTuple):
    """Words from topics.

    Args:
        assignment, topics: the variables C and theta.
        tokens: indices of the tokens.
        word: word ids, flat over the tokens.
        weight: how much each token counts, flat; or one number for all.
    """

    assignment: Variable
    topics: Variable
    tokens: tuple[Index, ...]
    word: Tensor
    weight: Tensor


class ChoiceForm(NamedTuple):
    """Topics from loadings.

    Args:
        loadings: the variable Z.
        document: of each token, flat.
        normalised: whether Z is divided by its sum over topics.
        weight: as in `WordForm`.
    """

    loadings: Variable
    document: Tensor
    normalised: bool
    weight: Tensor


def word_form(terms: Sequence[Term]) -> WordForm:
    """Reads the words' density."""
    term = _only([t for t in terms if t.factors or t.bounds], "more than the choice of a topic")
    chosen, theta = _two(term, LOG)
    if theta.variable.family is not Dirichlet:
        raise NotThisForm(f"words do not come from Dirichlet topics but from a {theta.variable.family.title}")
    tokens, value = _tokens(chosen)
    topic, word = _two_entries(theta)
    if topic is not value or not (isinstance(word, Gather) or word in tokens):
        raise NotThisForm("topics are not indexed by the choice and then by the word")
    return WordForm(chosen.variable, theta.variable, tokens, _flat(word, tokens), _weight(term, tokens))


def choice_form(terms: Sequence[Term], words: WordForm) -> ChoiceForm:
    """Reads the density of the choices."""
    linear = [t for t in terms if t.factors]
    term = _only(linear, "more than the loadings of its document")
    chosen, loadings = _two(term, LOG)
    tokens, value = _tokens(chosen)
    if chosen.variable is not words.assignment:
        raise NotThisForm("another variable is chosen")
    document, topic = _two_entries(loadings)
    if topic is not value:
        raise NotThisForm("loadings are not indexed by the document and then by the choice")
    weight = _weight(term, tokens)
    sums = [t for t in terms if t.bounds]
    if loadings.variable.family is Dirichlet and not sums:
        normalised = False
    elif loadings.variable.family is Gamma and len(sums) == 1:
        _check_sum(sums[0], loadings, weight, tokens)
        normalised = True
    else:
        raise NotThisForm("loadings are neither Dirichlet nor Gamma variables that are divided by their sum")
    return ChoiceForm(loadings.variable, _flat(document, tokens), normalised, weight)


def _check_sum(term: Term, loadings: Factor, weight: Tensor, tokens: tuple[Index, ...]) -> None:
    """The sum must be that of the same loadings over all topics, with the opposite weight."""
    inside = _only(list(term.bounds[0].terms), "a sum of several things")
    plain = inside.coefficient == 1 and not inside.constants and len(inside.factors) == 1 and not term.factors
    factor = inside.factors[0] if plain else None
    if factor is None or factor.variable is not loadings.variable or (factor.kind, factor.power) != (POWER, 1.0):
        raise NotThisForm("loadings are divided by something else than their sum")
    document, topic = _two_entries(factor)
    own, _ = _two_entries(loadings)
    same = torch.equal(_flat(document, tokens), _flat(own, tokens))
    if not same or not isinstance(topic, Index) or topic in term.bounds[0].indices:
        raise NotThisForm("loadings are divided by the sum of other loadings")
    if not torch.allclose(_weight(term._replace(coefficient=-term.coefficient), tokens), weight):
        raise NotThisForm("loadings are divided by a power of their sum")


def _only(found: list[Term], otherwise: str) -> Term:
    if len(found) != 1:
        raise NotThisForm(f"its density has {otherwise if found else 'no latent variable'}")
    return found[0]


def _two(term: Term, kind: str) -> tuple[Factor, Factor]:
    """An indicator and one other factor."""
    chosen = [f for f in term.factors if f.kind == CHOSEN]
    others = [f for f in term.factors if f.kind == kind]
    if term.bounds or len(term.factors) != 2 or len(chosen) != 1 or len(others) != 1:
        raise NotThisForm("it is not a choice times one logarithm")
    return chosen[0], others[0]


def _tokens(chosen: Factor) -> tuple[tuple[Index, ...], Entry]:
    """Indices of the tokens, and that of the value."""
    *tokens, value = (e for e in chosen.entries if not _constant(e))
    if not all(isinstance(e, Index) for e in (*tokens, value)):
        raise NotThisForm("choices are gathered themselves")
    return tuple(e for e in tokens if isinstance(e, Index)), value


def _constant(entry: Entry) -> bool:
    return isinstance(entry, Gather) and not entry.indices


def _two_entries(f: Factor) -> tuple[Entry, Entry]:
    """The entries of a variable of two dimensions, further ones of size one left out."""
    entries = list(f.entries)
    while len(entries) > 2 and any(map(_constant, entries)):
        entries.remove(next(filter(_constant, entries)))
    if len(entries) != 2:
        raise NotThisForm(f"{f.variable} has {len(entries)} dimensions and not two")
    return entries[0], entries[1]


def _flat(entry: Entry, tokens: tuple[Index, ...]) -> Tensor:
    """Positions of each token, flat."""
    at, own = (entry.at, entry.indices) if isinstance(entry, Gather) else (torch.arange(entry.size), (entry,))
    if not set(own) <= set(tokens):
        raise NotThisForm("something else than the token decides")
    if own == tokens and len(tokens) == 1:
        return at
    return laid_along(at, own, tokens).expand([i.size for i in tokens]).reshape(-1)


def _weight(term: Term, tokens: tuple[Index, ...]) -> Tensor:
    """What each token counts: flat, or one number for all."""
    weight = torch.tensor(term.coefficient)
    for c in term.constants:
        if not set(c.indices) <= set(tokens):
            raise NotThisForm("a weight is not one of tokens")
        if c.tensor.requires_grad:
            raise NotThisForm("a weight is learned")
        laid = laid_along(c.tensor, c.indices, tokens).expand([i.size for i in tokens]).reshape(-1)
        weight = laid * weight
    return weight
