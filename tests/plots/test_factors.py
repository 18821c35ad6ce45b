"""The picture of a factor model: factors, loadings and cells are what the guide says."""

import numpy as np
import pytest
import torch

from pyro_prme import HDP, Batch, plots, swaps
from pyro_prme.guide import PRMEGuide

from .pictures import same_image

K, D, N = 3, 9, 30


def fitted(kind=swaps.GaussianPRME, epochs=30, **settings):
    """Blocks of three columns each, fitted."""
    torch.manual_seed(0)
    model = kind(K, D, N, h_dim=3, ell_dim=2, **settings)
    blocks = 2 * torch.kron(torch.eye(K), torch.ones(D // K, 1))  # (D, K)
    Z = torch.kron(torch.eye(K), torch.ones(N // K, 1)) * (1 + torch.rand(N, 1))
    X = Z @ blocks.mT
    X = torch.poisson(5 * X) if isinstance(model, swaps.PoissonPRME) else X + 0.3 * torch.randn(N, D)
    guide = model.make_guide()
    swaps.fit(guide, model.batch_of(X), epochs, learning_rate=0.02)
    return guide, model.batch_of(X), X


def test_panels_show_the_posterior_means(tmp_path):
    guide, batch, X = fitted()
    factors, loadings, cells = plots.plot_factors(guide, batch, draws=50)
    means = swaps.posterior_means(guide, batch, 50)
    Z, theta = means.loadings.numpy(), means.factors.numpy()
    order = [int(text.get_text()) for text in factors.get_yticklabels()]
    np.testing.assert_allclose(factors.images[0].get_array(), theta[order])
    assert [int(text.get_text()) for text in loadings.get_xticklabels()] == order
    parts = (Z * np.abs(theta).sum(1)).mean(0)
    assert (np.diff(parts[order]) <= 0).all()
    shown = loadings.images[0].get_array()
    np.testing.assert_allclose(np.sort(shown, 0), np.sort(Z[:, order], 0))
    assert (np.diff((shown * np.abs(theta).sum(1)[order]).argmax(1)) >= 0).all(), "rows are sorted by main factor"
    observed, mean = cells.collections[0].get_offsets().T
    np.testing.assert_allclose(observed, X.numpy().ravel())
    np.testing.assert_allclose(mean, (Z @ theta).ravel())
    low, high = factors.images[0].get_clim()
    assert low == -high, "real-valued factors have colours to either side of zero"
    same_image(factors, "factors", tmp_path)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (swaps.PoissonPRME, {"beta": 20.0}),
        (swaps.PoissonPRME, {"beta": 20.0, "factors": "gamma"}),
        (swaps.NegativeBinomialPRME, {"beta": 20.0}),
        (swaps.BinaryPRME, {}),
    ],
)
def test_every_likelihood_has_its_picture(kind, settings):
    guide, batch, X = fitted(kind, 60, **settings)
    factors, loadings, cells = plots.plot_factors(guide, batch, draws=50)
    assert loadings.images[0].get_clim()[0] == 0
    assert (factors.images[0].get_clim()[0] == 0) == (kind is not swaps.BinaryPRME)
    mean = cells.collections[0].get_offsets()[:, 1]
    assert np.corrcoef(mean, X.numpy().ravel())[0, 1] > 0.5


def test_equal_cells_have_no_variance_to_share():
    model = swaps.PoissonPRME(K, D, N, h_dim=3, ell_dim=2)
    batch = model.batch_of(torch.full((N, D), 2.0))
    cells = plots.plot_factors(model.make_guide(), batch, draws=2)[2]
    assert cells.get_title() == "cells"


def test_wrong_objects_are_refused():
    guide, batch, _ = fitted(epochs=1)
    with pytest.raises(ValueError, match="give its fitted guide"):
        plots.plot_factors(PRMEGuide(HDP(2, 3, 4)), batch)
    with pytest.raises(ValueError, match="no values to compare with"):
        plots.plot_factors(guide, swaps.Rows.drawn(3, D))
    with pytest.raises(ValueError, match="no values to compare with"):
        plots.plot_factors(guide, Batch.to_draw([0, 0]))
    with pytest.raises(ValueError, match="There are 2 axes: give three"):
        plots.plot_factors(guide, batch, axes=[None, None])
