"""The examples in docstrings of pictures and exports run as they stand, given a small fit."""

import doctest
import warnings

import pytest

import pyro_prme as prme
from pyro_prme import plots
from pyro_prme.answers import export

FUNCTIONS = {name: getattr(plots, name) for name in plots.__all__} | {
    name: getattr(export, name) for name in export.__all__
}


@pytest.fixture
def names(corpus):
    """What the examples take as given."""
    fits, trainers = {}, {}
    for kind in ("prme", "hdp"):
        guide = prme.build(4, corpus.vocab_size, 30, model=kind, embedding_dim=3)[1]
        trainers[kind] = prme.Trainer(guide, corpus[:30], prme.TrainOptions(batch_size=10))
        trainers[kind].fit(2)
        fits[kind] = prme.Posterior(guide, vocabulary=corpus.vocabulary)
    factors = prme.GaussianPRME(3, 5, 20, h_dim=2, ell_dim=2)
    rows = prme.Rows(prme.simulate(factors, 20)[0])
    factor_guide = prme.PRMEGuide(factors)
    prme.Trainer(factor_guide, rows, prme.TrainOptions(batch_size=20)).fit(2)
    return {
        "factor_posterior": prme.Posterior(factor_guide),
        "rows": rows,
        "corpus": corpus[:30],
        "test": corpus[30:],
        "posterior": fits["prme"],
        "hdp_posterior": fits["hdp"],
        "trainer": trainers["prme"],
        "Batch": prme.Batch,
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_runs(name, names, tmp_path, monkeypatch):
    if name == "to_pyldavis":
        pytest.importorskip("pyLDAvis", reason="pyLDAvis is not installed")
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs=FUNCTIONS | names)
    assert not any(doctest.SKIP in line.options for line in example.examples)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "\nArviZ is undergoing", FutureWarning)  # 0.23 announces 1.x when imported
        outcome = doctest.DocTestRunner().run(example)
    assert outcome.attempted > 0
    assert outcome.failed == 0
