"""What the pictures share: checks, labels, colours and axes; a user never opens this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyro_prme.answers.posterior import Posterior
from pyro_prme.corpora.corpus import Corpus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "DIVERGING",
    "MARKERS",
    "OKABE_ITO",
    "check",
    "labels",
    "need_random_function",
    "new_axes",
    "picked",
    "plain",
    "points",
]

#: Colours of Okabe and Ito, which the colour-blind tell apart; black and yellow are left out.
OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = ("o", "s", "^", "D", "v", "P")
#: Colour map for correlations: purple is negative, orange positive, as the colour-blind see too.
DIVERGING = "PuOr_r"


def new_axes(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def points(ax: Axes) -> tuple[float, float]:
    """Width and height in points that the axes have in their figure as it now is."""
    figure = ax.figure.figure  # that of the subfigure, if the axes are in one
    figure.draw_without_rendering()  # settles the layout
    box = ax.get_window_extent()
    return box.width * 72 / figure.dpi, box.height * 72 / figure.dpi


def check(posterior: Posterior, corpus: Corpus) -> None:
    """Refuses what is no posterior, no corpus, or does not belong together."""
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior is a {type(posterior).__name__}: give a Posterior of a fitted model.")
    if not isinstance(corpus, Corpus):
        raise ValueError(
            f"corpus is a {type(corpus).__name__}: give a Corpus, whose words and names label the picture."
        )
    if corpus.vocab_size != posterior.vocab_size:
        raise ValueError(
            f"The corpus has {corpus.vocab_size} words and the model {posterior.vocab_size}: "
            "align the corpus with the one that the model was fitted to."
        )


def need_random_function(posterior: Posterior, what: str) -> None:
    """Refuses a model without a function of documents' and topics' embeddings, such as an HDP."""
    if not all(posterior.has(role) for role in ("places", "embedding", "function")):
        raise ValueError(
            f"{what} show the random function f(h, ell), and {type(posterior.model).__name__} has none: fit a PRME."
        )


def picked(values: Sequence[int] | np.ndarray, size: int, what: str) -> np.ndarray:
    """Checked positions of topics or documents."""
    numbers = np.atleast_1d(np.asarray(values))
    if numbers.size == 0 or numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= size:
        raise ValueError(f"{what} is {np.asarray(values).tolist()}: give whole numbers from 0 to {size - 1}.")
    return numbers


def labels(posterior: Posterior, corpus: Corpus, num_words: int, by: str) -> list[list[str]]:
    """The first words of each topic."""
    order = posterior.top_words(num_words, by=by).to_numpy()
    known = posterior.vocabulary is not None
    return [[plain(str(word) if known else corpus.vocabulary[int(word)]) for word in row] for row in order]


def plain(text: str) -> str:
    """A user's word or name as matplotlib should write it: no formulas, and no underscore that hides a legend entry."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
