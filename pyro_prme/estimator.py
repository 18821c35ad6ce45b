"""The topic model with scikit-learn's conventions: open this to go from a matrix of counts to topics and a score."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from pyro_prme.answers.fitted import FittedTopicModel
from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import SETTINGS, choice, refusal, size, whole
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.counts import words_met
from pyro_prme.inference.build import CHOICES, MODELS, PRESETS, build, check_passes, preset_settings
from pyro_prme.inference.large import BATCH_PASSES, usual_way
from pyro_prme.inference.session import session
from pyro_prme.inference.topic_guide import Counts
from pyro_prme.inference.topic_starts import STARTS
from pyro_prme.inference.trainer import MODES, Trainer, TrainOptions

__all__ = ["PRMETopicModel"]

_KEPT = 1000  # records of a stream, which may have no end

Callback = Callable[[Trainer, dict[str, Any]], None]


class PRMETopicModel(FittedTopicModel):
    """Topic model with a random function prior on the topics' loadings.

    It arranges `build`, `Trainer` and `Posterior`, which stay reachable, and computes nothing itself. X is a matrix of
    whole counts, documents x words: sparse, dense, a frame, or a `Corpus`. Everything is in float32, and Pyro's param
    store, torch's random state and its default type stay as they were. Several threads may fit and ask: one is served
    at a time.

    Args:
        n_components: K, the most topics that can be used.
        model: a key of `build.MODELS`.
        preset: a key of `build.PRESETS`, settings that belong together.
        max_iter: passes over the documents; None for 40, or one where "auto" learns online.
        mode: of `fit`: "batch" moves the topics once a pass, "online" after each batch, and "auto" learns a corpus of
            more than 200,000 documents online, and others in batch passes.
        batch_size: documents a step.
        alpha: concentration of the topics' weights.
        beta: total shape of a document's loadings; None for the preset's.
        gamma0: Dirichlet parameter of the topics; None for the preset's.
        background: share of gamma0 that follows how often words occur; None for the preset's.
        form: a key of `build.FORMS`, where the model "prme" has its random function; None for the preset's.
        topics: one of `build.TOPICS`, what stands for theta; None for the preset's.
        loadings: a key of `build.LOADINGS`, what assigns words to topics; None for the preset's.
        encoder: "topics" or "words", what the inference network reads; None for the preset's.
        encoder_hidden: widths of its hidden layers; None for the preset's.
        decoder_hidden: widths of the decoder's hidden layers, () for a linear one; None for the preset's.
        objective: what networks and sticks are moved by, see `build`; None for the preset's.
        embedding_dim: length of h and ell; None for the preset's.
        learning_rate: for networks and ell; None for the preset's.
        stick_rate: for the topics' weights; None for the preset's.
        delay: t0 of the online steps' rate (t0 + t)^-kappa; None for the preset's.
        decay: kappa of the same; None for the preset's.
        own_words: put a layer of repeated words below the topics, see `OwnWords`. `posterior_.token_perplexities`
            scores by it; `perplexity` and `score` are by the topics alone.
        inference: one of `build.INFERENCES`; None for the preset's. "gibbs" samples topics and loadings of the models
            "prme" and "hdp", and averages the topics over states after 20 passes.
        start: a key of `starts.STARTS`.
        total_samples: documents that the stream of `partial_fit` stands for; "seen" for as many as have come, which
            grows with each part.
        random_state: decides the start, the order of documents and all noise.
        verbose: 1 for a progress bar.
        callback: called with the trainer and each pass's record, to which it may add.

    Attributes:
        components_: E theta, the topics' word probabilities, rows that sum to one, shape (K, D).
        topic_usage_: each topic's share of the training tokens, shape (K,).
        n_topics_used_: see `Posterior.num_topics_used`.
        history_: one record a pass; of the calls of `partial_fit`, the last 1,000.
        n_iter_: passes made; calls, for `partial_fit`.
        n_features_in_: D.
        feature_names_in_: the words, where X had names.
        model_: the Pyro model.
        guide_: its guide.
        trainer_: what drives them. A pickle has what was learned and the optimizer's state, but not the documents: it
            comes back without `trainer_`, and `partial_fit` goes on.
        posterior_: what reads them.
    """

    trainer_: Trainer
    model_: Any
    _built: tuple[tuple[int, int, int], dict[str, Any]]

    def __init__(
        self,
        n_components: int = 100,
        *,
        model: str = "prme",
        preset: str = "default",
        max_iter: int | None = None,
        mode: str = "auto",
        batch_size: int = 500,
        alpha: float = 1.0,
        beta: float | None = None,
        gamma0: float | None = None,
        background: float | None = None,
        form: str | None = None,
        topics: str | None = None,
        loadings: str | None = None,
        encoder: str | None = None,
        encoder_hidden: tuple[int, ...] | None = None,
        decoder_hidden: tuple[int, ...] | None = None,
        objective: str | None = None,
        embedding_dim: int | None = None,
        learning_rate: float | None = None,
        stick_rate: float | None = None,
        delay: float | None = None,
        decay: float | None = None,
        own_words: bool = False,
        inference: str | None = None,
        start: str = "kmeans",
        total_samples: int | str = 1_000_000,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        self.n_components = n_components
        self.model = model
        self.preset = preset
        self.max_iter = max_iter
        self.mode = mode
        self.batch_size = batch_size
        self.alpha = alpha
        self.beta = beta
        self.gamma0 = gamma0
        self.background = background
        self.form = form
        self.topics = topics
        self.loadings = loadings
        self.encoder = encoder
        self.encoder_hidden = encoder_hidden
        self.decoder_hidden = decoder_hidden
        self.objective = objective
        self.embedding_dim = embedding_dim
        self.learning_rate = learning_rate
        self.stick_rate = stick_rate
        self.delay = delay
        self.decay = decay
        self.own_words = own_words
        self.inference = inference
        self.start = start
        self.total_samples = total_samples
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # Fitting.

    def fit(self, X: Any, y: Any = None) -> PRMETopicModel:
        """Fits the model to documents (N, D); those without words are left out."""
        self._check_settings()
        settings = self._settings_of(build)
        check_passes("max_iter", BATCH_PASSES if self.max_iter is None else self.max_iter, settings)
        counts = self._with_words(self._counts(X, reset=True))
        way, passes = {"mode": "batch" if self.mode == "auto" else self.mode}, BATCH_PASSES
        if self.mode == "auto" and settings.get("inference") != "gibbs":
            way, passes = usual_way(counts.shape[0])
        passes = passes if self.max_iter is None else self.max_iter
        self._begin(counts, counts.shape[0], way)
        with session(), tqdm(total=passes, disable=not self.verbose, unit="epoch") as bar:

            def after_epoch(trainer: Trainer, record: dict[str, Any]) -> None:
                if self.verbose:
                    bar.set_postfix(objective=f"{record['bound']:.6g}", topics=self.posterior_.num_topics_used)
                    bar.update()
                if self.callback is not None:
                    self.callback(trainer, record)

            self.history_ = self.trainer_.fit(passes, after_epoch)
        self.n_iter_ = len(self.history_)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> PRMETopicModel:
        """One online pass over a part (N, D) of a stream of `total_samples` documents, see `usage_over_time`.

        The first part is where the topics start from, so it needs as many documents as topics. After `fit`, the stream
        stands for as many documents as `fit` had.
        """
        first = not hasattr(self, "posterior_")
        if first:
            self._check_settings()
        counts = self._with_words(self._counts(X, reset=first))
        stream = self._stream(counts.shape[0], first)
        if counts.shape[0] > stream:
            raise ValueError(
                f"X has {counts.shape[0]} documents, more than the {stream} that the stream stands for: give smaller "
                "parts, or a larger total_samples before the first."
            )
        if first:
            self._begin(counts, stream, {"mode": "online"})
            self.history_, self.n_iter_ = [], 0
        elif not hasattr(self, "trainer_") or self.trainer_.options.mode != "online":
            self.trainer_ = self._trainer(counts, {"mode": "online"}, start=None)
            if self._paused is not None:
                learned = {"model": self.model_.state_dict(), "guide": self.guide_.state_dict()}
                self.trainer_.load_state_dict(learned | self._paused)
        self._stands_for(stream)
        trainer, topics = self.trainer_, self.guide_.topics
        trainer.data = Counts(counts)
        with session():
            topics.tokens_met()
            bound = sum(trainer.steps_on_all().values())
        self.n_iter_ += 1
        record = {"epoch": self.n_iter_, "documents": counts.shape[0], "bound_without_theta": bound}
        record["tokens_by_topic"] = topics.tokens_met().tolist()
        record["documents_seen"] = counts.shape[0] + (self.history_[-1]["documents_seen"] if self._is_stream() else 0)
        self.history_ = [*self.history_[1 - _KEPT :], record]
        if self.callback is not None:
            self.callback(trainer, record)
        return self

    def _is_stream(self) -> bool:
        """Whether a part has been given already."""
        return bool(self.history_) and "documents_seen" in self.history_[-1]

    @property
    def _as_seen(self) -> bool:
        """Whether the stream stands for the documents that have come."""
        return isinstance(self.total_samples, str) and self.total_samples == "seen"

    def _stream(self, documents: int, first: bool) -> int:
        """How many documents the stream stands for when so many more have come."""
        if not self._as_seen:
            return int(self.total_samples) if first else self.model_.num_documents
        return documents if first else self.model_.num_documents + documents

    def _stands_for(self, num_documents: int) -> None:
        """The model is of so many documents from now on."""
        (num_topics, vocab_size, _), settings = self._built
        self.model_.num_documents = num_documents
        self._built = (num_topics, vocab_size, num_documents), settings

    def usage_over_time(self) -> pd.DataFrame:
        """Each topic's share of the tokens of each part that `partial_fit` was given: how topics come and go.

        Returns:
            A row a part, named by the documents that had come at its end; a column a topic; rows that sum to one.
            ``.plot.area()`` draws it.
        """
        check_is_fitted(self)
        parts = [record for record in self.history_ if "tokens_by_topic" in record]
        if not parts:
            raise ValueError("Usage over time is that of a stream: give its parts to partial_fit.")
        tokens = np.array([record["tokens_by_topic"] for record in parts])
        seen = pd.Index([record["documents_seen"] for record in parts], name="documents")
        topics = pd.RangeIndex(tokens.shape[1], name="topic")
        return pd.DataFrame(tokens / tokens.sum(1, keepdims=True), index=seen, columns=topics)

    @staticmethod
    def _with_words(counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """The documents that teach something."""
        with_words = np.diff(counts.indptr) > 0
        if not with_words.any():
            raise ValueError(f"All documents of X are empty (n_samples={counts.shape[0]}): give some with words.")
        return counts if with_words.all() else counts[with_words]

    def _begin(self, counts: sparse.csr_matrix, num_documents: int, way: Mapping[str, Any]) -> None:
        """Builds model, guide, trainer and posterior."""
        if self.n_components > counts.shape[0]:
            raise ValueError(
                f"There are more topics, n_components={self.n_components}, than documents with words, "
                f"n_samples={counts.shape[0]}."
            )
        words = words_met(counts)
        if self.n_components > words:
            raise ValueError(
                f"There are more topics, n_components={self.n_components}, than distinct words in X, of "
                f"n_features={counts.shape[1]}: {words}."
            )
        self._seed = int(self._generator().randint(2**31 - 1))
        self._built = (self.n_components, counts.shape[1], num_documents), self._settings_of(build)
        self._paused: dict[str, Any] | None = None
        with session():
            self.model_, self.guide_ = self._build()
            self.trainer_ = self._trainer(counts, way, start=self.start)
        self._read()

    def _check_settings(self) -> None:
        """Refuses every setting of a wrong type or range, with its name and what it may be."""
        size("n_components", self.n_components, 2)
        if not self._as_seen:
            whole("total_samples", self.total_samples)
        if self.max_iter is not None:
            whole("max_iter", self.max_iter)
        known: dict[str, Iterable[str]] = {"model": MODELS, "preset": PRESETS, "start": STARTS}
        known["mode"] = ("auto", *MODES)
        for name, names in known.items():
            choice(name, getattr(self, name), names)
        for name in CHOICES.keys() & self.get_params(deep=False).keys() - known.keys():
            if getattr(self, name) is not None:
                choice(name, getattr(self, name), CHOICES[name])
        for name in self.get_params(deep=False).keys() & SETTINGS.keys():
            value = getattr(self, name)
            if value is not None or name in ("alpha", "batch_size"):  # None: the preset's
                SETTINGS[name](name, value)
        if not isinstance(self.verbose, bool):
            whole("verbose", self.verbose, 0)
        if self.callback is not None and not callable(self.callback):
            raise refusal("callback", self.callback, "a function of the trainer and a record, or None")
        self._generator()

    def _generator(self) -> np.random.RandomState:
        try:
            return check_random_state(self.random_state)
        except ValueError:
            allowed = "a whole number from 0 to 4294967295, a numpy.random.RandomState or None"
            raise refusal("random_state", self.random_state, allowed) from None

    def _build(self) -> tuple[Any, Any]:
        sizes, settings = self._built
        return build(*sizes, **settings, seed=self._seed)

    def _trainer(self, counts: sparse.csr_matrix, way: Mapping[str, Any], start: str | None) -> Trainer:
        options = TrainOptions(**{**way, **self._settings_of(TrainOptions), "mode": way["mode"], "seed": self._seed})
        with session():
            return Trainer(self.guide_, Counts(counts), options, start=start)

    def _read(self) -> None:
        names = getattr(self, "feature_names_in_", None)
        self.posterior_ = Posterior(self.guide_, vocabulary=names, batch_size=self.batch_size)

    def _settings_of(self, target: Callable) -> dict[str, Any]:
        """The settings of the preset, and over them those given here, that `target` takes."""
        given = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        known, chosen = inspect.signature(target).parameters, preset_settings(self.preset, self.own_words)
        return {name: value for name, value in (chosen | given).items() if name in known}

    # Pickling: Pyro's modules and the documents stay out.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if not hasattr(self, "posterior_"):
            return state
        trainer = state.pop("trainer_", None)
        if trainer is not None:
            kept = {
                name: part for name, part in trainer.state_dict().items() if name not in ("model", "guide", "memory")
            }
            state["_paused"] = kept if trainer.options.mode == "online" else None
        state["_learned"] = {"model": self.model_.state_dict(), "guide": self.guide_.state_dict()}
        for name in ("model_", "guide_", "posterior_"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        learned = state.pop("_learned", None)
        super().__setstate__(state)
        if learned is None:
            return
        with session():
            self.model_, self.guide_ = self._build()
            self.guide_.plan(Batch.from_csr(sparse.csr_matrix(np.ones((1, self.n_features_in_)))))
            self.model_.load_state_dict(learned["model"])
            self.guide_.load_state_dict(learned["guide"])
        self._read()
