"""The command with several workers: the same folder, and no run lost when one of them dies."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pyro_prme as prme
from pyro_prme.cli.together import restarted, under_torchrun, without_option
from tests.robustness import worker_kills
from tests.robustness.worker_kills import workers_of

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and sends signals to a group of processes")


def started(folder: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "pyro_prme.cli", "fit", "corpus.npz", "--topics", "5", "--batch-size", "30"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, "--out", "run", "--workers", "2", *more],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def waited(folder: Path, process: subprocess.Popen) -> None:
    """Until there is a checkpoint."""
    for _ in range(600):
        if (folder / "run" / "run.json").exists():
            return
        assert process.poll() is None, process.communicate()[1][-2000:]
        time.sleep(0.2)
    raise AssertionError("no checkpoint in two minutes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prme.save_corpus(prme.load_corpus("kjv")[:120].restrict(min_df=5), tmp_path / "corpus.npz")
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_is_killed_is_replaced_and_the_run_goes_on(folder: Path) -> None:
    process = started(folder, "--epochs", "60")
    waited(folder, process)
    victims = workers_of(process.pid)
    assert len(victims) == 2
    os.kill(max(victims), signal.SIGKILL)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    assert len(re.findall("60 epochs, log probability", out)) == 1  # one worker speaks
    saved = prme.load_run(folder / "run")
    assert [record["epoch"] for record in saved.history] == list(range(1, 61))
    assert np.isfinite([record["bound"] for record in saved.history]).all()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ctrl_c_ends_all_workers_and_keeps_the_checkpoint(folder: Path) -> None:
    process = started(folder, "--epochs", "100000")
    waited(folder, process)
    workers = workers_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert not any(Path(f"/proc/{number}").exists() for number in workers)
    before = len(prme.load_run(folder / "run").history)
    again = started(folder, "--epochs", str(before + 2), "--resume")
    out, err = again.communicate(timeout=240)
    assert again.returncode == 0, err[-3000:]
    assert len(prme.load_run(folder / "run").history) == before + 2
    assert "epochs, log probability" in out


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_worker_that_hangs_is_noticed_and_all_start_again(folder: Path) -> None:
    process = started(folder, "--epochs", "40", "--patience", "0.1")
    waited(folder, process)
    os.kill(workers_of(process.pid)[-1], signal.SIGSTOP)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    assert re.search("worker 0: No word from the other workers for 0.1 minutes: all start again", err)
    assert len(prme.load_run(folder / "run").history) == 40


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_all_workers_refuse_is_said_once_and_not_tried_again(folder: Path) -> None:
    process = started(folder, "--topics", "500")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.count("error:") == 1, err
    assert "ask for at most 120 topics" in err
    assert not (folder / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("corpus$RANK.npz --topics 5", "Worker 1 has another corpus than worker 0"),
        ("corpus0.npz --topics $((5 + RANK))", "Worker 1 has another settings than worker 0"),
        ("corpus$((2 * RANK)).npz --topics 5", "corpus2.npz"),
    ],
)
def test_a_worker_that_sees_something_else_ends_all_with_a_sentence(folder: Path, what: str, message: str) -> None:
    whole = prme.load_corpus(folder / "corpus.npz")
    prme.save_corpus(whole, folder / "corpus0.npz")
    prme.save_corpus(whole[:100], folder / "corpus1.npz")
    script = f"exec {sys.executable} -m pyro_prme.cli fit {what} --out run"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    done = subprocess.run(
        [sys.executable, *launcher, "sh", "-c", script], cwd=folder, capture_output=True, text=True, timeout=200,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1, done.stderr
    assert f"error: {message}" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_documents_are_asked_by_several_workers_as_by_one(folder: Path) -> None:
    one = started(folder, "--epochs", "3")
    _, err = one.communicate(timeout=200)
    assert one.returncode == 0, err[-2000:]
    prme.save_corpus(prme.load_corpus("kjv")[200:261], folder / "new.npz")

    def asked(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pyro_prme.cli", *words], cwd=folder, capture_output=True, text=True, timeout=150,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    for more in ([], ["--json"]):
        for number in ("1", "2"):
            asked("transform", "run", "new.npz", "--output", f"{number}.txt", "--workers", number, *more)
        assert asked("transform", "run", "new.npz", *more) == (folder / "1.txt").read_text()
        one, two = (re.split(r"[\s,\[\]{}:]+", (folder / f"{number}.txt").read_text()) for number in "12")
        assert len(one) == len(two) > 61 * 5
        for a, b in zip(
            one, two, strict=True
        ):  # to rounding: a batch has other rows, which decides how sums are formed
            assert a == b or float(a) == pytest.approx(float(b), rel=1e-4)
    scores = [json.loads(asked("evaluate", "run", "new.npz", "--json", "--workers", number)) for number in ("1", "2")]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)  # in single precision


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_at_random_moments_lose_nothing_and_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of those that `python -m tests.robustness.worker_kills` makes."""
    monkeypatch.setattr(worker_kills, "EPOCHS", 150)
    reference = worker_kills.started(folder, "reference")
    _, err = reference.communicate(timeout=200)
    assert reference.returncode == 0, err[-2000:]
    found = worker_kills.trial(folder, 0, seed=0, kills=3)
    assert found["outcome"] == "ended", found
    assert len(found["kills"]) >= 1
    assert worker_kills.compared(folder, found, worker_kills.fitted(folder / "reference"))["same"], found


def test_the_number_of_workers_is_no_argument_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_option(["fit", "a", "--workers", "2", "--out", "b"], "--workers") == ["fit", "a", "--out", "b"]
    assert without_option(["fit", "a", "--workers=2"], "--workers") == ["fit", "a"]
    assert not under_torchrun()
    assert not restarted()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert under_torchrun()
    assert restarted()
