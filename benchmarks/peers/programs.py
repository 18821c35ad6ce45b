"""Which programs are compared, and with which settings: those that did best on validation documents, most on nyt's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from adapters import gensim_hdp, gensim_lda, ours, prod_lda, sklearn_lda, tomotopy_gibbs

from pyro_prme.inference.build import PRESETS


class Peer(NamedTuple):
    """A row of the table.

    Args:
        label: in tables and figures.
        train: its adapter.
        settings: those that did best on validation documents.
        tried: changes of them that were tried there.
        on: by corpus, changes that did better on validation documents of that one.
    """

    label: str
    train: Callable[..., None]
    settings: dict[str, Any]
    tried: tuple[dict[str, Any], ...] = ()
    on: dict[str, dict[str, Any]] = {}  # noqa: RUF012


PEERS = {
    "sklearn-batch": Peer(
        "scikit-learn LDA, batch",
        sklearn_lda,
        {"n_components": 100, "learning_method": "batch", "doc_topic_prior": 0.02, "topic_word_prior": 0.05},
        (
            {"doc_topic_prior": 0.05},
            {"doc_topic_prior": 0.05, "topic_word_prior": 0.1},
            {"doc_topic_prior": 0.05, "topic_word_prior": 0.2},
            {"doc_topic_prior": 0.1, "topic_word_prior": 0.2},
            {"topic_word_prior": 0.2},
        ),
    ),
    "sklearn-online": Peer(
        "scikit-learn LDA, online",
        sklearn_lda,
        {
            "n_components": 100,
            "learning_method": "online",
            "doc_topic_prior": 0.05,
            "topic_word_prior": 0.05,
            "learning_decay": 0.55,
            "batch_size": 500,
        },
        (
            {"topic_word_prior": 0.1},
            {"doc_topic_prior": 0.02, "topic_word_prior": 0.1},
            {"topic_word_prior": 0.1, "learning_decay": 0.7},
            {"topic_word_prior": 0.2},
            {"topic_word_prior": 0.2, "learning_decay": 0.7, "batch_size": 128},
            {"topic_word_prior": 0.2, "learning_decay": 0.7, "learning_offset": 50.0},
        ),
    ),
    "gensim-lda": Peer(
        "gensim LdaMulticore",
        gensim_lda,
        {"alpha": "asymmetric", "eta": 0.2, "chunksize": 500, "decay": 0.7},
        (
            {"decay": 0.5},
            {"decay": 0.5, "eta": 0.1},
            {"decay": 0.5, "eta": 0.5},
            {"decay": 0.5, "alpha": "symmetric"},
            {"decay": 0.5, "chunksize": 1000},
        ),
    ),
    "gensim-hdp": Peer(
        "gensim HdpModel",
        gensim_hdp,
        {"T": 150, "K": 15, "eta": 0.01, "kappa": 0.6},
        ({"kappa": 1.0}, {"kappa": 1.0, "eta": 0.1}, {"tau": 1.0}),
    ),
    "tomotopy-lda": Peer(
        "tomotopy LDA",
        tomotopy_gibbs,
        {"model": "LDAModel", "k": 100, "alpha": 0.02, "eta": 0.05},
        (
            {"k": 200},
            {"alpha": 0.1},
            {"alpha": 0.5},
            {"eta": 0.1},
            {"alpha": 0.1, "eta": 0.1},
            {"alpha": 0.5, "eta": 0.1},
            {"alpha": 0.1, "eta": 0.2},
            {"eta": 0.02},
            {"eta": 0.01},
        ),
        {"20news": {"eta": 0.02}},
    ),
    "tomotopy-hdp": Peer(
        "tomotopy HDP",
        tomotopy_gibbs,
        {"model": "HDPModel", "initial_k": 100, "alpha": 1.0, "gamma": 1.0, "eta": 0.3},
        (
            {"eta": 0.1},
            {"eta": 0.05},
            {"eta": 0.05, "gamma": 10.0},
            {"eta": 0.05, "initial_k": 20},
            {"eta": 0.05, "alpha": 0.1, "gamma": 0.1},
            {"eta": 0.01, "alpha": 0.1, "gamma": 0.1},
        ),
    ),
    "tomotopy-ct": Peer(
        "tomotopy CT",
        tomotopy_gibbs,
        {"model": "CTModel", "k": 100, "smoothing_alpha": 0.5, "eta": 0.05, "sweeps": 2},
        (
            {"smoothing_alpha": 0.1},
            {"smoothing_alpha": 0.02},
            {"smoothing_alpha": 0.1, "eta": 0.01},
            {"smoothing_alpha": 0.1, "eta": 0.1},
        ),
    ),
    "pyro-prodlda": Peer(
        "Pyro ProdLDA",
        prod_lda,
        {"batch_size": 64, "learning_rate": 2e-2, "hidden": 100, "dropout": 0.2},
        (
            {"learning_rate": 5e-3},
            {"learning_rate": 1e-3},
            {"learning_rate": 1e-3, "batch_size": 200},
            {"learning_rate": 1e-3, "hidden": 200},
            {"learning_rate": 1e-3, "dropout": 0.5},
        ),
    ),
    "hdp": Peer("ours, HDP", ours, {"model": "hdp"}),
    "prme": Peer("ours, PRME", ours, {"model": "prme"}),
    "diln": Peer("ours, DILN", ours, {"model": "diln"}),
    "predictive": Peer("ours, predictive", ours, PRESETS["predictive"]),
    "best": Peer("ours, predictive, K = 200", ours, {**PRESETS["predictive"], "num_topics": 200}),
}

OURS = ("hdp", "prme", "diln", "predictive", "best")
