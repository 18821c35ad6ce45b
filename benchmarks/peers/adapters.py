"""The programs that are compared: each trains until the clock says stop, and can predict whenever it ticks.

An adapter is called as `train(counts, clock, threads, seed, **settings)`. It brings the counts into the program's own
format, starts the clock, and calls `clock.tick(predict, epochs)` after each pass or so. `predict` gives the program's
own topics, and its own proportions of the observed words.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from trial import Clock

Counts = sparse.csr_matrix


def sklearn_lda(counts: Counts, clock: Clock, threads: int, seed: int, **settings: Any) -> None:
    """scikit-learn's `LatentDirichletAllocation.fit`, batch or online."""
    from sklearn.decomposition import LatentDirichletAllocation

    class Ticking(LatentDirichletAllocation):
        seen = 0

        def _em_step(self, X: Any, *args: Any, **kwargs: Any) -> None:
            super()._em_step(X, *args, **kwargs)
            self.seen += X.shape[0]
            if self.learning_method == "batch" or self.n_batch_iter_ % 4 == 0:
                clock.tick(lambda observed: (self.transform(observed), self.components_), self.seen / len_corpus)

    len_corpus, documents = counts.shape[0], counts.astype(np.float32)
    clock.start()
    Ticking(max_iter=10**9, n_jobs=threads, random_state=seed, **settings).fit(documents)


def bags(counts: Counts) -> list[list[tuple[int, int]]]:
    """gensim's format."""
    rows = np.split(np.arange(counts.nnz), counts.indptr[1:-1])
    return [list(zip(counts.indices[r].tolist(), counts.data[r].tolist(), strict=True)) for r in rows]


def gensim_lda(counts: Counts, clock: Clock, threads: int, seed: int, num_topics: int = 100, **settings: Any) -> None:
    """gensim's `LdaMulticore`: the clock ticks whenever it starts to read the documents again."""
    from gensim.models import LdaMulticore

    class Documents(list):
        passes = 0

        def __iter__(self) -> Any:
            if self.passes:
                clock.tick(lambda observed: (model.inference(bags(observed))[0], model.get_topics()), self.passes)
            self.passes += 1
            return super().__iter__()

    documents, words = Documents(bags(counts)), {d: str(d) for d in range(counts.shape[1])}
    clock.start()
    model = LdaMulticore(None, num_topics, words, threads, passes=10**9, eval_every=None, random_state=seed, **settings)
    model.update(documents)


def gensim_hdp(counts: Counts, clock: Clock, threads: int, seed: int, **settings: Any) -> None:
    """gensim's `HdpModel`, which uses one thread."""
    from gensim.models import HdpModel

    class Ticking(HdpModel):
        def update_chunk(self, chunk: Any, *args: Any, **kwargs: Any) -> Any:
            result = super().update_chunk(chunk, *args, **kwargs)
            clock.tick(self.predict, (self.m_num_docs_processed + len(chunk)) / len(documents))
            return result

        def predict(self, observed: Any) -> tuple[np.ndarray, np.ndarray]:
            self.update_expectations()
            self.lda_alpha, self.lda_beta = self.hdp_to_lda()
            return self.inference(bags(observed)), self.lda_beta

    documents, words = bags(counts), {d: str(d) for d in range(counts.shape[1])}
    clock.start()
    Ticking(documents, words, max_chunks=10**9, random_state=seed, **settings)


def tokens(counts: Counts) -> list[list[str]]:
    """tomotopy's format: each document as a list of words, here their ids."""
    lengths = np.asarray(counts.sum(1)).ravel()
    rows = np.split(np.repeat(counts.indices, counts.data), np.cumsum(lengths)[:-1])
    return [[str(word) for word in row] for row in rows]


def tomotopy_gibbs(
    counts: Counts,
    clock: Clock,
    threads: int,
    seed: int,
    model: str,
    sweeps: int = 10,
    chains: int = 5,
    chain_length: int = 60,
    **settings: Any,
) -> None:
    """tomotopy's collapsed Gibbs samplers; proportions are the mean of the ends of a few chains for each document."""
    import tomotopy

    def predict(observed: Any) -> tuple[np.ndarray, np.ndarray]:
        topics = np.zeros((sampler.k, counts.shape[1]))
        topics[:, [int(word) for word in sampler.used_vocabs]] = [
            sampler.get_topic_word_dist(k) for k in range(sampler.k)
        ]
        documents, proportions = tokens(observed), np.zeros((observed.shape[0], sampler.k))
        for _ in range(chains):
            made = [sampler.make_doc(document) for document in documents]
            proportions += np.array(sampler.infer(made, chain_length, workers=threads)[0])
        return np.maximum(proportions, 0), topics

    sampler = getattr(tomotopy, model)(seed=seed, **settings)
    for document in tokens(counts):
        sampler.add_doc(document)
    clock.start()
    while True:
        sampler.train(sweeps, workers=threads)
        clock.tick(predict, sampler.global_step)


def prod_lda(
    counts: Counts,
    clock: Clock,
    threads: int,
    seed: int,
    num_topics: int = 100,
    hidden: int = 100,
    dropout: float = 0.2,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
) -> None:
    """ProdLDA in Pyro: a logistic-normal variational autoencoder whose words are a product of experts."""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import SVI, TraceMeanField_ELBO
    from torch import nn

    def flat_norm(size: int) -> nn.Module:
        return nn.BatchNorm1d(size, affine=False)

    torch.set_num_threads(threads)
    pyro.set_rng_seed(seed)
    (num_documents, vocab_size), wide = counts.shape, nn.Softplus()
    body = nn.Sequential(nn.Linear(vocab_size, hidden), wide, nn.Linear(hidden, hidden), wide, nn.Dropout(dropout))
    mean, spread = (nn.Sequential(nn.Linear(hidden, num_topics), flat_norm(num_topics)) for _ in range(2))
    words = nn.Sequential(nn.Dropout(dropout), nn.Linear(num_topics, vocab_size, bias=False), flat_norm(vocab_size))
    networks = nn.ModuleDict({"body": body, "mean": mean, "spread": spread, "words": words})

    def dense(matrix: Any) -> torch.Tensor:
        return torch.as_tensor(matrix.toarray(), dtype=torch.float32)

    def model(x: torch.Tensor) -> None:
        pyro.module("words", words)
        with pyro.plate("documents", num_documents, subsample=x):
            z = pyro.sample("z", dist.Normal(x.new_zeros(num_topics), 1.0).to_event(1))
            pyro.sample("x", dist.Multinomial(logits=words(z.softmax(-1)), validate_args=False), obs=x)

    def guide(x: torch.Tensor) -> None:
        pyro.module("networks", nn.ModuleDict({name: networks[name] for name in ("body", "mean", "spread")}))
        with pyro.plate("documents", num_documents, subsample=x):
            shared = body(x)
            pyro.sample("z", dist.Normal(mean(shared), (0.5 * spread(shared)).exp()).to_event(1))

    @torch.no_grad()
    def predict(observed: Any) -> tuple[None, np.ndarray]:
        networks.eval()
        parts = [observed[start : start + 256] for start in range(0, observed.shape[0], 256)]
        rows = [words(mean(body(dense(part))).softmax(-1)).softmax(-1).numpy() for part in parts]
        networks.train()
        return None, np.concatenate(rows)

    svi = SVI(model, guide, pyro.optim.Adam({"lr": learning_rate}), TraceMeanField_ELBO())
    rng, epochs = np.random.default_rng(seed), 0
    clock.start()
    while True:
        for rows in np.array_split(rng.permutation(num_documents), -(-num_documents // batch_size)):
            svi.step(dense(counts[rows]))
        epochs += 1
        clock.tick(predict, epochs)


def ours(counts: Counts, clock: Clock, threads: int, seed: int, num_topics: int = 100, **settings: Any) -> None:
    """This library, start included; kernels are compiled, or read from a cache, by a fit of a tiny corpus before."""
    import torch

    import pyro_prme as prme

    def trainer_of(documents: Counts, topics: int) -> prme.Trainer:
        guide = prme.build(topics, documents.shape[1], documents.shape[0], seed=seed, **settings)[1]
        return prme.Trainer(guide, prme.Counts(documents), prme.TrainOptions(seed=seed))

    def predict(observed: Any) -> tuple[np.ndarray, np.ndarray]:
        posterior = prme.Posterior(trainer.guide)
        return posterior.proportions(observed).values, posterior.topics().values

    torch.set_num_threads(threads)
    began = time.perf_counter()
    trainer = trainer_of(Counts(np.random.default_rng(0).poisson(0.5, (40, counts.shape[1]))), 5)
    trainer.fit(1)
    predict(counts[:2])
    clock.warm_up = time.perf_counter() - began
    clock.start()
    trainer = trainer_of(counts, num_topics)
    clock.tick(predict, 0)
    while True:
        trainer.epoch()
        clock.tick(predict, len(trainer.history))
