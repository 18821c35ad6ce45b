"""A fitted model for other tools: open this to look at a posterior with ArviZ or with pyLDAvis."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import xarray as xr

from pyro_prme.answers.draws import Factors, draw_words, posterior_factors, prior_draws
from pyro_prme.answers.posterior import Posterior
from pyro_prme.answers.scores import log_predictive
from pyro_prme.answers.sites import OF_FUNCTION, SYMBOLS
from pyro_prme.checks import whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.equations.sticks import stick_weights

if TYPE_CHECKING:
    from pyro_prme.corpora.splits import TokenSplit

__all__ = ["to_inference_data", "to_pyldavis"]

#: What the groups posterior and prior may hold, and its dimensions beside chain and draw.
VARIABLES: dict[str, tuple[str, ...]] = {
    SYMBOLS["sticks"]: ("stick",),
    "p": ("topic",),
    SYMBOLS["topics"]: ("topic", "word"),
    "proportions": ("document", "topic"),
    SYMBOLS["loadings"]: ("document", "topic"),
    SYMBOLS["places"]: ("topic", "ell_dim"),
    SYMBOLS["embedding"]: ("document", "h_dim"),
    SYMBOLS["function"]: ("document", "topic"),
}
_ROLES = {symbol: role for role, symbol in SYMBOLS.items()} | {"p": "sticks"}  # of the sites behind a variable
#: What posterior_predictive and observed_data hold.
STATISTICS: dict[str, tuple[str, ...]] = {
    "distinct_words": ("document",),
    "document_frequency": ("word",),
    "word_counts": ("word",),
    "X": ("document", "word"),
}
_POINTS = ("sticks", "places")  # roles of sites that are exported only where they are point masses
_SETTINGS = ("alpha", "beta", "gamma0")


def to_inference_data(
    posterior: Posterior,
    corpus: Corpus,
    draws: int = 100,
    *,
    variables: Sequence[str] = ("p", "theta", "proportions"),
    num_words: int = 100,
    split: TokenSplit | None = None,
    prior: bool = True,
    counts: bool = False,
    seed: int = 0,
) -> Any:
    r"""The fit as ArviZ has it: an `InferenceData` with ArviZ below 1, an `xarray.DataTree` from 1 on.

    Groups, with coordinates named topic, document and word:

    - posterior: draws from q. ell, V (and so p) and h are point masses in q: their draws are all equal. So are those of
      f where it is in the shape, and of theta where topics are points.
    - posterior_predictive and observed_data: distinct_words (document), document_frequency and word_counts (word), of
      documents of the observed lengths; with ``counts`` also X (document, word).
    - log_likelihood: X (document), the log probability of a document's words given the drawn theta and Z, topics
      summed out.
    - held_out, if a split is given: log_likelihood (document), the same of the held-out words with Z drawn given the
      observed words only, and elpd (document), the logarithm of its mean probability over draws.
    - prior: V and theta from their priors, and Z from its prior given them and the documents' fitted embeddings: a
      trained function belongs to the embeddings it was trained on, not to N(0, a I).
    - constant_data: lengths (document), and alpha, beta and gamma0.

    The log likelihood is in-sample and its draws come from q, a mean-field approximation that has seen each document:
    PSIS-LOO and `az.compare` run on it, but their Pareto k is often above 0.7, and q's variances are too small. Compare
    models by the held-out group instead, on words that the model was not fitted to.

    Args:
        posterior: of a fitted model with Gamma loadings.
        corpus: documents of the model's vocabulary.
        draws: number of draws; one chain.
        variables: which of `VARIABLES` the groups posterior and prior hold.
        num_words: the word dimension holds this many, those with most tokens, since topics x words x draws are many
            numbers; log likelihoods use all words.
        split: held-out words of some documents.
        prior: whether to draw from the prior.
        counts: whether to keep drawn counts (draw, document, word).
        seed: of all draws.

    Example:
        >>> import arviz as az
        >>> data = to_inference_data(posterior, corpus, split=test.split_tokens())
        >>> table = az.summary(data, var_names=["proportions"], kind="stats")
    """
    _check(posterior, corpus, draws, variables, num_words)
    rng = np.random.default_rng(seed)
    factors = posterior_factors(posterior, corpus)
    words = np.sort(np.argsort(-_word_counts(corpus.counts), kind="stable")[:num_words])
    points = _points(posterior)
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in variables}
    predicted: dict[str, list[np.ndarray]] = {}
    log_likelihood = []
    for _ in range(draws):
        theta, Z = factors.draw_topics(rng), factors.draw_loadings(rng)
        values = points | {"topics": theta, "loadings": Z}
        if factors.h is not None:
            values["embedding"] = factors.h
        if SYMBOLS["function"] in variables:
            values["function"] = factors.draw_function(rng)
        named = _variables(values, words)
        for name in variables:
            drawn[name].append(named[name])
        log_likelihood.append(log_predictive(Z, theta, corpus))
        for name, value in _statistics(draw_words(corpus.lengths, Z, theta, rng), words, counts).items():
            predicted.setdefault(name, []).append(value)
    coords = {
        "topic": np.arange(posterior.num_topics),
        "document": np.array(corpus.names),
        "word": np.array(corpus.vocabulary)[words],
    }
    groups = {
        "posterior": _dataset({name: np.stack(drawn[name]) for name in variables}, VARIABLES, coords),
        "posterior_predictive": _dataset({n: np.stack(v) for n, v in predicted.items()}, STATISTICS, coords),
        "log_likelihood": _dataset({"X": np.stack(log_likelihood)}, {"X": ("document",)}, coords),
        "observed_data": _dataset(_statistics(corpus.counts, words, counts), STATISTICS, coords, draws=False),
        "constant_data": _dataset(
            {"lengths": corpus.lengths, **{key: np.array(getattr(posterior.model, key)) for key in _SETTINGS}},
            {"lengths": ("document",), **dict.fromkeys(_SETTINGS, ())},
            coords,
            draws=False,
        ),
    }
    if prior:
        samples = _prior_group(posterior, factors, variables, words, draws, seed)
        groups["prior"] = _dataset(samples, VARIABLES, coords)
    if split is not None:
        groups["held_out"] = _held_out(posterior, split, draws, rng)
    return _collected(groups)


def to_pyldavis(posterior: Posterior, corpus: Corpus) -> dict[str, Any]:
    """The keyword arguments of `pyLDAvis.prepare`, whose picture lives in a notebook or a web page.

    Documents without words are left out, and so are words without tokens, which pyLDAvis refuses. It numbers topics
    from 1, largest first; ``sort_topics=False, start_index=0`` keeps the model's numbers.

    Args:
        posterior: of a fitted model.
        corpus: documents of the model's vocabulary.

    Example:
        >>> import pyLDAvis
        >>> page = pyLDAvis.prepared_data_to_html(pyLDAvis.prepare(**to_pyldavis(posterior, corpus)))
    """
    _check(posterior, corpus)
    frequency, lengths = _word_counts(corpus.counts), np.asarray(corpus.lengths)
    words, rows = np.flatnonzero(frequency), np.flatnonzero(lengths)
    if not rows.size:
        raise ValueError("The corpus has no words: pyLDAvis needs word counts.")
    topics = posterior.topics().values[:, words]
    return {
        "topic_term_dists": topics / topics.sum(1, keepdims=True),
        "doc_topic_dists": posterior.proportions(corpus).values[rows],
        "doc_lengths": lengths[rows],
        "vocab": [corpus.vocabulary[d] for d in words],
        "term_frequency": frequency[words],
    }


def _check(
    posterior: Posterior, corpus: Corpus, draws: int = 1, variables: Sequence[str] = ("p",), num_words: int = 1
) -> None:
    if not isinstance(posterior, Posterior) or not isinstance(corpus, Corpus):
        kinds = f"{type(posterior).__name__} and {type(corpus).__name__}"
        raise ValueError(f"posterior and corpus are {kinds}: give a Posterior of a fitted model and a Corpus.")
    for name, value in {"draws": draws, "num_words": num_words}.items():
        whole(name, value)
    unknown = [name for name in variables if name not in VARIABLES]
    if unknown or isinstance(variables, str) or not variables:
        raise ValueError(f"variables is {variables!r}: give a list of some of {', '.join(VARIABLES)}.")
    roles = {name: _ROLES[name] for name in variables if name in _ROLES}
    missing = [name for name, role in roles.items() if role in OF_FUNCTION and not posterior.has(role)]
    if missing:
        raise ValueError(f"{type(posterior.model).__name__} has no {missing[0]}: leave it out of the variables.")
    moving = [name for name, role in roles.items() if role in _POINTS and posterior.point(role) is None]
    if moving:
        raise ValueError(f"{moving[0]} is not a point mass in this guide: leave it out of the variables.")


def _word_counts(counts: Any) -> np.ndarray:
    return np.asarray(counts.sum(axis=0), dtype=np.int64).ravel()


def _statistics(counts: Any, words: np.ndarray, keep_counts: bool) -> dict[str, np.ndarray]:
    """What predictive and observed documents are compared by."""
    statistics = {
        "distinct_words": np.diff(counts.indptr).astype(np.int64),
        "document_frequency": np.bincount(counts.indices, minlength=counts.shape[1])[words],
        "word_counts": _word_counts(counts)[words],
    }
    return statistics | ({"X": counts[:, words].toarray().astype(np.int32)} if keep_counts else {})


def _points(posterior: Posterior) -> dict[str, np.ndarray]:
    """Values by role of the sites that are point masses in q."""
    found = {role: posterior.point(role) for role in _POINTS}
    return {role: value for role, value in found.items() if value is not None}


def _variables(values: Mapping[str, np.ndarray], words: np.ndarray) -> dict[str, np.ndarray]:
    """What is exported of values by role, for some of the words: they themselves, p, and proportions."""
    variables = {SYMBOLS[role]: value[:, words] if role == "topics" else value for role, value in values.items()}
    if "sticks" in values:
        variables["p"] = stick_weights(torch.as_tensor(values["sticks"], dtype=torch.float64)).numpy()
    loadings = values["loadings"]
    return variables | {"proportions": loadings / loadings.sum(1, keepdims=True)}


def _dataset(
    values: dict[str, np.ndarray], dims: dict[str, tuple[str, ...]], coords: dict[str, np.ndarray], draws: bool = True
) -> xr.Dataset:
    """Labelled values; those with draws get one chain."""
    lead = ("chain", "draw") if draws else ()
    arrays = {name: ((*lead, *dims[name]), value[None] if draws else value) for name, value in values.items()}
    used = {dim for name in values for dim in dims[name]}
    labels: dict[str, np.ndarray] = {dim: labels for dim, labels in coords.items() if dim in used}
    if draws:
        labels |= {"chain": np.arange(1), "draw": np.arange(len(next(iter(values.values()))))}
    return xr.Dataset(arrays, labels, {"inference_library": "pyro_prme"})


def _held_out(posterior: Posterior, split: TokenSplit, draws: int, rng: np.random.Generator) -> xr.Dataset:
    factors = posterior_factors(posterior, split.observed)
    scores = np.stack(
        [log_predictive(factors.draw_loadings(rng), factors.draw_topics(rng), split.held_out) for _ in range(draws)]
    )
    coords = {"document": np.array(split.held_out.names)}
    dataset = _dataset({"log_likelihood": scores}, {"log_likelihood": ("document",)}, coords)
    elpd = np.logaddexp.reduce(scores, axis=0) - np.log(draws)
    return dataset.assign(elpd=("document", elpd), lengths=("document", np.asarray(split.held_out.lengths)))


def _prior_group(
    posterior: Posterior, factors: Factors, variables: Sequence[str], words: np.ndarray, draws: int, seed: int
) -> dict[str, np.ndarray]:
    samples: dict[str, list[np.ndarray]] = {name: [] for name in variables}
    for drawn in prior_draws(posterior, factors, draws, seed):
        values = _variables(drawn, words)
        for name in variables:
            samples[name].append(values[name])
    return {name: np.stack(values) for name, values in samples.items()}


def _collected(groups: dict[str, xr.Dataset]) -> Any:
    """The groups as the installed ArviZ wants them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "\nArviZ is undergoing", FutureWarning)  # 0.23 announces 1.x when imported
        import arviz as az
    if int(az.__version__.split(".")[0]) >= 1:  # 1.x answers to InferenceData with a warning and a DataTree
        return xr.DataTree.from_dict(dict(groups))
    return az.InferenceData(**cast(dict[str, Any], groups))
