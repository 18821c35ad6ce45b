"""Draws from the fitted factors q and from the predictive: open this for samples as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyro
import scipy.sparse
import torch
from pyro import poutine
from torch import Tensor

from pyro_prme.answers.moments import deviation_of, mean_of
from pyro_prme.answers.posterior import Posterior
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.inference.run import Run
from pyro_prme.inference.session import alone, default_dtype, evaluating

__all__ = ["Factors", "draw_words", "posterior_factors", "prior_draws"]

_SHARED, _LOCAL = ("sticks", "topics"), ("function", "loadings")  # roles of sites that are drawn from the prior


class Factors(NamedTuple):
    """The factors of q for some documents, each an array; what the model does not have is None."""

    gamma: np.ndarray  # (K, D), of q(theta_k) = Dir(gamma_k)
    concentration: np.ndarray  # (N, K), of q(Z_nk), a Gamma
    rate: np.ndarray  # (N, K)
    h: np.ndarray | None  # (N, h_dim), points
    f_mean: np.ndarray | None  # (N, K), of q(f_nk), a Normal
    f_scale: np.ndarray | None  # (N, K)
    topics_are_points: bool = False  # theta_k is gamma_k divided by its sum

    def draw_topics(self, rng: np.random.Generator) -> np.ndarray:
        """theta, rows that sum to one, shape (K, D)."""
        theta = self.gamma if self.topics_are_points else rng.standard_gamma(self.gamma)
        return theta / theta.sum(1, keepdims=True)

    def draw_loadings(self, rng: np.random.Generator) -> np.ndarray:
        """Z, shape (N, K)."""
        return np.maximum(rng.standard_gamma(self.concentration), np.finfo(float).tiny) / self.rate

    def draw_function(self, rng: np.random.Generator) -> np.ndarray:
        """f, shape (N, K)."""
        if self.f_mean is None or self.f_scale is None:
            raise ValueError("This model has no random function, so there is no f to draw.")
        return rng.normal(self.f_mean, self.f_scale)


def posterior_factors(posterior: Posterior, corpus: Corpus) -> Factors:
    """The factors of q for a corpus's documents, from converged E-steps in evaluation mode.

    Args:
        posterior: of a fitted model with Gamma loadings.
        corpus: documents of the model's vocabulary.
    """
    K, topics = posterior.num_topics, posterior.topic_factors
    if topics is None or not topics.normalised:
        raise ValueError("q(Z) is not Gamma: draws need the closed form for Gamma loadings and their topics.")
    table = posterior.ask(corpus, partial(_local_factors, posterior), "column").values
    gamma, points = topics.gamma.double().mT.numpy(), topics.rule.points
    concentration, rate, *rest = np.split(table, [K, 2 * K, 3 * K, 4 * K], axis=1)
    f_mean, f_scale, h = (part if part.shape[1] else None for part in rest)
    return Factors(gamma, concentration, rate, h, f_mean, f_scale, points)


def _local_factors(posterior: Posterior, run: Run) -> Tensor:
    """The factors of a batch's documents side by side, shape (B, 2 K); with f (B, 4 K), with h (B, 4 K + h_dim)."""
    q: Any = run.factor(posterior.roles["loadings"])
    parts, size = [q.concentration, q.rate], len(q.rate)
    if posterior.has("function"):
        f = run.factor(posterior.roles["function"])  # DILN's is of all topics at once, (B, 1, K)
        parts += [mean_of(f).value.reshape(size, -1), deviation_of(f).value.reshape(size, -1)]
        if posterior.has("embedding"):
            parts.append(mean_of(run.factor(posterior.roles["embedding"])).value.reshape(size, -1))
    return torch.cat([part.expand(size, -1) for part in parts], -1)


def draw_words(
    lengths: np.ndarray, proportions: np.ndarray, theta: np.ndarray, rng: np.random.Generator
) -> scipy.sparse.csr_array:
    """Words of documents of given lengths: C_nm ~ Disc(proportions_n), X_nm ~ Disc(theta_C), counted.

    Args:
        lengths: tokens of each document, shape (N,).
        proportions: rows that sum to one, shape (N, K).
        theta: rows that sum to one, shape (K, D).
        rng: generator.

    Returns:
        Counts, shape (N, D).
    """
    shares = proportions / proportions.sum(1, keepdims=True)
    by_topic = rng.multinomial(lengths, shares)  # (N, K)
    rows, words = [], []
    for k, row in enumerate(theta):
        edges = np.cumsum(row)
        places = rng.random(int(by_topic[:, k].sum())) * edges[-1]
        words.append(np.minimum(np.searchsorted(edges, places, side="right"), len(row) - 1))
        rows.append(np.repeat(np.arange(len(lengths)), by_topic[:, k]))
    tokens = (np.concatenate(rows), np.concatenate(words))
    shape = (len(lengths), theta.shape[1])
    return scipy.sparse.coo_array((np.ones(len(tokens[0]), dtype=np.int64), tokens), shape=shape).tocsr()


def prior_draws(
    posterior: Posterior, factors: Factors, num_draws: int, seed: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """Draws of V, theta, f and Z from the model's own priors, with ell and the documents' h as fitted.

    A trained function belongs to the embeddings it was trained on: its prior N(0, a I) is not drawn from. Words are not
    drawn, beyond one a document that the model's program needs.

    Args:
        posterior: the fitted model.
        factors: its factors for the documents.
        num_draws: number of draws.
        seed: of the draws; the global random state is left alone.

    Yields:
        Values by role: sticks (K - 1), topics (K, D), loadings (N, K); with a random function also function (N, K) and,
        where it has them, places and embedding (N, h_dim).
    """
    model, dtype, store = posterior.model, posterior.dtype, pyro.get_param_store()
    sites = {role: site for role, site in posterior.roles.items() if posterior.has(role)}
    num, step = len(factors.rate), model.num_documents  # the plate holds no more documents than it was built for
    fitted: dict[str, np.ndarray] = {}
    if factors.h is not None:
        fitted = {"places": posterior.topic_embeddings().values, "embedding": factors.h}
    state = torch.Generator().manual_seed(seed).get_state()
    for _ in range(num_draws):
        points = {sites["places"]: torch.as_tensor(fitted["places"], dtype=dtype)} if fitted else {}
        shared: dict[str, Any] = {}
        parts: dict[str, list[Tensor]] = {}
        with (
            alone(),
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),
            store.scope(store.get_state()),
            default_dtype(dtype),
            evaluating(model, posterior.guide),
        ):
            torch.set_rng_state(state)
            for start in range(0, num, step):
                size = min(step, num - start)
                known = points | {sites[role]: value for role, value in shared.items()}
                if fitted:
                    h = torch.as_tensor(fitted["embedding"][start : start + size], dtype=dtype)[:, None]
                    known |= {sites["embedding"]: h}
                trace = poutine.trace(poutine.condition(model, data=known)).get_trace(Batch.to_draw([1] * size))
                values: dict[str, Any] = {
                    role: trace.nodes[sites[role]]["value"] for role in (*_SHARED, *_LOCAL) if role in sites
                }
                shared = {role: values[role] for role in _SHARED}
                for role in values.keys() - shared.keys():
                    parts.setdefault(role, []).append(values[role])
            state = torch.get_rng_state()
        local = {role: torch.cat(part).reshape(num, -1) for role, part in parts.items()}
        local["loadings"] = local["loadings"].clamp(min=torch.finfo(dtype).tiny)
        yield {role: value.double().numpy() for role, value in (shared | local).items()} | fitted
