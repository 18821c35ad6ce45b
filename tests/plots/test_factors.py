"""The picture of a factor model: factors, loadings and cells are what the guide says."""

import numpy as np
import pytest
import torch

import pyro_prme as prme
from pyro_prme import plots

from .pictures import same_image

K, D, N = 3, 9, 30


def fitted(kind=prme.GaussianPRME, epochs=30, **settings):
    """Blocks of three columns each, fitted."""
    torch.manual_seed(0)
    model = kind(K, D, N, h_dim=3, ell_dim=2, **settings)
    blocks = 2 * torch.kron(torch.eye(K), torch.ones(D // K, 1))  # (D, K)
    Z = torch.kron(torch.eye(K), torch.ones(N // K, 1)) * (1 + torch.rand(N, 1))
    X = Z @ blocks.mT
    counts = kind in (prme.PoissonPRME, prme.NegativeBinomialPRME)
    rows = prme.Rows(torch.poisson(5 * X) if counts else X + 0.3 * torch.randn(N, D))
    guide = prme.PRMEGuide(model)
    prme.Trainer(guide, rows, prme.TrainOptions(batch_size=N, learning_rate=0.02)).fit(epochs)
    return prme.Posterior(guide), rows


def test_panels_show_the_posterior_means(tmp_path):
    posterior, rows = fitted()
    factors, loadings, cells = plots.plot_factors(posterior, rows)
    Z, theta = posterior.loadings(rows).values, posterior.factors().values
    order = [int(text.get_text()) for text in factors.get_yticklabels()]
    np.testing.assert_allclose(factors.images[0].get_array(), theta[order])
    assert [int(text.get_text()) for text in loadings.get_xticklabels()] == order
    parts = (Z * np.abs(theta).sum(1)).mean(0)
    assert (np.diff(parts[order]) <= 0).all()
    shown = loadings.images[0].get_array()
    np.testing.assert_allclose(np.sort(shown, 0), np.sort(Z[:, order], 0))
    assert (np.diff((shown * np.abs(theta).sum(1)[order]).argmax(1)) >= 0).all(), "rows are sorted by main factor"
    observed, mean = cells.collections[0].get_offsets().T
    np.testing.assert_allclose(observed, rows.values.numpy().ravel())
    np.testing.assert_allclose(mean, (Z @ theta).ravel())
    low, high = factors.images[0].get_clim()
    assert low == -high, "real-valued factors have colours to either side of zero"
    y, x = np.nonzero(theta[order] < -high / 4)
    marked = [tuple(place) for marks in factors.collections for place in marks.get_offsets()]
    assert sorted(marked) == sorted(zip(x, y, strict=True)), "a minus shows the sign in grey"
    same_image(factors, "factors", tmp_path)
    with pytest.raises(ValueError, match="may be negative and are no topics"):
        posterior.topics()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (prme.PoissonPRME, {"beta": 20.0}),
        (prme.PoissonPRME, {"beta": 20.0, "factors": "gamma"}),
        (prme.NegativeBinomialPRME, {"beta": 20.0}),
        (prme.BinaryPRME, {}),
    ],
)
def test_every_likelihood_has_its_picture(kind, settings):
    posterior, rows = fitted(kind, **settings)
    factors, loadings, cells = plots.plot_factors(posterior, rows)
    assert loadings.images[0].get_clim()[0] == 0
    assert (factors.images[0].get_clim()[0] == 0) == (kind is not prme.BinaryPRME)
    mean = cells.collections[0].get_offsets()[:, 1]
    assert np.corrcoef(mean, rows.values.numpy().ravel())[0, 1] > 0.5


def test_equal_cells_have_no_variance_to_share():
    guide = prme.PRMEGuide(prme.PoissonPRME(K, D, N, h_dim=3, ell_dim=2))
    rows = prme.Rows(torch.full((N, D), 2.0))
    guide.plan(*rows.batch())
    cells = plots.plot_factors(prme.Posterior(guide), rows)[2]
    assert cells.get_title() == "cells"


def test_wrong_objects_are_refused():
    posterior, rows = fitted(epochs=1)
    with pytest.raises(ValueError, match="The posterior is a PRMEGuide"):
        plots.plot_factors(posterior.guide, rows)
    with pytest.raises(ValueError, match=r"The rows are a Tensor: give Rows"):
        plots.plot_factors(posterior, rows.values)
    with pytest.raises(ValueError, match="There are 2 axes: give three"):
        plots.plot_factors(posterior, rows, axes=[None, None])
