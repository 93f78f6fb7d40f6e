"""The page can be read: by keyboard, by a screen reader, in the dark, on a phone, and with much on it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from holdlog import AsyncStateStore, StateStore
from tests.support.http import HttpServer, http_server

pytestmark = pytest.mark.xdist_group("browser")

Visits = Callable[..., Page]

PROBLEMS = Path(__file__).with_name("problems.js").read_text()

LONGEST = """() => new Promise((done) => {
  let longest = 0;
  const observer = new PerformanceObserver((found) => {
    for (const it of found.getEntries()) longest = Math.max(longest, it.duration);
  });
  observer.observe({ type: "longtask", buffered: true });
  setTimeout(() => done(longest), 100);
})"""
"""Milliseconds that the page was busy at a stretch."""


@pytest.fixture(scope="module")
def board(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """A board with something of everything."""
    place = tmp_path_factory.mktemp("board") / "state.db"
    with StateStore(place) as store, http_server(place) as server:
        store.set("plan", "parser", {"steps": ["lexer"], "done": False}, updated_by="ann")
        store.set("plan", "parser", {"steps": ["lexer", "errors"], "done": True}, updated_by="bob/tests")
        store.set("plan", "W" * 512, "x" * 3000, updated_by="W" * 128)
        store.delete("plan", "parser", deleted_by="ann")
        store.set("N" * 512, "key", 1, updated_by="ann")
        store.claim("src/a.py", agent="ann", note="n" * 500, lease_seconds=30)
        store.claim("docs/", agent="cy", mode="shared", lease_seconds=55)
        store.claim(f"custom://{'R' * 500}", agent="W" * 128)
        standing = threading.Thread(target=lambda: store.claim("src/a.py", agent="bob/tests", wait_seconds=20))
        standing.start()
        yield server
        store.release("src/a.py", agent="ann")
        standing.join()


@pytest.mark.check
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 820, 1600])
def test_page_is_fully_readable(visit: Visits, board: HttpServer, scheme: str, width: int) -> None:
    page = visit(board.url, color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 900})
    page.goto(f"{board.url}/#/plan/parser")
    expect(page.locator("#history-list > li")).to_have_count(3)
    expect(page.locator(".line li").first).to_be_visible()
    assert page.evaluate(PROBLEMS) == []


@pytest.mark.check
def test_keyboard_reaches_everything_in_page_order(visit: Visits, board: HttpServer) -> None:
    page = visit(board.url)
    expect(page.locator("#key-list a").first).to_be_visible()
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.slice(0, 20)"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached[:2] == ["Skip to the claims", "filter"]
    assert "prefix" in reached
    page.locator("#namespaces").get_by_role("button", name="plan").press("Enter")
    page.locator("#key-list a").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#history")).to_be_focused()


def test_keyboard_focus_is_kept_when_events_arrive(visit: Visits, server: HttpServer, store: StateStore) -> None:
    store.set("focus", "b", 1, updated_by="ann")
    page = visit(server.url)
    page.locator("#namespaces").get_by_role("button", name="focus").click()
    page.locator("#key-list a").first.focus()
    store.set("focus", "b", 2, updated_by="ann")
    store.set("focus", "a", 1, updated_by="ann")
    expect(page.locator("#key-list a").first).to_contain_text("v1")
    expect(page.locator("#key-list a").last).to_contain_text("v2")
    expect(page.locator("#key-list a").last).to_be_focused()


@pytest.mark.slow
def test_page_stays_fast_with_ten_thousand_values_and_two_hundred_claims(
    chromium: Browser, visit: Visits, tmp_path: Path
) -> None:
    place = tmp_path / "state.db"
    _in_a_thread(_fill, place)
    with http_server(place) as server:
        page = visit(server.url)
        expect(page.locator("#claim-list > li")).to_have_count(200)
        expect(page.locator("#key-list > li")).to_have_count(50)
        assert page.evaluate("document.querySelectorAll('*').length") < 6_000
        expect(page.locator("#namespaces > li")).to_have_count(200)
        page.get_by_role("button", name="Show more namespaces").click()
        expect(page.locator("#namespaces > li")).to_have_count(251)
        page.get_by_label("Keys that begin with").fill("key-0999")
        expect(page.locator("#key-list > li")).to_have_count(10)
        page.get_by_label("Filter claims").fill("file-77")
        expect(page.locator("#claim-list > li")).to_have_count(1)
        page.get_by_label("Filter claims").fill("")
        _in_a_thread(_write, place)
        expect(page.locator("#event-list > li").first).to_contain_text("burst/1999")
        assert page.locator("#event-list > li").count() == 25
        assert page.evaluate(LONGEST) < 1_000


async def _fill(place: Path) -> None:
    async with AsyncStateStore(place) as store:
        for start in range(0, 10_000, 500):
            keys = range(start, start + 500)
            await asyncio.gather(*(store.set("many", f"key-{n:05}", {"n": n}, updated_by=f"w{n % 7}") for n in keys))
        await asyncio.gather(*(store.set(f"space-{n:03}", "key", n, updated_by="w") for n in range(250)))
    for start in range(0, 200, 50):  # one session may hold 64
        async with AsyncStateStore(place, session=f"session-{start}") as store:
            claims = (store.claim(f"file-{n}", agent=f"w{n % 7}", lease_seconds=600) for n in range(start, start + 50))
            await asyncio.gather(*claims)


async def _write(place: Path) -> None:
    async with AsyncStateStore(place) as store:
        for start in range(0, 2_000, 100):
            await asyncio.gather(*(store.set("burst", f"{n}", n, updated_by="w") for n in range(start, start + 100)))


def _in_a_thread(work: Callable[[Path], Any], place: Path) -> None:
    """Playwright's own loop runs in this one."""
    thread = threading.Thread(target=lambda: asyncio.run(work(place)))
    thread.start()
    thread.join()
