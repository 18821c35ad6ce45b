"""A Gaussian process for f: its kernel, its gradient, and what is refused."""

import math

import pytest
import torch

from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.data import Rows
from pyro_prme.inference.rules import AmortisedNormal
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.count_rows import NegativeBinomialRows, PoissonRows
from pyro_prme.models.gaussian_process import GaussianProcessPRME
from pyro_prme.models.priors import LogNormalLoadings
from pyro_prme.models.prme import ShapePRME
from pyro_prme.models.real_rows import GaussianRows
from pyro_prme.models.simulation import simulate
from tests.models.swapped import D, K, N, corpus, make


def test_the_covariance_is_the_kernel():
    model = GaussianProcessPRME(K, D, N, amplitude=2.0, length_scale=0.5, nugget=0.1, ell_dim=2)
    ell = torch.randn(K, 2)
    S = model.covariance(ell).detach()
    expected = 4 * math.exp(-float((ell[0] - ell[1]).square().sum()) / (2 * 0.25))
    assert float(S[0, 1]) == pytest.approx(expected)
    torch.testing.assert_close(S.diagonal(), torch.full((K,), 4.1))


def test_kernel_and_places_move_by_gradients():
    model = make("Gaussian process")
    guide = PRMEGuide(model)
    trainer = Trainer(guide, Counts(corpus()), TrainOptions(batch_size=N, learning_rate=0.05))
    before = model.log_amplitude.item(), model.log_length_scale.item(), guide.posterior("ell").v.clone()
    trainer.fit(5)
    assert abs(model.log_amplitude.item() - before[0]) > 0.05
    assert abs(model.log_length_scale.item() - before[1]) > 0.05
    assert float((guide.posterior("ell").v - before[2]).norm()) > 0.05


def test_the_gradient_of_the_kernel_is_that_of_the_bound():
    """By finite differences, with what was found for the documents held."""
    from pyro_prme.inference import RunOptions

    model = make("Gaussian process")
    guide = PRMEGuide(model)
    batch = Batch.from_csr(corpus())
    guide.plan(batch)
    held = RunOptions(held=guide.run(batch).local)
    guide.run(batch, options=held).objective().backward()
    slope = model.log_amplitude.grad.item()
    bounds = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            model.log_amplitude += step
            bounds.append(float(guide.run(batch, options=held).bound()))
    assert (bounds[0] - bounds[1]) / 2e-5 == pytest.approx(slope, rel=1e-5)


def test_wrong_settings_are_refused():
    for name in ("amplitude", "length_scale", "nugget"):
        with pytest.raises(ValueError, match=f"{name} is 0.0: it must be a finite number above 0"):
            GaussianProcessPRME(K, D, N, **{name: 0.0})


def test_a_kernel_without_numbers_stops_the_fit():
    model = make("Gaussian process")
    trainer = Trainer(PRMEGuide(model), Counts(corpus()), TrainOptions(batch_size=10))
    model.log_amplitude.data.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"The covariance of f is not finite|log_amplitude is not finite"):
        trainer.fit(1)


@pytest.mark.parametrize("likelihood", [PoissonRows, NegativeBinomialRows, GaussianRows])
def test_with_rows_f_is_read_from_them_by_a_network(likelihood):
    """The update of f that goes with loadings of words does not serve them."""
    torch.manual_seed(0)
    model = type("Combined", (likelihood, GaussianProcessPRME), {})(K, D, N, ell_dim=2)
    guide = PRMEGuide(model)
    trainer = Trainer(guide, Rows(simulate(model, N, seed=1)[0]), TrainOptions(batch_size=15, learning_rate=0.02))
    assert guide.plan()["f"].update == "Normal from the inference network, reparameterised gradient"
    bounds = [record["bound"] for record in trainer.fit(3)]
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize(
    ("other", "settings", "reason"),
    [
        (ShapePRME, {"h_dim": 3}, "The update of f does not hold in this model: it is in the shape of a Gamma"),
        (LogNormalLoadings, {}, r"needs a model that has it linearly and as exp\(-f\) alone"),
    ],
)
def test_a_function_that_enters_the_loadings_otherwise_says_so_and_goes_with_another_rule(other, settings, reason):
    kinds = (GaussianProcessPRME, other) if other is ShapePRME else (other, GaussianProcessPRME)
    model = type("Combined", kinds, {})(K, D, N, ell_dim=2, **settings)
    with pytest.raises(ValueError, match=reason):
        Trainer(PRMEGuide(model), Counts(corpus()), TrainOptions(batch_size=15)).fit(1)
    guide = PRMEGuide(model, rules={"f": AmortisedNormal(model.default_network)})
    bounds = [r["bound"] for r in Trainer(guide, Counts(corpus()), TrainOptions(batch_size=15)).fit(4)]
    assert bounds[-1] > bounds[0]
