"""A planted third-order correlation is found, and helps to complete documents."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from pyro_prme import Batch
from pyro_prme.answers.correlations import third_moment
from pyro_prme.answers.posterior import Posterior
from pyro_prme.answers.scores import completion_perplexity
from pyro_prme.inference.build import build
from pyro_prme.inference.topic_guide import Counts
from pyro_prme.inference.trainer import Trainer, TrainOptions

VOCAB, TOPICS, BETA = 80, 6, 8.0


def planted_topics():
    """Four topics on words of their own: a background, then A, B and C."""
    theta = np.kron(np.eye(4), np.arange(1, 21) ** -0.5)
    return theta / theta.sum(1, keepdims=True)


def planted_weights(num_documents, rng):
    """C is present exactly when one of A and B is: no pair is correlated, the three are."""
    a, b = rng.integers(2, size=(2, num_documents))
    present = np.stack([np.ones_like(a), a, b, a ^ b], 1)
    weights = present * rng.gamma(2.0, size=present.shape)
    return weights / weights.sum(1, keepdims=True)


def draw(weights, length, rng):
    """Word counts by topic, (N, 4, D), of documents of the given length."""
    tokens = np.stack([rng.multinomial(length, w) for w in weights])
    return np.stack([[rng.multinomial(n, t) for n, t in zip(row, planted_topics(), strict=True)] for row in tokens])


def fit(kind, counts, seed, epochs=60):
    _, guide = build(
        TOPICS, VOCAB, counts.shape[0], model=kind, beta=BETA, embedding_dim=5, encoder_hidden=(50,),
        decoder_hidden=(40, 40), seed=seed,
    )  # fmt: skip
    trainer = Trainer(guide, Counts(counts), TrainOptions(batch_size=200, learning_rate=2e-3, seed=seed))
    trainer.fit(epochs)
    return trainer, Posterior(guide)


def without_function(posterior):
    """The same topics and sticks with f = 0."""
    _, guide = build(TOPICS, VOCAB, posterior.model.num_documents, model="hdp", beta=BETA)
    trained = posterior.guide
    guide.plan(Batch.from_tokens([[0, 1]]))
    guide.topics.set(trained.topics.gamma)
    guide.claim("V").set(trained.claim("V").value().detach())
    return Posterior(guide)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_planted_third_order_correlation_is_recovered_and_completes_documents(seed, float32):
    rng = np.random.default_rng(seed)
    counts = sparse.csr_matrix(draw(planted_weights(2000, rng), 30, rng).sum(1))
    weights = planted_weights(4000, rng)
    observed, held_out = draw(weights, 6, rng), sparse.csr_matrix(draw(weights, 20, rng).sum(1))
    shown = observed.sum(-1) > 0
    other_two = shown[:, 1] & shown[:, 2] & ~shown[:, 3]  # documents that show A and B
    observed = sparse.csr_matrix(observed.sum(1))

    _, posterior = fit("prme", counts, seed)
    _, hdp = fit("hdp", counts, seed)

    topics = np.asarray(posterior.topics())
    norms = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (planted_topics(), topics)]
    cosine = norms[0] @ norms[1].T
    matched = linear_sum_assignment(-cosine)
    assert cosine[matched].min() > 0.9

    function = np.asarray(posterior.random_function(counts))
    moment = third_moment(function, *matched[1][1:])
    assert moment < -0.1, "the planted moment is negative: C is there with one of A and B, not with both or none"

    def perplexity(p, rows):
        proportions = np.asarray(p.proportions(observed[rows]))
        return completion_perplexity(proportions, np.asarray(p.topics()), held_out[rows])

    everyone = np.ones(len(other_two), bool)
    scores = {
        name: [perplexity(p, rows) for rows in (everyone, other_two)]
        for name, p in {"PRME": posterior, "f = 0": without_function(posterior), "HDP": hdp}.items()
    }
    print(f"seed {seed}: third moment {moment:.2f}, perplexity of all and of documents that show A and B: {scores}")
    for name in ("f = 0", "HDP"):
        assert (np.array(scores["PRME"]) < 0.98 * np.array(scores[name])).all()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_fit(float32):
    rng = np.random.default_rng(0)
    counts = sparse.csr_matrix(draw(planted_weights(2000, rng), 30, rng).sum(1))
    (first, _), (second, _) = (fit("prme", counts, 3, epochs=5) for _ in range(2))
    assert first.history == second.history
    assert torch.equal(first.guide.topics.gamma, second.guide.topics.gamma)
