"""Laws and moments of the swaps that no fit would notice to be wrong, tested by themselves."""

import math

import pyro.distributions as dist
import pytest
import torch
from torch.distributions import TransformedDistribution
from torch.distributions.transforms import AffineTransform, ExpTransform

from pyro_prme.swaps import LogNormalPRME
from pyro_prme.swaps.gaussian import loading_moments


def test_log_normal_loadings_have_their_law_given_sticks_and_f():
    """ln Z has mean ln(beta p_k) + f_nk and variance s^2, within four standard errors of 20000 rows each."""
    num, spread = 20_000, 0.5
    V, f = torch.tensor([0.5, 0.4, 0.5]), torch.tensor([-1.0, 0.0, 0.7, 2.0])
    p = torch.tensor([0.5, 0.2, 0.15, 0.15])  # by hand
    log_Z = LogNormalPRME(4, 6, num, beta=3.0, spread=spread).sample_Z(V, f.expand(num, 4)).log()
    error = spread / num**0.5
    torch.testing.assert_close(log_Z.mean(0), (3.0 * p).log() + f, rtol=0, atol=4 * error)
    torch.testing.assert_close(log_Z.var(0), torch.full((4,), spread**2), rtol=4 * (2 / num) ** 0.5, atol=0)


@pytest.mark.parametrize("written_out", [False, True])
def test_moments_of_log_normal_loadings(written_out):
    """Mean exp(m + s^2 / 2), variance exp(2 m + s^2)(exp(s^2) - 1), of a distribution and of a transformed Normal."""
    m, s = torch.tensor([[0.3, -1.0]]), torch.tensor([[0.5, 1.2]])
    q = TransformedDistribution(dist.Normal(m, s), [ExpTransform()]) if written_out else dist.LogNormal(m, s)
    mean, variance = loading_moments(q, q.sample())
    torch.testing.assert_close(mean, (m + s**2 / 2).exp())
    torch.testing.assert_close(variance, (2 * m + s**2).exp() * ((s**2).exp() - 1))
    assert float(variance[0, 0]) == pytest.approx(math.exp(0.85) * (math.exp(0.25) - 1))


def test_moments_that_are_not_known_are_the_drawn_value():
    q = TransformedDistribution(dist.Normal(torch.zeros(2), 1.0), [AffineTransform(0.0, 2.0), ExpTransform()])
    value = q.sample()
    mean, variance = loading_moments(q, value)
    assert torch.equal(mean, value)
    assert not variance.any()
