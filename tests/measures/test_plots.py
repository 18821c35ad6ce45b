"""Every labelled object plots itself, into given axes or new ones, and shows its data."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from pyro_prme import measures as m


@pytest.fixture(autouse=True)
def _agg():
    with mpl.rc_context():
        plt.switch_backend("agg")
        yield
        plt.close("all")


OBJECTS = {
    "paintbox": lambda: m.random_paintbox(3, seed=0),
    "paintboxes": lambda: m.random_paintbox(3, seed=0, num_draws=2),
    "partition": lambda: m.PartitionPaintbox(np.array([0.5, 0.3])),
    "coded partition": lambda: m.random_paintbox(3, seed=0).to_partition(),
    "points": lambda: m.poisson_strip(20, seed=0, num_draws=2),
    "measure": lambda: m.completely_random_measure(m.GammaLevy(2.0), num_atoms=20, seed=0),
    "buffet": lambda: m.buffet_restaurant(10, 3.0, seed=0),
    "empty": lambda: m.graphon(4, 4, lambda u, v: 0 * u * v, seed=0),
    "prme": lambda: m.prme(10, 20, seed=0, num_draws=2),
    "kallenberg": lambda: m.kallenberg_measure(seed=0, num_draws=2),
    "kallenberg without g": lambda: m.kallenberg_measure(num_clusters=0, seed=0),
    "drift": lambda: m.drifting_prme(20, 10, seed=0),
    "growths": lambda: m.edge_growth((10, 30), seed=0, num_draws=2),
    "growth": lambda: m.edge_growth((10, 30), seed=0),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_plots_into_given_and_new_axes(name):
    thing = OBJECTS[name]()
    ax = plt.subplots()[1]
    assert thing.plot(ax) is ax
    assert ax.has_data()
    new = thing.plot()
    assert new is not ax
    new.figure.canvas.draw()


def test_discs_sit_at_the_atoms_and_grow_with_the_loading():
    drawn = m.prme(5, 6, seed=1)
    ax = drawn.plot()
    dots = ax.collections[-1]
    n, k = np.nonzero(drawn.Z.values)
    np.testing.assert_allclose(dots.get_offsets(), np.column_stack([drawn.sigma.values[k], drawn.tau.values[n]]))
    order = np.argsort(drawn.Z.values[n, k])
    assert np.all(np.diff(dots.get_sizes()[order]) >= 0)


def test_kallenberg_parts_are_four_panels():
    axes = m.kallenberg_measure(seed=0).plot_parts()
    assert len(axes) == 4
    assert len({ax.get_title() for ax in axes}) == 4


def test_a_part_that_was_left_out_is_not_drawn():
    measure = m.kallenberg_measure(num_clusters=0, column_lines=0.0, row_lines=0.0, diffuse=0.0, seed=0)
    ax = measure.plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["points, $f$"]
    axes = measure.plot_parts()
    assert [ax.has_data() for ax in axes] == [True, False, False, False]


def test_paintbox_points_are_drawn_in_every_box():
    box = m.random_paintbox(3, seed=0)
    ax = box.plot(points=np.array([[0.2, 0.4], [0.6, 0.7]]))
    marked = [line for line in ax.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in marked] == [3, 3]
