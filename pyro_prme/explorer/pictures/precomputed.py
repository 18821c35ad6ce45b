"""The numbers behind the pictures to play with: drawn and solved here once, so that the page only looks them up.

Every picture moves smoothly because its randomness is fixed: sliders change the numbers that the same uniform draws are
turned into.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np

from pyro_prme.explorer.page_data import PageData
from pyro_prme.measures import GeneralizedGammaLevy

__all__ = ["ARRAYS", "paintbox_arrays"]

_MASS = 3.0  # of the base measure of the random measures shown


def _rounded(values: Any, digits: int = 4) -> list:
    return np.round(np.asarray(values, dtype=float), digits).tolist()


def _significant(values: np.ndarray) -> list:
    """Four significant digits."""
    return np.array([f"{value:.4g}" for value in np.ravel(values)], dtype=float).reshape(values.shape).tolist()


def discs() -> dict[str, Any]:
    """Objects: uniform points of the unit square, two to a row."""
    return {"points": _rounded(np.random.default_rng(5).uniform(size=(160, 2)), 3)}


def inverse_tail() -> dict[str, Any]:
    """A unit-rate Poisson process, and by discount its points sent through the inverse tail, and the tail itself."""
    arrivals = np.random.default_rng(8).exponential(size=80).cumsum()
    arrivals = arrivals[arrivals < 60]
    discounts = np.round(np.arange(0, 0.85, 0.05), 2)
    levies = [GeneralizedGammaLevy(_MASS, discount=float(d), rate=1.0) for d in discounts]
    x = np.geomspace(1e-8, 10, 120)
    return {
        "mass": _MASS,
        "arrivals": _rounded(arrivals),
        "discounts": discounts.tolist(),
        "x": _significant(x),
        "tails": [_significant(levy.tail(x)) for levy in levies],
        "weights": [_significant(np.maximum(levy.inverse_tail(arrivals), 1e-12)) for levy in levies],
    }


def sticks() -> dict[str, Any]:
    """Uniform draws for sticks, customers of the restaurant, and customers and dishes of the buffet."""
    rng = np.random.default_rng(11)
    return {
        "sticks": _rounded(rng.uniform(size=40)),
        "seats": _rounded(rng.uniform(size=40)),
        "newDishes": _rounded(rng.uniform(size=40)),
        "dishes": _rounded(rng.uniform(size=(40, 60)), 3),
    }


_WORDS = (
    "river stone bread king song ship star field fire horse gate wine winter letter bridge garden market candle window "
    "road sheep silver storm bell"
)


def written() -> dict[str, Any]:
    """Uniform draws for eight sticks, topics over 24 words, the loadings of three documents, and their words."""
    rng = np.random.default_rng(2)
    words = _WORDS.split()
    return {
        "words": words,
        "sticks": _rounded(rng.uniform(size=8)),
        "topics": _rounded(rng.uniform(size=(8, len(words))), 5),
        "loadings": _rounded(rng.uniform(size=(3, 8)), 5),
        "assignments": _rounded(rng.uniform(size=(3, 70))),
        "tokens": _rounded(rng.uniform(size=(3, 70))),
    }


def epsilon() -> dict[str, Any]:
    """Sticks, a random function, and the share of a document's words that each topic takes."""
    rng = np.random.default_rng(4)
    V = rng.beta(1, 4, size=30)
    p = V * np.cumprod(np.concatenate([[1.0], 1 - V[:-1]]))
    f = rng.normal(0, 0.8, size=30)
    taken = rng.dirichlet(8 * p * np.exp(f) + 0.02)
    return {"p": _rounded(p / p.sum(), 5), "f": _rounded(f), "taken": _rounded(taken, 5)}


def paintboxes() -> dict[str, Any]:
    """Nine paintboxes of a fit to the King James Bible, as `paintbox_arrays` made them."""
    text = (resources.files("pyro_prme.explorer.pictures") / "play" / "kjv_paintboxes.json").read_text(encoding="utf-8")
    return json.loads(text)


def paintbox_arrays(data: PageData, num_topics: int = 9, num_documents: int = 240) -> dict[str, Any]:
    """The same of any fit with places: the topics whose loading differs most over the documents, weighted by usage.

    Args:
        data: of an explorer page, see `page_data`.
        num_topics: paintboxes to show.
        num_documents: documents to show as points, every so manieth.
    """
    if data.loadings is None:
        raise ValueError("This model has no random function of places: fit a PRME to have paintboxes.")
    side = data.loadings.shape[1]
    column, row = (((data.coordinates / data.half).clip(-1, 1) + 1) / 2 * (side - 1)).round().astype(int).T
    there = np.log(data.loadings[:, row, column])  # (T, N)
    spread = data.usage * there.std(1)
    best = np.sort(np.argsort(-spread, kind="stable")[:num_topics])
    coarse = data.loadings[:, ::2, ::2]
    some = np.linspace(0, len(data.rows) - 1, min(num_documents, len(data.rows))).astype(int)
    return {
        "names": [", ".join(data.vocabulary[w] for w in data.labels[t][:3]) for t in best],
        "side": coarse.shape[1],
        "boxes": [_significant(coarse[t].ravel()) for t in best],
        "total": _significant(coarse.sum(0).ravel()),
        "places": _rounded((data.coordinates / data.half)[some], 3),
        "documents": [data.names[n] for n in some],
    }


#: What each picture gets, by its name.
ARRAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "discs": discs,
    "inverse_tail": inverse_tail,
    "sticks": sticks,
    "written": written,
    "epsilon": epsilon,
    "paintboxes": paintboxes,
}


def selected(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The arrays of some pictures, by name."""
    return {name: ARRAYS[name]() for name in names}
