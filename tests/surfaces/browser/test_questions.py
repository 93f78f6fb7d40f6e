"""The page answers who did what when: timelines, conflicts and activity."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from holdlog import ConflictError, StateStore
from tests.support.http import HttpServer

pytestmark = pytest.mark.xdist_group("browser")

Visits = Callable[..., Page]
PROBLEMS = Path(__file__).with_name("problems.js").read_text()


@pytest.mark.check
def test_page_shows_timelines_conflicts_and_activity(visit: Visits, server: HttpServer, store: StateStore) -> None:
    hostile = "<b>x</b>"
    store.claim("custom://past-a", agent="ann")
    store.set("past", "k", 1, updated_by=hostile)
    with pytest.raises(ConflictError):
        store.set("past", "k", 2, updated_by="ben", expected_version=7)
    store.release("custom://past-a", agent="ann", outcome="modified")
    store.claim("custom://past-a", agent=hostile)
    page = visit(server.url, failures=True)
    row = page.locator("#claim-list > li", has_text="custom://past-a")
    row.get_by_role("button", name="Timeline").click()
    lanes, entries = page.locator("#past-lanes > li"), page.locator("#past-list > li")
    expect(lanes).to_have_count(2)
    expect(lanes.first).to_contain_text("ann")
    expect(lanes.first.locator(".held")).to_have_count(1)
    expect(entries.first).to_contain_text(f"{hostile} held custom://past-a")
    expect(entries.nth(1)).to_contain_text("ann held custom://past-a for 0 s, then modified")
    page.locator("#past-kind").select_option("kv")
    page.locator("#past-name").fill("past/k")
    page.keyboard.press("Enter")
    expect(entries.first).to_contain_text(f"{hostile} wrote past / k (version 1)")
    page.locator("#past-kind").select_option("agents")
    page.locator("#past-name").fill("ann")
    page.keyboard.press("Enter")
    expect(lanes.filter(has_text="custom://past-a").locator(".held")).to_have_count(1)
    page.get_by_role("button", name="Conflicts").click()
    expect(entries.filter(has_text="ben was refused 1 time: conflict 1")).to_have_count(1)
    expect(lanes).to_have_count(0)
    page.get_by_role("button", name="Activity").click()
    expect(entries.filter(has_text=hostile)).to_contain_text(["ValueWritten 1"])
    page.locator("#past-name").fill("nobody-ever")
    page.locator("#past-kind").select_option("claims")
    page.get_by_role("button", name="Timeline", exact=True).last.click()
    expect(page.locator("#past-wrong")).to_have_text("Nothing of that name is in the log.")
    assert page.evaluate(PROBLEMS) == []
