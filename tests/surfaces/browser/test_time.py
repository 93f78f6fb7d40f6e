"""The time slider of the page: earlier moments of claims, queues, values and events, a replay, and back to now."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from bench.rebuild import commands
from bench.size import fill
from holdlog import StateStore
from tests.support.commands import PATIENCE, until
from tests.support.http import HttpServer

pytestmark = pytest.mark.xdist_group("browser")

Visits = Callable[..., Page]

MOMENTS = """() => new Promise((done) => {
  const shown = new Set(), slider = document.getElementById("moment"), play = document.getElementById("play");
  new MutationObserver(() => shown.add(slider.dataset.shown)).observe(slider, { attributeFilter: ["data-shown"] });
  play.click();
  setTimeout(() => { play.click(); done(shown.size); }, 3000);
})"""
"""How many moments a replay of three seconds shows completely."""


def slider(page: Page) -> Any:
    return page.get_by_role("slider", name="Event of the log")


def move(page: Page, position: int) -> None:
    """As a person who drags the thumb."""
    slider(page).evaluate("(it, to) => { it.value = to; it.dispatchEvent(new Event('input')); }", str(position))


def claims(page: Page) -> Any:
    return page.locator("#claim-list > li")


@pytest.fixture
def story(own_server: HttpServer) -> Iterator[StateStore]:
    """1: ann claims; 2: bob queues; 3: ann writes 10; 4: ann writes 20; 5, 6: ann releases, and bob is granted;
    7: bob deletes; 8: cy writes in another namespace."""
    with (
        StateStore(Path(own_server.process.args[5])) as store,  # type: ignore[index]
        ThreadPoolExecutor(1) as pool,
    ):
        store.claim("src/a.py", agent="ann", note="renaming")
        waiting: Future[Any] = pool.submit(store.claim, "src/a.py", agent="bob", wait_seconds=PATIENCE)
        until(lambda: store.events().bookmark == 2)
        store.set("plan", "budget", 10, updated_by="ann")
        store.set("plan", "budget", 20, updated_by="ann")
        store.release("src/a.py", agent="ann")
        assert waiting.result(PATIENCE).status == "claimed"
        store.delete("plan", "budget", deleted_by="bob")
        store.set("other", "k", 1, updated_by="cy")
        yield store


@pytest.mark.check
def test_slider_shows_claims_queues_and_values_of_an_earlier_event(
    visit: Visits, own_server: HttpServer, story: StateStore
) -> None:
    end = story.events().bookmark
    page = visit(own_server.url)
    page.evaluate("location.hash = '#/plan/budget'")
    expect(page.get_by_role("button", name="Live", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(claims(page)).to_contain_text(["bob"])
    move(page, 3)
    expect(claims(page)).to_contain_text([re.compile("ann.*then released.*1 waiter.*bob")])
    expect(page.locator("#key-list > li")).to_contain_text(["10"])
    expect(page.locator("#history-list > li")).to_have_count(1)
    expect(page.locator("#event-list > li")).to_have_count(3)
    expect(page.locator("#moment-about")).to_have_text(re.compile(rf"As of .*, event 3 of {end}"))
    expect(page.locator("#namespaces button")).to_contain_text(["plan"])
    move(page, 1)
    expect(claims(page).locator(".line")).to_have_count(0)
    expect(page.locator("#history-about")).to_have_text("This key had no history yet.")
    expect(page.locator(".lease")).to_have_count(0)
    move(page, 4)
    expect(page.locator("#key-list > li")).to_contain_text(["20"])
    expect(page.locator("#history-list > li")).to_have_count(2)


@pytest.mark.check
def test_live_returns_to_the_present_with_one_click(visit: Visits, own_server: HttpServer, story: StateStore) -> None:
    page = visit(own_server.url)
    move(page, 1)
    expect(page.locator("#moment-about")).to_contain_text("As of")
    story.set("later", "k", 1, updated_by="dan")  # the past does not move
    expect(slider(page)).to_have_attribute("max", str(story.events().bookmark))
    expect(page.locator("#event-list > li")).to_have_count(1)
    expect(page.locator("#namespaces button")).to_have_count(0)
    page.get_by_role("button", name="Live", exact=True).click()
    expect(page.locator("#namespaces button")).to_contain_text(["later"])
    expect(page.locator("#event-list > li").first).to_contain_text("dan wrote later/k")
    expect(claims(page)).to_contain_text(["bob"])
    expect(page.locator(".lease")).to_have_count(1)
    story.release("src/a.py", agent="bob")
    expect(claims(page)).to_have_count(0)


@pytest.mark.check
def test_slider_follows_a_mouse_that_drags_it(visit: Visits, own_server: HttpServer, story: StateStore) -> None:
    for number in range(200):
        story.set("plan", "count", number, updated_by="ann")
    page = visit(own_server.url)
    expect(claims(page)).to_contain_text(["bob"])
    box = slider(page).bounding_box()
    right, middle = box["x"] + box["width"] - 8, box["y"] + box["height"] / 2
    page.mouse.move(right, middle)
    page.mouse.down()
    seen = []
    for step in range(1, 6):
        page.mouse.move(right - step * box["width"] / 6, middle)
        expect(page.locator("#moment-about")).to_contain_text("As of")
        seen.append(int(slider(page).input_value()))
        assert slider(page).bounding_box() == box
    page.mouse.up()
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == 5


@pytest.mark.check
def test_status_does_not_claim_that_an_earlier_moment_is_live(
    visit: Visits, own_server: HttpServer, story: StateStore
) -> None:
    page = visit(own_server.url)
    expect(page.get_by_role("status")).to_have_text("Live")
    move(page, 1)
    expect(page.get_by_role("status")).to_have_text("Connected")
    page.get_by_role("button", name="Live", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Live")


@pytest.mark.check
def test_slider_moves_by_keyboard_with_a_text_for_screen_readers(
    visit: Visits, own_server: HttpServer, story: StateStore
) -> None:
    end = story.events().bookmark
    page = visit(own_server.url)
    expect(slider(page)).to_have_attribute("aria-valuetext", f"now, event {end} of {end}")
    slider(page).focus()
    page.keyboard.press("ArrowLeft")
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(rf"^event {end - 1} of {end}, .* 20\d\d"))
    page.keyboard.press("Home")
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(f"^event 1 of {end}, "))
    expect(page.get_by_role("button", name="One event back")).to_be_disabled()
    page.get_by_role("button", name="One event forward").click()
    expect(claims(page)).to_contain_text([re.compile("1 waiter")])
    slider(page).focus()
    page.keyboard.press("End")
    expect(page.get_by_role("button", name="Live", exact=True)).to_have_attribute("aria-pressed", "true")


@pytest.mark.check
def test_replay_shows_every_event_and_ends_live(visit: Visits, own_server: HttpServer, story: StateStore) -> None:
    end = story.events().bookmark
    page = visit(own_server.url)
    expect(claims(page)).to_contain_text(["bob"])
    page.evaluate("""() => {
      window.seen = new Set();
      new MutationObserver(() => window.seen.add(document.getElementById("event-list").children.length))
        .observe(document.getElementById("event-list"), { childList: true });
    }""")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_role("button", name="Pause replay")).to_be_visible()
    expect(page.get_by_role("button", name="Live", exact=True)).to_have_attribute("aria-pressed", "true")
    seen = set(page.evaluate("[...window.seen]"))
    assert set(range(1, end + 1)) <= seen
    expect(claims(page)).to_contain_text(["bob"])


@pytest.mark.check
def test_paused_replay_stays_where_it_is(visit: Visits, own_server: HttpServer, story: StateStore) -> None:
    for number in range(150):
        story.set("plan", "count", number, updated_by="ann")
    page = visit(own_server.url)
    expect(claims(page)).to_contain_text(["bob"])
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("#moment-about")).to_contain_text("As of")
    page.get_by_role("button", name="Pause replay").click()
    expect(page.get_by_role("button", name="Replay", exact=True)).to_be_visible()
    at = int(slider(page).input_value())
    assert at < story.events().bookmark
    story.set("plan", "count", 1000, updated_by="ann")
    expect(slider(page)).to_have_attribute("max", str(story.events(0, limit=1).bookmark))
    assert int(slider(page).input_value()) == at


@pytest.mark.check
def test_empty_log_has_no_slider_to_move(visit: Visits, own_server: HttpServer) -> None:
    page = visit(own_server.url)
    expect(page.get_by_role("status")).to_have_text("Live")
    expect(slider(page)).to_be_disabled()
    expect(page.get_by_role("button", name="Replay", exact=True)).to_be_disabled()
    with StateStore(Path(own_server.process.args[5])) as store:  # type: ignore[index]
        store.set("n", "k", 1, updated_by="ann")
    expect(slider(page)).to_be_enabled()


@pytest.mark.slow
@pytest.mark.parametrize("speed", ["1", "1000"])
def test_replay_shows_ten_moments_a_second_of_a_hundred_thousand_events(
    visit: Visits, own_server: HttpServer, speed: str
) -> None:
    fill(Path(own_server.process.args[5]), commands(100_000), lambda done: None)  # type: ignore[index]
    page = visit(own_server.url)
    expect(slider(page)).to_have_attribute("max", "100000")
    page.get_by_label("Speed of the replay").select_option(speed)
    move(page, 50_000)
    expect(page.locator("#moment-about")).to_contain_text("event 50,000 of 100,000")
    expect(page.locator("#namespaces button")).to_contain_text(["bench"])
    rates: list[float] = []
    while not rates or (rates[-1] < 9 and len(rates) < 5):  # the machine may be busy with something else
        rates.append(page.evaluate(MOMENTS) / 3)
    assert rates[-1] >= 9, rates
