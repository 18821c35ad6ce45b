"""The topic model that all others are made from: the hierarchical Dirichlet process, with two parts to put others into.

A subclass overrides one of the two hooks, `random_function` or `likelihood`, or one of the small methods around a
single `pyro.sample`. Since each class changes one thing, several of them go together in one model, the most special
first: `class PitmanYorShape(PitmanYorSticks, ShapePRME)`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.distributions import Distribution

from pyro_prme.checks import all_settings, positive
from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.sticks import MIN_CONCENTRATION, log_stick_weights
from pyro_prme.models.distributions import TopicAssignment, WordGivenTopic
from pyro_prme.models.learned_numbers import checked_prior, middle_of
from pyro_prme.models.networks.encoders import TopicEncoder

__all__ = ["HDP", "Plates", "TopicModel"]

_names = (f"topic_model_{i}" for i in itertools.count())


class Plates(NamedTuple):
    """The plates of a run: topics, shape (K,) on the right, and the batch's documents, shape (B, 1)."""

    topics: pyro.plate
    documents: pyro.plate


class TopicModel(PyroModule):
    r"""Hierarchical Dirichlet process topic model: PRME with f = 0.

    .. math::
        V_k \sim \mathrm{Beta}(1, \alpha), \quad p_k = V_k \textstyle\prod_{j<k} (1 - V_j), \quad
        \theta_k \sim \mathrm{Dir}(\gamma_0 D \pi), \quad \pi_d = (1 - s) / D + s\, w_d

        Z_{nk} \sim \mathrm{Gamma}(\beta p_k, \mathrm{scale} = e^{f_{nk}}), \quad f = 0

        C_{nm} \sim \mathrm{Disc}(Z_n / \textstyle\sum_k Z_{nk}), \quad X_{nm} \sim \mathrm{Disc}(\theta_{C_{nm}})

    The base distribution pi of the topics' words is uniform where s, `background`, is 0, as in the paper. Otherwise the
    share s of it follows w, how often words occur in the corpus, which a guide's start reads from the data
    (`follow_words`).

    Sites and shapes (batch | event): V (K - 1), theta (K | D), Z (B, K), C and X (E) over the batch's entries.

    Args:
        num_topics: K, the truncation level.
        vocab_size: D.
        num_documents: N, documents of the corpus (a batch stands for all of them).
        alpha: concentration of the sticks.
        beta: total shape of a document's loadings.
        gamma0: Dirichlet parameter of the topics. For each of the three a number, or a distribution: the number is
            then a site of its own, with this prior.
        background: s, from 0 to below 1.
        name: prefix of this model's parameters in Pyro's param store; each model gets its own by default.
    """

    alpha: float | Tensor  # a tensor where a run has drawn it
    beta: float | Tensor
    gamma0: float | Tensor

    def __init__(
        self,
        num_topics: int,
        vocab_size: int,
        num_documents: int,
        *,
        alpha: float | Distribution = 1.0,
        beta: float | Distribution = 5.0,
        gamma0: float | Distribution = 0.2,
        background: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name or next(_names))
        all_settings(num_topics=num_topics, vocab_size=vocab_size, num_documents=num_documents, background=background)
        self.num_topics, self.vocab_size, self.num_documents = num_topics, vocab_size, num_documents
        #: Priors of the numbers that are learned, by name.
        self.priors: dict[str, Distribution] = {}
        for number, given in {"alpha": alpha, "beta": beta, "gamma0": gamma0}.items():
            self.set_number(number, given)
        self.background = float(background)
        if background:
            self.register_buffer("word_shares", torch.full((vocab_size,), 1 / vocab_size))

    @torch.no_grad()
    def follow_words(self, tokens: Tensor) -> None:
        """Lets the background follow how often words occur.

        Args:
            tokens: of each word in the corpus, shape (D,).
        """
        self.word_shares.copy_(tokens / tokens.sum())

    def set_number(self, name: str, given: Any, check: Callable[[str, Any], Any] = positive) -> None:
        """Sets a number of the model to a value, or to be drawn in each run from a prior.

        Args:
            name: of the number, and of its site.
            given: a value or a distribution.
            check: of a value, which raises.
        """
        if isinstance(given, Distribution):
            self.priors[name] = checked_prior(name, given, check)
            given = middle_of(given)
        else:
            check(name, given)
        setattr(self, name, given if isinstance(given, Tensor) else float(given))

    def with_numbers(self, **values: float | Tensor) -> TopicModel:
        """The same model, with the same parameters, at other numbers.

        Args:
            values: by name, such as alpha.
        """
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, **values}
        return other

    @property
    def roles(self) -> Mapping[str, str]:
        """Names of sites by what they are for, for guides that treat such sites in a way of their own."""
        own = {"topics": "theta", "loadings": "Z", "assignment": "C", "words": "X", "sticks": "V"}
        return own | {name: name for name in self.priors}

    def default_network(self, size: int) -> nn.Module:
        """A network that reads documents, with so many outputs for each, for what a guide has to infer from them."""
        return TopicEncoder(self.num_topics, size)

    def forward(self, batch: Batch) -> Tensor:
        """Runs the model on a batch; returns what the likelihood draws or observes."""
        batch = self.prepare(batch)
        self.check(batch)
        if not self.priors:
            return self.generate(batch)
        drawn: dict[str, Any] = {}
        for name, prior in self.priors.items():
            value = pyro.sample(name, prior)  # type: ignore[arg-type]
            drawn[name] = value if value.dtype == torch.get_default_dtype() else value.to(torch.get_default_dtype())
        return self.with_numbers(**drawn).generate(batch)

    def prepare(self, batch: Batch) -> Batch:
        """The documents as the model, and what its guide has for it, read them: as they are."""
        return batch

    def generate(self, batch: Batch) -> Tensor:
        """The model's program, its numbers being what they are."""
        topics = pyro.plate("topics", self.num_topics, dim=-1)
        documents = pyro.plate("documents", self.num_documents, subsample=batch.documents, dim=-2)
        plates = Plates(topics, documents)
        places = self.sample_places(plates)
        with pyro.plate("sticks", self.num_topics - 1, dim=-1):
            V = self.sample_V()
        theta = self.sample_factors(plates)
        f = self.random_function(places, plates, batch)
        with documents, topics:
            Z = self.sample_Z(V, f)
        return self.likelihood(Z, theta, plates, batch)

    def sample_places(self, plates: Plates) -> Tensor:
        """Where the random function is evaluated, by topic; nothing for f = 0."""
        return torch.zeros(())

    def sample_factors(self, plates: Plates) -> Tensor:
        """theta, what the likelihood has for each topic, shape (K, D)."""
        with plates.topics:
            return self.sample_theta()

    def random_function(self, places: Tensor, plates: Plates, batch: Batch) -> Tensor:
        """The first hook: f and what it is drawn from; shape (B, K), or one that broadcasts to it.

        Args:
            places: what `sample_places` returns.
            plates: of the run, to be entered.
            batch: of documents.
        """
        return torch.zeros(())

    def likelihood(self, Z: Tensor, theta: Tensor, plates: Plates, batch: Batch) -> Tensor:
        """The second hook: the data given loadings and topics; documents without words have no C and X.

        Args:
            Z: loadings, shape (B, K).
            theta: what `sample_factors` returns.
            plates: of the run, to be entered.
            batch: of documents.

        Returns:
            The words, shape (E,).
        """
        if not batch.num_entries:
            return batch.count.new_empty(0, dtype=torch.int64)
        with pyro.plate("words", batch.num_entries, dim=-1), self.word_scale(batch):
            C = self.sample_C(Z, batch)
            return self.sample_X(C, theta, batch)

    def sample_V(self) -> Tensor:
        """V_k ~ Beta(1, alpha), shape (K - 1,)."""
        return pyro.sample("V", dist.Beta(1.0, self.alpha))

    def sample_theta(self) -> Tensor:
        """theta_k ~ Dir(gamma0 D pi), shape (K, D)."""
        gamma0 = self.gamma0 if isinstance(self.gamma0, Tensor) else torch.tensor(self.gamma0)
        gamma0 = gamma0.to(torch.get_default_dtype()).unsqueeze(-1)
        if self.background:
            base = 1 - self.background + self.background * self.vocab_size * self.word_shares  # D pi, (D,)
            return pyro.sample("theta", dist.Dirichlet(gamma0 * base.to(gamma0.dtype)))
        return pyro.sample("theta", dist.Dirichlet(gamma0.expand(*gamma0.shape[:-1], self.vocab_size)))

    def sample_Z(self, V: Tensor, f: Tensor) -> Tensor:
        """Z_nk ~ Gamma(beta p_k, scale = exp(f_nk)), shape (B, K)."""
        return pyro.sample("Z", dist.Gamma(self.concentration(V), (-f).exp()))

    def sample_C(self, Z: Tensor, batch: Batch) -> Tensor:
        """C_nm ~ Disc(Z_n / sum Z_n), shape (E,)."""
        return pyro.sample("C", TopicAssignment(Z, batch.document))

    def sample_X(self, C: Tensor, theta: Tensor, batch: Batch) -> Tensor:
        """X_nm ~ Disc(theta_C), shape (E,); observed where the batch has words."""
        return pyro.sample("X", WordGivenTopic(theta, C), obs=batch.word)

    def concentration(self, V: Tensor) -> Tensor:
        """beta p, with the floor `sticks.MIN_CONCENTRATION`, shape (..., K)."""
        log_beta = self.beta.log() if isinstance(self.beta, Tensor) else math.log(self.beta)
        return (log_stick_weights(V) + log_beta).exp().clamp(min=MIN_CONCENTRATION)

    def mean_loadings(self, V: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E[Z_nk] = beta p_k exp(mu_f + sigma2_f / 2) given V and the moments of f, shape (B, K)."""
        return self.concentration(V) * (mean + variance / 2).exp()

    def word_scale(self, batch: Batch) -> AbstractContextManager:
        """What an entry counts: how often its word occurs, times N / B (the documents plate does not reach it)."""
        share = self.num_documents / batch.size
        if share == 1 and batch.is_tokens:
            return nullcontext()
        return poutine.scale(scale=batch.count * share)

    def check(self, batch: Batch) -> None:
        """Refuses a batch that does not belong to this model, with the reason."""
        if batch.size < 1:
            raise ValueError("The batch has no documents: give at least one.")
        if batch.last_document >= self.num_documents:
            raise ValueError(
                f"The batch has document {batch.last_document}, the model was built for num_documents="
                f"{self.num_documents}: build it with the corpus's number of documents."
            )
        if batch.last_word >= self.vocab_size:
            raise ValueError(
                f"The batch has word id {batch.last_word}, the model was built for vocab_size={self.vocab_size}: "
                "build it with the corpus's vocabulary, or drop the unknown words."
            )


class HDP(TopicModel):
    """Hierarchical Dirichlet process topic model, the `TopicModel` as it is."""
