"""Pictures of training; open this to see whether a fit has converged, and what it cost to get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyro_prme.plots import _common as common

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_history"]

_STYLES = ("-", "--", "-.", ":")


def plot_history(history: Sequence[Mapping[str, Any]], *, axes: Sequence[Axes] | None = None) -> np.ndarray:
    """A training history, epoch by epoch: the bound, its terms by site, held-out perplexity, topics in use.

    The terms have very different sizes, so their panel shows each one's gain since the first epoch, on a logarithmic
    scale to either side of zero; terms that never change are left out. A first bound that is far below all others is
    written as a number, so that the others do not look flat. Panels appear for what the history has: the trainer
    records "bound" and "terms"; a callback may add "perplexity" (any key that has this word in it) and "topics_in_use"
    at some or all epochs.

    Args:
        history: records of `Trainer.history`, or of a saved run.
        axes: one for each panel; a new figure by default.

    Returns:
        The axes of the panels.

    Example:
        >>> axes = plot_history(trainer.fit(2))
    """
    from matplotlib.ticker import MaxNLocator

    records = list(history)
    if not records or not all(isinstance(record, Mapping) and "bound" in record for record in records):
        raise ValueError("The history is empty or has a record without a bound: give Trainer.history after a fit.")
    epoch = np.array([record.get("epoch", i + 1) for i, record in enumerate(records)])
    curves = {
        "held-out perplexity": [key for key in _keys(records) if "perplexity" in key],
        "topics in use": [
            key for key in _keys(records) if key.startswith(("topics_in_use", "num_topics_used", "topics_used"))
        ],
    }
    panels = [
        "bound",
        *(["terms"] if records[0].get("terms") and len(records) > 1 else []),
        *(name for name, keys in curves.items() if keys),
    ]
    shown = _new_panels(len(panels)) if axes is None else list(axes)[: len(panels)]
    if len(shown) < len(panels):
        raise ValueError(
            f"There are {len(shown)} axes for {len(panels)} panels: give one for each of {', '.join(panels)}."
        )
    for ax, panel in zip(shown, panels, strict=True):
        if panel == "bound":
            _plot_bound(ax, epoch, np.array([record["bound"] for record in records], dtype=float))
            ax.set_title(str(records[-1].get("bound_name", "")), fontsize=8)
        elif panel == "terms":
            _plot_terms(ax, epoch, [record["terms"] for record in records])
        else:
            _plot_curves(ax, epoch, records, curves[panel], panel)
        ax.set(xlabel="epoch", xlim=(epoch[0] - 0.5, epoch[-1] + 0.5))
        ax.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    return np.array(shown, dtype=object)


def _new_panels(num_panels: int) -> list[Axes]:
    import matplotlib.pyplot as plt

    lines, columns = -(-num_panels // 2), min(num_panels, 2)
    figure = plt.figure(figsize=(4.2 * columns, 2.9 * lines), layout="constrained")
    return [figure.add_subplot(lines, columns, i + 1) for i in range(num_panels)]


def _keys(records: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for record in records for key in record))


def _plot_bound(ax: Axes, epoch: np.ndarray, bound: np.ndarray) -> None:
    """The bound; where the first epoch lies so low that the rest would look flat, it stands as a number."""
    low, high = (float(pick(bound[1:])) for pick in (np.min, np.max)) if len(bound) > 3 else (-np.inf, np.inf)
    first = 1 if bound[0] < low - 2 * (high - low) else 0
    ax.plot(epoch[first:], bound[first:], color=common.OKABE_ITO[0], marker="o", ms=3, lw=1.2)
    ax.set_ylabel("bound")
    if first:
        label = f"epoch {epoch[0]}: {bound[0]:.4g}, far below"
        ax.annotate(label, (0.03, 0.04), xycoords="axes fraction", fontsize=8, color="0.35")
        ax.set_ylim(low - 0.2 * (high - low), high + 0.05 * (high - low))


def _plot_terms(ax: Axes, epoch: np.ndarray, terms: Sequence[Mapping[str, float]]) -> None:
    """Each term's gain since the first epoch, on a symmetric logarithmic scale; constant terms are left out."""
    values = {name: np.array([record.get(name, np.nan) for record in terms], dtype=float) for name in terms[0]}
    gains = {name: value - value[0] for name, value in values.items()}
    moving = {name: gain for name, gain in gains.items() if np.nanmax(np.abs(gain)) > 0}
    for i, (name, gain) in enumerate(moving.items()):
        style: dict[str, Any] = {
            "color": common.OKABE_ITO[i % 6],
            "ls": _STYLES[i % 4],
            "marker": common.MARKERS[i % 6],
        }
        ax.plot(epoch, gain, label=name, lw=1.2, ms=3, **style)
    top = max((float(np.nanmax(np.abs(gain))) for gain in moving.values()), default=1.0)
    ax.axhline(0, color="0.7", lw=0.8, zorder=0)
    decade = np.floor(np.log10(top))
    powers = 10.0 ** np.arange(decade - 2, decade + 1)
    ax.set_yscale("symlog", linthresh=powers[0] / 3)
    ax.set_yticks([*-powers[::-1], 0.0, *powers])
    ax.minorticks_off()
    ax.set(ylabel=f"gain of each term\nsince epoch {epoch[0]}", ylim=(-3 * top, 3 * top))
    if moving:
        ax.legend(fontsize=8, frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _plot_curves(
    ax: Axes, epoch: np.ndarray, records: Sequence[Mapping[str, Any]], keys: Sequence[str], name: str
) -> None:
    for i, key in enumerate(keys):
        value = np.array([record.get(key, np.nan) for record in records], dtype=float)
        there = np.isfinite(value)  # a score need not be computed at every epoch
        style: dict[str, Any] = {
            "color": common.OKABE_ITO[(i + 1) % 6],
            "ls": _STYLES[i % 4],
            "marker": common.MARKERS[i % 6],
        }
        ax.plot(epoch[there], value[there], label=key.replace("_", " "), lw=1.2, ms=3.5, **style)
    ax.set_ylabel(name)
    if name == "topics in use":
        ax.set_ylim(0, 1.1 * max(float(np.max(line.get_ydata())) for line in ax.lines))
    if len(keys) > 1:
        ax.legend(fontsize=8, frameon=False)
