"""AnnData files: what is read of them, and that no file can do more than be refused."""

import gzip
import io
import os

import h5py
import numpy as np
import pytest
import scipy.sparse

from pyro_prme.corpora.h5ad_reader import parts_of
from pyro_prme.corpora.readers import load_corpus
from tests.robustness.fuzzed_h5ad import h5ad_bytes
from tests.robustness.hostile_containers import H5AD

COUNTS = np.random.default_rng(2).poisson(0.8, (6, 5))  # as in `h5ad_bytes`


@pytest.mark.parametrize(("kind", "packed"), [("csr", False), ("csc", True), ("dense", True)])
def test_counts_and_names_are_read(tmp_path, kind, packed):
    (tmp_path / "c.h5ad").write_bytes(h5ad_bytes(kind, packed))
    corpus = load_corpus(tmp_path / "c.h5ad")
    assert (corpus.counts.toarray() == COUNTS).all()
    assert corpus.vocabulary == tuple("abcde")
    assert corpus.names[1] == "cell 1"


def test_a_packed_file_is_read_over_other_words(tmp_path):
    (tmp_path / "c.h5ad.gz").write_bytes(gzip.compress(h5ad_bytes()))
    assert (load_corpus(tmp_path / "c.h5ad.gz", vocab=("e", "a")).counts.toarray() == COUNTS[:, [4, 0]]).all()


def test_what_anndata_writes(tmp_path):
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(scipy.sparse.csr_matrix(COUNTS.astype(np.float32)))
    data.write_h5ad(tmp_path / "c.h5ad")
    corpus = load_corpus(tmp_path / "c.h5ad")
    assert (corpus.counts.toarray() == COUNTS).all()
    assert corpus.vocabulary == tuple(data.var_names)


def changed(change):
    """A sound file, changed, and open."""
    file = h5py.File(io.BytesIO(h5ad_bytes()), "r+")
    change(file)
    return file


def older(file):
    del file["var"]
    table = np.array([(f"w{d}".encode(), d) for d in range(5)], dtype=[("index", "S4"), ("n", "i4")])
    file.create_dataset("var", data=table)
    attributes = file["X"].attrs
    attributes["h5sparse_format"], attributes["h5sparse_shape"] = b"csr", attributes["shape"]
    del attributes["encoding-type"], attributes["shape"]


def masked(file):
    del file["var/_index"]
    file.create_dataset("var/_index/values", data=[b"v", b"w", b"x", b"y", b"z"])


@pytest.mark.parametrize(("change", "words"), [(older, ["w0", "w1", "w2", "w3", "w4"]), (masked, list("vwxyz"))])
def test_other_versions_of_the_format(change, words):
    with changed(change) as file:
        arrays = parts_of(file, 1 << 20)
    assert arrays["vocabulary"].tolist() == words
    assert arrays["data"].sum() == COUNTS.sum()


def replaced(name, values, **options):
    def change(file):
        del file[name]
        file.create_dataset(name, data=values, **options)

    return change


def without(name):
    return lambda file: file.__delitem__(name)


def attribute(name, value):
    return lambda file: file["X"].attrs.__setitem__(name, value)


def link(name, target):
    def change(file):
        del file[name]
        file[name] = target

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("X"), "the file has no 'X'"),
        (without("X/indptr"), "X has no 'indptr'"),
        (without("var"), "the file has no 'var'"),
        (without("obs/_index"), "obs has no '_index'"),
        (attribute("encoding-type", "coo_matrix"), "kind 'coo_matrix'"),
        (attribute("shape", np.array([6, 5, 1])), "shape of two whole numbers"),
        (attribute("shape", np.array([-6, 5])), "shape of two whole numbers"),
        (attribute("shape", np.array([7, 5])), "do not fit together"),
        (attribute("shape", np.array([6, 3])), "do not fit together"),
        (replaced("X/indptr", np.array([0, 2**62 + 1, -(2**63), -(2**62), 1, 1, 1])), "do not fit together"),
        (replaced("X/indices", np.zeros(3)), "not whole numbers"),
        (replaced("X/data", [b"1", b"2"]), "must be of numbers"),
        (replaced("X", np.zeros((2, 2, 2))), "shape \\(2, 2, 2\\)"),
        (replaced("var/_index", [[b"a"]]), "must be a list"),
        (replaced("var", np.zeros(5, [("name", "S3")])), "var has no index"),
        (link("X", h5py.SoftLink("/raw")), "'X' of the file is a link"),
        (link("X/data", h5py.ExternalLink("/dev/zero", "X")), "'data' of X is a link"),
        (replaced("var/_index", [b"\xff"]), "can't decode"),
        (replaced("X/data", np.zeros(1 << 18)), "unpacks to more than 1 MiB"),
    ],
)
def test_other_files_are_refused(change, message):
    with changed(change) as file, pytest.raises(ValueError, match=message):
        parts_of(file, 1 << 20)


@pytest.mark.parametrize(
    "name",
    [
        "an h5ad of long names",
        "an h5ad with its numbers elsewhere",
        "an h5ad with a block that is announced large",
        pytest.param("an h5ad that unpacks to gigabytes", marks=pytest.mark.slow),
        pytest.param("an h5ad with a block that unpacks to gigabytes", marks=pytest.mark.slow),
    ],
)
def test_files_that_ask_for_much_are_refused_by_name(tmp_path, name):
    path = H5AD[name](np.random.default_rng(0), tmp_path / "hostile")
    with pytest.raises(ValueError, match="is not a good h5ad file") as caught:
        load_corpus(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise ImportError", "needs the package h5py: install it"),
        ("import os; os.abort()", "it ended the HDF5 library, with code -6"),
    ],
)
def test_a_library_that_is_missing_or_dies_is_a_sentence(tmp_path, monkeypatch, program, message):
    (tmp_path / "h5py.py").write_text(program)
    (tmp_path / "c.h5ad").write_bytes(h5ad_bytes())
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path / "c.h5ad")


def test_what_is_not_hdf5_is_refused(tmp_path):
    (tmp_path / "c.h5ad").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"c\.h5ad is not a good h5ad file \(it does not begin as HDF5 files do\)"):
        load_corpus(tmp_path / "c.h5ad")
