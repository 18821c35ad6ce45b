"""Models as users write them, each with tiny data: what the engine is tested on.

`CASES` has them by name. A case says which sites have closed forms (all, if nothing else is said) and whether some part
of the expected log joint is a bound, the logarithm of a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from torch import Tensor

__all__ = ["CASES", "Case", "case"]


class Case(NamedTuple):
    """A model and what it is called with.

    Args:
        model: the model.
        args: made anew at each call, from the seed that a test starts with.
        bounded: whether the expected log joint holds the logarithm of a sum.
        refused: latent sites without a closed form.
    """

    model: Callable
    args: Callable[[], tuple]
    bounded: bool = False
    refused: tuple[str, ...] = ()


CASES: dict[str, Case] = {}


def case(
    args: Callable[[], tuple] = tuple, *, bounded: bool = False, refused: tuple[str, ...] = ()
) -> Callable[[Callable], Callable]:
    """Adds a model to the cases."""

    def add(model: Callable) -> Callable:
        CASES[model.__name__] = Case(model, args, bounded, refused)
        return model

    return add


# One conjugate site.


@case(lambda: (torch.randn(7) + 1,))
def normal_normal(x: Tensor, subsample: Tensor | None = None) -> None:
    mu = pyro.sample("mu", dist.Normal(0.5, 3.0))
    with pyro.plate("data", len(x), subsample=subsample) as i:
        pyro.sample("x", dist.Normal(mu, 0.7), obs=x[i])


CASES["normal_normal_subsampled"] = Case(normal_normal, lambda: (torch.randn(7), torch.tensor([5, 0, 2])))


@case(lambda: (torch.poisson(torch.full((6,), 3.0)), torch.rand(6) + 0.5))
def gamma_poisson(x: Tensor, exposure: Tensor) -> None:
    lam = pyro.sample("lam", dist.Gamma(2.0, 0.5))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Poisson(lam * exposure), obs=x)


@case(lambda: (torch.bernoulli(torch.full((8,), 0.3)), torch.tensor(20.0), torch.tensor(7.0)))
def beta_bernoulli(x: Tensor, n: Tensor, k: Tensor) -> None:
    p = pyro.sample("p", dist.Beta(1.5, 2.0))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Bernoulli(p), obs=x)
    pyro.sample("k", dist.Binomial(n, p), obs=k)


@case(lambda: (torch.randint(0, 4, (9,)), torch.tensor([3.0, 1.0, 0.0, 5.0])))
def dirichlet_categorical(x: Tensor, counts: Tensor) -> None:
    p = pyro.sample("p", dist.Dirichlet(torch.full((4,), 0.7)))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Categorical(p), obs=x)
    pyro.sample("counts", dist.Multinomial(int(counts.sum()), p), obs=counts)


PRIOR_ROOT = torch.tensor([[1.5, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.5, 0.8]], dtype=torch.float64)
NOISE_ROOT = torch.tensor([[0.9, 0.0, 0.0], [-0.2, 0.6, 0.0], [0.1, 0.3, 1.1]], dtype=torch.float64)


@case(lambda: (torch.randn(5, 3),))
def mvn_mvn(x: Tensor) -> None:
    mu = pyro.sample("mu", dist.MultivariateNormal(torch.tensor([0.5, -1.0, 0.0]), scale_tril=PRIOR_ROOT))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.MultivariateNormal(mu, scale_tril=NOISE_ROOT), obs=x)


# Two and more sites, mean field.


@case(lambda: (torch.randn(7) * 2 + 1,))
def normal_gamma(x: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = pyro.sample("tau", dist.Gamma(0.1, 0.1))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Normal(mu, tau**-0.5), obs=x)


@case(lambda: (torch.randn(6),))
def inverse_gamma_variance(x: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    variance = pyro.sample("variance", dist.InverseGamma(2.0, 1.5))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Normal(mu, variance.sqrt()), obs=x)


@case(lambda: (torch.randn(8, 3), torch.randn(8)))
def regression(features: Tensor, y: Tensor) -> None:
    with pyro.plate("features", features.shape[1]):
        alpha = pyro.sample("alpha", dist.Gamma(0.1, 0.1))
        w = pyro.sample("w", dist.Normal(0.0, alpha.rsqrt()))
    tau = pyro.sample("tau", dist.Gamma(0.1, 0.1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(features @ w, tau.rsqrt()), obs=y)


@case(lambda: (torch.randn(5) + 4 * torch.randint(0, 2, (5,)), 2))
def mixture(x: Tensor, size: int) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(size)))
    with pyro.plate("components", size):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(mu[z], tau[z].rsqrt()), obs=x)


@case(lambda: (torch.randn(4, 2) + 4 * torch.randint(0, 2, (4, 1)), 3))
def diagonal_mixture(x: Tensor, size: int) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.full((size,), 0.8)))
    with pyro.plate("components", size):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0).expand([x.shape[1]]).to_event(1))
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(mu[z], tau[z].rsqrt()).to_event(1), obs=x)


@case(lambda: (torch.bernoulli(torch.full((5, 3), 0.4)), 2))
def bernoulli_mixture(x: Tensor, size: int) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.full((size,), 2.0)))
    with pyro.plate("components", size):
        p = pyro.sample("p", dist.Beta(0.5, 0.5).expand([x.shape[1]]).to_event(1))
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Bernoulli(p[z]).to_event(1), obs=x)


@case(lambda: (torch.randn(4, 3), 2))
def pca(x: Tensor, size: int) -> None:
    with pyro.plate("factors", size):
        alpha = pyro.sample("alpha", dist.Gamma(0.1, 0.1))
    with pyro.plate("columns", x.shape[1]):
        W = pyro.sample("W", dist.Normal(torch.zeros(size), alpha.rsqrt()).to_event(1))
    tau = pyro.sample("tau", dist.Gamma(0.1, 0.1))
    with pyro.plate("rows", len(x)):
        z = pyro.sample("z", dist.Normal(torch.zeros(size), 1.0).to_event(1))
        pyro.sample("x", dist.Normal(z @ W.T, tau**-0.5).to_event(1), obs=x)


@case(lambda: (torch.randn(4, 3), torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool(), 2))
def factor_analysis(x: Tensor, seen: Tensor, size: int) -> None:
    """Each column has its own noise, and some cells are missing."""
    with pyro.plate("columns", x.shape[1], dim=-1):
        W = pyro.sample("W", dist.Normal(torch.zeros(size), 1.0).to_event(1))
        psi = pyro.sample("psi", dist.Gamma(1.0, 1.0))
    with pyro.plate("rows", len(x), dim=-2):
        z = pyro.sample("z", dist.Normal(torch.zeros(size), 1.0).to_event(1))
        with pyro.plate("cells", x.shape[1], dim=-1), poutine.mask(mask=seen):
            pyro.sample("x", dist.Normal((z * W).sum(-1), psi.rsqrt()), obs=x)


@case(lambda: (torch.randint(0, 4, (6,)), torch.tensor([0, 0, 1, 1, 1, 0]), 2, 2, 4))
def lda(words: Tensor, document: Tensor, num_documents: int, num_topics: int, num_words: int) -> None:
    with pyro.plate("topics", num_topics):
        phi = pyro.sample("phi", dist.Dirichlet(torch.full((num_words,), 0.3)))
    with pyro.plate("documents", num_documents):
        theta = pyro.sample("theta", dist.Dirichlet(torch.full((num_topics,), 0.5)))
    with pyro.plate("tokens", len(words)):
        C = pyro.sample("C", dist.Categorical(theta[document]))
        pyro.sample("X", dist.Categorical(phi[C]), obs=words)


@case(lambda: (torch.poisson(torch.full((3, 4), 3.0)),))
def gamma_gamma_poisson(x: Tensor) -> None:
    b = pyro.sample("b", dist.Gamma(1.0, 1.0))
    with pyro.plate("groups", x.shape[0], dim=-2):
        rate = pyro.sample("rate", dist.Gamma(2.0, b))
        with pyro.plate("data", x.shape[1], dim=-1):
            pyro.sample("x", dist.Poisson(rate), obs=x)


@case(lambda: (torch.randn(4) + 4 * torch.randint(0, 2, (4,)), 3))
def dp_mixture(x: Tensor, truncation: int) -> None:
    alpha = pyro.sample("alpha", dist.Gamma(1.0, 1.0))
    with pyro.plate("sticks", truncation - 1):
        beta = pyro.sample("beta", dist.Beta(1, alpha))
    with pyro.plate("components", truncation):
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    rest = (1 - beta).cumprod(-1)
    weights = torch.nn.functional.pad(beta, (0, 1), value=1) * torch.nn.functional.pad(rest, (1, 0), value=1)
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(mu[z], 0.5), obs=x)


@case(lambda: (torch.randn(6, 2), torch.randn(6), torch.tensor([0, 2, 1, 1, 2, 0]), 3))
def varying_intercepts(features: Tensor, y: Tensor, group: Tensor, num_groups: int) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau_a = pyro.sample("tau_a", dist.Gamma(1.0, 1.0))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([features.shape[1]]).to_event(1))
    with pyro.plate("groups", num_groups):
        a = pyro.sample("a", dist.Normal(mu, tau_a.rsqrt()))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(a[group] + (features * w).sum(-1), tau.rsqrt()), obs=y)


@case(lambda: (torch.randn(7), torch.tensor([0, 1, 2, 0, 1, 2, 0]), torch.tensor([1, 1, 0, 0, 1, 0, 1])))
def crossed_effects(y: Tensor, row: Tensor, column: Tensor) -> None:
    tau_r = pyro.sample("tau_r", dist.Gamma(2.0, 1.0))
    tau_c = pyro.sample("tau_c", dist.Gamma(1.0, 2.0))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("rows", 3):
        r = pyro.sample("r", dist.Normal(0.0, tau_r.rsqrt()))
    with pyro.plate("columns", 2):
        c = pyro.sample("c", dist.Normal(0.0, tau_c.rsqrt()))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(r[row] + c[column], tau.rsqrt()), obs=y)


@case(lambda: (torch.randn(5).cumsum(0),))
def random_walk(y: Tensor) -> None:
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    steps = pyro.sample("steps", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(torch.cumsum(steps, -1), tau.rsqrt()), obs=y)


@case(lambda: (torch.randn(3), 2))
def hidden_markov(x: Tensor, size: int) -> None:
    """States one after the other, with learned rows and means."""
    with pyro.plate("states", size):
        A = pyro.sample("A", dist.Dirichlet(torch.ones(size)))
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    z = None
    for t in pyro.markov(range(len(x))):
        z = pyro.sample(f"z_{t}", dist.Categorical(torch.ones(size) / size if z is None else A[z]))
        pyro.sample(f"x_{t}", dist.Normal(mu[z], 0.5), obs=x[t])


@case(lambda: (torch.randn(6, 2), torch.randint(0, 3, (6,)), torch.tensor([4, 1, 3])))
def subsampled_mixture(x: Tensor, _: Tensor, batch: Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("components", 2):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", len(x), subsample=batch) as i:
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(mu[z], tau.rsqrt()).to_event(1), obs=x[i])


@case(lambda: (torch.randn(5, 3), torch.tensor([2, 4])))
def subsampled_pca(x: Tensor, batch: Tensor) -> None:
    with pyro.plate("columns", x.shape[1]):
        W = pyro.sample("W", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("rows", len(x), subsample=batch) as i:
        z = pyro.sample("z", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        pyro.sample("x", dist.Normal(z @ W.T, tau**-0.5).to_event(1), obs=x[i])


# With logarithms of sums, which are bounded.


@case(lambda: (torch.randint(0, 4, (6,)), torch.tensor([0, 0, 1, 1, 1, 0]), 2, 2, 4), bounded=True)
def lda_without_tokens(words: Tensor, document: Tensor, num_documents: int, num_topics: int, num_words: int) -> None:
    """The assignments of the tokens are summed out."""
    with pyro.plate("topics", num_topics):
        phi = pyro.sample("phi", dist.Dirichlet(torch.full((num_words,), 0.3)))
    with pyro.plate("documents", num_documents):
        theta = pyro.sample("theta", dist.Dirichlet(torch.full((num_topics,), 0.5)))
    with pyro.plate("tokens", len(words)):
        pyro.sample("X", dist.Categorical(theta[document] @ phi), obs=words)


@case(lambda: (torch.randn(4, 2) + 4 * torch.randint(0, 2, (4, 1)), 3), bounded=True)
def mixture_same_family(x: Tensor, size: int) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.full((size,), 0.8)))
    with pyro.plate("components", size):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
        tau = pyro.sample("tau", dist.Gamma(1.0, 1.0).expand([x.shape[1]]).to_event(1))
    with pyro.plate("data", len(x)):
        each = dist.Normal(mu, tau.rsqrt()).to_event(1)
        pyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), each), obs=x)


@case(lambda: (torch.poisson(torch.full((5,), 2.0)), torch.rand(5) + 0.2), bounded=True)
def additive_rates(x: Tensor, exposure: Tensor) -> None:
    background = pyro.sample("background", dist.Gamma(1.0, 1.0))
    signal = pyro.sample("signal", dist.Gamma(2.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Poisson(background + signal * exposure), obs=x)


@case(lambda: (torch.poisson(torch.full((4, 3), 1.5)), 2), bounded=True)
def poisson_factors(x: Tensor, size: int) -> None:
    with pyro.plate("rows", x.shape[0]):
        theta = pyro.sample("theta", dist.Gamma(0.3, 1.0).expand([size]).to_event(1))
    with pyro.plate("columns", x.shape[1]):
        beta = pyro.sample("beta", dist.Gamma(0.3, 1.0).expand([size]).to_event(1))
    pyro.sample("x", dist.Poisson(theta @ beta.T).to_event(2), obs=x)


@case(lambda: (torch.randint(0, 3, (7,)),), bounded=True)
def normalised_gammas(x: Tensor) -> None:
    """A sum in the denominator, whose logarithm is bounded from the other side."""
    with pyro.plate("values", 3):
        g = pyro.sample("g", dist.Gamma(2.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("x", dist.Categorical(g / g.sum()), obs=x)


# Some sites closed, others not.


@case(lambda: (torch.randn(6, 2), torch.randn(6), torch.bernoulli(torch.full((6,), 0.5))), refused=("s", "v"))
def beside_logistic(features: Tensor, y: Tensor, label: Tensor) -> None:
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    s = pyro.sample("s", dist.LogNormal(0.0, 0.5))
    w = pyro.sample("w", dist.Normal(torch.zeros(2), s).to_event(1))
    v = pyro.sample("v", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(features @ w, tau.rsqrt()), obs=y)
        pyro.sample("label", dist.Bernoulli(logits=features @ v), obs=label)
