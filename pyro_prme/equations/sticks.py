"""Stick-breaking weights, in log space. Open it to see how V becomes p (paper, eq. topic_model_z, second line)."""

import torch
from torch import Tensor

__all__ = ["MIN_CONCENTRATION", "log_stick_weights", "stick_weights", "sticks_from_weights"]

#: Floor on beta p_k. In float32 a quarter of the prior draws at K = 100, alpha = 1 have some beta p_k = 0,
#: and a Gamma distribution of shape 0 does not exist.
MIN_CONCENTRATION = 1e-6


def log_stick_weights(V: Tensor) -> Tensor:
    r"""Logarithms of the stick-breaking weights.

    .. math:: \ln p_k = \ln V_k + \sum_{j<k} \ln(1 - V_j)

    Differs from the paper: truncated at K, the last stick takes what is left (V_K = 1), so V has K - 1 entries and the
    K weights sum to one.

    Args:
        V: stick proportions in (0, 1), shape (..., K - 1).

    Returns:
        Log weights, shape (..., K).
    """
    eps = torch.finfo(V.dtype).eps
    V = V.clamp(min=torch.finfo(V.dtype).tiny, max=1 - eps)
    zero = V.new_zeros((*V.shape[:-1], 1))
    log_left = torch.cat([zero, torch.log1p(-V).cumsum(-1)], -1)  # (..., K)
    return torch.cat([V.log(), zero], -1) + log_left


def stick_weights(V: Tensor) -> Tensor:
    """Stick-breaking weights p, shape (..., K), that sum to one; see `log_stick_weights`."""
    return log_stick_weights(V).exp()


def sticks_from_weights(p: Tensor) -> Tensor:
    r"""The V whose stick-breaking weights are p.

    .. math:: V_k = p_k / \sum_{j \geq k} p_j

    Args:
        p: positive weights, shape (..., K); they need not sum to one.

    Returns:
        Stick proportions, shape (..., K - 1).
    """
    left = p.flip(-1).cumsum(-1).flip(-1)  # (..., K)
    return (p / left)[..., :-1]
