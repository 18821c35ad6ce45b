"""Models and guides from plain settings: what the estimator, the command and the experiments build."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from pyro_prme.checks import all_settings, choice
from pyro_prme.inference.rules import Topics
from pyro_prme.inference.rules.topics import OwnCountsOut, Sampling
from pyro_prme.inference.session import alone
from pyro_prme.inference.topic_guide import PRMEGuide
from pyro_prme.models.diln import DILN
from pyro_prme.models.networks.encoders import BagOfWordsEncoder, TopicEncoder
from pyro_prme.models.networks.layers import Decoder, LinearDecoder
from pyro_prme.models.own_words import OwnWordsDILN, OwnWordsHDP, OwnWordsPRME, OwnWordsShapePRME
from pyro_prme.models.prme import PRME, ShapePRME
from pyro_prme.models.topic_model import HDP, TopicModel

__all__ = [
    "FORMS",
    "INFERENCES",
    "LOADINGS",
    "MODELS",
    "OWN_WORDS",
    "PRESETS",
    "TOPICS",
    "build",
    "check_passes",
    "preset_settings",
]

#: The models by the names that the estimator and the command know.
MODELS: dict[str, type[TopicModel]] = {"prme": PRME, "hdp": HDP, "diln": DILN}

#: Where PRME has its random function.
FORMS: dict[str, type[PRME]] = {"shape": ShapePRME, "scale": PRME}

#: The models with a layer of repeated words below them.
OWN_WORDS: dict[type[TopicModel], type[TopicModel]] = {
    HDP: OwnWordsHDP, DILN: OwnWordsDILN, PRME: OwnWordsPRME, ShapePRME: OwnWordsShapePRME,
}  # fmt: skip

#: What the guide has for theta: "dirichlet" as the paper, "point", or "own-counts-out", see `OwnCountsOut`.
TOPICS = ("dirichlet", "point", "own-counts-out")

#: How topics and loadings are inferred: by updates of their factors, or by `Sampling`, a collapsed Gibbs sampler.
INFERENCES = ("updates", "gibbs")

#: What decides to which topics words are assigned: exp(E ln Z), as in the paper, or E Z; see `Topics`.
LOADINGS: dict[str, bool] = {"log": False, "mean": True}

#: Settings of `build` and of the trainer that belong together: "default" scored best on validation documents
#: (`benchmarks/paper/NOTES.md`), "dirichlet" has the paper's factors and our inference, "predictive" topics as points,
#: "paper" is the paper's own.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "topics": "own-counts-out",
        "objective": "completion",
        "beta": 3.0,
        "gamma0": 0.05,
        "background": 0.5,
        "h_scale": 10.0,
        "decoder_hidden": (),
        "learning_rate": 5e-3,
    },
    "dirichlet": {},
    "predictive": {"topics": "point", "loadings": "mean", "gamma0": 0.02, "decoder_hidden": ()},
    "paper": {
        "form": "scale",
        "encoder": "words",
        "encoder_hidden": (1000,),
        "word_dropout": 0.0,
        "objective": "plain",
        "learning_rate": 1e-4,
        "delay": 100.0,
        "decay": 0.75,
    },
}


#: Settings of models with a layer of repeated words, over those of a preset: a document has fewer tables than tokens,
#: and what beta pseudo-counts say matters more (`benchmarks/paper/NOTES.md`).
OWN_WORDS_SETTINGS: dict[str, Any] = {"beta": 10.0}


#: The settings of `build` that are words, and those each may be.
CHOICES: Mapping[str, Iterable[str]] = {
    "model": MODELS,
    "form": FORMS,
    "topics": TOPICS,
    "loadings": LOADINGS,
    "encoder": ("topics", "words"),
    "objective": ("completion", "plain", "profiled"),
    "inference": INFERENCES,
}


def preset_settings(preset: str, own_words: bool | None = None) -> dict[str, Any]:
    """The settings of a preset, for a model with own words or without."""
    return PRESETS[preset] | (OWN_WORDS_SETTINGS | {"own_words": True} if own_words else {})


def build(
    num_topics: int,
    vocab_size: int,
    num_documents: int,
    *,
    model: str = "prme",
    alpha: float = 1.0,
    beta: float = 5.0,
    gamma0: float = 0.2,
    background: float = 0.0,
    embedding_dim: int = 20,
    h_scale: float = 1.0,
    encoder: str = "topics",
    encoder_hidden: tuple[int, ...] = (100,),
    decoder_hidden: tuple[int, ...] = (80, 80),
    batch_norm: bool = True,
    residual: bool = False,
    form: str = "shape",
    topics: str = "dirichlet",
    loadings: str = "log",
    word_dropout: float = 1.0,
    objective: str = "profiled",
    stick_rate: float = 0.05,
    inference: str = "updates",
    sweeps: int = 3,
    warm_up: int = 10,
    burn_in: int = 10,
    own_words: bool = False,
    seed: int = 0,
) -> tuple[TopicModel, PRMEGuide]:
    """A model and its guide; the seed decides the networks' first weights, and the global random state is left alone.

    Args:
        num_topics: K, the largest number of topics.
        vocab_size: D.
        num_documents: N.
        model: a key of `MODELS`.
        alpha: concentration of the topics' weights.
        beta: total shape of a document's loadings.
        gamma0: Dirichlet parameter of the topics.
        background: share of it that follows how often words occur in the corpus, see `TopicModel`.
        h_scale: standard deviation of h.
        embedding_dim: length of h and of ell.
        encoder: "topics" (`TopicEncoder`) or "words" (`BagOfWordsEncoder`, as the paper).
        encoder_hidden: widths of the encoder's hidden layers.
        decoder_hidden: widths of the decoder's; without any it is a `LinearDecoder`.
        batch_norm: whether layers normalise their batch, see `Stack`.
        residual: whether layers are added to their input, see `Stack`.
        word_dropout: see `BagOfWordsEncoder`.
        form: a key of `FORMS`, for the model "prme".
        topics: one of `TOPICS`.
        loadings: a key of `LOADINGS`; topics without own counts have their own way, whatever is given.
        objective: see `Topics`, or `OwnCountsOut`.
        stick_rate: see `PRMEGuide`.
        inference: one of `INFERENCES`; "gibbs" has its own way with topics and loadings, whatever is given for them.
        sweeps, warm_up, burn_in: of "gibbs", see `Sampling`.
        own_words: put a layer of repeated words below the topics, see `OwnWords`.
        seed: see above.
    """
    chosen = {"model": model, "form": form, "topics": topics, "loadings": loadings, "encoder": encoder}
    for key, value in (chosen | {"objective": objective, "inference": inference}).items():
        choice(key, value, CHOICES[key])
    if inference == "gibbs" and model == "diln":
        raise ValueError("DILN's function has a Gaussian factor, which is not sampled: use model 'prme' or 'hdp'.")
    if inference == "gibbs" and own_words:
        raise ValueError(
            "own_words counts tables, which are not whole numbers, and cannot be sampled: use one of the two."
        )
    all_settings(num_topics=num_topics, vocab_size=vocab_size, num_documents=num_documents, embedding_dim=embedding_dim)
    all_settings(
        alpha=alpha,
        beta=beta,
        gamma0=gamma0,
        background=background,
        h_scale=h_scale,
        word_dropout=word_dropout,
        stick_rate=stick_rate,
        seed=seed,
    )
    all_settings(encoder_hidden=encoder_hidden, decoder_hidden=decoder_hidden, batch_norm=batch_norm, residual=residual)
    all_settings(own_words=own_words, background=background, sweeps=sweeps, warm_up=warm_up, burn_in=burn_in)
    design = {"batch_norm": batch_norm, "residual": residual}
    parts: dict[str, Any] = {}
    with alone(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if model == "prme":
            sizes = num_topics, embedding_dim, embedding_dim
            decoder = Decoder(*sizes, decoder_hidden, **design) if decoder_hidden else LinearDecoder(*sizes)
            parts = {"h_dim": embedding_dim, "ell_dim": embedding_dim, "h_scale": h_scale, "decoder": decoder}
        kind = FORMS[form] if model == "prme" else MODELS[model]
        program = (OWN_WORDS[kind] if own_words else kind)(
            num_topics,
            vocab_size,
            num_documents,
            alpha=alpha,
            beta=beta,
            gamma0=gamma0,
            background=background,
            **parts,
        )
        network: nn.Module
        if encoder == "topics":
            network = TopicEncoder(num_topics, embedding_dim, encoder_hidden, **design, word_dropout=word_dropout)
        else:
            network = BagOfWordsEncoder(
                vocab_size, embedding_dim, encoder_hidden, **design, word_dropout=word_dropout, sparse=True
            )
        rule: Topics | OwnCountsOut
        if inference == "gibbs":
            rule = Sampling(objective, sweeps=sweeps, warm_up=warm_up, burn_in=burn_in)
        elif topics == "own-counts-out":
            rule = OwnCountsOut(objective)
        else:
            rule = Topics(objective, by_mean=LOADINGS[loadings], points=topics == "point")
        guide = PRMEGuide(program, network, topics=rule, stick_rate=stick_rate)
    return program, guide


def check_passes(name: str, passes: int, settings: Mapping[str, Any]) -> None:
    """Refuses a fit by "gibbs" that ends before a state of the chain is averaged.

    Args:
        name: of the number of passes, for the message.
        passes: over the data.
        settings: of `build`.
    """
    known = inspect.signature(build).parameters
    chosen = {key: settings.get(key, known[key].default) for key in ("inference", "warm_up", "burn_in")}
    before = chosen["warm_up"] + chosen["burn_in"]
    if chosen["inference"] == "gibbs" and passes <= before:
        raise ValueError(
            f"{name} is {passes}: inference='gibbs' averages states after {before} passes, so that it must be more."
        )
