"""Saved runs: round trips, bit-identical resuming, interruptions at every point, full disks, damaged folders."""

import errno
import hashlib
import json
import os
import pickle
import resource
import subprocess
import sys
import textwrap
import tracemalloc
from fnmatch import fnmatch

import numpy as np
import pyro
import pytest
import safetensors.torch
import torch
from scipy import sparse

from pyro_prme.runs import run_files
from pyro_prme.runs.locks import LOCK, one_writer
from pyro_prme.runs.run_files import check_new, is_run
from pyro_prme.runs.run_folder import load_run, make_trainer, resume, save_run, settings_of

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
    return guide.topics.gamma


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


def test_opening_a_run_leaves_pyro_s_param_store_and_torch_as_they_were(folder):
    """The form of the model is found by running it, which must not register its networks outside of it."""

    def world():
        return sorted(pyro.get_param_store()), torch.get_rng_state().tolist(), torch.get_num_threads()

    before = world()
    load_run(folder)
    assert world() == before


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
    monkeypatch.setattr(run_files, "FORMAT", 3)
    with pytest.raises(ValueError, match=r"is in format 2 \(pyro_prme .*reads format 3"):
        load_run(folder)
    with pytest.raises(ValueError, match="reads format 3"):
        resume(folder, counts(), WORDS)


def sign(folder):
    """Makes the checksums those of the files, as whoever means harm would."""
    sums = {
        part: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for part, name in (("state", "state-1.safetensors"), ("vocabulary", "vocabulary.txt"))
    }
    edit(folder, checksums=sums)


def with_tensor(name, change):
    """A damage: one tensor of the state is changed, and the checksums with it."""

    def spoil(folder):
        tensors = safetensors.torch.load_file(folder / "state-1.safetensors")
        found = next(key for key in tensors if key == name or fnmatch(key, name))
        tensors[found] = change(tensors[found]).contiguous()
        safetensors.torch.save_file(tensors, folder / "state-1.safetensors")
        sign(folder)

    return spoil


def at(value):
    """Puts a value at the first place of a tensor."""

    def change(tensor):
        tensor.flatten()[0] = value
        return tensor

    return change


def with_build(**changes):
    def spoil(folder):
        settings = json.loads((folder / "run.json").read_text())["settings"]
        settings["build"] |= changes
        edit(folder, settings=settings)

    return spoil


def with_trainer(**changes):
    def damage(folder):
        settings = json.loads((folder / "run.json").read_text())["settings"]
        settings["trainer"] |= changes
        edit(folder, settings=settings)

    return damage


def with_sizes(**changes):
    def spoil(folder):
        edit(folder, sizes=json.loads((folder / "run.json").read_text())["sizes"] | changes)

    return spoil


def zeroed(folder):
    file = folder / "state-1.safetensors"
    content = bytearray(file.read_bytes())
    content[-300:-100] = bytes(200)
    file.write_bytes(content)


def swapped_vocabulary(folder):
    (folder / "vocabulary.txt").write_text("".join(f"{word}\n" for word in WORDS[::-1]))


def cut_state(folder):
    file = folder / "state-1.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def wrong_shape(folder):
    tensors = safetensors.torch.load_file(folder / "state-1.safetensors")
    name = next(name for name in tensors if name.endswith(".gamma"))
    tensors[name] = tensors[name][:, :3].contiguous()
    safetensors.torch.save_file(tensors, folder / "state-1.safetensors")
    sign(folder)


def missing_tensor(folder):
    tensors = safetensors.torch.load_file(folder / "state-1.safetensors")
    del tensors[next(name for name in tensors if fnmatch(name, "guide.claims.*.free"))]
    safetensors.torch.save_file(tensors, folder / "state-1.safetensors")
    sign(folder)


DAMAGES = {
    "no folder": (lambda f: f.rename(f.with_name("away")), "is no run"),
    "empty run.json": (lambda f: (f / "run.json").write_text(""), "is empty"),
    "cut run.json": (lambda f: (f / "run.json").write_text('{"format": 1, '), "no good checkpoint"),
    "a list": (lambda f: (f / "run.json").write_text("[1]"), "no good checkpoint"),
    "no settings": (lambda f: edit(f, settings=None), "no good checkpoint"),
    "no build": (lambda f: edit(f, settings={}), "lacks 'build'"),
    "unknown setting": (with_build(speed=1), "speed"),
    "no state": (lambda f: (f / "state-1.safetensors").unlink(), r"its file state-1\.safetensors is missing"),
    "no vocabulary": (lambda f: (f / "vocabulary.txt").unlink(), r"its file vocabulary\.txt is missing"),
    "swapped vocabulary": (
        swapped_vocabulary,
        r"vocabulary\.txt is not the file that was written .*changed, or swapped",
    ),
    "zeroed bytes": (zeroed, r"state-1\.safetensors is not the file that was written"),
    "no checksum": (lambda f: edit(f, checksums={}), "lacks 'state'"),
    "gamma negative": (with_tensor("guide.claims.*.gamma", at(-1.0)), "gamma of the guide has a number that is not"),
    "gamma zero": (with_tensor("guide.claims.*.gamma", at(0.0)), "gamma of the guide has a number that is not"),
    "gamma NaN": (with_tensor("guide.claims.*.gamma", at(np.nan)), r"\.gamma in .* that is not finite"),
    "V infinite": (with_tensor("guide.claims.*.free", at(np.inf)), r"\.free in .* that is not finite"),
    "running variance negative": (
        with_tensor("guide.claims.*.encoder.norm.running_var", at(-1.0)),
        "running_var of the guide has a number that is not positive",
    ),
    "correlations of another shape": (
        with_tensor("summary.topic_correlations", lambda x: x[:2]),
        r"its correlations have shape \(2, 4\), and there are 4 topics",
    ),
    "no history": (lambda f: edit(f, history=[]), "its history is empty"),
    "a million topics": (with_build(num_topics=10**6), "its settings ask for 20000000 numbers and more"),
    "wide layers": (with_build(encoder_hidden=[25000, 25000]), "its settings ask for 625000000 numbers"),
    "wide layers of an HDP": (with_build(model="hdp", encoder_hidden=[25000, 25000]), "ask for 625000000 numbers"),
    "long embeddings": (with_build(embedding_dim=10**9), "its settings ask for 4000000000 numbers"),
    "widths that are none": (with_build(decoder_hidden="wide"), "decoder_hidden is 'wide': it must be a sequence"),
    "a float of topics": (with_build(num_topics=4.5), "num_topics is 4.5: it must be a whole number"),
    "many words": (with_sizes(vocab_size=10**9), "has 20 words, not 1000000000"),
    "an escape": (lambda f: edit(f, state="\x1b[31m"), r"its file \\x1b\[31m is missing"),
    "outside": (lambda f: edit(f, state="../state-1.safetensors"), "lies outside"),
    "cut state": (cut_state, "cannot be read"),
    "wrong shape": (wrong_shape, r"gamma of the guide is \(20, 3\) .* and \(20, 4\)"),
    "missing tensor": (missing_tensor, r"\.free of the guide is absent in the file"),
    "dtype": (lambda f: edit(f, dtype="int8"), "dtype is 'int8': it must be one of float32, float64"),
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


RESUME_DAMAGES = {
    **{name: DAMAGES[name] for name in ("no state", "no vocabulary", "swapped vocabulary", "zeroed bytes")},
    **{name: DAMAGES[name] for name in ("gamma NaN", "gamma negative", "a million topics")},
    "Adam's state of another shape": (
        with_tensor("optimizer0.0.exp_avg", lambda x: x.flatten()[:1]),
        r"exp_avg of parameter 0 has shape \(1,\) and not that of the parameter",
    ),
    "random state of another shape": (with_tensor("torch_state", lambda x: x[:8]), "no good checkpoint"),
    "no numpy state": (lambda f: edit(f, numpy_state={"bit_generator": "PCG64"}), "no good checkpoint"),
    "numpy state too large": (
        lambda f: edit(f, numpy_state={"bit_generator": "PCG64", "state": {"state": 10**99, "inc": 1}, "has_uint32": 0,
                                       "uinteger": 0}),
        "no good checkpoint",
    ),
    "no optimizers": (lambda f: edit(f, optimizers=[]), "no good checkpoint"),
    "steps that are true": (with_tensor("optimizer0.0.step", lambda x: x.bool()), "step of parameter 0 is not"),
    "memory of another type": (with_tensor("memory.*.share", lambda x: x.bool()), "arrays that do not fit together"),
    "memory beyond its end": (with_tensor("memory.*.begin", lambda x: x * 0 + 2**63 - 1), "numbers out of range"),
    "gradient steps without end": (with_trainer(gradient_steps=10**30), "gradient_steps is 10+: it must be a whole"),
}  # fmt: skip


@pytest.mark.parametrize("damage", RESUME_DAMAGES)
def test_a_damaged_run_is_not_resumed(folder, damage):
    spoil, message = RESUME_DAMAGES[damage]
    spoil(folder)
    with pytest.raises(ValueError, match=message) as error:
        resume(folder, counts(), WORDS)
    assert "\n" not in str(error.value)


def test_a_run_of_a_million_million_documents_is_read_in_little_memory(folder):
    edit(folder, sizes=json.loads((folder / "run.json").read_text())["sizes"] | {"num_documents": 10**12})
    tracemalloc.start()
    try:
        assert load_run(folder).model.num_documents == 10**12
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_a_run_without_checksums_is_of_an_earlier_version(folder):
    record = json.loads((folder / "run.json").read_text())
    del record["checksums"]
    (folder / "run.json").write_text(json.dumps(record))
    assert len(load_run(folder).history) == 2


def other_process(code, folder):
    """Another Python process that runs the code with `folder`, and says when it is ready."""
    begin = (
        f"import pathlib, sys\nfrom pyro_prme.runs.locks import one_writer\nfolder = pathlib.Path({str(folder)!r})\n"
    )
    command = [sys.executable, "-c", begin + textwrap.dedent(code)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


HOLD = """
with one_writer(folder):
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_one_process_writes_a_folder_and_the_second_gets_a_sentence(folder):
    trainer, chosen = resume(folder, counts(), WORDS)
    trainer.fit(1)
    with other_process(HOLD, folder) as process:
        try:
            message = rf"run is being written by process {process.pid}: wait for its end, or choose another folder"
            for write in (lambda: save_run(folder, trainer, chosen, WORDS), lambda: one_writer(folder).__enter__()):
                with pytest.raises(ValueError, match=message):
                    write()
            assert len(load_run(folder).history) == 2  # reading is free
            process.communicate("end\n", timeout=60)
        finally:
            process.kill()
    save_run(folder, trainer, chosen, WORDS)
    assert len(load_run(folder).history) == 3
    assert not (folder / LOCK).exists()


def test_the_lock_of_a_dead_process_is_taken_over(folder):
    with other_process(HOLD, folder) as process:
        process.kill()
    assert (folder / LOCK).read_text() == f"{process.pid}\n"
    with one_writer(folder), one_writer(folder / "."):  # a process may enter again
        assert (folder / LOCK).read_text() == f"{os.getpid()}\n"
    assert not (folder / LOCK).exists()


def test_a_folder_made_for_nothing_goes_again(tmp_path):
    with pytest.raises(KeyError), one_writer(tmp_path / "new"):
        raise KeyError
    assert not (tmp_path / "new").exists()
    with one_writer(tmp_path / "new"), one_writer(tmp_path / "new"):
        (tmp_path / "new" / "mine").write_text("x")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["mine"]


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
