"""Several fitted models asked as one: open this to average the predictions of fits with different seeds or kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import xarray as xr

from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import whole
from pyro_prme.corpora.corpus import Corpus

if TYPE_CHECKING:
    from pyro_prme.corpora.splits import TokenSplit

__all__ = ["Mixture"]

_PLACES = "Each fit has a space of its own for places of topics and documents"
_LABELS = "Topics of different fits have no common labels, and vary together only within one fit"
_SITES = "Each fit has sites of its own"


def _refused(why: str) -> Callable[..., NoReturn]:
    """A method that says why it has no answer, and who has one."""

    def refuse(self: Mixture, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(f"{why}: ask one of the {len(self.parts)} posteriors in `parts`.")

    return refuse


class Mixture(Posterior):
    r"""The mean of what several posteriors predict, as `Posterior.mix` makes it.

    .. math::
        p(x \mid \mathrm{seen}) = \frac{1}{S} \sum_s \sum_k \pi^{(s)}_{nk} \theta^{(s)}_{kx}

    It has the topics of all parts, those of the first part first, and a document's proportions are those in each part
    divided by the number of parts; so they sum to one, and topics and proportions together give the mean prediction.
    Words of topics, usage, proportions and scores are answered; what compares topics or places of different parts is
    refused.

    Args:
        parts: posteriors of topic models with the same words.
    """

    def __init__(self, parts: Sequence[Posterior]) -> None:
        self.parts: tuple[Posterior, ...] = tuple(
            one for part in parts for one in (part.parts if isinstance(part, Mixture) else (part,))
        )
        if not self.parts:
            raise ValueError("There is nothing to mix: give at least one posterior.")
        for part in self.parts:
            if not isinstance(part, Posterior):
                raise ValueError(f"A part of the mixture is a {type(part).__name__}: give posteriors.")
            if not part.has("topics"):
                raise ValueError("A part of the mixture has no topics: say by `roles` which site they are.")
            if part.has("repeats"):
                raise ValueError("A part of the mixture has a layer of own words, which has no mean: mix plain models.")
        first = self.parts[0]
        self.vocabulary = first.vocabulary
        for part in self.parts[1:]:
            if part.vocab_size != first.vocab_size or part.vocabulary != first.vocabulary:
                raise ValueError("The parts of a mixture have different words: fit them to one vocabulary.")
        self.batch_size = first.batch_size

    def __repr__(self) -> str:
        names = [type(part.model).__name__ for part in self.parts]
        each = ", ".join(f"{names.count(name)} of {name}" for name in dict.fromkeys(names))
        return f"Mixture of {len(self.parts)} posteriors ({each}), with {self.num_topics} topics in all."

    @property
    def vocab_size(self) -> int:
        return self.parts[0].vocab_size

    @property
    def num_topics(self) -> int:
        """Of all parts together."""
        return sum(part.num_topics for part in self.parts)

    def has(self, role: str) -> bool:
        """Whether it can be asked for a role: topics alone are shared by all parts."""
        return role == "topics"

    def factors(self) -> xr.DataArray:
        """E theta of all parts, dims (topic, word)."""
        return self._labelled(np.concatenate([part.topics().values for part in self.parts]), "topic", "word")

    def usage(self, documents: Corpus | Any | None = None) -> xr.DataArray:
        """Each topic's share of the tokens, divided by the number of parts, dims (topic,), sum one."""
        shares = [part.usage(documents).values / len(self.parts) for part in self.parts]
        return self._labelled(np.concatenate(shares), "topic")

    def proportions(self, documents: Corpus | Any) -> xr.DataArray:
        """Proportions in each part, divided by the number of parts, dims (document, topic), rows that sum to one."""
        found = [part.proportions(documents) for part in self.parts]
        values = self._labelled(np.concatenate([x.values for x in found], 1) / len(found), "document", "topic")
        return values.assign_coords(document=found[0]["document"].values) if "document" in found[0].coords else values

    def perplexity(self, split: TokenSplit | Corpus) -> float:
        """`Posterior.perplexity` of the mean prediction."""
        return super().perplexity(split)

    def representative_documents(self, k: int, n: int, documents: Corpus | Any) -> xr.DataArray:
        """The n documents with the largest proportion of topic k within its part, dims (document,), largest first."""
        whole("n", n)
        place = self._topic(k)
        for part in self.parts:
            if place < part.num_topics:
                return part.representative_documents(place, n, documents)
            place -= part.num_topics
        raise AssertionError

    similar_topics = _refused(_LABELS)
    topic_correlations = _refused(_LABELS)
    topic_correlation_intervals = _refused(_LABELS)
    third_moment = _refused(_LABELS)
    third_moment_interval = _refused(_LABELS)
    topic_embeddings = _refused(_PLACES)
    embeddings = _refused(_PLACES)
    random_function = _refused(_PLACES)
    loadings = _refused("Loadings of different fits have scales of their own")
    mean = _refused(_SITES)
    sd = _refused(_SITES)
    interval = _refused(_SITES)
    draws = _refused(_SITES)
    ask = _refused(_SITES)
    point = _refused(_SITES)
    guide = property(_refused("Each fit has a guide of its own"))  # type: ignore[assignment]
    model = property(_refused("Each fit has a model of its own"))
    roles = property(_refused(_SITES))
    dtype = property(_refused(_SITES))
    topic_factors = property(_refused("Each fit has factors of its own"))
