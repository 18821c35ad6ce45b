"""A user's first rule, for a pair that the library does not have: right it passes, subtly wrong it is told why."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_prme.guide import ClosedFormGuide
from pyro_prme.rules import REGISTRY, Rule, register
from pyro_prme.testing import RuleError, check_rule

N = 40


def model(x, rows):
    rate = pyro.sample("pace", dist.Gamma(torch.tensor(2.0), torch.tensor(1.0)))
    with pyro.plate("rows", N, subsample=rows):
        pyro.sample("x", dist.Poisson(rate), obs=x)


class GammaPace(Rule):
    """q(pace) = Gamma(a + N/B sum x_n, b + N)."""

    summary = "Gamma, natural step (Gamma-Poisson)"

    def refusal(self, name, prototype):
        return None if prototype.children(name) == {"x"} else "something beside x depends on it."

    def setup(self, name, prototype):
        prior = prototype.site(name)["fn"]
        self.register_buffer("concentration", prior.concentration.clone())
        self.register_buffer("rate", prior.rate.clone())

    def posterior(self, name, prior, run):
        return dist.Gamma(self.concentration, self.rate)

    def gather(self, name, run, scale=None):
        prior, x, weight = run.prior(name), run.value("x"), run.scale("x")
        self.target = prior.concentration + weight * x.sum(), prior.rate + weight * len(x)

    def natural_step(self, rate):
        self.concentration.lerp_(self.target[0], rate)
        self.rate.lerp_(self.target[1], rate)


class PoissonRows(Rule):
    """E ln Poisson(x | pace)."""

    summary, observed, moments = "expected log likelihood", True, ("pace",)

    def refusal(self, name, prototype):
        return None

    def each(self, q, x):
        return x * (q.concentration.digamma() - q.rate.log()) - q.mean - (x + 1).lgamma()

    def term(self, name, run, bound):
        return run.scaled_sum(name, self.each(run.posterior("pace"), run.value(name)))


class NoShare(GammaPace):
    def gather(self, name, run, scale=None):
        prior, x = run.prior(name), run.value("x")
        self.target = prior.concentration + x.sum(), prior.rate + len(x)


class ScaleForRate(GammaPace):
    def posterior(self, name, prior, run):
        return dist.Gamma(self.concentration, 1 / self.rate)


class OneTooMany(GammaPace):
    def gather(self, name, run, scale=None):
        super().gather(name, run, scale)
        self.target = self.target[0] + 1, self.target[1]


class TwiceTheTerm(GammaPace):
    """As far from the truth as the KL divergence itself, which is nothing where the posterior is the prior."""

    def term(self, name, run, bound):
        return -2 * run.scaled_sum(name, torch.distributions.kl_divergence(run.posterior(name), run.prior(name)))


class Forgetful(GammaPace):
    def posterior(self, name, prior, run):
        dist.Gamma(self.concentration, self.rate)


class Two(GammaPace):
    def posterior(self, name, prior, run):
        return dist.Gamma(self.concentration.expand(2), self.rate.expand(2))


class LogOfTheMean(PoissonRows):
    def each(self, q, x):
        return x * q.mean.log() - q.mean - (x + 1).lgamma()


class NoFactorial(PoissonRows):
    def each(self, q, x):
        return super().each(q, x) + (x + 1).lgamma()


class NoScale(PoissonRows):
    def term(self, name, run, bound):
        return self.each(run.posterior("pace"), run.value(name)).sum()


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"], autouse=True)
def dtype(request, _clean_pyro):
    torch.set_default_dtype(request.param)
    return request.param


def checked(site, **rules):
    torch.manual_seed(0)
    x, rows = torch.poisson(torch.full((N,), 3.0)), torch.arange(N)
    guide = ClosedFormGuide(model, {"pace": GammaPace(), "x": PoissonRows(), **rules})
    parts = [(x[part], rows[part]) for part in (slice(0, 20), slice(20, 40))]
    return check_rule(guide, x, rows, site=site, parts=parts)


def test_right_rules_pass_every_check_that_they_can():
    assert all(check.seen for check in checked("pace").checks)
    assert [check.seen for check in checked("x").checks] == [False, True, True]


@pytest.mark.parametrize(
    ("site", "rule", "sentence"),
    [
        ("pace", NoShare, "do the statistics carry N / B"),
        ("pace", ScaleForRate, "posterior of pace is not stationary"),
        ("pace", OneTooMany, "posterior of pace is not stationary"),
        ("pace", TwiceTheTerm, "posterior of pace is not stationary"),
        ("pace", Forgetful, "posterior of pace is NoneType: it must be a distribution"),
        ("pace", Two, r"posterior of pace has shape \(2,\), and the site \(\)"),
        ("x", LogOfTheMean, r"term of x is .* from the mean over 300 draws"),
        ("x", NoFactorial, r"term of x is .* from the mean over 300 draws"),
        ("x", NoScale, r"Subsampling is biased: the term of x is .* and its mean over 2 parts"),
    ],
)
def test_a_subtly_wrong_rule_is_told_why(site, rule, sentence):
    with pytest.raises(RuleError, match=sentence):
        checked(site, **{site: rule()})


def test_a_step_away_from_the_prior_the_whole_bound_is_told_closely():
    """At the prior its draws spread so widely that a likelihood without its factorials, 80 nats, is near the noise."""
    with pytest.raises(RuleError, match=r"whole bound is .*four standard errors are 0\.\d"):
        checked("pace", x=NoFactorial())


def test_registered_it_needs_no_asking():
    try:
        register("pace")(GammaPace)
        register("x")(PoissonRows)
        plan = ClosedFormGuide(model).plan(torch.ones(N), torch.arange(N))
        assert [type(plan.rules[name]) for name in ("pace", "x")] == [GammaPace, PoissonRows]
    finally:
        for name in ("pace", "x"):
            REGISTRY.pop(name)
