"""The command with several workers: the same folder, and no run lost when one of them dies."""

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

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and sends signals to a group of processes")


def started(folder: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "pyro_prme.cli", "fit", "corpus.npz", "--topics", "5", "--batch-size", "30"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, "--out", "run", "--workers", "2", *more],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def workers_of(launcher: int) -> list[int]:
    """Processes that torchrun has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == launcher and b"fit" in words:
            found.append(int(path.parent.name))
    return found


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


def test_the_number_of_workers_is_no_argument_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_option(["fit", "a", "--workers", "2", "--out", "b"], "--workers") == ["fit", "a", "--out", "b"]
    assert without_option(["fit", "a", "--workers=2"], "--workers") == ["fit", "a"]
    assert not under_torchrun()
    assert not restarted()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert under_torchrun()
    assert restarted()
