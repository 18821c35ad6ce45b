"""Numbers at the ends of what is allowed, in both resolutions: finite bounds and scores, or a sentence."""

import numpy as np
import pytest
import torch
from scipy import sparse

from pyro_prme.answers.posterior import Posterior
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.runs.run_folder import make_trainer, settings_of

COUNTS = np.random.default_rng(0).poisson(0.7, (30, 20))
LONG = COUNTS.copy()
LONG[:3] = 0
LONG[0] = 10**9  # a document of twenty thousand million tokens, one of a single token, and one of none
LONG[1, 3] = 1


def numbers(counts, **given):
    """The bound after three epochs, a score, and sums over topics and proportions."""
    settings = settings_of(**({"num_topics": 3, "embedding_dim": 2, "seed": 0, "batch_size": 10} | given))
    trainer = make_trainer(sparse.csr_matrix(counts), settings)
    trainer.fit(3)
    posterior = Posterior(trainer.guide)
    documents = Corpus(sparse.csr_array(counts), tuple(map(str, range(counts.shape[1]))))
    topics, proportions = posterior.topics().values, posterior.proportions(documents).values
    np.testing.assert_allclose(topics.sum(1), 1, rtol=1e-4)
    np.testing.assert_allclose(proportions.sum(1), 1, rtol=1e-4)
    return [trainer.history[-1]["bound"], posterior.perplexity(documents), topics.min(), proportions.min()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [1e-10, 1e-4, 1e4, 1e10])
@pytest.mark.parametrize("name", ["alpha", "beta", "gamma0"])
def test_extreme_concentrations(dtype, name, value):
    torch.set_default_dtype(dtype)
    for model in ("prme", "hdp"):
        assert np.isfinite(numbers(COUNTS, **{"model": model, name: value})).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("given", [{}, {"model": "hdp"}, {"model": "diln"}, {"num_topics": 2}, {"num_topics": 18}])
def test_extreme_documents_and_numbers_of_topics(dtype, given):
    torch.set_default_dtype(dtype)
    try:
        found = numbers(LONG, **given)
    except ValueError as sentence:  # in single precision a gradient over twenty thousand million tokens may overflow
        found = [np.inf if dtype == torch.float64 or "the fit has diverged" not in str(sentence) else 0.0]
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", ["alpha", "beta", "gamma0"])
@pytest.mark.parametrize("value", [1e-11, 1e11])
def test_beyond_the_limits_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is .*: it must be a number from 1e-10 to 1e[+]10"):
        settings_of(num_topics=3, **{name: value})
