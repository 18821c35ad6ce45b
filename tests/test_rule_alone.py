"""`check_rule` for one new rule, in one class: nothing else in the model has a closed form, in float32 and float64."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

from pyro_prme.guide import ClosedFormGuide
from pyro_prme.testing import RuleError, check_rule
from tests import test_rule_of_ones_own as own
from tests.test_rule_of_ones_own import GammaPace, N, dtype  # noqa: F401

HALF = torch.arange(N // 2)


def checked(rule, model=own.model, rows=None, level=3.0, **options):
    """The check of the rule of pace, on all rows or on some of them, of counts around a level."""
    torch.manual_seed(0)
    x, rows = torch.poisson(torch.full((N,), level)), torch.arange(N) if rows is None else rows
    parts = None if len(rows) < N else [(x[part], rows[part]) for part in (slice(0, 20), slice(20, 40))]
    return check_rule(ClosedFormGuide(model, {"pace": rule}), x[rows], rows, site="pace", parts=parts, **options)


class Moved(GammaPace):
    """The target's shape and rate times and plus something."""

    def __init__(self, shape=1.0, rate=1.0, more=0.0):
        super().__init__()
        self.by = shape, rate, more

    def gather(self, name, run, scale=None):
        super().gather(name, run, scale)
        shape, rate, more = self.by
        self.target = shape * self.target[0] + more, rate * self.target[1]


def test_a_right_rule_alone_passes_every_check():
    report = checked(GammaPace())
    assert all(check.seen for check in report.checks)
    assert "by 300 draws slope" in str(report)


def test_half_of_the_data_stands_for_all():
    assert checked(GammaPace(), rows=HALF).seen("stationary")


@pytest.mark.parametrize("few", [2, 20])
def test_few_particles_do_as_well_for_a_rule_that_is_exact(few):
    assert checked(GammaPace(), particles=few).seen("stationary")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (own.OneTooMany(), "posterior of pace is not stationary: by 300 draws the bound's slope is"),
        (own.ScaleForRate(), "posterior of pace is not stationary"),
        (Moved(shape=2.0), "posterior of pace is not stationary"),
        (Moved(rate=2.0), "posterior of pace is not stationary"),
        (Moved(shape=2.0, rate=2.0), "posterior of pace is not stationary"),
        (Moved(rate=1.001), "posterior of pace is not stationary"),
        (own.TwiceTheTerm(), r"term of pace is .* from the mean over 300 draws"),
        (own.NoShare(), "do the statistics carry N / B"),
        (own.Forgetful(), "it must be a distribution"),
    ],
)
def test_a_wrong_rule_alone_is_told_why(rule, sentence):
    with pytest.raises(RuleError, match=sentence):
        checked(rule)


def test_a_missing_share_is_seen_on_half_of_the_data():
    with pytest.raises(RuleError, match="posterior of pace is not stationary"):
        checked(own.NoShare(), rows=HALF)


# another latent site, which is drawn


def with_effort(x, rows):
    pace = pyro.sample("pace", dist.Gamma(torch.tensor(2.0), torch.tensor(1.0)))
    effort = pyro.sample("effort", dist.LogNormal(torch.tensor(0.0), torch.tensor(0.3)))
    with pyro.plate("rows", N, subsample=rows):
        pyro.sample("x", dist.Poisson(pace * effort), obs=x)


class ByMean(GammaPace):
    """Right on average over draws of the other site."""

    def effort(self, run):
        q = run.posterior("effort").base_dist
        return (q.loc + q.variance / 2).exp().detach()

    def gather(self, name, run, scale=None):
        super().gather(name, run, scale)
        prior, effort = run.prior(name), self.effort(run)
        self.target = self.target[0], prior.rate + effort * (self.target[1] - prior.rate)


class ByDraw(ByMean):
    """Right given the draw."""

    def effort(self, run):
        return run.value("effort")


class ByDrawOff(ByMean):
    def effort(self, run):
        return 1.1 * run.value("effort")


class ByMeanOff(ByMean):
    def effort(self, run):
        return 1.5 * super().effort(run)


def test_a_rule_that_reads_a_draw_is_right_given_the_draw():
    report = checked(ByDraw(), with_effort)
    assert report.seen("stationary")
    assert "the natural parameters depend on draws" in str(report)


def test_a_rule_that_reads_moments_is_seen_unless_the_draws_are_too_noisy_to_tell():
    assert "too noisy to tell, give more `particles`" in str(checked(ByMean(), with_effort))
    assert checked(ByMean(), with_effort, level=0.3, particles=800).seen("stationary")


class RowsGivenEffort(own.PoissonRows):
    """Reads moments of pace, and the draw of effort."""

    def term(self, name, run, bound):
        effort, q, x = run.value("effort"), run.posterior("pace"), run.value(name)
        each = x * (q.concentration.digamma() - q.rate.log() + effort.log()) - effort * q.mean - (x + 1).lgamma()
        return run.scaled_sum(name, each)


@pytest.mark.parametrize(("rule", "right"), [(ByMean, True), (ByDraw, True), (ByMeanOff, False), (ByDrawOff, False)])
def test_so_it_is_where_the_child_reads_its_moments_and_a_draw_of_the_other(rule, right):
    torch.manual_seed(0)
    x, rows = torch.poisson(torch.full((N,), 0.3)), torch.arange(N)
    guide = ClosedFormGuide(with_effort, {"pace": rule(), "x": RowsGivenEffort()})
    if right:
        assert check_rule(guide, x, rows, site="pace", particles=800).seen("stationary")
    else:
        with pytest.raises(RuleError, match="posterior of pace is not stationary"):
            check_rule(guide, x, rows, site="pace", particles=800)


@pytest.mark.parametrize("rule", [ByDrawOff, ByMeanOff])
def test_it_is_told_when_it_is_wrong(rule):
    with pytest.raises(RuleError, match="posterior of pace is not stationary"):
        checked(rule(), with_effort)


# what a model may hold


OUTSIDE = torch.nn.Linear(2, 1, dtype=torch.float32)
MATRIX = torch.tensor([[0.1, 0.7], [0.3, 0.9]], dtype=torch.float32)


def effort_from_outside():
    return OUTSIDE(MATRIX @ MATRIX[0]).exp().sum().detach()


class FromOutside(ByMean):
    def effort(self, run):
        return effort_from_outside()


def test_tensors_that_a_model_finds_outside_itself_may_be_float32():
    prior = dist.Gamma(torch.tensor(0.1, dtype=torch.float32), torch.tensor(0.3, dtype=torch.float32))

    def model(x, rows):
        pace = pyro.sample("pace", prior)
        with pyro.plate("rows", N, subsample=rows):
            pyro.sample("x", dist.Poisson(pace * effort_from_outside()), obs=x)

    assert checked(FromOutside(), model).seen("stationary")


def test_the_default_type_the_param_store_and_the_arguments_are_left_alone(dtype):  # noqa: F811
    x, rows, seen = torch.ones(N), torch.arange(N), []

    def model(x, rows):
        shape = pyro.param("shape", torch.tensor(2.0))
        pace = pyro.sample("pace", dist.Gamma(shape, torch.tensor(1.0)))
        seen.append((x.dtype, shape.dtype, pace.dtype, torch.get_default_dtype()))
        pyro.param(f"new in run {len(seen)}", torch.tensor(0.0))
        with pyro.plate("rows", N, subsample=rows):
            pyro.sample("x", dist.Poisson(pace), obs=x)

    guide = ClosedFormGuide(poutine.scale(model, scale=1.0), {"pace": GammaPace()})
    guide.plan(x, rows)
    store = pyro.get_param_store()
    before = store.get_state()["params"]
    seen.clear()
    check_rule(guide, x, rows, site="pace", particles=10)
    assert set(seen) == {(torch.float64,) * 4}
    assert torch.get_default_dtype() == x.dtype == guide.rule("pace").rate.dtype == dtype
    assert store.get_state()["params"].keys() == before.keys()
    assert store.get_state()["params"]["shape"] is before["shape"]


# a neighbour that reads moments of the site, and draws of it too


class Rounded(own.PoissonRows):
    """With as much of a draw as is left by rounding where it was added and taken away again."""

    def term(self, name, run, bound):
        drawn = run.scaled_sum(name, run.prior(name).log_prob(run.value(name)))
        return super().term(name, run, bound) + 1e-13 * drawn


class Mixed(own.PoissonRows):
    """Half by moments, half by the draw."""

    moments = ()

    def term(self, name, run, bound):
        drawn = run.scaled_sum(name, run.prior(name).log_prob(run.value(name)))
        return (super().term(name, run, bound) + drawn) / 2


def beside(neighbour, rule, seed):
    torch.manual_seed(0)
    x, rows = torch.poisson(torch.full((N,), 3.0)), torch.arange(N)
    return check_rule(ClosedFormGuide(own.model, {"pace": rule, "x": neighbour}), x, rows, site="pace", seed=seed)


def test_rounding_is_not_taken_for_reading_a_draw():
    assert "stationary   holds: gradient" in str(beside(Rounded(), GammaPace(), 0))


@pytest.mark.parametrize("seed", range(8))
def test_a_right_rule_beside_one_that_reads_moments_and_draws_is_not_called_wrong(seed):
    assert "standard error" in str(beside(Mixed(), GammaPace(), seed))


def test_a_wrong_rule_beside_one_that_reads_moments_and_draws_is_told():
    with pytest.raises(RuleError, match="not stationary"):
        beside(Mixed(), Moved(rate=2.0), 0)
