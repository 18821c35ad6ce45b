import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pyro_prme as prme
from pyro_prme.explorer import explore

GROUPS = 4
WORDS = (*(f"{letter}{i}" for letter in "abcd" for i in range(8)), '<b>"&</b>')


def small_corpus() -> prme.Corpus:
    """Documents about one to three of four groups of words, two of which go together; one has no words."""
    rng = np.random.default_rng(3)
    groups = np.hstack([np.kron(np.eye(GROUPS), rng.uniform(0.3, 1.5, 8)), np.full((GROUPS, 1), 0.2)]) + 0.02
    shares = rng.dirichlet([0.3] * GROUPS, size=60)
    shares[:30, 1] = shares[:30, 0]
    shares /= shares.sum(1, keepdims=True)
    counts = np.stack([rng.multinomial(40, row @ groups / (row @ groups).sum()) for row in shares])
    counts[7] = 0
    return prme.Corpus(counts, WORDS, tuple(f"text <i>{n}</i>" if n == 3 else f"text {n}" for n in range(60)))


def fitted(**settings: Any) -> tuple[prme.Posterior, prme.Corpus]:
    corpus = small_corpus()
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model = prme.PRMETopicModel(5, max_iter=5, batch_size=20, random_state=0, **settings).fit(corpus)
    finally:
        torch.set_default_dtype(dtype)
    return model.posterior_, corpus


@pytest.fixture(scope="session")
def shape_fit() -> tuple[prme.Posterior, prme.Corpus]:
    """Dirichlet topics, whose updates the page has; f in the shape; embeddings of two dimensions, shown whole."""
    return fitted(preset="dirichlet", embedding_dim=2)


@pytest.fixture(scope="session")
def scale_fit() -> tuple[prme.Posterior, prme.Corpus]:
    return fitted(preset="paper", embedding_dim=2)


@pytest.fixture(scope="session")
def hdp_fit() -> tuple[prme.Posterior, prme.Corpus]:
    return fitted(model="hdp")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium under Playwright; the tests that need it are skipped where either is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    candidates = [
        os.environ.get("PRME_CHROMIUM"),
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ]
    found = next((path for path in candidates if path and Path(path).exists()), None)
    with sync_api.sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no browser can be started: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


class Pages:
    """Opens pages from disk with the network off; any request or complaint of a page is a failure."""

    def __init__(self, browser: Any) -> None:
        self.browser, self.contexts, self.trouble = browser, [], []

    def open(self, path: Path, link: str = "", **settings: Any) -> Any:
        context = self.browser.new_context(**({"viewport": {"width": 1400, "height": 900}, "offline": True} | settings))
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: self.trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        page.on("request", lambda request: self._note(request.url))
        page.goto(f"{path.resolve().as_uri()}{link}")
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    def _note(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.trouble.append(f"request: {url}")


@pytest.fixture
def pages(browser) -> Iterator[Pages]:
    opened = Pages(browser)
    yield opened
    for context in opened.contexts:
        context.close()
    assert not opened.trouble


@pytest.fixture(scope="session")
def axe() -> Callable[[Any], list[str]]:
    """What axe-core finds wrong with a page, a line each; its code comes with axe-playwright-python."""
    package = find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe-playwright-python, which has axe-core, is not installed")
    code = Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")

    def findings(page: Any) -> list[str]:
        page.evaluate(code)
        return [f"{found['id']}: {found['nodes'][0]['html']}" for found in page.evaluate("axe.run()")["violations"]]

    return findings


@pytest.fixture(scope="session")
def shape_page(shape_fit, tmp_path_factory) -> Path:
    return explore(*shape_fit, tmp_path_factory.mktemp("page") / "shape.html", title="A <title> & more")


@pytest.fixture(scope="session")
def scale_page(scale_fit, tmp_path_factory) -> Path:
    return explore(*scale_fit, tmp_path_factory.mktemp("page") / "scale.html")


@pytest.fixture(scope="session")
def hdp_page(hdp_fit, tmp_path_factory) -> Path:
    return explore(*hdp_fit, tmp_path_factory.mktemp("page") / "hdp.html")
