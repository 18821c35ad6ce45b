"""Toy corpora, and fits of the topic models to them, for the tests of inference."""

import numpy as np
import torch
from scipy import sparse

from pyro_prme.inference import RunOptions
from pyro_prme.inference.build import build
from pyro_prme.inference.session import evaluating
from pyro_prme.inference.topic_guide import Counts
from pyro_prme.inference.trainer import Trainer, TrainOptions


def corpus(num_documents=60, vocab_size=40, length=25, seed=0):
    """Documents of two topics out of four, on disjoint words."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(4), np.ones(vocab_size // 4)) + 0.01
    topics /= topics.sum(1, keepdims=True)
    rows = []
    for _ in range(num_documents):
        weights = np.zeros(4)
        weights[rng.choice(4, 2, replace=False)] = 0.5
        rows.append(rng.multinomial(length, weights @ topics))
    return sparse.csr_matrix(np.stack(rows))


def closed_form_bounds(guide, batch, rounds, sweeps=None):
    """The bound after each E-step and after each natural step, networks frozen, in evaluation mode.

    For a `BagOfWordsEncoder`: a `TopicEncoder` reads the topics, so that h moves with them and they are no block.
    """
    bounds, local = [], {}
    with torch.no_grad(), evaluating(guide.model, guide):
        for _ in range(rounds):
            run = guide.run(batch, options=RunOptions(started=local, sweeps=sweeps))
            bounds.append(float(run.bound()))
            for claim in guide.claims:
                claim.gather(run)
                claim.natural_step(1.0)
            bounds.append(float(guide.run(batch, options=RunOptions(held=run.local)).bound()))
            local = run.local
    return torch.tensor(bounds, dtype=torch.float64)


def trainer(counts, num_topics=6, model="prme", seed=0, hyper=None, start="kmeans", **options):
    """A trainer of a topic model built for the counts."""
    _, guide = build(num_topics, counts.shape[1], counts.shape[0], model=model, seed=seed, **(hyper or {}))
    return Trainer(guide, Counts(counts), TrainOptions(**({"batch_size": 20, "seed": seed} | options)), start=start)
