"""The mean of what several posteriors predict, in memory and as a folder; and sampling through the doors."""

import inspect
import json

import numpy as np
import pytest

import pyro_prme as prme
from pyro_prme.answers.mixture import Mixture
from pyro_prme.answers.posterior import Posterior
from pyro_prme.inference.rules.topics import Sampling
from pyro_prme.inference.session import session
from pyro_prme.runs.mixing import parts_of
from pyro_prme.runs.run_folder import load_run, make_trainer, resume, save_run, settings_of
from tests.cli.test_cli import error_of, small_corpus
from tests.cli.test_cli import prme as command


def posterior_of(seed=0, topics=4, **settings):
    corpus = small_corpus()
    model = prme.PRMETopicModel(topics, max_iter=3, random_state=seed, **settings).fit(corpus)
    return prme.Posterior(model.guide_, vocabulary=corpus.vocabulary)


@pytest.fixture(scope="module")
def parts():
    return [posterior_of(0), posterior_of(1, topics=5), posterior_of(2, model="hdp")]


def test_its_prediction_is_the_mean_of_the_parts_predictions(parts):
    mixture, test = Posterior.mix(parts), small_corpus(seed=1)
    split = test.split_tokens(0.5, seed=0)
    each = [part.proportions(split.observed).values @ part.topics().values for part in parts]
    mean = sum(each) / 3
    together = mixture.proportions(split.observed).values @ mixture.topics().values
    np.testing.assert_allclose(together, mean, rtol=1e-6)
    counts = split.held_out.counts.toarray()
    assert mixture.perplexity(split) == pytest.approx(np.exp(-(counts * np.log(mean)).sum() / counts.sum()))
    assert mixture.perplexity(split) < max(part.perplexity(split) for part in parts)
    assert mixture.perplexity(test) == pytest.approx(mixture.perplexity(test.split_tokens()))
    assert mixture.num_topics == 13
    np.testing.assert_allclose(mixture.proportions(test).sum("topic"), 1)
    assert list(mixture.proportions(test)["document"].values) == list(test.names)
    np.testing.assert_allclose(mixture.usage().values[4:9], parts[1].usage().values / 3)
    np.testing.assert_allclose(mixture.usage(test).values[9:], parts[2].usage(test).values / 3)
    assert list(mixture.top_words(3).loc[5]) == list(parts[1].top_words(3).loc[1])
    found = mixture.representative_documents(5, 3, test)
    assert found.equals(parts[1].representative_documents(1, 3, test))
    assert repr(mixture) == "Mixture of 3 posteriors (2 of ShapePRME, 1 of HDP), with 13 topics in all."
    nested = Posterior.mix([Posterior.mix(parts[:2]), parts[2]])
    assert nested.perplexity(split) == pytest.approx(mixture.perplexity(split))


def test_every_question_is_answered_or_refused_in_a_sentence(parts):
    """A method that a mixture inherits would answer for its first part."""
    mixture = Posterior.mix(parts)
    inherited = {
        "similar_topics",
        "perplexity",
        "topics",
        "top_words",
        "num_topics_used",
        "mix",
        "token_perplexities",
    } | {"completion"}
    for name in {name for name in dir(Posterior) if not name.startswith("_")} - inherited:
        assert name in vars(Mixture), name
    for name in ("topic_correlations", "embeddings", "random_function", "loadings", "mean", "similar_topics"):
        with pytest.raises(ValueError, match=r"ask one of the 3 posteriors in `parts`\.$"):
            getattr(mixture, name)(small_corpus())
    for name in ("guide", "model", "dtype"):
        with pytest.raises(ValueError, match="ask one of the 3"):
            getattr(mixture, name)
    assert "common labels" in str(inspect.getattr_static(Mixture, "topic_correlations").__closure__[0].cell_contents)


def test_parts_that_do_not_go_together_are_refused(parts):
    with pytest.raises(ValueError, match="nothing to mix"):
        Posterior.mix([])
    with pytest.raises(ValueError, match="A part of the mixture is a int"):
        Posterior.mix([1])
    other = prme.Posterior(parts[0].guide, vocabulary=[f"x{d}" for d in range(32)])
    with pytest.raises(ValueError, match="different words"):
        Posterior.mix([parts[0], other])


def run_of(folder, seed, corpus=None, **given):
    corpus = small_corpus() if corpus is None else corpus
    settings = settings_of(num_topics=4, batch_size=20, embedding_dim=3, seed=seed, **given)
    with session():
        trainer = make_trainer(corpus.counts, settings)
        trainer.fit(3)
        save_run(folder, trainer, settings, corpus.vocabulary)
    return folder


def test_a_mixture_is_saved_as_one_run(tmp_path):
    runs = [run_of(tmp_path / f"run{seed}", seed) for seed in range(2)]
    prme.save_mix(tmp_path / "mix", runs)
    split = small_corpus(seed=1).split_tokens()
    saved = load_run(tmp_path / "mix")
    assert [part.settings["build"]["seed"] for part in saved.parts] == [0, 1]
    direct = Posterior.mix([load_run(run).posterior for run in runs])
    assert saved.posterior.perplexity(split) == pytest.approx(direct.perplexity(split), rel=1e-12)
    prme.save_mix(tmp_path / "again", [tmp_path / "mix", runs[0]])
    assert len(load_run(tmp_path / "again").parts) == 3
    with pytest.raises(ValueError, match="is not empty"):
        prme.save_mix(tmp_path / "mix", runs)
    with pytest.raises(ValueError, match="nothing to mix"):
        prme.save_mix(tmp_path / "none", [])
    words = prme.Corpus(small_corpus().counts, tuple(f"x{d}" for d in range(32)))
    other = run_of(tmp_path / "other", 0, words)
    with pytest.raises(ValueError, match="has other words"):
        prme.save_mix(tmp_path / "wrong", [runs[0], other])
    assert not (tmp_path / "wrong").exists()
    record = json.loads((tmp_path / "mix" / "mix.json").read_text())
    for wrong, why in (
        ({"parts": ["../run0"]}, "lies outside"),
        ({"parts": ["part-9"]}, "is missing"),
        ({"parts": []}, "does not list"),
        ({"format": 9}, "format 9"),
    ):
        (tmp_path / "mix" / "mix.json").write_text(json.dumps(record | wrong))
        with pytest.raises(ValueError, match=why):
            parts_of(tmp_path / "mix")


def test_the_command_mixes_runs_and_fits_several_seeds(tmp_path):
    for name, seed in (("train", 0), ("test", 1)):
        prme.save_corpus(small_corpus(seed=seed), tmp_path / f"{name}.npz")
    fit = ["fit", tmp_path / "train.npz", "--topics", 4, "--epochs", 2, "--held-out", "0.2"]
    found = command(*fit, "--seeds", 2, "--seed", 5, "--out", tmp_path / "two").stdout
    assert "the mean of 2 fits" in found
    saved = load_run(tmp_path / "two")
    assert [part.settings["build"]["seed"] for part in saved.parts] == [5, 6]
    assert len({str(part.model.num_documents) for part in saved.parts}) == 1
    histories = [part.history[-1]["perplexity"] for part in saved.parts]
    assert histories[0] != histories[1]
    command(*fit, "--seed", 6, "--out", tmp_path / "one")
    one = load_run(tmp_path / "one")  # other documents are held out there
    assert one.history[-1]["bound"] != saved.parts[1].history[-1]["bound"]
    again = command(*fit[:-3], 3, "--seeds", 2, "--out", tmp_path / "two", "--resume").stdout
    assert "3 epochs" in again
    mixed = command("mix", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "mixed").stdout
    assert "the mean of 3 runs" in mixed
    scores = json.loads(command("evaluate", tmp_path / "mixed", tmp_path / "test.npz", "--json").stdout)
    split = small_corpus(seed=1).split_tokens(0.9, 0)
    assert scores["perplexity_0.9"] == pytest.approx(load_run(tmp_path / "mixed").posterior.perplexity(split))
    assert 0 < scores["diversity"] <= 1
    table = command("transform", tmp_path / "mixed", tmp_path / "test.npz").stdout.splitlines()
    assert len(table) == 41
    assert len(table[0].split(",")) == 13
    told = command("topics", tmp_path / "mixed", "--words", 3)
    assert "topics of different parts have none" in told.stderr
    assert "parts" in command("info", tmp_path / "mixed").stdout
    assert "is not empty" in error_of("mix", tmp_path / "one", "--out", tmp_path / "mixed")
    assert "is not empty" in error_of(*fit, "--seeds", 2, "--out", tmp_path / "mixed")
    assert "holds one run" in error_of(*fit, "--seeds", 2, "--out", tmp_path / "one", "--resume")
    page = "explore", tmp_path / "mixed", tmp_path / "train.npz", "-o", tmp_path / "page.html"
    assert "ask one of the 3 posteriors" in error_of(*page)


@pytest.mark.slow
def test_sampling_through_the_estimator_and_the_command(tmp_path):
    corpus = small_corpus()
    model = prme.PRMETopicModel(4, inference="gibbs", max_iter=22, random_state=0, batch_size=20).fit(corpus)
    rule = model.guide_.topics.rule
    assert isinstance(rule, Sampling)
    assert rule.objective == "completion"
    assert model.guide_.topics.num_states == 2
    assert "collapsed Gibbs" in repr(model.posterior_)
    assert model.posterior_.perplexity(small_corpus(seed=1)) < 25
    with pytest.raises(ValueError, match="max_iter is 20: inference='gibbs' averages states after 20 passes"):
        prme.PRMETopicModel(4, inference="gibbs", max_iter=20).fit(corpus)
    with pytest.raises(ValueError, match="use mode='batch'"):
        prme.PRMETopicModel(4, inference="gibbs", mode="online").fit(corpus)
    with pytest.raises(ValueError, match="inference is 'vb'"):
        prme.PRMETopicModel(4, inference="vb").fit(corpus)
    prme.save_corpus(corpus, tmp_path / "train.npz")
    fit = ["fit", tmp_path / "train.npz", "--topics", 4, "--inference", "gibbs", "--out", tmp_path / "run"]
    assert "--epochs is 9: " in error_of(*fit, "--epochs", 9)
    assert "log probability of each word given the others" in command(*fit, "--epochs", 21).stdout
    assert load_run(tmp_path / "run").guide.topics.num_states == 1
    whole = command(*fit[:-1], tmp_path / "whole", "--epochs", 23).stdout
    command(*fit, "--epochs", 23, "--resume")
    found, expected = (load_run(tmp_path / name).guide.topics.gamma for name in ("run", "whole"))
    assert "23 epochs" in whole
    np.testing.assert_array_equal(found, expected)


def test_a_chain_is_taken_up_from_its_folder_as_if_never_interrupted(tmp_path):
    corpus = small_corpus()
    settings = settings_of(num_topics=4, batch_size=20, form="scale", inference="gibbs", warm_up=1, burn_in=1)
    with session():
        trainer = make_trainer(corpus.counts, settings)
        trainer.fit(4)
        save_run(tmp_path / "run", trainer, settings, corpus.vocabulary)
        trainer.fit(2)
        again, _ = resume(tmp_path / "run", corpus.counts, corpus.vocabulary)
        again.fit(2)
    assert again.history == trainer.history
    assert again.guide.topics.num_states == 4
