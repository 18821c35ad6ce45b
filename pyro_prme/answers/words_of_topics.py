"""Which words stand for a topic, and how far two topics are apart: open this to see what `top_words` ranks by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import rankdata

__all__ = ["RANKINGS", "frex", "hellinger", "lift"]


def lift(topics: np.ndarray, usage: np.ndarray) -> np.ndarray:
    r"""How much more probable a word is in a topic than in the whole corpus.

    .. math::
        \theta_{kd} \,\Big/ \sum_j u_j \theta_{jd}

    Args:
        topics: theta, shape (K, D).
        usage: u, each topic's share of the tokens, shape (K,).

    Returns:
        Shape (K, D).
    """
    return topics / (usage @ topics)


def frex(topics: np.ndarray, usage: np.ndarray) -> np.ndarray:
    r"""Frequency and exclusivity (FREX): the harmonic mean of a word's two ranks within the topic.

    .. math::
        2 \,\Big/ \Big(\frac{1}{F_k(\theta_{kd})} + \frac{1}{E_k(e_{kd})}\Big), \qquad
        e_{kd} = \theta_{kd} \,\Big/ \sum_j \theta_{jd}

    with F_k and E_k the empirical distribution functions over the words of topic k, so that both parts lie in (0, 1].

    Args:
        topics: theta, shape (K, D).
        usage: not used: exclusivity compares the topics as equals.

    Returns:
        Shape (K, D), in (0, 1].
    """
    frequency = rankdata(topics, method="max", axis=1) / topics.shape[1]
    exclusivity = rankdata(topics / topics.sum(0), method="max", axis=1) / topics.shape[1]
    return 2 / (1 / frequency + 1 / exclusivity)


#: Scores (K, D) from topics (K, D) and usage (K,), by the name that `Posterior.top_words` takes.
RANKINGS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "probability": lambda topics, usage: topics,
    "lift": lift,
    "frex": frex,
}


def hellinger(topics: np.ndarray, topic: np.ndarray) -> np.ndarray:
    r"""Hellinger distance of distributions over words, between 0 (equal) and 1 (no word in common).

    .. math::
        \Big(1 - \sum_d \sqrt{\theta_{kd} \theta_d}\Big)^{1/2}

    Args:
        topics: shape (K, D).
        topic: shape (D,).

    Returns:
        Shape (K,).
    """
    return np.sqrt(np.clip(1 - np.sqrt(topics) @ np.sqrt(topic), 0, 1))
