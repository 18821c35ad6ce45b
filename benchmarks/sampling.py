"""Words a second of the compiled Gibbs sweep, against tomotopy's LDA, taking turns in one run.

    python benchmarks/sampling.py [--corpus nyt] [--sweeps 12]

Both draw a topic for every word of the train documents of the corpus, K = 100, with the same priors; `ours` is
`pyro_prme.kernels.sampling.sample_topics` in batches of 500 documents, as a fit calls it, with all that it returns.
Each program runs with one thread and with two, and a round is one sweep of each; the first rounds, in which a chain
settles, are not counted. tomotopy comes with the extra `benchmarks`. Results are in results/sampling.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import circumstances, markdown, verdicts
from scipy import sparse

import pyro_prme as prme
from pyro_prme.corpora.batch import Batch
from pyro_prme.kernels.sampling import Assigned, sample_topics

DATA = Path(__file__).parents[2] / "shared" / "data"
RESULTS = Path(__file__).parent / "results" / "sampling.json"
TOPICS, ALPHA, GAMMA0, BATCH = 100, 0.1, 0.05, 500
SETTLING = 4  # rounds


def ours(counts: sparse.csr_matrix, threads: int) -> Callable[[], None]:
    """One sweep of ours over all documents."""
    size = counts.shape[0]
    rows = [np.arange(start, min(start + BATCH, size)) for start in range(0, size, BATCH)]
    batches = [Batch.of_rows(counts, part) for part in rows]
    gamma = torch.full((counts.shape[1], TOPICS), GAMMA0)
    total = gamma.sum(0, dtype=torch.float64)
    states = [Assigned(torch.full((int(b.count.sum()),), -1, dtype=torch.int16), torch.zeros(b.size)) for b in batches]
    prior, rates, key = torch.full((TOPICS,), ALPHA), torch.ones(TOPICS), 0

    def sweep() -> None:
        nonlocal total, key
        torch.set_num_threads(threads)
        for i, batch in enumerate(batches):
            given = batch.indptr, batch.local_word, batch.count, gamma[batch.words], total, prior, rates, states[i]
            found = sample_topics(*given, key=key, rows=torch.as_tensor(rows[i]))
            gamma[batch.words], total, states[i] = found.topics, found.total, found.assigned
            key += 1 << 20

    return sweep


def theirs(counts: sparse.csr_matrix, threads: int) -> Callable[[], None]:
    """One sweep of tomotopy's LDA; hyper-parameters stay as they are."""
    import tomotopy

    model = tomotopy.LDAModel(k=TOPICS, alpha=ALPHA, eta=GAMMA0, seed=0)
    model.optim_interval = 0
    for n in range(counts.shape[0]):
        part = slice(counts.indptr[n], counts.indptr[n + 1])
        model.add_doc(np.repeat(counts.indices[part], counts.data[part].astype(int)).astype(str).tolist())
    model.train(0)
    return lambda: model.train(1, workers=threads)


def measured(counts: sparse.csr_matrix, rounds: int) -> dict[str, Any]:
    """Millions of words a second, by program and threads, median over the rounds."""
    sweeps = {
        f"{name}, {threads}": make(counts, threads)
        for threads in (1, 2)
        for name, make in (("ours", ours), ("tomotopy", theirs))
    }
    seconds: dict[str, list[float]] = {name: [] for name in sweeps}
    for turn in range(SETTLING + rounds):
        for name, sweep in sweeps.items():
            began = time.perf_counter()
            sweep()
            if turn >= SETTLING:
                seconds[name].append(time.perf_counter() - began)
    words = float(counts.sum())
    return {name: words / float(np.median(times)) / 1e6 for name, times in seconds.items()}


def text(result: dict[str, Any]) -> str:
    """A table, and whether the bar is met."""
    speed = result["speed"]
    rows = [[name, *(f"{speed[f'{name}, {threads}']:.2f}" for threads in (1, 2))] for name in ("ours", "tomotopy")]
    bars = []
    for threads in (1, 2):
        one, other = (speed[f"{name}, {threads}"] for name in ("ours", "tomotopy"))
        bars.append(
            (f"as many words a second as tomotopy, threads: {threads}", f"{one / other:.2f} times", one >= other)
        )
    table = markdown(["millions of words a second, by threads", "1", "2"], rows)
    return f"{table}\n\n{verdicts(bars)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="nyt")
    parser.add_argument("--sweeps", type=int, default=12, help="rounds that are counted")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--report", action="store_true", help="run nothing: print what is there")
    args = parser.parse_args()
    if not args.report:
        corpus = prme.load_corpus(args.data / args.corpus / "train.ldac.gz")
        found = {"corpus": args.corpus, "topics": TOPICS, "speed": measured(corpus.counts, args.sweeps)}
        RESULTS.write_text(json.dumps(found | circumstances(), indent=1) + "\n")
    print(text(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
