"""Sums of products in float64, against torch."""

import pytest
import torch

from pyro_prme.kernels.sums import inner


@pytest.mark.parametrize("shape", [(0, 3), (7,), (2000, 100)])
def test_sums_of_products(shape):
    a, b = torch.rand(shape), -torch.rand(shape)
    torch.testing.assert_close(inner(a, b), (a * b).sum(), rtol=1e-12, atol=0)


@pytest.mark.usefixtures("float32")
def test_the_sum_is_in_float64_and_does_not_depend_on_threads_or_strides():
    a, b, before = torch.rand(3000, 100), torch.rand(3000, 100), torch.get_num_threads()
    expected = (a.double() * b.double()).sum()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(inner(a, b))
    torch.set_num_threads(before)
    assert found[0].dtype == torch.float64
    assert torch.equal(*found)
    torch.testing.assert_close(found[0], expected, rtol=a.numel() * 1.1e-16, atol=0)
    torch.testing.assert_close(inner(a.mT, b.mT), expected, rtol=1e-6, atol=0)
