"""The page says when it is not connected, and goes on where it was."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from holdlog import StateStore
from tests.support.http import HttpServer, http_server

pytestmark = pytest.mark.xdist_group("browser")

Visits = Callable[..., Page]


@pytest.mark.check
def test_page_shows_that_the_server_is_gone_and_resumes_where_it_was(
    chromium: Browser, visit: Visits, tmp_path: Path
) -> None:
    place = tmp_path / "state.db"
    with StateStore(place) as store:
        with http_server(place) as server:
            page = visit(server.url, failures=True)
            store.set("plan", "before", 1, updated_by="ann")
            expect(page.locator("#event-list > li").first).to_contain_text("plan/before")
            state = page.get_by_role("status")
            expect(state).to_have_text("Live")
        expect(state).to_have_text("Not connected")
        expect(page.get_by_role("region", name="Connection")).to_contain_text("The page shows the state as of then")
        expect(page.locator("#event-list > li").first).to_be_visible()
        with page.expect_request("**/events*"):
            page.get_by_role("button", name="Try now").click()
        store.set("plan", "meanwhile", 2, updated_by="bob")
        with http_server(place, "--port", str(server.port)):
            with page.expect_request(lambda it: it.headers["accept"] == "text/event-stream") as again:
                page.locator("#again").dispatch_event("click")
            assert again.value.headers["last-event-id"] == "1"
            expect(state).to_have_text("Live")
            expect(page.get_by_role("region", name="Connection")).to_be_hidden()
            expect(page.locator("#event-list > li").first).to_contain_text("bob wrote plan/meanwhile")
            assert page.get_by_text("plan/meanwhile").count() == page.get_by_text("plan/before").count() == 1
            expect(page.locator("#key-list > li")).to_have_count(2)


@pytest.mark.check
def test_page_reopens_a_stream_that_fell_silent(visit: Visits, own_server: HttpServer) -> None:
    """As after a laptop slept: nobody said that the connection is gone."""
    page = visit(own_server.url)
    page.clock.install()
    page.reload()
    state = page.get_by_role("status")
    expect(state).to_have_text("Live")
    own_server.process.send_signal(signal.SIGSTOP)
    page.clock.fast_forward(46_000)
    expect(state).to_have_text("Not connected")
    expect(page.get_by_role("region", name="Connection")).to_contain_text("the stream fell silent")
    own_server.process.send_signal(signal.SIGCONT)
    expect(state).to_have_text("Live")


@pytest.mark.slow
def test_page_reloads_when_another_store_answers_at_the_same_address(
    chromium: Browser, visit: Visits, tmp_path: Path
) -> None:
    with StateStore(tmp_path / "old.db") as store:
        for number in range(5):
            store.set("old", "key", number, updated_by="ann")
    with http_server(tmp_path / "old.db") as server:
        page = visit(server.url, failures=True)
        expect(page.locator("#event-list > li")).to_have_count(5)
    with http_server(tmp_path / "new.db", "--port", str(server.port)):
        expect(page.get_by_role("status")).to_have_text("Live", timeout=20_000)
        expect(page.get_by_text("Nothing has happened yet")).to_be_visible()
        expect(page.get_by_text("No values yet")).to_be_visible()
