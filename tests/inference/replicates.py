"""Models with many independent replicates in one plate, for joint tests of samplers: data are drawn if not given."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.ops.indexing import Vindex
from torch import Tensor

__all__ = ["REPLICATED", "Replicated"]

Draws = dict[str, Tensor]


class Replicated(NamedTuple):
    """A model of so many replicates, and what is compared.

    Args:
        model: called with the number of replicates and the data, or None to draw them.
        functions: of all draws, one number for each replicate.
        exact: whether each latent site is drawn from its conditional.
    """

    model: Callable
    functions: dict[str, Callable[[Draws], Tensor]]
    exact: bool = True


REPLICATED: dict[str, Replicated] = {}


def replicated(exact: bool = True, **functions: Callable[[Draws], Tensor]) -> Callable[[Callable], Callable]:
    """Adds a model to the table."""

    def add(model: Callable) -> Callable:
        REPLICATED[model.__name__] = Replicated(model, functions, exact)
        return model

    return add


@replicated(mu=lambda s: s["mu"], tau=lambda s: s["tau"], both=lambda s: (s["mu"] - s["x"].mean(0)) * s["tau"])
def normal_gamma(size: int, x: Tensor | None = None) -> None:
    with pyro.plate("replicates", size, dim=-1):
        mu = pyro.sample("mu", dist.Normal(1.0, 2.0))
        tau = pyro.sample("tau", dist.Gamma(3.0, 2.0))
        with pyro.plate("data", 5, dim=-2):
            pyro.sample("x", dist.Normal(mu, tau.rsqrt()), obs=x)


@replicated(
    b=lambda s: s["b"],
    rate=lambda s: s["rate"][0],
    both=lambda s: s["b"] * s["rate"].sum(0),
    data=lambda s: s["rate"][0] * s["x"][0],
)
def gamma_gamma_poisson(size: int, x: Tensor | None = None) -> None:
    with pyro.plate("replicates", size, dim=-1):
        b = pyro.sample("b", dist.Gamma(3.0, 2.0))
        with pyro.plate("groups", 3, dim=-2):
            rate = pyro.sample("rate", dist.Gamma(2.0, b))
            pyro.sample("x", dist.Poisson(rate), obs=x)


@replicated(
    share=lambda s: s["weights"][:, 0, 0],
    mu=lambda s: s["mu"][:, 0],
    tau=lambda s: s["tau"][:, 1],
    chosen=lambda s: s["z"].double().mean(1),
    both=lambda s: (s["z"].double() * s["x"]).sum(1),
)
def mixture(size: int, x: Tensor | None = None) -> None:
    rows = pyro.plate("replicates", size, dim=-2)
    with rows:
        weights = pyro.sample("weights", dist.Dirichlet(torch.tensor([2.0, 1.0, 0.7]))).squeeze(-2)
        with pyro.plate("components", 3, dim=-1):
            mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
            tau = pyro.sample("tau", dist.Gamma(2.0, 1.0))
        at = torch.arange(size).unsqueeze(-1)
        with pyro.plate("data", 6, dim=-1):
            z = pyro.sample("z", dist.Categorical(weights.unsqueeze(-2)))
            pyro.sample("x", dist.Normal(Vindex(mu)[at, z], Vindex(tau)[at, z].rsqrt()), obs=x)


FEATURES = torch.tensor([[1.0, 0.3], [1.0, -0.8], [1.0, 0.1], [1.0, 2.0]], dtype=torch.float64)


@replicated(
    w=lambda s: s["w"][:, 0, 0],
    product=lambda s: s["w"][:, 0, 0] * s["w"][:, 0, 1],
    alpha=lambda s: s["alpha"][:, 0, 1],
    tau=lambda s: s["tau"][:, 0],
    both=lambda s: (s["w"][:, 0] @ FEATURES.T * s["y"]).mean(1),
)
def regression(size: int, y: Tensor | None = None) -> None:
    """Weights of a replicate are one joint Normal."""
    with pyro.plate("replicates", size, dim=-2):
        alpha = pyro.sample("alpha", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
        w = pyro.sample("w", dist.Normal(0.0, alpha.rsqrt()).to_event(1))
        tau = pyro.sample("tau", dist.Gamma(2.0, 1.0))
        with pyro.plate("data", 4, dim=-1):
            pyro.sample("y", dist.Normal((w * FEATURES).sum(-1), tau.rsqrt()), obs=y)


@replicated(
    theta=lambda s: s["theta"][..., 0].sum(0), beta=lambda s: s["beta"][1], both=lambda s: s["beta"][0] * s["x"][0],
    product=lambda s: s["beta"].prod(0) * s["theta"][0, :, 0],
)  # fmt: skip
def sums_of_rates(size: int, x: Tensor | None = None) -> None:
    """Counts larger than one, shared out between the parts of their rates: a logarithm of a sum that counts up."""
    with pyro.plate("replicates", size, dim=-1):
        with pyro.plate("parts", 2, dim=-2):
            beta = pyro.sample("beta", dist.Gamma(2.0, 1.0))
        with pyro.plate("rows", 2, dim=-2):
            theta = pyro.sample("theta", dist.Gamma(1.5, 0.5).expand([2]).to_event(1))
            pyro.sample("x", dist.Poisson((theta * beta.T).sum(-1)), obs=x)


LOADINGS = torch.tensor([0.4, 1.5, 2.5], dtype=torch.float64)


@replicated(
    g=lambda s: s["g"][:, 0, 0],
    share=lambda s: s["g"][:, 0, 1] / s["g"][:, 0].sum(-1),
    total=lambda s: s["g"][:, 0].sum(-1),
    p=lambda s: s["p"][:, 0, 2, 0],
    chosen=lambda s: s["c"].double().mean(-1),
    both=lambda s: (s["c"] * s["x"]).double().sum(-1),
)
def topic_model(size: int, x: Tensor | None = None) -> None:
    """A document each: loadings divided by their sum, assignments, words; a logarithm of a sum that counts down."""
    with pyro.plate("replicates", size, dim=-2):
        g = pyro.sample("g", dist.Gamma(LOADINGS, 1.3).to_event(1))
        p = pyro.sample("p", dist.Dirichlet(torch.tensor([0.5, 1.0]).expand(3, 2)).to_event(1))
        at = torch.arange(size).unsqueeze(-1)
        with pyro.plate("words", 5, dim=-1):
            c = pyro.sample("c", dist.Categorical(g / g.sum(-1, keepdim=True)))
            pyro.sample("x", dist.Categorical(Vindex(p.squeeze(-3))[at, c]), obs=x)


@replicated(
    rate=lambda s: s["rate"][:, 0, 0, 0],
    chosen=lambda s: s["z"][:, 0].double() + 0.1 * s["rate"][:, 0, 1, 1],
    both=lambda s: s["z"][:, 0] * s["x"][:, 0],
)
def chosen_sum(size: int, x: Tensor | None = None) -> None:
    """A choice decides which sum it is whose logarithm counts."""
    with pyro.plate("replicates", size, dim=-2):
        rate = pyro.sample("rate", dist.Gamma(torch.tensor([[0.5, 1.0], [2.0, 4.0]]), 1.0).to_event(2))
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.3, 0.7])))
        at = torch.arange(size).unsqueeze(-1)
        total = (Vindex(rate.squeeze(-3))[at, z] * torch.tensor([1.0, 0.5])).sum(-1)
        with pyro.plate("data", 3, dim=-1):
            pyro.sample("x", dist.Poisson(total), obs=x)


@replicated(
    alpha=lambda s: s["alpha"],
    stick=lambda s: s["stick"],
    mu=lambda s: s["mu"][:, 1],
    chosen=lambda s: s["z"].double().mean(0),
    both=lambda s: (s["z"].double() * s["x"]).sum(0),
)
def sticks(size: int, x: Tensor | None = None) -> None:
    with pyro.plate("replicates", size, dim=-1):
        alpha = pyro.sample("alpha", dist.Gamma(2.0, 1.0))
        stick = pyro.sample("stick", dist.Beta(1.0, alpha))
        mu = pyro.sample("mu", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        with pyro.plate("data", 4, dim=-2):
            z = pyro.sample("z", dist.Bernoulli(stick))
            pyro.sample("x", dist.Normal(mu[:, 0] + z * (mu[:, 1] - mu[:, 0]), 0.7), obs=x)


@replicated(
    exact=False,
    s=lambda s: s["s"].log(),
    mu=lambda s: s["mu"],
    p=lambda s: s["p"],
    residual=lambda s: ((s["x"] - s["mu"] - s["p"].sin()) / s["s"])[0],
    square=lambda s: ((s["x"] - s["mu"] - s["p"].sin()) / s["s"]).square().sum(0),
)
def with_gradients(size: int, x: Tensor | None = None) -> None:
    """A standard deviation and a logistic weight have no closed form."""
    with pyro.plate("replicates", size, dim=-1):
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
        s = pyro.sample("s", dist.LogNormal(0.0, 0.5))
        p = pyro.sample("p", dist.Uniform(0.0, 2.0))
        with pyro.plate("data", 3, dim=-2):
            pyro.sample("x", dist.Normal(mu + p.sin(), s), obs=x)


SEEN = torch.tensor([[True], [False], [True]])


@replicated(
    mu=lambda s: s["mu"], u=lambda s: s["u"][0], both=lambda s: s["u"][2] * s["x"][2], hidden=lambda s: s["u"][1]
)
def masked(size: int, x: Tensor | None = None) -> None:
    with pyro.plate("replicates", size, dim=-1):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("data", 3, dim=-2), poutine.mask(mask=SEEN):
            u = pyro.sample("u", dist.Normal(mu, 1.0))
            pyro.sample("x", dist.Normal(u, 0.5), obs=x)


@replicated(
    stays=lambda s: s["rows"][:, 0, 0],
    visits=lambda s: (s["z_0"] + s["z_1"] + s["z_2"]).double() + 0.1 * s["x"][:, 1],
    together=lambda s: (s["z_1"] == s["z_2"]).double() + s["rows"][:, 1, 1],
)
def chain_of_states(size: int, x: Tensor | None = None) -> None:
    """Discrete states that are drawn together."""
    with pyro.plate("replicates", size):
        rows = pyro.sample("rows", dist.Dirichlet(torch.ones(2, 2)).to_event(1))
        at, z, path = torch.arange(size), torch.zeros(size, dtype=torch.int64), []
        for t in range(3):
            z = pyro.sample(f"z_{t}", dist.Categorical(rows[at, z]))
            path.append(z)
        pyro.sample("x", dist.Normal(1.5 * torch.stack(path, -1), 1.0).to_event(1), obs=x)


@replicated(
    tau=lambda s: s["tau"],
    step=lambda s: s["s_2"] - s["s_1"],
    gap=lambda s: s["s_0"] * s["s_2"] - s["x"][:, 2],
)
def walk(size: int, x: Tensor | None = None) -> None:
    """Normal states that are drawn together."""
    with pyro.plate("replicates", size):
        tau = pyro.sample("tau", dist.Gamma(3.0, 2.0))
        s, path = torch.zeros(size), []
        for t in range(3):
            s = pyro.sample(f"s_{t}", dist.Normal(0.8 * s, tau.rsqrt()))
            path.append(s)
        pyro.sample("x", dist.Normal(torch.stack(path, -1), 0.7).to_event(1), obs=x)
