"""Pictures of training, of random measures and of the model's graph.

`PRME_WRITE_IMAGES=1` writes the reference images anew: look at them before they are committed.
"""

import numpy as np
import pyro
import pytest
import torch
from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch

import pyro_prme as prme
from pyro_prme import measures, plots

from .pictures import WORDS, posterior_of, same_image

HISTORY = [
    {"epoch": i + 1, "bound": -100 / (i + 1) - 50, "bound_name": "ELBO with the epsilon bound on E ln sum Z",
     "terms": {"V": 0.0, "Z": -10 / (i + 1), "X": -90 / (i + 1)}, "topics_in_use": 9 - i}
    | ({"perplexity": 100.0 + 20 / (i + 1)} if i % 2 == 0 else {})
    for i in range(5)
]  # fmt: skip


def test_history_has_a_panel_for_all_it_holds(tmp_path):
    axes = plots.plot_history(HISTORY)
    assert [ax.get_ylabel() for ax in axes] == [
        "bound", "gain of each term\nsince epoch 1", "held-out perplexity", "topics in use"
    ]  # fmt: skip
    assert axes[0].get_title() == HISTORY[0]["bound_name"]
    assert [text.get_text() for text in axes[1].get_legend().get_texts()] == ["Z", "X"]  # V never moves
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), [90 - 90 / (i + 1) for i in range(5)])
    assert axes[2].lines[0].get_xdata().tolist() == [1, 3, 5]
    same_image(axes[0], "history", tmp_path)


def test_a_first_bound_far_below_is_written_and_not_drawn():
    low = [{"epoch": i + 1, "bound": bound} for i, bound in enumerate([-500.0, -60.0, -55.0, -52.0, -51.0])]
    (ax,) = plots.plot_history(low)
    assert ax.lines[0].get_xdata().tolist() == [2, 3, 4, 5]
    assert ax.get_ylim()[0] > -70
    assert ax.texts[0].get_text() == "epoch 1: -500, far below"
    (ax,) = plots.plot_history([{"epoch": 1, "bound": -66.0}, *low[1:]])
    assert ax.lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5]
    assert not ax.texts


def test_history_of_one_epoch_has_no_gains():
    axes = plots.plot_history(HISTORY[:1])
    assert [ax.get_ylabel() for ax in axes] == ["bound", "held-out perplexity", "topics in use"]
    for ax in axes:
        assert [tick for tick in ax.get_xticks() if 0.5 <= tick <= 1.5] == [1]


def test_history_of_a_trainer_and_given_axes(corpus):
    import matplotlib.pyplot as plt

    trainer = prme.Trainer(prme.build(4, 12, 40, embedding_dim=3)[1], corpus)
    axes = plt.figure().subplots(1, 2)
    shown = plots.plot_history(trainer.fit(2), axes=axes)
    assert list(shown) == list(axes)
    assert len(axes[1].lines) >= 4
    fitted = prme.Posterior(trainer.guide, vocabulary=WORDS)
    assert len(plots.plot_paintboxes(fitted, corpus, resolution=5)) == 5
    with pytest.raises(ValueError, match="1 axes for 2 panels"):
        plots.plot_history(trainer.history, axes=axes[:1])


def test_feature_paintbox_and_strip(tmp_path):
    ax = plots.plot_feature_paintbox()
    assert len(ax.collections) == 3
    assert len(ax.lines) == 6
    same_image(ax, "feature_paintbox", tmp_path)
    assert len(plots.plot_feature_paintbox(num_objects=0).lines) == 3
    assert len(plots.plot_feature_paintbox(measures.random_paintbox(3, seed=0, num_draws=2)).lines) == 6


MEASURES = {
    "embedding": lambda: measures.prme(5, 8, seed=0),
    "points": lambda: measures.poisson_strip(10, seed=0),
    "random_measure": lambda: measures.completely_random_measure(measures.GammaLevy(2.0), num_atoms=20, seed=0),
    "kallenberg": lambda: measures.kallenberg_measure(seed=0),
}


@pytest.mark.parametrize("name", MEASURES)
def test_measures_on_the_strip(name, tmp_path):
    ax = plots.plot_strip(MEASURES[name]())
    if name == "embedding":
        assert ax.figure.axes[1].get_ylabel() == "$Z_{nk}$"
    else:  # no colour stands for a number
        assert len(ax.figure.axes) == 1
        assert all(part.get_array() is None for part in ax.collections)
    if name == "kallenberg":
        labels = [text.get_text().split(",")[0] for text in ax.get_legend().get_texts()]
        assert labels == ["diffuse", "lines", "lines", "points", "points"]
    same_image(ax, f"strip_{name}", tmp_path)


def strangers(ax, relations):
    """Sites that a plate's rectangle holds although they are not in the plate."""
    places = {text.get_text(): text.get_position() for text in ax.texts}
    plates = {}
    for plate, sites in relations["plate_sample"].items():
        plates.setdefault(plate.split("__")[0], set()).update(sites)
    boxes = [patch.get_path().get_extents() for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    for box, (_, sites) in zip(boxes, plates.items(), strict=True):
        inside = {site for site in relations["sample_sample"] if box.contains(*places[site])}
        yield inside ^ sites


@pytest.mark.parametrize("model", ["prme", "hdp", "diln"])
def test_model_graph_puts_each_site_into_its_plates(corpus, model, tmp_path):
    from pyro.infer.inspect import get_model_relations

    program, batch = posterior_of(corpus, model).model, prme.Batch.from_csr(corpus.counts, [0, 1])
    state, numbers = torch.get_rng_state(), {name: value.clone() for name, value in program.state_dict().items()}
    assert program.training  # where batch norm would take in what it sees
    ax = plots.plot_model(program, batch)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, numbers[name]) for name, value in program.state_dict().items())
    relations = get_model_relations(program, (batch,), include_deterministic=True)
    if model == "prme":
        assert relations["sample_sample"]["Z"] == ["V", "f"]
    assert not any(strangers(ax, relations))
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == sum(map(len, relations["sample_sample"].values()))
    ellipses = [patch for patch in ax.patches if isinstance(patch, Ellipse)]
    assert sum(patch.get_facecolor()[0] < 1 for patch in ellipses) == 1  # the words
    assert sum(patch.get_linestyle() == "--" for patch in ellipses) == (model == "prme")  # f, a function of h and ell
    same_image(ax, f"model_{model}", tmp_path)


@pytest.mark.parametrize("size", [6.0, 2.0])
def test_names_fit_the_model_s_graph_in_given_axes(corpus, posterior, size):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(size, size))
    assert plots.plot_model(posterior.model, prme.Batch.from_csr(corpus.counts, [0, 1]), ax=ax) is ax
    figure.canvas.draw()
    ellipses = {tuple(patch.center): patch.get_window_extent() for patch in ax.patches if isinstance(patch, Ellipse)}
    for text in ax.texts:
        if text.get_position() in ellipses:
            assert text.get_window_extent().width < ellipses[text.get_position()].width


def test_model_graph_by_graphviz(corpus, posterior):
    pytest.importorskip("graphviz")
    pyro.clear_param_store()
    graph = plots.plot_model(posterior.model, prme.Batch.from_csr(corpus.counts, [0, 1]), backend="graphviz")
    assert "ell -> f" in graph.source
    assert "f -> Z" in graph.source
    assert not pyro.get_param_store()
