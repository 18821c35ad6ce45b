"""Natural steps for conjugate pairs: open it to write a closed form for a pair of your own in one class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from pyro_prme.prototype import Prototype
from pyro_prme.rules import Rule, Run

__all__ = ["ConjugateRule"]


class ConjugateRule(Rule):
    r"""A global site whose posterior has the prior's family, moved by natural steps.

    .. math:: \eta \leftarrow (1 - \rho)\, \eta + \rho\, \Big(\eta_0 + \frac{N}{B} \sum_{n \in \mathrm{batch}} s_n\Big)

    A subclass names the natural parameters eta, gives those of the prior, the statistics of a batch and the
    distribution of given parameters, and says in `refusal` when the pair is conjugate. The parameters are buffers of
    these names.

    Args:
        words, loadings: names of the sites X and Z; the statistics carry the scale of Z.
    """

    #: Names of the natural parameters, in the order of the methods below.
    natural: tuple[str, ...] = ()

    def __init__(self, *, words: str = "X", loadings: str = "Z") -> None:
        super().__init__()
        self.words, self.loadings = words, loadings
        self.needs = (words,)

    def natural_prior(self, prior: Any) -> tuple[Tensor, ...]:
        """eta_0, each broadcastable to its parameter."""
        raise NotImplementedError

    def start(self, prior: Any, value: Tensor) -> tuple[Tensor, ...]:
        """Where eta starts from, given the prior and a draw of it."""
        raise NotImplementedError

    def statistics(self, name: str, run: Run) -> tuple[Tensor, ...]:
        """The sum of s_n over the batch, each broadcastable to its parameter, without scale."""
        raise NotImplementedError

    def build(self, *natural: Tensor) -> Distribution:
        """The distribution with natural parameters eta."""
        raise NotImplementedError

    def setup(self, name: str, prototype: Prototype) -> None:
        prior = prototype.site(name)["fn"]
        self._prior = tuple(eta.detach() for eta in self.natural_prior(prior))
        for key, eta in zip(self.natural, self.start(prior, prototype.value(name)), strict=True):
            self.register_buffer(key, eta.detach().clone())
            self.register_buffer(f"pending_{key}", torch.zeros_like(eta), persistent=False)

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution:
        self._prior = tuple(eta.detach() for eta in self.natural_prior(prior))
        return self.build(*(getattr(self, key) for key in self.natural))

    def placeholder(self, posterior: Any) -> Tensor:
        return posterior.mean

    @torch.no_grad()
    def gather(self, name: str, run: Run, scale: float | None = None) -> None:
        weight = run.scale(self.loadings) if scale is None else scale
        for key, statistic in zip(self.natural, self.statistics(name, run), strict=True):
            getattr(self, f"pending_{key}").add_(weight * statistic)

    @torch.no_grad()
    def natural_step(self, rate: float) -> None:
        for key, prior in zip(self.natural, self._prior, strict=True):
            pending = getattr(self, f"pending_{key}")
            getattr(self, key).lerp_(prior + pending, rate)
            pending.zero_()
