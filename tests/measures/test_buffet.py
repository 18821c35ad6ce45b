"""Indian buffets, by the restaurant and by the strip, against their laws and each other."""

import numpy as np
import pytest
from scipy import stats

from pyro_prme.measures import buffet_restaurant, buffet_strip, expected_new_dishes

from .laws import assert_mean, assert_variance

ALPHA, N = 3.0, 12
HARMONIC = (1 / np.arange(1, N + 1)).sum()


def poisson_p_value(counts, mean):
    """Chi-square test of counts against Poisson(mean), the tail in one class."""
    top = int(stats.poisson.ppf(0.995, mean))
    seen = np.bincount(np.minimum(counts, top), minlength=top + 1)
    probability = np.append(stats.poisson.pmf(np.arange(top), mean), stats.poisson.sf(top - 1, mean))
    return stats.chisquare(seen, probability * len(counts)).pvalue


@pytest.mark.parametrize("sampler", [buffet_restaurant, buffet_strip])
def test_dishes_of_a_customer_are_poisson_and_the_total_is_alpha_harmonic(sampler):
    drawn = sampler(N, ALPHA, seed=0, num_draws=5000)
    dishes = drawn.row_sums().values
    for n in (0, N - 1):
        assert poisson_p_value(dishes[:, n], ALPHA) > 1e-3
    assert_mean(dishes.mean(1), ALPHA)
    total = drawn.features_used().values[:, -1]
    assert_mean(total, ALPHA * HARMONIC)
    assert poisson_p_value(total, ALPHA * HARMONIC) > 1e-3


def test_strip_weights_are_the_exponential_of_the_points():
    drawn = buffet_strip(3, ALPHA, seed=1)
    np.testing.assert_allclose(drawn.data["weight"], np.exp(-drawn.data["vartheta"] / ALPHA), rtol=1e-12)


@pytest.mark.parametrize(("concentration", "discount"), [(1.0, 0.0), (2.0, 0.0), (1.0, 0.5), (-0.2, 0.4)])
def test_restaurant_and_strip_agree(concentration, discount):
    draws = 1000
    missing = 0.02 if discount else 1e-3
    one = buffet_restaurant(8, 2.0, concentration, discount, seed=2, num_draws=draws)
    two = buffet_strip(8, 2.0, concentration, discount, missing_mass=missing, seed=3, num_draws=draws)
    expected = expected_new_dishes(8, 2.0, concentration, discount).cumsum()
    for drawn, lost in ((one, 0.0), (two, missing)):
        assert_mean(drawn.row_sums().values, 2.0 - lost)
        assert_mean(drawn.features_used().values, expected - lost * np.arange(1, 9))  # the lost ones hardly overlap
    shared = [(d.Z.isel(object=0) * d.Z.isel(object=7)).sum("feature").values for d in (one, two)]
    assert stats.ttest_ind(*shared).pvalue > 1e-3
    # E sum_k pi_k^2 = M (1 - d) / (1 + c)
    assert_mean(shared[0], 2.0 * (1 - discount) / (1 + concentration))


def test_new_dishes_of_the_three_parameter_buffet():
    np.testing.assert_allclose(expected_new_dishes(5, 3.0), 3.0 / np.arange(1, 6))
    np.testing.assert_allclose(expected_new_dishes(5, 3.0, 2.0), 3.0 * 2.0 / np.arange(2, 7))
    new = np.diff(buffet_restaurant(40, 3.0, 1.0, 0.6, seed=4, num_draws=2000).features_used().values, prepend=0)
    assert_mean(new, expected_new_dishes(40, 3.0, 1.0, 0.6), errors=4.5)
    assert_variance(new.sum(-1), expected_new_dishes(40, 3.0, 1.0, 0.6).sum())


@pytest.mark.parametrize("discount", [0.3, 0.6])
def test_power_law_exponent(discount):
    n = np.array([50, 100, 200, 400, 800])  # new dishes between n and 2n grow as n to the discount
    used = buffet_restaurant(1600, 5.0, 1.0, discount, seed=5, num_draws=40).features_used().values
    new = (used[:, 2 * n - 1] - used[:, n - 1]).mean(0)
    assert abs(np.polyfit(np.log(n), np.log(new), 1)[0] - discount) < 0.05


def test_without_discount_growth_is_logarithmic():
    used = buffet_restaurant(1500, 5.0, seed=6, num_draws=30).features_used().values
    assert_mean(used[:, 1499] - used[:, 149], 5.0 * (1 / np.arange(151, 1501)).sum())


def test_shapes_and_padding():
    drawn = buffet_restaurant(5, 1.0, seed=7, num_draws=50)
    assert drawn.Z.dims == ("draw", "object", "feature")
    assert set(np.unique(drawn.Z)) == {0, 1}
    assert buffet_restaurant(5, 1.0, seed=7).Z.dims == ("object", "feature")
    used = drawn.Z.max("object").values  # dishes come first, padding after
    assert np.all(np.diff(used, axis=-1) <= 0)


@pytest.mark.parametrize("sampler", [buffet_restaurant, buffet_strip])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1.0), "num_objects"),
        ((3, 0.0), "mass"),
        ((3, 1.0, -1.0), "concentration"),
        ((3, 1.0, 1.0, 1.5), "discount"),
    ],
)
def test_wrong_inputs(sampler, arguments, words):
    with pytest.raises(ValueError, match=words):
        sampler(*arguments)
