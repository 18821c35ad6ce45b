"""`check_rule` on the rules of other likelihoods: with the default guides, and in float32."""

import pytest
import torch

from pyro_prme.guide import PRMEGuide
from pyro_prme.rules import GammaLoadings
from pyro_prme.swaps import GaussianPRME, PoissonPRME, fit, simulate
from pyro_prme.swaps.poisson import GammaFactors
from pyro_prme.testing import RuleError, check_rule
from tests.conftest import DOCUMENTS, entries_of, small_model

GAMMA = {"factors": "gamma"}


def checked(kind, site, rules=None, num=12, **kwargs):
    """The check of a rule after a few steps, on rows drawn from the model."""
    torch.manual_seed(0)
    model = kind(4, 12, num, h_dim=3, ell_dim=2, **kwargs)
    batch = model.batch_of(simulate(model, num, 1)[0])
    guide = model.make_guide(rules)
    fit(guide, batch, 5)
    return check_rule(guide, batch, site=site, below=kind is PoissonPRME, particles=100)


@pytest.mark.parametrize("site", ["theta", "Z"])
@pytest.mark.parametrize("kwargs", [{}, GAMMA])
def test_the_default_guides_rules_are_right_and_seen(kwargs, site):
    assert checked(PoissonPRME, site, **kwargs).seen("stationary")


class RateOff(GammaFactors):
    def statistics(self, name, run):
        shares, totals = super().statistics(name, run)
        return shares, 1.1 * totals


class Twice(GammaFactors):
    def statistics(self, name, run):
        shares, totals = super().statistics(name, run)
        return 2 * shares, totals


@pytest.mark.parametrize("rule", [RateOff, Twice])
def test_wrong_factors_are_told_with_the_default_guide(rule):
    with pytest.raises(RuleError, match="posterior of theta is not stationary"):
        checked(PoissonPRME, "theta", {"theta": rule()}, **GAMMA)


@pytest.mark.parametrize(
    ("kind", "site", "kwargs"),
    [
        (PoissonPRME, "theta", {}),
        (PoissonPRME, "theta", GAMMA),
        (PoissonPRME, "Z", GAMMA),
        (GaussianPRME, "tau", {}),
        (GaussianPRME, "theta", {}),
    ],
)
@pytest.mark.usefixtures("float32")
def test_in_float32_right_rules_are_right(kind, site, kwargs):
    report = checked(kind, site, **kwargs)
    assert all(check.seen for check in report.checks)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("site", ["theta", "Z", "X"])
@pytest.mark.usefixtures("float32")
def test_in_float32_the_papers_rules_are_right(site):
    guide = PRMEGuide(small_model(), rules={"Z": GammaLoadings()})
    report = check_rule(guide, entries_of(DOCUMENTS), site=site, particles=100)
    assert report.seen("stationary") == (site != "X")
    assert report.seen("particles")


@pytest.mark.usefixtures("float32")
def test_in_float32_a_wrong_rule_is_told():
    with pytest.raises(RuleError, match="posterior of theta is not stationary"):
        checked(PoissonPRME, "theta", {"theta": RateOff()}, **GAMMA)
