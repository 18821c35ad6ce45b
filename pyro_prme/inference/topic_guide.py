"""The guide of a topic model: points where the paper has them, the inference network, starts and centring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from pyro_prme.checks import choice
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.counts import sound_csr, tokens_of_words
from pyro_prme.corpora.mapped import Pages, give_back, is_mapped
from pyro_prme.corpora.rows import RowBatch
from pyro_prme.equations.sticks import sticks_from_weights
from pyro_prme.inference.claims import Context, Rule
from pyro_prme.inference.data import Data, Rows
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.options import RunOptions
from pyro_prme.inference.plan import Plan
from pyro_prme.inference.rules import (
    AmortisedNormal,
    Conjugate,
    FirstOf,
    FromPrior,
    GaussianFunction,
    MeanFieldNormal,
    OneByOne,
    Only,
    Point,
    PoissonSums,
    Topics,
)
from pyro_prme.inference.rules.amortised import Amortised, NetworkPoint, rows_of_topics
from pyro_prme.inference.rules.normal_guide import FreeNormal
from pyro_prme.inference.rules.point import FreePoint
from pyro_prme.inference.rules.poisson.claim import PoissonFactors
from pyro_prme.inference.rules.repeats import CompletedRepeats
from pyro_prme.inference.rules.topic_table import topic_table
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.rules.topics.own_counts import OwnCountsOut
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import evaluating
from pyro_prme.inference.topic_starts import STARTS, start_table
from pyro_prme.models.networks.encoders import hide_words
from pyro_prme.models.topic_model import TopicModel

__all__ = ["Counts", "PRMEGuide"]

_ROWS_OF_PLAN = 8
_CENTRING = 1000  # documents over which f is centred: the error is a thirtieth of f's spread
_NUMBERS_RATE = 0.05  # of Adam for the numbers of the layer of repeated words, on an unbounded scale
_STICK_RATE = 0.05  # of Adam for V on its logit: with the networks' rate it is far from converged after 30 epochs


class Counts:
    """A matrix of counts, documents x words, as data whose batches are `Batch`.

    Args:
        counts: the matrix.
    """

    def __init__(self, counts: sparse.csr_matrix) -> None:
        self.counts = sound_csr(counts)
        if not self.counts.nnz:
            raise ValueError(f"The {counts.shape[0]} documents have no words: there is nothing to fit.")
        self.on_disk = is_mapped(self.counts)
        self._pages = Pages(self.counts)
        self._name: str | None = None
        give_back(self.counts.indices, self.counts.data)

    def __len__(self) -> int:
        return self.counts.shape[0]

    def batch(self, rows: np.ndarray) -> tuple[Batch]:
        """The documents of these numbers."""
        batch = Batch.of_rows(self.counts, rows)
        self._pages.read(batch.num_entries)
        return (batch,)

    def typical_rows(self, size: int) -> np.ndarray:
        """The first documents that have words."""
        return np.flatnonzero(np.diff(self.counts.indptr))[:size]

    def named(self, name: Callable[[], str]) -> str:
        """The name that the function gives the counts, which takes it a while, so that it is asked once."""
        if self._name is None:
            self._name = name()
        return self._name


class PRMEGuide(ClosedFormGuide):
    """The paper's guide: points for ell and V, g for h, closed forms for the rest, found and claimed by their form.

    Args:
        model: a `TopicModel`.
        encoder: the inference network g; default a `TopicEncoder`.
        rules: by site, instead of those of the paper.
        topics: how loadings and topics are updated.
        stick_rate: learning rate of V.
        candidates, name: see `ClosedFormGuide`; candidates come after `topics` and before what has no closed form.
    """

    def __init__(
        self,
        model: TopicModel,
        encoder: nn.Module | None = None,
        rules: Mapping[str, Rule | None] | None = None,
        *,
        topics: Topics | OwnCountsOut | None = None,
        stick_rate: float = _STICK_RATE,
        candidates: Sequence[Rule] | None = None,
        name: str | None = None,
    ) -> None:
        roles, amortised = model.roles, AmortisedNormal(model.default_network)
        # with a density on its own scale, a stick that nothing uses is a point at 0, and raises a learned alpha
        learned = model.priors.keys() & {"alpha", "beta", "gamma0", "h_scale", "ell_scale"}
        sticks = Point(True if learned else None, learning_rate=stick_rate)
        offered: dict[str, Rule] = {"sticks": sticks, "places": FirstOf(Point(), MeanFieldNormal())}
        offered["dispersion"] = Point()
        if "embedding" in roles:
            reader: Any = model
            encoder = reader.default_encoder() if encoder is None else encoder
            offered["embedding"] = FirstOf(Amortised(encoder), amortised)
        of_words = [GaussianFunction(getattr(model, "learn_function", None))] if "assignment" in roles else []
        offered["function"] = FirstOf(FromPrior(), *of_words, amortised)
        if "repeats" in roles:
            offered |= _of_repeats(model, isinstance(topics, OwnCountsOut))
        if candidates is None:
            tokens = [roles["assignment"]] if "assignment" in roles else []
            candidates = (PoissonSums(), Conjugate(tokens), OneByOne())
        numbers = Only([roles[name] for name in model.priors], Point())
        super().__init__(
            model,
            rules,
            candidates=(topics or Topics(), *candidates, numbers, amortised, MeanFieldNormal()),
            defaults={roles[role]: rule for role, rule in offered.items() if role in roles},
            name=name,
        )

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """As `ClosedFormGuide.plan`; of rows it sees a part, so that what belongs to rows is solved for each batch."""
        given = self._prepared(args)
        small = [a.head(max(1, min(_ROWS_OF_PLAN, a.size - 1))) if isinstance(a, RowBatch) else a for a in given]
        return super().plan(*small, **kwargs)

    def run(self, *args: Any, options: RunOptions | None = None, **kwargs: Any) -> Run:
        """As `ClosedFormGuide.run`, on documents as the model reads them."""
        return super().run(*self._prepared(args), options=options, **kwargs)

    def _prepared(self, args: tuple) -> tuple:
        """What the model is called with, as it reads it."""
        model: Any = self.model
        return tuple(model.prepare(a) if isinstance(a, Batch) else a for a in args)

    @property
    def topics(self) -> TopicFactors:
        """The claim that holds the topics."""
        found = next((c for c in list(self.claims) if isinstance(c, TopicFactors)), None)
        if found is None:
            raise ValueError("No site of the model was claimed as topics of words: print the guide's plan to see why.")
        return found

    def _point(self, role: str) -> FreePoint | FreeNormal | None:
        """The point, or the Normal with its location, that stands for a role."""
        model: Any = self.model
        name = model.roles.get(role)
        claims: Any = list(self.claims)
        return next((c for c in claims if isinstance(c, FreePoint | FreeNormal) and name in c.sites), None)

    def begin(self, data: Data, start: str, seed: int) -> None:
        """Topics from a start of `starts.STARTS` ("default" is k-means), places and sticks that go with them.

        ell is a random projection of the centres' square roots, centred and normalised; V has the clusters' shares as
        its weights.
        """
        model: Any = self.model
        if getattr(model, "background", 0) and hasattr(data, "counts"):
            model.follow_words(torch.as_tensor(tokens_of_words(sound_csr(data.counts))))
        self.restart(seed)
        choice("start", "kmeans" if start == "default" else start, STARTS)
        claims: Any = list(self.claims)
        compiled = (c for c in claims if isinstance(c, TopicFactors | PoissonFactors))
        topics: Any = next(compiled, None) or (topic_table(claims) if hasattr(data, "counts") else None)
        if topics is None:
            return  # nothing knows what a centre would be: factors start near their prior
        rng = np.random.default_rng(seed)
        centres, shares = start_table(topics, _counts_of(data), start, rng)
        num_topics = len(shares)
        sticks, places = self._point("sticks"), self._point("places")
        if sticks is not None:
            smooth = torch.as_tensor(shares + 0.1 / num_topics, dtype=sticks.value().dtype)
            sticks.set(sticks_from_weights(smooth / smooth.sum()))
        if places is not None:
            places.set(_projection(centres, places.value(), rng))

    def for_gradients(self, args: tuple) -> tuple:
        """Where gradients are of a completion, a batch that shows a part of each document: a share drawn uniformly."""
        claims: Any = list(self.claims)
        if not any(getattr(getattr(c, "rule", None), "objective", None) == "completion" for c in claims):
            return args
        given = self._prepared(args)
        return tuple(arg.showing(hide_words(arg, 1.0)) if isinstance(arg, Batch) else arg for arg in given)

    @torch.no_grad()
    def after_epoch(self, data: Data) -> None:
        """Recomputes the decoder's mean over documents, from at most 1,000 of them spread over the corpus."""
        model: Any = self.model
        places = self._point("places")
        if places is None or self._network() is None:
            return
        with evaluating(self):
            sample = np.unique(np.linspace(0, len(data) - 1, min(len(data), _CENTRING)).astype(int))
            parts = np.array_split(sample, -(-len(sample) // 500))
            model.recentre((self.embeddings(data.batch(rows)[0]) for rows in parts), places.value())

    def embeddings(self, batch: Any, network: Any = None) -> Tensor:
        """h of each document, shape (B, h_dim), in the guide's current mode.

        Args:
            batch: of documents or of rows.
            network: the claim of the site, if it is not the first that has a network for a point.
        """
        claims: Any = tuple(self.claims)
        (batch,) = self._prepared((batch,))
        network = network or self._network()
        if network is None:
            raise ValueError("No inference network says where documents lie: print the guide's plan to see why.")
        reads = getattr(network.encoder, "reads_topics", False)
        return network.encoder(batch, rows_of_topics(Context((batch,), {}, claims), batch) if reads else None)

    def _network(self) -> NetworkPoint | None:
        """The claim of the documents' embeddings, where a network has them."""
        model: Any = self.model
        name = model.roles.get("embedding")
        claims: Any = list(self.claims)
        return next((c for c in claims if isinstance(c, NetworkPoint) and name in c.sites), None)


def _of_repeats(model: Any, by_completion: bool) -> dict[str, Rule]:
    """Rules for the numbers of the layer of repeated words, those of them that are learned."""
    learned = [name for name in ("own_discount", "own_concentration") if name in model.priors]
    if not by_completion:
        return dict.fromkeys(learned, Point(learning_rate=_NUMBERS_RATE))
    given = model.roles["repeats"], model.roles["loadings"], model.tables
    return {name: CompletedRepeats(*given, name == learned[0], learning_rate=_NUMBERS_RATE) for name in learned}


def _counts_of(data: Any) -> sparse.csr_matrix:
    """The counts of data that have some."""
    if not hasattr(data, "counts") and not isinstance(data, Rows):
        raise ValueError("Topics start from counts of words: give the data as Counts, as Rows or as a Corpus.")
    return sparse.csr_matrix(data.values.numpy() if isinstance(data, Rows) else data.counts)


def _projection(centres: np.ndarray, like: Tensor, rng: np.random.Generator) -> Tensor:
    """Unit vectors: a random projection of the centres' square roots around their mean."""
    roots = np.sqrt(centres)
    roots -= roots.mean(0)
    projected = roots @ rng.normal(size=(centres.shape[1], like.shape[-1]))
    norms = np.linalg.norm(projected, axis=1, keepdims=True)
    return torch.as_tensor(projected / np.maximum(norms, 1e-12), dtype=like.dtype)
