"""Fixtures for pages in a real browser, which is Chromium under Playwright, and what axe-core finds wrong with them."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Pages", "axe", "browser", "pages"]


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
def axe() -> Callable[..., list[str]]:
    """What axe-core finds wrong with a page, a line each, by all rules or those of some tags.

    Its code comes with axe-playwright-python.
    """
    package = find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe-playwright-python, which has axe-core, is not installed")
    code = Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")

    def findings(page: Any, *tags: str) -> list[str]:
        page.evaluate(code)
        found = page.evaluate("(tags) => axe.run(tags.length ? { runOnly: tags } : {})", list(tags))["violations"]
        return [f"{violation['id']}: {violation['nodes'][0]['html']}" for violation in found]

    return findings
