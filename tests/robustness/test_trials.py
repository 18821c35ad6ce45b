"""A few trials of every kind (`make soak` makes them by the thousand), and trials of the trials."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyro_prme.corpora.readers import load_corpus
from pyro_prme.runs.run_folder import load_run
from tests.robustness import bad_disks, fuzzing, hostile_files, kill_trials, shared_folder, stream, threaded_calls, toys
from tests.robustness.trials import block, isolated, sentence_fault, spoken


def faults(outcomes):
    return [outcome for outcome in outcomes if outcome.fault]


@pytest.fixture(autouse=True)
def _single(float32):
    """Runs are in float32, as the command makes them."""


@pytest.mark.parametrize("first", [0, 60, 5000])
def test_damaged_files_are_read_or_refused(tmp_path, first):
    assert not faults(block("fuzzing", 1, first, 60, tmp_path))


@pytest.mark.parametrize(
    ("number", "refused"),
    [
        (656, "betas"),  # each of these once broke `resume`, in a run of seed 0
        (725, "a moment that is missing"),
        (747, "moments of one number"),
        (1277, "a group without weight decay"),
        (1827, "capturable"),
        (4981, "a scalar moment"),
        (5045, "steps below zero"),
        (1556, "a split with nothing held out"),
    ],
)
def test_what_broke_before(tmp_path, number, refused):
    assert not fuzzing.trial(0, number, tmp_path).fault, refused


@pytest.mark.parametrize(
    "name",
    [
        "two thousand million tokens in a line",
        "many lines of many tokens",
        "gzip that unpacks to gigabytes",
        "npz with a header that claims much",
        "a pipe",
        "a run of a million topics",
        "a run of deep networks",
        "a run with a lying header",
        "a run with deep brackets",
        "a run with a number of a million digits",
    ],
)
def test_small_files_that_ask_for_much(tmp_path, name):
    make, use = hostile_files.FILES[name]
    path = make(fuzzing.generator(0, 0), tmp_path / "hostile")
    begin = time.monotonic()
    outcome = spoken(lambda: use(path), name)
    assert not outcome.fault
    assert time.monotonic() - begin < 30


@pytest.mark.slow
def test_every_hostile_file_in_a_process_of_its_own(tmp_path):
    assert not faults(hostile_files.trial(0, number, tmp_path) for number in range(len(hostile_files.FILES)))


@pytest.mark.slow
@pytest.mark.parametrize("module", [kill_trials, bad_disks, shared_folder])
def test_processes_that_die_meet_or_may_not_write(tmp_path, module):
    assert not faults(module.trial(0, number, tmp_path) for number in range(6))


def test_four_threads_give_the_numbers_of_one(tmp_path):
    assert not faults(threaded_calls.trial(0, number, tmp_path) for number in range(3))


@pytest.mark.slow
def test_a_stream_needs_no_more_memory_later(tmp_path):
    assert not stream.trial(0, 0, tmp_path, 5.0).fault


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_texts_as_lines_and_as_files_are_the_same_corpus(tmp_path_factory, texts):
    """A text without line ends, letters of any alphabet, read from a line or from a file of its own."""
    folder = tmp_path_factory.mktemp("texts")
    plain = ["".join(c for c in text if c.isprintable() or c == " ") for text in texts]
    content = "\n".join(plain).encode("utf-8", "replace")
    (folder / "all.txt").write_bytes(content + b"\n")
    (folder / "each").mkdir()
    lines = [line for line in content.split(b"\n") if line.strip()]
    for n, line in enumerate(lines):
        (folder / "each" / f"{n}.txt").write_bytes(line)
    outcome = spoken(lambda: load_corpus(folder / "all.txt"), "lines", folder)
    assert not outcome.fault
    if outcome.what == "lines: accepted":
        one, other = load_corpus(folder / "all.txt"), load_corpus(folder / "each")
        assert one.vocabulary == other.vocabulary
        assert (one.counts.toarray() == other.counts.toarray()).all()


# The trials themselves: each must be able to fail.


def test_a_refusal_must_be_one_printable_line_with_the_path():
    assert not sentence_fault(ValueError("c.txt is empty: give words."), "c.txt")
    assert sentence_fault(TypeError("no"))
    assert sentence_fault(ValueError("two\nlines"))
    assert sentence_fault(ValueError("\x1b[31m"))
    assert sentence_fault(ValueError("something"), "c.txt")


def die():
    os.abort()


def sleep():
    time.sleep(60)


def raise_another():
    raise RuntimeError


def hold(mebibytes):
    return len(bytearray(mebibytes << 20))


def test_processes_that_die_hang_raise_or_hold_much_are_seen():
    assert isolated(die).code == -6
    assert isolated(sleep, seconds=0.2).code is None
    assert not isolated(raise_another).clean
    assert isolated(hold, 300).mib > 250


def test_a_refusal_without_the_file_s_name_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("pyro_prme.corpora.readers._located", lambda path, build: build())
    assert faults(block("fuzzing", 1, 0, 60, tmp_path))


def test_a_checkpoint_written_in_place_is_noticed(tmp_path, monkeypatch):
    """The order of the writes is what the kills try: `run.json` before its tensors is a lost run."""
    files = toys.run_files(tmp_path)
    (tmp_path / "half").mkdir()
    for name, content in files.items():
        if not name.endswith(".safetensors"):
            (tmp_path / "half" / name).write_bytes(content)
    assert "is missing" in isolated(toys.learned, tmp_path / "half").error


def test_the_report_is_read_back(tmp_path, monkeypatch, capsys):
    from tests.robustness import __main__ as runner

    report = tmp_path / "soak.json"
    monkeypatch.setattr("sys.argv", ["soak", "--only", "bad_disks", "--first", "2", "--report", str(report)])
    assert runner.main() == 0
    assert json.loads(report.read_text())["faults"] == []
    monkeypatch.setattr(bad_disks, "trial", lambda *_: 1 / 0)
    assert runner.main() == 1
    assert json.loads(report.read_text())["faults"][0]["number"] == 2
    assert "1 faults" in capsys.readouterr().out


def test_the_toy_run_is_loaded(tmp_path):
    for name, content in toys.run_files(tmp_path).items():
        (Path(tmp_path) / name).write_bytes(content)
    assert len(load_run(tmp_path).history) == 2
