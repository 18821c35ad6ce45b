"""Where a site stands: in a location, a scale, a rate, a shape, and through which function."""

from __future__ import annotations

import pyro
import torch
import torch.nn.functional as F
from pyro import distributions as dist

from tests.conjugacy.idioms.table import NO_FAMILY, NO_FUNCTION, TWO_MEMBERS, counts, features, idiom, labels, numbers


@idiom()
def name_does_not_matter():
    f = pyro.sample("f", dist.Normal(0.0, 1.0))
    Z = pyro.sample("Z", dist.Gamma(1.0, 1.0))
    pyro.sample("theta", dist.Normal(f, Z.rsqrt()).expand([6]).to_event(1), obs=numbers())


@idiom()
def one_over_sqrt():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, 1 / torch.sqrt(tau)), obs=numbers())


@idiom()
def sqrt_of_the_reciprocal():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(1.0, tau.reciprocal().sqrt() * 2), obs=numbers())


@idiom()
def power_of_minus_a_half():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(1.0, torch.pow(tau, -0.5)), obs=numbers())


@idiom()
def exp_of_half_the_logarithm():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(1.0, torch.exp(-0.5 * tau.log())), obs=numbers())


@idiom()
def two_precisions_multiplied():
    a, b = pyro.sample("a", dist.Gamma(2.0, 1.0)), pyro.sample("b", dist.Gamma(3.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(1.0, 1 / (a * b).sqrt()), obs=numbers())


@idiom({"a": "a sum with it is raised to the power 0.5", "b": "a sum with it is raised to the power 0.5"})
def two_variances_added():
    a, b = pyro.sample("a", dist.InverseGamma(2.0, 1.0)), pyro.sample("b", dist.InverseGamma(3.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(1.0, (a + b).sqrt()), obs=numbers())


@idiom()
def variance_as_inverse_gamma():
    v = pyro.sample("v", dist.InverseGamma(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(0.0, v.sqrt()), obs=numbers())


@idiom({"v": "x is not a statistic of its InverseGamma family"})
def precision_as_inverse_gamma():
    v = pyro.sample("v", dist.InverseGamma(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(0.0, v.rsqrt()), obs=numbers())


@idiom({"s": NO_FAMILY.format("HalfCauchy")})
def half_cauchy_scale():
    s = pyro.sample("s", dist.HalfCauchy(1.0))
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, s), obs=numbers())


@idiom({"s": "x^-2 is not a statistic of its Gamma family"})
def scale_is_gamma():
    s, mu = pyro.sample("s", dist.Gamma(1.0, 1.0)), pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, s), obs=numbers())


@idiom({"t": "x^2 is not a statistic of its Gamma family"})
def same_site_in_loc_and_scale():
    t = pyro.sample("t", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(t, t.rsqrt()), obs=numbers())


@idiom()
def precision_scales_the_prior_of_the_mean():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    mu = pyro.sample("mu", dist.Normal(0.0, (0.5 * tau).rsqrt()))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, tau.rsqrt()), obs=numbers())


@idiom({"v": "it is under an exp"})
def log_variance():
    v, mu = pyro.sample("v", dist.Normal(0.0, 1.0)), pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu, (0.5 * v).exp()), obs=numbers())


@idiom()
def log_normal_child():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("y", dist.LogNormal(mu, tau.rsqrt()), obs=numbers().exp())


@idiom({"s": NO_FAMILY.format("LogNormal")})
def latent_log_normal():
    s = pyro.sample("s", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(s), obs=counts())


@idiom({"u": "it is under an exp"})
def exp_link():
    u = pyro.sample("u", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(u.exp()), obs=counts())


@idiom({"u": "it goes through softplus"})
def softplus_link():
    u = pyro.sample("u", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(F.softplus(u)), obs=counts())


@idiom({"u": "the logarithm of a sum with a negative weight"})
def softmax_logits():
    u = pyro.sample("u", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(logits=u), obs=labels())


@idiom({"u": "it is under an exp"})
def softmax_by_hand():
    u = pyro.sample("u", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(torch.softmax(u, -1)), obs=labels())


@idiom()
def logits_of_a_dirichlet():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(logits=p.log()), obs=labels())


@idiom({"p": "it enters the logits of a Bernoulli"})
def odds_of_a_beta():
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Bernoulli(logits=torch.logit(p)), obs=(labels() > 0).double())


@idiom()
def probability_of_the_other():
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Bernoulli(1 - p), obs=(labels() > 0).double())


@idiom({"p": "the logarithm of a sum with it", "r": "the logarithm of a sum with it"})
def product_of_probabilities():
    p, r = pyro.sample("p", dist.Beta(1.0, 1.0)), pyro.sample("r", dist.Beta(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Bernoulli(p * r), obs=(labels() > 0).double())


@idiom({"p": "the logarithm of a sum with it", "r": "the logarithm of a sum with it"})
def product_of_probabilities_seen():
    p, r = pyro.sample("p", dist.Beta(1.0, 1.0)), pyro.sample("r", dist.Beta(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Geometric(1 - p * r), obs=counts())


@idiom(bounded=True)
def poisson_of_a_sum():
    a, b = pyro.sample("a", dist.Gamma(1.0, 1.0)), pyro.sample("b", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(a + b * features()[:, 0].exp()), obs=counts())


@idiom({"a": "the logarithm of a sum with it", "b": "the logarithm of a sum with it"})
def poisson_of_a_difference():
    a, b = pyro.sample("a", dist.Gamma(9.0, 1.0)), pyro.sample("b", dist.Gamma(1.0, 9.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(a - b), obs=counts())


@idiom(bounded=True)
def normalised_gammas():
    with pyro.plate("values", 3):
        g = pyro.sample("g", dist.Gamma(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(g), obs=labels())


@idiom({"a": "it goes through clamp"})
def clamped_rate():
    a = pyro.sample("a", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("k", dist.Poisson(a.clamp(min=1e-6)), obs=counts())


@idiom({"mu": "it goes through relu"})
def relu_of_a_mean():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu.relu(), tau.rsqrt()), obs=numbers())


@idiom({"mu": "it goes through abs"})
def absolute_value():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 1.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(abs(mu), tau.rsqrt()), obs=numbers())


@idiom({"w": "it goes through norm"})
def norm_of_a_vector():
    w, tau = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(w.norm(), tau.rsqrt()), obs=numbers())


@idiom({"w": "it goes through cdist"})
def squared_distance_as_a_factor():
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.factor("near", -0.5 * torch.cdist(w.unsqueeze(0), features()).square().sum())


@idiom()
def square_of_a_sum():
    with pyro.plate("members", 4):
        w = pyro.sample("w", dist.Normal(1.0, 1.0))
    pyro.factor("pull", -0.5 * (w.sum() - 1.0) ** 2)


@idiom({"mu": "x^3 is not a statistic of its Normal family"})
def cube_of_a_mean():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(mu**3, 1.0), obs=torch.tensor(0.3))


@idiom({"mu": "x^4 is not a statistic of its Normal family"})
def quadratic_in_a_mean():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(mu**2 - mu, 1.0), obs=torch.tensor(0.3))


@idiom()
def product_of_two_means():
    a, b = pyro.sample("a", dist.Normal(1.0, 1.0)), pyro.sample("b", dist.Normal(0.0, 2.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(a * b, 0.5), obs=numbers())


@idiom({"w": "x^2 times x^2 is not a statistic of its Normal family"})
def product_with_itself():
    with pyro.plate("members", 3):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(w @ w, 1.0), obs=torch.tensor(0.3))


@idiom()
def inner_product_as_a_factor():
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.factor("shrink", -0.5 * (w @ w) - 0.3 * w[0] * w[2])


@idiom({"mu": "it goes through cos"})
def cosine_of_a_mean():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(torch.cos(mu), 1.0), obs=torch.tensor(0.3))


@idiom(bounded=True)
def log1p_of_a_gamma():
    g = pyro.sample("g", dist.Gamma(1.0, 1.0))
    pyro.factor("f", torch.log1p(g))


@idiom()
def log1p_of_minus_a_beta():
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    pyro.factor("f", 3.0 * torch.log1p(-p) + torch.log(p))


@idiom({"a": "it goes through logaddexp", "b": "it goes through logaddexp"})
def logaddexp_of_two():
    a, b = pyro.sample("a", dist.Gamma(1.0, 1.0)), pyro.sample("b", dist.Gamma(1.0, 1.0))
    pyro.factor("f", torch.logaddexp(a.log(), b.log()))


@idiom(bounded=True)
def logsumexp_of_normals():
    u = pyro.sample("u", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.factor("f", torch.logsumexp(u, -1))


@idiom({"u": "the logarithm of a sum with a negative weight"})
def logsumexp_of_normals_below():
    u = pyro.sample("u", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.factor("f", -torch.logsumexp(u, -1))


@idiom({"g": "it multiplies the logarithm of a sum that it is in"}, bounded=True)
def gamma_times_logarithm_of_a_sum_with_it():
    g, h = pyro.sample("g", dist.Gamma(2.0, 1.0)), pyro.sample("h", dist.Gamma(2.0, 1.0))
    pyro.factor("f", -g * torch.log(g + h))


@idiom({"p": TWO_MEMBERS})
def entropy_of_a_dirichlet():
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    pyro.factor("f", -(p * p.log()).sum())


@idiom({"a": "it is in the shape of a Gamma"})
def gamma_shape_unknown():
    a, b = pyro.sample("a", dist.Gamma(1.0, 1.0)), pyro.sample("b", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("y", dist.Gamma(a, b), obs=numbers().exp())


@idiom({"a": "it is in the concentration of a Dirichlet"})
def concentration_unknown():
    a = pyro.sample("a", dist.Gamma(1.0, 1.0))
    p = pyro.sample("p", dist.Dirichlet(a * torch.ones(3)))
    with pyro.plate("data", 6):
        pyro.sample("c", dist.Categorical(p), obs=labels())


@idiom({"nu": "it is in the shape of a Chi2"})
def degrees_of_freedom_unknown():
    nu = pyro.sample("nu", dist.Gamma(2.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("y", dist.Chi2(nu), obs=numbers().exp())


@idiom()
def rate_of_an_exponential():
    r = pyro.sample("r", dist.Exponential(2.0))
    with pyro.plate("data", 6):
        pyro.sample("y", dist.Exponential(r), obs=numbers().exp())


@idiom()
def scale_of_an_inverse_gamma():
    b = pyro.sample("b", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        v = pyro.sample("v", dist.InverseGamma(2.0, b))
        pyro.sample("x", dist.Normal(0.0, v.sqrt()), obs=numbers())


@idiom()
def half_cauchy_as_two_inverse_gammas():
    a = pyro.sample("a", dist.InverseGamma(0.5, 1.0))
    v = pyro.sample("v", dist.InverseGamma(0.5, 1 / a))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(0.0, v.sqrt()), obs=numbers())


@idiom()
def student_as_normal_and_gamma():
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 5):
        u = pyro.sample("u", dist.Gamma(2.0, 2.0))
        pyro.sample("x", dist.Normal(mu, (u * tau).rsqrt()), obs=numbers(5))


@idiom()
def nothing_times_a_site():
    tau, mu = pyro.sample("tau", dist.Gamma(1.0, 1.0)), pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(0 * mu, (1 + 0 * tau).sqrt()), obs=torch.tensor(0.3))


@idiom()
def root_of_nothing_times_a_site():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    pyro.sample("x", dist.Normal((0.0 * tau).sqrt(), 1.0), obs=torch.tensor(0.3))


@idiom({"mu": "it goes through div in a form that is not followed (float division by zero)"})
def divided_by_zero():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(0.0, 1.0), obs=torch.tensor(0.3))
    pyro.factor("f", (mu / 0).isnan().double())


@idiom({"tau": "it goes through exp in a form that is not followed (math range error)"})
def too_large_a_number():
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    pyro.factor("f", -torch.exp(tau.log() + 1000.0))


@idiom()
def linear_layer():
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(features(2)), layer.bias.copy_(numbers(2))
    h = pyro.sample("h", dist.Normal(torch.zeros(4, 3), 1.0).to_event(2))
    pyro.sample("y", dist.Normal(layer(h), 1.0).to_event(2), obs=features(4)[:, :2])


@idiom({"h": "it goes through relu"})
def layer_and_relu():
    layer = torch.nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.copy_(features(1)), layer.bias.copy_(numbers(1))
    h = pyro.sample("h", dist.Normal(torch.zeros(6, 3), 1.0).to_event(2))
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    pyro.sample("y", dist.Normal(layer(h).relu().squeeze(-1), tau.rsqrt()).to_event(1), obs=numbers())


@idiom(error=NO_FUNCTION.format("y"))
def new_weights_at_every_run():
    h = pyro.sample("h", dist.Normal(torch.zeros(6, 3), 1.0).to_event(2))
    pyro.sample("y", dist.Normal(torch.nn.Linear(3, 2)(h), 1.0).to_event(2), obs=features()[:, :2])


@idiom()
def a_parameter_of_pyro():
    scale = pyro.param("scale", torch.tensor(0.7), constraint=dist.constraints.positive)
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(mu * scale, scale), obs=numbers())


@idiom()
def a_constant_with_a_gradient():
    slope = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(features() @ (w * slope), 1.0), obs=numbers())


@idiom({"mu": "it reaches aten.view_as_real.default below the level where it is followed"})
def complex_arithmetic():
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal((mu * torch.exp(torch.tensor(0.5j))).real, 1.0), obs=torch.tensor(0.3))


@idiom({"w": "it goes through linalg_inv"})
def inverse_of_a_matrix():
    w = pyro.sample("w", dist.Normal(torch.eye(2), 0.1).to_event(2))
    pyro.sample("x", dist.Normal(torch.linalg.inv(w) @ torch.ones(2), 1.0).to_event(1), obs=numbers(2))
