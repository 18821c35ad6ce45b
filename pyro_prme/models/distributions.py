"""Distributions of topic assignments and words that build no entries x topics table until somebody asks for one."""

from functools import cached_property
from typing import Any

import torch
from pyro import distributions as dist
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from pyro_prme.equations.expectations import expected, expected_log, expected_log_rows
from pyro_prme.equations.updates import assignment_probabilities
from pyro_prme.kernels.gamma import DigammaRows

__all__ = [
    "ImpliedAssignment",
    "TopicAssignment",
    "WordGivenTopic",
    "WordMajorDirichlet",
    "WordMajorPoint",
]


class _LazyCategorical(TorchDistribution):
    """A categorical distribution over topics, one for each entry, whose table is built on demand."""

    arg_constraints: dict = {}  # noqa: RUF012  (the attribute's name and kind are torch's)
    has_enumerate_support = True

    def __init__(self, num_topics: int, batch_shape: torch.Size) -> None:
        self.num_topics = num_topics
        super().__init__(batch_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.num_topics - 1)

    @property
    def probs(self) -> Tensor:
        raise NotImplementedError

    @cached_property
    def categorical(self) -> dist.Categorical:
        """The same distribution with its table of probabilities, shape (E, K)."""
        return dist.Categorical(probs=self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.categorical.log_prob(value)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        return self.categorical.sample(sample_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = torch.arange(self.num_topics).reshape((-1,) + (1,) * len(self.batch_shape))
        return values.expand((-1, *self.batch_shape)) if expand else values

    def expand(self, batch_shape: Any, _instance=None) -> TorchDistribution:
        if torch.Size(batch_shape) == self.batch_shape:
            return self
        return self.categorical.expand(batch_shape)


class TopicAssignment(_LazyCategorical):
    r"""Prior of C: :math:`C_{nm} \sim \mathrm{Disc}(Z_n / \sum_k Z_{nk})`.

    Args:
        loadings: Z, shape (B, K), or (P, B, K) under a plate of particles.
        document: row of each entry's document, shape (E,).
    """

    def __init__(self, loadings: Tensor, document: Tensor) -> None:
        self.loadings, self.document = loadings, document
        lead = (*loadings.shape[:-2], 1) if loadings.dim() > 2 else ()
        super().__init__(loadings.shape[-1], torch.Size((*lead, document.numel())))

    @property
    def probs(self) -> Tensor:
        rows = (self.loadings / self.loadings.sum(-1, keepdim=True))[..., self.document, :]
        return rows.unsqueeze(-3) if rows.dim() > 2 else rows

    def log_prob(self, value: Tensor) -> Tensor:
        if self.loadings.dim() > 2:
            return super().log_prob(value)
        log_proportions = (self.loadings / self.loadings.sum(-1, keepdim=True)).log()  # (B, K)
        return log_proportions[self.document, value]


class ImpliedAssignment(_LazyCategorical):
    r"""q(C) by what it follows from (eq. update_c).

    .. math:: \phi_{nm}(k) \propto \exp(E\ln Z_{nk} + E\ln\theta_{k,X_{nm}})

    Args:
        elog_loadings: E ln Z, shape (B, K).
        elog_theta: E ln theta of the batch's distinct words, word-major, shape (W, K).
        document: row of each entry's document, shape (E,).
        local_word: row of each entry's word in elog_theta, shape (E,).
    """

    def __init__(self, elog_loadings: Tensor, elog_theta: Tensor, document: Tensor, local_word: Tensor) -> None:
        self.elog_loadings, self.elog_theta = elog_loadings, elog_theta
        self.document, self.local_word = document, local_word
        super().__init__(elog_loadings.shape[-1], document.shape)

    @property
    def probs(self) -> Tensor:
        return assignment_probabilities(self.elog_loadings[self.document], self.elog_theta[self.local_word])


class WordGivenTopic(TorchDistribution):
    r"""Likelihood of a word: :math:`X_{nm} \sim \mathrm{Disc}(\theta_{C_{nm}})`, gathered as theta[C, x].

    A categorical distribution over theta[C] would hold a vocabulary-wide row for each entry.

    Args:
        theta: topics, shape (K, D), or (P, 1, K, D) under a plate of particles.
        topic: C, shape (E,), or with dimensions of particles or enumeration to the left.
    """

    arg_constraints: dict = {}  # noqa: RUF012

    def __init__(self, theta: Tensor, topic: Tensor) -> None:
        self.theta, self.topic = theta, topic
        super().__init__(topic.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.theta.shape[-1] - 1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self.theta.dim() == 2:
            return self.theta[self.topic, value].log()
        rows = [theta[topic, value] for theta, topic in self._particles()]
        return torch.stack(rows).reshape(torch.broadcast_shapes(self.topic.shape, value.shape)).log()

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        if sample_shape:
            raise NotImplementedError("Words are drawn one set at a time: sample C anew for each draw.")
        words = torch.empty_like(self.topic)
        for (theta, topic), out in zip(self._particles(), words.reshape(-1, words.shape[-1]), strict=True):
            for k in topic.unique():
                here = topic == k
                out[here] = torch.multinomial(theta[k], int(here.sum()), replacement=True)
        return words

    def _particles(self) -> list[tuple[Tensor, Tensor]]:
        topics = self.topic.reshape(-1, self.topic.shape[-1])
        thetas = self.theta.reshape(-1, *self.theta.shape[-2:]).expand(len(topics), -1, -1)
        return list(zip(thetas, topics, strict=True))

    def expand(self, batch_shape: Any, _instance=None) -> "WordGivenTopic":
        return WordGivenTopic(self.theta, self.topic.expand(batch_shape))


class WordMajorDirichlet(dist.Dirichlet):
    """q(theta) over a word-major buffer, with its row sums at hand, so that a step need not read all of K x D.

    Args:
        gamma: parameters, shape (D, K); as a distribution it has batch shape (K,) and event shape (D,).
        total: sum of gamma over words, shape (K,).
        digamma: digamma of rows of gamma.
    """

    def __init__(self, gamma: Tensor, total: Tensor, digamma: DigammaRows) -> None:
        super().__init__(gamma.mT, validate_args=False)
        self.gamma, self.total, self.digamma = gamma, total, digamma

    def mean_rows(self, words: Tensor) -> Tensor:
        """E theta of some words, word-major, shape (W, K)."""
        return self.gamma[words].div_(self.total)


class WordMajorPoint(TorchDistribution):
    """A point mass at normalised rows of a word-major buffer, of which a step reads only the batch's words.

    Args:
        gamma: positive, shape (D, K); the point is gamma / total, of batch shape (K,) and event shape (D,).
        total: sum of gamma over words, shape (K,).
    """

    arg_constraints: dict = {}  # noqa: RUF012
    support = constraints.simplex

    def __init__(self, gamma: Tensor, total: Tensor) -> None:
        self.gamma, self.total = gamma, total
        super().__init__(gamma.shape[1:], gamma.shape[:1], validate_args=False)

    @property
    def mean(self) -> Tensor:
        return (self.gamma / self.total).mT

    def mean_rows(self, words: Tensor) -> Tensor:
        """The point at some words, word-major, shape (W, K)."""
        return self.gamma[words].div_(self.total)

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        return self.mean.expand(torch.Size(sample_shape) + self.batch_shape + self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Zero: as for Pyro's Delta, the density is that of the point's own value."""
        return value.new_zeros(value.shape[:-1])


@expected_log_rows.register
def _(q: WordMajorDirichlet, value: Tensor, words: Tensor) -> Tensor:
    return q.digamma(q.gamma, words).sub_(torch.digamma(q.total))


@expected.register
def _(q: WordMajorPoint, value: Tensor) -> Tensor:
    return q.mean


@expected_log.register
def _(q: WordMajorPoint, value: Tensor) -> Tensor:
    return q.mean.log()


@expected_log_rows.register
def _(q: WordMajorPoint, value: Tensor, words: Tensor) -> Tensor:
    return q.mean_rows(words).log_()
