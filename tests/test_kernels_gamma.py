"""The natural step in one pass, against the equations of `updates`."""

import pytest
import torch

from pyro_prme import kernels_gamma
from pyro_prme.distributions import DigammaRows
from pyro_prme.kernels_gamma import natural_step_, sum_of_rows
from pyro_prme.updates import dirichlet_update, natural_step

WORDS, TOPICS = 5000, 3  # more words than a block


def state(columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return 5 * torch.rand(WORDS, TOPICS) + 0.1, 7 * torch.rand(WORDS, TOPICS), torch.rand(WORDS, columns) + 0.05


@pytest.mark.parametrize("columns", [1, TOPICS])
@pytest.mark.parametrize("rate", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_step_is_that_of_the_equations(columns, rate, threads):
    gamma, pending, prior = state(columns)
    expected = natural_step(gamma, dirichlet_update(prior, pending), rate)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        total = natural_step_(gamma, pending, prior, rate)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(gamma, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(total, expected.sum(0), rtol=1e-12, atol=0)
    assert not pending.any()


def test_sums_do_not_depend_on_the_number_of_threads(float32):
    gamma, before, found = torch.rand(WORDS, TOPICS), torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(sum_of_rows(gamma))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    torch.testing.assert_close(found[0], gamma.double().sum(0), rtol=1e-12, atol=0)


def test_what_was_kept_of_the_old_gamma_is_forgotten():
    """Digammas of rows are kept until gamma changes, also when compiled code changes it."""
    gamma, pending, prior = state(1)
    kept, words = DigammaRows(), torch.tensor([0, 7])
    kept(gamma, words)
    natural_step_(gamma, pending, prior, 0.5)
    torch.testing.assert_close(kept(gamma, words), torch.digamma(gamma[words]))


def test_the_form_for_other_devices_is_the_same(monkeypatch):
    gamma, pending, prior = state(1)
    other, same = gamma.clone(), pending.clone()
    total = natural_step_(gamma, pending, prior, 0.3)

    class Elsewhere(torch.Tensor):
        """Says that it is on another device than it is."""

        @property
        def device(self):
            return torch.device("meta")

    monkeypatch.setattr(kernels_gamma, "share_out", None)  # the compiled loops are out of reach
    there = natural_step_(other.as_subclass(Elsewhere), same, prior, 0.3)
    torch.testing.assert_close(other, gamma, rtol=1e-13, atol=0)
    torch.testing.assert_close(there.as_subclass(torch.Tensor), total, rtol=1e-12, atol=0)
