"""Who may see the page's data: it asks for a token, keeps it in its tab, and shows nothing without one."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from holdlog import StateStore
from tests.support.http import HttpServer, http_server

pytestmark = pytest.mark.xdist_group("browser")

Visits = Callable[..., Page]


def token(place: Path, *words: str) -> str:
    """What `holdlog token …` prints."""
    command = [sys.executable, "-m", "holdlog", "token", *words, "--db", str(place)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "state.db"


@pytest.fixture(scope="module")
def everything(place: Path) -> str:
    """The text of a token that may read all."""
    return token(place, "create", "--name", "viewer", "--allow", "read:*", "--allow", "claim:*")


@pytest.fixture(scope="module")
def guarded(chromium: Browser, place: Path, everything: str) -> Iterator[HttpServer]:
    """A server that wants tokens, with a value and a claim."""
    with StateStore(place) as store, http_server(place) as started:
        store.set("plan", "parser", 1, updated_by="ann")
        store.set("secrets", "door", "4711", updated_by="ann")
        store.claim("src/a.py", agent="ann", lease_seconds=600)
        yield started


def enter(page: Page, text: str) -> None:
    page.get_by_label("Token", exact=True).fill(text)
    page.get_by_role("button", name="Show the board").click()


@pytest.mark.check
def test_page_asks_for_a_token_and_keeps_it_in_its_tab(visit: Visits, guarded: HttpServer, everything: str) -> None:
    page = visit(guarded.url, failures=True)
    asked: list[str] = []
    page.on("request", lambda it: asked.append(it.url))
    dialog = page.get_by_role("dialog", name="Token required")
    expect(dialog).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("Token needed")
    enter(page, "holdlog_viewer_wrong")
    expect(dialog.get_by_role("alert")).to_have_text("This token is not valid, or no longer valid.")
    enter(page, everything)
    expect(page.get_by_role("status")).to_have_text("Live")
    expect(dialog).to_be_hidden()
    expect(page.locator("#claim-list > li")).to_contain_text(["src/a.py"])
    assert [it for it in asked if everything in it] == []
    assert page.context.cookies() == []
    assert page.evaluate("[localStorage.length, document.cookie, location.hash]") == [0, "", ""]
    page.reload()
    expect(page.get_by_role("status")).to_have_text("Live")
    other = page.context.new_page()
    other.goto(guarded.url)
    expect(other.get_by_role("dialog")).to_be_visible()
    page.get_by_role("button", name="Forget token").click()
    expect(dialog).to_be_visible()
    expect(page.locator("#claim-list > li")).to_have_count(0)
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.check
def test_page_rejects_a_malformed_token_at_once(visit: Visits, guarded: HttpServer) -> None:
    page = visit(guarded.url, failures=True)
    for text in ("holdlog_“pasted”", "x" * 40_000):
        page.get_by_label("Token", exact=True).fill(text)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("This is not a token")
        expect(page.get_by_role("status")).to_have_text("Token needed")


@pytest.mark.check
def test_page_shows_what_its_token_may_read(visit: Visits, guarded: HttpServer, place: Path) -> None:
    narrow = token(place, "create", "--name", "narrow", "--allow", "read:plan")
    page = visit(guarded.url, failures=True)
    enter(page, narrow)
    expect(page.locator("#namespaces li")).to_have_text(["plan1"])
    expect(page.locator("#key-list li")).to_have_count(1)
    expect(page.locator("#event-list")).to_contain_text("plan/parser")
    assert "secrets" not in page.content()
    assert "4711" not in page.content()
    assert page.locator("#claim-list > li").count() == 0
    page.goto(f"{guarded.url}/#/secrets/pin")
    expect(page.locator("#values-wrong")).to_contain_text("read-values:secrets")
    page.get_by_role("button", name="Forget token").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert "secrets" not in page.content()


@pytest.mark.slow
def test_page_ends_its_view_when_the_token_is_revoked(visit: Visits, guarded: HttpServer, place: Path) -> None:
    short = token(place, "create", "--name", "short", "--allow", "admin:*")
    page = visit(guarded.url, failures=True)
    enter(page, short)
    expect(page.locator("#claim-list > li")).to_have_count(1)
    token(place, "revoke", "short")
    expect(page.get_by_role("alert")).to_have_text("This token is not valid, or no longer valid.", timeout=20_000)
    assert page.locator("#claim-list > li, #key-list > li, #event-list > li, #namespaces > li").count() == 0
    assert page.evaluate("sessionStorage.length") == 0
