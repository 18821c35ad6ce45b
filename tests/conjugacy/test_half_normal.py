"""The modified half-normal's moments against adaptive quadrature, and its draws against its moments."""

import math

import pytest
import torch
from scipy.integrate import quad

from pyro_prme.conjugacy.families import half_normal
from pyro_prme.conjugacy.families.half_normal import ModifiedHalfNormal, _envelope, _log_density

CASES = [(c, a, b) for c in (0.05, 0.7, 1.0, 20.0) for a, b in ((1.0, -40.0), (1.0, 0.5), (9.0, 9.0), (4.0, 60.0))]


def integral(c, a, b, function):
    """By scipy, relative to the largest value; in t = z^c for c < 1, which takes the pole at zero away."""
    mode = (b + math.sqrt(b * b + 4 * a * c)) / (2 * a)
    top = c * math.log(mode) + b * mode - a * mode**2 / 2
    places = [mode * x for x in (0.2, 0.5, 0.9, 1.0, 1.1, 1.5, 3.0)] + [mode + 12 / math.sqrt(a), 40 / max(-b, 1.0)]
    power = min(c, 1.0)
    places = sorted({x**power for x in places})

    def integrand(t):
        z = t ** (1 / power)
        return function(z) * z ** (c - power) * math.exp(b * z - a * z * z / 2 - top) / power if z > 0 else 0.0

    return quad(integrand, 0, places[-1], points=places[:-1], limit=500)[0], top


@pytest.mark.parametrize(("c", "a", "b"), CASES)
def test_moments_are_those_of_adaptive_quadrature(c, a, b):
    q = ModifiedHalfNormal(*(torch.tensor(x) for x in (c, a, b)))
    total, top = integral(c, a, b, lambda z: 1.0)
    mean = integral(c, a, b, lambda z: z)[0] / total
    variance = integral(c, a, b, lambda z: (z - mean) ** 2)[0] / total
    log = integral(c, a, b, math.log)[0] / total
    assert float(q.mean) == pytest.approx(mean, rel=1e-6)
    assert float(q.variance) == pytest.approx(variance, rel=1e-5)
    assert float(q.expected_log) == pytest.approx(log, abs=1e-5)
    assert float(q.log_prob(torch.tensor(1.0))) == pytest.approx(b - a / 2 - math.log(total) - top, abs=1e-6)


def test_without_a_quadratic_part_it_is_a_gamma():
    c, rate = torch.tensor([0.3, 2.0]), torch.tensor([1.0, 5.0])
    q, gamma = ModifiedHalfNormal(c, torch.tensor(1e-9), -rate), torch.distributions.Gamma(c, rate)
    torch.testing.assert_close(q.mean, gamma.mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(q.entropy(), gamma.entropy(), rtol=0, atol=1e-6)


EXTREME = [(1e-3, 1.0, 30.0), (0.02, 1.0, -30.0), (0.02, 1e6, 1e7), (0.3, 1e-6, 5.0), (300.0, 2.0, -50.0)]


@pytest.mark.parametrize(
    ("c", "a", "b"), [(0.05, 2.0, 3.0), (0.5, 1.0, -3.0), (1.25, 12.0, 30.0), (5.0, 0.3, 1.0), *EXTREME]
)
def test_draws_have_the_moments(c, a, b):
    """Within five standard errors of 20000 draws."""
    q = ModifiedHalfNormal(*(torch.tensor(x) for x in (c, a, b)))
    z = q.sample(torch.Size([20000]))
    pairs = [(z, q.mean), (z.log(), q.expected_log), ((z - q.mean).square(), q.variance), (-q.log_prob(z), q.entropy())]
    for draws, expected in pairs:
        assert abs(float(draws.mean() - expected)) < 5 * float(draws.std()) / 20000**0.5


def test_the_mean_is_the_gradient_of_the_log_normaliser():
    c, a, b = (torch.tensor(x, requires_grad=True) for x in (0.7, 3.0, 2.0))
    q = ModifiedHalfNormal(c, a, b)
    gradients = torch.autograd.grad(q.log_prob(torch.tensor(1.0)), (c, a, b))
    expected = (-q.expected_log, -0.5 + (q.mean.square() + q.variance) / 2, 1 - q.mean)
    for gradient, value in zip(gradients, expected, strict=True):
        assert float(gradient) == pytest.approx(float(value.detach()), abs=1e-7)


@pytest.mark.parametrize(("c", "a", "b"), [(0.5, 1.0, -3.0), (5.0, 0.3, 1.0)])
def test_draws_from_the_falling_line_have_the_moments_too(c, a, b, monkeypatch):
    """The line begins so far out that it is hardly ever used: here it begins just beyond the mode."""
    q = ModifiedHalfNormal(*(torch.tensor(x) for x in (c, a, b)))
    moments = q.mean, q.expected_log
    places = half_normal._places
    monkeypatch.setattr(half_normal, "_places", lambda *x: (p := places(*x))._replace(last=p.mode + 0.1))
    z = q.sample(torch.Size([20000]))
    for draws, expected in zip((z, z.log()), moments, strict=True):
        assert abs(float(draws.mean() - expected)) < 5 * float(draws.std()) / 20000**0.5


def test_half_of_the_proposals_are_kept_or_more():
    """At any parameters: c from 1e-3 to 1e3, b / sqrt(a) from -1e3 to 1e3."""
    x = torch.logspace(3, -2, 11)
    c, beta = torch.meshgrid(torch.logspace(-3, 3, 13), torch.cat([x, -x]), indexing="ij")
    c, beta = c.flatten(), beta.flatten()
    rows = torch.arange(len(c)).repeat_interleave(500)
    u, height = _envelope(c, beta).draw(rows)
    ratio = _log_density(c[rows], beta[rows], u) - height
    assert ratio.max() < 1e-9
    assert ratio.exp().reshape(len(c), 500).mean(-1).min() > 0.5


def test_single_precision_loses_no_digits_where_large_terms_cancel():
    parameters = torch.tensor([0.3, 1e4, 1e8])
    single, double = (ModifiedHalfNormal(*parameters.to(dtype)) for dtype in (torch.float32, torch.float64))
    assert single.mean.dtype == single.entropy().dtype == single.sample().dtype == torch.float32
    for name in ("mean", "variance", "expected_log"):
        torch.testing.assert_close(getattr(single, name).double(), getattr(double, name), rtol=1e-5, atol=0)
    torch.testing.assert_close(single.entropy().double(), double.entropy(), rtol=1e-5, atol=0)
    assert float(double.entropy()) == pytest.approx(0.5 * math.log(2 * math.pi * math.e / 1e4), abs=1e-3)


def test_a_parameter_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        ModifiedHalfNormal(torch.ones(2), torch.ones(2), torch.tensor([0.0, math.nan])).sample()
