"""What the pictures share: checks, labels, colours, axes and the plane of embeddings; a user never opens this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from pyro_prme.answers.posterior import Posterior, default_dtype
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "DIVERGING",
    "MARKERS",
    "OKABE_ITO",
    "check",
    "labels",
    "leaf_order",
    "need_random_function",
    "new_axes",
    "picked",
    "plain",
    "points",
    "prior_mean",
    "svd_plane",
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
    if corpus.vocab_size != posterior.model.vocab_size:
        raise ValueError(
            f"The corpus has {corpus.vocab_size} words and the model {posterior.model.vocab_size}: "
            "align the corpus with the one that the model was fitted to."
        )


def need_random_function(posterior: Posterior, what: str) -> None:
    """Refuses a model without a function of documents' and topics' embeddings, such as an HDP."""
    if not {"ell", "h", "f"} <= set(posterior.guide.rules):
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


@torch.no_grad()
def prior_mean(posterior: Posterior, h: np.ndarray) -> np.ndarray:
    """Mean loadings at embeddings h (P, h_dim), in evaluation mode, shape (P, K), see `PRME.mean_loadings`."""
    model, sticks = posterior.model, posterior.guide.get_submodule("rules.V")
    if not isinstance(sticks, Point):
        raise ValueError("The strength of topics is read off the point V, and this guide has another rule for V.")
    ell = torch.as_tensor(posterior.topic_embeddings().values, dtype=posterior._theta.gamma.dtype)
    points = torch.as_tensor(h, dtype=ell.dtype)
    parts = []
    with default_dtype(ell.dtype), eval_mode(model, posterior.guide):
        for part in points.split(512):
            mean, variance = model.decode(part.unsqueeze(-2), ell)
            parts.append(model.mean_loadings(sticks.value(), mean.double(), variance.double()))
    return torch.cat(parts).numpy()


def svd_plane(h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The plane of most variation of embeddings h (N, h_dim).

    Returns:
        The mean m_h (h_dim,), the two leading right singular directions times their singular values (2, h_dim), and
        each document's coordinates (N, 2): h is near mean + coordinates @ directions. Signs are fixed: the largest
        component of a direction is positive.
    """
    if h.shape[0] < 3 or h.shape[1] < 2:
        raise ValueError(
            f"Embeddings of shape {h.shape} span no plane: give three documents and two dimensions or more."
        )
    mean = h.mean(0)
    left, values, right = np.linalg.svd(h - mean, full_matrices=False)
    largest = np.abs(right[:2]).argmax(1)
    sign = np.where(right[:2][np.arange(2), largest] < 0, -1.0, 1.0)
    return mean, (sign * values[:2])[:, None] * right[:2], left[:, :2] * sign


def leaf_order(correlations: np.ndarray) -> np.ndarray:
    """Order in which neighbours correlate: leaves of an average-linkage tree on 1 - correlation."""
    if len(correlations) < 3:
        return np.arange(len(correlations))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distance = np.maximum(squareform(1 - correlations, checks=False), 0)
    return leaves_list(linkage(distance, "average", optimal_ordering=True))
