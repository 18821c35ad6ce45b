"""A run in a folder: open this to save a fit, load it elsewhere, or go on with it after an interruption."""

from __future__ import annotations

import inspect
import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
from scipy import sparse
from torch import Tensor, nn

from pyro_prme.answers.mixture import Mixture
from pyro_prme.answers.posterior import Posterior
from pyro_prme.checks import SETTINGS, choice, flag, whole, widths
from pyro_prme.corpora.batch import Batch
from pyro_prme.corpora.corpus import Corpus
from pyro_prme.corpora.counts import sound_csr, words_met
from pyro_prme.corpora.mapped import give_back
from pyro_prme.inference.build import CHOICES, PRESETS, build, preset_settings
from pyro_prme.inference.session import session
from pyro_prme.inference.topic_guide import Counts, PRMEGuide
from pyro_prme.inference.topic_starts import STARTS
from pyro_prme.inference.trainer import MODES, Trainer, TrainOptions
from pyro_prme.inference.workers import Workers
from pyro_prme.models.topic_model import TopicModel
from pyro_prme.runs.mixing import is_mix, parts_of
from pyro_prme.runs.optimizer_state import from_parts, to_parts
from pyro_prme.runs.run_files import damaged, is_run, read_record, read_tensors, read_vocabulary, write_checkpoint

__all__ = ["SavedRun", "fingerprint", "load_run", "make_trainer", "resume", "save_run", "settings_of", "was_fitted_to"]

Settings = dict[str, dict[str, Any]]

_SIZES = ("vocab_size", "num_documents")
_BLOCK = 1 << 20  # numbers of a corpus looked at together
_UNUSED = 10_000_000  # numbers that a network which a model does not use may have
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class SavedRun:
    """A fitted model as it was saved.

    Args:
        model: ready to be asked.
        guide: ready to be asked.
        settings: see `settings_of`.
        vocabulary: the D words.
        history: one record an epoch.
        summary: what the writer left with it, such as "topic_correlations" (K, K).
        version: of the pyro_prme that wrote it.
        parts: of a mixture; its other fields are then those of the first part.
    """

    model: TopicModel
    guide: PRMEGuide
    settings: Settings
    vocabulary: tuple[str, ...]
    history: list[dict[str, Any]]
    summary: dict[str, np.ndarray] = field(default_factory=dict)
    version: str = ""
    parts: tuple[SavedRun, ...] = ()

    @property
    def posterior(self) -> Posterior:
        """What was learned; of a mixture, the mean of what its parts predict."""
        if self.parts:
            return Mixture([part.posterior for part in self.parts])
        return Posterior(self.guide, vocabulary=self.vocabulary)


def settings_of(preset: str = "default", **given: Any) -> Settings:
    """Settings of `build`, `TrainOptions` and the start, by name, so that a later version's defaults change nothing.

    Args:
        preset: a key of `build.PRESETS`.
        given: settings of either, over those of the preset; None leaves one as it is. The seed goes to both.

    Returns:
        Under "build" and "trainer".
    """
    choice("preset", preset, PRESETS)
    given = {name: value for name, value in given.items() if value is not None}
    chosen = preset_settings(preset, flag("own_words", given.get("own_words", False))) | given
    if "num_topics" not in chosen:
        raise ValueError("num_topics is missing: say how many topics the model may use.")
    known = {
        "build": {name: p.default for name, p in inspect.signature(build).parameters.items() if name not in _SIZES},
        "trainer": {name: p.default for name, p in inspect.signature(TrainOptions).parameters.items()},
    }
    known["trainer"]["start"] = "kmeans"
    settings = {part: {name: chosen.get(name, default) for name, default in known[part].items()} for part in known}
    unknown = chosen.keys() - settings["build"].keys() - settings["trainer"].keys()
    if unknown:
        raise ValueError(f"There is no setting {min(unknown)!r}.")
    for values in settings.values():
        for name in values.keys() & SETTINGS.keys():
            SETTINGS[name](name, values[name])
    for name, names in CHOICES.items():
        choice(name, settings["build"][name], names)
    choice("mode", settings["trainer"]["mode"], MODES)
    choice("start", settings["trainer"]["start"], STARTS)
    return settings


def make_trainer(
    counts: sparse.csr_matrix, settings: Settings, *, begin: bool = True, workers: Workers | None = None
) -> Trainer:
    """A model, its guide and a trainer for a corpus (documents x words).

    Args:
        counts: the corpus.
        settings: see `settings_of`.
        begin: False leaves the start out, for a trainer that will load a state.
        workers: with which this process fits together.
    """
    num_topics = settings["build"]["num_topics"]
    counts = sound_csr(counts)
    words, documents = words_met(counts), int(np.count_nonzero(np.diff(counts.indptr)))
    for number, what in ((documents, "documents with words"), (words, "distinct words")):
        if number < num_topics:
            raise ValueError(f"There are {num_topics} topics and {number} {what}: ask for at most {number} topics.")
    with pyro.settings.context(module_local_params=True):
        _, guide = build(vocab_size=counts.shape[1], num_documents=counts.shape[0], **settings["build"])
        start = settings["trainer"]["start"] if begin else None
        options = TrainOptions(**{name: value for name, value in settings["trainer"].items() if name != "start"})
        return Trainer(guide, Counts(counts), options, start=start, workers=workers)


def save_run(
    folder: str | Path,
    trainer: Trainer,
    settings: Settings,
    vocabulary: Sequence[str],
    summary: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Writes a checkpoint, whole or not at all; the one before stays until then.

    Args:
        folder: made if need be. One that holds another run is refused.
        trainer: of a model that `make_trainer` or `resume` made; within an epoch, where it stands between two steps.
            Of several workers all must call this, and the first writes.
        settings: what it was made from; further parts beside "build" and "trainer" are kept.
        vocabulary: the D words.
        summary: arrays to keep with it.
    """
    from pyro_prme import __version__

    state, data = trainer.state_dict(), trainer.data
    if not trainer.workers.leads:
        return
    if not isinstance(data, Counts | Corpus):
        raise ValueError(f"The trainer's data are {type(data).__name__}: a run is one of a model of counts.")
    counts = sparse.csr_matrix(data.counts)
    tensors = {f"{part}.{name}": value for part in ("model", "guide") for name, value in state[part].items()}
    tensors |= {f"memory.{i}.{name}": x for i, part in state["memory"].items() for name, x in part.items()}
    tensors["torch_state"] = state["torch_state"]
    underway = state["underway"]
    if underway is not None:
        pending = underway.pop("pending")
        tensors |= {f"pending.{rank}.{name}": x for rank, part in enumerate(pending) for name, x in part.items()}
    for name, array in (summary or {}).items():
        tensors[f"summary.{name}"] = torch.from_numpy(np.array(array))
    record = {
        "pyro_prme": __version__,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "settings": settings,
        "sizes": dict(zip(_SIZES, reversed(counts.shape), strict=True)),
        "corpus": data.named(lambda: fingerprint(counts, vocabulary))
        if isinstance(data, Counts)
        else fingerprint(counts, vocabulary),
        "optimizers": [to_parts(i, part, tensors) for i, part in enumerate(state["optimizers"])],
        "numpy_state": state["numpy_state"],
        "steps": state["steps"],
        "history": state["history"],
        "underway": underway,
    }
    if is_run(folder):
        _check_continues(Path(folder), record)
    write_checkpoint(Path(folder), record, tensors, vocabulary)


def load_run(folder: str | Path) -> SavedRun:
    """The model of a run's last checkpoint, ready to be asked; version and shapes are checked.

    The folder may be a mixture of runs, as `prme mix` makes it.
    """
    if is_mix(folder):
        parts = tuple(_load(part) for part in parts_of(folder))
        if any(part.vocabulary != parts[0].vocabulary for part in parts):
            raise ValueError(f"{folder} has parts with different words: mix runs of one vocabulary.")
        return replace(parts[0], parts=parts, summary={})
    return _load(Path(folder))


def _load(folder: Path) -> SavedRun:
    """One run."""
    record = read_record(folder)
    tensors, vocabulary = read_tensors(folder, record), read_vocabulary(folder, record)
    with damaged(folder), session(_DTYPES[record["dtype"]]):
        _check_sizes(record, tensors)
        model, guide = build(**record["sizes"], **record["settings"]["build"])
        guide.plan(_any_batch(model))
        for part, module in (("model", model), ("guide", guide)):
            module.load_state_dict(_checked(module, _under(f"{part}.", tensors), part))
        summary = {name: tensor.numpy() for name, tensor in _under("summary.", tensors).items()}
        _check_summary(summary, model.num_topics)
        history = [dict(item) for item in record["history"]]
        return SavedRun(model, guide, record["settings"], vocabulary, history, summary, str(record["pyro_prme"]))


def resume(
    folder: str | Path, counts: sparse.csr_matrix, vocabulary: Sequence[str], *, workers: Workers | None = None
) -> tuple[Trainer, Settings]:
    """A trainer that goes on as if never interrupted, and the run's settings.

    Args:
        folder: of the run.
        counts: of the corpus that the run was started on.
        vocabulary: of that corpus.
        workers: with which this process goes on, as many as before or not.
    """
    folder = Path(folder)
    record = read_record(folder)
    tensors = read_tensors(folder, record)
    read_vocabulary(folder, record)
    with damaged(folder):
        same = fingerprint(counts, vocabulary) == record["corpus"]
        if torch.get_default_dtype() != _DTYPES[record["dtype"]]:
            raise ValueError(f"it is in {record['dtype']}, and torch's default type is another: set the same")
    if not same:
        raise ValueError(f"{folder} was fitted to another corpus: resume it with the documents and words of its start.")
    with damaged(folder):
        _check_sizes(record, tensors)
        trainer = make_trainer(counts, record["settings"], begin=False, workers=workers)
        model: Any = trainer.model
        modules: dict[str, nn.Module] = {"model": model, "guide": trainer.guide}
        state: dict[str, Any] = {
            part: _checked(module, _under(f"{part}.", tensors), part) for part, module in modules.items()
        }
        going = record.get("underway")
        if going is not None:
            ranks = range(len(going["totals"]))
            state["underway"] = going | {"pending": [_under(f"pending.{rank}.", tensors) for rank in ranks]}
        state["memory"] = {}
        for name, tensor in _under("memory.", tensors).items():
            claim, _, part = name.partition(".")
            state["memory"].setdefault(claim, {})[part] = tensor
        pairs = zip(trainer.optimisers, record["optimizers"], strict=True)
        state["optimizers"] = [from_parts(i, *pair, tensors) for i, pair in enumerate(pairs)]
        state["torch_state"] = tensors["torch_state"]
        torch.Generator().set_state(state["torch_state"])  # refuses what is no random state
        trainer.load_state_dict(state | {name: record[name] for name in ("numpy_state", "steps", "history")})
    return trainer, record["settings"]


def was_fitted_to(folder: str | Path, counts: sparse.csr_matrix, vocabulary: Sequence[str]) -> bool:
    """Whether a run was fitted to just these documents, in this order; a part of them, or more, is not noticed."""
    name = fingerprint(counts, vocabulary)
    return any(read_record(part).get("corpus") == name for part in parts_of(folder))


def _checked(module: nn.Module, tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors, if their names, shapes and types are those of the module."""
    expected = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in module.state_dict().items()}
    found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            file, model = (f"{x[0]} {x[1]}" if x else "absent" for x in (found.get(name), expected.get(name)))
            raise ValueError(f"{name} of the {part} is {file} in the file and {model} in the model")
    for name, tensor in tensors.items():
        last = name.rpartition(".")[2]
        if (last == "gamma" and not bool((tensor > 0).all())) or (last == "running_var" and bool((tensor < 0).any())):
            raise ValueError(f"{name} of the {part} has a number that is not positive")
    return tensors


def _check_sizes(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuses settings that ask for more than the file of tensors holds, before anything is built by them."""
    chosen = record["settings"]["build"]
    numbers = sum(tensor.numel() for tensor in tensors.values())
    topics, words = whole("num_topics", chosen["num_topics"], 2), whole("vocab_size", record["sizes"]["vocab_size"])
    layers = [
        i * o
        for name in ("encoder_hidden", "decoder_hidden")
        for i, o in itertools.pairwise((1, *widths(name, chosen[name])))
    ]
    networks = max([topics * whole("embedding_dim", chosen["embedding_dim"]), *layers])
    if chosen["model"] != "prme":  # a model without networks has settings of some all the same
        networks = 0 if networks <= _UNUSED else networks
    largest = max(topics * words, networks)
    if largest > numbers:
        raise ValueError(f"its settings ask for {largest} numbers and more, and its file of tensors has {numbers}")


def _check_summary(summary: Mapping[str, np.ndarray], num_topics: int) -> None:
    for name, found in summary.items():
        if name.startswith("topic_correlations") and found.shape != (num_topics, num_topics):
            raise ValueError(f"its correlations have shape {found.shape}, and there are {num_topics} topics")


def _check_continues(folder: Path, record: Mapping[str, Any]) -> None:
    """The checkpoint on the disk is of the same run, at an earlier point or the same."""
    before = read_record(folder)

    def differs(one: Any, other: Any) -> bool:
        return json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True)

    with damaged(folder):
        parts = [(before["settings"][part], record["settings"][part]) for part in ("build", "trainer")]
        other = before["corpus"] != record["corpus"] or any(differs(*pair) for pair in parts)
        past = record["history"][: len(before["history"])]
        further = record["steps"] >= before["steps"]
    if other:
        raise ValueError(f"{folder} holds a run with other settings or another corpus: choose another folder.")
    if differs(before["history"], past) or not further:
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder.")


def fingerprint(counts: sparse.csr_matrix, vocabulary: Sequence[str]) -> str:
    """A short name of a corpus, to notice another one."""
    counts = sound_csr(counts)
    value = zlib.crc32("\n".join(vocabulary).encode())
    for array in (counts.indptr, counts.indices, counts.data):
        for start in range(0, len(array), _BLOCK):
            value = zlib.crc32(np.asarray(array[start : start + _BLOCK], dtype=np.int64).tobytes(), value)
    give_back(counts.indices, counts.data)
    return f"{value:08x}"


def _any_batch(model: TopicModel) -> Batch:
    """A few words in two documents: enough to make a plan."""
    rows, words = np.indices((min(2, model.num_documents), min(8, model.vocab_size))).reshape(2, -1)
    shape = (rows.max() + 1, model.vocab_size)
    return Batch.from_csr(sparse.csr_matrix((np.ones(len(rows)), (rows, words)), shape=shape))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
