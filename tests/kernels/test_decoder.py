"""The decoder's layers on all pairs, against the same layers written as torch modules."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from pyro_prme.kernels import decoder as kernel
from pyro_prme.models.networks.layers import Decoder

DOCUMENTS, TOPICS = 9, 6


class Plain(Decoder):
    """The reference: every layer a module of torch, every gradient autograd's."""

    def rows(self, x: Tensor, y: Tensor) -> Tensor:
        pairs = (x.unsqueeze(-2) + y).relu()
        return self.head(self.stack(self.norm(pairs.flatten(0, 1)))).unflatten(0, pairs.shape[:2])


def pair_of(hidden: tuple[int, ...], batch_norm: bool) -> tuple[Decoder, Plain]:
    """Two decoders with the same weights, none of them special, whose norms have seen some batches."""
    decoder = Decoder(TOPICS, 3, 2, hidden, batch_norm=batch_norm)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        for _ in range(3):
            decoder(torch.randn(DOCUMENTS, 3), torch.randn(TOPICS, 2))
    plain = Plain(TOPICS, 3, 2, hidden, batch_norm=batch_norm)
    plain.load_state_dict(decoder.state_dict())
    return decoder, plain


def inputs(documents: int = DOCUMENTS) -> tuple[Tensor, Tensor]:
    return torch.randn(documents, 3, requires_grad=True), torch.randn(TOPICS, 2, requires_grad=True)


def gradients(decoder: Decoder, h: Tensor, ell: Tensor) -> list[Tensor]:
    """Of a loss in which every output has a weight of its own."""
    mean, variance = decoder(h, ell)
    weight = torch.linspace(-1, 1, mean.numel(), dtype=mean.dtype).reshape(mean.shape)
    loss = (weight * mean).sum() + (weight.square() * variance).sum()
    return [mean, variance, *torch.autograd.grad(loss, [h, ell, *decoder.parameters()])]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("hidden", [(7,), (7, 5), (6, 6, 4)])
def test_values_and_gradients_are_those_of_torch(hidden, batch_norm, training):
    decoder, plain = (one.train(training) for one in pair_of(hidden, batch_norm))
    h, ell = inputs()
    for found, expected in zip(gradients(decoder, h, ell), gradients(plain, h, ell), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    for found, expected in zip(decoder.buffers(), plain.buffers(), strict=True):  # running moments, and their number
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_gradients_against_finite_differences():
    decoder, _ = pair_of((7, 5), True)
    h, ell = inputs()
    assert torch.autograd.gradcheck(lambda h, ell: decoder.topic_centred(h, ell), (h, ell))


@pytest.mark.parametrize("block", [1, 2 * TOPICS, 10_000])
def test_blocks_without_a_gradient_do_not_show(monkeypatch, block):
    monkeypatch.setattr(kernel, "_BLOCK", block)
    decoder, plain = (one.eval() for one in pair_of((7, 5), True))
    h, ell = inputs()
    with torch.no_grad():
        found, expected = decoder(h, ell), plain(h, ell)
    assert not found[0].requires_grad
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_passes_that_overlap_do_not_share_memory():
    """Two forward passes and then both backward passes, as with two particles; the second twice."""
    decoder, plain = pair_of((7, 5), True)
    (h, ell), (other, _) = inputs(), inputs(5)
    grads = []
    for one in (decoder, plain):
        first, second = (one(x, ell)[0].square().sum() for x in (h, other))
        grads.append([*torch.autograd.grad(first, [h, ell])])
        grads[-1] += torch.autograd.grad(second, [other, ell], retain_graph=True)
        grads[-1] += torch.autograd.grad(second, [other, ell])
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_memory_is_used_again_once_a_pass_is_over():
    """At most three tables at a time: two layers' values, and gradients of which the older is gone by then."""
    decoder, _ = pair_of((7, 5), True)
    (h, ell), addresses = inputs(), []
    for _ in range(3):
        decoder(h, ell)[0].sum().backward()
        addresses.append({memory.ctypes.data for memory in decoder.memory._free})
    assert addresses[0] == addresses[1] == addresses[2]
    assert 3 <= len(addresses[0]) <= 4


def test_copies_and_files_of_a_decoder_hold_no_working_memory():
    decoder, plain = pair_of((7, 5), True)
    assert list(decoder.state_dict()) == list(plain.state_dict())
    gradients(decoder, *inputs())
    assert decoder.memory._free
    for other in (copy.deepcopy(decoder), pickle.loads(pickle.dumps(decoder))):
        assert not other.memory._free
