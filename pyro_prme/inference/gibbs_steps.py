"""Steps within a Gibbs sweep for sites without a complete conditional: NUTS for continuous ones, values one by one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.infer import NUTS
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import biject_to

from pyro_prme.conjugacy import Structure

__all__ = ["GradientStep", "ValueStep", "weight_of_draws"]


def weight_of_draws(site: Any) -> Tensor:
    """Scale times mask of a latent site, which must be one or zero for its draws to mean anything.

    Raises:
        ValueError: a member counts another number of times, or the plate is subsampled.
    """
    for frame in site["cond_indep_stack"]:
        if frame.size != frame.full_size:
            raise ValueError(
                f"Plate {frame.name} has {frame.size} of its {frame.full_size} members: Gibbs needs all of them."
            )
    scale = torch.as_tensor(site["scale"])
    if not bool((scale == 1).all()):
        raise ValueError(
            f"Site {site['name']} is under a scale, so that one draw would stand for several: give each its own "
            "member of the plate (for words of documents, `Batch.from_tokens`)."
        )
    mask = site["mask"]
    return torch.ones(()) if mask is None or mask is True else torch.as_tensor(mask).to(torch.get_default_dtype())


class _At(Messenger):
    """Gives latent sites a value: as it is, or on the unconstrained scale of the support that the site has then."""

    def __init__(self, values: Mapping[str, Tensor], free: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.values, self.free = values, free
        self.moved: dict[str, Tensor] = {}
        self.log_slope: Tensor = torch.zeros(())

    def _pyro_sample(self, msg: Any) -> None:
        name = msg["name"]
        if name in self.free:
            transform, u = biject_to(msg["fn"].support), self.free[name]
            value = transform(u)
            self.log_slope = self.log_slope + transform.log_abs_det_jacobian(u, value).sum()
            self.moved[name] = value
        elif name in self.values:
            value = self.values[name]
        else:
            return
        msg["value"], msg["done"] = value, True


def _log_joint(model: Callable, args: tuple, kwargs: Mapping[str, Any], at: _At) -> Tensor:
    with pyro.validation_enabled(False), poutine.block():
        trace = poutine.trace(_under(model, at)).get_trace(*args, **kwargs)
        return trace.log_prob_sum() + at.log_slope


def _under(model: Callable, handler: Messenger) -> Callable:
    def run(*args: Any, **kwargs: Any) -> Any:
        with handler:
            return model(*args, **kwargs)

    return run


class GradientStep:
    """Moves some continuous sites together by one step of NUTS, with all others held.

    Args:
        model, args, kwargs: the model and what it is called with.
        names: of the sites.
        warmup_steps: during which the step adapts.
        options: of NUTS.
        values: of all latent sites, to begin with.
    """

    def __init__(
        self,
        model: Callable,
        args: tuple,
        kwargs: Mapping[str, Any],
        names: Sequence[str],
        warmup_steps: int,
        options: Mapping[str, Any],
        values: Mapping[str, Tensor],
    ) -> None:
        self._call = model, args, kwargs
        self.names = tuple(names)
        self._held: dict[str, Tensor] = dict(values)
        self._nuts = NUTS(potential_fn=self._potential, **options)
        self._nuts.initial_params = self._free(values)
        self._nuts.setup(warmup_steps)

    def _potential(self, free: Mapping[str, Tensor]) -> Tensor:
        with torch.enable_grad():
            return -_log_joint(*self._call, _At(self._held, free))

    def _free(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sites on the unconstrained scale."""
        model, args, kwargs = self._call
        with pyro.validation_enabled(False), poutine.block(), torch.no_grad():
            trace: Any = poutine.trace(_under(model, _At(values, {}))).get_trace(*args, **kwargs)
        return {name: biject_to(trace.nodes[name]["fn"].support).inv(values[name]) for name in self.names}

    def __call__(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """New values of the sites."""
        self._held = dict(values)
        self._nuts.clear_cache()  # the potential is another one
        with torch.enable_grad():
            free = self._nuts.sample(self._free(values))
        at = _At(values, {name: u.detach() for name, u in free.items()})
        with torch.no_grad():
            _log_joint(*self._call, at)
        return {name: at.moved[name].detach() for name in self.names}

    def end_warmup(self) -> None:
        """Adaptation is over."""
        self._nuts.end_warmup()

    def logging(self) -> OrderedDict[str, str]:
        """Of NUTS."""
        return self._nuts.logging()

    def diagnostics(self) -> dict[str, Any]:
        """Of NUTS."""
        return self._nuts.diagnostics()


class ValueStep:
    """Draws a discrete site from its exact conditional, one member after the other, by running the model at each value.

    Args:
        model, args, kwargs: the model and what it is called with.
        name: of the site.
        structure: of the model.

    Raises:
        ValueError: the site has infinitely many values.
    """

    def __init__(
        self, model: Callable, args: tuple, kwargs: Mapping[str, Any], name: str, structure: Structure
    ) -> None:
        self._call, self.name = (model, args, kwargs), name
        weight_of_draws(structure.trace.nodes[name])
        fn = structure.trace.nodes[name]["fn"]
        try:
            values = fn.enumerate_support(expand=False)
        except NotImplementedError as error:
            raise ValueError(
                f"Site {name} has the prior {structure.priors[name]}, which is discrete with infinitely many values, "
                f"and no closed form ({structure.refusals[name]}): sum it out, or bound it."
            ) from error
        self._values = values.reshape(len(values), *values.shape[values.dim() - fn.event_dim :])
        self._event = fn.event_dim

    def __call__(self, values: Mapping[str, Tensor]) -> Tensor:
        """A new value of the site."""
        now = values[self.name].clone()
        members = now.reshape(-1, *now.shape[now.dim() - self._event :])
        for member in range(len(members)):
            logs = []
            for value in self._values:
                members[member] = value
                logs.append(_log_joint(*self._call, _At({**values, self.name: members.reshape(now.shape)}, {})))
            chosen = torch.distributions.Categorical(logits=torch.stack(logs), validate_args=False).sample()
            members[member] = self._values[chosen]
        return members.reshape(now.shape)
