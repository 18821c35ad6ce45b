import matplotlib as mpl
import numpy as np
import pytest

import pyro_prme as prme

from .pictures import TOPICS, WORDS, posterior_of

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _plain_style():
    import matplotlib.pyplot as plt

    with mpl.style.context("default"), mpl.rc_context({"font.family": "DejaVu Sans"}):
        yield
    plt.close("all")


@pytest.fixture
def corpus():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([0.4] * 4, size=40)
    counts = np.stack([rng.multinomial(30, row @ (TOPICS / TOPICS.sum(1, keepdims=True))) for row in shares])
    return prme.Corpus(counts, WORDS, tuple(f"text {n}" for n in range(40)))


@pytest.fixture
def posterior(corpus):
    return posterior_of(corpus)
