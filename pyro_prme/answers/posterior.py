"""What was learned, with labels: open this to ask a fitted model for topics, proportions, embeddings, correlations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyro
import scipy.sparse
import torch
import xarray as xr
from torch import Tensor

from pyro_prme.answers.scores import completion_perplexity
from pyro_prme.answers.words_of_topics import RANKINGS, hellinger
from pyro_prme.checks import choice, whole
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import refuse_other_things
from pyro_prme.equations.expectations import expected
from pyro_prme.guide import ClosedFormGuide
from pyro_prme.models.topic_model import TopicModel
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import DirichletTopics, GammaLoadings, Point, Run

if TYPE_CHECKING:
    from pyro_prme.corpora.splits import TokenSplit

__all__ = ["Posterior", "converged", "default_dtype", "third_moment"]

_USED = 0.99  # share of the tokens that the topics in use hold together
_KINDS = ("function", "posterior")


class Posterior:
    """A fitted model, asked in evaluation mode with converged E-steps.

    A document's answer does not depend on the others that are asked with it, beyond rounding. Nothing global changes:
    no random state, no param store, no default type.

    Documents are a `Corpus`, whose names label the result, or counts (N, D), sparse or dense. A document without words
    gets the prior.

    Args:
        model: the model.
        guide: its fitted guide.
        vocabulary: the D words, as labels; their numbers if left out.
        batch_size: documents handled at a time.
    """

    def __init__(
        self,
        model: TopicModel,
        guide: ClosedFormGuide,
        *,
        vocabulary: Iterable[str] | None = None,
        batch_size: int = 500,
    ) -> None:
        self.model, self.guide, self.batch_size = model, guide, whole("batch_size", batch_size)
        self.vocabulary = None if vocabulary is None else tuple(str(word) for word in vocabulary)
        if self.vocabulary is not None and len(self.vocabulary) != model.vocab_size:
            raise ValueError(
                f"The vocabulary has {len(self.vocabulary)} words and the model {model.vocab_size}: give one for each."
            )

    # Topics: no documents needed.

    def topics(self, n: int | None = None) -> xr.DataArray:
        """E theta, dims (topic, word), rows that sum to one; the n topics with most usage, largest first, or all."""
        gamma = self._theta.gamma.double().mT.numpy()  # (K, D)
        topics = self._labelled(gamma / gamma.sum(1, keepdims=True), "topic", "word")
        if n is None:
            return topics
        whole("n", n)
        return topics.isel(topic=np.argsort(-self.usage().values, kind="stable")[:n])

    def top_words(self, n: int = 10, by: str = "probability") -> pd.DataFrame:
        """The n first words of each topic: one row a topic, columns by rank from 1.

        Args:
            n: number of words.
            by: "probability", "lift" or "frex", see `words_of_topics`. Lift favours rare words.
        """
        choice("by", by, RANKINGS)
        whole("n", n)
        topics = self.topics()
        scores = RANKINGS[by](topics.values, self.usage().values)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :n]
        ranks = pd.RangeIndex(1, order.shape[1] + 1, name="rank")
        return pd.DataFrame(topics["word"].values[order], index=pd.Index(topics["topic"], name="topic"), columns=ranks)

    def usage(self, documents: Corpus | Any | None = None) -> xr.DataArray:
        r"""Each topic's share of the tokens, dims (topic,), sum one.

        .. math::
            u_k \propto \sum_n \sum_m \phi_{nm}(k)

        Args:
            documents: where the tokens are; if left out, those of training, as q(theta) has them: the sum over words of
                gamma_kd - gamma0.
        """
        if documents is None:
            tokens = (self._theta.gamma.double() - self._theta.prior()).sum(0).clamp(min=0).numpy()
        else:
            tokens = self._ask(documents, lambda run: run.local["Z"].step.counts).values.sum(0)
        if not tokens.sum():
            raise ValueError("The documents have no words: usage is a share of the tokens.")
        return self._labelled(tokens / tokens.sum(), "topic")

    @property
    def num_topics_used(self) -> int:
        """The smallest number of topics that together hold 99% of the training tokens."""
        shares = np.sort(self.usage().values)[::-1]
        return int(np.searchsorted(shares.cumsum(), _USED) + 1)

    def similar_topics(self, k: int, n: int = 5) -> xr.DataArray:
        """The n topics nearest to topic k by Hellinger distance of E theta, dims (topic,), nearest first."""
        topics = self.topics()
        distance = self._labelled(hellinger(topics.values, topics.values[self._topic(k)]), "topic")
        others = distance.drop_sel(topic=k)
        whole("n", n)
        return others.isel(topic=np.argsort(others.values, kind="stable")[:n])

    def topic_embeddings(self) -> xr.DataArray:
        """ell, dims (topic, dimension)."""
        self._need("ell", "topic_embeddings")
        ell = self.guide.get_submodule("rules.ell")
        if not isinstance(ell, Point):
            raise ValueError("topic_embeddings are the points of ell, and this guide has another rule for ell.")
        return self._labelled(ell.value().detach().double().numpy(), "topic", "dimension")

    # Documents.

    def loadings(self, documents: Corpus | Any) -> xr.DataArray:
        """E Z, dims (document, topic)."""
        return self._ask(documents, lambda run: run.posterior("Z").mean)

    def proportions(self, documents: Corpus | Any) -> xr.DataArray:
        """E Z divided by its sum over topics, dims (document, topic), rows that sum to one."""
        loadings = self.loadings(documents)
        return loadings / loadings.sum("topic")

    def embeddings(self, documents: Corpus | Any) -> xr.DataArray:
        """h, dims (document, dimension)."""
        self._need("h", "embeddings")
        return self._ask(documents, lambda run: expected(run.posterior("h"), run.value("h")).squeeze(-2), "dimension")

    def random_function(self, documents: Corpus | Any) -> xr.DataArray:
        """mu_f(h_n, ell_k), the mean of the random function, dims (document, topic)."""
        self._need("f", "random_function")
        return self._ask(documents, lambda run: expected(run.posterior("f"), run.value("f")).flatten(1))

    def representative_documents(self, k: int, n: int, documents: Corpus | Any) -> xr.DataArray:
        """The n documents with the largest proportion of topic k, dims (document,), largest first."""
        whole("n", n)
        share = self.proportions(documents).isel(topic=self._topic(k))
        return share.isel(document=np.argsort(-share.values, kind="stable")[:n])

    # Correlations over documents.

    def topic_correlations(self, documents: Corpus | Any, kind: str = "function") -> xr.DataArray:
        """Correlation of topics over the documents, dims (topic, other_topic).

        Args:
            documents: at least two.
            kind: "function" correlates mu_f(h_n, ell_k), the random function's own; "posterior" the proportions.

        Returns:
            Shape (K, K). A topic that does not vary has correlation 0 with the others.
        """
        x = _standardised(self._values(documents, kind, "topic_correlations"))
        correlations = np.clip(x.T @ x / len(x), -1, 1)
        np.fill_diagonal(correlations, 1.0)
        return self._labelled(correlations, "topic", "other_topic")

    def third_moment(self, documents: Corpus | Any, i: int, j: int, k: int, kind: str = "function") -> float:
        """The standardised third cross-moment of topics i, j and k over the documents; kind as `topic_correlations`."""
        topics = [self._topic(topic) for topic in (i, j, k)]
        return third_moment(self._values(documents, kind, "third_moment"), *topics)

    # Scores.

    def perplexity(self, split: TokenSplit | Corpus) -> float:
        """Document-completion perplexity: `evaluate.completion_perplexity` of the split's held-out words.

        Proportions are those of the observed words, E Z / sum E Z; topics are E theta.

        Args:
            split: observed and held-out words of documents that the model has not seen, as `Corpus.split_tokens` makes
                them. A corpus is split so: 90% observed, seed 0.
        """
        if isinstance(split, Corpus):
            split = split.split_tokens()
        if not (hasattr(split, "observed") and hasattr(split, "held_out")):
            raise ValueError(
                f"The split is a {type(split).__name__}: give corpus.split_tokens(observed, seed), or the corpus."
            )
        self._corpus(split.held_out)
        return completion_perplexity(self.proportions(split.observed).values, self.topics().values, split.held_out)

    # Inside.

    @property
    def _theta(self) -> DirichletTopics:
        rule = dict(self.guide.rules.items()).get("theta")
        if not isinstance(rule, DirichletTopics):
            why = "has another rule for theta" if rule is not None else "has not been fitted or loaded"
            raise ValueError(f"Topics are read off the Dirichlet parameters of theta, and this guide {why}.")
        return rule

    def _need(self, site: str, what: str) -> None:
        if site not in self.guide.rules:
            raise ValueError(f"{type(self.model).__name__} has no {site}: {what} needs a model with a random function.")

    def _topic(self, k: int) -> int:
        return whole("The number of a topic", k, 0, self.model.num_topics - 1)

    def _labelled(self, values: np.ndarray, *dims: str) -> xr.DataArray:
        words = range(self.model.vocab_size) if self.vocabulary is None else self.vocabulary
        coords = {dim: np.asarray(words) if dim == "word" else np.arange(values.shape[i]) for i, dim in enumerate(dims)}
        return xr.DataArray(values, coords, dims)

    def _corpus(self, documents: Corpus | Any) -> Corpus:
        """The documents as a corpus of the model's vocabulary."""
        if not isinstance(documents, Corpus):
            refuse_other_things(documents)
        counts = documents.counts if isinstance(documents, Corpus) else documents
        shape = np.shape(counts) if not scipy.sparse.issparse(counts) else counts.shape
        if len(shape) == 2 and shape[1] != self.model.vocab_size:
            raise ValueError(
                f"The documents have {shape[1]} words and the model {self.model.vocab_size}: give counts of the "
                "model's vocabulary (Corpus.align makes them)."
            )
        if not isinstance(documents, Corpus):
            return Corpus(counts, self.vocabulary or tuple(map(str, range(self.model.vocab_size))))
        if self.vocabulary is not None and documents.vocabulary != self.vocabulary:
            raise ValueError("The documents have other words than the model: align them with Corpus.align first.")
        return documents

    def _batches(self, counts: scipy.sparse.csr_array) -> Iterator[tuple[int, Batch]]:
        """Batches and how many of their documents count: Pyro has no empty plate, so one without words is given one."""
        for start in range(0, counts.shape[0], self.batch_size):
            part = counts[start : start + self.batch_size]
            size = part.shape[0]
            if not part.nnz:
                part = scipy.sparse.vstack([part, np.eye(1, counts.shape[1], dtype=part.dtype)], format="csr")
            batch = Batch.of_rows(part)
            yield size, Batch(batch.documents % self.model.num_documents, batch.indptr, batch.word, batch.count)

    def _ask(self, documents: Corpus | Any, read: Callable[[Run], Tensor], dim: str = "topic") -> xr.DataArray:
        """What `read` finds, batch by batch, in a run with a converged E-step: dims (document, `dim`)."""
        corpus = self._corpus(documents)
        store = pyro.get_param_store()
        with (
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),
            store.scope(store.get_state()),
            default_dtype(self._theta.gamma.dtype),
            eval_mode(self.model, self.guide),
            converged(self.guide),
        ):
            parts = [read(self.guide.expectations(batch))[:size] for size, batch in self._batches(corpus.counts)]
        result = self._labelled(torch.cat(parts).double().numpy(), "document", dim)
        return result.assign_coords(document=list(corpus.names)) if isinstance(documents, Corpus) else result

    def _values(self, documents: Corpus | Any, kind: str, what: str) -> np.ndarray:
        """What correlations are taken of, shape (N, K)."""
        choice("kind", kind, _KINDS)
        if kind == "function" and "f" not in self.guide.rules:
            raise ValueError(f"{type(self.model).__name__} has no random function: ask {what} for kind='posterior'.")
        values = self.random_function(documents) if kind == "function" else self.proportions(documents)
        if len(values) < 2:
            raise ValueError("There is one document: correlations over documents need at least two.")
        return values.values


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Within it, torch's default type is this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def converged(guide: ClosedFormGuide, max_sweeps: int = 200, tolerance: float = 1e-4) -> Iterator[None]:
    """Within it, E-steps run until they have converged."""
    rule = guide.rules["Z"]
    if not isinstance(rule, GammaLoadings):
        yield
        return
    before = rule.max_sweeps, rule.tolerance
    rule.max_sweeps, rule.tolerance = max_sweeps, tolerance
    try:
        yield
    finally:
        rule.max_sweeps, rule.tolerance = before


def third_moment(values: np.ndarray, i: int, j: int, k: int) -> float:
    """The standardised third cross-moment of three columns, over the documents; 0 where one does not vary."""
    return float(_standardised(values[:, [i, j, k]]).prod(1).mean())


def _standardised(values: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1; a column that does not vary, beyond rounding, becomes 0."""
    centred = values - values.mean(0)
    scale = values.std(0)
    varies = scale > 1e-12 * np.abs(values).max(0)
    return np.where(varies, centred / np.where(varies, scale, 1.0), 0.0)
