"""What was learned: topics, proportions, embeddings and correlations, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from scipy import sparse

from pyro_prme.batch import Batch
from pyro_prme.guide import PRMEGuide
from pyro_prme.model import PRME
from pyro_prme.prototype import eval_mode
from pyro_prme.rules import GammaLoadings

__all__ = ["Posterior", "third_moment"]


class Posterior:
    """A fitted model, asked in evaluation mode: a document's answer does not depend on the others of its batch.

    Args:
        model: the model.
        guide: its fitted guide.
        batch_size: documents handled at a time.
    """

    def __init__(self, model: PRME, guide: PRMEGuide, batch_size: int = 500) -> None:
        self.model, self.guide, self.batch_size = model, guide, batch_size

    def _batches(self, counts: sparse.csr_matrix) -> Iterator[Batch]:
        counts = sparse.csr_matrix(counts)
        for start in range(0, counts.shape[0], self.batch_size):
            part = counts[start : start + self.batch_size]
            batch = Batch.from_csr(part)
            yield Batch(batch.documents % self.model.num_documents, batch.indptr, batch.word, batch.count)

    def topics(self) -> np.ndarray:
        """E theta, shape (K, D)."""
        return self.guide.rules["theta"].topics().numpy()

    @torch.no_grad()
    def loadings(self, counts: sparse.csr_matrix) -> np.ndarray:
        """E Z of documents (documents x words), from a converged E-step, shape (N, K)."""
        with eval_mode(self.model, self.guide), converged(self.guide):
            parts = [self.guide.expectations(batch).posterior("Z").mean for batch in self._batches(counts)]
        return torch.cat(parts).numpy()

    def proportions(self, counts: sparse.csr_matrix) -> np.ndarray:
        """E Z divided by its sum over topics, rows that sum to one, shape (N, K)."""
        loadings = self.loadings(counts)
        return loadings / loadings.sum(1, keepdims=True)

    @torch.no_grad()
    def random_function(self, counts: sparse.csr_matrix) -> np.ndarray:
        """mu_f(h_n, ell_k), shape (N, K)."""
        ell = self.guide.rules["ell"].value()
        with eval_mode(self.model, self.guide):
            parts = [self.model.decoder(self.guide.embeddings(batch), ell)[0] for batch in self._batches(counts)]
        return torch.cat(parts).numpy()


@contextmanager
def converged(guide: PRMEGuide, max_sweeps: int = 200, tolerance: float = 1e-4) -> Iterator[None]:
    """Within it, E-steps run until they have converged."""
    rule = guide.rules["Z"]
    if not isinstance(rule, GammaLoadings):
        yield
        return
    before = rule.max_sweeps, rule.tolerance
    rule.max_sweeps, rule.tolerance = max_sweeps, tolerance
    try:
        yield
    finally:
        rule.max_sweeps, rule.tolerance = before


def third_moment(values: np.ndarray, i: int, j: int, k: int) -> float:
    """The standardised third cross-moment of three columns, over the documents."""
    x = values[:, [i, j, k]]
    x = (x - x.mean(0)) / x.std(0)
    return float(x.prod(1).mean())
