"""Tables, bars and picture of the curves: perplexity against seconds of training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

TIMES = (5, 10, 20, 30, 60, 90)
VARIATIONAL = ("sklearn-batch", "sklearn-online", "gensim-lda", "gensim-hdp")
SOONER = {"hdp": 4.0, "prme": 2.0}  # how many times sooner than each of those
NEAR = 1.001  # a program is where it ends up once it is within 0.1% of its best
EPOCHS = 40  # of a fit by default

Curve = list[dict[str, float]]


def best(curve: Curve) -> float:
    """The lowest perplexity."""
    return min(point["perplexity"] for point in curve)


def time_to(curve: Curve, perplexity: float) -> float:
    """Seconds until the curve is first at or below a perplexity; infinity if it never is."""
    return next((point["seconds"] for point in curve if point["perplexity"] <= perplexity), math.inf)


def after(curve: Curve, seconds: float) -> float:
    """Perplexity of the last model scored within some seconds; nan before the first, and beyond the curve's end."""
    if curve[-1]["seconds"] < 0.98 * seconds:
        return math.nan
    return next((point["perplexity"] for point in reversed(curve) if point["seconds"] <= seconds), math.nan)


def seconds_per_epoch(curve: Curve) -> float:
    """Of training; the first point's, a start, left out."""
    return (curve[-1]["seconds"] - curve[0]["seconds"]) / max(curve[-1]["epochs"] - curve[0]["epochs"], 1e-12)


def fit_seconds(curve: Curve, epochs: int = EPOCHS) -> float:
    """Of a fit of so many epochs, start included, by the mean time of an epoch."""
    return curve[0]["seconds"] + epochs * seconds_per_epoch(curve)


def comparisons(results: dict[str, Any]) -> list[dict[str, Any]]:
    """For each program of ours and each peer: seconds until each is at the best perplexity of the peer.

    The peer is given the first time it was within 0.1% of its best; ours must pass the best itself.
    """
    peers = results["peers"]
    rows = []
    for peer, theirs in peers.items():
        for name, mine in peers.items():
            if theirs["ours"] or not mine["ours"]:
                continue
            target = best(theirs["curve"])
            seconds = time_to(theirs["curve"], NEAR * target), time_to(mine["curve"], target)
            row = {"peer": peer, "ours": name, "perplexity": target, "peer_seconds": seconds[0], "seconds": seconds[1]}
            rows.append(row | {"ratio": seconds[0] / seconds[1]})
    return rows


def seconds_of(row: dict[str, Any]) -> str:
    """A comparison in words."""
    mine = "never" if math.isinf(row["seconds"]) else f"{row['seconds']:.1f} s"
    return f"{mine} against {row['peer_seconds']:.1f} s to {row['perplexity']:.1f}"


def bars(results: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """What is to be reached, what was, and whether it is met."""
    peers, rows = results["peers"], []
    for row in comparisons(results):
        if row["peer"] in VARIATIONAL and row["ours"] in SOONER:
            least = SOONER[row["ours"]]
            what = f"{peers[row['ours']]['label']} at least {least:.0f} times sooner than {peers[row['peer']]['label']}"
            rows.append((what, f"{seconds_of(row)}: {row['ratio']:.1f} times", row["ratio"] >= least))
    theirs = {name: best(peer["curve"]) for name, peer in peers.items() if not peer["ours"]}
    if theirs and "best" in peers:
        first = min(theirs, key=theirs.__getitem__)
        row = next(row for row in comparisons(results) if (row["peer"], row["ours"]) == (first, "best"))
        what = f"{peers['best']['label']} passes the best of all, {peers[first]['label']}, in less time"
        rows.append((what, seconds_of(row), row["ratio"] > 1))
    for peer in peers.values():
        if peer["ours"]:
            start, whole = peer["curve"][0]["seconds"], fit_seconds(peer["curve"])
            what = f"start of {peer['label']} at most a fifth of a fit of {EPOCHS} epochs"
            rows.append((what, f"{start:.1f} s of {whole:.1f} s: {start / whole:.2f}", start <= whole / 5))
    if {"prme", "sklearn-online"} <= peers.keys():
        mine, online = (seconds_per_epoch(peers[name]["curve"]) for name in ("prme", "sklearn-online"))
        rows.append(
            ("an epoch of PRME not slower than scikit-learn's online", f"{mine:.2f} s, {online:.2f} s", mine <= online)
        )
    if results["corpus"] == "20news" and "prme" in peers:
        peak = peers["prme"]["peak_mib"] / 1024
        rows.append(("peak memory of PRME on 20news below 3 GiB", f"{peak:.2f} GiB", peak < 3))
    return rows


def text(results: dict[str, Any]) -> str:
    """All tables, as Markdown."""
    peers = results["peers"]
    if not peers:
        return "Nothing has been measured yet."
    some = next(iter(peers.values()))
    lines = [
        f"{results['corpus']}: {some['documents']:,} documents, {some['tokens']:,} tokens to learn from; "
        f"{some['held_out_tokens']:,} held-out tokens to score; {some['threads']} threads",
        "",
        "| perplexity after | " + " | ".join(f"{s} s" for s in TIMES) + " | best | s an epoch | peak, MiB |",
        "|---|" + "---:|" * (len(TIMES) + 3),
    ]
    for peer in sorted(peers.values(), key=lambda peer: best(peer["curve"])):
        cells = ["" if math.isnan(x) else f"{x:.1f}" for x in (after(peer["curve"], s) for s in TIMES)]
        child = peer["peak_mib_of_largest_child"]
        memory = f"{peer['peak_mib']:.0f}" + (f" + {peer['threads']} x {child:.0f}" if child > 50 else "")
        cells += [f"{best(peer['curve']):.1f}", f"{seconds_per_epoch(peer['curve']):.2f}", memory]
        lines.append(f"| {peer['label']} | " + " | ".join(cells) + " |")
    mine = [peer["label"] for peer in peers.values() if peer["ours"]]
    names = [name for name, peer in peers.items() if peer["ours"]]
    lines += ["", "| to the best perplexity of | | it, s | " + " | ".join(f"{x}, s" for x in mine) + " |"]
    lines += ["|---|---:|---:|" + "---:|" * len(mine)]
    found = {(row["peer"], row["ours"]): row for row in comparisons(results)}
    for name, peer in peers.items():
        if peer["ours"] or not names:
            continue
        rows = [found[name, own] for own in names]
        cells = ["never" if math.isinf(r["seconds"]) else f"{r['seconds']:.1f} ({r['ratio']:.1f}x)" for r in rows]
        target, theirs = rows[0]["perplexity"], rows[0]["peer_seconds"]
        lines.append(f"| {peer['label']} | {target:.1f} | {theirs:.1f} | " + " | ".join(cells) + " |")
    warm = {p["label"]: p["warm_up_seconds"] for p in peers.values() if p["warm_up_seconds"] is not None}
    if warm:
        lines += ["", "not counted, seconds for a fit of a tiny corpus with kernels compiled or read from the cache: "]
        lines[-1] += ", ".join(f"{label} {seconds:.1f}" for label, seconds in warm.items())
    lines += ["", "| bar | measured | |", "|---|---|---|"]
    lines += [f"| {what} | {measured} | {'met' if met else 'missed'} |" for what, measured, met in bars(results)]
    return "\n".join(lines)


def figure(results: dict[str, Any], path: Path) -> None:
    """Perplexity against seconds of training: ours in full lines, peers dashed with a mark where they were scored.

    Each has a mark of its own, at the end of our lines too, so that a copy in grey can be read.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    peers = results["peers"]
    fig, ax = plt.subplots(figsize=(9.5, 5.6), layout="constrained")
    low = min(best(peer["curve"]) for peer in peers.values())
    high = 1.45 * low
    order = sorted(peers.values(), key=lambda peer: best(peer["curve"]))
    colours = {
        False: iter(plt.get_cmap("Dark2").colors),
        True: iter(("#08306b", "#2171b5", "#6baed6", "#9e1b32", "#e07b39")),
    }
    marks = iter("os^DvPX*<>hpd")
    for peer in order:
        seconds, values = ([point[key] for point in peer["curve"]] for key in ("seconds", "perplexity"))
        style: dict[str, Any] = {"lw": 1.5, "ls": "--", "ms": 4, "marker": next(marks)}
        if peer["ours"]:
            style |= {"lw": 2.4, "ls": "-", "ms": 8, "markevery": [-1]}
        beyond = " (above)" if best(peer["curve"]) > high else ""
        ax.plot(seconds, values, color=next(colours[peer["ours"]]), label=peer["label"] + beyond, **style)
    ax.set(xscale="log", ylim=(0.98 * low, high), xlabel="seconds of training", ylabel="held-out perplexity")
    ticks = [s for s in (0.5, 1, 2, 5, 10, 20, 30, 60, 90) if s <= 1.1 * max(p["curve"][-1]["seconds"] for p in order)]
    ax.set_xticks(ticks, [f"{s:g}" for s in ticks], minor=False)
    ax.set_xticks([], minor=True)
    ax.set_xlim(left=0.5)
    ax.set_title(f"{results['corpus']}: the lower and the further left, the better", loc="left")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    fig.legend(loc="outside right upper", frameon=False, fontsize=10)
    fig.savefig(path, dpi=220)
    plt.close(fig)
