"""What other tools get: ArviZ groups, their labels and their laws; the arguments of pyLDAvis."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
import torch
import xarray as xr
from scipy.special import logsumexp

import pyro_prme as prme
from pyro_prme.answers.draws import posterior_factors, prior_draws
from pyro_prme.answers.export import VARIABLES, to_inference_data, to_pyldavis
from pyro_prme.answers.scores import log_predictive

mpl.use("Agg")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # arviz 0.23 announces 1.x when it is imported
    az = pytest.importorskip("arviz")

OLD = int(az.__version__.split(".")[0]) < 1
WORDS = tuple("abcdefghijkl")


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(4), np.ones(3)) + 0.02
    shares = rng.dirichlet([0.4] * 4, size=30) @ (topics / topics.sum(1, keepdims=True))
    counts = np.stack([rng.multinomial(20, row) for row in shares])
    return prme.Corpus(counts, WORDS, tuple(f"text {n}" for n in range(30)))


def fitted(corpus, model="prme", form="scale", **settings):
    _, guide = prme.build(4, corpus.vocab_size, len(corpus), model=model, form=form, embedding_dim=3, **settings)
    prme.Trainer(guide, corpus, prme.TrainOptions(batch_size=10)).fit(3)
    return prme.Posterior(guide, vocabulary=corpus.vocabulary)


@pytest.fixture(scope="module")
def posterior(corpus):
    return fitted(corpus)


@pytest.fixture(scope="module")
def hdp(corpus):
    return fitted(corpus, "hdp")


@pytest.fixture(scope="module")
def diln(corpus):
    return fitted(corpus, "diln")


@pytest.fixture(scope="module")
def data(posterior, corpus):
    split = corpus[:8].split_tokens(0.5)
    return to_inference_data(posterior, corpus, 40, variables=list(VARIABLES), num_words=5, split=split, counts=True)


def groups(data):
    return set(data.groups() if OLD else data.children)


def test_groups_and_coordinates(data, corpus):
    assert groups(data) == {
        "posterior", "posterior_predictive", "log_likelihood", "prior", "observed_data", "constant_data", "held_out"
    }  # fmt: skip
    assert data["posterior"].sizes["chain"] == 1
    assert data["posterior"].sizes["draw"] == 40
    for group in ("posterior", "prior"):
        for name, dims in VARIABLES.items():
            assert data[group][name].dims == ("chain", "draw", *dims)
    assert data["posterior"]["document"].values.tolist() == list(corpus.names)
    assert data["posterior"]["topic"].values.tolist() == [0, 1, 2, 3]
    totals = np.asarray(corpus.counts.sum(0)).ravel()
    common = {WORDS[d] for d in np.argsort(-totals, kind="stable")[:5]}
    assert set(data["posterior"]["word"].values) == common
    assert data["log_likelihood"]["X"].dims == ("chain", "draw", "document")
    assert data["held_out"]["log_likelihood"].sizes["document"] == 8


def test_draws_have_the_moments_of_q(posterior, corpus):
    data = to_inference_data(posterior, corpus, 1500, variables=["theta", "Z"], num_words=12, prior=False)["posterior"]
    factors = posterior_factors(posterior, corpus)
    Z, theta = data["Z"].values[0], data["theta"].values[0]
    mean, scale = factors.concentration / factors.rate, np.sqrt(factors.concentration) / factors.rate
    assert np.abs((Z.mean(0) - mean) / scale).max() < 5 / np.sqrt(1500)
    np.testing.assert_allclose(mean, posterior.loadings(corpus).values, rtol=1e-5)
    np.testing.assert_allclose(theta.sum(-1), 1)
    np.testing.assert_allclose(theta.mean(0), posterior.topics().values, atol=0.01)


def test_point_masses_do_not_vary(data, posterior):
    for name in ("V", "p", "ell", "h"):
        assert (data["posterior"][name].std("draw") < 1e-12).all()
    np.testing.assert_allclose(data["posterior"]["p"].sum("topic"), 1)
    assert (data["posterior"]["f"].std("draw") > 0).all()


def test_a_function_in_the_shape_and_topics_as_points_do_not_vary(corpus):
    data = to_inference_data(fitted(corpus, form="shape", topics="point"), corpus, 3, variables=["f", "theta", "Z"])
    for name, moves in (("f", False), ("theta", False), ("Z", True)):
        drawn = data["posterior"][name]
        assert bool((drawn.max("draw") > drawn.min("draw")).any()) == moves
    np.testing.assert_allclose(data["posterior"]["theta"].sum("word"), 1)


def test_diln_has_a_function_without_embeddings(diln, corpus):
    data = to_inference_data(diln, corpus, 400, variables=["f", "Z"])
    factors = posterior_factors(diln, corpus)
    assert factors.h is None
    error = (data["posterior"]["f"].values[0].mean(0) - factors.f_mean) / factors.f_scale
    assert np.abs(error).max() < 5 / np.sqrt(400)
    for group in ("posterior", "prior"):
        assert data[group]["f"].dims == ("chain", "draw", "document", "topic")
    prior = data["prior"]["f"].values[0].reshape(-1, 4)
    np.testing.assert_allclose(prior.mean(0), diln.model.mean, atol=0.1)
    with pytest.raises(ValueError, match="DILN has no h"):
        to_inference_data(diln, corpus, 2, variables=["h"])


def test_log_likelihood_is_that_of_the_drawn_theta_and_z(posterior, corpus):
    data = to_inference_data(posterior, corpus, 3, variables=["theta", "Z"], num_words=12, prior=False)
    order = np.argsort(data["posterior"]["word"].values)
    for i in range(3):
        theta, Z = (data["posterior"][name].values[0, i] for name in ("theta", "Z"))
        expected = log_predictive(Z, theta[:, order], corpus)
        np.testing.assert_allclose(data["log_likelihood"]["X"].values[0, i], expected)


def test_held_out_score_agrees_with_the_perplexity(posterior, corpus):
    split = corpus.split_tokens(0.5)
    held = to_inference_data(posterior, corpus, 300, split=split, prior=False)["held_out"]
    scores = held["log_likelihood"].values[0]
    np.testing.assert_allclose(held["elpd"], logsumexp(scores, axis=0) - np.log(300))
    perplexity = np.exp(-held["elpd"].values.sum() / held["lengths"].values.sum())
    assert perplexity == pytest.approx(posterior.perplexity(split), rel=0.05)  # draws in place of means


def test_predictive_and_observed_statistics(data, corpus):
    predicted, observed = data["posterior_predictive"], data["observed_data"]
    assert set(predicted.data_vars) == set(observed.data_vars)
    assert observed["distinct_words"].values.tolist() == np.diff(corpus.counts.indptr).tolist()
    np.testing.assert_array_equal(predicted["X"].sum("document"), predicted["word_counts"])
    np.testing.assert_array_equal((predicted["X"] > 0).sum("document"), predicted["document_frequency"])
    np.testing.assert_array_equal(observed["X"].sum("document"), observed["word_counts"])
    assert data["constant_data"]["lengths"].values.tolist() == corpus.lengths.tolist()
    assert float(data["constant_data"]["gamma0"]) == pytest.approx(0.2)


def test_prior_draws_have_the_prior_s_law(posterior, hdp, corpus):
    state = torch.get_rng_state()
    for fit in (posterior, hdp):
        factors = posterior_factors(fit, corpus)
        draws = list(prior_draws(fit, factors, 150))
        V = np.stack([draw["sticks"] for draw in draws])
        assert np.abs(V.mean() - 0.5) < 0.06  # Beta(1, 1)
        assert np.stack([draw["topics"] for draw in draws])[:, :, 0].mean() == pytest.approx(1 / 12, abs=0.02)
    total = np.stack([draw["loadings"] for draw in draws]).sum(-1)
    assert total.mean() == pytest.approx(5, abs=0.1)  # HDP: the sum is Gamma(beta, 1), whatever the sticks
    assert total.var() == pytest.approx(5, abs=0.5)
    assert torch.equal(state, torch.get_rng_state())


def test_prior_draws_of_more_documents_than_the_model_was_built_for(posterior, corpus):
    twice = prme.Corpus(np.vstack([corpus.counts.toarray()] * 2), WORDS)
    data = to_inference_data(posterior, twice, 2)
    assert data["prior"]["proportions"].sizes["document"] == 60


def test_same_seed_same_draws(posterior, corpus):
    first, again, other = (to_inference_data(posterior, corpus, 2, seed=seed) for seed in (1, 1, 2))
    for group in ("posterior", "posterior_predictive", "prior"):
        assert first[group].equals(again[group])
        assert not first[group].equals(other[group])


def test_round_trip_through_netcdf(data, tmp_path):
    pytest.importorskip("h5py")
    pytest.importorskip("h5netcdf")
    path = str(tmp_path / "fit.nc")
    data.to_netcdf(path, engine="h5netcdf")
    back = az.from_netcdf(path, engine="h5netcdf")
    assert groups(back) == groups(data)
    for group in groups(data):
        stored = xr.load_dataset(path, group=group, engine="h5netcdf")
        xr.testing.assert_equal(stored, data[group] if OLD else data[group].to_dataset())


def test_summary_and_predictive_check_of_arviz_run(data):
    import matplotlib.pyplot as plt

    summary = az.summary(data, var_names=["proportions"], kind="stats")
    assert len(summary) == 30 * 4
    assert "proportions[text 0, 0]" in summary.index
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if OLD:
            az.plot_ppc(data, var_names=["distinct_words"])
        else:
            az.plot_ppc_dist(data, var_names=["distinct_words"])
    plt.close("all")


def test_models_are_compared(data, hdp, diln, corpus):
    fits = {"prme": data, "hdp": to_inference_data(hdp, corpus, 40), "diln": to_inference_data(diln, corpus, 40)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pareto k above 0.7: the docstring says so
        table = az.compare(fits)
        loo = az.loo(data, var_name="X", pointwise=True)
    assert set(table.index) == set(fits)
    by_document = loo.loo_i if OLD else loo.elpd_i
    assert by_document.dims == ("document",)
    assert by_document["document"].values.tolist() == list(corpus.names)
    assert float(by_document.sum()) == pytest.approx(loo.elpd_loo if OLD else loo.elpd)


def test_a_data_tree_where_arviz_is_of_version_1(posterior, corpus, monkeypatch):
    monkeypatch.setattr(az, "__version__", "1.3.0")
    tree = to_inference_data(posterior, corpus, 2)
    assert isinstance(tree, xr.DataTree)
    assert tree["posterior"]["theta"].dims == ("chain", "draw", "topic", "word")


def test_an_hdp_has_no_function_to_export(hdp, corpus):
    assert set(to_inference_data(hdp, corpus, 2)["posterior"].data_vars) == {"p", "theta", "proportions"}
    for name in ("ell", "h", "f"):
        with pytest.raises(ValueError, match=f"HDP has no {name}"):
            to_inference_data(hdp, corpus, 2, variables=[name])
    with pytest.raises(ValueError, match="no random function"):
        posterior_factors(hdp, corpus).draw_function(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"draws": 0}, "draws is 0"),
        ({"num_words": 0}, "num_words is 0"),
        ({"variables": ["phi"]}, "variables is"),
        ({"variables": "theta"}, "variables is"),
        ({"variables": []}, "variables is"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(posterior, corpus, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        to_inference_data(posterior, corpus, **settings)


def test_wrong_objects_are_refused_with_the_reason(posterior, corpus):
    for call in (to_inference_data, to_pyldavis):
        with pytest.raises(ValueError, match="Posterior and csr_array: give a Posterior"):
            call(posterior, corpus.counts)
        with pytest.raises(ValueError, match="The documents have 5 words and the model 12"):
            call(posterior, prme.Corpus(np.ones((3, 5)), WORDS[:5]))


def test_pyldavis_gets_rows_that_sum_to_one_and_no_empty_rows(posterior, corpus):
    counts = corpus.counts.toarray()
    counts[:, 3], counts[7] = 0, 0
    ready = to_pyldavis(posterior, prme.Corpus(counts, WORDS))
    assert set(ready) == {"topic_term_dists", "doc_topic_dists", "doc_lengths", "vocab", "term_frequency"}
    assert ready["topic_term_dists"].shape == (4, 11)
    assert ready["doc_topic_dists"].shape == (29, 4)
    assert "d" not in ready["vocab"]
    for rows in ("topic_term_dists", "doc_topic_dists"):
        np.testing.assert_allclose(ready[rows].sum(1), 1)
    assert ready["doc_lengths"].sum() == ready["term_frequency"].sum() == counts.sum()
    with pytest.raises(ValueError, match="no words"):
        to_pyldavis(posterior, prme.Corpus(np.zeros((2, 12)), WORDS))


def test_pyldavis_takes_it(posterior, corpus):
    lda = pytest.importorskip("pyLDAvis", reason="pyLDAvis is not installed")
    settings = {"sort_topics": False, "start_index": 0, "n_jobs": 1, "R": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = lda.prepare(**to_pyldavis(posterior, corpus), **settings)
    assert prepared.topic_coordinates["topics"].tolist() == [0, 1, 2, 3]
    usage = posterior.usage(corpus).values
    np.testing.assert_allclose(prepared.topic_coordinates["Freq"] / 100, usage, atol=0.05)
    assert set(prepared.topic_info["Term"]) <= set(WORDS)
    assert "LDAvis" in lda.prepared_data_to_html(prepared)
