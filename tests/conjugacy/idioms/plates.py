"""Plates, batches, masks, scales, event dimensions, observed and deterministic sites, and what a model returns."""

from __future__ import annotations

import pyro
import torch
from pyro import distributions as dist
from pyro import poutine
from pyro.nn import PyroModule, PyroSample

from tests.conjugacy.idioms.table import NO_FAMILY, NO_FUNCTION, counts, features, idiom, labels, numbers


@idiom()
def nested_plates_in_the_other_order():
    with pyro.plate("columns", 3, dim=-1), pyro.plate("rows", 2, dim=-2):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("columns_again", 3, dim=-2), pyro.plate("rows_again", 2, dim=-1):
        pyro.sample("x", dist.Normal(w.T, 1.0), obs=features(3, 2))


@idiom()
def a_plate_in_front():
    tau = pyro.sample("tau", dist.Gamma(2.0, 1.0))
    with pyro.plate("replicates", 2, dim=-3):
        m = pyro.sample("m", dist.Normal(0.0, 1.0))
        with pyro.plate("data", 4, dim=-1):
            pyro.sample("x", dist.Normal(m, tau.rsqrt()), obs=numbers(8).reshape(2, 1, 4))


@idiom()
def plates_of_size_one():
    with pyro.plate("one", 1):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
        z = pyro.sample("z", dist.Categorical(p))
        pyro.sample("x", dist.Normal(a * z, 1.0), obs=torch.tensor([0.3]))


@idiom()
def an_event_of_size_zero():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    u = pyro.sample("u", dist.Normal(mu, 1.0).expand([0]).to_event(1))
    pyro.sample("x", dist.Normal(mu + u, tau.rsqrt()).to_event(1), obs=torch.zeros(0))


@idiom()
def no_observed_site():
    mu = pyro.sample("mu", dist.Normal(0.5, 2.0))
    pyro.sample("x", dist.Normal(mu, 1.0))


@idiom()
def no_latent_site():
    pyro.sample("x", dist.Normal(0.0, 1.0), obs=torch.tensor(1.0))


@idiom()
def no_site_at_all():
    return 3


@idiom()
def loop_over_a_plate():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    for i in pyro.plate("data", 4):
        pyro.sample(f"x{i}", dist.Normal(mu, 1.0), obs=numbers(4)[i])


@idiom()
def loop_over_a_plate_with_latent_sites():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    for i in pyro.plate("data", 3):
        u = pyro.sample(f"u{i}", dist.Normal(mu, 1.0))
        pyro.sample(f"x{i}", dist.Normal(u, 1.0), obs=numbers(3)[i])


@idiom()
def loop_over_a_subsampled_plate():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    for i in pyro.plate("data", 6, subsample=torch.tensor([4, 1])):
        u = pyro.sample(f"u{i}", dist.Normal(mu, 1.0))
        pyro.sample(f"x{i}", dist.Normal(u, 1.0), obs=numbers()[i])


@idiom()
def a_batch_drawn_by_the_plate():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6, subsample_size=3) as i:
        u = pyro.sample("u", dist.Normal(mu, 1.0))
        pyro.sample("x", dist.Normal(u, tau.rsqrt()), obs=numbers()[i])


@idiom()
def a_batch_by_pyro_subsample():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6, subsample_size=3):
        x = pyro.subsample(numbers(), event_dim=0)
        pyro.sample("x", dist.Normal(mu, 1.0), obs=x)


@idiom({"u": "a term couples members of its subsampled plate"})
def members_of_a_batch_coupled():
    with pyro.plate("data", 6, subsample_size=3):
        u = pyro.sample("u", dist.Normal(0.0, 1.0))
    pyro.sample("s", dist.Normal(u.sum(), 1.0), obs=torch.tensor(1.0))


@idiom()
def a_mask_on_the_data():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6), poutine.mask(mask=labels() > 0):
        pyro.sample("x", dist.Normal(mu, 1.0), obs=numbers())


@idiom()
def masked_distribution():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, 1.0).mask(labels() > 0), obs=numbers())


@idiom()
def masked_distribution_of_events():
    mu = pyro.sample("mu", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, 1.0).to_event(1).mask(labels() > 0), obs=features())


@idiom()
def a_mask_that_hides_all():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6), poutine.mask(mask=torch.zeros(6).bool()):
        u = pyro.sample("u", dist.Normal(mu, 1.0))
        pyro.sample("x", dist.Normal(u, tau.rsqrt()), obs=numbers())


@idiom()
def a_mask_that_is_false():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6), poutine.mask(mask=False):
        pyro.sample("x", dist.Normal(mu, 1.0), obs=numbers())


@idiom()
def not_a_number_under_a_mask():
    x = numbers()
    x[2] = torch.nan
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6), poutine.mask(mask=~x.isnan()):
        pyro.sample("x", dist.Normal(mu, 1.0, validate_args=False), obs=x)


@idiom()
def impossible_counts_under_a_mask():
    k = torch.cat([counts(4), torch.tensor([-1.0, -1.0])])
    rate = pyro.sample("rate", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6), poutine.mask(mask=k >= 0):
        pyro.sample("k", dist.Poisson(rate, validate_args=False), obs=k)


@idiom()
def mask_and_scale():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6), poutine.mask(mask=labels() > 0), poutine.scale(scale=2.5):
        u = pyro.sample("u", dist.Normal(mu, 1.0))
        pyro.sample("x", dist.Normal(u, tau.rsqrt()), obs=numbers())


@idiom()
def scaled_latent_site():
    with poutine.scale(scale=3.0):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(mu, 1.0), obs=torch.tensor(2.0))


@idiom()
def a_scale_for_each_datum():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6), poutine.scale(scale=counts()):
        z = pyro.sample("z", dist.Bernoulli(0.3))
        pyro.sample("x", dist.Normal(mu * z, 1.0), obs=numbers())


@idiom({"w": "its members are coupled and have different scales or masks"})
def a_masked_site_that_is_coupled():
    with pyro.plate("members", 3), poutine.mask(mask=torch.tensor([True, False, True])):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    pyro.sample("s", dist.Normal(w.sum(), 1.0), obs=torch.tensor(1.0))


@idiom()
def two_event_dimensions():
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    pyro.sample("x", dist.Normal(w @ features(3, 2), 1.0).to_event(2), obs=features(2, 2))


@idiom()
def dirichlets_as_an_event():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(2, 3)).to_event(1))
    pyro.sample("c", dist.Categorical(p).to_event(1), obs=torch.tensor([2, 0]))


@idiom()
def classes_as_an_event():
    z = pyro.sample("z", dist.Categorical(torch.ones(4, 2) / 2).to_event(1))
    pyro.sample("x", dist.Normal(z.double(), 1.0).to_event(1), obs=numbers(4))


@idiom()
def one_hot_vectors_as_an_event():
    z = pyro.sample("z", dist.OneHotCategorical(torch.ones(4, 3) / 3).to_event(1))
    pyro.sample("x", dist.Normal(z @ torch.tensor([1.0, 0.0, -2.0]), 1.0).to_event(1), obs=numbers(4))


@idiom()
def expanded_and_independent():
    with pyro.plate("rows", 2):
        w = pyro.sample("w", dist.Gamma(1.0, 1.0).expand([2, 3]).to_event(1))
        pyro.sample("k", dist.Poisson(w).to_event(1), obs=counts().reshape(2, 3))


@idiom()
def deterministic_and_factor():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    twice = pyro.deterministic("twice", 2 * mu)
    pyro.factor("f", -0.5 * (twice - 1) ** 2)
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(twice, 1.0), obs=numbers())


@idiom()
def a_factor_in_a_plate():
    g = pyro.sample("g", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6, subsample=torch.tensor([0, 3])):
        pyro.factor("f", -g * torch.ones(2))


@idiom()
def missing_data_as_a_site():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 4):
        full = pyro.sample("full", dist.Normal(mu, tau.rsqrt()))
        pyro.sample("x", dist.Normal(full, 0.1), obs=numbers(4))


@idiom()
def partly_observed():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 4):
        x = pyro.sample("x", dist.Normal(mu, 1.0), obs=numbers(4), obs_mask=torch.tensor([True, False, True, False]))
        pyro.sample("y", dist.Normal(x, tau.rsqrt()), obs=numbers(4, seed=8))


@idiom()
def a_function_of_a_site_observed():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    pyro.sample("close", dist.Normal(1.0, tau.rsqrt()), obs=2 * mu)


@idiom()
def a_point():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    v = pyro.sample("v", dist.Delta(torch.tensor(0.7)))
    pyro.sample("x", dist.Normal(mu * v, 1.0), obs=torch.tensor(0.3))


@idiom()
def a_point_at_a_random_place():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    v = pyro.sample("v", dist.Delta(mu))
    pyro.sample("x", dist.Normal(v, 1.0), obs=torch.tensor(0.3))


@idiom({"v": NO_FAMILY.format("Delta")})
def a_point_with_a_density():
    g, mu = pyro.sample("g", dist.Gamma(1.0, 1.0)), pyro.sample("mu", dist.Normal(0.0, 1.0))
    v = pyro.sample("v", dist.Delta(torch.tensor(0.7), log_density=-g))
    pyro.sample("x", dist.Normal(mu * v, 1.0), obs=torch.tensor(0.3))


@idiom({"mu": "it is the place of a Delta distribution", "v": NO_FAMILY.format("Delta")})
def a_point_at_a_random_place_with_a_density():
    g, mu = pyro.sample("g", dist.Gamma(1.0, 1.0)), pyro.sample("mu", dist.Normal(0.0, 1.0))
    v = pyro.sample("v", dist.Delta(mu, log_density=-g))
    pyro.sample("x", dist.Normal(v, 1.0), obs=torch.tensor(0.3))


@idiom()
def random_precision_of_a_vector():
    w = pyro.sample("w", dist.MultivariateNormal(torch.zeros(3), torch.eye(3) + 0.5))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(features() @ w, tau.rsqrt()), obs=numbers())


@idiom()
def vectors_in_a_plate():
    with pyro.plate("groups", 2):
        w = pyro.sample("w", dist.MultivariateNormal(torch.zeros(3), torch.eye(3) + 0.5))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal((w[labels(6, 2)] * features()).sum(-1), 1.0), obs=numbers())


@idiom()
def vector_child_with_known_covariance():
    m = pyro.sample("m", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 4):
        pyro.sample("x", dist.MultivariateNormal(m, precision_matrix=torch.eye(3) + 0.5), obs=features(4))


@idiom({"L": NO_FAMILY.format("LKJCholesky")})
def lkj_covariance():
    L = pyro.sample("L", dist.LKJCholesky(3, 1.0))
    m = pyro.sample("m", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 4):
        pyro.sample("x", dist.MultivariateNormal(m, scale_tril=L), obs=features(4))


@idiom({"s": "it is in a covariance matrix"})
def random_covariance():
    s = pyro.sample("s", dist.Gamma(torch.ones(3), 1.0).to_event(1))
    m = pyro.sample("m", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.sample("x", dist.MultivariateNormal(m, scale_tril=torch.diag_embed(s)), obs=numbers(3))


@idiom({"s": "it is in a covariance matrix"})
def random_precision_matrix():
    s = pyro.sample("s", dist.Gamma(torch.ones(3), 1.0).to_event(1))
    m = pyro.sample("m", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.sample("x", dist.MultivariateNormal(m, precision_matrix=torch.diag_embed(s)), obs=numbers(3))


@idiom({"m": "it goes through linalg_solve_triangular"})
def low_rank_covariance():
    m = pyro.sample("m", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 4):
        pyro.sample("x", dist.LowRankMultivariateNormal(m, torch.ones(3, 1), torch.ones(3)), obs=features(4))


@idiom()
def markov_linear_gaussian():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    z = torch.zeros(())
    for t in pyro.markov(range(3)):
        z = pyro.sample(f"z{t}", dist.Normal(0.9 * z, tau.rsqrt()))
        pyro.sample(f"x{t}", dist.Normal(z, 1.0), obs=numbers()[t])


@idiom()
def random_dynamics():
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    z = pyro.sample("z", dist.Normal(torch.zeros(5), 1.0).to_event(1))
    pyro.sample("step", dist.Normal(z[1:] - a * z[:-1], 1.0).to_event(1), obs=torch.zeros(4))
    pyro.sample("x", dist.Normal(z, 1.0).to_event(1), obs=numbers(5))


@idiom()
def whole_numbers_observed():
    rate = pyro.sample("rate", dist.Gamma(1.0, 1.0))
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(rate), obs=counts().long())
        pyro.sample("c", dist.Categorical(torch.stack([p, 1 - p])), obs=labels(6, 2))
        pyro.sample("n", dist.Binomial(7, p), obs=labels())


@idiom(single=True)
def single_precision_data():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, tau.rsqrt()), obs=numbers().float())


@idiom(single=True)
def single_precision_site():
    w = pyro.sample("w", dist.Normal(torch.zeros(3, dtype=torch.float32), 1.0).to_event(1))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(features() @ w.double(), tau.rsqrt()), obs=numbers())


@idiom(single=True)
def single_precision_classes():
    mu = pyro.sample("mu", dist.Normal(torch.zeros(3, dtype=torch.float32), 1.0).to_event(1))
    with pyro.plate("data", 4):
        z = pyro.sample("z", dist.Categorical(torch.ones(3, dtype=torch.float32) / 3))
        b = pyro.sample("b", dist.Bernoulli(torch.tensor(0.5, dtype=torch.float32)))
        pyro.sample("x", dist.Normal(mu[z] * b, 1.0), obs=numbers(4))


@idiom()
def a_bayesian_layer():
    class Layer(PyroModule):
        def __init__(self):
            super().__init__()
            self.layer = PyroModule[torch.nn.Linear](3, 1)
            self.layer.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
            self.layer.bias = PyroSample(dist.Normal(0.0, 10.0).expand([1]).to_event(1))

        def forward(self, x):
            return self.layer(x).squeeze(-1)

    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    mean = Layer()(features())
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mean, tau.rsqrt()), obs=numbers())


@idiom(error=NO_FUNCTION.format("x"))
def hidden_from_the_trace():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with poutine.block():
        noise = pyro.sample("noise", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(mu + noise, 1.0), obs=torch.tensor(0.3))


@idiom(error="The model does not have the same sites at each run: extra.")
def other_sites_on_each_run():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    s = pyro.sample("s", dist.LogNormal(0.0, 2.0))
    if s < 1:
        pyro.sample("extra", dist.Normal(mu, 1.0))
    pyro.sample("x", dist.Normal(mu, 1.0), obs=torch.tensor(0.3))


@idiom(error="Site g has another prior than before: a model must have the same form each time.")
def another_prior_on_each_run():
    s = pyro.sample("s", dist.LogNormal(0.0, 2.0))
    g = pyro.sample("g", dist.Gamma(1.0, 1.0) if s > 1 else dist.LogNormal(0.0, 1.0))
    pyro.sample("k", dist.Poisson(g), obs=torch.tensor(3.0))


@idiom(error="Site w does not have the same prior and shape at each run of the model.")
def another_shape_on_each_run():
    n = pyro.sample("n", dist.Poisson(3.0))
    with pyro.plate("members", int(n) + 1):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(w.sum(), 1.0), obs=torch.tensor(0.3))


@idiom({"u": NO_FAMILY.format("Poisson")})
def coupled_on_some_runs_only():
    u = pyro.sample("u", dist.Poisson(0.5))
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.sample("x", dist.Normal(u * w.sum(), 1.0), obs=torch.tensor(0.3))
    pyro.sample("y", dist.Normal(w, 1.0).to_event(1), obs=numbers(3))
