"""The wheel, installed into a new virtual environment, runs from another directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def run(*command, cwd):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_wheel_works_in_a_new_environment(tmp_path):
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, PROJECT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    programs = tmp_path / "venv" / "bin"
    constraints = PROJECT / "constraints.txt"
    run(programs / "python", *pip, "install", "--constraint", constraints, wheel, cwd=tmp_path)
    where = run(programs / "python", "-c", "import pyro_prme; print(pyro_prme.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(tmp_path / "venv")
    text = run(programs / "prme", "demo", "--quick", cwd=tmp_path)
    assert "PRME     HDP" in text
    assert len(list((tmp_path / "prme-demo").glob("*.png"))) == 2
    (module,) = (tmp_path / "venv").glob("lib/*/site-packages/pyro_prme")
    assert (module / "py.typed").exists()
    assert (module / "data" / "kjv.npz").exists()
