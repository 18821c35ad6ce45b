"""Figure 5 of the paper at its own scale, a million documents from disk, and what such a pass costs.

    python benchmarks/paper/million.py --corpus FOLDER --part make figure pass workers memory small peers report

"make" writes the corpus folder: a million documents, each with the words of a random arxiv abstract drawn again with
replacement, so that it has natural lengths and words and no more topics than arxiv has. A folder of your own made by
`prme pack` serves as well. Scores are document completion of arxiv's 3,000 test abstracts with 90% of the words seen.
K = 100, batches of 500, one seed, one thread for each worker. Each fit is a process of its own, whose largest resident
size is recorded; each record is added to results/million.json, and a fit that is there is not run again.

- figure: held-out score against documents seen, for three kappa, PRME and DILN; --documents for fewer.
- pass, workers: one pass over all documents from disk with the default for large corpora, by one worker and by two.
- memory: the same pass over the first --documents in memory; small: over 100,000 from disk.
- peers: gensim's LdaMulticore and scikit-learn's online LDA for --seconds each, one thread, and PRME as long.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse
from experiment import DATA, RESULTS, add, is_there, parser, recorded

import pyro_prme as prme
from pyro_prme.answers.scores import completion_perplexity
from pyro_prme.corpora.corpus import checked_corpus
from pyro_prme.corpora.packed import PackedWriter
from pyro_prme.inference.large import ONLINE
from pyro_prme.inference.session import session
from pyro_prme.inference.workers import working_together
from pyro_prme.runs.run_folder import make_trainer, settings_of

PATH = RESULTS / "million.json"
MILLION, CHUNK, MIB = 1_000_000, 10_000, 1 << 20
KAPPAS = (0.55, 0.75, 0.95)
MARKS = (500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 200_000, 350_000, 500_000, 750_000, MILLION)


def make(folder: Path, documents: int, seed: int = 0) -> None:
    """The words of random abstracts, drawn again."""
    source = prme.load_corpus(DATA / "arxiv" / "train.ldac.gz")
    rng, counts = np.random.default_rng(seed), source.counts
    with PackedWriter(folder) as writer:
        for _ in range(documents // CHUNK):
            rows = rng.integers(len(source), size=CHUNK)
            part = counts[rows]
            lengths = source.lengths[rows]
            tokens, first = np.repeat(part.indices, part.data), np.repeat(np.cumsum(lengths) - lengths, lengths)
            drawn = tokens[first + (rng.random(len(tokens)) * np.repeat(lengths, lengths)).astype(np.int64)]
            indptr = np.concatenate([[0], np.cumsum(lengths)])
            made = scipy.sparse.csr_array((np.ones(len(drawn), np.int32), drawn, indptr), shape=part.shape)
            made.sum_duplicates()
            writer.append(made)
        writer.finish(source.vocabulary)


def first_of(folder: Path, documents: int, in_memory: bool) -> prme.Corpus:
    """The first documents of a folder, mapped or in memory."""
    corpus = prme.load_corpus(folder)
    counts, size = corpus.counts, min(documents, len(corpus))
    used = int(counts.indptr[size])
    parts = counts.data[:used], counts.indices[:used], counts.indptr[: size + 1]
    if in_memory:
        parts = tuple(np.array(part) for part in parts)
    cut = scipy.sparse.csr_array(parts, shape=(size, corpus.vocab_size))
    return checked_corpus(cut, corpus.vocabulary, corpus.names[:size])


def test_words() -> Any:
    """The words to score."""
    return prme.load_corpus(DATA / "arxiv" / "test.ldac.gz").split_tokens(0.9, seed=0)


def one(folder: Path, job: dict[str, Any]) -> dict[str, Any] | None:
    """One pass in this process, which may be one of several workers: what it took, and its scores on the way."""
    process, spent = psutil.Process(), 0.0
    resident: dict[str, float] = {}
    curve: list[dict[str, float]] = []
    with session(), working_together() as team:
        corpus, split = first_of(folder, job["documents"], job.get("in_memory", False)), test_words()
        given = ONLINE | {name: job[name] for name in ("model", "decay", "cooling") if name in job}
        began = time.perf_counter()
        trainer = make_trainer(corpus.counts, settings_of(num_topics=100, **given), workers=team)
        start = time.perf_counter() - began
        posterior = prme.Posterior(trainer.guide, vocabulary=corpus.vocabulary)
        marks = [mark for mark in MARKS if mark < len(corpus)] if job.get("curve") else []

        def score(done: int) -> None:
            curve.append({"documents": done, "seconds": start + spent, "perplexity": posterior.perplexity(split)})

        def between(trainer: prme.Trainer) -> None:
            nonlocal began, spent
            spent += time.perf_counter() - began
            done = trainer.underway.done if trainer.underway is not None else 0
            resident.setdefault(str(10 * done // len(corpus)), process.memory_info().rss / MIB)
            if team.leads and marks and done >= marks[0]:
                marks.pop(0)
                score(done)
            began = time.perf_counter()

        began, processor = time.perf_counter(), time.process_time()
        trainer.fit(1, between=between)
        spent += time.perf_counter() - began
        processor = time.process_time() - processor
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        peaks = [float(x) for x in team.gather_all(peak)]
        if not team.leads:
            return None
        score(len(corpus))
        found = {"start": start, "seconds": spent, "documents_a_second": len(corpus) / spent}
        found |= {"processor_seconds": processor, "load_average": os.getloadavg()[0]}
        found |= {"peak_mib": max(peaks), "resident_mib_by_tenth": resident, "curve": curve}
        found |= {"used": posterior.num_topics_used, "usage": np.sort(posterior.usage().values)[::-1].tolist()}
        if job.get("picture"):
            picture(posterior, corpus[np.linspace(0, len(corpus) - 1, 3000).astype(int)], RESULTS / job["picture"])
        return found


def picture(posterior: prme.Posterior, corpus: prme.Corpus, path: Path) -> None:
    """Paintboxes of the largest topics over a sample of the documents."""
    import matplotlib

    matplotlib.use("Agg")
    from pyro_prme.plots import plot_paintboxes

    axes = plot_paintboxes(posterior, corpus)
    np.ravel(axes)[0].figure.savefig(path, dpi=110)


def apart(folder: Path, workers: int = 1, **job: Any) -> None:
    """Runs a job in a process of its own, or in several workers, unless it is in the results."""
    key = job | {"workers": workers, "corpus": folder.name}
    if is_there(PATH, key):
        return
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)] if workers > 1 else []
    command = [sys.executable, *launcher, __file__, "--corpus", str(folder), "--one", json.dumps(job)]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    add(PATH, key | json.loads(done.stdout.strip().splitlines()[-1]))


def bags(counts: Any) -> list[list[tuple[int, int]]]:
    """Documents in gensim's form."""
    ends = zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
    return [list(zip(counts.indices[i:j].tolist(), counts.data[i:j].tolist(), strict=True)) for i, j in ends]


def processor_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in of)


def peer(name: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Another program for so many seconds on the corpus, in the order of the folder: documents read, and its score."""
    corpus, split = first_of(folder, MILLION, False), test_words()
    observed, read = split.observed.counts, 0
    began, worked = time.perf_counter(), processor_seconds()

    def goes_on() -> bool:
        return time.perf_counter() - began < seconds and read < len(corpus)

    if name == "gensim LdaMulticore":
        from gensim.models import LdaMulticore

        words = {d: str(d) for d in range(corpus.vocab_size)}
        model = LdaMulticore(None, 100, words, workers=1, passes=1, eval_every=None, random_state=0)
        while goes_on():
            model.update(bags(corpus.counts[read : read + CHUNK]))
            read += CHUNK
    else:
        from sklearn.decomposition import LatentDirichletAllocation

        other = LatentDirichletAllocation(100, learning_method="online", total_samples=len(corpus), random_state=0)
        while goes_on():
            other.partial_fit(corpus.counts[read : read + 500].astype(np.float32))
            read += 500
    spent, worked = time.perf_counter() - began, processor_seconds() - worked
    if name == "gensim LdaMulticore":
        shares, topics = model.inference(bags(observed))[0], model.get_topics()
    else:
        shares, topics = other.transform(observed.astype(np.float32)), other.components_
    score = completion_perplexity(shares, topics, split.held_out)
    return {"seconds": spent, "processor_seconds": worked, "read": read, "perplexity": score}


def report() -> None:
    """What was measured, and the bars."""
    records = recorded(PATH)
    for r in records:
        where = f"{r['kind']:>8} {r.get('model', 'prme'):>5} kappa {r.get('decay', ONLINE['decay'])}"
        if "peer" in r:
            where = f"   peers {r['peer']}"
            took = f"{r['seconds']:.0f} s, {r['processor_seconds']:.0f} of a processor"
            print(f"{where}: {r['read']:,} documents in {took}, perplexity {r['perplexity']:.1f}")
            continue
        tenths = [round(value) for value in r["resident_mib_by_tenth"].values()]
        work = r["documents"] / r["processor_seconds"] / r["workers"]
        print(
            f"{where}, {r['documents']:,} documents, {r['workers']} workers: {r['documents_a_second']:.0f} a second, "
            f"{work:.0f} a second of a processor, with its scores, load {r['load_average']:.0f}, "
            f"perplexity {r['curve'][-1]['perplexity']:.1f}, peak {r['peak_mib']:.0f} MiB, by tenth {tenths}"
        )
    speed = {r["kind"]: r["documents_a_second"] for r in records if "peer" not in r and r["kind"] != "figure"}
    for name, over in (("workers", "pass"), ("memory", "pass"), ("small", "pass")):
        if name in speed and over in speed:
            print(f"documents a second, {name} over {over}: {speed[name] / speed[over]:.2f}")


def figure() -> None:
    """Held-out score by documents seen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    styles = dict(zip(KAPPAS, ("-", "--", ":"), strict=True))
    colours = {"prme": "#0b5f8a", "diln": "#d95f02"}
    for r in (r for r in recorded(PATH) if r["kind"] == "figure"):
        x, y = ([point[name] for point in r["curve"]] for name in ("documents", "perplexity"))
        ax.plot(x, y, color=colours[r["model"]], ls=styles[r["decay"]], label=f"{r['model'].upper()}, {r['decay']}")
    ax.set(xlabel="documents seen", ylabel="held-out perplexity", xscale="log")
    ax.legend(fontsize=8, frameon=False, title="model, kappa")
    fig.savefig(PATH.with_suffix(".png"), dpi=150)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--corpus", type=Path, required=True)
    options.add_argument("--part", nargs="+", default=["report"])
    options.add_argument("--documents", type=int, default=MILLION)
    options.add_argument("--seconds", type=float, default=100.0)
    options.add_argument("--one", type=json.loads)
    options.add_argument("--model", nargs="+", default=["prme", "diln"])
    args = options.parse_args()
    if args.one is not None:
        found = one(args.corpus, args.one)
        if found is not None:
            print(json.dumps(found))
        return
    if "make" in args.part and not args.corpus.exists():
        make(args.corpus, args.documents)
    whole = {"kind": "pass", "documents": args.documents, "curve": True}
    if "pass" in args.part:
        apart(args.corpus, **whole, picture="million_paintboxes.png")
    if "workers" in args.part:
        apart(args.corpus, workers=2, **(whole | {"kind": "workers"}))
    if "memory" in args.part:
        apart(args.corpus, kind="memory", documents=args.documents, in_memory=True)
    if "small" in args.part:
        apart(args.corpus, kind="small", documents=100_000)
    for model in args.model if "figure" in args.part else []:
        for decay in KAPPAS:
            job = {"kind": "figure", "documents": args.documents, "curve": True, "cooling": 0.0}
            apart(args.corpus, **job, model=model, decay=decay)
    for name in ("gensim LdaMulticore", "scikit-learn online") if "peers" in args.part else ():
        key = {"kind": "peers", "peer": name, "asked": args.seconds, "corpus": args.corpus.name}
        if not is_there(PATH, key):
            add(PATH, key | peer(name, args.corpus, args.seconds))
    if "report" in args.part:
        report()
        figure()


if __name__ == "__main__":
    main()
