"""The documentation site: it builds without a warning, its links hold, it needs no network, and its claims are true."""

import ast
import importlib
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import matplotlib
import pytest

import pyro_prme
import pyro_prme.measures

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
sys.path.append(str(DOCS))

from generate import api, closed_forms, front, measures, results  # noqa: E402

from .test_swap_example import counts_and_words  # noqa: E402


class Page(HTMLParser):
    """The ids of a page, what it links to, and what a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and not {"next", "prev", "search", "index"} & set(found.get("rel", "").split()):
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--fresh-env"]
    done = subprocess.run([*command, str(DOCS), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="module")
def results_page() -> str:
    """Of the committed results; made once, since it asks every script for its tables."""
    return results.page(ROOT)


def public_modules() -> Iterator[str]:
    for info in pkgutil.walk_packages(pyro_prme.__path__, "pyro_prme."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            yield info.name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_page_is_there(site: Path) -> None:
    wanted = [path.stem for path in DOCS.glob("*.md") if path.name != "README.md"]
    wanted += [f"tutorials/{path.stem}" for path in (ROOT / "tutorials").glob("*.ipynb")]
    wanted += [f"api/{name}" for name in ("index", *api.folders(), api.ROOT)] + ["tutorials/index"]
    assert {"index", "results", "differences", "swaps", "measures"} <= set(wanted)
    assert [name for name in wanted if not (site / f"{name}.html").exists()] == []
    assert "Pictures to play with" in (site / "play.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_links_and_pictures_lead_somewhere(pages: dict[Path, Page]) -> None:
    broken, local = [], 0
    for path, page in pages.items():
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.scheme or address == "#":
                continue
            local += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in pages[target].ids):
                broken.append(f"{path.name}: {address}")
    assert local > 1000
    assert broken == []


@pytest.mark.slow
def test_nothing_comes_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {address for page in pages.values() for address in page.loaded}
    assert [address for address in loaded if urlsplit(address).scheme not in ("", "data") or address[:2] == "//"] == []
    equations = [path for path in pages if 'class="math' in path.read_text(encoding="utf-8")]
    assert equations
    for path in equations:
        assert any(address.split("?")[0].endswith("_static/tex-svg.js") for address in pages[path].loaded), path
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8")), path


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1200, 1920])
def test_the_main_pages_fit_the_window_and_axe_finds_nothing(site: Path, browser: Any, axe: Any, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    for name in ("index", "results", "howto/first_hour", "api/models", "tutorials/01_paintboxes"):
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_timeout(1_000)  # until equations are drawn
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert axe(page, "wcag2a", "wcag2aa") == [], name
    context.close()


@pytest.mark.slow
def test_the_api_has_every_public_module_and_name(site: Path, pages: dict[Path, Page]) -> None:
    ids = {name for path, page in pages.items() if path.parent.name == "api" for name in page.ids}
    names = []
    for name in public_modules():
        module = importlib.import_module(name)
        names.append(f"module-{name}")
        if not hasattr(module, "__path__"):
            names += [f"{name}.{public}" for public in module.__all__]
    assert [name for name in names if name not in ids] == []


@pytest.mark.slow
def test_equations_of_docstrings_are_equations(site: Path) -> None:
    text = (site / "api" / "equations.html").read_text(encoding="utf-8")
    assert text.count('class="math') >= 15
    assert ".. math" not in text
    assert ":math:" not in text


def test_numbers_of_the_results_page_come_from_files(tmp_path: Path) -> None:
    assert not re.search(r"\d", (DOCS / "results.md").read_text(encoding="utf-8"))
    assert results.page(tmp_path) == ""
    folder = tmp_path / "benchmarks" / "paper" / "results"
    shutil.copytree(ROOT / "benchmarks" / "paper", folder.parent, ignore=shutil.ignore_patterns("results"))
    folder.mkdir()
    scores = {"0.9": 1234.5, "0.5": 2345.6, "0.1": 3456.7}
    run = {"corpus": "nyt", "gamma0": 0.3, "model": "prme", "perplexity": scores, "topics_used": 67}
    runs = [run | {"seed": 0}, run | {"seed": 1, "perplexity": {"0.9": 1236, "0.5": 2345.6, "0.1": 3456.7}}]
    (folder / "table1.json").write_text(json.dumps(runs))
    (folder / "other.json").write_text(json.dumps({"cores": 89, "rows": [{"name": "a", "value": 0.123456}]}))
    text = results.page(tmp_path)
    assert "| nyt | 0.3 | PRME | 2 | 1235.2 (2) | 2345.6 (0) | 3456.7 (0) |" in text
    assert "| a | 0.1235 |" in text
    typed = set(re.findall(r"[\d.]*\d", text)) - {"0.3", "2", "1235.2", "2345.6", "3456.7", "0", "89", "0.1235"}
    assert typed == {"1", "90", "50", "10"}  # "Table 1", and the shares of words in the headings of its columns


def test_the_papers_column_stands_beside_ours_and_each_table_answers_one_question(results_page: str) -> None:
    text = results_page
    part = text[text.index("## Held-out perplexity") :].split("<details>")[0]
    tables = re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert [table.splitlines()[0] for table in tables] == [
        "| corpus | model | 90% | paper, 90% | 50% | 10% observed |",
        "| corpus | model | f = 0: 90% | 90% | f = 0: 10% | 10% observed |",
    ]
    assert re.search(r"^\| nyt \| HDP \| [\d.]+ \(\d+\) \| 2437 \|", tables[0], re.MULTILINE)
    assert "|  |" not in tables[1]
    runs = json.loads((ROOT / "benchmarks" / "paper" / "results" / "table1.json").read_text(encoding="utf-8"))
    plain = [r for r in runs if (r["corpus"], r["model"], r["gamma0"]) == ("nyt", "prme", 0.2)]
    score = sum(r["perplexity_without_f"]["0.1"] for r in plain) / len(plain)
    row = next(line for line in tables[1].splitlines() if line.startswith("| nyt | PRME |"))
    assert row.split("|")[5].split()[0] == f"{score:.1f}", "the fit without f, at 10%"


def test_the_list_of_questions_leads_to_sections_that_are_there(results_page: str) -> None:
    text = results_page
    headings = {results.slug(line.removeprefix("## ")) for line in text.splitlines() if line.startswith("## ")}
    asked = re.findall(r"^- \[[^]]+\?\]\(#([^)]+)\)$", text, re.MULTILINE)
    assert len(asked) == len(results.ASKED)
    assert set(asked) <= headings


def test_the_first_page_says_what_the_benchmarks_wrote(tmp_path: Path) -> None:
    scores = {("hdp", 10): 900.0, ("hdp", 20): 800.0, ("prme", 20): 700.0, ("prme", 40): 1.0}
    runs = [
        {
            "corpus": "snippets",
            "part": "test",
            "model": m,
            "epoch": e,
            "seed": s,
            "perplexity": {"0.1": x + 2 * s},
        }
        for (m, e), x in scores.items()
        for s in (0, 1)
    ]
    other = {"corpus": "snippets", "part": "valid", "model": "prme", "epoch": 20, "seed": 0, "perplexity": {"0.1": 5.0}}
    sentence = front.quality([*runs, other])
    assert "**701** against 801" in sentence
    assert "over 2 seeds" in sentence


def test_the_api_begins_with_what_most_readers_come_for() -> None:
    modules = [module.__name__ for module in api.modules_of("models")]
    assert modules[:2] == ["pyro_prme.models", "pyro_prme.models.prme"]
    assert sorted(modules) == sorted(set(modules))
    for folder, names in api.FIRST.items():
        assert {f"pyro_prme.{folder}.{name}" for name in names} <= {m.__name__ for m in api.modules_of(folder)}
    names = api.members(importlib.import_module("pyro_prme.models.prme"))
    assert names[0] == "PRME"
    assert names[-1] == "EmbeddedTopics", "a base class that nobody calls comes last"
    assert api.members(importlib.import_module("pyro_prme.models.topic_model"))[-1] == "Plates"


def test_every_table_of_the_results_has_a_sentence_above_it_and_goals_are_folded(results_page: str) -> None:
    text = results_page
    lines = text.splitlines()
    tops = [i for i, line in enumerate(lines) if line.startswith("|") and not lines[i - 1].startswith("|")]
    assert len(tops) > 20
    for i in tops:
        above = next(line for line in reversed(lines[:i]) if line)
        assert above[-1] in ".?:*" or above.endswith("</summary>"), f"{above}\n{lines[i]}"
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>") > 5
    shown = "".join(part.split("</details>")[-1] for part in text.split("<details>"))
    assert "| bar |" in text
    assert "| bar |" not in shown
    for heading in results.QUESTIONS:
        assert f"\n| {heading}" in text, f"no table begins with {heading!r} any more"


def test_the_table_of_measures_is_in_tex_and_whole() -> None:
    lines = measures.table().splitlines()
    assert len(lines) == 2 + len(pyro_prme.measures.catalogue())
    assert all(line.count("$") % 2 == 0 for line in lines)
    assert set(measures.TEX) == set(pyro_prme.measures.catalogue()[["T^-1", "f_n"]].to_numpy().ravel())


def test_closed_forms_come_from_the_tests_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    text = closed_forms.fragment(ROOT)
    cases, idioms = closed_forms.tables(ROOT)
    for name, case in cases.items():
        assert f"| {closed_forms.words(name)} |" in text
        assert all(f"`{site}` none: " in text for site in case.refused)
    for name, one in idioms.items():
        assert closed_forms.words(name) in text
        assert all(closed_forms.escaped(reason) in text for reason in one.refused.values())
    assert "| hidden markov | `A` Dirichlet; `mu` Normal; `z_0` Categorical" in text
    monkeypatch.setattr(closed_forms, "ADVICE", closed_forms.ADVICE[1:])
    with pytest.raises(ValueError, match="There is no advice for"):
        closed_forms.refusals(idioms)


def test_tests_named_as_evidence_exist() -> None:
    text = (DOCS / "differences.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 20
    assert len(named) == text.count("::test_")
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


@pytest.mark.slow
@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_code_of_the_pages_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, with fewer topics and epochs."""
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, object] = {}
    exec("import pyro\nimport pyro.distributions as dist\nimport pyro_prme as prme", names)
    names["counts"], names["words"] = counts_and_words()  # what README's swap is fitted to
    for code in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(code.replace("n_components=50", "n_components=5").replace("max_iter=30", "max_iter=2"), names)
    if path.name == "index.md":
        assert (tmp_path / "paintboxes.png").stat().st_size > 10_000
