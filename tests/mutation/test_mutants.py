"""The script that puts faults in: its places are there, and its files can be read by Python."""

import ast
import time
from pathlib import Path

from tests.mutation.__main__ import ROOT, Mutant, begun, chosen_mutants, ended, noticing_tests, random_mutants


def test_the_places_of_the_chosen_faults_are_there():
    for mutant in chosen_mutants():
        assert mutant.content != (ROOT / mutant.path).read_text(encoding="utf-8")
        ast.parse(mutant.content)
        assert all((ROOT / place).exists() for place in noticing_tests(mutant.path))


def test_random_faults_change_one_thing_and_are_the_same_for_a_seed():
    one, other = (random_mutants(75, seed, ("equations", "inference")) for seed in (3, 3))
    assert one == other != random_mutants(75, 4, ("equations", "inference"))
    for mutant in one:
        before = ast.dump(ast.parse((ROOT / mutant.path).read_text(encoding="utf-8")))
        assert ast.dump(ast.parse(mutant.content)) != before, mutant.what


def test_a_fault_is_noticed_and_taken_out_again(tmp_path, monkeypatch):
    (tmp_path / "pyro_prme" / "equations").mkdir(parents=True)
    source, tests = tmp_path / "pyro_prme" / "equations" / "sums.py", tmp_path / "test_sums.py"
    source.write_text("one = 1\n")
    tests.write_text(
        "from pathlib import Path\n\n\ndef test_one():\n"
        "    assert 'one = 1' in Path('pyro_prme/equations/sums.py').read_text()\n"
    )
    monkeypatch.setattr("tests.mutation.__main__.TESTS", {"equations": ["test_sums.py"]})
    mutant = random_mutants(1, 0, ("equations",))[0]._replace(path="pyro_prme/equations/sums.py")
    assert _end(mutant._replace(content="one = (2)\n"), tmp_path) == "killed"
    assert _end(mutant._replace(content="one = 1  # the same\n"), tmp_path) == "survived"
    assert _end(mutant._replace(content="one = (3)\n"), tmp_path, seconds=0) == "too long"
    assert source.read_text() == "one = 1\n"


def _end(mutant: Mutant, folder: Path, seconds: float = 60) -> str:
    trial = begun("random", mutant, folder)
    while (end := ended(trial, seconds)) is None:
        time.sleep(0.01)
    return end
