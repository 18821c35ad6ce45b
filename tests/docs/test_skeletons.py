"""The skeletons to copy work: a model, a rule and a reader."""

import importlib.util
import sys
from pathlib import Path

import pyro
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyro import distributions as dist

from pyro_prme.inference import ClosedFormGuide, FitOptions, fit
from pyro_prme.inference.guide import RULES
from tests.robustness.trials import spoken

FOLDER = Path(__file__).parents[2] / "docs" / "skeletons"


def skeleton(name):
    spec = importlib.util.spec_from_file_location(f"skeleton_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_model_is_fitted_in_closed_form(capsys):
    rates = torch.tensor([0.5, 2.0, 6.0])
    counts = torch.poisson(rates[:, None].expand(3, 400))
    guide, means = skeleton("model").fit_sales(counts)
    assert torch.allclose(means, rates, rtol=0.15)
    assert capsys.readouterr().out.count("closed form") == 2
    assert type(guide).__name__ == "ClosedFormGuide"


def test_the_rule_is_used_where_nothing_is_closed_and_finds_the_place():
    def model(x):
        place = pyro.sample("place", dist.Laplace(0.0, 1.0).expand([2]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("x", dist.StudentT(5.0, place, 0.1).to_event(1), obs=x)

    x = dist.StudentT(5.0, torch.tensor([1.0, -2.0]), 0.1).sample((300,))
    guide = ClosedFormGuide(model, candidates=(RULES[2], skeleton("rule").OneScale()))
    assert "Normal with one scale" in str(guide.plan(x))
    fit(guide, x, options=FitOptions(epochs=400, learning_rate=0.02, progress=False))
    assert torch.allclose(guide.run(x).factor("place").mean, torch.tensor([1.0, -2.0]), atol=0.05)


def test_the_rule_says_what_it_refuses():
    def model(x):
        width = pyro.sample("width", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("x", dist.StudentT(5.0, 0.0, width), obs=x)

    guide = ClosedFormGuide(model, {"width": skeleton("rule").OneScale()})
    with pytest.raises(ValueError, match="its values are not all real numbers"):
        guide.plan(torch.ones(3))


def test_the_reader_reads_pairs_and_names_the_line(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("one\tant\none\tbee\ntwo\tant\none\tant\n")
    corpus = skeleton("reader").read_pairs(path)
    assert corpus.names == ("one", "two")
    assert corpus.counts.toarray().tolist() == [[2, 1], [1, 0]]
    path.write_text("one\tant\none bee\n")
    with pytest.raises(ValueError, match=r"pairs\.tsv, line 2: expected 'document<tab>word'"):
        skeleton("reader").read_pairs(path)


@settings(deadline=None, max_examples=60)
@given(data=st.lists(st.sampled_from([b"one", b"\t", b"\n", b"ant", b"\xff", b"\x00", b" ", b"\r\n"]), max_size=15))
def test_the_reader_refuses_in_one_sentence(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_bytes(b"".join(data))
    outcome = spoken(lambda: skeleton("reader").read_pairs(path), "pairs", path)
    assert not outcome.fault, outcome.fault
