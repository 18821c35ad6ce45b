"""LazyAdam against torch's SparseAdam, and what it leaves alone."""

import copy

import pytest
import torch
from torch import nn

from pyro_prme.inference.lazy_adam import LazyAdam, move_rows


def _train(optimizer: type, steps: int = 6, **settings: object) -> nn.Embedding:
    torch.manual_seed(0)
    table = nn.Embedding(50, 7, sparse=True)
    optimizer = optimizer(table.parameters(), lr=0.05, **settings)
    targets = torch.randn(50, 7)
    for step in range(steps):
        words = torch.randperm(50, generator=torch.Generator().manual_seed(step))[:20]
        words = torch.cat([words, words[:3]])  # a word twice: its gradients add up
        optimizer.zero_grad()
        (table(words) - targets[words]).square().sum().backward()
        optimizer.step()
    return table


def test_same_weights_as_sparse_adam() -> None:
    theirs, ours = _train(torch.optim.SparseAdam), _train(LazyAdam)
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-10, atol=1e-12)


def test_compiled_rows_agree_with_the_torch_form(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = _train(LazyAdam)
    monkeypatch.setattr("pyro_prme.inference.lazy_adam._move_rows_compiled", move_rows)
    torch.testing.assert_close(compiled.weight, _train(LazyAdam).weight, rtol=1e-10, atol=1e-12)


def test_rows_without_a_gradient_stay() -> None:
    table = nn.Embedding(10, 3, sparse=True)
    before = table.weight.detach().clone()
    optimizer = LazyAdam(table.parameters())
    table(torch.tensor([2, 5])).sum().backward()
    optimizer.step()
    moved = (table.weight != before).any(-1)
    assert moved.nonzero().squeeze(-1).tolist() == [2, 5]


def test_dense_gradient_is_refused() -> None:
    table = nn.Embedding(10, 3)
    optimizer = LazyAdam(table.parameters())
    table(torch.tensor([2])).sum().backward()
    with pytest.raises(ValueError, match="sparse=True"):
        optimizer.step()


def test_state_goes_on_as_if_never_interrupted() -> None:
    torch.manual_seed(1)
    table, other = nn.Embedding(10, 3, sparse=True), nn.Embedding(10, 3, sparse=True)
    first = LazyAdam(table.parameters())
    for _ in range(3):
        first.zero_grad()
        table(torch.tensor([1, 2])).square().sum().backward()
        first.step()
    other.load_state_dict(table.state_dict())
    second = LazyAdam(other.parameters())
    second.load_state_dict(copy.deepcopy(first.state_dict()))  # torch would share the moments
    for one, optimizer in ((table, first), (other, second)):
        optimizer.zero_grad()
        one(torch.tensor([1, 2])).square().sum().backward()
        optimizer.step()
    assert torch.equal(table.weight, other.weight)
