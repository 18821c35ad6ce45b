"""Row sums and edges: what the paper's propositions say must grow, grows, and what must not, does not."""

import numpy as np
import pytest

from pyro_prme.measures import (
    GammaLevy,
    GeneralizedGammaLevy,
    Growth,
    edge_growth,
    empty_matrix_experiment,
    graphon,
    hierarchical_dirichlet_process,
    prme,
    random_decoder,
    zero_decoder,
)

from .laws import assert_mean


def test_row_sums_of_a_prme_settle_and_those_of_a_graphon_do_not():
    decoder, base = random_decoder(seed=0), GeneralizedGammaLevy(1.0, discount=0.5)
    growth = empty_matrix_experiment(num_objects=20, base=base, decoder=decoder, seed=1)
    assert growth.data["size"].values[-1] == 100_000
    sums = growth.data.sel(construction="PRME").values
    assert np.all(np.isfinite(sums))
    # what 10^5 columns add beyond 10^4 is below the bound: missing mass of 10^4 atoms times E exp(f)
    assert sums[-1] - sums[-2] < 5 * decoder.bound * base.expected_missing_mass(10_000)
    exponents = growth.exponents()
    assert abs(float(exponents.sel(construction="PRME"))) < 1e-2
    assert float(exponents.sel(construction="graphon, mean 0.5")) == pytest.approx(1, abs=0.02)
    assert float(exponents.sel(construction="graphon, mean 0.01")) == pytest.approx(1, abs=0.1)
    assert np.all(growth.data.sel(construction="graphon, mean 0") == 0)
    assert float(growth.data.sel(construction="graphon, mean 0.5")[-1]) == pytest.approx(50_000, rel=0.01)


def test_the_truncation_layer_bounds_what_further_columns_add():
    decoder, base = random_decoder(seed=8), GeneralizedGammaLevy(1.0, discount=0.5)
    drawn = prme(5, 100_000, beta=1.0, base=base, decoder=decoder, seed=9)
    expected, p = drawn.data["expected"].values, drawn.data["p"].values
    assert drawn.data["missing"] < 1e-4  # so the sums below are those of all columns, but for that
    for K in (100, 1_000, 10_000):
        added, least = expected[:, K:].sum(1), np.exp(-decoder.mean_bound) * p[K:].sum()
        assert np.all((added > least) & (added < decoder.bound * p[K:].sum()))
        beyond = p[K:].sum() + drawn.data["missing"].item()  # its relative standard deviation is about 1 / sqrt(K)
        assert beyond == pytest.approx(base.expected_missing_mass(K), rel=5 / np.sqrt(K))


def test_graphons_have_the_means_they_are_named_by():
    growth = empty_matrix_experiment((10, 1000), num_objects=400, graphon_means=(0.5, 0.2, 0.02), seed=2)
    for mean in (0.5, 0.2, 0.02):  # a mean over 400 rows of 4 w u K / 2: standard deviation 3%
        assert float(growth.data.sel(construction=f"graphon, mean {mean:g}")[-1]) == pytest.approx(
            1000 * mean, rel=0.13
        )


def test_expected_row_sum_of_a_prme_does_not_depend_on_the_truncation():
    means = []
    for num_atoms in (100, 1000):
        drawn = prme(20, num_atoms, beta=2.0, decoder=random_decoder(seed=2), seed=3, num_draws=200)
        means.append(drawn.row_sums().mean("object").values)
    error = np.sqrt(sum(m.var(ddof=1) / m.size for m in means))
    assert abs(means[0].mean() - means[1].mean()) < 4 * error
    assert_mean(hierarchical_dirichlet_process(1, 1000, beta=2.0, seed=4, num_draws=500).row_sums().values, 2.0)


def test_a_separately_exchangeable_matrix_with_small_row_sums_is_nearly_empty():
    # row sums stay near 1 only if the mean is 1/K, and then each entry is 1 with probability 1/K
    for num_features in (100, 1000):
        Z = graphon(50, num_features, lambda u, v, K=num_features: (u + v) / K, seed=5, num_draws=40).Z
        assert_mean(Z.sum("feature").mean("object"), 1.0)
        assert_mean(Z.mean(["object", "feature"]), 1 / num_features)


def test_edges_grow_linearly_and_those_of_a_graphon_quadratically():
    exponents = [edge_growth(seed=seed).exponents() for seed in range(6)]
    mean = sum(exponents) / len(exponents)
    assert float(mean.sel(construction="PRME")) == pytest.approx(1, abs=0.1)
    assert float(mean.sel(construction="Indian buffet")) == pytest.approx(1, abs=0.05)
    assert float(mean.sel(construction="graphon, K = N")) == pytest.approx(2, abs=0.1)


def test_edges_per_object_of_a_prme_are_bounded():
    decoder = random_decoder(seed=6)
    growth = prme(1000, 200, beta=5.0, decoder=decoder, seed=7, num_draws=10).row_sums().cumsum("object")
    per_object = (growth / (np.arange(1000) + 1.0)).isel(object=[9, 99, 999]).values
    assert np.all(per_object.mean(0) < 5.0 * decoder.bound)
    assert per_object.mean(0)[2] == pytest.approx(per_object.mean(0)[1], rel=0.05)


def test_runs_are_a_batch_with_the_law_of_single_ones():
    """Ten objects have 5 edges each in a buffet of mass 5, and K / 4 each in a graphon of mean 1/4."""
    growth = edge_growth((5, 10), seed=11, num_draws=300)
    assert growth.data.dims == ("draw", "construction", "size")
    assert growth.exponents().dims == ("draw", "construction")
    for i in (0, 299):
        np.testing.assert_allclose(growth.exponents()[i], Growth(growth.data[i], "N").exponents())
    last = growth.data.isel(size=-1)
    assert_mean(last.sel(construction="Indian buffet"), 50.0)
    assert_mean(last.sel(construction="graphon, K = N"), 25.0)


def test_row_sums_of_a_batch_have_their_means():
    """A PRME with f = 0 has the mass of its base, and a graphon of mean w has w K."""
    growth = empty_matrix_experiment(
        (10, 100), 5, (0.5, 0.1), base=GammaLevy(2.0), decoder=zero_decoder, seed=12, num_draws=1000
    )
    assert growth.data.dims == ("draw", "construction", "size")
    assert_mean(growth.data.sel(construction="PRME").values[:, 1], 2.0)
    for mean in (0.5, 0.1):
        assert_mean(growth.data.sel(construction=f"graphon, mean {mean:g}").values, np.array([10, 100]) * mean)


def test_exponents_of_a_known_power():
    import xarray as xr

    sizes = np.array([1, 10, 100, 1000])
    data = xr.DataArray([sizes**1.5, 7 * sizes], coords={"construction": ["a", "b"], "size": sizes})
    for last in (2, 3, 4):  # sizes
        np.testing.assert_allclose(Growth(data[:, -last:], "N").exponents(), [1.5, 1.0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: empty_matrix_experiment(num_features=[10]), "at least two rising"),
        (lambda: empty_matrix_experiment(num_features=[100, 10]), "at least two rising"),
        (lambda: edge_growth(num_objects=[0, 10]), "num_objects"),
    ],
)
def test_wrong_inputs(make, words):
    with pytest.raises(ValueError, match=words):
        make()
