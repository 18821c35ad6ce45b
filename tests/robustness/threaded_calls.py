"""Questions to a fitted model from four threads: the numbers of one thread, and nothing global is changed."""

from __future__ import annotations

import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch

from pyro_prme.estimator import PRMETopicModel
from pyro_prme.runs.run_folder import load_run
from tests.robustness import toys
from tests.robustness.trials import Outcome, generator

__all__ = ["trial"]

_THREADS = 4
_fitted: list[PRMETopicModel] = []
_saved: list[Path] = []  # a run's folder
_answers: dict[tuple[str, int], np.ndarray] = {}
_ASKED = ("transform", "loadings", "correlations", "perplexity", "usage", "fit", "pickle", "load")


def trial(seed: int, number: int, folder: Path) -> Outcome:
    """Eight calls, of random kinds on random documents, by four threads at a time."""
    if not _fitted:
        _fitted.append(PRMETopicModel(4, max_iter=3, random_state=0).fit(toys.corpus()))
        _saved.append(Path(tempfile.mkdtemp(dir=folder)))
        for name, content in toys.run_files(folder).items():
            (_saved[0] / name).write_bytes(content)
    rng = generator(seed, number)
    calls = [(str(rng.choice(_ASKED)), int(rng.integers(0, 5))) for _ in range(2 * _THREADS)]
    for call in calls:
        if call not in _answers:
            _answers[call] = ask(*call)
    before = _world()
    with ThreadPoolExecutor(_THREADS) as threads:
        futures = [threads.submit(ask, *call) for call in calls]
    for call, future in zip(calls, futures, strict=True):
        error = future.exception()
        if error is not None:
            return Outcome("threaded calls", f"{call}: {type(error).__name__}: {error}")
        if not np.array_equal(future.result(), _answers[call]):
            return Outcome("threaded calls", f"{call}: other numbers than in one thread")
    changed = [name for name, value in _world().items() if value != before[name]]
    return Outcome("threaded calls", f"changed: {changed}" if changed else "", {"calls": len(calls)})


def ask(what: str, part: int) -> np.ndarray:
    """One answer about a part of the documents."""
    documents = toys.corpus()[part::5]
    posterior: Any = _fitted[0].posterior_
    if what == "transform":
        return _fitted[0].transform(documents)
    if what == "loadings":
        return posterior.loadings(documents).values
    if what == "correlations":
        return posterior.topic_correlations(documents, kind="posterior").values
    if what == "perplexity":
        return np.array(posterior.perplexity(documents.split_tokens(0.5)))
    if what == "usage":
        return posterior.usage(documents).values
    if what == "pickle":
        return pickle.loads(pickle.dumps(_fitted[0])).transform(documents)
    if what == "load":
        return load_run(_saved[0]).posterior.topics().values
    return PRMETopicModel(3, max_iter=2, random_state=part).fit(toys.corpus()).components_


def _world() -> dict[str, Any]:
    """What belongs to the whole process."""
    return {
        "default type": torch.get_default_dtype(),
        "random state": torch.get_rng_state().numpy().tobytes(),
        "param store": sorted(pyro.get_param_store().keys()),
        "validation": pyro.settings.get("validate_poutine"),
        "module_local_params": pyro.settings.get("module_local_params"),
        "handlers": len(pyro.poutine.runtime._PYRO_STACK),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
    }
