"""Online learning on arxiv, 147,000 abstracts (paper, Figure 5): perplexity by documents seen, times, usage.

    python benchmarks/paper/online.py

adds each run to results/online.json as it ends and draws results/online.png: (a) PRME and DILN online for several
kappa, (b) online against batch on parts of the corpus, by seconds, (c) milliseconds of local and of global updates of a
batch, (d) ranked usage of topics. K = 100, t0 = 100, batches of 500, 3,000 test documents of which 90% of the words are
observed.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from experiment import DATA, MODELS, RESULTS, add, is_there, parser, recorded

import pyro_prme as prme

PATH = RESULTS / "online.json"
KAPPAS = (0.55, 0.75, 0.95)
PARTS = (10_000, 40_000)  # documents of the batch runs
EVERY = 20  # batches between scores


def corpora() -> tuple[prme.Corpus, Any]:
    """The documents, and the words to score."""
    train, test = (prme.load_corpus(DATA / "arxiv" / f"{part}.ldac.gz") for part in ("train", "test"))
    return train, test.split_tokens(0.9, seed=0)


def run(model: str, kappa: float, mode: str, documents: int, passes: int, seed: int = 0) -> dict[str, Any]:
    """A curve of (documents seen, seconds of training, perplexity), the seconds of its parts, and the usage."""
    train, split = corpora()
    counts = train.counts[:documents]
    began = time.perf_counter()
    built = prme.build(100, train.vocab_size, len(counts.indptr) - 1, seed=seed, **MODELS[model])
    trainer = prme.Trainer(*built, counts, mode=mode, decay=kappa, seed=seed)
    posterior = prme.Posterior(*built, vocabulary=train.vocabulary)
    spent, seen, curve = time.perf_counter() - began, 0, []

    def score() -> None:
        curve.append({"documents": seen, "seconds": spent, "perplexity": posterior.perplexity(split)})

    for _ in range(passes):
        if mode == "batch":
            began = time.perf_counter()
            trainer.epoch()
            spent, seen = spent + time.perf_counter() - began, seen + counts.shape[0]
            score()
            continue
        for i, batch in enumerate(trainer.batches(shuffle=True), 1):
            began = time.perf_counter()
            trainer.step(batch)
            if i % EVERY == 0:
                trainer.recentre()
            spent, seen = spent + time.perf_counter() - began, seen + batch.size
            if i in (1, 2, 5, 10) or i % EVERY == 0:
                score()
    return {"curve": curve, "usage": np.sort(posterior.usage().values)[::-1].tolist()}


def times(model: str, seed: int = 0) -> dict[str, float]:
    """Milliseconds of the local and of the global update of a batch of 500, the best of ten."""
    train, _ = corpora()
    counts = train.counts[:5000]
    built = prme.build(100, train.vocab_size, 5000, seed=seed, **MODELS[model])
    trainer = prme.Trainer(*built, counts, mode="online", seed=seed)
    batches = list(trainer.batches(shuffle=True))
    local, whole = [], []
    for batch in batches:
        began = time.perf_counter()
        trainer.guide.local_step(batch)
        local.append(time.perf_counter() - began)
        began = time.perf_counter()
        trainer.step(batch)
        whole.append(time.perf_counter() - began)
    return {"local": 1000 * min(local), "global": 1000 * max(0.0, min(whole) - min(local))}


def figure(records: list[dict]) -> None:
    """The four panels."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 4, figsize=(16, 3.8), layout="constrained")
    colours = {"prme": "#0b5f8a", "prme-scale": "#5e3c99", "diln": "#d95f02"}
    names = {"prme": "PRME", "prme-scale": "PRME, f in the scale", "diln": "DILN"}
    styles = dict(zip(KAPPAS, ("-", "--", ":"), strict=True))
    for r in (r for r in records if r.get("mode") == "online"):
        seen = [point["documents"] for point in r["curve"]]
        axes[0].plot(
            seen,
            [point["perplexity"] for point in r["curve"]],
            color=colours[r["model"]],
            ls=styles[r["kappa"]],
            label=rf"{names[r['model']]}, $\kappa$ = {r['kappa']}",
        )
    shown = [r for r in records if r.get("model") == "prme" and (r.get("kappa") == 0.75 or r.get("mode") == "batch")]
    for r, ls in zip(shown, ("-", "--", ":"), strict=False):
        label = "online, all" if r["mode"] == "online" else f"batch, {r['documents']:,}"
        points = r["curve"]
        axes[1].plot(
            [p["seconds"] for p in points], [p["perplexity"] for p in points], color="#0b5f8a", ls=ls, label=label
        )
    timed = [r for r in records if "milliseconds" in r]
    for i, r in enumerate(timed):
        bottom = 0.0
        for part, colour in (("local", "#8da0cb"), ("global", "#fc8d62")):
            height = r["milliseconds"][part]
            axes[2].bar(i, height, bottom=bottom, color=colour, label=part if i == 0 else None)
            bottom += height
    axes[2].set_xticks(range(len(timed)), [names[r["model"]].replace(", ", ",\n") for r in timed])
    for r in (r for r in records if r.get("kappa") == 0.75):
        axes[3].plot(np.arange(1, 101), r["usage"], color=colours[r["model"]], label=names[r["model"]])
    axes[0].set(xlabel="documents seen", ylabel="perplexity", xscale="log", title="(a) online, by step size")
    axes[1].set(xlabel="seconds of training", ylabel="perplexity", xscale="log", title="(b) online against batch")
    axes[2].set(ylabel="milliseconds a batch of 500", title="(c) local and global updates")
    axes[3].set(xlabel="topic, by rank", ylabel="share of tokens", yscale="log", title="(d) usage of topics")
    for ax in axes:
        ax.legend(fontsize=8, frameon=False)
    fig.savefig(PATH.with_suffix(".png"), dpi=110)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", nargs="+", default=["prme", "prme-scale", "diln"])
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    wanted = [(m, k, "online", 10**9, 1) for m in args.model for k in KAPPAS]
    wanted += [("prme", 0.75, "batch", documents, 15) for documents in PARTS]
    for model, kappa, mode, documents, passes in [] if args.report else wanted:
        key = {"model": model, "kappa": kappa, "mode": mode, "documents": documents}
        if mode == "batch":
            key.pop("kappa")
        if not is_there(PATH, key):
            add(PATH, key | run(model, kappa, mode, documents, passes))
    for model in [] if args.report else args.model:
        key = {"timed": True, "model": model, "threads": args.threads}
        if not is_there(PATH, key):
            add(PATH, key | {"milliseconds": times(model)})
    records = recorded(PATH)
    for r in records:
        if "curve" in r:
            last = r["curve"][-1]
            print(
                f"{r['model']:>12} {r['mode']:>7} kappa {r.get('kappa', '')!s:>5}: {last['perplexity']:.1f} after "
                f"{last['documents']:,} documents, {last['seconds']:.0f} s"
            )
        else:
            print(f"{r['model']:>12} milliseconds a batch: {r['milliseconds']}")
    figure(records)


if __name__ == "__main__":
    main()
