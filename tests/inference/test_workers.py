"""Several workers do what one does with batches as large as theirs together."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyro_prme.inference.workers import Workers

from .together import CASES, fitted

ROOT = Path(__file__).parents[2]


def started(out: Path, number: int, batch_size: int) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    command = [sys.executable, *launcher, "-m", "tests.inference.together", str(out), str(batch_size)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    out = tmp_path_factory.mktemp("workers") / "two.pt"
    started(out, 2, 12)
    return torch.load(out, weights_only=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("kind", CASES)
def test_two_workers_end_where_one_does_with_batches_twice_as_large(kind: str, mode: str, of_two: dict) -> None:
    one, two = fitted(kind, mode, 24, Workers()), of_two[kind, mode]
    assert one["bounds"] == pytest.approx(two["bounds"], rel=1e-10)
    for part in ("state", "store"):
        assert one[part].keys() == two[part].keys()
        for name, value in one[part].items():
            other = two[part][name].clone()
            if name.endswith("head.bias") and "decoder" in name:
                value[0] = other[0] = 0  # of the mean: f is centred, so that its gradient is rounding alone
            # Adam divides by the root of squared gradients: where these are next to zero it enlarges rounding errors
            torch.testing.assert_close(other, value, rtol=1e-8, atol=1e-8, msg=name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["batch", "online"])
def test_two_workers_that_end_within_an_epoch_go_on_to_the_same_numbers(mode: str, of_two: dict) -> None:
    whole, parts = of_two["own", mode], of_two["interrupted", mode]
    assert whole["bounds"] == parts["bounds"]
    for name, value in whole["state"].items():
        assert torch.equal(value, parts["state"][name]), name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_that_differ_are_refused_and_running_moments_are_averaged(of_two: dict) -> None:
    assert of_two["agree"].startswith("Worker 1 has another corpus than worker 0 (of 1 and of 0)")
    assert of_two["running"] == [1.5, 3.5]


def test_parts_of_a_batch_are_all_of_it_and_their_shares_add_up() -> None:
    rows = np.arange(7)
    parts = [Workers(rank, 3).part(rows) for rank in range(3)]
    assert [list(mine) for mine, _ in parts] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [share for _, share in parts] == pytest.approx([3 / 7, 2 / 7, 2 / 7])
    mine, share = Workers(2, 5).part(np.array([8, 9]))
    assert (list(mine), share) == ([8], 0.0)
    other = Workers(1, 3).part(np.array([6, 5, 4, 3]))[0]
    assert list(other) == [4]  # a row is the same worker's in every batch


def test_noise_is_another_for_each_worker_and_step() -> None:
    seeds = {Workers(rank, 3).seed(0, step) for rank in range(3) for step in range(5)}
    assert len(seeds) == 15
    assert Workers(1, 3).seed(0, 2) == Workers(1, 3).seed(0, 2)
    assert Workers(1, 3).seed(0, 2) != Workers(1, 2).seed(0, 2)
