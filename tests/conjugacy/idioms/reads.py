"""Values read, written in place, and handed to what is not torch."""

from __future__ import annotations

import math

import numpy as np
import pyro
import scipy.special
import torch
from pyro import distributions as dist

from tests.conjugacy.idioms.table import NO_FUNCTION, WRITTEN_INTO, features, idiom, numbers


def _mean():
    return pyro.sample("mu", dist.Normal(0.0, 1.0))


def _see(loc, scale=1.0):
    tau = pyro.sample("tau", dist.Gamma(1.0, 1.0))
    with pyro.plate("data", 6):
        pyro.sample("x", dist.Normal(loc, scale * tau.rsqrt()), obs=numbers())


@idiom({"mu": "the model reads its value (__bool__)"})
def condition_on_a_value():
    mu = _mean()
    _see(mu, 1.0 if mu > 0 else 2.0)


@idiom({"mu": "the model reads its value (item)"})
def item():
    _see(_mean().item())


@idiom({"mu": "the model reads its value (__float__)"})
def to_float():
    _see(float(_mean()))


@idiom({"mu": "the model reads its value (tolist)"})
def to_list():
    _see(torch.tensor(_mean().tolist()))


@idiom({"mu": "the model reads its value (numpy)"})
def numpy_round_trip():
    _see(torch.as_tensor(_mean().numpy()))


@idiom({"mu": "the model reads its value (__array__)"})
def numpy_function():
    _see(torch.as_tensor(np.tanh(np.asarray(_mean()))))


@idiom({"mu": "the model reads its value (__array__)"})
def scipy_function():
    _see(torch.as_tensor(scipy.special.expit(np.asarray(_mean()))))


@idiom({"mu": "the model reads its value (__float__)"})
def math_function():
    _see(math.tanh(_mean()))


@idiom()
def printed():
    mu = _mean()
    print(mu)
    _see(mu)


@idiom()
def formatted():
    mu = _mean()
    print(f"{mu:.3f}")
    _see(mu)


@idiom()
def formatted_without_a_form():
    mu = _mean()
    print(f"mu is {mu}")
    _see(mu)


@idiom({"mu": "the model reads its value (__bool__)"})
def asserted():
    mu = _mean()
    assert torch.isfinite(mu).all()
    _see(mu)


@idiom({"mu": "it goes through data_ptr"})
def address_of_the_data():
    mu = _mean()
    mu.data_ptr()
    _see(mu)


@idiom()
def questions_of_shape():
    w = pyro.sample("w", dist.Normal(torch.zeros(2, 3), 1.0).to_event(2))
    n = w.size(0) + w.dim() + len(w) + w.numel() + w.shape[-1] + w.ndim + w.size()[1] + w.nelement()
    yes = w.dtype == torch.float64, w.device.type == "cpu", w.is_floating_point(), torch.is_tensor(w), not w.is_cuda
    assert all(yes)
    assert isinstance(w, torch.Tensor)
    assert w.layout == torch.strided
    _see(w.sum() / n)


@idiom({"mu": "it is written into a tensor in place (setitem)"})
def written_into_zeros():
    mu = _mean()
    out = torch.zeros(6)
    out[:] = mu
    _see(out)


@idiom({"mu": "it is written into a tensor in place (add_)"})
def added_in_place():
    mu = _mean()
    out = torch.zeros(6)
    out.add_(mu)
    _see(out)


@idiom({"mu": "it is written into a tensor in place (fill_)"})
def filled():
    mu = _mean()
    _see(torch.zeros(6).fill_(mu))


@idiom({"mu": "it is written into a tensor in place (mul)"})
def with_an_out_argument():
    mu = _mean()
    out = torch.zeros(())
    torch.mul(mu, 2.0, out=out)
    _see(out)


@idiom(error=WRITTEN_INTO.format("w"))
def in_place_on_a_view_of_a_site():
    w = pyro.sample("w", dist.Normal(torch.zeros(6), 1.0).to_event(1))
    view = w[:3]
    view.mul_(2.0)
    _see(w)


@idiom({"mu": "it is written into a tensor in place (add_)"})
def in_place_on_a_view_of_a_constant():
    mu = _mean()
    base = torch.zeros(6)
    base[:3] += mu
    _see(base)


@idiom({"mu": "it is written into a tensor in place (add_)"})
def assigned_with_plus():
    mu = _mean()
    loc = torch.zeros(6)
    loc += mu
    _see(loc)


@idiom({"mu": "it is written into a tensor in place (add_)"})
def assigned_with_plus_and_another_name():
    mu = _mean()
    loc = torch.zeros(6)
    other = loc
    loc += mu
    _see(other)


@idiom(error=WRITTEN_INTO.format("mu"))
def site_assigned_with_plus():
    mu = _mean()
    mu += 1.0
    _see(mu)


@idiom({"mu": "it is written into a tensor in place (mul_)"})
def product_assigned():
    mu = _mean()
    loc = 2.0 * mu
    loc *= 3.0
    loc -= 1.0
    loc /= 2.0
    _see(loc)


@idiom({"mu": "it goes through scatter"})
def scattered():
    mu = _mean()
    _see(torch.zeros(6).scatter(0, torch.tensor([1]), mu.unsqueeze(0)))


@idiom({"w": "it goes through index_add"})
def index_added():
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    _see(torch.zeros(6).index_add(0, torch.tensor([0, 3, 3]), w))


@idiom({"w": "it reaches aten.expand.default below the level where it is followed"})
def mapped_over():
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    _see(torch.func.vmap(lambda row: (row * w).sum())(features()))


@idiom({"w": "it reaches aten.sum.dim_IntList below the level where it is followed"})
def mapped_over_a_site():
    w = pyro.sample("w", dist.Normal(torch.zeros(6, 3), 1.0).to_event(2))
    _see(torch.func.vmap(lambda row: row.sum())(w))


@idiom({"mu": "it reaches aten.pow.Tensor_Scalar below the level where it is followed"})
def gradient_of_a_function():
    mu = _mean()
    _see(torch.func.grad(lambda m: m**2)(mu))


@idiom({"mu": "it goes through grad"})
def gradient_of_a_graph():
    mu = _mean()
    with torch.enable_grad():
        at = mu.detach().requires_grad_()
        (slope,) = torch.autograd.grad(at**2, at)
    _see(slope)


@torch.jit.script_if_tracing
def _unscripted(x):
    return 2 * x


@idiom()
def only_scripted_while_tracing():
    _see(_unscripted(_mean()))


class Doubled(torch.autograd.Function):
    """A function with a backward pass of its own."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, slope):
        return 2 * slope


@idiom()
def function_of_ones_own():
    _see(Doubled.apply(_mean()))


@idiom()
def numpy_number_times_a_site():
    mu = _mean()
    _see(np.float64(2.0) * mu + np.float32(0.5) * mu + mu * np.int64(2))


@idiom()
def array_times_a_site():
    mu = _mean()
    _see(torch.as_tensor(np.ones(6)) * mu)


@idiom(error=NO_FUNCTION.format("x"))
def swallowed_errors():
    mu = _mean()
    try:
        loc = mu.item()
    except Exception:
        loc = 0.0
    _see(loc)


@idiom(error=NO_FUNCTION.format("x"))
def random_noise_of_the_same_shape():
    mu = _mean()
    _see(mu + torch.rand_like(mu))


@idiom({"mu": "it goes through reduce_ex"})
def copied():
    import copy

    _see(copy.copy(_mean()))


@idiom({"mu": "it goes through deepcopy"})
def copied_deeply():
    import copy

    _see(copy.deepcopy(_mean()))


@idiom()
def stored_on_a_module():
    module = torch.nn.Module()
    module.register_buffer("mu", _mean())
    _see(module.mu)


@idiom({"w": "the model reads its value (__float__)"})
def rebuilt_from_members():
    w = pyro.sample("w", dist.Normal(torch.zeros(6), 1.0).to_event(1))
    _see(torch.tensor([float(v) for v in w]))


@idiom({"a": "the model reads its value (__float__)", "b": "the model reads its value (__float__)"})
def tensor_of_sites():
    a, b = pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(0.0, 1.0))
    _see(torch.tensor([a, b]).sum())


@idiom()
def as_a_tensor():
    _see(torch.as_tensor(_mean()))


@idiom(single=True)
def as_another_type():
    _see(_mean().to(torch.float32).double().type(torch.float64).to("cpu"))


@idiom({"mu": "the model fails on tensors without values (TypeError: a plain tensor is wanted)"})
def raised_by_the_model():
    mu = _mean()
    if type(mu) is not torch.Tensor:
        raise TypeError("a plain tensor is wanted")
    _see(mu)
