"""What the first page says of speed and quality: sentences with numbers from the files that the benchmarks wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generate.results import names_of

Row = dict[str, Any]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def quality(runs: list[Row]) -> str:
    """Short texts: PRME against the HDP in its settings, at the last epoch that both have, over the seeds of both."""
    here = [run for run in runs if (run["corpus"], run["part"]) == ("snippets", "test") and "seed" in run]
    at = {(run["model"], run["epoch"], run["seed"]): run["perplexity"]["0.1"] for run in here}
    both = [(epoch, seed) for model, epoch, seed in at if model == "hdp" and ("prme", epoch, seed) in at]
    last = max(epoch for epoch, _ in both)
    seeds = [seed for epoch, seed in both if epoch == last]
    hdp, prme = (mean([at[model, last, seed] for seed in seeds]) for model in ("hdp", "prme"))
    return (
        f"The random function pays where little is known. With a tenth of the words of search snippets seen, the "
        f"perplexity is **{prme:.0f}** against {hdp:.0f} for an HDP with the same settings (mean over {len(seeds)} "
        "seeds). On long documents the two are level."
    )


def speed(results: Row, report: Any) -> str:
    """New York Times: the time of an epoch, and of passing the best of gensim's LDA."""
    ours = results["peers"]["prme"]
    an_epoch = report.seconds_per_epoch(ours["curve"])
    row = next(r for r in report.comparisons(results) if (r["peer"], r["ours"]) == ("gensim-lda", "prme"))
    return (
        f"{ours['documents']:,} New York Times articles, 100 topics, {ours['threads']} threads: **{an_epoch:.1f} s** "
        f"an epoch. The best perplexity of gensim's LDA is passed after **{row['seconds']:.0f} s**, where gensim needs "
        f"{row['peer_seconds']:.0f} s."
    )


def fragment(root: Path) -> str:
    """The answers as a list of Markdown, for the cards of the first page."""
    peers = root / "benchmarks" / "peers" / "__main__.py"
    good = json.loads((root / "benchmarks" / "paper" / "results" / "own_counts.json").read_text(encoding="utf-8"))
    fast = json.loads((root / "benchmarks" / "results" / "peers_nyt.json").read_text(encoding="utf-8"))
    return (
        "- **What it does**<br>\n  From a pile of texts: topics, which topics *go together*, a map of the documents, "
        "and what an unseen document is about.\n"
        "- **For whom**<br>\n  People with a corpus (a command, or scikit-learn's conventions), people who write Pyro "
        "models (closed forms found in them), and those who teach Bayesian nonparametrics.\n"
        f"- **How fast**<br>\n  {speed(fast, names_of(peers)['report'])} [Against other programs](results.md)\n"
        f"- **How good**<br>\n  {quality(good)} [All results](results.md)\n"
    )
