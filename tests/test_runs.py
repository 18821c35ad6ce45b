"""Saved runs: round trips, bit-identical resuming, interruptions at every point, full disks, damaged folders."""

import errno
import json
import os
import pickle
import resource

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy import sparse

from pyro_prme import run_files
from pyro_prme.run_files import check_new, is_run
from pyro_prme.runs import load_run, make_trainer, resume, save_run, settings_of

WORDS = tuple(f"word{d}" for d in range(20))


def counts(seed=0, num_documents=30):
    return sparse.csr_matrix(np.random.default_rng(seed).poisson(0.7, (num_documents, len(WORDS))))


def settings(**given):
    return settings_of(**({"num_topics": 4, "batch_size": 10, "embedding_dim": 3, "seed": 1} | given))


_written: dict[str, bytes] = {}


@pytest.fixture
def folder(tmp_path):
    """A run of two epochs."""
    run = tmp_path / "run"
    if not _written:
        trainer = make_trainer(counts(), settings())
        trainer.fit(2)
        save_run(run, trainer, settings(), WORDS, {"topic_correlations": np.eye(4)})
        _written.update({file.name: file.read_bytes() for file in run.iterdir()})
    run.mkdir(exist_ok=True)
    for name, content in _written.items():
        (run / name).write_bytes(content)
    return run


def gamma(guide):
    return guide.rules["theta"].gamma


def edit(folder, **changes):
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | changes))


def test_settings_are_complete_and_a_preset_gives_way():
    chosen = settings_of("paper", num_topics=7, learning_rate=0.5, beta=None, seed=3)
    assert chosen["build"]["encoder_hidden"] == (1000,)
    assert chosen["trainer"]["learning_rate"] == 0.5
    assert chosen["build"]["beta"] == 5.0
    assert chosen["build"]["seed"] == chosen["trainer"]["seed"] == 3
    for wrong, message in (
        ({"preset": "best", "num_topics": 3}, "preset is 'best'"),
        ({}, "num_topics is missing"),
        ({"num_topics": 3, "speed": 1}, "no setting 'speed'"),
    ):
        with pytest.raises(ValueError, match=message):
            settings_of(**wrong)


@pytest.mark.parametrize(
    "given",
    [{}, {"model": "hdp"}, {"encoder": "words", "mode": "online"}, {"encoder_hidden": (5, 5), "residual": True}],
)
def test_what_is_saved_is_loaded(tmp_path, given):
    trainer = make_trainer(counts(), settings(**given))
    trainer.fit(2, lambda t, record: record.update(perplexity=1 / 3))
    save_run(tmp_path, trainer, settings(**given) | {"fit": {"epochs": 2}}, WORDS, {"numbers": np.arange(3.0)})
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float32)
    run = load_run(tmp_path)
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(before, torch.get_rng_state())
    torch.set_default_dtype(torch.float64)
    for part in ("model", "guide"):
        saved, loaded = getattr(trainer, part).state_dict(), getattr(run, part).state_dict()
        assert saved.keys() == loaded.keys()
        assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    assert run.settings == settings(**given) | {"fit": {"epochs": 2}}
    assert (run.vocabulary, run.history, list(run.summary["numbers"])) == (WORDS, trainer.history, [0, 1, 2])
    assert run.posterior.proportions(counts()).shape == (30, 4)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"run.json", "state-1.safetensors", "vocabulary.txt"}


@pytest.mark.parametrize("given", [{}, {"model": "hdp", "mode": "online"}, {"encoder": "words", "mode": "online"}])
def test_a_resumed_run_ends_with_the_same_numbers(tmp_path, given):
    whole = make_trainer(counts(), settings(**given))
    whole.fit(5)
    part = make_trainer(counts(), settings(**given))
    for done in range(1, 5):
        part.fit(1)
        save_run(tmp_path, part, settings(**given), WORDS)
        part, again = resume(tmp_path, counts(), WORDS)
        assert again == settings(**given)
        assert len(part.history) == done
    part.fit(1)
    assert part.history == whole.history
    assert all(torch.equal(x, y) for x, y in zip(part.guide.parameters(), whole.guide.parameters(), strict=True))
    assert torch.equal(gamma(part.guide), gamma(whole.guide))
    assert len(list(tmp_path.glob("state-*"))) == 1


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("operation", ["fsync", "replace", "unlink", "open"])
def test_an_end_at_any_point_leaves_a_good_checkpoint(folder, monkeypatch, operation):
    old = gamma(load_run(folder).guide)
    trainer, chosen = resume(folder, counts(), WORDS)
    trainer.fit(1)
    new = gamma(trainer.guide)
    ended = 0
    for point in range(20):
        calls, real = 0, getattr(os, operation)

        def end(*args, point=point, real=real, **kwargs):
            nonlocal calls
            calls += 1
            if calls > point:
                raise Killed  # the clean-up of a live process is interrupted as well
            return real(*args, **kwargs)

        monkeypatch.setattr(os, operation, end)
        try:
            save_run(folder, trainer, chosen, WORDS)
        except Killed:
            ended += 1
        monkeypatch.undo()
        now = gamma(load_run(folder).guide)
        assert torch.equal(now, old) or torch.equal(now, new)
        if calls <= point:
            break
    assert ended == point  # every point up to the last was tried
    assert torch.equal(now, new)
    assert len(list(folder.iterdir())) == 3


def test_a_full_disk_leaves_the_checkpoint_and_says_so(folder, monkeypatch):
    trainer, chosen = resume(folder, counts(), WORDS)
    trainer.fit(1)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = {file: file.read_bytes() for file in folder.iterdir()}
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"state-2\.safetensors cannot be written \(No space left on device\)"):
        save_run(folder, trainer, chosen, WORDS)
    assert before == {file: file.read_bytes() for file in folder.iterdir()}


def test_a_limit_of_the_system_leaves_the_checkpoint_too(folder):
    trainer, chosen = resume(folder, counts(), WORDS)
    trainer.fit(1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.raises(ValueError, match=r"state-2\.safetensors cannot be written"):
            save_run(folder, trainer, chosen, WORDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(load_run(folder).history) == 2
    save_run(folder, trainer, chosen, WORDS)
    assert len(load_run(folder).history) == 3


def test_leftovers_of_a_killed_process_are_no_harm(folder):
    for name in ("state-7.safetensors", ".state-8.safetensors.123.tmp", ".run.json.123.tmp"):
        (folder / name).write_bytes(b"half")
    trainer, chosen = resume(folder, counts(), WORDS)
    trainer.fit(1)
    save_run(folder, trainer, chosen, WORDS)
    assert {file.name for file in folder.iterdir()} == {"run.json", "state-8.safetensors", "vocabulary.txt"}
    (folder / "run.json").unlink()
    check_new(folder)  # a first checkpoint that was not finished


def test_a_folder_with_something_in_it_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="holds a run already"):
        check_new(folder)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        check_new(tmp_path)
    with pytest.raises(ValueError, match="is a file"):
        check_new(tmp_path / "notes")
    with pytest.raises(ValueError, match="cannot be made"):
        save_run(tmp_path / "notes" / "run", make_trainer(counts(), settings()), settings(), WORDS)
    fresh = make_trainer(counts(), settings())
    fresh.fit(1)
    with pytest.raises(ValueError, match="holds a run already"):
        save_run(folder, fresh, settings(), WORDS)
    with pytest.raises(ValueError, match="other settings or another corpus"):
        save_run(folder, make_trainer(counts(1), settings()), settings(), WORDS)
    with pytest.raises(ValueError, match="other settings"):
        save_run(folder, make_trainer(counts(), settings(beta=2.0)), settings(beta=2.0), WORDS)
    assert len(load_run(folder).history) == 2


def test_another_version_is_refused(folder, monkeypatch):
    monkeypatch.setattr(run_files, "FORMAT", 2)
    with pytest.raises(ValueError, match=r"is in format 1 \(pyro_prme .*reads format 2"):
        load_run(folder)
    with pytest.raises(ValueError, match="reads format 2"):
        resume(folder, counts(), WORDS)


def cut_state(folder):
    file = folder / "state-1.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def wrong_shape(folder):
    tensors = safetensors.torch.load_file(folder / "state-1.safetensors")
    tensors["guide.rules.theta.gamma"] = tensors["guide.rules.theta.gamma"][:, :3].contiguous()
    safetensors.torch.save_file(tensors, folder / "state-1.safetensors")


def missing_tensor(folder):
    tensors = safetensors.torch.load_file(folder / "state-1.safetensors")
    del tensors["guide.rules.V.free"]
    safetensors.torch.save_file(tensors, folder / "state-1.safetensors")


DAMAGES = {
    "no folder": (lambda f: f.rename(f.with_name("away")), "is no run"),
    "empty run.json": (lambda f: (f / "run.json").write_text(""), "is empty"),
    "cut run.json": (lambda f: (f / "run.json").write_text('{"format": 1, '), "no good checkpoint"),
    "a list": (lambda f: (f / "run.json").write_text("[1]"), "no good checkpoint"),
    "no settings": (lambda f: edit(f, settings=None), "no good checkpoint"),
    "no build": (lambda f: edit(f, settings={}), "lacks 'build'"),
    "unknown setting": (lambda f: edit(f, settings={"build": {"speed": 1}}), "speed"),
    "no state": (lambda f: (f / "state-1.safetensors").unlink(), "cannot be read"),
    "outside": (lambda f: edit(f, state="../state-1.safetensors"), "lies outside"),
    "cut state": (cut_state, "cannot be read"),
    "wrong shape": (wrong_shape, r"gamma of the guide is \(20, 3\) .* and \(20, 4\)"),
    "missing tensor": (missing_tensor, "V.free of the guide is absent in the file"),
    "dtype": (lambda f: edit(f, dtype="int8"), "lacks 'int8'"),
    "short vocabulary": (lambda f: (f / "vocabulary.txt").write_text("a\nb\n"), "has 2 words, not 20"),
    "a pickle": (lambda f: (f / "state-1.safetensors").write_bytes(pickle.dumps([1, 2])), "cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_gets_one_sentence(folder, damage):
    spoil, message = DAMAGES[damage]
    spoil(folder)
    with pytest.raises(ValueError, match=message) as error:
        load_run(folder)
    assert "\n" not in str(error.value)


def test_resuming_with_other_documents_or_types_is_refused(folder):
    with pytest.raises(ValueError, match="another corpus"):
        resume(folder, counts(1), WORDS)
    with pytest.raises(ValueError, match="another corpus"):
        resume(folder, counts(), WORDS[::-1])
    torch.set_default_dtype(torch.float32)
    with pytest.raises(ValueError, match="it is in float64"):
        resume(folder, counts(), WORDS)


def test_too_many_topics_are_refused():
    with pytest.raises(ValueError, match="31 topics and 30 documents"):
        make_trainer(counts(), settings(num_topics=31))
    with pytest.raises(ValueError, match="21 topics and 20 distinct words"):
        make_trainer(counts(), settings(num_topics=21))


def test_nothing_is_pickled(folder):
    assert is_run(folder)
    for file in folder.iterdir():
        assert file.suffix in (".json", ".txt", ".safetensors")
    json.loads((folder / "run.json").read_text())
    safetensors.torch.load_file(folder / "state-1.safetensors")
