"""Topics whose factor the engine holds: read and set by words, as the compiled factors of topics are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_prme.conjugacy.families import Dirichlet
from pyro_prme.inference.claims import Claim
from pyro_prme.inference.rules.conjugate import ConjugateFactors

__all__ = ["TopicTable", "topic_table"]


class TopicTable(NamedTuple):
    """A Dirichlet site of two dimensions, topics and words, among conjugate factors.

    Args:
        claim: whose it is.
        name: of the site.
    """

    claim: ConjugateFactors
    name: str

    @property
    def concentration(self) -> Tensor:
        """gamma, shape (K, D)."""
        return self.claim.natural(self.name)["log"] + 1

    @property
    def table_shape(self) -> tuple[int, int]:
        """The numbers of words and of topics."""
        num_topics, num_words = self.concentration.shape
        return num_words, num_topics

    def mean_rows(self, words: Tensor) -> Tensor:
        """E theta of some words, word-major, (W, K)."""
        gamma = self.concentration
        return gamma[:, words].mT / gamma.sum(-1)

    @torch.no_grad()
    def begin_from(self, centres: Tensor, weight: float, noise: Tensor) -> None:
        """Adds to gamma a weight times these centres, and noise, each (K, D)."""
        natural = self.claim.natural(self.name)["log"]
        self.claim.set_natural(self.name, {"log": natural + (weight * centres + noise).to(natural.dtype)})


def topic_table(claims: Sequence[Claim]) -> TopicTable | None:
    """The first table of topics among the claims of a guide."""
    for claim in claims:
        if isinstance(claim, ConjugateFactors):
            for name in claim.kept:
                if claim.family_of[name] is Dirichlet and claim.natural(name)["log"].dim() == 2:
                    return TopicTable(claim, name)
    return None
