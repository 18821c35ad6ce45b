"""The guide of a topic model: points where the paper has them, the inference network, starts and centring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.counts import sound_csr
from pyro_prme.equations.sticks import sticks_from_weights
from pyro_prme.inference.claims import Context, Rule
from pyro_prme.inference.data import Data
from pyro_prme.inference.guide import ClosedFormGuide
from pyro_prme.inference.rules import Conjugate, FirstOf, FromPrior, GaussianFunction, MeanFieldNormal, Point, Topics
from pyro_prme.inference.rules.amortised import Amortised, NetworkPoint, rows_of_topics
from pyro_prme.inference.rules.point import FreePoint
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.inference.session import evaluating
from pyro_prme.models.networks.encoders import TopicEncoder
from pyro_prme.models.topic_model import TopicModel

__all__ = ["Counts", "PRMEGuide"]

_CENTRING = 1000  # documents over which f is centred: the error is a thirtieth of f's spread
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

    def __len__(self) -> int:
        return self.counts.shape[0]

    def batch(self, rows: np.ndarray) -> tuple[Batch]:
        """The documents of these numbers."""
        return (Batch.of_rows(self.counts, rows),)

    def typical_rows(self, size: int) -> np.ndarray:
        """The first documents that have words."""
        return np.flatnonzero(np.diff(self.counts.indptr))[:size]


class _HasCounts(Protocol):
    counts: sparse.csr_matrix


class PRMEGuide(ClosedFormGuide):
    """The paper's guide: points for ell and V, g for h, closed forms for the rest, found and claimed by their form.

    Args:
        model: a `TopicModel`.
        encoder: the inference network g; default a `TopicEncoder`.
        rules: by site, instead of those of the paper.
        topics: how loadings and topics are updated.
        stick_rate: learning rate of V.
        candidates, name: see `ClosedFormGuide`; candidates come after `topics`.
    """

    def __init__(
        self,
        model: TopicModel,
        encoder: nn.Module | None = None,
        rules: Mapping[str, Rule | None] | None = None,
        *,
        topics: Topics | None = None,
        stick_rate: float = _STICK_RATE,
        candidates: Sequence[Rule] = (Conjugate(), MeanFieldNormal()),
        name: str | None = None,
    ) -> None:
        roles = model.roles
        offered: dict[str, Rule] = {"sticks": Point(learning_rate=stick_rate), "places": Point()}
        if "embedding" in roles:
            size: Any = model
            encoder = TopicEncoder(model.num_topics, size.h_dim) if encoder is None else encoder
            offered["embedding"] = Amortised(encoder)
        offered["function"] = FirstOf(FromPrior(), GaussianFunction(getattr(model, "learn_function", None)))
        super().__init__(
            model,
            rules,
            candidates=(topics or Topics(), *candidates),
            defaults={roles[role]: rule for role, rule in offered.items() if role in roles},
            name=name,
        )

    @property
    def topics(self) -> TopicFactors:
        """The claim that holds the topics."""
        found = next((c for c in list(self.claims) if isinstance(c, TopicFactors)), None)
        if found is None:
            raise ValueError("No site of the model was claimed as topics of words: print the guide's plan to see why.")
        return found

    def _point(self, role: str) -> FreePoint | None:
        """The point that stands for a role."""
        model: Any = self.model
        name = model.roles.get(role)
        claims: Any = list(self.claims)
        return next((c for c in claims if isinstance(c, FreePoint) and name in c.sites), None)

    def begin(self, data: Data, start: str, seed: int) -> None:
        """Topics from a start of `starts.STARTS` ("default" is k-means), places and sticks that go with them.

        ell is a random projection of the centres' square roots, centred and normalised; V has the clusters' shares as
        its weights.
        """
        self.restart(seed)
        if not hasattr(data, "counts"):
            raise ValueError("Topics start from counts of words: give the data as Counts or as a Corpus.")
        rng = np.random.default_rng(seed)
        centres, shares = self.topics.start_from(data.counts, start, rng)
        num_topics = len(shares)
        sticks, places = self._point("sticks"), self._point("places")
        if sticks is not None:
            smooth = torch.as_tensor(shares + 0.1 / num_topics, dtype=sticks.free.dtype)
            sticks.set(sticks_from_weights(smooth / smooth.sum()))
        if places is not None:
            places.set(_projection(centres, places.free, rng))

    @torch.no_grad()
    def after_epoch(self, data: Data) -> None:
        """Recomputes the decoder's mean over documents, from at most 1,000 of them spread over the corpus."""
        model: Any = self.model
        places = self._point("places")
        claims: Any = list(self.claims)
        if places is None or not any(isinstance(c, NetworkPoint) for c in claims):
            return
        with evaluating(self):
            sample = np.unique(np.linspace(0, len(data) - 1, min(len(data), _CENTRING)).astype(int))
            parts = np.array_split(sample, -(-len(sample) // 500))
            model.recentre((self.embeddings(data.batch(rows)[0]) for rows in parts), places.value())

    def embeddings(self, batch: Batch) -> Tensor:
        """h of each document, shape (B, h_dim), in the guide's current mode."""
        claims: Any = tuple(self.claims)
        network = next(c for c in claims if isinstance(c, NetworkPoint))
        reads = getattr(network.encoder, "reads_topics", False)
        return network.encoder(batch, rows_of_topics(Context((batch,), {}, claims), batch) if reads else None)


def _projection(centres: np.ndarray, like: Tensor, rng: np.random.Generator) -> Tensor:
    """Unit vectors: a random projection of the centres' square roots around their mean."""
    roots = np.sqrt(centres)
    roots -= roots.mean(0)
    projected = roots @ rng.normal(size=(centres.shape[1], like.shape[-1]))
    norms = np.linalg.norm(projected, axis=1, keepdims=True)
    return torch.as_tensor(projected / np.maximum(norms, 1e-12), dtype=like.dtype)
