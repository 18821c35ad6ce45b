from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pyro_prme as prme
from pyro_prme.explorer import explore

GROUPS = 4
WORDS = (*(f"{letter}{i}" for letter in "abcd" for i in range(8)), '<b>"&</b>')


def small_corpus() -> prme.Corpus:
    """Documents about one to three of four groups of words, two of which go together; one has no words."""
    rng = np.random.default_rng(3)
    groups = np.hstack([np.kron(np.eye(GROUPS), rng.uniform(0.3, 1.5, 8)), np.full((GROUPS, 1), 0.2)]) + 0.02
    shares = rng.dirichlet([0.3] * GROUPS, size=60)
    shares[:30, 1] = shares[:30, 0]
    shares /= shares.sum(1, keepdims=True)
    counts = np.stack([rng.multinomial(40, row @ groups / (row @ groups).sum()) for row in shares])
    counts[7] = 0
    return prme.Corpus(counts, WORDS, tuple(f"text <i>{n}</i>" if n == 3 else f"text {n}" for n in range(60)))


def fitted(**settings: Any) -> tuple[prme.Posterior, prme.Corpus]:
    corpus = small_corpus()
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model = prme.PRMETopicModel(5, max_iter=5, batch_size=20, random_state=0, **settings).fit(corpus)
    finally:
        torch.set_default_dtype(dtype)
    return model.posterior_, corpus


@pytest.fixture(scope="session")
def shape_fit() -> tuple[prme.Posterior, prme.Corpus]:
    """Dirichlet topics, whose updates the page has; f in the shape; embeddings of two dimensions, shown whole."""
    return fitted(preset="dirichlet", embedding_dim=2)


@pytest.fixture(scope="session")
def scale_fit() -> tuple[prme.Posterior, prme.Corpus]:
    return fitted(preset="paper", embedding_dim=2)


@pytest.fixture(scope="session")
def hdp_fit() -> tuple[prme.Posterior, prme.Corpus]:
    return fitted(model="hdp")


@pytest.fixture(scope="session")
def shape_page(shape_fit, tmp_path_factory) -> Path:
    return explore(*shape_fit, tmp_path_factory.mktemp("page") / "shape.html", title="A <title> & more")


@pytest.fixture(scope="session")
def scale_page(scale_fit, tmp_path_factory) -> Path:
    return explore(*scale_fit, tmp_path_factory.mktemp("page") / "scale.html")


@pytest.fixture(scope="session")
def hdp_page(hdp_fit, tmp_path_factory) -> Path:
    return explore(*hdp_fit, tmp_path_factory.mktemp("page") / "hdp.html")
