"""What was learned, with labels: open this to ask a fitted model for topics, proportions, embeddings, correlations."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from scipy import sparse

from pyro_prme.answers.correlations import (
    correlation,
    correlation_error,
    correlation_interval,
    third_moment,
    third_moment_error,
)
from pyro_prme.answers.moments import mean_of
from pyro_prme.answers.own_words import Layer, TokenPerplexities, token_perplexities
from pyro_prme.answers.scores import log_predictive, perplexity_of
from pyro_prme.answers.sites import FUNCTION, SitePosterior
from pyro_prme.answers.words_of_topics import RANKINGS, hellinger
from pyro_prme.checks import choice, fraction, whole
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.inference.rules.poisson.claim import PoissonFactors
from pyro_prme.inference.rules.topics.claim import TopicFactors

if TYPE_CHECKING:
    from pyro_prme.corpora.splits import TokenSplit

__all__ = ["Posterior"]

_USED = 0.99  # share of the tokens that the topics in use hold together
_KINDS = ("roots", "posterior", "function")
_SCORED = 5000  # documents scored at a time


class Posterior(SitePosterior):
    """A fitted model, asked in evaluation mode with converged E-steps.

    Any site of any model can be asked for its mean, spread, interval and draws. Topics, proportions, scores and the
    rest are answered by roles: which site is the topics, which the loadings of documents, and so on. The guide knows
    the roles of the sites that its rules have claimed, a model may say its own in an attribute `roles`, and further
    ones can be given.

    A document's answer does not depend on the others that are asked with it, beyond rounding. Nothing global changes:
    no random state, no param store, no default type. One thread at a time is answered.

    Documents are a `Corpus`, whose names label the result, or counts (N, D), sparse or dense; for a model that takes
    something else than documents of words, any `Data`. A document without words gets the prior. Means that have no
    closed form are taken over draws, whose number is in the result's attribute "draws".

    Args:
        guide: fitted, with its model.
        vocabulary: the D words, as labels; their numbers if left out.
        roles: sites by role ("topics", "loadings", "places", "embedding", "function"), over those of the guide.
        batch_size: documents handled at a time.
    """

    @staticmethod
    def mix(parts: Sequence[Posterior]) -> Posterior:
        """One posterior whose predictions are the mean of those of several, such as fits with different seeds.

        Args:
            parts: posteriors of topic models with the same words, see `mixture.Mixture` for what it answers.
        """
        from pyro_prme.answers.mixture import Mixture

        return Mixture(parts)

    def _headline(self) -> list[str]:
        if "topics" not in self.roles:
            return []
        words = "not labelled" if self.vocabulary is None else "labelled"
        return [f"{self.num_topics} topics over {self.vocab_size} words, {words}."]

    # Topics: no documents needed.

    def topics(self, n: int | None = None) -> xr.DataArray:
        """E theta, dims (topic, word), rows that sum to one; the n topics with most usage, largest first, or all."""
        weights = self.factors()
        if float(weights.min()) < 0:
            raise ValueError("The factors of this model may be negative and are no topics: ask for `factors()`.")
        topics = (weights / weights.sum("word")).assign_attrs(weights.attrs)
        if n is None:
            return topics
        whole("n", n)
        return topics.isel(topic=np.argsort(-self.usage().values, kind="stable")[:n])

    def factors(self) -> xr.DataArray:
        """E theta as the model has it, dims (topic, word); `topics` has rows that sum to one."""
        factors = self.topic_factors
        if factors is not None:
            gamma = factors.gamma.double().mT.numpy()  # (K, D)
            return self._labelled(gamma / gamma.sum(1, keepdims=True), "topic", "word")
        site = self._role("topics", "topics")
        with self._asking():
            found = self._whole(site, mean_of)
        by_topic = getattr(self.model, "by_topic", None)
        value = (found.value if by_topic is None else by_topic(found.value)).double().numpy()
        labelled = self._labelled(value.reshape(-1, value.shape[-1]), "topic", "word")
        return labelled.assign_attrs({"draws": found.draws} if found.draws else {})

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
                gamma_kd - gamma0. A guide without closed forms for the topics does not keep these.
        """
        claims: list[Any] = list(self.guide.claims) if self.guide.is_planned else []
        factors = next((claim for claim in claims if isinstance(claim, TopicFactors | PoissonFactors)), None)
        if documents is None:
            if factors is None:
                raise ValueError("Which topics have the training tokens is not kept in this guide: give the documents.")
            tokens = factors.tokens().clamp(min=0).double().numpy()
        elif factors is not None:
            loadings = factors.roles["loadings"]
            tokens = self.ask(documents, lambda run: run.local[loadings].step.counts).values.sum(0)
        else:
            tokens = self._responsibilities(documents)
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
        site = self._role("places", "topic_embeddings", FUNCTION)
        with self._asking():
            ell = mean_of(self.guide.posterior(site)).value
        return self._labelled(ell.detach().double().numpy(), "topic", "dimension")

    # Documents.

    def loadings(self, documents: Corpus | Any) -> xr.DataArray:
        """E Z, dims (document, topic)."""
        site = self._role("loadings", "loadings")
        return self.ask(documents, lambda run: mean_of(run.factor(site)))

    def proportions(self, documents: Corpus | Any) -> xr.DataArray:
        """E Z divided by its sum over topics, dims (document, topic), rows that sum to one."""
        loadings = self.loadings(documents)
        return (loadings / loadings.sum("topic")).assign_attrs(loadings.attrs)

    def embeddings(self, documents: Corpus | Any) -> xr.DataArray:
        """h, dims (document, dimension)."""
        site = self._role("embedding", "embeddings", FUNCTION)
        return self.ask(documents, lambda run: mean_of(run.factor(site)), "dimension")

    def random_function(self, documents: Corpus | Any) -> xr.DataArray:
        """mu_f(h_n, ell_k), the mean of the random function, dims (document, topic)."""
        site = self._role("function", "random_function", FUNCTION)
        return self.ask(documents, lambda run: mean_of(run.factor(site)))

    def representative_documents(self, k: int, n: int, documents: Corpus | Any) -> xr.DataArray:
        """The n documents with the largest proportion of topic k, dims (document,), largest first."""
        whole("n", n)
        share = self.proportions(documents).isel(topic=self._topic(k))
        return share.isel(document=np.argsort(-share.values, kind="stable")[:n])

    # Correlations over documents.

    def topic_correlations(self, documents: Corpus | Any, kind: str = "roots") -> xr.DataArray:
        """Correlation of topics over the documents, dims (topic, other_topic).

        Args:
            documents: at least two.
            kind: of what. "roots" is of the square roots of the proportions: which topics meet in the same documents,
                where a document in which a topic is everything does not outweigh those in which it is something.
                "posterior" is of the proportions themselves, and "function" of mu_f(h_n, ell_k), the random function's
                own, a prior on the scale of logarithms. How the three agree with topics that meet in new documents is
                measured by `benchmarks/paper/correlations.py`.

        Returns:
            Shape (K, K). A topic that does not vary has correlation 0 with the others.
        """
        return self._labelled(
            correlation(self._values(documents, kind, "topic_correlations")), "topic", "other_topic"
        ).assign_attrs(kind=kind)

    def topic_correlation_intervals(
        self, documents: Corpus | Any, kind: str = "roots", level: float = 0.95
    ) -> xr.Dataset:
        """Correlations with limits, variables "correlation", "lower" and "upper", dims (topic, other_topic).

        The limits hold over other documents of the same kind, with the topics as they are: how much topics change with
        the seed of a fit is another question. A pair whose interval leaves zero out holds up.

        Args:
            documents, kind: see `topic_correlations`.
            level: of each interval, one at a time.
        """
        values = self._values(documents, kind, "topic_correlation_intervals")
        found = correlation(values)
        lower, upper = correlation_interval(found, correlation_error(values), level)
        parts = {"correlation": found, "lower": lower, "upper": upper}
        labelled = {name: self._labelled(part, "topic", "other_topic") for name, part in parts.items()}
        return xr.Dataset(labelled, attrs={"kind": kind, "level": level})

    def third_moment(self, documents: Corpus | Any, i: int, j: int, k: int, kind: str = "roots") -> float:
        """The standardised third cross-moment of topics i, j and k over the documents; kind as `topic_correlations`."""
        topics = [self._topic(topic) for topic in (i, j, k)]
        return third_moment(self._values(documents, kind, "third_moment"), *topics)

    def third_moment_interval(
        self, documents: Corpus | Any, i: int, j: int, k: int, kind: str = "roots", level: float = 0.95
    ) -> tuple[float, float]:
        """Limits of `third_moment` over other documents of the same kind."""
        topics = [self._topic(topic) for topic in (i, j, k)]
        values = self._values(documents, kind, "third_moment_interval")
        found = third_moment(values, *topics)
        half = NormalDist().inv_cdf((1 + fraction("level", level)) / 2) * third_moment_error(values, *topics)
        return found - half, found + half

    # Scores.

    def perplexity(self, split: TokenSplit | Corpus) -> float:
        """Document-completion perplexity by the topics alone: `scores.completion_perplexity` of the held-out words.

        Proportions are those of the observed words, E Z / sum E Z; topics are E theta. Of a model with own words, this
        leaves their layer out, and its topics are of tables, so that it says little: see `token_perplexities`.

        Args:
            split: observed and held-out words of documents that the model has not seen, as `Corpus.split_tokens` makes
                them. A corpus is split so: 90% observed, seed 0.
        """
        return perplexity_of(*self.completion(split))

    def completion(self, split: TokenSplit | Corpus) -> tuple[float, float]:
        """The log probability of all held-out words of a split, see `perplexity`, and how many they are.

        Documents are asked some thousands at a time, so that a large split needs no more memory.
        """
        split = self._split(split)
        topics, total, tokens = self.topics().values, 0.0, 0.0
        for start in range(0, len(split.documents), _SCORED):
            observed, held_out = (part[start : start + _SCORED] for part in (split.observed, split.held_out))
            total += float(log_predictive(self.proportions(observed).values, topics, held_out).sum())
            tokens += held_out.num_tokens
        return total, tokens

    def token_perplexities(self, split: TokenSplit | Corpus) -> TokenPerplexities:
        """Perplexity of all held-out words, of those that the observed part of their document has, and of new ones.

        Of a model with own words (`OwnWords`), all three are by its layer, `equations.restaurant.next_word`; of any
        other by the topics alone, so that the first is `perplexity`. The layer lives on words that a document repeats:
        compare it with other programs by the new words, or with programs that have such a layer too.

        Args:
            split: as for `perplexity`.
        """
        split = self._split(split)
        layer = None
        if self.has("repeats"):
            model: Any = self.model
            times = torch.as_tensor(np.asarray(sparse.csr_matrix(split.observed.counts).data, dtype=np.float64))
            numbers = [self._number(name) for name in ("own_concentration", "own_discount")]
            layer = Layer(model.tables(times).numpy(), *numbers)
        return token_perplexities(self.proportions(split.observed).values, self.topics().values, split, layer)

    def _split(self, split: TokenSplit | Corpus) -> TokenSplit:
        """A split of documents of the model's vocabulary; of a corpus, 90% is observed."""
        if isinstance(split, Corpus):
            split = split.split_tokens()
        if not (hasattr(split, "observed") and hasattr(split, "held_out")):
            raise ValueError(
                f"The split is a {type(split).__name__}: give corpus.split_tokens(observed, seed), or the corpus."
            )
        self._corpus(split.held_out)
        return split

    def _number(self, name: str) -> float:
        """A number of the model, given or learned."""
        value = self.mean(name) if name in self.model.priors else getattr(self.model, name)
        return float(value)

    # Inside.

    @property
    def num_topics(self) -> int:
        """K."""
        known = getattr(self.model, "num_topics", None)
        return len(self.topics()) if known is None else known

    def _topic(self, k: int) -> int:
        return whole("The number of a topic", k, 0, self.num_topics - 1)

    def _responsibilities(self, documents: Any) -> np.ndarray:
        """Each topic's tokens in the documents, by proportions and topics: sum of x_nd pi_nk theta_kd / p_nd."""
        corpus = self._corpus(documents)
        topics, shares = self.topics().values, self.proportions(documents).values
        entries = corpus.counts.tocoo()
        weights = shares[entries.row] * topics[:, entries.col].T  # (E, K)
        return (entries.data[:, None] * weights / weights.sum(1, keepdims=True)).sum(0)

    def _values(self, documents: Corpus | Any, kind: str, what: str) -> np.ndarray:
        """What correlations are taken of, shape (N, K)."""
        choice("kind", kind, _KINDS)
        if kind == "function" and not self.has("function"):
            raise ValueError(f"{type(self.model).__name__} has no random function: ask {what} for kind='roots'.")
        found = self.random_function(documents) if kind == "function" else self.proportions(documents)
        if len(found) < 2:
            raise ValueError("There is one document: correlations over documents need at least two.")
        return np.sqrt(found.values) if kind == "roots" else found.values
