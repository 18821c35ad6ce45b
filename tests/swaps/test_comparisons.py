"""A swapped model against the unswapped one on held-out data of its own, as `benchmarks/swaps.py` measures it."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from benchmarks.swaps import COMPARISONS, RESULTS, measured

#: Comparisons in which the swapped model is not better than the other by three standard errors and on 90% of the seeds.
#: Many documents say themselves what a prior of sticks or f would, and a learned decoder what a prior of ell would.
NOT_WON = {
    "Gaussian process against the decoder, 300 documents",
    "horseshoe against Normal embeddings, h not given, 8 documents",
    "horseshoe against Normal embeddings, h not given, 12 documents",
    "horseshoe against Normal embeddings, h not given, 20 documents",
    "Pitman-Yor against GEM sticks, 300 documents",
    "symmetric Dirichlet against GEM weights, 300 documents",
    "the same, both trained a third as long",
}


def is_won(row):
    won, seeds = map(int, row["seeds won"].split(" of "))
    return row["gain"] > 3 * row["error"] and won >= 0.9 * seeds


def test_the_stored_table_has_every_comparison_and_says_which_are_won():
    rows = {row["comparison"]: row for row in json.loads(RESULTS.read_text())["comparisons"]}
    assert list(rows) == list(COMPARISONS)
    assert {name for name, row in rows.items() if not is_won(row)} == NOT_WON


@pytest.mark.parametrize(
    ("name", "margin"),
    [
        ("learned gamma0 against 0.2", 0.02),
        pytest.param("negative-binomial against Poisson counts", 2.0, marks=pytest.mark.slow),
        pytest.param("Poisson against negative-binomial counts", 0.3, marks=pytest.mark.slow),
        pytest.param("binary against non-negative loadings", 0.5, marks=pytest.mark.slow),
        pytest.param("covariates against none", 0.04, marks=pytest.mark.slow),
        pytest.param("log-normal against Gamma loadings", 0.01, marks=pytest.mark.slow),
        pytest.param("Gaussian process against f = 0", 0.05, marks=pytest.mark.slow),
        pytest.param("Gaussian process against the decoder", 0.02, marks=pytest.mark.slow),
        ("horseshoe against Normal embeddings", 0.02),
        ("horseshoe against Normal embeddings, of scale 0.3", 0.01),
        ("Pitman-Yor against GEM sticks", 0.04),
        pytest.param("learned discount against GEM sticks", 0.04, marks=pytest.mark.slow),
        pytest.param("symmetric Dirichlet against GEM weights", 0.02, marks=pytest.mark.slow),
    ],
)
def test_a_swap_is_better_on_data_of_its_own(name, margin):
    """On each of two seeds, and by the margin in their mean; margins are half of the stored gains or less."""
    row = measured(name, range(2))
    assert row["seeds won"] == "2 of 2"
    assert row["gain"] > margin
