"""The local step against scikit-learn's LDA E-step and against other ways to write it in torch.

    python benchmarks/local_step.py [--repeats 15] [--quick]

All forms run exactly 20 sweeps on the same generated corpus, taking turns, best of the repeats: ratios hold within one
run. scikit-learn's E-step is LDA's: no epsilon, no log-normalisers, exp(E ln theta) is given to it. Ours starts from
E ln theta and has them all; "ours" has a random function, so it solves for epsilon, "ours, HDP" does not.
On a busy machine set OMP_WAIT_POLICY=PASSIVE, or torch's waiting threads slow its forms several times, and trust the
processor time, which is that of all threads (and is not known for scikit-learn's 2 jobs). Load and policy are recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn
import torch
from corpora import zipf_mandelbrot
from scipy import sparse
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.utils.parallel import Parallel
from torch import Tensor

from pyro_prme.kernels import local_step
from pyro_prme.kernels.local_torch import local_step_torch

SWEEPS = 20
LENGTHS = {"short": (500, 50), "medium": (500, 280), "long": (20, 3000)}  # documents, tokens in each
TOPICS = (20, 100, 300)
VOCABULARY = 30_000
SLOW = ("torch dense", "torch gather")  # repeated only twice


class Case(NamedTuple):
    """A batch and what the local step needs beside it."""

    counts: sparse.csr_matrix  # (B, W) over the words of the batch
    indptr: Tensor
    word: Tensor
    count: Tensor
    elog_theta: Tensor
    prior: Tensor
    e: Tensor


def make_case(documents: int, tokens: int, topics: int, seed: int = 0) -> Case:
    """Documents of Poisson length with words from a Zipf-Mandelbrot law, and topics that sharpen it."""
    rng = np.random.default_rng(seed)
    law = zipf_mandelbrot(VOCABULARY, offset=1.7)
    lengths = rng.poisson(tokens, documents)
    draws = rng.choice(VOCABULARY, lengths.sum(), p=law)
    row = np.repeat(np.arange(documents), lengths)
    all_words = sparse.csr_matrix((np.ones(len(draws), np.float32), (row, draws)), (documents, VOCABULARY))
    counts = all_words[:, np.unique(draws)]
    counts.sum_duplicates()
    used = law[np.unique(draws)]
    gamma = torch.as_tensor(0.2 + rng.gamma(0.1, 10 * len(draws) / topics * used[:, None], (len(used), topics)))
    elog_theta = torch.digamma(gamma) - torch.digamma(gamma.sum(0))
    prior = torch.as_tensor(5 * rng.dirichlet(np.ones(topics)))
    indptr, word = (torch.as_tensor(x).long() for x in (counts.indptr, counts.indices))
    count, e = torch.as_tensor(counts.data), torch.as_tensor(np.exp(rng.normal(size=(documents, topics))))
    return Case(counts, indptr, word, count, elog_theta.float(), prior.float(), e.float())


def hdp_weights(counts: Tensor, case: Case, mass: Tensor) -> Tensor:
    """exp(E ln Z) up to a factor, with e = 1 and so epsilon = beta: the torch forms below solve nothing."""
    return (torch.digamma(case.prior + counts) - torch.log1p(mass / case.prior.sum())).exp()


def torch_gather(case: Case) -> Tensor:
    """Gather the (E, K) rows of both factors, scatter the counts back."""
    document = torch.repeat_interleave(torch.arange(len(case.indptr) - 1), case.indptr.diff())
    mass = torch.zeros(len(case.indptr) - 1).index_add_(0, document, case.count)[:, None]
    rows = case.elog_theta.exp()[case.word]  # (E, K)
    counts = (mass / rows.shape[1]).expand(-1, rows.shape[1])
    for _ in range(SWEEPS):
        phi = hdp_weights(counts, case, mass)[document] * rows
        phi *= (case.count / phi.sum(-1))[:, None]
        counts = torch.zeros_like(counts).index_add_(0, document, phi)
    torch.zeros_like(case.elog_theta).index_add_(0, case.word, phi)
    return counts


def torch_dense(case: Case) -> Tensor:
    """Matrix products over the whole vocabulary of the batch, with the counts as a dense matrix."""
    dense, table = torch.as_tensor(case.counts.toarray()), case.elog_theta.exp()
    mass = dense.sum(-1, keepdim=True)
    counts = (mass / table.shape[1]).expand(-1, table.shape[1])
    for _ in range(SWEEPS):
        weights = hdp_weights(counts, case, mass)
        ratio = dense / (weights @ table.T)
        counts = weights * (ratio @ table)
    _ = table * (ratio.T @ weights)
    return counts


def torch_csr(case: Case) -> Tensor:
    """The torch backend of the library."""
    args = (case.indptr, case.word, case.count, case.elog_theta)
    return local_step_torch(*args, case.prior[None], torch.ones(1, len(case.prior)), SWEEPS, 0.0).counts


def sklearn_e_step(case: Case, jobs: int, stack: contextlib.ExitStack) -> Callable[[], Any]:
    """scikit-learn's E-step with statistics, its workers started beforehand."""
    lda = LatentDirichletAllocation(len(case.prior), max_doc_update_iter=SWEEPS, mean_change_tol=0.0, n_jobs=jobs)
    lda._init_latent_vars(case.counts.shape[1], dtype=np.float32)
    lda.exp_dirichlet_component_ = np.ascontiguousarray(case.elog_theta.exp().numpy().T)
    parallel = stack.enter_context(Parallel(n_jobs=jobs))
    return lambda: lda._e_step(case.counts, cal_sstats=True, random_init=False, parallel=parallel)


def forms(case: Case, stack: contextlib.ExitStack) -> dict[str, Callable[[], Any]]:
    args, ones = case[1:-1], torch.ones(1, len(case.prior))
    return {
        "ours": lambda: local_step(*args, case.e, max_sweeps=SWEEPS, tolerance=0.0).counts,
        "ours, HDP": lambda: local_step(*args, ones, max_sweeps=SWEEPS, tolerance=0.0).counts,
        "scikit-learn, 1 job": sklearn_e_step(case, 1, stack),
        "scikit-learn, 2 jobs": sklearn_e_step(case, 2, stack),
        "torch CSR": lambda: torch_csr(case),
        "torch dense": lambda: torch_dense(case),
        "torch gather": lambda: torch_gather(case),
    }


def best_times(functions: dict[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Wall-clock and processor seconds of this process, best of the repeats, the functions taking turns."""
    wall, processor = dict.fromkeys(functions, float("inf")), dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for repeat in range(repeats):
        for name, function in functions.items():
            if name in SLOW and repeat >= 2:
                continue
            begin, begin_processor = time.perf_counter(), time.process_time()
            function()
            wall[name] = min(wall[name], time.perf_counter() - begin)
            processor[name] = min(processor[name], time.process_time() - begin_processor)
    return wall, processor


def machine_rates(repeats: int) -> dict[str, float]:
    """Bytes a second of a triad on arrays that no cache holds, and flop a second of a float32 matrix product."""
    a, b, c = (torch.ones(2**25) for _ in range(3))
    left, right, out = torch.ones(2048, 2048), torch.ones(2048, 2048), torch.empty(2048, 2048)
    seconds, _ = best_times(
        {"triad": lambda: torch.add(b, c, alpha=1.5, out=a), "sgemm": lambda: torch.mm(left, right, out=out)}, repeats
    )
    return {"triad_bytes_per_second": 12 * 2**25 / seconds["triad"], "sgemm_flop_per_second": 2**34 / seconds["sgemm"]}


def measure(length: str, topics: int, repeats: int, rates: dict[str, float]) -> dict[str, Any]:
    documents, tokens = LENGTHS[length]
    case = make_case(documents, tokens, topics)
    with contextlib.ExitStack() as stack:
        functions = forms(case, stack)
        seconds, processor = best_times(functions, repeats)
    expected = functions["ours, HDP"]()
    for name in ("torch CSR", "torch dense", "torch gather"):
        # the median document: after 20 sweeps in float32 a few have no better than three digits in any form
        error = float(((functions[name]() - expected).abs().amax(-1) / expected.mean(-1)).median())
        if error > 1e-3:
            raise RuntimeError(f"the counts of {name} differ from ours by {error:.1e}")
    work = SWEEPS * len(case.word) * topics
    return {
        "length": length,
        "documents": documents,
        "topics": topics,
        "entries": len(case.word),
        "words": case.counts.shape[1],
        "milliseconds": {name: 1e3 * value for name, value in seconds.items()},
        "ratio_to_ours": {name: value / seconds["ours"] for name, value in seconds.items()},
        "processor_milliseconds": {name: 1e3 * value for name, value in processor.items() if "2 jobs" not in name},
        "share_of_sgemm": 4 * work / seconds["ours"] / rates["sgemm_flop_per_second"],
        "rows_read_over_triad": 4 * work / seconds["ours"] / rates["triad_bytes_per_second"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="only documents of medium length with 100 topics")
    options = parser.parse_args()
    rates = machine_rates(options.repeats)
    report: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "versions": {"torch": torch.__version__, "sklearn": sklearn.__version__, "python": platform.python_version()},
        **rates,
        "cases": [],
    }
    bandwidth, flops = rates["triad_bytes_per_second"], rates["sgemm_flop_per_second"]
    print(f"triad {bandwidth / 1e9:.1f} GB/s, sgemm {flops / 1e9:.0f} Gflop/s")
    for length in ["medium"] if options.quick else LENGTHS:
        for topics in [100] if options.quick else TOPICS:
            row = measure(length, topics, options.repeats, rates)
            report["cases"].append(row)
            print(f"\n{length}: {row['documents']} documents, {row['entries']} entries, K = {topics}")
            for name, value in row["milliseconds"].items():
                processor = row["processor_milliseconds"].get(name, float("nan"))
                print(f"  {name:22} {value:9.1f} ms {row['ratio_to_ours'][name]:8.2f}   processor {processor:9.1f} ms")
            print(f"  share of sgemm's flop rate {row['share_of_sgemm']:.2f}, rows read / triad bandwidth", end=" ")
            print(f"{row['rows_read_over_triad']:.2f}", flush=True)
    if not options.quick:
        path = Path(__file__).parent / "results" / "local_step.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
