"""Point masses at the output of an inference network that reads documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pyro_prme.conjugacy import Structure
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.rows import RowBatch
from pyro_prme.inference.claims import Claim, Context, OneSiteRule, OpenClaim
from pyro_prme.inference.rules.normal_guide import is_real
from pyro_prme.inference.rules.poisson.claim import PoissonFactors
from pyro_prme.inference.rules.shrinking import shrinking
from pyro_prme.inference.rules.topic_table import topic_table
from pyro_prme.inference.rules.topics.claim import TopicFactors

__all__ = ["Amortised", "NetworkPoint", "rows_of_topics"]


class Amortised(OneSiteRule):
    """Claims the first free real-valued site: its point is what a network makes of the batch.

    Args:
        encoder: module that maps (batch, topics) to one row a document. Where its attribute `reads_topics` is true,
            topics is E theta of the batch's words, (W, K), else None.
    """

    def __init__(self, encoder: nn.Module) -> None:
        self.encoder = encoder

    def claim(self, structure: Structure, name: str) -> Claim | str:
        if not is_real(structure.trace.nodes[name]["fn"]):
            return "it is not real-valued, and the inference network's output is"
        return shrinking(structure, name) or NetworkPoint(name, self.encoder)


class NetworkPoint(OpenClaim):
    """A point at the network's output.

    Args:
        name: of the site.
        encoder: the network.
    """

    random = False

    def __init__(self, name: str, encoder: nn.Module) -> None:
        super().__init__()
        self.sites, self.encoder = (name,), encoder

    def title(self, name: str) -> str:
        return "point mass at the inference network's output"

    def posterior(self, name: str, prior: Any, context: Context) -> Tensor:
        batch = batch_among(context.args)
        reads = getattr(self.encoder, "reads_topics", False)
        if reads and isinstance(batch, RowBatch):
            raise ValueError(
                "The inference network reads words of documents, and the data are rows: give an encoder that reads "
                "rows, such as RowEncoder, or derive the model from FactorModel."
            )
        topics = rows_of_topics(context, batch) if reads else None
        return self.encoder(batch, topics).reshape(prior.batch_shape + prior.event_shape)


def batch_among(args: Sequence[Any]) -> Any:
    """The batch of documents or of rows among a model's arguments."""
    found = next((arg for arg in args if isinstance(arg, Batch | RowBatch)), None)
    if found is None:
        raise ValueError("The model was called without a batch, which its inference network reads: give one.")
    return found


@torch.no_grad()
def rows_of_topics(context: Context, batch: Batch) -> Tensor:
    """E theta of the batch's distinct words, word-major (W, K), of the first claim that holds topics."""
    topics: Any = next((c for c in context.claims if isinstance(c, TopicFactors | PoissonFactors)), None)
    if topics is None:
        topics = topic_table(context.claims)
    if topics is None:
        raise ValueError(
            "The inference network reads topics of words, and no site of the model was claimed as such: give an "
            "encoder that reads the batch alone."
        )
    return topics.mean_rows(batch.words)
