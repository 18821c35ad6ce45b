"""Distributions: of the user's own, transformed, inflated, truncated, and those that are not followed."""

from __future__ import annotations

from typing import ClassVar

import pyro
import torch
from pyro import distributions as dist
from torch.distributions import constraints
from torch.distributions.transforms import AffineTransform, ExpTransform

from tests.conjugacy.idioms.table import NO_FAMILY, counts, features, idiom, labels, numbers


class OwnNormal(dist.TorchDistribution):
    """A Normal of the user's own, by its precision."""

    arg_constraints: ClassVar = {"loc": constraints.real, "precision": constraints.positive}
    support = constraints.real

    def __init__(self, loc, precision, validate_args=None):
        self.loc, self.precision = loc, precision
        super().__init__(loc.shape, validate_args=validate_args)

    def sample(self, sample_shape=()):
        return self.loc + self.precision.rsqrt() * torch.randn(torch.Size(sample_shape) + self.batch_shape)

    def log_prob(self, value):
        return 0.5 * self.precision.log() - 0.5 * self.precision * (value - self.loc) ** 2

    def expand(self, batch_shape, _instance=None):
        return OwnNormal(self.loc.expand(batch_shape), self.precision.expand(batch_shape))


class Shifted(dist.Normal):
    """A Normal by its class that has another density."""

    def log_prob(self, value):
        return super().log_prob(value) - 0.1 * self.loc**4


class Tilted(dist.Normal):
    """A Normal by its class, and its density is followed all the same."""

    def log_prob(self, value):
        return super().log_prob(value) + 0.3 * value * self.loc


class HalfLine(dist.Normal):
    """A Normal by its class that has values above zero only."""

    support = constraints.positive

    def sample(self, sample_shape=()):
        return super().sample(torch.Size(sample_shape)).abs()

    def log_prob(self, value):
        return super().log_prob(value) + torch.where(value >= 0, torch.tensor(2.0).log(), torch.tensor(-torch.inf))


class Plain(dist.Gamma):
    """A subclass that changes nothing."""


@idiom()
def own_distribution():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", OwnNormal(mu, tau), obs=numbers())


@idiom({"mu": NO_FAMILY.format("OwnNormal")})
def own_distribution_of_a_site():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    mu = pyro.sample("mu", OwnNormal(torch.tensor(0.0), tau))
    pyro.sample("x", dist.Normal(mu, 1.0), obs=torch.tensor(0.3))


@idiom({"mu": "x^4 is not a statistic of its Normal family"})
def own_density_of_a_child():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", Shifted(mu, 1.0), obs=numbers())


@idiom()
def own_density_that_is_followed():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", Tilted(mu, 1.0), obs=numbers())


@idiom({"mu": "it goes through ge"})
def own_density_of_a_site():
    mu = pyro.sample("mu", HalfLine(0.0, 1.0))
    pyro.sample("x", dist.Normal(mu, 1.0), obs=torch.tensor(0.3))


@idiom()
def subclass_that_changes_nothing():
    g = pyro.sample("g", Plain(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(g), obs=counts())


@idiom()
def transformed_child():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        base = dist.Normal(mu, tau.rsqrt())
        pyro.sample(
            "y", dist.TransformedDistribution(base, [AffineTransform(1.0, 2.0), ExpTransform()]), obs=numbers().exp()
        )


@idiom()
def transformed_child_of_events():
    mu = pyro.sample("mu", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 4):
        base = dist.Normal(mu, 1.0).to_event(1)
        pyro.sample("y", dist.TransformedDistribution(base, [ExpTransform()]), obs=features(4).exp())


@idiom({"s": "it goes through a transform in TransformedDistribution"})
def transform_with_a_random_parameter():
    s, mu = pyro.sample("s", dist.Gamma(1.0, 1.0)), pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("y", dist.TransformedDistribution(dist.Normal(mu, 1.0), [AffineTransform(0.0, s)]), obs=numbers())


@idiom()
def simplex_by_a_transform():
    mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    base = dist.Normal(mu, 1.0).to_event(1)
    y = torch.tensor([0.2, 0.3, 0.5])
    pyro.sample("y", dist.TransformedDistribution(base, [dist.transforms.StickBreakingTransform()]), obs=y)


@idiom({"gate": "only its logarithm has an expectation", "rate": "it goes through xlogy"})
def zero_inflated_poisson():
    gate, rate = pyro.sample("gate", dist.Beta(1.0, 1.0)), pyro.sample("rate", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.ZeroInflatedPoisson(rate, gate=gate), obs=counts())


@idiom()
def zero_inflated_by_a_mixture():
    gate, rate = pyro.sample("gate", dist.Beta(1.0, 1.0)), pyro.sample("rate", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 5):
        z = pyro.sample("z", dist.Bernoulli(gate))
        pyro.sample("k", dist.Poisson(z * rate + 1e-3 * (1 - z)), obs=counts(5))


@idiom({"mu": "the logarithm of a sum with it"})
def student_t():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.StudentT(4.0, mu, 1.0), obs=numbers())


@idiom()
def half_normal_data():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.HalfNormal(tau.rsqrt()), obs=numbers().abs())


@idiom({"v": "it is written into a tensor in place (masked_fill_)"}, bounded=True)
def half_cauchy_data():
    v = pyro.sample("v", dist.InverseGamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.HalfCauchy(v.sqrt()), obs=numbers().abs())


@idiom({"mu": "it is under an exp"})
def gumbel_data():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Gumbel(mu, 1.0), obs=numbers())


@idiom({"mu": "it is written into a tensor in place (setitem)"})
def normal_that_skips_what_is_no_number():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    x = numbers()
    x[2] = torch.nan
    with pyro.plate("data", 6):
        pyro.sample("x", dist.NanMaskedNormal(mu, 1.0), obs=x)
        pyro.sample("y", dist.NanMaskedNormal(0.0, tau.rsqrt()), obs=numbers())


@idiom()
def laplace_scale():
    b = pyro.sample("b", dist.InverseGamma(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Laplace(0.0, b), obs=numbers())


@idiom()
def negative_binomial():
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.NegativeBinomial(3.0, p), obs=counts())


@idiom()
def geometric():
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Geometric(p), obs=counts())


@idiom(bounded=True)
def gamma_poisson_compound():
    b = pyro.sample("b", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.GammaPoisson(2.0, b), obs=counts())


@idiom({"a": "it goes through lgamma"})
def beta_binomial():
    a = pyro.sample("a", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.BetaBinomial(a, 2.0, total_count=9), obs=counts())


@idiom({"mu": "it is a limit of a Uniform"})
def uniform_limits():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("u", dist.Uniform(mu - 3, mu + 3), obs=numbers().clamp(-0.1, 0.1))


@idiom({"p": NO_FAMILY.format("Uniform")})
def uniform_prior():
    p = pyro.sample("p", dist.Uniform(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Bernoulli(p), obs=(labels() > 0).double())


@idiom({"mu": "it goes through cos"})
def von_mises():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.VonMises(mu, 2.0), obs=numbers().clamp(-3, 3))


@idiom()
def multinomial_with_random_probabilities():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", 2):
        pyro.sample("n", dist.Multinomial(5, p), obs=torch.tensor([[1.0, 1.0, 3.0], [0.0, 5.0, 0.0]]))


@idiom()
def one_hot_data():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.OneHotCategorical(p), obs=torch.eye(3)[labels()])


@idiom()
def unnormalised_probabilities():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(5 * p), obs=labels())


@idiom({"p": "the logarithm of a sum with a negative weight"})
def weighted_probabilities():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(p * torch.tensor([1.0, 2.0, 0.5])), obs=labels())


@idiom(bounded=True)
def mixed_with_a_constant():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(0.9 * p + 0.1 / 3), obs=labels())


@idiom({"mu": "it is written into a tensor in place (setitem)"})
def ordered_logistic():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.OrderedLogistic(mu.expand(6), torch.tensor([-1.0, 1.0])), obs=labels())


@idiom({"a": "it goes through lgamma"})
def dirichlet_multinomial():
    a = pyro.sample("a", dist.Gamma(1.0, 1.0).expand([3]).to_event(1))
    pyro.sample("n", dist.DirichletMultinomial(a, total_count=5), obs=torch.tensor([1.0, 1.0, 3.0]))


@idiom(bounded=True)
def mixture_of_counts():
    w = pyro.sample("w", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("parts", 2):
        rate = pyro.sample("rate", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.MixtureSameFamily(dist.Categorical(w), dist.Poisson(rate)), obs=counts())


@idiom(bounded=True)
def mixture_chosen_by_a_site():
    with pyro.plate("parts", 2):
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    w = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    with pyro.plate("data", 5):
        z = pyro.sample("z", dist.Bernoulli(0.4))
        mix = dist.Categorical(w[z.long()])
        pyro.sample("x", dist.MixtureSameFamily(mix, dist.Normal(mu, 1.0)), obs=numbers(5))


@idiom()
def masked_mixture():
    a, b = pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        two = dist.MaskedMixture(labels() > 0, dist.Normal(a, 1.0).expand([6]), dist.Normal(b, 1.0).expand([6]))
        pyro.sample("x", two, obs=numbers())


@idiom()
def gaussian_hidden_markov():
    m = pyro.sample("m", dist.Normal(torch.zeros(1), 1.0).to_event(1))
    start = dist.Normal(torch.zeros(1), 1.0).to_event(1)
    step = dist.Normal(m, 1.0).to_event(1)
    see = dist.Normal(torch.zeros(1), 1.0).to_event(1)
    chain = dist.GaussianHMM(start, torch.eye(1), step, torch.eye(1), see, duration=4)
    pyro.sample("x", chain, obs=numbers(4).unsqueeze(-1))


@idiom({"mu": "it goes through logaddexp"})
def soft_laplace():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.SoftLaplace(mu, 1.0), obs=torch.tensor(0.3))


@idiom(bounded=True)
def folded():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.FoldedDistribution(dist.Normal(mu, 1.0)), obs=torch.tensor(0.3))
