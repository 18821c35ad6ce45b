"""Online learning on arxiv, 147,000 abstracts (paper, Figure 5): perplexity by documents seen, times, usage.

    python benchmarks/paper/online.py

adds each run to results/online.json as it ends and draws results/online.png: (a) PRME and DILN online for several
kappa, (b) online against batch on all of the corpus and on parts of it, by seconds, with batch epochs as the end of an
online pass, (c) milliseconds of local and of global updates of a batch, (d) ranked usage of topics. K = 100, t0 = 100,
batches of 500, 3,000 test documents of which 90% of the words are observed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from experiment import DATA, MODELS, RESULTS, add, is_there, parser, recorded

import pyro_prme as prme
from pyro_prme.inference.session import evaluating

PATH = RESULTS / "online.json"
KAPPAS = (0.55, 0.75, 0.95)
ALL = 10**9
BATCH = {10_000: 15, 40_000: 15, ALL: 5}  # documents of the batch runs, and their epochs
END = 2  # batch epochs after an online pass
EVERY = 20  # batches between scores


def corpora() -> tuple[prme.Corpus, Any]:
    """The documents, and the words to score."""
    train, test = (prme.load_corpus(DATA / "arxiv" / f"{part}.ldac.gz") for part in ("train", "test"))
    return train, test.split_tokens(0.9, seed=0)


def run(model: str, kappa: float, mode: str, documents: int, epochs: int, seed: int = 0) -> dict[str, Any]:
    """An online pass if asked, then batch epochs: (documents seen, seconds of training, perplexity), and the usage."""
    train, split = corpora()
    counts = train.counts[:documents]
    began = time.perf_counter()
    guide = prme.build(100, train.vocab_size, len(counts.indptr) - 1, seed=seed, **MODELS[model])[1]
    options = prme.TrainOptions(mode=mode, decay=kappa, seed=seed)
    trainer = prme.Trainer(guide, prme.Counts(counts), options)
    posterior = prme.Posterior(guide, vocabulary=train.vocabulary)
    spent, seen, curve = time.perf_counter() - began, 0, []

    def score() -> None:
        curve.append({"documents": seen, "seconds": spent, "perplexity": posterior.perplexity(split)})

    if mode == "online":
        batches = list(trainer.batches(shuffle=True))
        for i, batch in enumerate(batches, 1):
            began = time.perf_counter()
            trainer.step(batch)
            if i % EVERY == 0 or i == len(batches):
                guide.after_epoch(trainer.data)
            spent, seen = spent + time.perf_counter() - began, seen + batch.size
            if i in (1, 2, 5, 10) or i % EVERY == 0 or i == len(batches):
                score()
    trainer.options = replace(trainer.options, mode="batch")
    for _ in range(epochs):
        began = time.perf_counter()
        trainer.epoch()
        spent, seen = spent + time.perf_counter() - began, seen + counts.shape[0]
        score()
    return {"curve": curve, "usage": np.sort(posterior.usage().values)[::-1].tolist()}


def times(model: str, seed: int = 0) -> dict[str, float]:
    """Milliseconds of the local and of the global update of a batch of 500, online, each the best of ten.

    Local is the E-step; global is the rest of a step: statistics, the gradient step, and the natural step of gamma and
    of DILN's m and S.
    """
    train, _ = corpora()
    counts = train.counts[:5000]
    guide = prme.build(100, train.vocab_size, 5000, seed=seed, **MODELS[model])[1]
    trainer = prme.Trainer(guide, prme.Counts(counts), prme.TrainOptions(mode="online", seed=seed))
    local, rest = [], []
    for rows in trainer.batches(shuffle=True):
        began = time.perf_counter()
        with torch.no_grad(), evaluating(guide.model, guide):
            guide.run(*trainer.data.batch(rows))
        local.append(time.perf_counter() - began)
        began = time.perf_counter()
        trainer.step(rows)
        rest.append(time.perf_counter() - began - local[-1])
    return {"local": 1000 * min(local), "global": 1000 * min(rest)}


def _by_seconds(ax: Any, points: list[dict], **look: Any) -> None:
    ax.plot([p["seconds"] for p in points], [p["perplexity"] for p in points], **look)


def figure(records: list[dict]) -> None:
    """The four panels; models are told apart by colour and mark, so that a copy in grey can be read."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 4, figsize=(16, 3.8), layout="constrained")
    colours = {"prme": "#0b5f8a", "prme-scale": "#5e3c99", "diln": "#d95f02"}
    marks = {"prme": "o", "prme-scale": "^", "diln": "s"}
    names = {"prme": "PRME", "prme-scale": "PRME, f in the scale", "diln": "DILN"}
    styles = dict(zip(KAPPAS, ("-", "--", ":"), strict=True))
    for r in (r for r in records if r.get("mode") == "online"):
        points = r["curve"][: len(r["curve"]) - r["epochs"]]
        axes[0].plot(
            [point["documents"] for point in points],
            [point["perplexity"] for point in points],
            color=colours[r["model"]],
            ls=styles[r["kappa"]],
            marker=marks[r["model"]],
            markevery=0.15,
            ms=4,
        )
    keys = [axes[0].plot([], [], color=colours[m], marker=marks[m], ms=4, label=names[m])[0] for m in colours]
    keys += [axes[0].plot([], [], color="black", ls=ls, label=rf"$\kappa$ = {k}")[0] for k, ls in styles.items()]
    for r, colour in zip(
        (r for r in records if r.get("mode") == "batch"), ("#bbbbbb", "#777777", "black"), strict=False
    ):
        label = "batch, all" if r["documents"] == ALL else f"batch, {r['documents']:,}"
        _by_seconds(axes[1], r["curve"], color=colour, label=label)
    for r in (r for r in records if (r.get("mode"), r.get("model"), r.get("kappa")) == ("online", "prme", 0.75)):
        online = len(r["curve"]) - r["epochs"]
        _by_seconds(axes[1], r["curve"][:online], color=colours["prme"], label="online, all")
        _by_seconds(
            axes[1], r["curve"][online - 1 :], color=colours["prme"], ls=":", marker="o", ms=3, label="then batch"
        )
    timed = [r for r in records if "milliseconds" in r]
    for i, r in enumerate(timed):
        bottom = 0.0
        for part, colour, hatch in (("local", "#8da0cb", ""), ("global", "#fc8d62", "///")):
            height = r["milliseconds"][part]
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "label": part if i == 0 else None}
            axes[2].bar(i, height, bottom=bottom, **look)
            bottom += height
    axes[2].set_xticks(range(len(timed)), [names[r["model"]].replace(", ", ",\n") for r in timed])
    for r in (r for r in records if r.get("kappa") == 0.75):
        look = {"color": colours[r["model"]], "marker": marks[r["model"]], "markevery": 12, "ms": 4}
        axes[3].plot(np.arange(1, 101), r["usage"], label=names[r["model"]], **look)
    axes[0].set(xlabel="documents seen", ylabel="perplexity", xscale="log", title="(a) online, by step size")
    axes[1].set(xlabel="seconds of training", ylabel="perplexity", xscale="log", title="(b) online against batch")
    axes[2].set(ylabel="milliseconds a batch of 500", title="(c) local and global updates")
    axes[3].set(xlabel="topic, by rank", ylabel="share of tokens", yscale="log", title="(d) usage of topics")
    axes[0].legend(handles=keys, fontsize=8, frameon=False, loc="lower left")
    axes[2].set_ylim(top=1.2 * axes[2].get_ylim()[1])
    for ax in axes[1:]:
        ax.legend(fontsize=8, frameon=False)
    fig.savefig(PATH.with_suffix(".png"), dpi=220)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", nargs="+", default=["prme", "prme-scale", "diln"])
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    wanted = [(m, k, "online", ALL, END if (m, k) == ("prme", 0.75) else 0) for m in args.model for k in KAPPAS]
    wanted += [("prme", 0.75, "batch", documents, epochs) for documents, epochs in BATCH.items()]
    for model, kappa, mode, documents, epochs in [] if args.report else wanted:
        key = {"model": model, "kappa": kappa, "mode": mode, "documents": documents, "epochs": epochs}
        if mode == "batch":
            key.pop("kappa")
        if not is_there(PATH, key):
            add(PATH, key | run(model, kappa, mode, documents, epochs))
    for model in [] if args.report else args.model:
        key = {"timed": True, "model": model, "threads": args.threads}
        if not is_there(PATH, key):
            add(PATH, key | {"milliseconds": times(model)})
    records = recorded(PATH)
    for r in records:
        if "curve" in r:
            for last in r["curve"][-1 - r["epochs"] if r["mode"] == "online" else -1 :]:
                print(
                    f"{r['model']:>12} {r['mode']:>7} kappa {r.get('kappa', '')!s:>5}: {last['perplexity']:.1f} after "
                    f"{last['documents']:,} documents, {last['seconds']:.0f} s"
                )
        else:
            print(f"{r['model']:>12} milliseconds a batch: {r['milliseconds']}")
    figure(records)


if __name__ == "__main__":
    main()
