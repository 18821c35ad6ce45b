"""What was learned, with labels: open this to ask a fitted model for topics, proportions, embeddings, correlations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyro
import scipy.sparse
import torch
import xarray as xr
from torch import Tensor

from pyro_prme.answers.moments import Drawn, Moment, deviation_of, drawn, mean_of, quantiles_of
from pyro_prme.answers.scores import completion_perplexity
from pyro_prme.answers.words_of_topics import RANKINGS, hellinger
from pyro_prme.checks import choice, fraction, whole
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import refuse_other_things
from pyro_prme.inference.data import Data
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.rules.point import FreePoint
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import alone, default_dtype, evaluating, seeded
from pyro_prme.inference.topic_guide import Counts

if TYPE_CHECKING:
    from pyro_prme.corpora.splits import TokenSplit

__all__ = ["CONVERGED", "Posterior", "third_moment"]

#: How E-steps are made for answers: until they have converged.
CONVERGED = RunOptions(sweeps=200, word_tolerance=1e-4)

_FUNCTION = "random function"
_SYMBOLS = {"places": "ell", "embedding": "h", "function": "f"}  # of the paper, for messages
_RUNS = 200  # of the model, over which a site is averaged that others decide
_USED = 0.99  # share of the tokens that the topics in use hold together
_KINDS = ("function", "posterior")


class Posterior:
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

    def __init__(
        self,
        guide: ClosedFormGuide,
        *,
        vocabulary: Iterable[str] | None = None,
        roles: Mapping[str, str] | None = None,
        batch_size: int = 500,
    ) -> None:
        if not isinstance(guide, ClosedFormGuide):
            raise ValueError(f"The guide is a {type(guide).__name__}: give a fitted ClosedFormGuide.")
        self.guide, self.batch_size = guide, whole("batch_size", batch_size)
        self._roles = dict(roles or {})
        self.vocabulary = None if vocabulary is None else tuple(str(word) for word in vocabulary)
        known = getattr(self.model, "vocab_size", None)
        if self.vocabulary is not None and known is not None and len(self.vocabulary) != known:
            raise ValueError(
                f"The vocabulary has {len(self.vocabulary)} words and the model {known}: give one for each."
            )

    @property
    def model(self) -> Any:
        """The guide's model."""
        return self.guide.model

    @property
    def roles(self) -> dict[str, str]:
        """Which site plays which role."""
        return self.guide.roles | self._roles

    def __repr__(self) -> str:
        name = getattr(self.model, "__name__", type(self.model).__name__)
        if not self.guide.is_planned:
            return f"Posterior of {name}: its guide has not been fitted or loaded."
        plan = self.guide.plan()
        entries = [entry for entry in plan.entries.values() if entry.name not in plan.observed]
        role_of = {site: role for role, site in self.roles.items()}
        width = max(len(entry.name) for entry in entries)
        lines = [f"Posterior of {name}, with factors for {len(entries)} sites."]
        for entry in entries:
            role = f" ({role_of[entry.name]})" if entry.name in role_of else ""
            lines.append(f"  {entry.name:<{width}}  {entry.update}{role}")
        if "topics" in self.roles:
            words = "not labelled" if self.vocabulary is None else "labelled"
            lines.insert(1, f"{self.num_topics} topics over {self.vocab_size} words, {words}.")
        return "\n".join(lines)

    # Any site.

    def mean(self, site: str, documents: Any = None) -> xr.DataArray:
        """E x of a site.

        Args:
            site: its name, or its role.
            documents: for which, if it belongs to them.
        """
        return self._site(site, documents, mean_of)

    def sd(self, site: str, documents: Any = None) -> xr.DataArray:
        """The standard deviation of a site; arguments as `mean`."""
        return self._site(site, documents, deviation_of)

    def interval(self, site: str, documents: Any = None, level: float = 0.9) -> xr.DataArray:
        """The central interval that holds a share `level`, with a first dimension "bound"; arguments as `mean`."""
        tails = (1 - fraction("level", level)) / 2
        found = self._site(site, documents, lambda q: quantiles_of(q, (tails, 1 - tails)), "bound")
        return found.assign_coords(bound=["lower", "upper"])

    def draws(self, site: str, documents: Any = None, number: int = 100, seed: int = 0) -> xr.DataArray:
        """Draws of a site, with a first dimension "draw"; arguments as `mean`."""
        whole("number", number)
        return self._site(site, documents, lambda q: Moment(drawn(q, number), 0), "draw", seed=seed)

    def _site(
        self, site: str, documents: Any, read: Callable[[Any], Moment], *lead: str, seed: int | None = None
    ) -> xr.DataArray:
        """What `read` makes of a site's factor, its dimensions named by its plates."""
        name = self.roles.get(site, site)
        with self._asking(seed):
            if documents is None:
                found = self._whole(name, read)
                node = self.guide.structure.trace.nodes[name]
                shape, plates = node["fn"].batch_shape, node["cond_indep_stack"]
                value, draws = found.value, found.draws
            else:
                runs = []
                for size, args in self._batches(documents):
                    run = self.guide.run(*args, options=CONVERGED)
                    moment = read(run.factor(name))
                    shape, plates = run.sites[name].fn.batch_shape, run.sites[name].plates
                    along = [len(lead) + len(shape) + p.dim for p in plates if p.size != p.full_size or p.size == size]
                    runs.append(moment.value.narrow(along[0], 0, size) if along else moment.value)
                    draws = moment.draws
                value = torch.cat(runs, along[0]) if along else runs[0]
        dims = [f"{name}_{i}" for i in range(value.dim() - len(lead))]
        for plate in plates:
            dims[len(shape) + plate.dim] = plate.name
        array = xr.DataArray(value.double().numpy(), dims=[*lead, *dims])
        if draws:
            array.attrs["draws"] = draws
        if name == self.roles.get("topics") and self.vocabulary is not None:
            array = array.rename({array.dims[-1]: "word"}).assign_coords(word=list(self.vocabulary))
        if isinstance(documents, Corpus) and "documents" in array.dims:
            array = array.assign_coords(documents=list(documents.names))
        return array

    def _whole(self, name: str, read: Callable[[Any], Moment]) -> Moment:
        """A moment of a site that belongs to no documents; of one that others decide, by runs of the model."""
        structure = self.guide.structure
        if name in structure.sites or name not in structure.trace.nodes:
            return read(self.guide.posterior(name))
        args, kwargs = structure.args, structure.kwargs
        values = [self.guide.run(*args, **kwargs).fixed.get(name) for _ in range(_RUNS)]
        drawn_values = [value for value in values if value is not None]
        if not drawn_values:
            raise ValueError(f"{name} is decided by sites with closed forms: ask for these.")
        return Moment(read(Drawn(torch.stack(drawn_values))).value, len(drawn_values))

    # Topics: no documents needed.

    def topics(self, n: int | None = None) -> xr.DataArray:
        """E theta, dims (topic, word), rows that sum to one; the n topics with most usage, largest first, or all."""
        factors = self.topic_factors
        if factors is not None:
            weights, draws = factors.gamma.double().mT.numpy(), 0  # (K, D)
        else:
            site = self._role("topics", "topics")
            with self._asking():
                found = self._whole(site, mean_of)
            weights, draws = found.value.double().numpy(), found.draws
            weights = weights.reshape(-1, weights.shape[-1])
        topics = self._labelled(weights / weights.sum(1, keepdims=True), "topic", "word")
        if draws:
            topics.attrs["draws"] = draws
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
                gamma_kd - gamma0. A guide without closed forms for the topics does not keep these.
        """
        factors = self.topic_factors
        if documents is None:
            if factors is None:
                raise ValueError("Which topics have the training tokens is not kept in this guide: give the documents.")
            tokens = (factors.gamma.double() - factors.prior()).sum(0).clamp(min=0).numpy()
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
        site = self._role("places", "topic_embeddings", _FUNCTION)
        with self._asking():
            ell = mean_of(self.guide.posterior(site)).value
        return self._labelled(ell.detach().double().numpy(), "topic", "dimension")

    def point(self, role: str) -> np.ndarray | None:
        """The value of the site of a role, where it is a free point in the guide; else None."""
        name = self.roles.get(role)
        claims: list[Any] = list(self.guide.claims)
        found = next((c for c in claims if isinstance(c, FreePoint) and name in c.sites), None)
        return None if found is None else found.value().detach().double().numpy()

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
        site = self._role("embedding", "embeddings", _FUNCTION)
        return self.ask(documents, lambda run: mean_of(run.factor(site)), "dimension")

    def random_function(self, documents: Corpus | Any) -> xr.DataArray:
        """mu_f(h_n, ell_k), the mean of the random function, dims (document, topic)."""
        site = self._role("function", "random_function", _FUNCTION)
        return self.ask(documents, lambda run: mean_of(run.factor(site)))

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
    def topic_factors(self) -> TopicFactors | None:
        """The closed forms for topics and loadings, where the guide has them."""
        if not self.guide.is_planned:
            raise ValueError("The guide has not been fitted or loaded: there is nothing to ask.")
        claims: list[Any] = list(self.guide.claims)
        return next((c for c in claims if isinstance(c, TopicFactors)), None)

    @property
    def num_topics(self) -> int:
        """K."""
        known = getattr(self.model, "num_topics", None)
        return len(self.topics()) if known is None else known

    @property
    def vocab_size(self) -> int:
        """D."""
        known = getattr(self.model, "vocab_size", None)
        return self.topics().shape[1] if known is None else known

    @property
    def dtype(self) -> torch.dtype:
        """Of what was learned."""
        parts = (*self.guide.buffers(), *self.guide.parameters())
        return next((x.dtype for x in parts if x.is_floating_point()), torch.get_default_dtype())

    def has(self, role: str) -> bool:
        """Whether the model has a site of a role."""
        site = self.roles.get(role)
        return site is not None and (not self.guide.is_planned or site in self.guide.structure.trace.nodes)

    def _role(self, role: str, what: str, needs: str = "") -> str:
        """The site of a role."""
        if not self.has(role):
            needs = needs or f"site as its {role}; say which by `roles`"
            name = getattr(self.model, "__name__", type(self.model).__name__)
            raise ValueError(f"{name} has no {_SYMBOLS.get(role, role)}: {what} needs a model with a {needs}.")
        return self.roles[role]

    def _topic(self, k: int) -> int:
        return whole("The number of a topic", k, 0, self.num_topics - 1)

    def _labelled(self, values: np.ndarray, *dims: str) -> xr.DataArray:
        words = self.vocabulary or range(values.shape[-1])
        coords = {dim: np.asarray(words) if dim == "word" else np.arange(values.shape[i]) for i, dim in enumerate(dims)}
        return xr.DataArray(values, coords, dims)

    def _corpus(self, documents: Corpus | Any) -> Corpus:
        """The documents as a corpus of the model's vocabulary."""
        if not isinstance(documents, Corpus):
            refuse_other_things(documents)
        counts = documents.counts if isinstance(documents, Corpus) else documents
        shape = np.shape(counts) if not scipy.sparse.issparse(counts) else counts.shape
        if len(shape) == 2 and shape[1] != self.vocab_size:
            raise ValueError(
                f"The documents have {shape[1]} words and the model {self.vocab_size}: give counts of the "
                "model's vocabulary (Corpus.align makes them)."
            )
        if not isinstance(documents, Corpus):
            return Corpus(counts, self.vocabulary or tuple(map(str, range(self.vocab_size))))
        if self.vocabulary is not None and documents.vocabulary != self.vocabulary:
            raise ValueError("The documents have other words than the model: align them with Corpus.align first.")
        return documents

    def _batches(self, documents: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """What the model is called with, and how many rows count: Pyro has no empty plate, so one is given a word."""
        if isinstance(documents, Data) and not isinstance(documents, Corpus | Counts):
            for start in range(0, len(documents), self.batch_size):
                rows = np.arange(start, min(start + self.batch_size, len(documents)))
                yield len(rows), tuple(documents.batch(rows))
            return
        counts = self._corpus(documents).counts
        most = getattr(self.model, "num_documents", counts.shape[0])
        for start in range(0, counts.shape[0], self.batch_size):
            part = counts[start : start + self.batch_size]
            size = part.shape[0]
            if not part.nnz:
                part = scipy.sparse.vstack([part, np.eye(1, counts.shape[1], dtype=part.dtype)], format="csr")
            batch = Batch.of_rows(part)
            yield size, (Batch(batch.documents % most, batch.indptr, batch.word, batch.count),)

    @contextmanager
    def _asking(self, seed: int | None = 0) -> Iterator[None]:
        """Nothing learns, nothing global changes, and one thread runs."""
        store = pyro.get_param_store()
        with (
            alone(),
            torch.no_grad(),
            seeded(0 if seed is None else seed),
            store.scope(store.get_state()),
            default_dtype(self.dtype),
            evaluating(self.model, self.guide),
        ):
            yield

    def ask(self, documents: Any, read: Callable[[Run], Tensor | Moment], dim: str = "topic") -> xr.DataArray:
        """What `read` finds, batch by batch, in a run with a converged E-step: dims (document, `dim`)."""
        if not self.guide.is_planned:
            raise ValueError("The guide has not been fitted or loaded: there is nothing to ask.")
        parts, draws = [], 0
        with self._asking():
            for size, args in self._batches(documents):
                found = read(self.guide.run(*args, options=CONVERGED))
                value = found.value if isinstance(found, Moment) else found
                draws = found.draws if isinstance(found, Moment) else 0
                parts.append(value.reshape(len(value), -1)[:size])
        result = self._labelled(torch.cat(parts).double().numpy(), "document", dim)
        if draws:
            result.attrs["draws"] = draws
        return result.assign_coords(document=list(documents.names)) if isinstance(documents, Corpus) else result

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
            raise ValueError(f"{type(self.model).__name__} has no random function: ask {what} for kind='posterior'.")
        values = self.random_function(documents) if kind == "function" else self.proportions(documents)
        if len(values) < 2:
            raise ValueError("There is one document: correlations over documents need at least two.")
        return values.values


def third_moment(values: np.ndarray, i: int, j: int, k: int) -> float:
    """The standardised third cross-moment of three columns, over the documents; 0 where one does not vary."""
    return float(_standardised(values[:, [i, j, k]]).prod(1).mean())


def _standardised(values: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1; a column that does not vary, beyond rounding, becomes 0."""
    centred = values - values.mean(0)
    scale = values.std(0)
    varies = scale > 1e-12 * np.abs(values).max(0)
    return np.where(varies, centred / np.where(varies, scale, 1.0), 0.0)
