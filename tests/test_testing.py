"""`check_rule` accepts the library's rules and those of the examples, and rejects rules made wrong on purpose."""

import pyro.distributions as dist
import pytest
import torch

from pyro_prme.equations.expectations import natural_parameters
from pyro_prme.guide import PRMEGuide
from pyro_prme.rules import DirichletTopics, GammaLoadings, PointTopics
from pyro_prme.testing import RuleError, check_rule
from tests import test_other_models as other
from tests.conftest import DOCUMENTS, entries_of, small_model

ROWS = torch.arange(other.N)
PARTS = [slice(0, 10), slice(10, 20), slice(20, 30)]


def half(num=2):
    """The first documents: a batch that stands for more than itself."""
    return entries_of(DOCUMENTS[:num])


def prme_guide(**rules):
    torch.manual_seed(0)
    return PRMEGuide(small_model(), rules={"Z": GammaLoadings("plain"), **rules})


@pytest.mark.parametrize("site", ["theta", "Z", "C", "X", "f", "ell", "h", "V"])
def test_the_librarys_own_rules_are_right(site, entries):
    report = check_rule(prme_guide(), entries, site=site)
    assert report.seen("subsampling")
    assert report.seen("stationary") == (site in ("theta", "Z"))
    assert report.seen("particles") == (site not in ("ell", "h", "V"))
    assert str(report).splitlines()[0].endswith(f"at site {site}")


def test_a_profiled_term_is_read_in_its_plain_form(entries):
    guide = prme_guide(Z=GammaLoadings())
    report = check_rule(guide, entries, site="Z")
    assert report.seen("stationary")
    assert report.seen("particles")
    assert guide.rule("Z").objective == "profiled"


def test_a_term_that_does_not_read_the_posterior_says_that_it_shows_nothing(entries):
    class Profiled(GammaLoadings):
        """A term of one's own with the posterior maximised out."""

        def term(self, name, run, bound):
            self.objective = "profiled"
            return super().term(name, run, bound)

    report = check_rule(prme_guide(Z=Profiled()), entries, site="Z", particles=50)
    assert "not seen: the bound does not read the posterior" in str(report)


def test_topics_as_points_are_not_called_wrong(entries):
    report = check_rule(prme_guide(theta=PointTopics()), entries, site="theta", particles=10)
    assert "a point mass has nothing to draw" in str(report)


def test_checking_leaves_the_guide_and_the_random_state_alone(entries):
    guide = prme_guide()
    guide.plan(entries)
    before = {key: value.clone() for key, value in guide.state_dict().items()}
    rule, state = guide.rules["theta"], torch.get_rng_state()
    check_rule(guide, entries, site="theta", particles=5)
    assert guide.rules["theta"] is rule
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[key]) for key, value in guide.state_dict().items())
    assert not rule.pending.any()


@pytest.mark.parametrize("site", ["theta", "Z", "X"])
def test_a_users_rules_are_right(site):
    X = other.poisson_data()
    parts = [(X[rows], ROWS[rows]) for rows in PARTS]
    report = check_rule(other.poisson_guide(), X, ROWS, site=site, parts=parts, below=True, particles=100)
    assert report.seen("particles")
    assert report.seen("subsampling")
    assert report.seen("stationary") == (site != "X")


class WrongRate(GammaLoadings):
    def posterior(self, name, prior, run):
        q = super().posterior(name, prior, run)
        return dist.Gamma(q.concentration, 1.1 * q.rate)


class MissingEntropy(GammaLoadings):
    def term(self, name, run, bound):
        q = run.posterior(name)
        return super().term(name, run, bound) - run.scaled_sum(name, q.entropy())


class ShiftedTerm(GammaLoadings):
    by = 10

    def term(self, name, run, bound):
        return super().term(name, run, bound) + self.by


class LowTerm(ShiftedTerm):
    by = -10


class RateALittleOff(GammaLoadings):
    """So little that no move of the size of those that are tried raises the bound."""

    def posterior(self, name, prior, run):
        q = super().posterior(name, prior, run)
        return dist.Gamma(q.concentration, 1.0001 * q.rate)


class MissingScale(DirichletTopics):
    def gather(self, name, run, scale=None):
        super().gather(name, run, 1.0)


class UnscaledTerm(GammaLoadings):
    def term(self, name, run, bound):
        return super().term(name, run, bound) / run.scale(name)


class WrongPrior(DirichletTopics):
    def prior(self):
        return super().prior() + 0.05


@pytest.mark.parametrize(
    ("rules", "site", "reason"),
    [
        ({"Z": WrongRate("plain")}, "Z", "posterior of Z is not stationary: a move of 0.001 of its parameters raises"),
        ({"theta": WrongPrior()}, "theta", "posterior of theta is not stationary"),
        ({"theta": MissingScale()}, "theta", "posterior of theta is not stationary"),
        ({"Z": MissingEntropy("plain")}, "Z", "posterior of Z is not stationary"),
        ({"Z": MissingEntropy()}, "Z", "posterior of Z is not stationary"),
        ({"Z": ShiftedTerm("plain")}, "Z", r"term of Z is .* from the mean over 300 draws"),
        ({"Z": ShiftedTerm()}, "Z", r"term of Z is .* from the mean over 300 draws"),
        ({"Z": LowTerm("plain")}, "Z", r"term of Z is -\S+ from the mean over 300 draws"),
        ({"Z": LowTerm("plain")}, "theta", r"whole bound is -\S+ from the mean over 300 draws"),
        ({"Z": WrongRate()}, "Z", "posterior of Z is not stationary"),
        ({"Z": RateALittleOff("plain")}, "Z", "not stationary: the bound's gradient there is"),
    ],
)
def test_a_wrong_rule_is_rejected(rules, site, reason):
    with pytest.raises(RuleError, match=reason):
        check_rule(prme_guide(**rules), half(), site=site)


def test_where_the_bound_may_be_below_the_term_of_a_latent_site_may_not(entries):
    with pytest.raises(RuleError, match=r"term of Z is -"):
        check_rule(prme_guide(Z=LowTerm("plain")), entries, site="Z", below=True)


def test_a_likelihood_that_may_be_below_is_not_blamed_for_it(entries):
    class Pessimist(other.PoissonSum):
        def term(self, name, run, bound):
            return super().term(name, run, bound) - 3000

    X, guide = other.poisson_data(), other.poisson_guide()
    guide._asked["X"] = Pessimist()
    assert check_rule(guide, X, ROWS, site="X", below=True, particles=50).seen("particles")


def test_statistics_without_their_share_are_rejected_by_the_parts(entries):
    with pytest.raises(RuleError, match="carry N / B"):
        check_rule(prme_guide(theta=MissingScale()), entries, site="theta")


def test_a_term_without_its_scale_is_rejected_by_the_parts(entries):
    with pytest.raises(RuleError, match=r"term of Z is .* and its mean over 2 parts"):
        check_rule(prme_guide(Z=UnscaledTerm("plain")), entries, site="Z", particles=50)


def test_a_bound_above_the_draws_is_rejected():
    class Optimist(other.PoissonSum):
        def term(self, name, run, bound):
            return super().term(name, run, bound) + 3000

    X = other.poisson_data()
    guide = other.poisson_guide()
    guide._asked["X"] = Optimist()
    with pytest.raises(RuleError, match="term of X is"):
        check_rule(guide, X, ROWS, site="X", below=True, particles=100)


def test_a_site_without_a_rule_is_said(entries):
    with pytest.raises(RuleError, match="Site W has no rule: the plan has ell, V"):
        check_rule(prme_guide(), entries, site="W")


def test_natural_parameters_of_a_normal():
    eta, precision = natural_parameters(dist.Normal(3.0, 0.5))
    assert (float(eta), float(precision)) == (12.0, 4.0)
    full = natural_parameters(dist.MultivariateNormal(torch.ones(2), 2 * torch.eye(2)))
    torch.testing.assert_close(full[0], torch.full((2,), 0.5))
    assert natural_parameters(dist.Cauchy(0.0, 1.0)) is None
