"""Where documents and topics lie: the plane of embeddings, the loadings over it, topics in order of correlation."""

from __future__ import annotations

import numpy as np
import torch

from pyro_prme.answers.posterior import Posterior
from pyro_prme.inference.session import alone, default_dtype, evaluating

__all__ = ["leaf_order", "loadings_at", "svd_plane"]


@torch.no_grad()
def loadings_at(posterior: Posterior, h: np.ndarray) -> np.ndarray:
    """Mean loadings E[Z | h] before any word is seen, at embeddings of one's own choice (see `PRME.mean_loadings`).

    Args:
        posterior: of a fitted PRME.
        h: shape (P, h_dim).

    Returns:
        Shape (P, K).
    """
    model, sticks = posterior.model, posterior.point("sticks")
    if sticks is None:
        raise ValueError("The strength of topics is read off the point V, and this guide has another rule for V.")
    V = torch.as_tensor(sticks, dtype=posterior.dtype)
    ell = torch.as_tensor(posterior.topic_embeddings().values, dtype=posterior.dtype)
    points = torch.as_tensor(h, dtype=ell.dtype)
    parts = []
    with alone(), default_dtype(ell.dtype), evaluating(model, posterior.guide):
        for part in points.split(512):
            mean, variance = model.decode(part.unsqueeze(-2), ell)
            parts.append(model.mean_loadings(V, mean.double(), variance.double()))
    return torch.cat(parts).numpy()


def svd_plane(h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The plane of most variation of embeddings h (N, h_dim).

    Returns:
        The mean m_h (h_dim,), the two leading right singular directions times their singular values (2, h_dim), and
        each document's coordinates (N, 2): h is near mean + coordinates @ directions. Signs are fixed: the largest
        component of a direction is positive.
    """
    if h.shape[0] < 3 or h.shape[1] < 2:
        raise ValueError(
            f"Embeddings of shape {h.shape} span no plane: give three documents and two dimensions or more."
        )
    mean = h.mean(0)
    left, values, right = np.linalg.svd(h - mean, full_matrices=False)
    largest = np.abs(right[:2]).argmax(1)
    sign = np.where(right[:2][np.arange(2), largest] < 0, -1.0, 1.0)
    return mean, (sign * values[:2])[:, None] * right[:2], left[:, :2] * sign


def leaf_order(correlations: np.ndarray) -> np.ndarray:
    """Order in which neighbours correlate: leaves of an average-linkage tree on 1 - correlation."""
    if len(correlations) < 3:
        return np.arange(len(correlations))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distance = np.maximum(squareform(1 - correlations, checks=False), 0)
    return leaves_list(linkage(distance, "average", optimal_ordering=True))
