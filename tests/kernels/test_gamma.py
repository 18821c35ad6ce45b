"""The natural step in one pass, against the equations of `updates`."""

import pytest
import torch

from pyro_prme.equations.updates import dirichlet_update, natural_step
from pyro_prme.kernels.gamma import DigammaRows, add_rows_, natural_step_, natural_step_torch_, sum_of_rows

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


def test_the_form_for_other_devices_is_the_same():
    gamma, pending, prior = state(1)
    other, same = gamma.clone(), pending.clone()
    total, there = natural_step_(gamma, pending, prior, 0.3), natural_step_torch_(other, same, prior, 0.3)
    torch.testing.assert_close(other, gamma, rtol=1e-13, atol=0)
    torch.testing.assert_close(there, total, rtol=1e-12, atol=0)
    assert not same.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_digamma_of_rows(dtype):
    """From the smallest parameters that a prior has to the largest counts."""
    table = torch.logspace(-4, 8, WORDS * TOPICS, dtype=torch.float64).reshape(WORDS, TOPICS).to(dtype)
    words = torch.randperm(WORDS)[: WORDS // 2]
    found = DigammaRows()(table, words)
    assert found.dtype == dtype
    tolerance = 1e-11 if dtype == torch.float64 else 1e-6
    expected = torch.digamma(table[words].double())
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_rows_are_computed_once_until_the_table_changes():
    table, kept = torch.rand(WORDS, TOPICS) + 0.1, DigammaRows()
    kept(table, torch.arange(10))
    kept._values[3] = 7.0  # a mark on what is kept
    assert (kept(table, torch.tensor([3, 20]))[0] == 7).all()
    table[0] += 1
    torch.testing.assert_close(kept(table, torch.tensor([0, 3])), torch.digamma(table[[0, 3]]))


@pytest.mark.parametrize("num", [10, WORDS])
def test_rows_are_added_to_those_of_their_words(num):
    table, words, rows = torch.rand(WORDS, 50), torch.randperm(WORDS)[:num], torch.rand(num, 50)
    expected = table.index_add(0, words, rows, alpha=2.5)
    version = table._version
    add_rows_(table, words, rows, 2.5)
    torch.testing.assert_close(table, expected, rtol=1e-13, atol=0)
    assert table._version > version
