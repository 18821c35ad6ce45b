"""The generative model (paper, eq. topic_model_z) as a Pyro program. Open it to read the model or to swap a part of it.

Every draw is one small method around one `pyro.sample`: override it in a subclass to swap a prior or the likelihood.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.nn import PyroModule
from torch import Tensor, nn

from pyro_prme.checks import all_settings
from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.sticks import MIN_CONCENTRATION, log_stick_weights
from pyro_prme.models.distributions import TopicAssignment, WordGivenTopic
from pyro_prme.models.networks.layers import Decoder, RandomFunction
from pyro_prme.prototype import eval_mode

__all__ = ["DILN", "HDP", "PRME", "ShapePRME"]

_names = (f"prme_{i}" for i in itertools.count())

#: Sites of every topic model, by what they are for.
_OF_TOPICS = {"topics": "theta", "loadings": "Z", "assignment": "C", "words": "X"}


class PRME(PyroModule):
    r"""Topic model with a random function prior on the loadings.

    .. math::
        \ell_k \sim N(0, b I), \quad V_k \sim \mathrm{Beta}(1, \alpha)

        p_k = V_k \textstyle\prod_{j<k} (1 - V_j), \quad \theta_k \sim \mathrm{Dir}(\gamma_0)

        h_n \sim N(0, a I), \quad f_{nk} \sim N(\mu_f(h_n, \ell_k), \sigma^2_f(h_n, \ell_k))

        Z_{nk} \sim \mathrm{Gamma}(\beta p_k, \mathrm{scale} = e^{f_{nk}})

        C_{nm} \sim \mathrm{Disc}(Z_n / \textstyle\sum_k Z_{nk}), \quad X_{nm} \sim \mathrm{Disc}(\theta_{C_{nm}})

    Sites and shapes (batch | event): ell (K | ell_dim), V (K - 1), theta (K | D); h (B, 1 | h_dim), f and Z (B, K);
    C and X (E) over the batch's entries.

    Args:
        num_topics: K, the truncation level.
        vocab_size: D.
        num_documents: N, documents of the corpus (a batch stands for all of them).
        alpha: concentration of the sticks.
        beta: total shape of a document's loadings.
        gamma0: Dirichlet parameter of the topics.
        h_dim, ell_dim: lengths of the documents' and topics' embeddings.
        h_scale, ell_scale: their prior standard deviations (the paper's a and b are variances).
        decoder: module that maps (h, ell) to the mean and variance of f, each (B, K).
        name: prefix of this model's parameters in Pyro's param store; each model gets its own by default.
    """

    #: Names of sites by what they are for, for guides.
    roles: ClassVar[Mapping[str, str]] = {
        **_OF_TOPICS, "sticks": "V", "places": "ell", "embedding": "h", "function": "f"
    }  # fmt: skip

    alpha: float | Tensor  # a tensor where a run has drawn it (`swaps.HyperPriors`)
    beta: float | Tensor
    gamma0: float | Tensor

    def __init__(
        self,
        num_topics: int,
        vocab_size: int,
        num_documents: int,
        *,
        alpha: float = 1.0,
        beta: float = 5.0,
        gamma0: float = 0.2,
        h_dim: int = 20,
        ell_dim: int = 20,
        h_scale: float = 1.0,
        ell_scale: float = 1.0,
        decoder: nn.Module | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name or next(_names))
        all_settings(num_topics=num_topics, vocab_size=vocab_size, num_documents=num_documents)
        all_settings(alpha=alpha, beta=beta, gamma0=gamma0)
        all_settings(h_dim=h_dim, ell_dim=ell_dim, h_scale=h_scale, ell_scale=ell_scale)
        self.num_topics, self.vocab_size, self.num_documents = num_topics, vocab_size, num_documents
        self.alpha, self.beta, self.gamma0 = map(_torch_number, (alpha, beta, gamma0))
        self.h_dim, self.ell_dim = h_dim, ell_dim
        self.h_scale, self.ell_scale = map(_torch_number, (h_scale, ell_scale))
        self.decoder = self.default_decoder() if decoder is None else decoder

    def default_decoder(self) -> nn.Module:
        """The decoder used when none is given."""
        return Decoder(self.num_topics, self.h_dim, self.ell_dim)

    def forward(self, batch: Batch) -> Tensor:
        """Runs the model on a batch; returns the words, shape (E,). Documents without words have no C and X."""
        self.check(batch)
        topics = pyro.plate("topics", self.num_topics, dim=-1)
        with topics:
            ell = self.sample_ell()
        with pyro.plate("sticks", self.num_topics - 1, dim=-1):
            V = self.sample_V()
        with topics:
            theta = self.sample_theta()
        with pyro.plate("documents", self.num_documents, subsample=batch.documents, dim=-2):
            h = self.sample_h(batch)
            with topics:
                f = self.sample_f(h, ell)
                Z = self.sample_Z(V, f)
        if not batch.num_entries:
            return batch.count.new_empty(0, dtype=torch.int64)
        with pyro.plate("words", batch.num_entries, dim=-1), self.word_scale(batch):
            C = self.sample_C(Z, batch)
            return self.sample_X(C, theta, batch)

    def sample_ell(self) -> Tensor:
        """ell_k ~ N(0, b I), shape (K, ell_dim)."""
        return pyro.sample("ell", dist.Normal(0.0, self.ell_scale).expand([self.ell_dim]).to_event(1))

    def sample_V(self) -> Tensor:
        """V_k ~ Beta(1, alpha), shape (K - 1,)."""
        return pyro.sample("V", dist.Beta(1.0, self.alpha))

    def sample_theta(self) -> Tensor:
        """theta_k ~ Dir(gamma0), shape (K, D)."""
        gamma0 = torch.as_tensor(self.gamma0, dtype=torch.get_default_dtype()).unsqueeze(-1)
        return pyro.sample("theta", dist.Dirichlet(gamma0.expand(*gamma0.shape[:-1], self.vocab_size)))

    def sample_h(self, batch: Batch) -> Tensor:
        """h_n ~ N(0, a I), shape (B, 1, h_dim)."""
        return pyro.sample("h", dist.Normal(0.0, self.h_scale).expand([self.h_dim]).to_event(1))

    def sample_f(self, h: Tensor, ell: Tensor) -> Tensor:
        """f_nk ~ N(mu_f(h_n, ell_k), sigma2_f(h_n, ell_k)), shape (B, K)."""
        mean, variance = self.decode(h, ell)
        return pyro.sample("f", dist.Normal(mean, variance.sqrt()))

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

    def decode(self, h: Tensor, ell: Tensor) -> tuple[Tensor, Tensor]:
        """mu_f and sigma2_f for h (B, 1, h_dim) and ell (K, ell_dim), each (B, K); also under a plate of particles."""
        if h.dim() > 3:
            pairs = [self.decode(*pair) for pair in zip(h, ell.expand(len(h), *ell.shape[1:]), strict=True)]
            return torch.stack([mean for mean, _ in pairs]), torch.stack([variance for _, variance in pairs])
        mean, variance = self.decoder(h.squeeze(-2), ell.reshape(ell.shape[-2:]))
        if not bool(torch.isfinite(mean.sum() + variance.sum())):
            raise ValueError(
                "The decoder's mean or variance of f is not finite: the fit has diverged; start again with a smaller "
                "learning rate."
            )
        return mean, variance

    @torch.no_grad()
    def recentre(self, embeddings: Iterable[Tensor], ell: Tensor) -> None:
        """Recomputes the decoder's running mean of f over documents exactly.

        Args:
            embeddings: h of all documents, batch by batch, each (B, h_dim).
            ell: shape (K, ell_dim).
        """
        if isinstance(self.decoder, RandomFunction):
            with eval_mode(self.decoder):
                means = [(len(h), self.decoder.topic_centred(h, ell)[0].mean(0)) for h in embeddings]
            num = sum(size for size, _ in means)
            self.decoder.running_mean.copy_(torch.stack([size / num * mean for size, mean in means]).sum(0))

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


def _torch_number(value: float | Tensor) -> float | Tensor:
    """A tensor as it is, and any other number (numpy's, say) as the float that torch's distributions take."""
    return value if isinstance(value, Tensor) else float(value)


class ShapePRME(PRME):
    r"""PRME with the random function in the shape of the loadings, where it can raise a topic and not only suppress it.

    .. math:: f_{nk} = \mu_f(h_n, \ell_k), \qquad
              Z_{nk} \sim \mathrm{Gamma}\left(\beta \frac{p_k e^{f_{nk}}}{\sum_j p_j e^{f_{nj}}}, 1\right)

    Differs from the paper: there f is the logarithm of the scale. In the posterior mean of Z, which is
    (beta p_k + n_nk) / (exp(-f_nk) + M_n / epsilon_n), a positive f then changes next to nothing, and a negative one
    counts only where it beats M_n / epsilon_n. Here f moves the beta pseudo-counts of a document between its topics,
    which matters most when few of its words are known (`benchmarks/paper/NOTES.md`). Shapes sum to beta whatever f is,
    so that row sums stay finite. f has no variance: ln Gamma of a random shape has no mean in closed form.
    """

    def sample_f(self, h: Tensor, ell: Tensor) -> Tensor:
        """f_nk = mu_f(h_n, ell_k), shape (B, K)."""
        return pyro.sample("f", dist.Delta(self.decode(h, ell)[0]))

    def sample_Z(self, V: Tensor, f: Tensor) -> Tensor:
        """Z_nk ~ Gamma(beta p_k exp(f_nk) / sum_j p_j exp(f_nj), 1), shape (B, K)."""
        shape = self.shape(V, f)
        return pyro.sample("Z", dist.Gamma(shape, torch.ones_like(shape)))

    def shape(self, V: Tensor, f: Tensor) -> Tensor:
        """The shapes of the loadings, which sum to beta, with the floor `sticks.MIN_CONCENTRATION`, shape (B, K)."""
        return (self.beta * (log_stick_weights(V) + f).softmax(-1)).clamp(min=MIN_CONCENTRATION)

    def mean_loadings(self, V: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E[Z_nk], the shape at f = mean, shape (B, K)."""
        return self.shape(V, mean)


class HDP(PRME):
    """Hierarchical Dirichlet process topic model: the same program with f = 0, and so without ell, h and f."""

    roles: ClassVar[Mapping[str, str]] = {**_OF_TOPICS, "sticks": "V"}

    def default_decoder(self) -> nn.Module:
        return nn.Identity()

    def sample_ell(self) -> Tensor:
        return torch.zeros(())

    def sample_h(self, batch: Batch) -> Tensor:
        return torch.zeros(())

    def sample_f(self, h: Tensor, ell: Tensor) -> Tensor:
        return torch.zeros(())


class DILN(HDP):
    r"""Discrete infinite logistic normal distribution (Paisley, Wang and Blei, 2012): a Gaussian process for f.

    .. math:: f_n \sim N(m, S), \qquad Z_{nk} \sim \mathrm{Gamma}(\beta p_k, \mathrm{scale} = e^{f_{nk}})

    The process has a linear kernel on ell; it is held as the K x K covariance S that the kernel gives, so there is no
    site ell, and m and S are fitted by their closed forms. The site f has shape (B, 1 | K).
    """

    roles: ClassVar[Mapping[str, str]] = {**_OF_TOPICS, "sticks": "V", "function": "f"}

    mean: Tensor
    covariance: Tensor

    def __init__(self, num_topics: int, vocab_size: int, num_documents: int, **kwargs: Any) -> None:
        super().__init__(num_topics, vocab_size, num_documents, **kwargs)
        self.register_buffer("mean", torch.zeros(num_topics))
        self.register_buffer("covariance", torch.eye(num_topics))

    @torch.no_grad()
    def learn_function(self, mean: Tensor, covariance: Tensor, rate: float) -> None:
        """Moves m and S towards these by a share `rate` of the way."""
        self.mean.lerp_(mean.to(self.mean.dtype), rate)
        self.covariance.lerp_(covariance.to(self.covariance.dtype), rate)

    def sample_h(self, batch: Batch) -> Tensor:
        """f_n ~ N(m, S), all topics at once, shape (B, 1, K): drawn here, outside the plate of topics."""
        return pyro.sample("f", dist.MultivariateNormal(self.mean, self.covariance))

    def sample_f(self, h: Tensor, ell: Tensor) -> Tensor:
        """The same f, shape (B, K)."""
        return h.squeeze(-2)
