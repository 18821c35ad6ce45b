"""What the command offers after a fit: the page, the pictures, and the three commands that it proposes."""

import shlex

import pytest

import pyro_prme
from pyro_prme import plots
from pyro_prme.cli.plot import PICTURES

from .test_cli import error_of, fitted, prme

__all__ = ["fitted"]  # the fixture


def test_the_version_is_that_of_the_package():
    assert prme("--version").stdout.split() == ["prme", pyro_prme.__version__]


def test_a_fit_proposes_three_commands_that_run(fitted, monkeypatch):
    out = fitted / "next run"
    printed = prme("fit", fitted / "train.npz", "--topics", 3, "--epochs", 1, "--out", out).stdout
    commands = [shlex.split(line) for line in printed.partition("Next:\n")[2].splitlines()]
    assert [command[:2] for command in commands] == [["prme", name] for name in ("topics", "explore", "plot")]
    for command in commands:
        prme(*command[1:])
    assert (fitted / "next run.html").stat().st_size < 0.2e6
    assert (fitted / "next run-correlations.png").stat().st_size > 1000


def test_the_page_has_the_title_and_the_names_asked_for(fitted, tmp_path):
    names = tmp_path / "names.json"
    names.write_text('{"format": "pyro_prme topic names", "topics": {"0": "War"}}')
    options = ["-o", tmp_path / "p.html", "--title", "One & two", "--names", names, "--megabytes", 1, "--seed", 3]
    printed = prme("explore", fitted / "run", fitted / "test.npz", *options).stdout
    assert printed.startswith(f"{tmp_path / 'p.html'}: 0.")
    assert "<title>One &amp; two</title>" in (tmp_path / "p.html").read_text()
    assert "--megabytes is 0" in error_of("explore", fitted / "run", fitted / "test.npz", "--megabytes", 0)
    assert "cannot be read" in error_of("explore", fitted / "run", fitted / "test.npz", "--names", tmp_path / "no.json")


def test_texts_can_be_read_on_the_page(tmp_path, monkeypatch):
    texts = ["The king spoke of gold\n", "\n", "The sheep ate grass\n", "Gold for the king\n", "Grass and sheep\n"]
    (tmp_path / "a.txt").write_text("".join(texts))
    folder = tmp_path / "texts"
    folder.mkdir()
    for n, text in enumerate(filter(str.strip, texts)):
        (folder / f"{n}.txt").write_text(text)
    prme("fit", tmp_path / "a.txt", "--topics", 2, "--epochs", 1, "--out", tmp_path / "run")
    given = []
    monkeypatch.setattr(
        "pyro_prme.cli.explore.write_page", lambda *args, **more: given.append(more) or tmp_path / "a.txt"
    )
    prme("explore", tmp_path / "run", tmp_path / "a.txt")
    assert given[0]["texts"] == [text.strip() for text in texts if text.strip()]
    prme("explore", tmp_path / "run", folder)
    assert [text.strip() for text in given[1]["texts"]] == given[0]["texts"]
    prme("explore", tmp_path / "run", "kjv")
    assert given[2]["texts"] is None


def test_every_picture_of_the_library_but_that_of_factor_models_has_a_name():
    assert {f"plot_{name}" for name in PICTURES} == set(plots.__all__) - {"plot_factors"}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_drawn_into_files(fitted, tmp_path, name):
    path = tmp_path / f"{name}.svg"
    picture = PICTURES[name]
    given = ([fitted / "run"] if picture.needs_run else []) + ([fitted / "train.npz"] if picture.needs_corpus else [])
    assert prme("plot", name, *given, "-o", path).stdout.strip() == str(path)
    assert "<svg" in path.read_text()


def test_wrong_pictures_are_refused_in_one_line(fitted):
    assert "PICTURE is 'nothing'" in error_of("plot", "nothing")
    assert "give its folder" in error_of("plot", "usage")
    assert "give a corpus" in error_of("plot", "paintboxes", fitted / "run")
    assert "png, svg, pdf" in error_of("plot", "usage", fitted / "run", "-o", "x.gif")
