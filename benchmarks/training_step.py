"""Time and memory of a training step, by part, and against the same model under generic Pyro.

    python benchmarks/training_step.py

prints two tables from one run and writes results/training_step.json. The first is a step at the size of 20 Newsgroups
(53,975 words, 100 topics, 500 documents), for HDP and for PRME with the library's encoder and with the paper's
(1000 wide, batch norm). The second is a step on token-level documents under `TraceEnum_ELBO` with a mean-field guide
(topics summed out, per-document parameters) and ours, at a size that the former can hold.
"""

import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoNormal
from scipy import sparse

import pyro_prme as prme
from pyro_prme.expectations import expected_log_rows
from pyro_prme.prototype import eval_mode

RESULTS = Path(__file__).parent / "results" / "training_step.json"


def zipf_corpus(num_documents: int, vocab_size: int, length: int, seed: int = 0) -> sparse.csr_matrix:
    """Documents of Zipf-distributed words, each from a shifted ranking so that topics exist."""
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(3, vocab_size + 3) ** 1.05
    p /= p.sum()
    rows = []
    for _ in range(num_documents):
        words = rng.choice(vocab_size, max(1, rng.poisson(length)), p=p)
        rows.append(np.where(words > 200, (words * (1 + rng.integers(5))) % vocab_size, words))
    indptr = np.cumsum([0, *map(len, rows)])
    matrix = sparse.csr_matrix((np.ones(indptr[-1]), np.concatenate(rows), indptr), (num_documents, vocab_size))
    matrix.sum_duplicates()
    return matrix


def best(action: Callable[[], object], repeats: int = 5) -> float:
    """Seconds, the best of a few after one to warm up."""
    action()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def step_by_part(name: str, counts: sparse.csr_matrix, **settings: object) -> dict:
    """Milliseconds of a whole online step and of its parts."""
    model, guide = prme.build(100, counts.shape[1], counts.shape[0], **settings)
    trainer = prme.Trainer(model, guide, counts, mode="online", start="random")
    batch = prme.Batch.from_csr(counts, np.arange(500))
    with torch.no_grad(), eval_mode(model, guide):
        run = guide.expectations(batch)
        q, value = run.posterior("theta"), run.value("theta")
        parts = {
            "rows of E ln theta": best(lambda: expected_log_rows(q, value, batch.words)),
            "E-step, with the networks' forward pass": best(lambda: guide.expectations(batch)),
        }

    def gradient() -> None:
        with guide.hold(run.local):
            trainer.objective(batch).backward()
            for optimizer in trainer.optimizers:
                optimizer.step()
                optimizer.zero_grad()

    parts["gradient step"] = best(gradient)
    parts["natural step"] = best(lambda: (guide.gather(run), guide.natural_step(0.01)))
    parts["whole step"] = best(lambda: trainer.step(batch))
    tiny = prme.Batch.from_csr(counts, [0])
    with torch.no_grad(), eval_mode(model, guide):
        local = guide.local_step(tiny)
        with guide.hold(local):
            parts["two runs of Pyro on one document (its overhead)"] = 2 * best(lambda: guide.expectations(tiny))
    return {"model": name} | {part: 1000 * seconds for part, seconds in parts.items()}


def against_generic(num_documents: int = 30, length: int = 60, vocab_size: int = 400, num_topics: int = 10) -> dict:
    """A step of TraceEnum_ELBO with AutoNormal and one of ours, same documents and HDP, full batch of tokens."""
    counts = zipf_corpus(num_documents, vocab_size, length)
    tokens = [np.repeat(row.indices, row.data.astype(int)).tolist() for row in counts]
    batch = prme.Batch.from_tokens(tokens)
    model = prme.HDP(num_topics, vocab_size, num_documents)
    generic = AutoNormal(poutine.block(model, hide=["C"]))
    elbo = TraceEnum_ELBO(max_plate_nesting=2)
    optimizer = pyro.optim.Adam({"lr": 0.01})
    svi = pyro.infer.SVI(config_enumerate(model), generic, optimizer, elbo)
    theirs = best(lambda: svi.step(batch))
    program, guide = prme.build(num_topics, vocab_size, num_documents, model="hdp")
    trainer = prme.Trainer(program, guide, counts, start="random")
    ours = best(lambda: trainer.step(prme.Batch.from_csr(counts)))
    return {"tokens": batch.num_entries, "TraceEnum_ELBO": 1000 * theirs, "ours": 1000 * ours, "ratio": theirs / ours}


def main() -> None:
    counts = zipf_corpus(1000, 53_975, 130)
    steps = [
        step_by_part("hdp", counts, model="hdp"),
        step_by_part("prme", counts),
        step_by_part("prme, paper's encoder", counts, encoder="words", encoder_hidden=(1000,)),
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    generic = against_generic()
    parts = [part for part in steps[0] if part != "model"]
    print("milliseconds".ljust(50) + "".join(f"{step['model']:>24}" for step in steps))
    for part in parts:
        print(part.ljust(50) + "".join(f"{step[part]:24.1f}" for step in steps))
    ratio = [step["whole step"] / steps[0]["whole step"] for step in steps]
    print("whole step, relative to HDP".ljust(50) + "".join(f"{x:24.2f}" for x in ratio))
    print(f"peak resident size {peak:.0f} MiB")
    print(
        "generic Pyro on {tokens} tokens: {TraceEnum_ELBO:.1f} ms, ours {ours:.1f} ms, ratio {ratio:.1f}".format(
            **generic
        )
    )
    RESULTS.write_text(json.dumps({"steps": steps, "peak_mib": peak, "generic": generic}, indent=1) + "\n")


if __name__ == "__main__":
    main()
