"""Topics whose prior follows, in part, how often words occur in the corpus."""

import numpy as np
import pyro
import pytest
import torch
from scipy import sparse

import pyro_prme as prme
from pyro_prme.corpora.counts import tokens_of_words
from pyro_prme.inference.topic_guide import Counts
from pyro_prme.models.topic_model import HDP

COUNTS = sparse.csr_matrix(np.random.default_rng(0).poisson(0.7, (30, 9)) * np.arange(9))  # word 0 never occurs


def prior_of(model):
    with pyro.poutine.trace() as found:
        model.sample_theta()
    return found.trace.nodes["theta"]["fn"].concentration


def test_the_prior_of_topics_mixes_a_uniform_part_and_the_words_shares():
    model = HDP(3, 4, 10, gamma0=0.2, background=0.25)
    torch.testing.assert_close(prior_of(model), torch.full((4,), 0.2))  # before it has seen a corpus
    model.follow_words(torch.tensor([6.0, 3.0, 1.0, 0.0]))
    expected = 0.2 * 4 * (0.75 / 4 + 0.25 * torch.tensor([0.6, 0.3, 0.1, 0.0]))
    torch.testing.assert_close(prior_of(model), expected)
    assert prior_of(model).sum() == pytest.approx(0.8)
    learned = HDP(3, 4, 10, gamma0=pyro.distributions.Gamma(1.0, 1.0), background=0.25)
    learned.follow_words(torch.tensor([6.0, 3.0, 1.0, 0.0]))
    torch.testing.assert_close(prior_of(learned.with_numbers(gamma0=torch.tensor(0.2))), expected)
    assert "word_shares" not in HDP(3, 4, 10).state_dict()
    for wrong in (-0.1, 1, 1.5, float("nan"), "half"):
        with pytest.raises(ValueError, match=r"background is .*: it must be a finite number of at least 0 and below 1"):
            HDP(3, 4, 10, background=wrong)


def test_a_start_reads_the_background_from_the_data_and_the_factors_have_it():
    guide = prme.build(3, 9, 30, background=0.5, gamma0=0.1)[1]
    trainer = prme.Trainer(guide, Counts(COUNTS), prme.TrainOptions(batch_size=10))
    shares = np.asarray(COUNTS.sum(0)).ravel() / COUNTS.sum()
    np.testing.assert_allclose(guide.model.word_shares, shares, rtol=1e-6)
    trainer.fit(2)
    expected = 0.1 * (0.5 + 0.5 * 9 * shares)
    np.testing.assert_allclose(guide.topics.prior()[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(guide.topics.gamma[0], expected[0], rtol=1e-5)  # the word that never occurs
    again = prme.Trainer(prme.build(3, 9, 30, background=0.5, gamma0=0.1)[1], Counts(COUNTS), start=None)
    again.load_state_dict(trainer.state_dict())
    np.testing.assert_array_equal(again.guide.model.word_shares, guide.model.word_shares)


def test_tokens_are_counted_in_blocks(monkeypatch):
    monkeypatch.setattr("pyro_prme.corpora.counts._BLOCK", 7)
    np.testing.assert_array_equal(tokens_of_words(COUNTS), np.asarray(COUNTS.sum(0)).ravel())
