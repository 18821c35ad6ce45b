"""The command: what it prints and writes, one-line errors, and interruptions of real processes."""

import csv
import errno
import gzip
import inspect
import io
import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pyro_prme
from pyro_prme import Corpus, PRMETopicModel, Trainer, build, save_corpus
from pyro_prme.cli.command import app
from pyro_prme.cli.show import as_csv, held_out_score
from pyro_prme.inference import large
from pyro_prme.inference.build import PRESETS
from pyro_prme.inference.trainer import TrainOptions
from pyro_prme.runs import fitting
from pyro_prme.runs.fitting import EVERY
from pyro_prme.runs.locks import LOCK
from pyro_prme.runs.run_files import read_record, read_tensors
from pyro_prme.runs.run_folder import load_run, make_trainer, resume, save_run, settings_of
from pyro_prme.runs.stopping import Stopped, stop_signals

COMMANDS = ("fit", "topics", "transform", "evaluate", "info", "explore", "plot", "demo")


def small_corpus(num_documents=40, seed=0):
    """Documents about two of four groups of eight words."""
    rng = np.random.default_rng(seed)
    groups = np.kron(np.eye(4), np.ones(8)) + 0.01
    rows = [
        rng.multinomial(30, groups[rng.choice(4, 2, replace=False)].sum(0) / (2 * groups[0].sum()))
        for _ in range(num_documents)
    ]
    return Corpus(np.stack(rows), tuple(f"w{d}" for d in range(32)))


def prme(*args, code=0):
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="prme")
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def files(tmp_path):
    """train.ldac, test.ldac and vocab.txt."""
    for name, seed in (("train", 0), ("test", 1)):
        save_corpus(small_corpus(seed=seed), tmp_path / f"{name}.ldac")
    (tmp_path / "train.vocab.txt").rename(tmp_path / "vocab.txt")
    (tmp_path / "test.vocab.txt").unlink()
    return tmp_path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with train.npz, test.npz and run/."""
    folder = tmp_path_factory.mktemp("fitted")
    for name, seed in (("train", 0), ("test", 1)):
        save_corpus(small_corpus(seed=seed), folder / f"{name}.npz")
    prme("fit", folder / "train.npz", "--topics", 5, "--epochs", 3, "--out", folder / "run", "--batch-size", 20)
    return folder


def error_of(*args, code=1):
    """The one line that a wrong call prints."""
    result = prme(*args, code=code)
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert not result.stdout
    return lines[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_a_command_does(command):
    result = prme(command, "--help")
    assert "Usage: " in result.stdout
    assert command in prme("--help").stdout


def test_fit_from_counts_and_a_vocabulary(files):
    out = files / "run"
    words = ["--vocab", files / "vocab.txt", "--held-out", files / "test.ldac"]
    result = prme("fit", files / "train.ldac", *words, "--topics", 5, "--epochs", 3, "--out", out, "--batch-size", 20)
    assert "3 epochs, log probability of each word given the others -" in result.stdout
    assert "held-out perplexity" in result.stdout
    assert not result.stderr  # no terminal, no bar
    history = read_record(out)["history"]
    assert [record["epoch"] for record in history] == [1, 2, 3]
    assert all(1 < record["perplexity"] < 100 and 1 <= record["topics_in_use"] <= 5 for record in history)
    scores = json.loads(prme("evaluate", out, files / "test.ldac", "--json").stdout)
    assert scores["documents"] == 40
    assert 1 < scores["perplexity_0.9"] < 32
    assert 1 < scores["perplexity_0.1"] < 40
    assert -1 <= scores["npmi"] <= 1
    assert 0 < scores["diversity"] <= 1


def test_held_out_fraction_and_words_to_drop(files):
    (files / "stop.txt").write_text("w0\nw1\n")
    out = files / "run"
    prme("fit", files / "train.ldac", "--topics", 3, "--epochs", 1, "--out", out, "--held-out", 0.25, "--min-df", 2,
         "--max-df", 0.99, "--stop-words", files / "stop.txt", "--model", "hdp", "--mode", "online")  # fmt: skip
    record = read_record(out)
    assert record["sizes"]["num_documents"] == 30
    assert "w0" not in (out / "vocabulary.txt").read_text().split()
    assert "perplexity" in record["history"][0]
    prme("fit", files / "train.ldac", "--out", out, "--resume", "--epochs", 2)
    assert len(read_record(out)["history"]) == 2
    (files / "vocab.txt").unlink()
    assert "give --vocab" in error_of("evaluate", out, files / "test.ldac")


def test_topics_in_three_formats(fitted):
    text = prme("topics", fitted / "run").stdout
    assert text.startswith("topic  share  words")
    rows = json.loads(prme("topics", fitted / "run", "--json", "--words", 4, "--by", "lift").stdout)
    assert all(len(row["words"]) == 4 for row in rows)
    assert sum(row["share"] for row in rows) > 0.98
    shares = [row["share"] for row in rows]
    assert shares == sorted(shares, reverse=True)
    summary = pyro_prme.load_run(fitted / "run").summary
    parts = ("topic_correlations", "topic_correlations_lower", "topic_correlations_upper")
    found, lower, upper = (summary[name] for name in parts)
    numbers = [row["topic"] for row in rows]
    for row in rows:
        k = row["topic"]
        holds = [j for j in numbers if j != k and (lower[k, j] > 0 or upper[k, j] < 0)]
        strongest = sorted(holds, key=lambda j: -abs(found[k, j]))[:3]
        assert [c["topic"] for c in row["correlations"]] == strongest
    table = list(csv.DictReader(io.StringIO(prme("topics", fitted / "run", "--csv", "--by", "frex").stdout)))
    assert [int(row["topic"]) for row in table] == [row["topic"] for row in rows]


def test_transform_gives_rows_that_sum_to_one(fitted, tmp_path):
    prme("transform", fitted / "run", fitted / "test.npz", "-o", tmp_path / "out.csv")
    with open(tmp_path / "out.csv") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["document", *(f"topic_{k}" for k in range(5))]
    assert len(rows) == 41
    np.testing.assert_allclose(np.array([row[1:] for row in rows[1:]], dtype=float).sum(1), 1, atol=1e-5)
    printed = json.loads(prme("transform", fitted / "run", fitted / "test.npz", "--json").stdout)
    np.testing.assert_allclose(printed[0]["proportions"], np.array(rows[1][1:], dtype=float), rtol=1e-4)


def test_documents_without_known_words_get_the_prior_and_a_warning(fitted, tmp_path):
    save_corpus(Corpus(np.array([[1, 0], [0, 2], [0, 1]]), ("w3", "other")), tmp_path / "new.npz")
    result = prme("transform", fitted / "run", tmp_path / "new.npz", "--json")
    assert "warning: 2 of 3 documents have no known word" in result.stderr
    assert "note: 3 of 4 tokens" in result.stderr
    rows = json.loads(result.stdout)
    assert rows[1]["proportions"] == rows[2]["proportions"] != rows[0]["proportions"]
    save_corpus(Corpus(np.array([[1, 2]]), ("no", "other")), tmp_path / "none.npz")
    assert "no word in common" in error_of("transform", fitted / "run", tmp_path / "none.npz")


def test_info_of_a_corpus_and_of_a_run(fitted):
    assert json.loads(prme("info", fitted / "train.npz", "--json").stdout)["tokens"] == 1200
    assert "documents          40" in prme("info", fitted / "train.npz").stdout
    table = json.loads(prme("info", fitted / "run", "--json").stdout)
    assert (table["epochs"], table["build.num_topics"], table["trainer.batch_size"]) == (3, 5, 20)
    assert prme("info", fitted / "run", "--csv").stdout.count("\n") == 2


def test_a_run_with_more_epochs_goes_on_to_the_numbers_of_an_uninterrupted_one(files):
    common = ["fit", files / "train.ldac", "--batch-size", 20]
    prme(*common, "--topics", 4, "--epochs", 4, "--out", files / "whole")
    prme(*common, "--topics", 4, "--epochs", 2, "--out", files / "parts")
    assert "not 9: leave the option out" in error_of(*common, "--topics", 9, "--out", files / "parts", "--resume")
    prme(*common, "--out", files / "parts", "--epochs", 4, "--resume")
    same_numbers(files / "whole", files / "parts")


def same_numbers(one, other):
    """Two runs have the same history and tensors, bit by bit."""
    records = [read_record(folder) for folder in (one, other)]
    assert records[0]["history"] == records[1]["history"]
    tensors = [read_tensors(folder, record) for folder, record in zip((one, other), records, strict=True)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all((tensors[0][name] == tensors[1][name]).all() for name in tensors[0])


# Wrong input: one line and a code that is not zero.

CORPORA = {
    "missing.ldac": (None, "missing.ldac"),
    "empty.ldac": (b"", "is empty"),
    "short.ldac": (b"3 0:1 1:1\n", "line 1"),
    "letters.ldac": (b"2 0:1 x:1\n", "line 1"),
    "negative.ldac": (b"1 0:-1\n", "line 1"),
    "half.ldac": (b"1 0:0.5\n", "line 1"),
    "nogzip.ldac.gz": (b"1 0:1\n", "gzip"),
    "cut.ldac.gz": (gzip.compress(b"1 0:1\n" * 1000)[:-10], "cut short"),
    "all_empty.ldac": (b"0\n0\n0\n", "no tokens"),
    "cut.mtx": (b"%%MatrixMarket matrix coordinate integer general\n3 3 5\n1 1 2\n", "cut.mtx"),
    "cut.npz": (b"PK\x03\x04oops", "npz"),
    "docword.zero.txt": (b"0\n5\n0\n", "docword.zero.txt"),
    "unknown.xyz": (b"1 0:1\n", "format"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_bad_corpus_gets_one_line(tmp_path, name):
    content, message = CORPORA[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert message in error_of("fit", tmp_path / name, "--out", tmp_path / "run")
    assert message in error_of("info", tmp_path / name)
    assert not (tmp_path / "run").exists()


def test_bad_settings_get_one_line(files):
    train, out = files / "train.ldac", files / "run"
    (files / "few.txt").write_text("a\nb\n")
    assert "few.txt" in error_of("fit", train, "--vocab", files / "none/few.txt", "--out", out)
    assert "2 words" in error_of("fit", train, "--vocab", files / "few.txt", "--out", out)
    assert "33 topics and 32 distinct words" in error_of("fit", train, "--topics", 33, "--out", out)
    assert "41 topics and 40 documents" in error_of("fit", train, "--topics", 41, "--out", out)
    assert "model is 'lda'" in error_of("fit", train, "--model", "lda", "--topics", 3, "--out", out)
    assert "--held-out is nan: it must be" in error_of("fit", train, "--held-out", "nan", "--out", out)
    assert "preset is 'x'" in error_of("fit", train, "--preset", "x", "--out", out)
    assert "mode is 'fast'" in error_of("fit", train, "--mode", "fast", "--topics", 3, "--out", out)
    assert "gamma0 is -1.0" in error_of("fit", train, "--gamma0", -1, "--topics", 3, "--out", out)
    assert "--min-df is 'few'" in error_of("fit", train, "--min-df", "few", "--topics", 3, "--out", out)
    assert "--held-out is" in error_of("fit", train, "--held-out", 1.5, "--topics", 3, "--out", out)
    assert "is no run" in error_of("fit", train, "--out", out, "--resume")
    assert not out.exists()


def test_stop_words_on_top_are_pointed_out_with_the_option(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"the cat and the dog with number {'x' * (n + 1)}\n" for n in range(12)))
    options = ["--topics", 2, "--epochs", 1]
    note = "note: the, and, with are among the most frequent words: --stop-words english drops words like them"
    assert note in " ".join(prme("fit", texts, "--out", tmp_path / "one", *options).stderr.split())
    assert "note:" not in prme("fit", texts, "--out", tmp_path / "two", *options, "--stop-words", "english").stderr


def test_many_topics_by_default_for_few_documents_are_pointed_out(tmp_path):
    texts = tmp_path / "texts.txt"
    letters = [chr(97 + n // 26) + chr(97 + n % 26) for n in range(120)]
    texts.write_text("".join(f"cat dog fish number{pair}\n" for pair in letters))
    note = "note: 120 documents are few for 100 topics: --topics 12 is easier to read"
    assert note in " ".join(prme("fit", texts, "--out", tmp_path / "one", "--epochs", 1).stderr.split())
    assert "few for" not in prme("fit", texts, "--out", tmp_path / "two", "--epochs", 1, "--topics", 60).stderr


def test_a_path_with_nothing_there_is_said_first(files, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("a corpus was read")

    train, out, none = files / "train.ldac", files / "run", files / "none.xyz"
    assert f"{none} cannot be read (No such file or directory): check the path" in error_of("info", none)
    for command in (["topics", none], ["transform", none, train], ["evaluate", none, train]):
        assert "is no run: there is no such folder." in error_of(*command)
    monkeypatch.setattr("pyro_prme.cli.fit_command.load_corpus", never)
    for options in (["--vocab", none], ["--held-out", none], ["--stop-words", none]):
        assert f"{none} cannot be read" in error_of("fit", train, "--out", out, *options)
    assert f"{none} cannot be read" in error_of("fit", none, "--out", out)
    assert "is no run" in error_of("fit", train, "--out", out, "--resume")
    out.mkdir()
    (out / "mine").write_text("x")
    assert "is not empty" in error_of("fit", train, "--out", out)


def test_scores_of_the_training_documents_are_marked(fitted):
    assert (
        "warning: the run was fitted to these documents"
        in prme("evaluate", fitted / "run", fitted / "train.npz").stderr
    )
    assert not prme("evaluate", fitted / "run", fitted / "test.npz").stderr


def test_wrong_usage_has_code_2():
    assert "CORPUS" in error_of("fit", code=2)
    assert "nope" in error_of("nope", code=2)
    assert "--speed" in error_of("info", "kjv", "--speed", "3", code=2)
    assert error_of("fit", "kjv", code=2).rstrip().endswith("(see prme fit --help)")


WRONG_OPTIONS = [
    (["--topics", "0"], "--topics is 0: it must be a whole number of at least 2."),
    (["--topics", "-3"], "--topics is -3: it must be a whole number of at least 2."),
    (["--epochs", "0"], "--epochs is 0: it must be a whole number of at least 1."),
    (["--batch-size", "0"], "--batch-size is 0: it must be a whole number of at least 1."),
    (["--seed", "-1"], "--seed is -1: it must be a whole number from 0 to 18446744073709551615."),
    (["--alpha", "inf"], "--alpha is inf: it must be a finite number above 0."),
    (["--beta", "0"], "--beta is 0.0: it must be a finite number above 0."),
    (["--gamma0", "nan"], "--gamma0 is nan: it must be a finite number above 0."),
    (["--preset", ""], "--preset is '': it must be one of default, dirichlet, predictive, paper."),
    (["--model", "lda"], "--model is 'lda': it must be one of prme, hdp, diln."),
    (["--mode", "fast"], "--mode is 'fast': it must be one of batch, online."),
    (["--min-df", "-1"], "--min-df is -1.0: it must be a whole number of documents"),
    (["--max-df", "nan"], "--max-df is nan: it must be a whole number of documents"),
    (["--min-df", "few"], "--min-df is 'few': it must be a whole number of documents"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
def test_wrong_options_are_refused_by_name_before_a_corpus_is_read(tmp_path, options, message):
    for again in ([], ["--resume"]):
        assert message in error_of("fit", "no corpus", "--out", tmp_path / "run", *again, *options)


def test_wrong_options_of_the_other_commands_are_refused_by_name():
    assert "--words is 0: it must be a whole number of at least 1." in error_of("topics", "x", "--words", 0)
    assert "--correlations is -1: it must be" in error_of("topics", "x", "--correlations", -1)
    assert "--seed is -1: it must be a whole number of at least 0." in error_of("evaluate", "x", "kjv", "--seed", -1)
    for share in (0, 1, 2, "nan"):
        assert "it must be a finite number above 0 and below 1." in error_of("evaluate", "x", "y", "--observed", share)


def test_bad_runs_get_one_line(fitted, files):
    run = fitted / "run"
    for command in (["topics"], ["evaluate"], ["transform"]):
        rest = [] if command == ["topics"] else [fitted / "test.npz"]
        assert "is no run" in error_of(*command, files / "nothing", *rest)
    assert "holds a run already" in error_of("fit", fitted / "train.npz", "--topics", 5, "--out", run)
    assert "another corpus" in error_of("fit", fitted / "test.npz", "--out", run, "--resume")
    assert "by is 'size'" in error_of("topics", run, "--by", "size")
    assert "observed is 2" in error_of("evaluate", run, fitted / "test.npz", "--observed", 2)
    for file in run.iterdir():
        (files / "copy").mkdir(exist_ok=True)
        (files / "copy" / file.name).write_bytes(file.read_bytes())
    record = json.loads((run / "run.json").read_text())
    (files / "copy" / "run.json").write_text(json.dumps(record | {"format": 99}))
    assert "is in format 99" in error_of("topics", files / "copy")
    assert "is in format 99" in error_of("info", files / "copy")


def test_a_full_disk_keeps_the_checkpoint(files, monkeypatch):
    common = ["fit", files / "train.ldac", "--out", files / "run"]
    prme(*common, "--topics", 4, "--epochs", 2)
    before = read_record(files / "run")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in error_of(*common, "--epochs", 4, "--resume")
    monkeypatch.undo()
    assert read_record(files / "run") == before
    prme(*common, "--epochs", 4, "--resume")


def test_a_fault_inside_is_one_line_too(monkeypatch):
    def fault(*args, **kwargs):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("pyro_prme.cli.command.load_corpus", fault)
    assert error_of("info", "kjv") == "error: RuntimeError: first line second line"
    monkeypatch.setenv("PRME_TRACEBACK", "1")
    assert "Traceback" in prme("info", "kjv", code=1).stderr


def test_an_interruption_within_the_first_epoch(files, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("pyro_prme.cli.fit_command.fit_in_folder", interrupt)
    result = prme("fit", files / "train.ldac", "--topics", 3, "--out", files / "run", code=130)
    assert result.stderr == "interrupted; no checkpoint was written yet: nothing is kept\n"


def test_nothing_global_stays_changed(fitted):
    import torch

    before = torch.get_default_dtype(), torch.get_rng_state()
    prme("topics", fitted / "run")
    assert torch.get_default_dtype() == before[0] == torch.float64
    assert torch.equal(torch.get_rng_state(), before[1])


# What foreign files do to a terminal, a spreadsheet or a device.


def test_escapes_of_foreign_files_do_not_reach_the_terminal(fitted, tmp_path):
    escape, c1 = "\x1b]0;title\x07\x1b[2J", "\x9b2J"
    for name in (f"no{escape}.ldac", f"no{c1}.ldac", f"bad{escape}.xyz", "half\udcff.ldac"):
        line = error_of("info", tmp_path / name)
        assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", line)
        assert "ldac" in line or "xyz" in line
    assert r"no\x1b]0;title\x07\x1b[2J.ldac" in error_of("info", tmp_path / f"no{escape}.ldac")
    run = tmp_path / "run"
    run.mkdir()
    for file in (fitted / "run").iterdir():
        (run / file.name).write_bytes(file.read_bytes())
    record = json.loads((run / "run.json").read_text())
    record["pyro_prme"] = f"{escape}\n{c1}"
    record["settings"]["fit"] |= {f"x{escape}": f"y{c1}", "held_out": f"z{escape}\nbuild.alpha  7"}
    (run / "run.json").write_text(json.dumps(record))
    for options in ([], ["--json"], ["--csv"]):
        text = prme("info", run, *options).stdout
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
    assert json.loads(prme("info", run, "--json").stdout)["pyro_prme"] == f"{escape}\n{c1}"
    assert "\nbuild.alpha  7" not in prme("info", run).stdout
    (run / "run.json").write_text(json.dumps(record | {"format": escape}))
    assert "\x1b" not in error_of("topics", run)


def csv_text(cell):
    """The text of a cell as it was before `csv_cell`."""
    return cell.removeprefix("'")


RISKY = (
    "=1+2",
    "+cmd|x",
    "-x",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "'quoted",
    "''twice",
    '="a,b"',
    "plain",
    "-",
    "",
    "-5",
    "1e3",
)


def test_cells_of_text_are_no_formulas_and_round_trip():
    text = as_csv(["=header"], [[cell, 1.5, -2] for cell in RISKY])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["'=header"]
    for cell, row in zip(RISKY, rows[1:], strict=True):
        assert row[0][:1] not in tuple("=+-@\t\r") or row[0] == "-5"  # a number is no formula
        assert csv_text(row[0]) == cell
        assert row[1:] == ["1.5", "-2"]


def test_words_and_names_that_look_like_formulas_are_quoted(tmp_path):
    corpus = small_corpus()
    words = ("=HYPERLINK(1)", "@x", *corpus.vocabulary[2:])
    named = Corpus(corpus.counts, words, tuple(f"=doc{n}" for n in range(len(corpus))))
    save_corpus(named, tmp_path / "c.npz")
    prme("fit", tmp_path / "c.npz", "--topics", 3, "--epochs", 1, "--out", tmp_path / "run")
    prme("transform", tmp_path / "run", tmp_path / "c.npz", "-o", tmp_path / "out.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "out.csv").read_text())))[1:]
    assert [row[0] for row in rows] == [f"'=doc{n}" for n in range(40)]
    assert [csv_text(row[0]) for row in rows] == list(named.names)
    table = list(csv.DictReader(io.StringIO(prme("topics", tmp_path / "run", "--csv", "--words", 32).stdout)))
    assert all(row["words"][0] not in "=+-@" for row in table)
    assert {word for row in table for word in csv_text(row["words"]).split()} == set(words)
    assert "=HYPERLINK" in prme("topics", tmp_path / "run", "--words", 32).stdout


def test_output_to_a_link_or_a_pipe_goes_through_it(fitted, tmp_path):
    command = ["transform", fitted / "run", fitted / "test.npz", "-o"]
    prme(*command, tmp_path / "out.csv")
    expected = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "target.csv").write_text("old")
    for target in ("folder/target.csv", "folder/new.csv"):
        (tmp_path / "link.csv").symlink_to(target)
        prme(*command, tmp_path / "link.csv")
        assert (tmp_path / "link.csv").is_symlink()
        assert (tmp_path / target).read_bytes() == expected
        (tmp_path / "link.csv").unlink()
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    prme(*command, tmp_path / "pipe")
    assert reader.communicate(timeout=60)[0] == expected
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be written (Too many levels of symbolic links)" in error_of(*command, tmp_path / "loop")
    assert "cannot be written (it is a folder)" in error_of(*command, tmp_path / "folder")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        assert "it is a disk or a socket" in error_of(*command, tmp_path / "door")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["door", "folder", "loop", "out.csv", "pipe"]


def test_output_to_a_device_leaves_the_device(fitted, tmp_path):
    command = ["transform", fitted / "run", fitted / "test.npz", "-o"]
    try:
        os.mknod(tmp_path / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(tmp_path / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        (tmp_path / "null").write_bytes(b"x")
    except OSError:
        pytest.skip("devices cannot be made here")
    prme(*command, tmp_path / "null")
    assert (tmp_path / "null").is_char_device()
    assert "No space left on device" in error_of(*command, tmp_path / "full")
    assert (tmp_path / "full").is_char_device()


def test_a_run_of_links_is_not_written_through(fitted, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for file in (fitted / "run").iterdir():
        (run / file.name).symlink_to(file)
    before = (fitted / "run" / "run.json").read_bytes()
    assert "has links in place of its files" in error_of(
        "fit", fitted / "train.npz", "--out", run, "--resume", "--epochs", 4
    )
    assert (fitted / "run" / "run.json").read_bytes() == before


# Real processes.


@pytest.fixture
def start():
    """Starts the command as a process that Ctrl-C stops, even where this one ignores it; ends what a test leaves."""
    processes = []

    def run(*args, ignored=None):
        def heed_ctrl_c():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN if number == ignored else signal.SIG_DFL)

        command = [sys.executable, "-c", "from pyro_prme.cli.command import main; main()", *map(str, args)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, **pipes, text=True, preexec_fn=heed_ctrl_c))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.wait()


def wait_for_epoch(process, folder, least):
    """Until the run on the disk has so many epochs."""
    while process.poll() is None:
        if (folder / "run.json").exists() and len(read_record(folder)["history"]) >= least:
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate())


@pytest.mark.parametrize(
    ("signum", "why", "code"),
    [
        (signal.SIGINT, "interrupted", 130),
        (signal.SIGTERM, "stopped by SIGTERM", 143),
        (signal.SIGHUP, "stopped by SIGHUP", 129),
    ],
)
def test_a_signal_keeps_the_last_checkpoint_and_says_how_to_go_on(files, start, signum, why, code):
    out = files / "run"
    process = start("fit", files / "train.ldac", "--topics", 4, "--epochs", 5000, "--out", out)
    wait_for_epoch(process, out, 2)
    process.send_signal(signum)
    printed, line = process.communicate(timeout=60)
    assert process.returncode == code
    assert not printed
    done = len(read_record(out)["history"])
    assert line == (
        f"{why}; the checkpoint of epoch {done} is kept. "
        f"Go on with: prme fit {files / 'train.ldac'} --out {out} --resume\n"
    )
    prme("fit", files / "train.ldac", "--out", out, "--resume", "--epochs", done + 1)
    prme("fit", files / "train.ldac", "--topics", 4, "--epochs", done + 1, "--out", files / "whole")
    same_numbers(files / "whole", out)


def test_a_signal_that_is_ignored_stays_ignored(files, start):
    out = files / "run"
    process = start("fit", files / "train.ldac", "--topics", 4, "--epochs", 5000, "--out", out, ignored=signal.SIGHUP)
    wait_for_epoch(process, out, 2)
    process.send_signal(signal.SIGHUP)
    wait_for_epoch(process, out, len(read_record(out)["history"]) + 2)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[1].startswith("stopped by SIGTERM; the checkpoint of epoch ")


def test_handlers_are_given_back_and_other_threads_left_alone():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(Stopped, match="SIGTERM"), stop_signals():
        signal.raise_signal(signal.SIGTERM)
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]

    def elsewhere():
        with stop_signals():
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result() == before[0]


@pytest.mark.parametrize(("writing", "share"), [(0.0, 0.0), (0.05, 0.05), (1.0, 0.1), (5.0, 0.1)])
def test_checkpoints_are_as_often_as_the_help_says(tmp_path, monkeypatch, writing, share):
    """After each epoch, unless they would take more than a tenth of the time; a last one at the end."""
    help = " ".join(prme("fit", "--help").stdout.split())
    assert "after each epoch and every five minutes within one, or less often where that would take more" in help
    assert EVERY == 300
    clock, epochs = {"now": 0.0, "writing": 0.0}, 400
    saved = []

    def save(folder, trainer, *rest):
        saved.append(len(trainer.history))
        clock["now"] += writing
        clock["writing"] += writing

    class OfOneSecond(Trainer):
        def epoch(self, between=None):
            clock["now"] += 1.0
            self.history.append({"epoch": len(self.history) + 1, "bound": 0.0})
            return self.history[-1]

    monkeypatch.setattr(fitting, "save_run", save)
    monkeypatch.setattr(fitting.time, "monotonic", lambda: clock["now"])
    corpus, settings = small_corpus(), settings_of(num_topics=3)
    trainer = OfOneSecond(build(3, 32, 40)[1], corpus)
    fitting.fit_in_folder(tmp_path, trainer, settings, corpus, epochs)
    if writing <= 0.1:
        assert saved == [*range(1, epochs + 1), epochs]
    else:
        assert saved[0] == 1
        assert saved[-1] == epochs
        assert len(saved) > 6
        assert clock["writing"] - 2 * writing <= share * clock["now"]  # the first and the last are written in any case


def test_within_a_long_epoch_checkpoints_go_by_time_and_a_fit_goes_on_from_there(tmp_path, monkeypatch):
    """Twenty steps of a minute each: one every five minutes, and the numbers of a fit that was let alone."""
    clock, saved, real = {"now": 0.0}, [], fitting.save_run

    class Killed(BaseException):
        pass

    def save(folder, trainer, *rest):
        real(folder, trainer, *rest)
        saved.append(trainer.steps)
        if len(saved) == 3:
            raise Killed

    def slow_step(trainer, rows, step=Trainer.step):
        clock["now"] += 60
        return step(trainer, rows)

    corpus, settings = small_corpus(), settings_of(num_topics=3, batch_size=2, mode="online")
    whole = make_trainer(corpus.counts, settings)
    whole.fit(2)
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "save_run", save)
        patch.setattr(fitting.time, "monotonic", lambda: clock["now"])
        patch.setattr(Trainer, "step", slow_step)
        with pytest.raises(Killed):
            fitting.fit_in_folder(tmp_path / "run", make_trainer(corpus.counts, settings), settings, corpus, 2)
    assert saved == [5, 10, 15]
    assert "within epoch 1" in prme("info", tmp_path / "run").stdout
    assert load_run(tmp_path / "run").history == []
    trainer, _ = resume(tmp_path / "run", corpus.counts, corpus.vocabulary)
    assert trainer.underway.done == 30
    fitting.fit_in_folder(tmp_path / "run", trainer, settings, corpus, 2)
    wanted = [record["bound"] for record in whole.history]
    assert [record["bound"] for record in load_run(tmp_path / "run").history] == wanted
    assert torch.equal(trainer.guide.topics.gamma, whole.guide.topics.gamma)
    early = make_trainer(corpus.counts, settings)
    with pytest.raises(ValueError, match="holds a run already"):
        save_run(tmp_path / "run", early, settings, corpus.vocabulary)


def test_a_long_online_epoch_is_scored_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "_SCORING", 0.0)
    monkeypatch.setattr(fitting, "_SAVING", 1e9)
    corpus, settings = small_corpus(), settings_of(num_topics=3, batch_size=2, mode="online")
    trainer = make_trainer(corpus.counts, settings)
    fitting.fit_in_folder(tmp_path / "run", trainer, settings, corpus, 2, corpus.split_tokens(0.5, seed=0))
    for number, record in enumerate(load_run(tmp_path / "run").history):
        scores = record["perplexity_by_rows"]
        assert [int(rows) for rows in scores] == [40 * number + 4 * tenth for tenth in range(1, 10)]
        assert all(1 < score < 100 for score in scores.values())
        assert record["perplexity"] > 1


def test_a_large_corpus_is_learned_online_unless_batch_is_asked_for(files, monkeypatch):
    assert "online above 200,000 documents" in " ".join(prme("fit", "--help").stdout.split())
    monkeypatch.setattr(fitting, "LARGE", 5)
    monkeypatch.setattr(large, "LARGE", 5)
    options = ["fit", files / "train.ldac", "--topics", 3]
    found = prme(*options, "--out", files / "online")
    assert "are learned online, in one pass: give --mode batch for batch passes" in found.stderr
    settings = load_run(files / "online").settings
    assert {name: settings["trainer"][name] for name in large.ONLINE} == large.ONLINE
    assert settings["fit"]["epochs"] == len(load_run(files / "online").history) == 1
    again = prme("fit", files / "train.ldac", "--out", files / "online", "--resume", "--epochs", 2)
    assert again.exit_code == 0, again.output
    assert len(load_run(files / "online").history) == 2
    found = prme(*options, "--out", files / "batch", "--mode", "batch", "--epochs", 1)
    assert "online" not in found.stderr
    assert load_run(files / "batch").settings["trainer"]["mode"] == "batch"
    found = prme(*options, "--out", files / "paper", "--preset", "paper")
    assert load_run(files / "paper").settings["trainer"]["decay"] == 0.75  # a preset's own


def test_two_fits_in_one_folder(files, start):
    out = files / "run"
    options = ["fit", files / "train.ldac", "--out", out]
    process = start(*options, "--topics", 4, "--epochs", 5000)
    wait_for_epoch(process, out, 2)
    assert f"is being written by process {process.pid}: wait for its end" in error_of(*options, "--resume")
    process.kill()
    process.communicate()
    done = len(read_record(out)["history"])
    prme(*options, "--resume", "--epochs", done + 1)
    assert len(read_record(out)["history"]) == done + 1
    assert not (out / LOCK).exists()


def test_a_missing_file_of_a_run_is_said_before_the_corpus_is_read(fitted, tmp_path, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("a corpus was read")

    monkeypatch.setattr("pyro_prme.cli.fit_command.load_corpus", never)
    for missing in ("vocabulary.txt", read_record(fitted / "run")["state"]):
        run = tmp_path / missing.replace(".", "-")
        run.mkdir()
        for file in (fitted / "run").iterdir():
            if file.name != missing:
                (run / file.name).write_bytes(file.read_bytes())
        assert f"its file {missing} is missing" in error_of("fit", fitted / "train.npz", "--out", run, "--resume")
        assert f"its file {missing} is missing" in error_of("topics", run)


@pytest.mark.slow
def test_kill_at_random_moments_and_resume(files, start):
    out, epochs, rng = files / "run", 400, random.Random(0)
    options = ["fit", files / "train.ldac", "--out", out]
    process = start(*options, "--topics", 4, "--epochs", epochs, "--batch-size", 10, "--held-out", 0.2)
    kills, done = 0, 0
    while kills < 12:
        wait_for_epoch(process, out, done + 1)
        time.sleep(rng.uniform(0, 0.5))
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        done = len(read_record(out)["history"])
        if done == epochs:
            break
        process = start(*options, "--resume")
    assert process.communicate(timeout=300)[1] == ""
    assert kills >= 4
    prme("fit", files / "train.ldac", "--out", files / "whole", "--topics", 4, "--epochs", epochs, "--batch-size", 10,
         "--held-out", 0.2)  # fmt: skip
    same_numbers(files / "whole", out)


@pytest.mark.slow
def test_the_demo_prints_topics_and_scores_and_draws(tmp_path):
    text = prme("demo", "--quick", "--out", tmp_path).stdout
    assert "PRME     HDP" in text
    assert len(list(tmp_path.glob("*.png"))) == 2
    assert (tmp_path / "explorer.html").stat().st_size < 1e6
    assert prme("demo", "--quick", "--out", tmp_path).stdout == text  # taken up from the folder
    assert prme("topics", tmp_path / "prme-quick").stdout


@pytest.mark.slow
def test_the_demo_is_the_fit_of_the_readme(tmp_path):
    """So that the table and the picture of the README belong to its code; sizes as `prme demo --quick` has them."""
    text = prme("demo", "--quick", "--out", tmp_path).stdout
    corpus, test = pyro_prme.load_corpus("kjv").split(0.1, seed=0)
    posterior = pyro_prme.PRMETopicModel(n_components=15, max_iter=6, random_state=0).fit(corpus).posterior_
    for share in (0.9, 0.5, 0.1):
        assert f"{share:4.0%}   {posterior.perplexity(test.split_tokens(share, seed=0)):8.1f}" in text


@pytest.mark.slow
def test_the_python_of_the_readme_runs():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    first, plain, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)  # the third is run by test_swap_example
    small = first.replace("n_components=50, max_iter=30", "n_components=8, max_iter=1")
    assert small != first
    result = subprocess.run([sys.executable, "-W", "error", "-c", small], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "own counts out" in result.stdout
    result = subprocess.run([sys.executable, "-W", "error", "-c", plain], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("closed form") == 2


def test_a_fit_says_which_epoch_scored_best_if_it_is_not_the_last():
    records = [{"epoch": n, "perplexity": p} for n, p in ((1, 12.0), (2, 10.0), (3, 11.0))]
    assert held_out_score(records) == ", held-out perplexity 11.0 (best after 2 epochs: 10.0)"
    assert held_out_score(records[:2]) == ", held-out perplexity 10.0"
    assert held_out_score([{"epoch": 1}]) == ""


def test_the_help_of_fit_shows_what_the_signatures_have():
    options = " ".join(prme("fit", "--help").stdout.split()).split(" --")[
        1:
    ]  # some texts name another: the first counts
    found = [(text.split()[0], re.search(r"\[default: \(?([^\])]+)", text)) for text in reversed(options)]
    shown = {name: match[1] for name, match in found if match}
    trainer = {name: p.default for name, p in inspect.signature(TrainOptions).parameters.items()}
    model = {name: p.default for name, p in inspect.signature(build).parameters.items()} | PRESETS["default"]
    estimator = {name: p.default for name, p in inspect.signature(PRMETopicModel).parameters.items()}
    for name in ("alpha", "beta", "gamma0", "model"):
        assert shown[name] == (model[name] if name == "model" else f"{model[name]:g}")
    for name in ("batch-size", "seed"):
        assert shown[name] == str(trainer[name.replace("-", "_")])
    assert shown["topics"] == str(estimator["n_components"])
    assert {name: str(estimator[name]) for name in ("preset", "model")}.items() <= shown.items()
    assert shown["batch-size"] == str(estimator["batch_size"])


def test_settings_without_an_option_of_their_own(tmp_path):
    save_corpus(small_corpus(), tmp_path / "train.npz")
    fit = ["fit", tmp_path / "train.npz", "--topics", 4, "--epochs", 1, "--out", tmp_path / "run"]
    given = ["--set", "form=scale", "--set", "decoder_hidden=8,6", "--set", "background=0", "--set", "decay=0.6"]
    prme(*fit, *given)
    found = load_run(tmp_path / "run")
    built = found.settings["build"]
    assert (built["form"], list(built["decoder_hidden"]), built["background"]) == ("scale", [8, 6], 0)
    assert found.settings["trainer"]["decay"] == 0.6
    assert type(found.model).__name__ == "PRME"
    assert "2 epochs" in prme(*fit[:5], 2, *fit[6:], *given, "--resume").stdout
    assert "has --form scale, not shape" in error_of(*fit, "--set", "form=shape", "--resume")
    fit[-1] = tmp_path / "none"
    for wrong, why in {
        "form": "--set form is not name=value",
        "form=round": "form is 'round': it must be one of shape, scale.",
        "seed=3": "--set seed has an option of its own: use --seed.",
        "colour=red": "There is no setting 'colour'",
        "background=1": "background is 1: it must be a finite number of at least 0 and below 1.",
    }.items():
        assert why in error_of(*fit, "--set", wrong)
    assert "--set form is there twice" in error_of(*fit, *given, "--set", "form=scale")
    assert not fit[-1].exists()
