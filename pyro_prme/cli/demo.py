"""The demonstration: PRME and HDP on the bundled King James Bible, with topics, a score and pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyro_prme.answers.posterior import Posterior
from pyro_prme.cli.show import topic_lines, topic_rows
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.readers import load_corpus
from pyro_prme.explorer.writing import explore
from pyro_prme.runs.fitting import correlations_that_hold, fit_in_folder
from pyro_prme.runs.run_files import check_new, is_run
from pyro_prme.runs.run_folder import load_run, make_trainer, resume, settings_of

__all__ = ["run_demo"]

#: What `PRMETopicModel` draws from ``random_state=0``: the demo's fits are those of the estimator in the README.
SEED = int(np.random.RandomState(0).randint(2**31 - 1))


def run_demo(folder: Path, quick: bool, say: Callable[[str], None]) -> None:
    """Fits both models, prints what was found, and draws it.

    A folder with an earlier demo of the same size is taken up where it stopped.

    Args:
        folder: gets the runs ``prme`` and ``hdp`` and the pictures.
        quick: fewer topics, epochs and pictures.
        say: prints a line.
    """
    topics, epochs = (15, 6) if quick else (50, 30)
    corpus, test = load_corpus("kjv").split(0.1, seed=0)
    splits = {observed: test.split_tokens(observed, seed=0) for observed in (0.9, 0.5, 0.1)}
    say(f"King James Bible by chapter: {len(corpus)} chapters to learn from, {len(test)} to score.")
    say("PRME is the default, with its random function in the shape of the loadings (the paper: in the scale).")
    fitted: dict[str, Posterior] = {}
    for name in ("prme", "hdp"):
        settings = settings_of(model=name, num_topics=topics, seed=SEED)
        run = folder / f"{name}-quick" if quick else folder / name
        if is_run(run):
            trainer, settings = resume(run, corpus.counts, corpus.vocabulary)
        else:
            check_new(run)
            trainer = make_trainer(corpus.counts, settings)
        fitted[name] = fit_in_folder(run, trainer, settings, corpus, epochs, splits[0.9])
    run = folder / ("prme-quick" if quick else "prme")
    saved = load_run(run)
    rows = topic_rows(saved.posterior, correlations_that_hold(saved.summary), by="frex")
    say(f"\nThe largest of {len(rows)} topics of PRME, with those that it correlates most with in the same chapters:\n")
    for line in topic_lines(rows, most=20):
        say(line)
    say("\nPerplexity of the hidden words of new chapters (lower is better), by the share of words seen:\n")
    say("seen   " + "".join(f"{name.upper():>8}" for name in fitted))
    for observed, split in splits.items():
        say(f"{observed:4.0%}   " + "".join(f"{posterior.perplexity(split):8.1f}" for posterior in fitted.values()))
    pictures = draw(folder, fitted, corpus, [] if quick else saved.history)
    say(f"\nPictures: {', '.join(str(path) for path in pictures)}")
    page = explore(saved.posterior, corpus, folder / "explorer.html", title="King James Bible")
    say(f"A page to explore the topics with, which needs no network: open {page} in a browser.")
    say(f"The fitted model is in {run}. Ask it, for instance: prme topics {run}")


def draw(folder: Path, fitted: dict[str, Posterior], corpus: Corpus, history: list[dict]) -> list[Path]:
    """Writes the pictures of a demo, only two of them without a history; returns their paths."""
    import matplotlib

    with matplotlib.rc_context({"savefig.dpi": 160}):
        backend = matplotlib.get_backend()
        matplotlib.use("agg")
        from matplotlib import pyplot as plt

        from pyro_prme import plots

        prme = fitted["prme"]
        usage = plots.plot_usage(prme, label="PRME")
        plots.plot_usage(fitted["hdp"], label="HDP", ax=usage)
        axes = {"usage": usage, "paintboxes": plots.plot_paintboxes(prme, corpus).flat[0]}
        if history:
            axes["correlations"] = plots.plot_correlations(prme, corpus)
            axes["correlation_graph"] = plots.plot_correlation_graph(prme, corpus)
            axes["history"] = plots.plot_history(history).flat[0]
        paths = []
        for name, ax in axes.items():
            paths.append(folder / f"{name}.png")
            ax.figure.savefig(paths[-1])
            plt.close(ax.figure)
        matplotlib.use(backend)
    return paths
