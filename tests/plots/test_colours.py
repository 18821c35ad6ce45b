"""Colours of the pictures: told apart in grey and by those who do not see red or green; the simulation itself."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from pyro_prme.plots import style
from pyro_prme.plots._common import DIVERGING, MARKERS, OKABE_ITO

from .colour_vision import MATRICES, encoded, lab, linear, pictures, seen, sheet


def apart(first, second, kind):
    """How far two colours look apart, in units of about the smallest difference that can be seen."""
    return float(np.linalg.norm(lab(seen(to_rgb(first), kind)) - lab(seen(to_rgb(second), kind))))


def test_the_simulation_keeps_greys_and_confuses_what_people_confuse():
    greys = np.linspace(0, 1, 9)[:, None].repeat(3, 1)
    np.testing.assert_allclose(encoded(linear(greys)), greys, atol=1e-12)
    for kind in MATRICES:
        np.testing.assert_allclose(seen(greys, kind), greys, atol=1e-4)
    np.testing.assert_allclose(lab(np.ones(3)), [100, 0, 0], atol=0.1)
    np.testing.assert_allclose(lab(np.array([1.0, 0, 0])), [53.2, 80.1, 67.2], atol=0.2)  # the table's red
    plain = np.linalg.norm(lab(np.array(to_rgb("#c05030"))) - lab(np.array(to_rgb("#607a20"))))
    assert plain > 50
    assert apart("#c05030", "#607a20", "deuteranopia") < plain / 4
    assert apart("red", "black", "protanopia") < apart("red", "black", "deuteranopia")  # red is dark without its cones


@pytest.mark.parametrize("kind", ["protanopia", "deuteranopia"])
def test_the_colours_are_told_apart_without_red_or_green_cones(kind):
    assert min(apart(*pair, kind) for pair in combinations(OKABE_ITO, 2)) > 10
    assert all(apart(colour, "white", kind) > 20 for colour in OKABE_ITO)


def test_each_colour_has_a_mark_of_its_own_since_grey_confuses_them():
    assert min(apart(*pair, "grey") for pair in combinations(OKABE_ITO, 2)) < 10
    assert len(set(MARKERS)) == len(OKABE_ITO)


@pytest.mark.parametrize("kind", ["protanopia", "deuteranopia"])
def test_signs_of_correlations_are_seen(kind):
    negative, positive = (mpl.colormaps[DIVERGING](x)[:3] for x in (0.15, 0.85))
    assert apart(negative, positive, kind) > 30


def test_a_sheet_has_four_versions(tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 30), OKABE_ITO[1]).save(tmp_path / "one.png")
    ((name, picture),) = pictures(tmp_path)
    page = np.asarray(sheet(picture))
    assert name == "one"
    assert page.shape == (60, 80, 3)
    assert np.ptp(page[10, 60]) == 0  # in grey
    assert len({tuple(page[y, x]) for y in (10, 40) for x in (10, 60)}) == 4


def test_the_style_of_the_course_has_a_dash_a_mark_and_a_hatch_for_each_colour():
    import matplotlib.pyplot as plt

    looks = (style.COLOURS, style.STYLES, style.MARKS, style.HATCHES)
    assert [len(set(look)) for look in looks] == [4, 4, 4, 4]
    with mpl.rc_context():
        style.use_style(dpi=123)
        assert plt.rcParams["figure.dpi"] == 123
        assert not plt.subplots()[1].spines["top"].get_visible()


def test_a_minus_stands_where_values_are_clearly_negative():
    import matplotlib.pyplot as plt

    ax = plt.subplots()[1]
    style.mark_negative(ax, np.array([[1.0, -0.2, -0.3], [-0.9, 0.0, 0.9]]), -0.25, 1.0)
    (marks,) = ax.collections
    assert [tuple(place) for place in marks.get_offsets()] == [(2, 0), (0, 1)]
    assert marks.get_facecolors()[:, 0].tolist() == [0.0, 1.0]  # white on the dark one
