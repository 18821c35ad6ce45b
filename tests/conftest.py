"""Every test starts from seed 0, an empty param store, float64 and Pyro's validation."""

from collections.abc import Iterator
from pathlib import Path

import pyro
import pytest
import torch

import pyro_prme as prme

from .browsing import axe, browser, pages

__all__ = ["axe", "browser", "pages"]  # fixtures: one browser for all tests, since two in a process block each other

torch.set_num_threads(1)  # tiny tensors: a second OpenMP thread only waits for the first


@pytest.fixture(autouse=True)
def _clean_pyro() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    pyro.clear_param_store()
    pyro.enable_validation(True)
    pyro.set_rng_seed(0)
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture
def float32() -> None:
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def shared_data() -> Path:
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the shared corpora are not beside the project")
    return path


#: Four small documents over ten words, one of them empty.
DOCUMENTS = [[0, 1, 2, 2, 5], [3, 4, 4], [], [7, 8, 9, 9, 9, 1, 2]]


@pytest.fixture
def tokens() -> prme.Batch:
    return prme.Batch.from_tokens(DOCUMENTS)


@pytest.fixture
def entries() -> prme.Batch:
    """The documents of `tokens` as (word, count) entries."""
    return entries_of(DOCUMENTS)


def entries_of(documents: list[list[int]], num_words: int = 10) -> prme.Batch:
    import numpy as np
    from scipy import sparse

    rows = [np.bincount(document, minlength=num_words) if document else np.zeros(num_words) for document in documents]
    return prme.Batch.from_csr(sparse.csr_matrix(np.stack(rows)))


def small_model(
    num_documents: int = 4, num_topics: int = 5, vocab_size: int = 10, kind: type[prme.TopicModel] = prme.PRME, **kwargs
) -> prme.TopicModel:
    sizes = {"h_dim": 3, "ell_dim": 2} if issubclass(kind, prme.PRME) else {}
    return kind(num_topics, vocab_size, num_documents, **sizes, **kwargs)
