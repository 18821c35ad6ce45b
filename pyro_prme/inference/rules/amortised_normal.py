"""The fallback for what belongs to documents and has no closed form: a Normal that a network reads off the document."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, biject_to

from pyro_prme.conjugacy import Structure
from pyro_prme.inference.claims import Claim, Context, OneSiteRule
from pyro_prme.inference.rules.amortised import NetworkPoint, batch_among, rows_of_topics
from pyro_prme.inference.rules.normal_guide import normal_on_support

__all__ = ["AmortisedNormal", "Locations", "NetworkNormal"]

_INITIAL_SCALE = 0.1  # standard deviation, on the unconstrained scale
_REACH = 4.0  # of a logarithm of a scale from the initial one


class AmortisedNormal(OneSiteRule):
    """Claims the first free continuous site of the batch's plate: its Normal is what a network makes of the batch.

    The Normal lies on the unconstrained scale of the prior's support. Its standard deviation is between 0.002 and 5.5:
    without a bound, one bad step of the network makes it overflow.

    Args:
        network: makes a network with the given number of outputs for each document; see `Amortised` for what it reads.
    """

    def __init__(self, network: Callable[[int], nn.Module]) -> None:
        self.network = network

    def claim(self, structure: Structure, name: str) -> Claim | str:
        site = structure.trace.nodes[name]
        if site["fn"].support.is_discrete:
            return "it is discrete and has no reparameterised gradient"
        if not _is_of_batch(site, structure):
            return "it does not belong to the documents of a batch, which a network could read"
        shape = biject_to(site["fn"].support).inv(site["value"]).shape[1:]
        return NetworkNormal(name, Locations(self.network(2 * shape.numel())), shape)


def _is_of_batch(site: Any, structure: Structure) -> bool:
    """Whether the leftmost plate of a site is that of the batch's documents or rows.

    Another plate may be of the same size: where some plate is subsampled, that of the batch is.
    """
    batch = next((arg for arg in structure.args if hasattr(arg, "documents")), None)
    frames = sorted((f for f in site["cond_indep_stack"] if f.vectorized), key=lambda f: f.dim)
    if batch is None or not frames or -frames[0].dim != len(site["fn"].batch_shape):
        return False
    everywhere = (f for s in structure.run_sites for f in s.plates)
    parts = any(f.size != f.full_size for f in everywhere)
    return frames[0].size == len(batch.documents) and (frames[0].size != frames[0].full_size or not parts)


class Locations(nn.Module):
    """The first half of a network's outputs; `both` gives all of them in halves.

    Args:
        network: that reads documents.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.reads_topics = bool(getattr(network, "reads_topics", False))

    def both(self, batch: Any, topics: Tensor | None) -> tuple[Tensor, Tensor]:
        """Locations and what scales are made from, each one row a document."""
        loc, log_scale = self.network(batch, topics).chunk(2, -1)
        return loc, log_scale

    def forward(self, batch: Any, topics: Tensor | None = None) -> Tensor:
        """One row a document."""
        return self.both(batch, topics)[0]


class NetworkNormal(NetworkPoint):
    """A Normal with a network's outputs as location and scale.

    Args:
        name: of the site.
        encoder: the network.
        shape: of one document's part, on the unconstrained scale.
    """

    random = True
    encoder: Locations

    def __init__(self, name: str, encoder: Locations, shape: torch.Size) -> None:
        super().__init__(name, encoder)
        self._shape = shape

    def title(self, name: str) -> str:
        return "Normal from the inference network, reparameterised gradient"

    def posterior(self, name: str, prior: Any, context: Context) -> Distribution:  # type: ignore[override]
        batch = batch_among(context.args)
        topics = rows_of_topics(context, batch) if self.encoder.reads_topics else None
        loc, log_scale = (part.reshape(-1, *self._shape) for part in self.encoder.both(batch, topics))
        return normal_on_support(prior, loc, (_REACH * (log_scale / _REACH).tanh() + math.log(_INITIAL_SCALE)).exp())
