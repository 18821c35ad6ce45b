"""Wrong objects and settings are refused with one sentence that says what to give."""

import numpy as np
import pytest
from scipy import sparse

import pyro_prme as prme
from pyro_prme import plots

from .pictures import WORDS, posterior_of


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
    with pytest.raises(ValueError, match="posterior is a ShapePRME: give a Posterior"):
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
        with pytest.raises(ValueError, match=r"give|must be"):
            call()


def test_few_documents_have_no_plane(corpus, posterior):
    with pytest.raises(ValueError, match="span no plane"):
        plots.plot_embeddings(posterior, corpus[:2])
