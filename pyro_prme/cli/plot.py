"""The command `prme plot`: every picture of a run, and of the random measures, as a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pyro_prme.checks import choice, whole
from pyro_prme.cli.show import corpus_of_run, echo
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.runs.run_folder import SavedRun, load_run

__all__ = ["PICTURES", "Picture", "plot"]

_FORMATS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Picture:
    """A picture that the command can draw.

    Args:
        what: what it shows, for the help.
        draw: gives axes, from a run, a corpus and the seed.
        needs_run, needs_corpus: whether it cannot do without.
    """

    what: str
    draw: Callable[[Any, Any, int], Any]
    needs_run: bool = True
    needs_corpus: bool = True


def _plots() -> Any:
    from pyro_prme import plots

    return plots


def _correlations(name: str) -> Callable[[SavedRun, Corpus, int], Any]:
    def draw(run: SavedRun, corpus: Corpus, seed: int) -> Any:
        return getattr(_plots(), name)(run.posterior, corpus)

    return draw


def _model(run: SavedRun, corpus: Corpus | None, seed: int) -> Any:
    from pyro_prme.corpora.batch import Batch

    return _plots().plot_model(run.model, Batch.from_tokens([[0]]))


def _strip(run: None, corpus: None, seed: int) -> Any:
    from pyro_prme import measures

    return _plots().plot_strip(measures.prme(num_objects=20, num_atoms=30, seed=seed))


#: The pictures by name. Those of factor models are absent: `prme fit` fits none.
PICTURES: dict[str, Picture] = {
    "usage": Picture(
        "topics by their share of the tokens", lambda r, c, s: _plots().plot_usage(r.posterior, c), True, False
    ),
    "history": Picture("the fit, epoch by epoch", lambda r, c, s: _plots().plot_history(r.history), True, False),
    "model": Picture("the model as a graph", _model, True, False),
    "correlations": Picture("topics that go together, as a matrix", _correlations("plot_correlations")),
    "correlation_graph": Picture("the strongest correlations as arcs", _correlations("plot_correlation_graph")),
    "paintboxes": Picture(
        "where topics are strong, with documents", lambda r, c, s: _plots().plot_paintboxes(r.posterior, c)
    ),
    "embeddings": Picture(
        "documents by place and main topic", lambda r, c, s: _plots().plot_embeddings(r.posterior, c)
    ),
    "predictive_check": Picture(
        "documents drawn from the fit beside the real ones",
        lambda r, c, s: _plots().plot_predictive_check(r.posterior, c, seed=s),
    ),
    "feature_paintbox": Picture(
        "a random paintbox of features", lambda r, c, s: _plots().plot_feature_paintbox(seed=s), False, False
    ),
    "strip": Picture("a random measure on the strip", _strip, False, False),
}


def plot(
    picture: Annotated[
        str,
        typer.Argument(metavar="PICTURE", help="; ".join(f"{name}: {p.what}" for name, p in PICTURES.items()) + "."),
    ],
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="Folder that `prme fit` made.")] = None,
    corpus: Annotated[str | None, typer.Argument(metavar="[CORPUS]", help="Documents: as for `prme fit`.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File: .png, .svg or .pdf.", show_default="PICTURE.png")
    ] = None,
    vocab: Annotated[Path | None, typer.Option(help="File with one word a line, for counts without words.")] = None,
    seed: Annotated[int, typer.Option(help="Of pictures that draw at random.")] = 0,
) -> None:
    """Draw a picture of a run, or of a random measure.

    Example: prme plot paintboxes run/ corpus.ldac -o paintboxes.svg
    """
    choice("PICTURE", picture, PICTURES)
    chosen = PICTURES[picture]
    path = Path(f"{picture}.png") if output is None else output
    choice("the ending of --output", path.suffix.removeprefix(".").lower(), _FORMATS)
    whole("--seed", seed, 0)
    if run is None and chosen.needs_run:
        raise ValueError(f"The picture {picture} is of a run: give its folder.")
    if corpus is None and chosen.needs_corpus:
        raise ValueError(f"The picture {picture} shows documents: give a corpus after the run.")
    saved = None if run is None else load_run(run)
    documents = None if saved is None or corpus is None else corpus_of_run(saved, corpus, vocab)
    import matplotlib

    backend = matplotlib.get_backend()
    matplotlib.use("agg")
    try:
        from matplotlib import pyplot as plt

        axes = chosen.draw(saved, documents, seed)
        figure = np.ravel(axes)[0].figure
        figure.savefig(path, dpi=200, bbox_inches="tight")
        plt.close(figure)
    finally:
        matplotlib.use(backend)
    echo(str(path))
