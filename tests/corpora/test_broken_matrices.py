"""Sparse matrices whose arrays do not fit together: a sentence at every door, and never the end of the process."""

import numpy as np
import pytest
import torch
from scipy import sparse

from pyro_prme.answers.scores import completion_perplexity
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import refuse_unsound, sound_csr
from pyro_prme.estimator import PRMETopicModel
from pyro_prme.inference.build import build
from pyro_prme.inference.data import Rows
from pyro_prme.inference.topic_guide import Counts
from pyro_prme.inference.trainer import Trainer
from pyro_prme.runs.run_folder import make_trainer, resume, settings_of

N, D = 30, 18
WORDS = tuple(f"w{d}" for d in range(D))


def counts(kind="csr"):
    X = sparse.csr_matrix(np.random.default_rng(0).poisson(0.5, (N, D)))
    return X.asformat(kind)


@pytest.fixture(scope="module")
def fitted():
    return PRMETopicModel(3, max_iter=1, random_state=0).fit(counts())


def late(X, value):
    X.indptr[3] = value


def setting(name, change):
    def spoil(X):
        setattr(X, name, change(getattr(X, name)))

    return spoil


def entry(name, value):
    def spoil(X):
        getattr(X, name)[4] = value

    return spoil


FAULTS = {
    "indptr far outside": (lambda X: late(X, 10**6), "begins at entry 1000000 and ends at"),
    "indptr negative": (lambda X: late(X, -5), "and ends at -5"),
    "indptr does not begin with 0": (lambda X: X.indptr.__setitem__(0, 1), "indptr begins with 1, not with 0"),
    "indptr ends too late": (lambda X: X.indptr.__setitem__(-1, 10**6), "indptr ends with 1000000"),
    "indptr too short": (setting("indptr", lambda x: x[:-3]), "one more than it has"),
    "indptr of floats": (setting("indptr", lambda x: x.astype(float)), "whole numbers"),
    "index too large": (entry("indices", D + N), f"{D + N}"),
    "index far too large": (entry("indices", 2**31 - 1), "2147483647"),
    "index negative": (entry("indices", -1), "-1"),
    "indices of floats": (setting("indices", lambda x: x.astype(float)), "not whole numbers"),
    "fewer values than indices": (setting("data", lambda x: x[:-5]), "values"),
    "fewer indices than values": (setting("indices", lambda x: x[:-5]), "values"),
}
COO = {
    "row too large": (entry("row", 10**9), "it has an entry in row 1000000000, and rows run from 0 to 29"),
    "column negative": (entry("col", -1), "it has an entry in column -1, and columns run from 0 to 17"),
    "fewer values": (setting("data", lambda x: x[:-5]), "values are given"),
}
CASES = [(kind, fault) for kind in ("csr", "csc") for fault in FAULTS] + [("coo", fault) for fault in COO]


def broken(kind, fault):
    X = counts(kind)
    spoil, message = (COO if kind == "coo" else FAULTS)[fault]
    spoil(X)
    return X, message


DOORS = {
    "Corpus": lambda X, fitted: Corpus(X, WORDS),
    "fit": lambda X, fitted: PRMETopicModel(3, max_iter=1).fit(X),
    "partial_fit": lambda X, fitted: PRMETopicModel(3).partial_fit(X),
    "transform": lambda X, fitted: fitted.transform(X),
    "perplexity": lambda X, fitted: fitted.perplexity(X),
    "Posterior": lambda X, fitted: fitted.posterior_.proportions(X),
    "Trainer": lambda X, fitted: Trainer(build(3, D, N)[1], Counts(X)),
    "make_trainer": lambda X, fitted: make_trainer(X, settings_of(num_topics=3)),
    "Batch": lambda X, fitted: Batch.from_csr(X),
    "rows of a Batch": lambda X, fitted: Batch.from_csr(X, [1, 2, 5]),
    "held-out words": lambda X, fitted: completion_perplexity(np.ones((N, 3)), np.ones((3, D)), X),
    "Counts": lambda X, fitted: Counts(X),
    "rows of a factor model": lambda X, fitted: Rows(X),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("kind", "fault"), CASES)
def test_a_broken_matrix_is_refused_at_every_door(door, kind, fault, fitted):
    X, message = broken(kind, fault)
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as error:
        DOORS[door](X, fitted)
    assert f"The {kind.upper()} matrix is broken: " in str(error.value)
    assert message in str(error.value)


def test_resuming_with_a_broken_matrix_is_refused(tmp_path):
    from pyro_prme.runs.run_folder import save_run

    settings = settings_of(num_topics=3)
    trainer = make_trainer(counts(), settings)
    trainer.fit(1)
    save_run(tmp_path / "run", trainer, settings, WORDS)
    X, _ = broken("csr", "indptr far outside")
    with pytest.raises(ValueError, match="The CSR matrix is broken"):
        resume(tmp_path / "run", X, WORDS)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
def test_every_format_is_converted_to_the_same_counts(kind):
    dense = counts().toarray()
    for X in (counts(kind), getattr(sparse, f"{kind}_array")(counts())):
        assert (sound_csr(X).toarray() == dense).all()
        assert (Corpus(X, WORDS).counts.toarray() == dense).all()


def test_blocks_and_other_formats_are_checked_too():
    X = sparse.bsr_matrix(counts(), blocksize=(3, 2))
    refuse_unsound(X)
    X.indptr[3] = 10**6
    with pytest.raises(ValueError, match="BSR matrix is broken: row of blocks 3 begins at entry 1000000"):
        sound_csr(X)
    X = counts("lil")
    X.rows[2] = [10**6] * len(X.rows[2])
    with pytest.raises(ValueError, match="LIL matrix is broken: axis 1 index 1000000"):
        sound_csr(X)


def test_flags_that_lie_are_forgotten():
    X = sparse.csr_matrix((np.array([1, 2, 4]), np.array([5, 0, 5]), np.array([0, 3] + [3] * (N - 1))), shape=(N, D))
    X.has_canonical_format = X.has_sorted_indices = True
    corpus = Corpus(X, WORDS)
    assert corpus.counts.indices.tolist() == [0, 5]
    assert corpus.counts.data.tolist() == [2, 5]


def test_spare_room_behind_the_entries_is_not_read():
    X = counts()
    X.data = np.append(X.data, np.full(9, -7))
    X.indices = np.append(X.indices, np.full(9, 3)).astype(X.indices.dtype)
    assert Corpus(X, WORDS) == Corpus(counts(), WORDS)
    assert Batch.from_csr(X).num_entries == counts().nnz


def test_duplicates_of_a_small_type_do_not_overflow():
    X = sparse.coo_matrix((np.array([200, 100], np.uint8), ([0, 0], [1, 1])), shape=(N, D))
    assert Corpus(X, WORDS).counts[0, 1] == 300
    assert float(Batch.from_csr(X).count.sum()) == 300
    assert PRMETopicModel._whole(X)[0, 1] == 300


def test_the_matrix_that_was_given_stays_as_it_was():
    X = sparse.csr_matrix((np.array([1.0, 2, 0]), np.array([5, 0, 5]), np.array([0, 3] + [3] * (N - 1))), shape=(N, D))
    before = X.data.copy(), X.indices.copy(), X.indptr.copy()
    Corpus(X, WORDS)
    Batch.from_csr(X, [0])
    PRMETopicModel._whole(X)
    assert all((a == b).all() for a, b in zip(before, (X.data, X.indices, X.indptr), strict=True))


def test_counts_too_large_for_a_count_are_refused():
    X = counts().astype(float)
    X.data[0] = 1e300
    with pytest.raises(ValueError, match="document 0 has 1e\\+300 for word"):
        PRMETopicModel(3, max_iter=1).fit(X)


def test_a_batch_is_of_rows_that_there_are():
    for rows, message in (([30], "no document 30"), ([-1], "no document -1"), ([0.5], "whole"), ([True], "whole")):
        with pytest.raises(ValueError, match=message):
            Batch.from_csr(counts(), rows)
    assert Batch.from_csr(counts(), range(2, 4)).documents.tolist() == [2, 3]
    with pytest.raises(ValueError, match="must not fall"):
        Batch(torch.arange(2), torch.tensor([0, 5, 3]), torch.zeros(3, dtype=torch.int64), torch.ones(3))
    with pytest.raises(ValueError, match="at least one number"):
        Batch(torch.arange(0), torch.arange(0), None, torch.ones(0))
