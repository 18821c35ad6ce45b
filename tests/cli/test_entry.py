"""What the command shows without importing what its commands need."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pyro_prme.cli import entry
from pyro_prme.cli.command import app


def test_the_overview_is_that_of_the_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["prme", "--help"])
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code in (0, None)
    shown = capsys.readouterr().out
    assert shown == CliRunner().invoke(app, ["--help"], prog_name="prme").output
    assert all(name in shown for name in entry.SUMMARIES)


def test_everything_else_is_the_command_itself(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["prme", "info", "kjv", "--json"])
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code in (0, None)
    assert '"documents": 1189' in capsys.readouterr().out


def test_the_overview_needs_no_torch():
    code = (
        "import sys\nfrom pyro_prme.cli.entry import main\nsys.argv = ['prme', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    print('pyro_prme.cli.command' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("False")


def test_a_name_of_the_root_is_imported_when_it_is_asked_for():
    code = (
        "import sys\nimport pyro_prme as prme\nbefore = 'torch' in sys.modules\n"
        "every = [getattr(prme, name) for name in prme.__all__]\nprint(before, 'torch' in sys.modules, len(every) > 30)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
