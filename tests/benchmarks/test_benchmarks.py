"""The speed benchmarks at toy size: what they generate, fit and report is right. No time is asserted."""

import json
import math
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyro
import pytest
import torch
from scipy import sparse, stats

import pyro_prme as prme
from pyro_prme.inference.rules.topics.claim import TopicFactors
from pyro_prme.kernels import local_step as kernel
from pyro_prme.models.networks.encoders import encoder_of_depth
from pyro_prme.models.networks.layers import decoder_of_depth

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import corpora  # noqa: E402
import local_step  # noqa: E402
import measuring  # noqa: E402
import own_parts  # noqa: E402
import scaling  # noqa: E402
import training_step  # noqa: E402
from by_hand import step_by_hand  # noqa: E402

SCRIPTS = [path for path in BENCHMARKS.rglob("*.py") if "def main" in path.read_text(encoding="utf-8")]


@pytest.fixture(autouse=True)
def _local_params() -> Iterator[None]:
    with pyro.settings.context(module_local_params=True):
        yield


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(BENCHMARKS).as_posix())
def test_every_script_can_be_imported(path, monkeypatch):
    monkeypatch.syspath_prepend(str(path.parent))
    shadowed = {name: sys.modules.pop(name) for name in ("report", "trial", "experiment") if name in sys.modules}
    try:
        assert callable(runpy.run_path(str(path), run_name="shown")["main"])
    finally:
        sys.modules.update(shadowed)


# corpora


def test_words_of_a_generated_corpus_follow_the_law():
    law = corpora.zipf_mandelbrot(1000, offset=2.0, exponent=1.5)
    assert law.sum() == pytest.approx(1)
    assert law[4] / law[0] == pytest.approx((7 / 3) ** -1.5)
    counts = corpora.natural_corpus(3000, 2000, 130)
    frequency = np.sort(np.asarray(counts.sum(0)).ravel())[::-1]
    rank = np.arange(1, 1501)
    fitted = stats.linregress(np.log(rank + corpora.OFFSET), np.log(frequency[:1500]))
    assert fitted.slope == pytest.approx(-1, abs=0.1)
    assert fitted.rvalue < -0.99


def test_lengths_are_log_normal_with_the_given_mean():
    counts = corpora.natural_corpus(4000, 500, 130)
    lengths = np.asarray(counts.sum(1)).ravel()
    error = lengths.std() / len(lengths) ** 0.5
    assert abs(lengths.mean() - 130) < 4 * error
    assert np.log(lengths).std() == pytest.approx(corpora.SPREAD, rel=0.05)
    assert abs(stats.skew(np.log(lengths))) < 0.15
    assert corpora.lognormal_lengths(1000, 1.0, np.random.default_rng(0)).min() == 1


def test_a_corpus_of_the_size_of_20_newsgroups_has_its_distinct_words():
    counts = corpora.natural_corpus(2000, training_step.WORDS, training_step.TOKENS)
    assert counts.has_canonical_format
    assert counts.nnz / 2000 == pytest.approx(88.9, rel=0.05)


def test_topics_are_there():
    """Eight topics have seven directions, which are gone when tokens are dealt out to documents at random."""
    rng = np.random.default_rng(0)
    counts = corpora.natural_corpus(600, 400, 200, num_topics=8)
    words = rng.permutation(np.repeat(counts.indices, counts.data.astype(int)))
    rows = np.repeat(np.arange(600), np.asarray(counts.sum(1)).ravel().astype(int))
    dealt = sparse.csr_matrix((np.ones(len(words)), (rows, words)), counts.shape)

    def strength(matrix):
        long = matrix[np.asarray(matrix.sum(1)).ravel() > 100]
        shares = np.sqrt(long.toarray() / long.sum(1))
        return np.linalg.svd(shares - shares.mean(0), compute_uv=False)

    assert (strength(counts) > 1.5 * strength(dealt)[0]).sum() == 7


def test_the_same_seed_gives_the_same_corpus():
    first, again, other = (corpora.natural_corpus(20, 50, 10, seed=seed) for seed in (0, 0, 1))
    assert (first != again).nnz == 0
    assert (first != other).nnz > 0


# measuring


def test_parts_exclude_each_other(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    parts = measuring.Parts()

    def action():
        with parts.part("outer"):
            with parts.part("inner"):
                pass
            with parts.part("inner"):
                pass

    assert parts.measure(action) == {"rest": 2, "outer": 3, "inner": 2}


def test_watching_ends():
    parts, before = measuring.Parts(), measuring.markdown
    with parts.watch(measuring, "markdown", "table"):
        found = parts.measure(lambda: measuring.markdown(["a"], [["b"]]))
    assert set(found) == {"rest", "table"}
    assert measuring.markdown is before


def hundred_mib():
    kept = []
    return lambda: kept.append(np.ones(13_107_200)) or len(kept)


def test_a_process_of_its_own_has_its_own_memory():
    before = measuring.peak_mib()
    worker = measuring.Apart(hundred_mib)
    assert [worker(), worker()] == [1, 2]
    assert worker.close() - worker.resident_at_start > 190
    assert measuring.peak_mib() - before < 100


# scaling


def test_slopes_and_their_errors():
    x = np.array([1.0, 2, 4, 8, 16])
    exact = scaling.slope(x, 3 * x**1.5)
    assert exact.value == pytest.approx(1.5)
    assert exact.error == pytest.approx(0, abs=1e-12)
    y = x * np.array([1.1, 0.9, 1.0, 1.2, 0.8])
    expected = stats.linregress(np.log(x), np.log(y))
    assert scaling.slope(x, y) == pytest.approx((expected.slope, expected.stderr))
    expected = stats.linregress(x, y)
    assert scaling.slope(x, y, log=False) == pytest.approx((expected.slope, expected.stderr))


def timings(power):
    """A made-up result in which time grows with the given power on each axis, and memory by 8 bytes an entry."""
    rows = []
    for axis, values in scaling.AXES.items():
        for value in values:
            size = scaling.Size()._replace(**{axis: value})
            distinct = 0.7 * size.tokens
            entries = int(distinct * size.documents)
            for model in scaling.MODELS:
                times = {mode: 1e-4 * value ** power[axis] for mode in ("online", "batch")}
                row = {"axis": axis, "model": model, **size._asdict(), "entries": entries, "distinct": distinct}
                row |= {"natural": 1e-12 * size.words * size.topics * scaling.TRAFFIC, **times}
                row |= {"start_mib": 400.0, "batch_words": 9, "peak_mib": 500 + 8 * entries / 2**20}
                rows.append(row)
    return {"sizes": rows, "triad_bytes_per_second": 1e12}


def test_exponents_are_found_and_bars_judged(tmp_path):
    good = timings({"documents": 0.0, "words": 0.1, "topics": 1.0, "tokens": 0.9})
    found = scaling.exponents(good["sizes"], "tokens", "prme")
    assert found["online"].value == pytest.approx(0.9)
    assert scaling.worst_doubling(good["sizes"], "topics", "hdp", "batch") == pytest.approx(2)
    good["sizes"][-1]["online"] *= 1.5
    assert scaling.worst_doubling(good["sizes"], "tokens", "prme", "online") == pytest.approx(1.5 * 2**0.9)
    good["sizes"][-1]["online"] /= 1.5
    assert scaling.bytes_per_entry(good["sizes"], "documents", "hdp").value == pytest.approx(8)
    assert [what for what, _, met in scaling.bars(good) if not met] == []
    bad = timings({"documents": 0.15, "words": 0.2, "topics": 1.2, "tokens": 1.3})
    bad["triad_bytes_per_second"] = 2e12
    for row in bad["sizes"]:
        row["peak_mib"] += 4 * (row["entries"] + 100 * row["entries"]) / 2**20
    assert [what for what, _, met in scaling.bars(bad) if met] == []
    assert "| documents | HDP | 0.15 ± 0.00 | 0.15 ± 0.00 |" in scaling.text(bad)
    scaling.figure(good, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("model", scaling.MODELS)
def test_a_round_of_steps(model, tmp_path, monkeypatch):
    """Every document has all sweeps, batches go through the whole corpus, and only online steps move gamma."""
    counts = corpora.natural_corpus(30, 40, 10)
    scaling.store(counts, tmp_path)
    assert (scaling.load(tmp_path, 40) != counts).nnz == 0
    monkeypatch.setattr(scaling, "BATCH", 10)
    seen, sweeps, solved, step = [], [], [], prme.Trainer.step
    solve = TopicFactors.solve

    def solving(claim, *args, **kwargs):
        found = solve(claim, *args, **kwargs)
        solved[:] = found["Z"].step.sweeps.tolist()
        return found

    monkeypatch.setattr(TopicFactors, "solve", solving)

    def watched(trainer, batch):
        seen.append((trainer.options.mode, *batch.tolist()))
        out = step(trainer, batch)
        sweeps.extend(solved)
        return out

    monkeypatch.setattr(prme.Trainer, "step", watched)
    times = scaling.make_steps(model, scaling.Size(30, 40, 3, 10), tmp_path)()
    assert set(times) == {"batch", "online", "natural"}
    assert min(times.values()) > 0
    assert [mode for mode, *_ in seen] == (["batch"] * 4 + ["online"] * 4) * 2
    assert sorted(row for _, *rows in seen[:3] for row in rows) == list(range(30))
    assert set(sweeps) == {20}


@pytest.mark.slow
def test_an_axis_of_two_sizes():
    rows = scaling.measure("topics", (3, 6), 1, scaling.Size(40, 50, 3, 10))
    assert [(row["model"], row["topics"]) for row in rows] == [("hdp", 3), ("prme", 3), ("hdp", 6), ("prme", 6)]
    assert {row["entries"] for row in rows} == {corpora.natural_corpus(40, 50, 10).nnz}
    assert all(row["peak_mib"] > row["start_mib"] > 0 and row["online"] > 0 for row in rows)


# training step


def test_the_papers_networks_are_those_of_its_table_3():
    settings = training_step.MODELS["PRME, the paper's networks"]
    model, guide = prme.build(5, 30, 10, **settings)
    encoder, decoder = encoder_of_depth(4, 30, 20), decoder_of_depth(4, 5, 20, 20)
    guide.plan(prme.Batch.from_tokens([[0, 1, 2], [3, 4]]))
    for ours, papers in ((guide.claim("h").encoder, encoder), (model.decoder, decoder)):
        shapes = [{name: value.shape for name, value in net.state_dict().items()} for net in (ours, papers)]
        assert shapes[0] == shapes[1]
    assert encoder.words.weight.shape == (30, 1000)
    assert encoder.head.weight.shape == (20, 1000)


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("name", training_step.MODELS)
def test_parts_of_a_step(name):
    counts = corpora.natural_corpus(30, 40, 10)
    backward = torch.Tensor.backward
    found = training_step.make_step(training_step.MODELS[name], counts, 3, 10)()
    assert set(found.parts) == set(training_step.PARTS)
    assert min(*found.parts.values(), found.plain, found.by_hand) > 0
    assert torch.Tensor.backward is backward


@pytest.mark.parametrize("name", training_step.MODELS)
def test_a_step_by_hand_is_the_trainers(name):
    """The same bound, topics and parameters after three steps: without Pyro there is nothing less in a step."""
    counts, ends = corpora.natural_corpus(60, 200, 30), []
    for by_hand in (True, False):
        model, guide = prme.build(7, 200, 60, **training_step.MODELS[name])
        trainer = prme.Trainer(guide, prme.Counts(counts), prme.TrainOptions(mode="online"), start="documents")
        for i in range(3):
            torch.manual_seed(i)  # of the words that g does not see
            rows = np.arange(20 * i, 20 * i + 20)
            bound = step_by_hand(trainer, rows) if by_hand else sum(trainer.step(rows).values())
        ends.append([torch.tensor(bound), guide.topics.gamma, *guide.parameters(), *model.parameters()])
    for found, expected in zip(*ends, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_bars_of_a_step_and_of_generic_pyro():
    parts = dict.fromkeys(training_step.PARTS, 1.0)
    steps = [
        {"model": "HDP", "milliseconds": parts, "whole": 6.0, "overhead": 0.2},
        {"model": "PRME", "milliseconds": parts, "whole": 21.0, "overhead": 0.04},
    ]
    steps = [step | {"by_hand": 4.0, "smallest_step": 1.0, "peak_mib": 1.0} for step in steps]
    curve = [{"seconds": s, "bound": b} for s, b in ((0.0, -9.0), (30.0, -5.0), (60.0, -6.0))]
    ours = [{"seconds": 0.5, "bound": -7.0}, {"seconds": 1.0, "bound": -4.0}]
    fit = {"model": "hdp", "elbo": "Trace_ELBO", "tokens": 9, "rate": 0.1, "steps": 3, "peak_mib": 1.0}
    result = {
        "steps": steps,
        "generic": [fit | {"milliseconds": 20.0, "curve": curve}],
        "ours": [{"model": "hdp", "milliseconds": {"entries": 2.5, "tokens": 4.0}, "curve": ours}],
        "noise": [],
    }
    (row,) = training_step.comparisons(result)
    assert (row["bound"], row["seconds"], row["our_seconds"]) == (-5.0, 30.0, 1.0)
    assert (row["faster"], row["sooner"]) == (8.0, 30.0)
    assert [met for _, _, met in training_step.bars(result)] == [True, True, False, True]
    assert "| relative to HDP | 1.00 | 3.50 |" in training_step.text(result)
    assert training_step.time_to(result["generic"][0], 0.0) == math.inf


def test_stored_results_can_be_shown():
    for script in (scaling, training_step):
        assert "| bar | measured | |" in script.text(json.loads(script.RESULTS.read_text()))


# local step


@pytest.mark.usefixtures("float32")
def test_all_forms_of_the_local_step_agree():
    case = local_step.make_case(15, 30, 4)
    ones = torch.ones(1, 4)
    expected = kernel(*case[1:-1], ones, max_sweeps=local_step.SWEEPS, tolerance=0.0).counts
    for form in (local_step.torch_csr, local_step.torch_dense, local_step.torch_gather):
        torch.testing.assert_close(form(case), expected, rtol=1e-3, atol=1e-3)


# own parts


def test_both_sides_of_a_pair_give_the_same_numbers():
    folded, kept = own_parts.decoders(documents=7, topics=5)
    for pair in (own_parts.optimisers(documents=9, vocab_size=60, width=3), folded, kept):
        assert bool(pair[0]().abs().max() > 0)
        own, other = own_parts.milliseconds(pair, rounds=2)
        assert 0 < own < math.inf
        assert 0 < other < math.inf
    assert "2.00" in own_parts.text({"a": (1.0, 2.0)})
