"""The machine's own Chromium, headless, and what it saw of a page."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from holdlog import StateStore
from tests.support.http import HttpServer, http_server

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
RECORD = """
window.violations = [];
addEventListener("securitypolicyviolation", (it) => window.violations.push(`${it.violatedDirective} ${it.blockedURI}`));
"""

expect.set_options(timeout=10_000)


class Visit:
    """A page in a window of its own, with a profile of its own. `failures`: answers that are no success are meant."""

    def __init__(self, chromium: Browser, url: str, failures: bool, **options: Any) -> None:
        self.page: Page = chromium.new_context(**options).new_page()
        self.url = url
        self.failures = failures
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda it: self.said.append(f"{it.type}: {it.text}"))
        self.page.on("pageerror", lambda it: self.said.append(f"error: {it}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda it: self.asked.append(it.url))
        self.page.add_init_script(RECORD)
        self.page.goto(url)

    def _dialog(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def require_calm(self) -> None:
        """Nothing complained, no dialog opened, nobody but the server was asked."""
        meant = ("error: Failed to load resource",) if self.failures else ()
        assert [it for it in self.said if not it.startswith(meant or "\0")] == []
        assert [it for it in self.asked if not it.startswith((self.url, "data:image/svg+xml"))] == []
        assert self.page.evaluate("window.violations") == []


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed here: the page was not tested in a browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a URL; what the page did meanwhile is judged after the test."""
    visits: list[Visit] = []

    def opened(url: str, failures: bool = False, **options: Any) -> Page:
        visits.append(Visit(chromium, url + "/", failures, **options))
        return visits[-1].page

    yield opened
    for it in visits:
        it.require_calm()
        it.page.context.close()


@pytest.fixture(scope="package")
def server(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """One for the tests of a file; each writes below names of its own."""
    with http_server(tmp_path_factory.mktemp("shared") / "state.db") as started:
        yield started


@pytest.fixture
def own_server(chromium: Browser, tmp_path: Path) -> Iterator[HttpServer]:
    """One with an empty store."""
    with http_server(tmp_path / "state.db") as started:
        yield started


@pytest.fixture
def store(server: HttpServer) -> Iterator[StateStore]:
    """Its store, as another process has it."""
    place = Path(server.process.args[5])  # type: ignore[index]
    with StateStore(place) as opened:
        yield opened
