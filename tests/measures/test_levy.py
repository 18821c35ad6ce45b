"""Levy tails: T and its inverse, missing mass, and T as the integral of its density."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from pyro_prme.measures import BetaLevy, GammaLevy, GeneralizedGammaLevy, StableBetaLevy

from . import digits

NO_LEVEL = [  # a hundredth of their mean lies below the smallest double, or above all doubles below 1
    GeneralizedGammaLevy(1e3, discount=1 - 1e-6),
    StableBetaLevy(1.0, concentration=-0.2999, discount=0.3),
]
LEVIES = [
    GammaLevy(2.0, rate=3.0),
    GammaLevy(0.01),
    GeneralizedGammaLevy(2.0, discount=0.5, rate=0.7),
    GeneralizedGammaLevy(1.0, discount=1e-3),
    GeneralizedGammaLevy(1.0, discount=1e-9, rate=1e-3),
    GeneralizedGammaLevy(1.0, discount=0.9),
    *NO_LEVEL,
    BetaLevy(3.0),
    BetaLevy(2.0, concentration=0.1),
    BetaLevy(2.0, concentration=3.3),
    BetaLevy(2.0, concentration=15.884804189334938),
    BetaLevy(2.0, concentration=100.0),
    BetaLevy(2.0, concentration=1e6),
    StableBetaLevy(2.0, concentration=1.0, discount=0.5),
    StableBetaLevy(2.0, concentration=-0.3, discount=0.5),
    StableBetaLevy(1.0, concentration=10.0, discount=1e-3),
    StableBetaLevy(1.0, concentration=2.0, discount=1e-9),
    StableBetaLevy(1.0, concentration=0.5, discount=0.95),
    StableBetaLevy(1.0, concentration=1e5, discount=0.4),
]
each_levy = pytest.mark.parametrize("levy", LEVIES, ids=repr)


@each_levy
def test_tail_of_inverse_is_identity(levy):
    u = levy.mass * np.logspace(-4, 2, 601)
    x = levy.inverse_tail(u)
    held = (x > 0) & ((x < 1 - 1e-7) | (levy.upper > 1))  # nearer to 1 a double cannot hold 1 - x
    assert held.sum() > 200
    np.testing.assert_allclose(levy.tail(x[held]), u[held], rtol=1e-8)


@each_levy
def test_inverse_of_tail_is_identity(levy):
    top = 1 - 1e-7 if levy.upper == 1 else 200 / levy.rate
    x = np.logspace(-300, np.log10(top), 601)
    x = x[levy.tail(x) > 1e-100]
    np.testing.assert_allclose(levy.inverse_tail(levy.tail(x)), x, rtol=1e-8)


@each_levy
def test_tail_is_the_integral_of_the_density(levy):
    for low, high in ((1e-6, 1e-3), (1e-3, 0.2), (0.2, 0.9)):
        area = integrate.quad(
            lambda z: np.exp(z) * levy.density(np.exp(z)), np.log(low), np.log(high), epsabs=0, epsrel=1e-10
        )[0]
        np.testing.assert_allclose(levy.tail(low) - levy.tail(high), area, rtol=1e-8)


@each_levy
def test_mean_below_is_the_integral_of_weight_times_density(levy):
    for low, high in ((1e-6, 1e-3), (1e-3, 0.5)):
        area = integrate.quad(
            lambda z: np.exp(2 * z) * levy.density(np.exp(z)), np.log(low), np.log(high), epsabs=0, epsrel=1e-10
        )[0]
        rounding = 1e-15 * levy.mean_below(high)
        np.testing.assert_allclose(levy.mean_below(high) - levy.mean_below(low), area, rtol=1e-8, atol=rounding)
    if levy not in NO_LEVEL:
        level = levy.level_of_mean(0.01 * levy.mean)
        np.testing.assert_allclose(levy.mean_below(level), 0.01 * levy.mean, rtol=1e-10)


def test_known_inverses():
    u = np.array([0.1, 1.0, 30.0])
    np.testing.assert_allclose(BetaLevy(1.0).inverse_tail(u), np.exp(-u), rtol=1e-15)
    np.testing.assert_allclose(GammaLevy(2.0).inverse_tail(2 * special.exp1(u)), u, rtol=1e-10)
    # d = 1/2, c = 1/2: nu(dx) = M x^(-3/2) dx / 2 up to 1, so T(x) = M (x^(-1/2) - 1)
    np.testing.assert_allclose(StableBetaLevy(1.0, 0.5, 0.5).inverse_tail(u), (1 + u) ** -2.0, rtol=1e-10)


@pytest.mark.parametrize("c", [0.06, 7.4026, 15.884804189334938, 63.87, 100.0])
def test_beta_tail_where_the_hypergeometric_function_of_scipy_fails(c):
    j = np.arange(60_000)
    for x in (6e-4, 1.5e-3, 2.7e-3, 0.02, 1 / (c + 2), 0.48, 0.9):
        series = np.sum(c / (c + j) * np.exp((c + j) * np.log1p(-x)))  # all terms positive
        np.testing.assert_allclose(BetaLevy(1.0, c).tail(x), series, rtol=1e-9, atol=1e-14)


def test_tails_to_sixty_digits():
    rng = np.random.default_rng(0)
    for _ in range(150):
        near_0, anywhere, near_1 = 10 ** rng.uniform(-15, -1), rng.uniform(), 1 - 10 ** rng.uniform(-6, -1)
        d = float(rng.choice([0.0, near_0, anywhere, near_1]))
        y = 10 ** rng.uniform(-8, 2)
        assert abs(GeneralizedGammaLevy(1.0, d).tail(y) / digits.gamma_tail(y, d) - 1) < 1e-13, (d, y)
        c = float(rng.choice([10 ** rng.uniform(-3, 6), 10 ** rng.uniform(-6, 0) - d]))
        x = float(rng.choice([10 ** rng.uniform(-8, 0), 1 - 10 ** rng.uniform(-7, 0)]))
        if c > -d and -c * np.log1p(-x) < 200:  # a tail above about exp(-200)
            assert abs(StableBetaLevy(1.0, c, d).tail(x) / digits.stable_beta_tail(x, c, d) - 1) < 1e-10, (d, c, x)


def test_outside_the_support():
    for levy in LEVIES:
        np.testing.assert_array_equal(levy.tail([-1.0, 0.0, np.inf]), [np.inf, np.inf, 0.0])
        np.testing.assert_array_equal(levy.density([-1.0, np.inf]), 0.0)
    assert BetaLevy(1.0, 3.0).tail(1.5) == BetaLevy(1.0, 3.0).density(1.5) == BetaLevy(1.0, 3.0).tail(1.0) == 0
    assert np.isnan(BetaLevy(1.0).tail(np.nan))


def test_ends_of_the_half_line():
    assert GammaLevy(1.0).inverse_tail([0.0, np.inf]).tolist() == [np.inf, 0.0]
    assert BetaLevy(1.0).inverse_tail([0.0, np.inf]).tolist() == [1.0, 0.0]
    assert GammaLevy(1.0).inverse_tail(1e4) == 0  # below the smallest double


def test_small_discounts_meet_the_special_case():
    x = np.array([1e-5, 0.1, 0.8])
    np.testing.assert_allclose(GeneralizedGammaLevy(1.0, 1e-13).tail(x), GammaLevy(1.0).tail(x), rtol=1e-11)
    np.testing.assert_allclose(StableBetaLevy(1.0, 2.0, 1e-13).tail(x), BetaLevy(1.0, 2.0).tail(x), rtol=1e-11)


@given(
    mass=st.floats(0.01, 100),
    concentration=st.floats(0.001, 1e4),
    discount=st.floats(0, 0.999),
    fraction=st.floats(1e-3, 50),
)
@settings(deadline=None, max_examples=60)
def test_stable_beta_round_trip_everywhere(mass, concentration, discount, fraction):
    levy = StableBetaLevy(mass, concentration, discount)
    x = levy.inverse_tail(mass * fraction)
    if 1e-300 < x < 1 - 1e-7:
        np.testing.assert_allclose(levy.tail(x), mass * fraction, rtol=1e-8)


@pytest.mark.parametrize("num_atoms", [1, 5, 60, 2000])
def test_expected_missing_mass_of_the_buffet(num_atoms):
    # mean_below(T^-1(u)) = M exp(-u / M), and E exp(-s theta_K) = (1 + s)^-K
    np.testing.assert_allclose(BetaLevy(3.0).expected_missing_mass(num_atoms), 3 * 0.75**num_atoms, rtol=1e-11)


@pytest.mark.parametrize(
    "levy",
    [GammaLevy(0.05), GammaLevy(50.0), GeneralizedGammaLevy(0.01, 0.3, 100.0), StableBetaLevy(0.1, 2.5, 0.5)],
    ids=repr,
)
@pytest.mark.parametrize("num_atoms", [1, 2, 10])
def test_expected_missing_mass_over_the_last_weight(levy, num_atoms):
    # the last weight x has density nu(x) T(x)^(K - 1) exp(-T(x)) / (K - 1)!
    def term(z):
        x, tail = np.exp(z), levy.tail(np.exp(z))
        density = x * levy.density(x) * np.exp(special.xlogy(num_atoms - 1, tail) - tail)
        return levy.mean_below(x) * density / special.factorial(num_atoms - 1)

    top = 0.0 if levy.upper == 1 else np.log(100 / levy.rate)
    cuts = np.linspace(top - 200, top, 200)
    expected = sum(integrate.fixed_quad(term, low, high, n=30)[0] for low, high in pairwise(cuts))
    np.testing.assert_allclose(levy.expected_missing_mass(num_atoms), expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GammaLevy(0.0), "mass"),
        (lambda: GammaLevy(1.0, rate=-1.0), "rate"),
        (lambda: GammaLevy(float("nan")), "mass"),
        (lambda: GeneralizedGammaLevy(1.0, discount=1.0), "discount"),
        (lambda: GeneralizedGammaLevy(1.0, discount=-1e-6), "discount"),
        (lambda: StableBetaLevy(1.0, discount=float("nan")), "discount"),
        (lambda: StableBetaLevy(1.0, concentration=float("nan")), "concentration"),
        (lambda: BetaLevy(1.0, concentration=None), "concentration"),
        (lambda: StableBetaLevy(1.0, concentration=-0.6, discount=0.5), "concentration"),
        (lambda: BetaLevy(1.0, concentration=1e7), "concentration"),
        (lambda: GammaLevy(1.0).inverse_tail([-1.0]), "negative"),
        (lambda: GammaLevy(1.0).level_of_mean(2.0), "missing mass"),
        (lambda: GammaLevy(1.0).expected_missing_mass(0), "num_atoms"),
    ],
)
def test_wrong_parameters(make, words):
    with pytest.raises(ValueError, match=words):
        make()
