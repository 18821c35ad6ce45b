"""Indices, slices, shapes and joins of tensors."""

from __future__ import annotations

import numpy as np
import pyro
import torch
from pyro import distributions as dist

from tests.conjugacy.idioms.table import features, idiom, numbers


def _weights(*shape: int, name: str = "w"):
    return pyro.sample(name, dist.Normal(0.5, 1.0).expand(shape).to_event(len(shape)))


def _see(loc, name: str = "x"):
    value = numbers(max(loc.numel(), 1)).reshape(loc.shape)
    pyro.sample(name, dist.Normal(loc, 1.0).to_event(loc.dim()), obs=value)


@idiom()
def negative_indices():
    w = _weights(4)
    _see(torch.stack([w[-1], w[-4], 2 * w[1]]))


@idiom()
def slices_with_steps():
    w = _weights(5)
    _see(w[::2] + w[2:5] - w[-4:-1])


@idiom()
def every_second_from_the_end():
    w = _weights(5)
    _see(w[-5::2])


@idiom()
def boolean_mask():
    w = _weights(5)
    _see(w[torch.tensor([True, False, True, True, False])])


@idiom()
def boolean_mask_over_two_dimensions():
    w = _weights(2, 3)
    _see(w[torch.tensor([[True, False, True], [False, True, True]])])


@idiom()
def list_of_positions():
    w = _weights(5)
    _see(w[[4, 0, 0]])


@idiom()
def number_of_numpy():
    w = _weights(5)
    _see(w[np.int64(3)] + w[np.int64(1) : 3])


@idiom()
def array_of_numpy():
    w = _weights(5)
    _see(w[np.array([4, 0, 0])])


@idiom()
def mask_of_numpy():
    w = _weights(3)
    _see(w[np.array([True, False, True])])


@idiom()
def range_as_an_index():
    w = _weights(5)
    _see(w[range(3)])


@idiom()
def tensor_of_one_number_between_slices():
    w = _weights(2, 3, 4)
    _see(w[torch.tensor(1), :, torch.tensor([0, 3])])


@idiom()
def number_between_slices():
    w = _weights(2, 3, 4)
    _see(w[1, :, torch.tensor([0, 3, 3])])


@idiom()
def positions_apart():
    w = _weights(2, 3, 4)
    _see(w[torch.tensor([0, 1, 1]), :, torch.tensor([0, 3, 3])])


@idiom()
def positions_and_a_new_dimension():
    w = _weights(2, 3)
    _see(w[None, torch.tensor([0, 1, 1]), None, torch.tensor([2, 0, 0])])


@idiom()
def ellipsis_and_positions():
    w = _weights(2, 3, 4)
    _see(w[..., torch.tensor([[0, 1], [3, 3]])])


@idiom()
def diagonal_by_positions():
    w = _weights(3, 3)
    _see(w[torch.arange(3), torch.arange(3)])


@idiom({"w": "it goes through diagonal"})
def diagonal_by_name():
    w = _weights(3, 3)
    _see(w.diagonal())


@idiom()
def gathered():
    w = _weights(3, 4)
    _see(torch.gather(w, 1, torch.tensor([[0, 3], [1, 1], [2, 0]])))


@idiom()
def taken_along_a_dimension():
    w = _weights(3, 4)
    _see(torch.take_along_dim(w, torch.tensor([[0, 3], [1, 1], [2, 0]]), 1))


@idiom()
def taken_along_a_dimension_with_one_row_of_positions():
    w = _weights(3, 4)
    _see(torch.take_along_dim(w, torch.tensor([[0, 3]]), dim=1))


@idiom()
def selected_rows():
    w = _weights(3, 4)
    _see(torch.index_select(w, -1, torch.tensor([3, 3, 1])) + w.select(1, 0).unsqueeze(-1))


@idiom()
def flipped_and_narrowed():
    w = _weights(3, 4)
    _see(w.flip(0, 1).narrow(1, 1, 2))


@idiom()
def weights_flipped_by_keyword():
    w = _weights(4)
    _see(w.flip(dims=(0,)))


@idiom({"w": "it goes through roll"})
def weights_rolled():
    w = _weights(4)
    _see(w.roll(1, 0))


@idiom({"w": "x^2 times x is not a statistic of its Normal family"})
def parts():
    w = _weights(7)
    a, b, c = w.split([2, 2, 3])
    first, second = w[:6].chunk(2)
    _see(a + b + c[:2] + first[:2] * second[1:])


@idiom()
def stacked_sites():
    a = [pyro.sample(f"a{i}", dist.Normal(0.0, 1.0)) for i in range(3)]
    _see(features() @ torch.stack(a))


@idiom()
def sites_side_by_side():
    a, b = _weights(2, name="a"), _weights(3, name="b")
    _see(features(4, 5) @ torch.cat([a, b]))


@idiom()
def sites_of_several_families_side_by_side():
    a, g = _weights(2, name="a"), pyro.sample("g", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    pyro.factor("f", -(torch.cat([a**2, g], -1) * torch.tensor([1.0, 2.0, 3.0, 0.5])).sum())


@idiom()
def padded():
    w = _weights(3)
    _see(torch.nn.functional.pad(w, (1, 2), value=0.7))


@idiom({"w": "it goes through pad in a form that is not followed"})
def padded_on_two_sides():
    w = _weights(2, 2)
    _see(torch.nn.functional.pad(w, (0, 1, 1, 0)))


@idiom()
def reshaped():
    w = _weights(2, 6)
    _see(w.reshape(3, 4).T.flatten()[::3] + w.view(-1)[:4] + w.unflatten(1, (2, 3)).permute(2, 0, 1)[0, 1].sum())


@idiom({"w": "it goes through repeat"})
def repeated():
    w = _weights(3)
    _see(w.repeat(2))


@idiom()
def expanded_number():
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    _see(w.expand(3).cumsum(0) + w.expand(1, 3).squeeze() + torch.ones(3) * w.expand_as(torch.ones(1)))


@idiom()
def squeezed_number():
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    _see(w.squeeze(-1).sum(-1).unsqueeze(0).squeeze(0))


@idiom()
def broadcast_over_a_plate_of_one():
    with pyro.plate("one", 1):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 5):
        pyro.sample("x", dist.Normal(w, 1.0), obs=numbers(5))


@idiom({"w": "it goes through linalg_vecdot", "v": "it goes through linalg_vecdot"})
def matrix_products_of_all_kinds():
    w, v = _weights(2, 3), _weights(3, name="v")
    _see(torch.cat([w @ v, torch.mv(w, v), (v @ w.T), torch.einsum("ij,j->i", w, v), torch.linalg.vecdot(w, v)]))


@idiom()
def matrix_products_that_are_followed():
    w, v = _weights(2, 3), _weights(3, name="v")
    _see(torch.cat([w @ v, torch.mv(w, v), (v @ w.T), torch.einsum("ij,j->i", w, v), (w * v).sum(1)]))


@idiom()
def batched_matrix_product():
    w, v = _weights(2, 2, 3), _weights(2, 3, 1, name="v")
    _see(torch.bmm(w, v).squeeze(-1))


@idiom({"w": "it goes through einsum with a repeated index (ii->i)"})
def einsum_with_a_repeated_letter():
    w = _weights(3, 3)
    _see(torch.einsum("ii->i", w))


@idiom({"w": "it goes through einsum in a form that is not followed (ij)"})
def einsum_without_an_arrow():
    w = _weights(2, 3)
    _see(torch.einsum("ij", w))


@idiom({"w": "x^2 times x^2 is not a statistic of its Normal family"})
def outer_product_with_itself():
    w = _weights(2)
    _see(torch.outer(w, w))


@idiom()
def centred():
    w = _weights(4)
    _see(w - w.mean())


@idiom()
def zero_sum_by_hand():
    w = _weights(3)
    _see(torch.cat([w, -w.sum(0, keepdim=True)]))


@idiom({"w": "it goes through tril"})
def lower_triangle():
    w = _weights(3, 3)
    _see(w.tril() @ torch.ones(3))


@idiom()
def diagonal_matrix():
    w = _weights(3)
    _see(torch.diag_embed(w) @ torch.tensor([1.0, 2.0, 3.0]))


@idiom({"w": "it goes through kron"})
def kronecker():
    w = _weights(2)
    _see(torch.kron(w, torch.tensor([1.0, 2.0])))


@idiom({"w": "it goes through median"})
def median():
    w = _weights(3)
    _see(w.median().unsqueeze(0))


@idiom({"w": "it goes through var"})
def variance_of_members():
    w = _weights(3)
    pyro.factor("f", -w.var())


@idiom()
def running_product_of_sticks():
    with pyro.plate("sticks", 3):
        v = pyro.sample("v", dist.Beta(1.0, 2.0))
    left = torch.cat([torch.ones(1), torch.cumprod(1 - v, 0)])
    weights = torch.cat([v, torch.ones(1)]) * left
    pyro.sample("n", dist.Multinomial(10, weights), obs=torch.tensor([4.0, 3.0, 2.0, 1.0]))


@idiom()
def running_sum_along_columns():
    w = _weights(2, 3)
    _see(w.cumsum(dim=0)[1] - w.cumsum(-1)[0])


@idiom()
def loop_over_members():
    w = _weights(3)
    total = 0.0
    for i, member in enumerate(w):
        total = total + member * i
    _see(total.unsqueeze(0))


@idiom()
def transposes():
    w = _weights(2, 3)
    _see(w.T @ torch.ones(2) + w.mT[:, 0] + w.t()[:, 1] + w.transpose(0, 1)[:, 0] + w.movedim(0, 1)[:, 1] + w.H[:, 0])


@idiom({"w": "it reaches aten.detach.default below the level where it is followed"})
def the_data_of_a_tensor():
    w = _weights(3)
    _see(w.data + w.detach())
