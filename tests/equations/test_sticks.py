import pyro.distributions as dist
import torch

from pyro_prme.equations.sticks import MIN_CONCENTRATION, log_stick_weights, stick_weights, sticks_from_weights
from pyro_prme.models.prme import PRME


def test_weights_are_the_products_of_the_paper_and_the_last_takes_what_is_left():
    V = torch.tensor([0.5, 0.25, 0.1])
    expected = torch.tensor([0.5, 0.5 * 0.25, 0.5 * 0.75 * 0.1, 0.5 * 0.75 * 0.9])
    torch.testing.assert_close(stick_weights(V), expected)
    torch.testing.assert_close(stick_weights(dist.Beta(1.0, 2.0).sample((7, 99))).sum(-1), torch.ones(7))


def test_sticks_from_weights_inverts_stick_weights():
    V = dist.Beta(1.0, 3.0).sample((4, 30))
    torch.testing.assert_close(sticks_from_weights(stick_weights(V)), V)


def test_float32_sticks_keep_a_finite_logarithm_and_a_positive_shape(float32):
    V = dist.Beta(1.0, 1.0).sample((200, 99)).clamp(max=1.0)
    V[0, 3] = 1.0
    assert torch.isfinite(log_stick_weights(V)).all()
    shapes = PRME(100, 5, 1).concentration(V)
    assert (stick_weights(V) * 5 == 0).any()
    assert shapes.min() >= MIN_CONCENTRATION * (1 - 1e-6)
