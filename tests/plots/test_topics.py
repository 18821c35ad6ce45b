"""Pictures of topics: usage, the heat map and the graph of correlations.

`PRME_WRITE_IMAGES=1` writes the reference images anew: look at them before they are committed.
"""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.patches import PathPatch

from pyro_prme import plots
from pyro_prme.answers.places import leaf_order

from .pictures import posterior_of, same_image


def test_usage_is_ranked_and_overlays_compare_models(corpus, posterior, tmp_path):
    ax = plots.plot_usage(posterior, corpus)
    shares = np.sort(posterior.usage(corpus).values)[::-1]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), shares)
    plots.plot_usage(posterior_of(corpus, "hdp"), label="flat", ax=ax)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0].startswith("ShapePRME: ")
    assert labels[0].endswith("topics hold 99%")
    assert labels[1].startswith("flat: ")
    assert ax.get_ylim()[1] > max(line.get_ydata().max() for line in ax.lines)
    assert ax.lines[0].get_marker() != ax.lines[1].get_marker()
    same_image(ax, "usage", tmp_path)


def test_logarithmic_usage_leaves_out_topics_that_nobody_uses(corpus, posterior):
    posterior.guide.topics.gamma[:, 3] = 0.2
    ax = plots.plot_usage(posterior, log=True)
    assert ax.get_yscale() == "log"
    shown = ax.lines[0].get_ydata()
    assert np.isnan(shown[-1])
    assert ax.get_ylim()[0] < np.nanmin(shown)  # no curve leaves through the floor
    assert all(float(tick).is_integer() for tick in ax.get_xticks())  # ranks


def test_heat_map_shows_the_correlations_reordered(corpus, posterior, tmp_path):
    ax = plots.plot_correlations(posterior, corpus)
    order = [int(text.get_text()) for text in ax.get_xticklabels()]
    matrix = posterior.topic_correlations(corpus).values
    np.testing.assert_allclose(ax.images[0].get_array(), matrix[np.ix_(order, order)])
    assert ax.images[0].get_clim() == (-1, 1)
    marked = {(int(y), int(x)) for x, y in ax.collections[0].get_offsets()}
    assert marked == set(map(tuple, np.argwhere(matrix[np.ix_(order, order)] < -0.25).tolist()))
    assert [text.get_text().split("  ")[1] for text in ax.get_yticklabels()] == [str(k) for k in order]
    assert "correlation over documents" in ax.figure.axes[1].get_ylabel()
    same_image(ax, "correlations", tmp_path)


def test_neighbours_on_the_heat_map_correlate():
    groups = np.kron(np.eye(3), np.ones((4, 4)))
    mixed = np.random.default_rng(0).permutation(12)
    order = mixed[leaf_order(groups[np.ix_(mixed, mixed)])] // 4
    assert (np.diff(order) != 0).sum() == 2


def test_graph_has_the_strongest_edges_and_all_labels(corpus, posterior, tmp_path):
    ax = plots.plot_correlation_graph(posterior, corpus, num_edges=3)
    edges = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    upper = np.abs(posterior.topic_correlations(corpus).values[np.triu_indices(4, 1)])
    assert len(edges) == 3
    assert f"from {np.sort(upper)[-3]:.2f} up" in ax.get_legend().get_title().get_text()
    assert max(edge.get_linewidth() for edge in edges) == edges[-1].get_linewidth()
    order = [text.get_text().split("  ")[1] for text in ax.get_yticklabels()]
    assert sorted(order) == ["0", "1", "2", "3"]
    matrix = posterior.topic_correlations(corpus).values
    for edge in edges:  # from a topic's row to another's, in the style of the sign
        i, j = (int(order[int(y)]) for y in edge.get_path().vertices[[0, -1], 1])
        assert (edge.get_linestyle() == "-") == (matrix[i, j] > 0)
    same_image(ax, "correlation_graph", tmp_path)


def test_arcs_stay_inside_the_axes_and_end_at_their_rows(corpus):
    ax = plots.plot_correlation_graph(posterior_of(corpus, num_topics=6), corpus, topics=range(6))
    left, right = ax.get_xlim()
    for patch in ax.patches:
        box = patch.get_path().get_extents()
        assert left < box.x0 <= box.x1 < right
        assert -0.5 < box.y0 < box.y1 < 5.5


@pytest.mark.parametrize(("plot", "low"), [(plots.plot_correlations, 0.9), (plots.plot_correlation_graph, 1.2)])
def test_labels_fit_the_rows_of_given_axes(corpus, plot, low):
    import matplotlib.pyplot as plt

    six = posterior_of(corpus, num_topics=6)
    for height, shrunk in ((4.0, False), (low, True)):
        figure, ax = plt.subplots(figsize=(4, height), layout="constrained")
        plot(six, corpus, topics=range(6), ax=ax)
        figure.canvas.draw()
        size = ax.get_yticklabels()[0].get_fontsize()
        assert {text.get_fontsize() for text in ax.get_xticklabels()} <= {size}
        assert (size < 8) == shrunk
        boxes = sorted((text.get_window_extent() for text in ax.get_yticklabels()), key=lambda box: box.y0)
        assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))


def test_an_hdp_has_no_correlations_of_a_function(corpus):
    hdp = posterior_of(corpus, "hdp")
    for plot in (plots.plot_correlations, plots.plot_correlation_graph):
        plot(hdp, corpus)
        with pytest.raises(ValueError, match="kind='roots'"):
            plot(hdp, corpus, kind="function")
