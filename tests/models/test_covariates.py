"""Metadata that shift the documents' embeddings: the effect is a regression, and the network reads the metadata."""

import numpy as np
import pytest
import torch

from pyro_prme.corpora.batch import Batch
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.trainer import Trainer, TrainOptions
from pyro_prme.models.covariates import CovariatePRME
from tests.models.swapped import EMBEDDED, D, K, N, corpus, make, metadata


def fitted(model):
    guide = PRMEGuide(model)
    Trainer(guide, Counts(corpus()), TrainOptions(batch_size=N, learning_rate=0.02)).fit(10)
    return guide


def embeddings(guide, batch):
    with torch.no_grad():
        return guide.eval().embeddings(batch)


def test_the_effect_has_the_posterior_of_a_regression_of_h_on_the_metadata():
    """Covariance (x'x / a + I / s^2)^-1 for each column of W, and the mean that goes with it."""
    model = CovariatePRME(K, D, N, metadata=metadata(), h_scale=0.5, effect_scale=2.0, **EMBEDDED)
    guide = fitted(model)
    with torch.no_grad():
        run = guide.eval().run(Batch.from_csr(corpus()))
    claim = guide.claim("W")
    claim.gather(run)
    claim.natural_step(1.0)
    h, x = run.factor("h").squeeze(-2), model.metadata
    precision = x.mT @ x / 0.25 + torch.eye(2) / 4
    mean = torch.linalg.solve(precision, x.mT @ h / 0.25)  # (Q, h_dim)
    q = guide.posterior("W")
    torch.testing.assert_close(q.mean, mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(q.variance, torch.linalg.inv(precision).diagonal().unsqueeze(-1).expand(2, 3))


def test_the_network_reads_the_metadata_that_stand_in_the_model():
    guide = fitted(make("covariates"))
    model, batch = guide.model, Batch.from_csr(corpus())
    before = embeddings(guide, batch)
    model.metadata = model.metadata + torch.tensor([1.0, 0.0])
    shift = guide.claim("h").encoder.effect[0].detach()
    assert shift.norm() > 0.01
    torch.testing.assert_close(embeddings(guide, batch) - before, shift.expand(N, -1))


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", [np.asarray, torch.as_tensor, np.ndarray.tolist, lambda x: x.astype(np.float32)])
def test_metadata_of_every_kind_are_put_in_place(form, default):
    torch.set_default_dtype(default)
    model, x = make("covariates"), np.arange(2.0 * N).reshape(N, 2)
    model.metadata = form(x)
    torch.testing.assert_close(model.metadata, torch.as_tensor(x, dtype=default))
    assert "metadata" in model.state_dict()


@pytest.mark.parametrize("wrong", [[["a", "b"]] * N, np.full((N, 2), np.nan), None])
def test_metadata_that_are_no_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="not a finite number"):
        make("covariates").metadata = wrong
    with pytest.raises(ValueError, match="not a finite number"):
        CovariatePRME(K, D, N, metadata=wrong)


def test_metadata_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="metadata has shape"):
        CovariatePRME(K, D, N, metadata=torch.ones(3, 1))
    with pytest.raises(ValueError, match="effect_scale is 0"):
        CovariatePRME(K, D, N, metadata=metadata(), effect_scale=0)
    model = make("covariates")
    model.metadata = torch.ones(N, 3)
    with pytest.raises(ValueError, match="was built with 2 columns"):
        model(Batch.from_csr(corpus()))
    model.metadata = torch.ones(3, 2)
    with pytest.raises(ValueError, match="need 30 rows or more"):
        model(Batch.from_csr(corpus()))
