"""The content of an explorer page: the posterior's own answers, the sizes of files, and what is refused."""

import base64
import gzip
import json
import re

import numpy as np
import pytest

import pyro_prme as prme
from pyro_prme.answers.places import loadings_at, svd_plane
from pyro_prme.explorer import explore, page_data, page_html
from pyro_prme.explorer.page_bytes import packed_arrays
from pyro_prme.explorer.writing import program, read_names

from .conftest import fitted


def test_the_content_is_the_posteriors_own_answers(shape_fit):
    posterior, corpus = shape_fit
    data = page_data(posterior, corpus)
    used = data.topic_numbers
    assert len(used) == posterior.num_topics_used
    assert list(used) == list(np.argsort(-posterior.usage().values, kind="stable")[: len(used)])
    np.testing.assert_allclose(data.usage, posterior.usage().values[used])
    np.testing.assert_allclose(data.topics, posterior.topics().values[used])
    np.testing.assert_allclose(data.proportions, posterior.proportions(corpus).values[:, used])
    whole = posterior.topic_correlations(corpus).values
    np.testing.assert_allclose(data.correlations, whole[np.ix_(used, used)])
    frex = posterior.top_words(4, by="frex").to_numpy()
    assert [[data.vocabulary[w] for w in row] for row in data.labels] == frex[used].tolist()
    assert data.weights is None
    assert sorted(data.order) == list(range(len(used)))


def test_the_map_is_the_loadings_over_the_plane(shape_fit):
    posterior, corpus = shape_fit
    data = page_data(posterior, corpus)
    mean, directions, places = svd_plane(posterior.embeddings(corpus).values)
    np.testing.assert_allclose(data.coordinates, places)
    top_left = mean + np.array([-data.half, data.half]) @ directions
    np.testing.assert_allclose(data.loadings[:, -1, 0], loadings_at(posterior, top_left[None])[0, data.topic_numbers])


def test_weights_are_those_of_the_sticks_where_f_is_in_the_scale(scale_fit):
    posterior, corpus = scale_fit
    data = page_data(posterior, corpus)
    f = posterior.random_function(corpus).values
    loadings = loadings_at(posterior, posterior.embeddings(corpus).values)
    expected = (loadings / np.exp(f))[:, data.topic_numbers]
    np.testing.assert_allclose(np.broadcast_to(data.weights, expected.shape), expected, rtol=0.02)


def test_a_model_without_places_has_a_map_without_paint(hdp_fit):
    data = page_data(*hdp_fit)
    assert data.loadings is None
    assert data.correlation_kind == "roots"
    assert data.coordinates.shape == (60, 2)


def test_diln_has_correlations_and_no_places():
    posterior, corpus = fitted(model="diln")
    data = page_data(posterior, corpus)
    whole = posterior.topic_correlations(corpus).values
    np.testing.assert_allclose(data.correlations, whole[np.ix_(data.topic_numbers, data.topic_numbers)])
    assert data.loadings is None


def test_what_is_packed_is_what_was_there(shape_fit):
    data = page_data(*shape_fit)
    page = page_html(data, {1: "One"})
    packed = gzip.decompress(base64.b64decode(re.search(r'id="data">(\S+)</script>', page)[1]))
    size = int.from_bytes(packed[:4], "little")
    header = json.loads(packed[4 : 4 + size])
    arrays = packed_arrays(data)
    for name, (kind, start, length) in header["arrays"].items():
        stored = np.frombuffer(packed[4 + size + start : 4 + size + start + length], kind)
        np.testing.assert_array_equal(stored, arrays[name].ravel())
    assert header["names"] == {"1": "One"}
    assert header["vocabulary"] == list(data.vocabulary)
    theta = arrays["topicFloor"][:, None] * np.exp(arrays["topicStep"][:, None] * arrays["topics"])
    np.testing.assert_allclose(theta, data.topics, rtol=0.03)


def test_a_large_corpus_is_sampled_to_the_size_asked_for(shape_fit, tmp_path):
    posterior, corpus = shape_fit
    rng = np.random.default_rng(0)
    many = prme.Corpus(rng.poisson(0.8, (1500, corpus.vocab_size)), corpus.vocabulary)
    path = explore(posterior, many, tmp_path / "page.html", max_megabytes=0.1)
    assert 0.08e6 < path.stat().st_size <= 0.1e6
    data = page_data(posterior, many, max_entries=500)
    assert data.all_documents == 1500
    assert data.counts.nnz <= 500
    np.testing.assert_array_equal(data.counts.toarray(), many[data.rows].counts.toarray())


def test_a_large_vocabulary_keeps_its_most_frequent_words(shape_fit):
    posterior, corpus = shape_fit
    data = page_data(posterior, corpus, max_words=10)
    tokens = np.asarray(corpus.counts.sum(0)).ravel()
    kept = np.isin(corpus.vocabulary, data.vocabulary)
    assert kept.sum() == 10
    assert tokens[kept].min() >= tokens[~kept].max()
    np.testing.assert_array_equal(data.lengths, corpus.lengths)


def test_the_code_of_the_page_is_small_and_asks_nothing_of_a_network(shape_fit):
    page = page_html(page_data(*shape_fit))
    code = re.sub(r'(?s)<script type="text/plain".*?</script>', "", page)
    assert len(code.encode()) < 80_000
    assert "http:" not in code
    assert "https:" not in code
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\b\s*\(", program())


def test_names_come_back_from_the_file_that_a_page_saves(tmp_path):
    file = tmp_path / "names.json"
    file.write_text(json.dumps({"format": "pyro_prme topic names", "topics": {"3": "War"}}))
    assert read_names(file) == {3: "War"}
    for wrong in (
        "",
        "[]",
        '{"format": "other", "topics": {}}',
        '{"format": "pyro_prme topic names", "topics": {"x": "y"}}',
    ):
        file.write_text(wrong)
        with pytest.raises(ValueError, match="no names of topics"):
            read_names(file)


def test_wrong_arguments_are_refused(shape_fit, tmp_path):
    posterior, corpus = shape_fit
    with pytest.raises(ValueError, match="give a Posterior"):
        explore(corpus, corpus, tmp_path / "x.html")
    with pytest.raises(ValueError, match="give a Corpus"):
        explore(posterior, corpus.counts, tmp_path / "x.html")
    with pytest.raises(ValueError, match="at least three"):
        explore(posterior, corpus[:2], tmp_path / "x.html")
    with pytest.raises(ValueError, match="max_megabytes"):
        explore(posterior, corpus, tmp_path / "x.html", max_megabytes=0)
    with pytest.raises(ValueError, match="it must be at least 0"):
        explore(posterior, corpus, tmp_path / "x.html", max_megabytes=1e-9)
    with pytest.raises(ValueError, match="it is a pipe or a device"):
        explore(posterior, corpus, tmp_path / "x.html", names="/dev/zero")
