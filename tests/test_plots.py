"""Pictures: what they show, compared by structure; where nothing is fitted or drawn, also with reference images.

`PRME_WRITE_IMAGES=1` writes the reference images anew: look at them before they are committed.
"""

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyro
import pytest
import torch
from matplotlib.colors import LogNorm
from matplotlib.patches import ConnectionPatch, Ellipse, FancyArrowPatch, FancyBboxPatch, PathPatch
from scipy import sparse

import pyro_prme as prme
from pyro_prme import measures, plots

mpl.use("Agg")

IMAGES = Path(__file__).parent / "reference_images"
WORDS = ("ark", "bee", "cow", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kid", "lamb")
TOPICS = np.kron(np.eye(4), np.ones(3)) + 0.02


@pytest.fixture(autouse=True)
def _plain_style():
    import matplotlib.pyplot as plt

    with mpl.style.context("default"), mpl.rc_context({"font.family": "DejaVu Sans"}):
        yield
    plt.close("all")


@pytest.fixture
def corpus():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([0.4] * 4, size=40)
    counts = np.stack([rng.multinomial(30, row @ (TOPICS / TOPICS.sum(1, keepdims=True))) for row in shares])
    return prme.Corpus(counts, WORDS, tuple(f"text {n}" for n in range(40)))


def posterior_of(corpus, model="prme", num_topics=4, vocabulary=WORDS):
    """A model whose every number is set by hand, so that pictures are the same everywhere."""
    program, guide = prme.build(num_topics, corpus.vocab_size, len(corpus), model=model, embedding_dim=3)
    guide.plan(prme.Batch.from_csr(corpus.counts, [0, 1]))
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for part in (program, guide):
            for name, parameter in sorted(part.named_parameters()):
                scale = 1.5 / np.sqrt(parameter.shape[-1]) if parameter.dim() > 1 else 0.3
                parameter.copy_(torch.as_tensor(rng.normal(size=tuple(parameter.shape)) * scale + ("norm" in name)))
        guide.rules["V"].set(torch.tensor([0.4, 0.45, 0.5, 0.5, 0.5])[: num_topics - 1])
        gamma = np.resize(TOPICS, (num_topics, 12)) * np.array([300, 200, 100, 50, 1, 1])[:num_topics, None] + 0.2
        guide.rules["theta"].set(torch.as_tensor(gamma.T))
    return prme.Posterior(program, guide, vocabulary=vocabulary)


@pytest.fixture
def posterior(corpus):
    return posterior_of(corpus)


def same_image(ax, name, tmp_path, tolerance=12.0):
    """The figure is near the stored one: layouts and colours must agree, fonts may be rendered a little differently."""
    from matplotlib.testing.compare import compare_images

    path = IMAGES / f"{name}.png"
    drawn = path if os.environ.get("PRME_WRITE_IMAGES") else tmp_path / f"{name}.png"
    ax.figure.savefig(drawn, dpi=55, metadata={"Software": None})
    assert drawn == path or compare_images(str(path), str(drawn), tolerance) is None


# Topics.


def test_usage_is_ranked_and_overlays_compare_models(corpus, posterior, tmp_path):
    ax = plots.plot_usage(posterior, corpus)
    shares = np.sort(posterior.usage(corpus).values)[::-1]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), shares)
    plots.plot_usage(posterior_of(corpus, "hdp"), label="flat", ax=ax)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0].startswith("PRME: ")
    assert labels[0].endswith("topics hold 99%")
    assert labels[1].startswith("flat: ")
    assert ax.get_ylim()[1] > max(line.get_ydata().max() for line in ax.lines)
    assert ax.lines[0].get_marker() != ax.lines[1].get_marker()
    same_image(ax, "usage", tmp_path)


def test_logarithmic_usage_leaves_out_topics_that_nobody_uses(corpus, posterior):
    posterior.guide.rules["theta"].gamma[:, 3] = 0.2
    ax = plots.plot_usage(posterior, log=True)
    assert ax.get_yscale() == "log"
    assert np.isnan(ax.lines[0].get_ydata()[-1])


def test_heat_map_shows_the_correlations_reordered(corpus, posterior, tmp_path):
    ax = plots.plot_correlations(posterior, corpus)
    order = [int(text.get_text()) for text in ax.get_xticklabels()]
    matrix = posterior.topic_correlations(corpus).values
    np.testing.assert_allclose(ax.images[0].get_array(), matrix[np.ix_(order, order)])
    assert ax.images[0].get_clim() == (-1, 1)
    assert [text.get_text().split("  ")[1] for text in ax.get_yticklabels()] == [str(k) for k in order]
    assert "correlation over documents" in ax.figure.axes[1].get_ylabel()
    same_image(ax, "correlations", tmp_path)


def test_neighbours_on_the_heat_map_correlate():
    groups = np.kron(np.eye(3), np.ones((4, 4)))
    mixed = np.random.default_rng(0).permutation(12)
    order = mixed[plots._common.leaf_order(groups[np.ix_(mixed, mixed)])] // 4
    assert (np.diff(order) != 0).sum() == 2


def test_graph_has_the_strongest_edges_and_all_labels(corpus, posterior, tmp_path):
    ax = plots.plot_correlation_graph(posterior, corpus, num_edges=3)
    edges = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    upper = np.abs(posterior.topic_correlations(corpus).values[np.triu_indices(4, 1)])
    assert len(edges) == 3
    assert f"from {np.sort(upper)[-3]:.2f} up" in ax.get_legend().get_title().get_text()
    assert max(edge.get_linewidth() for edge in edges) == edges[-1].get_linewidth()
    assert {text.get_text().strip("abcdefghijklmnopqrstuvwxyz, ") for text in ax.texts} == {"0", "1", "2", "3"}
    same_image(ax, "correlation_graph", tmp_path)


def test_an_hdp_has_posterior_correlations_only(corpus):
    hdp = posterior_of(corpus, "hdp")
    for plot in (plots.plot_correlations, plots.plot_correlation_graph):
        plot(hdp, corpus, kind="posterior")
        with pytest.raises(ValueError, match="kind='posterior'"):
            plot(hdp, corpus)


# Paintboxes and documents.


def test_paintboxes_are_the_mean_loadings_on_the_plane(corpus, posterior, tmp_path):
    axes = plots.plot_paintboxes(posterior, corpus, topics=[2, 0], documents=[3, 7], resolution=11, num_words=2)
    assert len(axes) == 3
    h = posterior.embeddings(corpus).values
    half = axes[0].get_xlim()[1]
    assert axes[0].images[0].get_extent() == [-half, half, -half, half]
    assert half >= np.quantile(np.abs(np.linalg.svd(h - h.mean(0), full_matrices=False)[0][:, :2]).max(1), 0.99)
    V, ell = posterior.guide.rules["V"].value(), posterior.guide.rules["ell"].value()
    with torch.no_grad(), prme.prototype.eval_mode(posterior.model):
        mean, variance = posterior.model.decoder(torch.as_tensor(h.mean(0)[None]), ell)
        centre = (posterior.model.concentration(V) * (mean + variance / 2).exp())[0].numpy()
    for ax in axes[:2]:
        box = np.asarray(ax.images[0].get_array())
        assert box.shape == (11, 11)
        assert box.max() == pytest.approx(1)
    absolute = plots.plot_paintboxes(posterior, corpus, topics=[2, 0], documents=[], resolution=11, scale="strength")
    for ax, k in zip(absolute, (2, 0), strict=True):
        assert ax.images[0].get_array()[5, 5] == pytest.approx(centre[k])
    assert isinstance(absolute[0].images[0].norm, LogNorm)
    assert absolute[0].images[0].norm is absolute[1].images[0].norm
    same_image(axes[0], "paintboxes", tmp_path)


def test_paintboxes_have_words_documents_lines_and_one_colour_bar(corpus, posterior):
    axes = plots.plot_paintboxes(posterior, corpus, documents=[3, 7], resolution=8, num_words=3)
    figure, plane = axes[0].figure, axes[-1]
    assert len(axes) == 5
    assert len(figure.axes) == 6
    assert "topic strength" in figure.axes[-1].get_xlabel()
    texts = [text.get_text().splitlines() for text in figure.texts]
    assert sorted(len(lines) for lines in texts) == [4, 4, 4, 4]
    assert all("topic" in lines[0] for lines in texts)
    top = posterior.top_words(3, by="frex").to_numpy().tolist()
    assert sorted(lines[1:] for lines in texts) == sorted(top)
    joins = [artist for artist in figure.artists + figure.patches if isinstance(artist, ConnectionPatch)]
    marks = sum(len(ax.lines) for ax in axes[:-1])
    assert len(joins) == marks >= 2
    legend = [text.get_text() for text in plane.get_legend().get_texts()]
    assert legend == ["all 40 documents", "text 3", "text 7"]


def test_default_paintboxes_choose_topics_and_documents(corpus, posterior):
    axes = plots.plot_paintboxes(posterior, corpus, num_topics=3, num_documents=2, resolution=6, limit=0.2)
    assert len(axes) == 4
    assert axes[0].get_xlim() == (-0.2, 0.2)
    assert len(set(axes[-1].get_legend().get_texts())) == 3


@pytest.mark.parametrize("num_topics", [2, 6])
def test_odd_words_names_and_sizes_are_written_as_they_are(corpus, num_topics):
    import matplotlib.pyplot as plt

    odd = prme.Corpus(corpus.counts, ("$a", "b$", "_c", *WORDS[3:]), tuple(f"_$text$_{n}" for n in range(40)))
    fit = posterior_of(odd, num_topics=num_topics, vocabulary=None)
    axes = plots.plot_paintboxes(fit, odd, resolution=4, topics=[1])
    assert axes[-1].get_legend().get_texts()[1].get_text().startswith(r" _\$text\$_")
    for plot in (plots.plot_correlations, plots.plot_correlation_graph, plots.plot_embeddings):
        plot(fit, odd)
    plots.plot_paintboxes(fit, odd, resolution=4)
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()


def test_embeddings_lie_in_the_plane_of_the_paintboxes(corpus, posterior, tmp_path):
    ax = plots.plot_embeddings(posterior, corpus)
    points = np.concatenate([np.asarray(part.get_offsets()) for part in ax.collections])
    assert points.shape == (40, 2)
    np.testing.assert_allclose((points**2).sum(0), 1)  # left singular vectors
    main = posterior.proportions(corpus).values.argmax(1)
    sizes = [len(part.get_offsets()) for part in ax.collections]
    assert sizes == sorted(np.unique(main, return_counts=True)[1].tolist(), reverse=True)
    assert ax.get_legend().get_title().get_text() == "main topic"
    same_image(ax, "embeddings", tmp_path)


@pytest.mark.parametrize("statistic", ["distinct_words", "document_frequency", "word_counts"])
def test_predictive_checks_compare_observed_and_drawn(corpus, posterior, statistic):
    ax = plots.plot_predictive_check(posterior, corpus, statistic, draws=5)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    if statistic == "distinct_words":
        assert labels == ["drawn, 90% of draws", "drawn, mean", "observed"]
        observed = ax.patches[-1].get_data()
        assert observed.values.sum() == 40
        assert ax.patches[1].get_data().values.sum() == pytest.approx(40)
    else:
        assert ax.get_xscale() == ax.get_yscale() == "log"
        assert ax.get_xlim() == ax.get_ylim()
        assert len(ax.collections[-1].get_offsets()) == 12
        assert labels[0] == "equal"
    again = plots.plot_predictive_check(posterior, corpus, statistic, draws=5)
    np.testing.assert_array_equal(again.dataLim.get_points(), ax.dataLim.get_points())


def test_drawn_words_have_the_model_s_distribution():
    rng = np.random.default_rng(0)
    shares, theta = np.array([[0.9, 0.1], [0.0, 1.0]]), np.array([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8]])
    counts = prme.draws.draw_words(np.array([20000, 10000]), shares, theta, rng)
    assert np.asarray(counts.sum(1)).tolist() == [20000, 10000]
    np.testing.assert_allclose(counts.toarray() / [[20000], [10000]], shares @ theta, atol=0.015)


# Training.

HISTORY = [
    {"epoch": i + 1, "bound": -100 / (i + 1) - 50, "bound_name": "ELBO with the epsilon bound on E ln sum Z",
     "terms": {"V": 0.0, "Z": -10 / (i + 1), "X": -90 / (i + 1)}, "topics_in_use": 9 - i}
    | ({"perplexity": 100.0 + 20 / (i + 1)} if i % 2 == 0 else {})
    for i in range(5)
]  # fmt: skip


def test_history_has_a_panel_for_all_it_holds(tmp_path):
    axes = plots.plot_history(HISTORY)
    assert [ax.get_ylabel() for ax in axes] == [
        "bound", "gain of each term since epoch 1", "held-out perplexity", "topics in use"
    ]  # fmt: skip
    assert axes[0].get_title() == HISTORY[0]["bound_name"]
    assert [text.get_text() for text in axes[1].get_legend().get_texts()] == ["Z", "X"]  # V never moves
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), [90 - 90 / (i + 1) for i in range(5)])
    assert axes[2].lines[0].get_xdata().tolist() == [1, 3, 5]
    same_image(axes[0], "history", tmp_path)


def test_history_of_a_trainer_and_given_axes(corpus):
    import matplotlib.pyplot as plt

    trainer = prme.Trainer(*prme.build(4, 12, 40, embedding_dim=3), corpus.counts)
    axes = plt.figure().subplots(1, 2)
    shown = plots.plot_history(trainer.fit(2), axes=axes)
    assert list(shown) == list(axes)
    assert len(axes[1].lines) >= 4
    fitted = prme.Posterior(trainer.model, trainer.guide, vocabulary=WORDS)
    assert len(plots.plot_paintboxes(fitted, corpus, resolution=5)) == 5
    with pytest.raises(ValueError, match="1 axes for 2 panels"):
        plots.plot_history(trainer.history, axes=axes[:1])


# Teaching.


def test_feature_paintbox_and_strip(tmp_path):
    ax = plots.plot_feature_paintbox()
    assert len(ax.collections) == 3
    assert len(ax.lines) == 6
    same_image(ax, "feature_paintbox", tmp_path)
    assert len(plots.plot_feature_paintbox(num_objects=0).lines) == 3
    for measure in (measures.prme(5, 8, seed=0), measures.poisson_strip(10, seed=0)):
        assert plots.plot_strip(measure).get_xlim()[0] == 0


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


@pytest.mark.parametrize("model", ["prme", "hdp"])
def test_model_graph_puts_each_site_into_its_plates(corpus, model, tmp_path):
    from pyro.infer.inspect import get_model_relations

    program, batch = posterior_of(corpus, model).model, prme.Batch.from_csr(corpus.counts, [0, 1])
    state = torch.get_rng_state()
    ax = plots.plot_model(program, batch, backend="matplotlib")
    assert torch.equal(state, torch.get_rng_state())
    relations = get_model_relations(program, model_args=(batch,))
    assert not any(strangers(ax, relations))
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == sum(map(len, relations["sample_sample"].values()))
    shades = [patch.get_facecolor()[0] for patch in ax.patches if isinstance(patch, Ellipse)]
    assert sum(shade < 1 for shade in shades) == 1  # the words
    same_image(ax, f"model_{model}", tmp_path)


def test_model_graph_by_graphviz(corpus, posterior):
    pytest.importorskip("graphviz")
    pyro.clear_param_store()
    graph = plots.plot_model(posterior.model, prme.Batch.from_csr(corpus.counts, [0, 1]), backend="graphviz")
    assert "ell -> f" in graph.source
    assert not pyro.get_param_store()


# Wrong inputs.


def test_a_model_without_a_random_function_has_no_paintboxes(corpus):
    for plot in (plots.plot_paintboxes, plots.plot_embeddings):
        with pytest.raises(ValueError, match=r"show the random function f\(h, ell\), and HDP has none: fit a PRME\."):
            plot(posterior_of(corpus, "hdp"), corpus)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("plot_paintboxes", {"topics": [4]}, "topics is [4]: give whole numbers from 0 to 3."),
        ("plot_paintboxes", {"documents": [-1]}, "documents is [-1]: give whole numbers from 0 to 39."),
        ("plot_paintboxes", {"documents": list(range(6))}, "6 documents are too many"),
        ("plot_paintboxes", {"scale": "log"}, "scale is 'log'"),
        ("plot_paintboxes", {"limit": 0.0}, "limit is 0.0"),
        ("plot_paintboxes", {"num_topics": 0}, "num_topics is 0"),
        ("plot_paintboxes", {"limit": 1e-3, "documents": [3]}, "Document 3 lies outside the square of limit 0.001"),
        ("plot_correlations", {"topics": [1]}, "There is one topic to show"),
        ("plot_correlation_graph", {"num_edges": 0}, "num_edges is 0"),
        ("plot_embeddings", {"topics": [0.5]}, "topics is [0.5]"),
        ("plot_predictive_check", {"statistic": "mean"}, "statistic is 'mean'"),
        ("plot_predictive_check", {"draws": 0}, "draws is 0"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(corpus, posterior, name, settings, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        getattr(plots, name)(posterior, corpus, **settings)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("plot", [plots.plot_paintboxes, plots.plot_correlations, plots.plot_embeddings])
def test_wrong_objects_are_refused_with_the_reason(corpus, posterior, plot):
    with pytest.raises(ValueError, match="corpus is a csr_matrix: give a Corpus"):
        plot(posterior, sparse.csr_matrix(corpus.counts))
    with pytest.raises(ValueError, match="posterior is a PRME: give a Posterior"):
        plot(posterior.model, corpus)
    with pytest.raises(ValueError, match="The corpus has 5 words and the model 12"):
        plot(posterior, prme.Corpus(np.ones((3, 5)), WORDS[:5]))


def test_wrong_teaching_objects_are_refused(corpus, posterior):
    batch = prme.Batch.from_csr(corpus.counts, [0, 1])
    for call in (
        lambda: plots.plot_history([]),
        lambda: plots.plot_history([{"epoch": 1}]),
        lambda: plots.plot_strip(3),
        lambda: plots.plot_feature_paintbox(3),
        lambda: plots.plot_model(posterior.model, corpus),
        lambda: plots.plot_model(posterior.model, batch, backend="svg"),
    ):
        with pytest.raises(ValueError, match=r"give|choose"):
            call()


def test_few_documents_have_no_plane(corpus, posterior):
    with pytest.raises(ValueError, match="span no plane"):
        plots.plot_embeddings(posterior, corpus[:2])
