"""A swapped model against the unswapped one on held-out data of its own, as `benchmarks/swaps.py` measures it."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from benchmarks.swaps import COMPARISONS, RESULTS, measured


def test_the_stored_table_has_every_comparison():
    rows = {row["comparison"]: row for row in json.loads(RESULTS.read_text())["comparisons"]}
    assert list(rows) == list(COMPARISONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "margin"),
    [
        ("binary against non-negative loadings", 0.5),
        ("horseshoe against Normal embeddings", 0.0),
        ("Pitman-Yor against GEM sticks", 0.0),
    ],
)
def test_a_swap_is_better_on_data_of_its_own(name, margin):
    """In the mean of two seeds, by the margin."""
    assert measured(name, range(2))["gain"] > margin
