"""Cost of a training step per document, and peak memory, as documents, vocabulary, topics and lengths grow.

    python benchmarks/scaling.py [--rounds 8]
    python benchmarks/scaling.py --report

Each of the four grows by steps of two while the others stay, on generated corpora with the statistics of natural
language (corpora.py). A step is that of the library on 500 documents, cut from the shuffled corpus as in a fit: online,
or batch, which is the same without the natural step. Every document has all 20 sweeps, so that each size does the same
work whatever it converges to. Every size has a process of its own, for its memory; the sizes of an axis take turns,
and the best of the rounds counts. Exponents are slopes of a least-squares line through the logarithms, with their
standard errors. Writes results/scaling.json and scaling.png.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyro
from corpora import natural_corpus
from local_step import machine_rates
from measuring import Apart, Bar, circumstances, markdown, verdicts
from scipy import sparse

import pyro_prme as prme

RESULTS = Path(__file__).parent / "results" / "scaling.json"
BATCH, STEPS = 500, 4  # documents of a step; steps of a round
DOUBLING = 1.1  # what "flat" and "linear" leave room for, a doubling
MODELS = {"hdp": "HDP", "prme": "PRME"}
TRAFFIC = 16  # bytes an entry of gamma: it and the pending statistics are read and written once, in float32


class Size(NamedTuple):
    """What a corpus and its model have of each."""

    documents: int = 4000
    words: int = 16_000
    topics: int = 100
    tokens: int = 130


AXES: dict[str, tuple[int, ...]] = {
    "documents": (8000, 16_000, 32_000, 64_000, 128_000),
    "words": (8000, 16_000, 32_000, 64_000, 128_000),
    "topics": (25, 50, 100, 200, 400),
    "tokens": (33, 65, 130, 260, 520),
}


class Slope(NamedTuple):
    """An exponent and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def slope(x: list[float], y: list[float], *, log: bool = True) -> Slope:
    """Slope of the least-squares line through (x, y) or, with log, through their logarithms."""
    a, b = (np.log(v) if log else np.asarray(v, float) for v in (x, y))
    centred = a - a.mean()
    value = centred @ b / (centred @ centred)
    residual = b - b.mean() - value * centred
    return Slope(float(value), float(np.sqrt(residual @ residual / (len(a) - 2) / (centred @ centred))))


def store(counts: sparse.csr_matrix, folder: Path) -> None:
    """Plain arrays: a process that loads them needs no more memory than they take."""
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(counts, name))


def load(folder: Path, num_words: int) -> sparse.csr_matrix:
    data, indices, indptr = (np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr"))
    return sparse.csr_matrix((data, indices, indptr), (len(indptr) - 1, num_words))


def make_steps(model: str, size: Size, folder: Path) -> Callable[[], dict[str, float]]:
    """A trained-a-little model; each call times a round of steps of both modes, by document, and the natural step."""
    pyro.settings.set(module_local_params=True)
    counts = load(folder, size.words)
    guide = prme.build(size.topics, size.words, size.documents, model=model)[1]
    options = prme.TrainOptions(mode="online", batch_size=BATCH)
    trainer = prme.Trainer(guide, prme.Counts(counts), options, start="documents")
    guide.topics.rule = replace(guide.topics.rule, tolerance=0.0)
    batches: Iterator[np.ndarray] = iter(())

    def documents_done() -> int:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = trainer.batches(shuffle=True)
            batch = next(batches)
        trainer.step(batch)
        return len(batch)

    def per_document(mode: str) -> float:
        trainer.options = replace(trainer.options, mode=mode)
        began = time.perf_counter()
        done = sum(documents_done() for _ in range(STEPS))
        return (time.perf_counter() - began) / done

    def a_round() -> dict[str, float]:
        times = {mode: per_document(mode) for mode in ("batch", "online")}
        began = time.perf_counter()
        guide.topics.natural_step(0.01)
        return times | {"natural": time.perf_counter() - began}

    a_round()
    return a_round


def measure(axis: str, values: tuple[int, ...], rounds: int, size: Size | None = None) -> list[dict[str, Any]]:
    """Seconds and memory of each model at each size of an axis; within it all take turns."""
    size, rows, workers = size or Size(), [], []
    with tempfile.TemporaryDirectory() as folder:
        for value in values:
            here, path = size._replace(**{axis: value}), Path(folder) / str(value)
            path.mkdir()
            counts = natural_corpus(here.documents, here.words, here.tokens)
            store(counts, path)
            for model in MODELS:
                worker = Apart(make_steps, model, here, path)
                workers.append(worker)
                facts = {"axis": axis, "model": model, **here._asdict(), "entries": counts.nnz}
                facts |= {"distinct": counts.nnz / here.documents, "batch_words": words_of_a_batch(counts)}
                rows.append(facts | {"start_mib": worker.resident_at_start})
        for _ in range(rounds):
            for row, worker in zip(rows, workers, strict=True):
                for name, value in worker().items():
                    row[name] = min(value, row.get(name, np.inf))
        for row, worker in zip(rows, workers, strict=True):
            row["peak_mib"] = worker.close()
    return rows


def words_of_a_batch(counts: sparse.csr_matrix) -> int:
    """How many distinct words a batch has: a larger vocabulary gives it more, and each has a row of E ln theta."""
    return len(np.unique(counts[:BATCH].indices))


def worst_doubling(rows: list[dict[str, Any]], axis: str, model: str, mode: str) -> float:
    """The largest growth from one size to the next, as growth a doubling."""
    here = along(rows, axis, model)
    pairs = [(b[horizontal(axis)] / a[horizontal(axis)], b[mode] / a[mode]) for a, b in pairwise(here)]
    return max(time ** (np.log(2) / np.log(size)) for size, time in pairs)


def along(rows: list[dict[str, Any]], axis: str, model: str) -> list[dict[str, Any]]:
    return [row for row in rows if (row["axis"], row["model"]) == (axis, model)]


def horizontal(axis: str) -> str:
    """What the exponent of an axis is of: lengths are counted in distinct words."""
    return "distinct" if axis == "tokens" else axis


def exponents(rows: list[dict[str, Any]], axis: str, model: str) -> dict[str, Slope]:
    """Exponents of the seconds of both modes and of the natural step."""
    here = along(rows, axis, model)
    x = [row[horizontal(axis)] for row in here]
    return {name: slope(x, [row[name] for row in here]) for name in ("online", "batch", "natural")}


def bytes_per_entry(rows: list[dict[str, Any]], axis: str, model: str) -> Slope:
    """Peak memory against the entries of the corpus."""
    here = along(rows, axis, model)
    return slope([r["entries"] for r in here], [r["peak_mib"] * 2**20 for r in here], log=False)


def bars(result: dict[str, Any]) -> list[Bar]:
    """Those of flatness, linearity and memory."""
    rows, out = result["sizes"], []
    for model, label in MODELS.items():
        for axis, mode, power, what in (
            ("documents", "online", 0, "flat in documents"),
            ("topics", "online", 1, "at most linear in topics"),
            ("tokens", "online", 1, "at most linear in distinct words"),
            ("words", "batch", 0, "flat in the vocabulary without the natural step"),
        ):
            found, worst = exponents(rows, axis, model), worst_doubling(rows, axis, model, mode) / 2**power
            text = f"exponent {found[mode]}; at worst {worst:.2f} times the bar's growth a doubling"
            if axis == "words":  # a row of E ln theta and of statistics for each
                here = along(rows, axis, model)
                grown = 2 ** slope([r[axis] for r in here], [r["batch_words"] for r in here]).value
                text += f", where a batch has {grown:.2f} times the words"
            out.append((f"{label}: {what}, within {DOUBLING - 1:.0%} a doubling", text, worst <= DOUBLING))
        largest = along(rows, "words", model)[-1]
        traffic = largest["words"] * largest["topics"] * TRAFFIC / result["triad_bytes_per_second"]
        ratio = largest["natural"] / traffic
        text = f"{1e3 * largest['natural']:.1f} ms, its traffic {1e3 * traffic:.1f} ms: {ratio:.2f} times"
        out.append((f"{label}: natural step within its memory traffic (+{DOUBLING - 1:.0%})", text, ratio <= DOUBLING))
        entry, topics = bytes_per_entry(rows, "documents", model), Size().topics
        row_of_topics = 4 * topics / along(rows, "documents", model)[0]["distinct"]
        beyond = entry.value - 8
        text = f"{entry.value:.1f} ± {entry.error:.1f} bytes an entry, 8 of them the corpus's own"
        what = f"{label}: memory beyond the corpus below N x K numbers ({row_of_topics:.1f} bytes an entry)"
        out.append((what, text, beyond < row_of_topics))
        entry = bytes_per_entry(rows, "tokens", model)
        text = f"{entry.value:.1f} ± {entry.error:.1f} bytes an entry as documents get longer"
        what = f"{label}: memory beyond the corpus below entries x K numbers ({4 * topics} bytes an entry)"
        out.append((what, text, entry.value - 8 < 4 * topics))
    return out


def text(result: dict[str, Any]) -> str:
    """All tables, as Markdown."""
    parts = []
    for axis in AXES:
        rows = []
        for row in (row for row in result["sizes"] if row["axis"] == axis):
            cells = [f"{row[axis]:,}", f"{row['distinct']:.0f}", f"{row['batch_words']:,}", MODELS[row["model"]]]
            cells += [f"{1e6 * row[mode]:.1f}" for mode in ("online", "batch")]
            rows.append([*cells, f"{1e3 * row['natural']:.2f}", f"{row['peak_mib']:.0f}"])
        rows.sort(key=lambda row: row[3])
        columns = [axis, "distinct words", "words of a batch", "model", "online, µs a document", "batch, µs a document"]
        parts.append(markdown([*columns, "natural step, ms", "peak, MiB"], rows))
    rows = []
    for axis in AXES:
        for model, label in MODELS.items():
            found = exponents(result["sizes"], axis, model)
            rows.append([{"tokens": "distinct words"}.get(axis, axis), label, *map(str, found.values())])
    parts.append(markdown(["exponent in", "model", "online", "batch", "natural step"], rows))
    start, bandwidth = result["sizes"][0]["start_mib"], result["triad_bytes_per_second"] / 1e9
    parts.append(f"A process has {start:.0f} MiB before it begins; memory bandwidth (triad) {bandwidth:.1f} GB/s.")
    return "\n\n".join([*parts, verdicts(bars(result))])


def figure(result: dict[str, Any], path: Path) -> None:
    """Time and memory along the four axes, with the fitted exponents."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(2, 4, figsize=(15, 7.4), layout="constrained")
    colours, rows = {"hdp": "#2171b5", "prme": "#9e1b32"}, result["sizes"]
    for axis, above, below in zip(AXES, *axes, strict=True):
        for model, label in MODELS.items():
            here, found = along(rows, axis, model), exponents(rows, axis, model)
            x = [row[horizontal(axis)] for row in here]
            look = {"color": colours[model], "ms": 4, "lw": 1.4}
            for mode, style in {"online": "o-", "batch": "s--"}.items():
                y = [1e6 * row[mode] for row in here]
                above.plot(x, y, style, label=f"{label}, {mode}: {found[mode]}", **look)
            below.plot(x, [row["peak_mib"] for row in here], "o-", label=label, **look)
        name = {"tokens": "distinct words of a document", "words": "vocabulary"}.get(axis, axis)
        if axis == "words":
            y = [1e6 * row["natural"] / BATCH for row in here]
            above.plot(x, y, ".-.", color="0.4", label="natural step alone")
            y = [1e6 * w * Size().topics * TRAFFIC / result["triad_bytes_per_second"] / BATCH for w in x]
            above.plot(x, y, ":", color="0.4", label="its traffic at the bandwidth of memory")
        for ax in (above, below):
            ax.set(xscale="log", xlabel=name)
            ax.set_xticks(x, [f"{v / 1000:g}k" if v >= 1000 else f"{v:.0f}" for v in x])
            ax.set_xticks([], minor=True)
            ax.grid(alpha=0.25, which="both")
            ax.spines[["top", "right"]].set_visible(False)
        above.set_yscale("log")
        low, high = above.get_ylim()
        above.set_ylim(low, high * (high / low) ** (0.8 if axis == "words" else 0.5))  # room for the legend
        above.yaxis.set_major_formatter("{x:g}")
        above.yaxis.set_minor_formatter("")
        above.legend(fontsize=8, frameon=False, loc="upper left", title="exponents, standard errors", title_fontsize=8)
        below.set_ylim(0, 1.25 * below.get_ylim()[1])
        below.legend(fontsize=8, frameon=False, loc="upper left")
    axes[0, 0].set_ylabel("microseconds a document")
    axes[1, 0].set_ylabel("peak resident size, MiB")
    fig.savefig(path, dpi=180)
    plt.close(fig)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--report", action="store_true", help="measure nothing: print and draw what is there")
    options = parser.parse_args()
    if not options.report:
        result = circumstances() | {"rounds": options.rounds, **machine_rates(options.rounds), "sizes": []}
        for axis, values in AXES.items():
            began = time.perf_counter()
            result["sizes"] += measure(axis, values, options.rounds)
            print(f"{axis}: {time.perf_counter() - began:.0f} s", flush=True)
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    result = json.loads(RESULTS.read_text())
    print(text(result))
    figure(result, RESULTS.with_suffix(".png"))


if __name__ == "__main__":
    main()
