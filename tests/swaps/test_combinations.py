"""Swaps in one class: they have one guide together, or a sentence says why they do not go together."""

import numpy as np
import pytest
import torch
from torch import nn

from pyro_prme import PRME, Batch, ShapePRME, swaps
from pyro_prme.guide import PRMEGuide
from pyro_prme.swaps import (
    BinaryPRME,
    CovariatePRME,
    GaussianPRME,
    GaussianProcessPRME,
    HorseshoePRME,
    NegativeBinomialPRME,
    PoissonPRME,
)
from pyro_prme.train import Trainer

K, D, N = 4, 12, 30
SIZE = {"h_dim": 3, "ell_dim": 2}
LIKELIHOODS = [GaussianPRME, BinaryPRME, PoissonPRME, NegativeBinomialPRME]


def combined(*kinds, **kwargs):
    torch.manual_seed(0)
    if CovariatePRME in kinds:
        kwargs["metadata"] = np.random.default_rng(0).normal(size=(N, 2))
    return type("Combined", kinds, {})(K, D, N, **SIZE, **kwargs)


def data(model):
    return model.batch_of(swaps.simulate(model, N, seed=1)[0])


def corpus():
    return swaps.simulate_corpus(PRME(K, D, N, **SIZE), [20] * N, seed=1)[0]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_metadata_go_with_every_likelihood(likelihood, first):
    """In either order: g reads rows, and h the metadata with them."""
    model = combined(*((CovariatePRME, likelihood) if first else (likelihood, CovariatePRME)))
    batch, guide = data(model), model.make_guide()
    encoder = guide.plan(batch).rules["h"].encoder
    assert [type(part).__name__ for part in (encoder, encoder.encoder)] == ["CovariateEncoder", "RowEncoder"]
    history = swaps.fit(guide, batch, 8)
    assert history[-1] > history[0]
    with torch.no_grad():
        before = guide.embeddings(batch)
        model.metadata = model.metadata + torch.tensor([1.0, 0.0])
        shift = model.effect[0] - encoder.less[0]
        torch.testing.assert_close(guide.embeddings(batch) - before, shift.expand(N, -1))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_gaussian_process_goes_with_every_likelihood(likelihood, first):
    """DILN's update of f is that of the topic model: the plan refuses it for rows, and says so."""
    model = combined(*((GaussianProcessPRME, likelihood) if first else (likelihood, GaussianProcessPRME)))
    batch, guide = data(model), model.make_guide()
    plan = guide.plan(batch)
    assert type(plan.rules["f"]).__name__ == "EncodedNormal"
    assert "f is updated with Z as in the topic model, and there is no site C" in str(plan)
    history = swaps.fit(guide, batch, 8)
    assert history[-1] > history[0]


@pytest.mark.parametrize(("other", "rule"), [(HorseshoePRME, "KernelFunction"), (ShapePRME, "EncodedNormal")])
def test_a_gaussian_process_goes_with_other_priors(other, rule):
    model, batch = combined(GaussianProcessPRME, other), Batch.from_csr(corpus())
    guide = model.make_guide()
    assert type(guide.plan(batch).rules["f"]).__name__ == rule
    history = swaps.fit(guide, batch, 8)
    assert history[-1] > history[0]


@pytest.mark.parametrize(("num_factors", "num_columns"), [(3, 6), (6, 4)])
@pytest.mark.parametrize("kind", [GaussianPRME, BinaryPRME])
def test_a_guide_whose_network_cannot_read_the_factors_says_what_to_take(kind, num_factors, num_columns):
    model = kind(num_factors, num_columns, N, **SIZE)
    with pytest.raises(ValueError, match=r"theta of this model is no such table: take the guide of `model.make_guide"):
        PRMEGuide(model).plan(data(model))
    assert len(swaps.fit(model.make_guide(), data(model), 2)) == 2


# metadata put in place of others


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", [np.asarray, torch.as_tensor, np.ndarray.tolist, lambda x: x.astype(np.float32)])
def test_metadata_of_every_kind_are_put_in_place(form, default):
    torch.set_default_dtype(default)
    model, x = combined(CovariatePRME), np.arange(2.0 * N).reshape(N, 2)
    model.metadata = form(x)
    torch.testing.assert_close(model.metadata, torch.as_tensor(x, dtype=default))
    assert "metadata" in model.state_dict()
    assert len(swaps.fit(model.make_guide(), Batch.from_csr(corpus()), 2)) == 2


@pytest.mark.parametrize("wrong", [[["a", "b"]] * N, np.full((N, 2), np.nan), None])
def test_metadata_that_are_no_numbers_are_refused_when_put_in_place(wrong):
    with pytest.raises(ValueError, match="not a finite number"):
        combined(CovariatePRME).metadata = wrong


# numbers that are none


class NotANumber(nn.Module):
    def forward(self, h, ell):
        mean = (h @ ell.new_zeros(ell.shape[-1], h.shape[-1]).mT) @ ell.mT
        return mean * torch.nan, torch.ones_like(mean)


def trained(model):
    return Trainer(model, PRMEGuide(model), corpus(), batch_size=10).fit(1)


def fitted(model):
    return swaps.fit(PRMEGuide(model), Batch.from_csr(corpus()), 1)


@pytest.mark.parametrize("run", [trained, fitted])
def test_a_decoder_without_numbers_stops_the_fit(run):
    model = PRME(K, D, N, decoder=NotANumber(), **SIZE)
    with pytest.raises(ValueError, match="The decoder's mean or variance of f is not finite"):
        run(model)


@pytest.mark.parametrize("run", [trained, fitted])
def test_a_kernel_without_numbers_stops_the_fit(run):
    model = GaussianProcessPRME(K, D, N, **SIZE)
    model.log_amplitude.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="The covariance of f is not finite"):
        run(model)
