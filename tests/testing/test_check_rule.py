"""`check_rule` in the new house: updates by hand against the engine's, right ones pass and wrong ones are told why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyro
import pytest
import torch
from pyro import distributions as dist
from torch import Tensor

from pyro_prme.inference import ClosedFormGuide, FitOptions, fit
from pyro_prme.inference.claims import Claim, OpenClaim, Refusal, Rule
from pyro_prme.inference.rules import Conjugate, FromPrior, MeanFieldNormal, Point, Topics
from pyro_prme.testing import RuleError, check_rule
from tests.conjugacy import models

X = torch.tensor([0.3, -1.2, 2.0, 0.7, 1.1], dtype=torch.float64)


# a function from the factors of the others


def tau(q: Mapping[str, Any]) -> dist.Gamma:
    square = (X - q["mu"].mean) ** 2 + q["mu"].variance
    return dist.Gamma(0.1 + len(X) / 2, 0.1 + square.sum() / 2)


def without_variance(q: Mapping[str, Any]) -> dist.Gamma:
    return dist.Gamma(0.1 + len(X) / 2, 0.1 + ((X - q["mu"].mean) ** 2).sum() / 2)


def without_half(q: Mapping[str, Any]) -> dist.Gamma:
    return dist.Gamma(0.1 + len(X), 0.1 + ((X - q["mu"].mean) ** 2 + q["mu"].variance).sum() / 2)


def test_a_right_formula_passes() -> None:
    report = check_rule(tau, models.normal_gamma, X, site="tau")
    assert report.seen("update")
    assert str(report).startswith("tau at site tau\nupdate       holds: within ")


@pytest.mark.parametrize("wrong", [without_variance, without_half])
def test_a_wrong_formula_is_red(wrong: Any) -> None:
    sentence = (
        r"The update of tau is not dF/dmu: log densities differ by .* The engine has Gamma\(concentration 2\.6; rate"
    )
    with pytest.raises(RuleError, match=sentence):
        check_rule(wrong, models.normal_gamma, X, site="tau")


def test_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    check_rule(tau, models.normal_gamma, X, site="tau")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.usefixtures("float32")
def test_single_precision() -> None:
    x = X.float()

    def rate(q: Mapping[str, Any]) -> dist.Gamma:
        return dist.Gamma(0.1 + 2.5, 0.1 + ((x - q["mu"].mean) ** 2 + q["mu"].variance).sum() / 2)

    assert check_rule(rate, models.normal_gamma, x, site="tau").seen("update")
    with pytest.raises(RuleError, match="is not dF/dmu"):
        check_rule(without_half, models.normal_gamma, x, site="tau")


def test_members_of_a_plate_and_a_joint_normal() -> None:
    features, y = torch.randn(8, 3), torch.randn(8)

    def weights(q: Mapping[str, Any]) -> dist.MultivariateNormal:
        precision = q["alpha"].mean.diag() + q["tau"].mean * features.T @ features
        return dist.MultivariateNormal(precision.inverse() @ (q["tau"].mean * features.T @ y), precision.inverse())

    def relevance(q: Mapping[str, Any]) -> dist.Gamma:
        return dist.Gamma(0.6, 0.1 + 0.5 * (q["w"].mean ** 2 + q["w"].variance))

    def alike(q: Mapping[str, Any]) -> dist.Gamma:
        return dist.Gamma(0.6, 0.1 + 0.5 * (q["w"].mean ** 2 + q["w"].variance).mean())

    assert check_rule(weights, models.regression, features, y, site="w").seen("update")
    assert check_rule(relevance, models.regression, features, y, site="alpha").seen("update")
    with pytest.raises(RuleError, match="The update of alpha is not dF/dmu"):
        check_rule(alike, models.regression, features, y, site="alpha")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda q: None, "The factor of tau is NoneType: it must be a distribution."),
        (lambda q: dist.Gamma(torch.ones(2), 1.0), r"The factor of tau has shape \(2,\), and the site \(\)."),
    ],
)
def test_what_is_no_factor(formula: Any, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        check_rule(formula, models.normal_gamma, X, site="tau")


def test_wrong_questions() -> None:
    with pytest.raises(ValueError, match="Name the site whose update the function is"):
        check_rule(tau, models.normal_gamma, X)
    with pytest.raises(ValueError, match="Give check_rule the rule, the model"):
        check_rule(tau)
    with pytest.raises(RuleError, match="The engine has no update of x to compare with: it is not a latent site"):
        check_rule(tau, models.normal_gamma, X, site="x")
    args = models.CASES["beside_logistic"].args()
    with pytest.raises(RuleError, match="The engine has no update of s to compare with: its prior is LogNormal"):
        check_rule(tau, models.CASES["beside_logistic"].model, *args, site="s")


# a rule of a guide

SIZE = 40


def counts(x: Tensor, rows: Tensor) -> None:
    rate = pyro.sample("pace", dist.Gamma(2.0, 1.0))
    with pyro.plate("rows", SIZE, subsample=rows):
        pyro.sample("x", dist.Poisson(rate), obs=x)


class Pace(OpenClaim):
    """q(pace) = Gamma(a + N/B sum x_n, b + N), of which the run has a draw."""

    def __init__(self, name: str, prior: Any) -> None:
        super().__init__()
        self.sites = (name,)
        self.register_buffer("concentration", prior.concentration.clone())
        self.register_buffer("rate", prior.rate.clone())

    def title(self, name: str) -> str:
        return "Gamma, natural step"

    def posterior(self, name: str, prior: Any, context: Any) -> Any:
        return dist.Gamma(self.concentration, self.rate)

    def share(self, site: Any) -> Any:
        return site.weight

    def gather(self, run: Any, share: float = 1.0) -> None:
        prior, site = run.sites["pace"].fn, run.sites["x"]
        self.target = (
            prior.concentration + self.share(site) * site.value.sum(),
            prior.rate + self.share(site) * len(site.value),
        )

    def natural_step(self, rate: float) -> None:
        self.concentration.lerp_(self.target[0], rate)
        self.rate.lerp_(self.target[1], rate)


class NoShare(Pace):
    def share(self, site: Any) -> Any:
        return 1.0


class ScaleForRate(Pace):
    def posterior(self, name: str, prior: Any, context: Any) -> Any:
        return dist.Gamma(self.concentration, 1 / self.rate)


class AsPoint(Pace):
    def posterior(self, name: str, prior: Any, context: Any) -> Any:
        return self.concentration / self.rate


class PaceRule(Rule):
    """Claims the site of that name.

    Args:
        kind: of the claim.
    """

    def __init__(self, kind: type[Pace]) -> None:
        self.kind = kind

    def match(self, structure: Any, free: Sequence[str]) -> Claim | Refusal:
        if "pace" not in free:
            return Refusal({name: "it is not the pace" for name in free})
        return self.kind("pace", structure.trace.nodes["pace"]["fn"])


def checked(kind: type[Pace], size: int = SIZE) -> Any:
    return check_rule(PaceRule(kind), counts, torch.poisson(torch.full((size,), 3.0)), torch.arange(size))


@pytest.mark.parametrize("size", [SIZE, 10])
def test_a_right_rule_passes(size: int) -> None:
    report = checked(Pace, size)
    assert (report.site, report.rule) == ("pace", "PaceRule")
    assert report.seen("update")


def test_wrong_rules_are_red() -> None:
    with pytest.raises(RuleError, match="The update of pace is not dF/dmu"):
        checked(ScaleForRate)
    assert checked(NoShare).seen("update")  # on all of the data there is no share to forget
    with pytest.raises(RuleError, match="The update of pace is not dF/dmu"):
        checked(NoShare, 10)


def test_rules_without_an_update_say_so() -> None:
    assert "a point mass has no family" in str(checked(AsPoint))
    for rule, why in ((Point(), "moved by gradients"), (MeanFieldNormal(), "moved by gradients")):
        assert why in str(check_rule(rule, models.normal_gamma, X))
    assert "the factor is the prior" in str(check_rule(FromPrior(), models.normal_gamma, X, site="mu"))
    with pytest.raises(RuleError, match=r"PaceRule claims no site of this model \(mu: it is not the pace"):
        check_rule(PaceRule(Pace), models.normal_gamma, X)
    with pytest.raises(RuleError, match="PaceRule does not claim x, but pace"):
        check_rule(PaceRule(Pace), counts, torch.ones(5), torch.arange(5), site="x")


def test_the_librarys_own_rules_pass() -> None:
    args = models.CASES["lda"].args()
    assert check_rule(Topics(), models.lda, *args).seen("update")
    for site in ("mu", "tau"):
        assert check_rule(Conjugate(), models.normal_gamma, X, site=site).seen("update")


def test_a_compiled_update_that_is_off_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyro_prme.testing import check

    monkeypatch.setattr(check, "difference_from_engine", lambda claim, structure: 0.02)
    with pytest.raises(RuleError, match=r"The compiled update of \w+ differs from dF/dmu by 2e-02"):
        check_rule(Topics(), models.lda, *models.CASES["lda"].args())


def test_a_guides_own_claims_pass_and_the_guide_is_left_alone() -> None:
    guide = ClosedFormGuide(models.normal_gamma)
    fit(guide, X, options=FitOptions(progress=False))
    before = guide.posterior("tau").mean
    report = check_rule(guide, X, site="tau")
    assert (report.rule, report.site) == ("ConjugateFactors", "tau")
    assert report.seen("update")
    assert torch.equal(guide.posterior("tau").mean, before)
    args = models.CASES["lda"].args()
    assert check_rule(ClosedFormGuide(models.lda), *args, site="phi").seen("update")
