"""Threads give the numbers of one, a process can fork after a fit, and nothing global is left changed."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyro
import pytest
import torch
from sklearn.model_selection import GridSearchCV

from pyro_prme import Counts, PRMETopicModel, Trainer, TrainOptions
from pyro_prme.inference.build import build
from tests.inference.fits import corpus


def fitted(seed=0):
    return PRMETopicModel(4, max_iter=2, batch_size=20, embedding_dim=3, random_state=seed).fit(corpus())


@pytest.fixture(scope="module")
def model():
    return fitted()


def globals_now():
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        sorted(pyro.get_param_store().keys()),
        pyro.settings.get("validate_poutine"),
        pyro.settings.get("module_local_params"),
        torch.distributions.Distribution._validate_args,
        len(pyro.poutine.runtime._PYRO_STACK),
    )


def in_four_threads(call, *items):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(call, items))


def test_transforms_from_four_threads_are_those_of_one(model):
    parts = [corpus(15, seed=seed) for seed in range(8)]
    alone = [model.transform(part) for part in parts]
    before = globals_now()
    for here, there in zip(alone, in_four_threads(model.transform, *parts), strict=True):
        np.testing.assert_array_equal(here, there)
    assert globals_now() == before


def test_other_questions_from_four_threads_are_those_of_one(model):
    def ask(seed):
        documents, posterior = corpus(12, seed=seed), model.posterior_
        return np.concatenate([
            posterior.topic_correlations(documents).values.ravel(),
            posterior.draws("loadings", documents, 3, seed=seed).values.ravel(),
            posterior.usage(documents).values,
        ])  # fmt: skip

    for here, there in zip(map(ask, range(6)), in_four_threads(ask, *range(6)), strict=True):
        np.testing.assert_array_equal(here, there)


def test_fits_from_four_threads_are_those_of_one():
    alone = [fitted(seed).components_ for seed in range(4)]
    before = globals_now()
    for here, there in zip(alone, in_four_threads(lambda seed: fitted(seed).components_, *range(4)), strict=True):
        np.testing.assert_array_equal(here, there)
    assert globals_now() == before


def test_trainers_in_threads_take_turns():
    def train(seed):
        guide = build(4, 40, 60, embedding_dim=3, seed=seed)[1]
        trainer = Trainer(guide, Counts(corpus()), TrainOptions(batch_size=20, seed=seed))
        trainer.fit(2)
        return guide.topics.gamma

    with pyro.settings.context(module_local_params=True):
        alone = [train(seed) for seed in range(3)]
        together = in_four_threads(train, *range(3))
    for here, there in zip(alone, together, strict=True):
        assert torch.equal(here, there)


def test_a_grid_search_with_threads():
    search = GridSearchCV(
        PRMETopicModel(max_iter=1, batch_size=20, embedding_dim=3, random_state=0), {"n_components": [3, 4]}, cv=2
    )
    import joblib

    with joblib.parallel_config("threading", n_jobs=4):
        threaded = search.fit(corpus()).cv_results_["mean_test_score"]
    with joblib.parallel_config("sequential"):
        np.testing.assert_array_equal(threaded, search.fit(corpus()).cv_results_["mean_test_score"])


def test_nothing_global_is_changed_by_a_fit_that_fails():
    before = globals_now()

    def fail(trainer, record):
        raise RuntimeError("stop here")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="stop here"):
            PRMETopicModel(4, max_iter=2, random_state=0, callback=fail).fit(corpus())
    guide = fitted().guide_
    with pytest.raises(ValueError, match="has word id"):
        guide.run(Counts(corpus(vocab_size=80)).batch(np.arange(5))[0])
    assert globals_now() == before
    fitted()  # and the lock is free


def _transformed(model, out):
    out.put(model.transform(corpus(10, seed=3)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_answers_after_a_fit_in_threads(model):
    in_four_threads(model.transform, *[corpus(10)] * 4)
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=_transformed, args=(model, out))
    child.start()
    np.testing.assert_array_equal(out.get(timeout=120), model.transform(corpus(10, seed=3)))
    child.join(60)
    assert child.exitcode == 0
