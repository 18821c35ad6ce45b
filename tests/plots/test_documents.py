"""Pictures of documents: paintboxes, embeddings and predictive checks.

`PRME_WRITE_IMAGES=1` writes the reference images anew: look at them before they are committed.
"""

import numpy as np
import pytest
import torch
from matplotlib.colors import LogNorm
from matplotlib.patches import ConnectionPatch

import pyro_prme as prme
from pyro_prme import plots
from pyro_prme.answers.draws import draw_words
from pyro_prme.inference.session import evaluating

from .pictures import WORDS, inside, posterior_of, same_image


@pytest.mark.parametrize("form", ["shape", "scale"])
def test_paintboxes_are_the_mean_loadings_on_the_plane(corpus, form, tmp_path):
    posterior = posterior_of(corpus, form=form)
    axes = plots.plot_paintboxes(posterior, corpus, topics=[2, 0], documents=[3, 7], resolution=11, num_words=2)
    assert len(axes) == 3
    h = posterior.embeddings(corpus).values
    half = axes[0].get_xlim()[1]
    assert axes[0].images[0].get_extent() == [-half, half, -half, half]
    assert half >= np.quantile(np.abs(np.linalg.svd(h - h.mean(0), full_matrices=False)[0][:, :2]).max(1), 0.99)
    V, ell = posterior.guide.claim("V").value(), posterior.guide.claim("ell").value()
    with torch.no_grad(), evaluating(posterior.model):
        mean, variance = posterior.model.decoder(torch.as_tensor(h.mean(0)[None]), ell)
        if form == "scale":
            centre = (posterior.model.concentration(V) * (mean + variance / 2).exp())[0].numpy()
        else:
            weights = posterior.model.concentration(V) * mean.exp()
            centre = (5 * weights / weights.sum())[0].numpy()  # beta is 5
    for ax in axes[:2]:
        box = np.asarray(ax.images[0].get_array())
        assert box.shape == (11, 11)
        assert box.max() == pytest.approx(1)
    absolute = plots.plot_paintboxes(posterior, corpus, topics=[2, 0], documents=[], resolution=11, scale="strength")
    for ax, k in zip(absolute, (2, 0), strict=True):
        assert ax.images[0].get_array()[5, 5] == pytest.approx(centre[k])
    assert isinstance(absolute[0].images[0].norm, LogNorm)
    assert absolute[0].images[0].norm is absolute[1].images[0].norm
    same_image(axes[0], f"paintboxes_{form}", tmp_path)


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


@pytest.mark.parametrize("scale", ["relative", "strength"])
@pytest.mark.parametrize("shown", [(1, 1), (2, 2), (4, 5), (3, 0)])
def test_paintboxes_of_any_number_fit_their_figure(corpus, posterior, scale, shown):
    topics, documents = shown
    settings = {"topics": range(topics), "documents": range(documents), "resolution": 5, "scale": scale}
    axes = plots.plot_paintboxes(posterior, corpus, **settings)
    assert len(axes) == topics + (documents > 0)
    inside(axes[0].figure)


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
    assert len({str(part.get_paths()[0].vertices) for part in ax.collections}) == 4  # a shape each, for copies in grey
    same_image(ax, "embeddings", tmp_path)


@pytest.mark.parametrize("statistic", ["distinct_words", "document_frequency", "word_counts"])
def test_predictive_checks_compare_observed_and_drawn(corpus, posterior, statistic, tmp_path):
    ax = plots.plot_predictive_check(posterior, corpus, statistic, draws=5)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    if statistic == "distinct_words":
        assert labels == ["drawn, 90% of draws", "drawn, mean", "observed"]
        observed = ax.patches[-1].get_data()
        assert len(set(np.diff(observed.edges))) == 1
        assert observed.values.sum() == 40
        assert ax.patches[1].get_data().values.sum() == pytest.approx(40)
    else:
        assert ax.get_xscale() == ax.get_yscale() == "log"
        assert ax.get_xlim() == ax.get_ylim()
        assert len(ax.collections[-1].get_offsets()) == 12
        assert labels[0] == "equal"
    again = plots.plot_predictive_check(posterior, corpus, statistic, draws=5)
    np.testing.assert_array_equal(again.dataLim.get_points(), ax.dataLim.get_points())
    same_image(ax, f"predictive_{statistic}", tmp_path)


def test_drawn_words_have_the_model_s_distribution():
    rng = np.random.default_rng(0)
    shares, theta = np.array([[0.9, 0.1], [0.0, 1.0]]), np.array([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8]])
    counts = draw_words(np.array([20000, 10000]), shares, theta, rng)
    assert np.asarray(counts.sum(1)).tolist() == [20000, 10000]
    np.testing.assert_allclose(counts.toarray() / [[20000], [10000]], shares @ theta, atol=0.015)
