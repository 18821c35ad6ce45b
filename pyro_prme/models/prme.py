"""The generative model (paper, eq. topic_model_z) as a Pyro program. Open it to read the model or to swap a part of it.

Every draw is one small method around one `pyro.sample`: override it in a subclass to swap a prior or the likelihood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyro
import torch
from pyro import distributions as dist
from torch import Tensor, nn
from torch.distributions import Distribution

from pyro_prme.checks import all_settings
from pyro_prme.corpora.batch import Batch
from pyro_prme.equations.sticks import MIN_CONCENTRATION, log_stick_weights
from pyro_prme.models.networks.layers import Decoder, RandomFunction
from pyro_prme.models.networks.modes import evaluating
from pyro_prme.models.topic_model import Plates, TopicModel

__all__ = ["PRME", "EmbeddedTopics", "ShapePRME"]


class EmbeddedTopics(TopicModel):
    r"""Topics that have a place, :math:`\ell_k \sim N(0, b I)`: what a random function is evaluated at.

    Sites and shapes (batch | event): those of `TopicModel`, and ell (K | ell_dim).

    Args:
        args: by position, see `TopicModel`.
        kwargs: by name, see `TopicModel`.
        ell_dim: length of a place.
        ell_scale: its prior standard deviation (the paper's b is a variance), or a prior of it.
    """

    ell_scale: float | Tensor

    def __init__(self, *args: Any, ell_dim: int = 20, ell_scale: float | Distribution = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        all_settings(ell_dim=ell_dim)
        self.ell_dim = ell_dim
        self.set_number("ell_scale", ell_scale)

    @property
    def roles(self) -> Mapping[str, str]:
        return {**super().roles, "places": "ell"}

    def sample_places(self, plates: Plates) -> Tensor:
        with plates.topics:
            return self.sample_ell()

    def sample_ell(self) -> Tensor:
        """ell_k ~ N(0, b I), shape (K, ell_dim)."""
        return pyro.sample("ell", dist.Normal(0.0, self.ell_scale).expand([self.ell_dim]).to_event(1))


class PRME(EmbeddedTopics):
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
        args: by position, see `TopicModel` and `EmbeddedTopics`.
        kwargs: by name, see `TopicModel` and `EmbeddedTopics`.
        h_dim: length of the documents' embeddings.
        h_scale: their prior standard deviation (the paper's a is a variance), or a prior of it.
        decoder: module that maps (h, ell) to the mean and variance of f, each (B, K).
    """

    h_scale: float | Tensor

    def __init__(
        self,
        *args: Any,
        h_dim: int = 20,
        h_scale: float | Distribution = 1.0,
        decoder: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        all_settings(h_dim=h_dim)
        self.h_dim = h_dim
        self.set_number("h_scale", h_scale)
        self.decoder = self.default_decoder() if decoder is None else decoder

    @property
    def roles(self) -> Mapping[str, str]:
        return {**super().roles, "embedding": "h", "function": "f"}

    def default_decoder(self) -> nn.Module:
        """The decoder used when none is given."""
        return Decoder(self.num_topics, self.h_dim, self.ell_dim)

    def default_encoder(self) -> nn.Module:
        """The inference network g that guides use when none is given."""
        return self.default_network(self.h_dim)

    def random_function(self, places: Tensor, plates: Plates, batch: Batch) -> Tensor:
        """f_n(ell_k) by the decoder, shape (B, K)."""
        with plates.documents:
            h = self.sample_h(batch)
            with plates.topics:
                return self.sample_f(h, places)

    def sample_h(self, batch: Batch) -> Tensor:
        """h_n ~ N(0, a I), shape (B, 1, h_dim)."""
        return pyro.sample("h", dist.Normal(0.0, self.h_scale).expand([self.h_dim]).to_event(1))

    def sample_f(self, h: Tensor, ell: Tensor) -> Tensor:
        """f_nk ~ N(mu_f(h_n, ell_k), sigma2_f(h_n, ell_k)), shape (B, K)."""
        mean, variance = self.decode(h, ell)
        return pyro.sample("f", dist.Normal(mean, variance.sqrt()))

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
            with evaluating(self.decoder):
                means = [(len(h), self.decoder.topic_centred(h, ell)[0].mean(0)) for h in embeddings]
            num = sum(size for size, _ in means)
            self.decoder.running_mean.copy_(torch.stack([size / num * mean for size, mean in means]).sum(0))


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
