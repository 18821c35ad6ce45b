"""The protocol that every rule follows, and the registry of rules by site name. Open it to write a rule of your own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from pyro import distributions as dist
from pyro.distributions.util import scale_and_mask
from pyro.poutine.trace_struct import Trace
from torch import Tensor, nn
from torch.distributions import Distribution

from pyro_prme.corpora.batch import Batch
from pyro_prme.prototype import Prototype

__all__ = ["REGISTRY", "Rule", "Run", "register"]


class Run:
    """One run of a model under a guide, as the rules see it.

    Args:
        args: what the model was called with.
        rules: the rule of each site.
        held: local results of an earlier E-step on the same batch that this run must not compute again.
        started: local results that an E-step of this run starts from.
    """

    def __init__(
        self, args: tuple[Any, ...], rules: Mapping[str, Rule], held: Mapping[str, Any], started: Mapping[str, Any]
    ) -> None:
        self.args, self.rules, self.held, self.started = args, rules, held, started
        self.local: dict[str, Any] = {}
        self.constants = True  # whether the bound's value is wanted, and not only its gradient
        self.trace: Any = Trace()

    @property
    def batch(self) -> Batch:
        """The batch among the model's arguments."""
        for arg in self.args:
            if isinstance(arg, Batch):
                return arg
        raise ValueError("The model was called without a Batch: a rule of this model needs the batch's entries.")

    def has(self, name: str) -> bool:
        """Whether the site has been visited."""
        return name in self.trace.nodes

    def prior(self, name: str) -> Any:
        """The site's distribution in the model."""
        site = self.trace.nodes[name]
        return site["infer"].get("prior", site["fn"])

    def posterior(self, name: str) -> Any:
        """The site's distribution in the guide; a point mass for an observed site."""
        site = self.trace.nodes[name]
        return dist.Delta(site["value"], event_dim=site["fn"].event_dim) if site["is_observed"] else site["fn"]

    def value(self, name: str) -> Tensor:
        """The site's value: drawn, a point, observed, or a placeholder that nobody reads."""
        return self.trace.nodes[name]["value"]

    def scale(self, name: str) -> float | Tensor:
        """The site's scale, N / B and the like."""
        return self.trace.nodes[name]["scale"]

    def scaled_sum(self, name: str, value: Tensor) -> Tensor:
        """Sum of a per-factor value under the site's scale and mask."""
        site = self.trace.nodes[name]
        return scale_and_mask(value, scale=site["scale"], mask=site["mask"]).sum()


class Rule(nn.Module):
    """How one site's posterior factor is obtained, and its part of the bound.

    Subclass it, give `summary`, `refusal` and `posterior`, and override the rest where the defaults do not fit.
    Parameters and buffers of a rule are saved with the guide.
    """

    #: What the plan prints.
    summary: str = ""
    #: Sites of which it uses moments of the posterior, so that no value of theirs has to be drawn for it.
    moments: tuple[str, ...] = ()
    #: Sites that must have a closed form for this one to hold.
    needs: tuple[str, ...] = ()
    #: Whether its term is so slow that it is computed when the bound is reported, and not at every step.
    slow: bool = False
    #: Whether it is for observed sites, whose expected log likelihood it gives, and not for latent ones.
    observed: bool = False
    #: Whether it is the generic fallback.
    generic: bool = False

    def refusal(self, name: str, prototype: Prototype) -> str | None:
        """Why the model does not have the form that this rule assumes, in words, or None when it has."""
        raise NotImplementedError

    def setup(self, name: str, prototype: Prototype) -> None:
        """Creates parameters and buffers, once the rule has been accepted."""

    def posterior(self, name: str, prior: Any, run: Run) -> Distribution | Tensor:
        """The posterior factor, or a tensor for a point mass."""
        raise NotImplementedError

    def placeholder(self, posterior: Any) -> Tensor | None:
        """A cheap stand-in for a draw when nobody reads the value; None to draw all the same."""
        return None

    def term(self, name: str, run: Run, bound: str) -> Tensor | None:
        """E_q ln p(site) + H[q(site)], summed under the site's scale; None leaves it to the KL registry or the draw.

        Args:
            name: of the site.
            run: the finished run.
            bound: what stands for E ln sum Z, a key of `bounds.NORMALIZERS`.
        """
        return None

    def is_constant(self, name: str, run: Run) -> bool:
        """Whether its term depends on no parameter that a gradient moves, so that a training step may leave it out."""
        return False

    def gather(self, name: str, run: Run, scale: float | None = None) -> None:
        """Adds this run's sufficient statistics to the pending ones (scale: default that of the site's plate)."""

    def natural_step(self, rate: float) -> None:
        """Moves natural parameters towards the target of the pending statistics, and forgets these."""


#: By the name of a site, what makes the rules offered for it, in the order in which they are tried.
#:
#: :meta hide-value:
REGISTRY: dict[str, list[Callable[[], Rule]]] = defaultdict(list)


def register(name: str) -> Callable[[type[Rule]], type[Rule]]:
    """Class decorator: offers a rule for the sites of this name, before those registered earlier."""

    def decorator(rule: type[Rule]) -> type[Rule]:
        REGISTRY[name].insert(0, rule)
        return rule

    return decorator
