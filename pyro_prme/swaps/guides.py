"""How a swapped model brings its guide: from parts, so that several swaps in one class have one guide together."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from pyro_prme.guide import PRMEGuide
from pyro_prme.models.networks.encoders import TopicEncoder
from pyro_prme.models.prme import PRME
from pyro_prme.rules import Rule

__all__ = ["GuidedModel"]


class GuidedModel(PRME):
    """A model that brings its guide. A subclass overrides the part that it wants another of."""

    def make_network(self, size: int) -> nn.Module:
        """A network that reads documents, with so many outputs."""
        return TopicEncoder(self.num_topics, size)

    def make_encoder(self) -> nn.Module:
        """g, which says where h lies."""
        return self.make_network(self.h_dim)

    def offered_rules(self) -> dict[str, Rule]:
        """Rules by site to try before the registered ones; the plan says where one does not hold."""
        return {}

    def make_guide(self, rules: Mapping[str, Rule | None] | None = None) -> PRMEGuide:
        """The guide that goes with this model.

        Args:
            rules: see `ClosedFormGuide`.
        """
        return PRMEGuide(self, self.make_encoder(), rules, head=self.make_network, offered=self.offered_rules())
