"""The page in a browser: what agents wrote is text, panels show the chosen moment, and tokens stay in their tab."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import holdlog
from tests.support.programs import HttpServer, run

pytestmark = [pytest.mark.rest, pytest.mark.xdist_group("test_page")]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
RECORD = "violations = []; onsecuritypolicyviolation = (it) => violations.push(it.violatedDirective);"
IMAGE = "<img src=//evil.example/i onerror=alert(1)>"
NAME = "<img src=x onerror=alert(3)>"
SCRIPT = "</script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed: the page was not opened in a browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


Visit = Callable[..., Page]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Opens a page. At the end of the test, nothing complained and only the server was called."""
    pages: list[tuple[Page, str]] = []
    complaints: list[str] = []

    def open_page(url: str, failures: bool = False, **options: Any) -> Page:
        """`failures`: responses that are refusals are expected."""
        page = chromium.new_context(**options).new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("console", lambda it: None if failures and "Failed to load" in it.text else complaints.append(it.text))
        page.on(
            "request",
            lambda it: None if it.url.startswith((url.partition("#")[0], "data:")) else complaints.append(it.url),
        )
        page.add_init_script(RECORD)
        page.goto(url)
        pages.append((page, url))
        return page

    yield open_page
    for page, _ in pages:
        assert page.evaluate("window.violations") == []
        page.context.close()
    assert complaints == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    server = HttpServer(tmp_path / "state.db", cwd=tmp_path)
    yield server
    server.close()


@pytest.fixture
def store(server: HttpServer, tmp_path: Path) -> Iterator[Any]:
    """The store of the server, as another process has it."""
    with holdlog.StateStore(tmp_path / "state.db") as opened:
        yield opened


def test_empty_page_says_what_to_do(server: HttpServer, visit: Visit) -> None:
    page = visit(server.url)
    expect(page.locator("#connection")).to_have_text("Live")
    for name, command in (("timeline", "holdlog claim"), ("claims", "holdlog claim"), ("values", "holdlog set")):
        expect(page.locator(f"#{name}-empty")).to_contain_text(command)


def test_markup_that_agents_wrote_is_text(server: HttpServer, store: Any, visit: Visit) -> None:
    store.set(IMAGE, "k", {SCRIPT: IMAGE}, updated_by=SCRIPT, expected_version=0, reason=IMAGE)
    store.claim(f"custom://{IMAGE}", agent=SCRIPT, note=SCRIPT)
    store.claim(f"custom://{IMAGE}", agent=NAME)
    store.set("plan", "end", 1, updated_by="ann", expected_version=0)
    page = visit(server.url)
    claim = page.locator("#claims-list > li", has_text="evil.example")
    for text in (IMAGE, SCRIPT):
        expect(claim).to_contain_text(text)
    for text in (NAME, SCRIPT):
        expect(page.locator("#log-list")).to_contain_text(text)
        expect(page.locator("#lanes")).to_contain_text(text)
    page.locator("#namespaces button", has_text="evil.example").click()
    page.locator("#keys button").click()
    expect(page.locator("#history-list pre")).to_contain_text(json.dumps(SCRIPT))
    expect(page.locator("#history-list")).to_contain_text(f"“{IMAGE}”")
    assert page.locator("main img, main script, main iframe, main svg, main [onerror]").count() == 0


def test_claims_are_bars_of_their_agent_and_refusals_are_marked(server: HttpServer, store: Any, visit: Visit) -> None:
    store.claim("custom://a", agent="ann")
    store.claim("custom://a", agent="bob")
    store.release("custom://a", agent="ann", outcome="modified", note="ready")
    page = visit(server.url)
    lanes = page.locator("#lanes .lane")
    expect(lanes.filter(has_text="ann").locator(".bar")).to_have_attribute("title", _contains("modified"))
    expect(lanes.filter(has_text="bob").locator(".refused")).to_have_attribute("title", _contains("busy"))
    expect(page.locator("#claims-empty")).to_contain_text("Nobody holds a claim.")
    page.locator("#kinds").select_option("refusal")
    expect(page.locator("#log-list > li")).to_have_count(1)


def _contains(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))


def test_new_events_appear_without_a_reload(server: HttpServer, store: Any, visit: Visit) -> None:
    page = visit(server.url)
    expect(page.locator("#connection")).to_have_text("Live")
    store.claim("custom://new", agent="ann")
    expect(page.locator("#claims-list")).to_contain_text("custom://new")
    expect(page.locator("#log-list")).to_contain_text("claimed")
    store.release("custom://new", agent="ann")
    expect(page.locator("#claims-empty")).to_be_visible()


def test_all_panels_show_the_chosen_moment(server: HttpServer, store: Any, visit: Visit) -> None:
    store.set("plan", "k", "before", updated_by="ann", expected_version=0)
    store.claim("custom://then", agent="ann")
    store.set("plan", "k", "after", updated_by="bob", expected_version=1)
    store.release("custom://then", agent="ann")
    page = visit(f"{server.url}/#namespace=plan&key=k", failures=True)
    expect(page.locator("#history-list > li")).to_have_count(2)
    page.get_by_role("button", name="‹ Event").click()
    page.get_by_role("button", name="‹ Event").click()
    page.get_by_role("button", name="‹ Event").click()
    expect(page.locator("#claims-list")).to_contain_text("custom://then")
    expect(page.locator("#history-list > li")).to_have_count(1)
    expect(page.locator("#keys")).to_contain_text("before")
    expect(page.locator("#log-list > li")).to_have_count(2)
    assert "position=2" in page.url
    page.reload()
    expect(page.locator("#keys")).to_contain_text("before")
    page.get_by_role("button", name="Now").click()
    expect(page.locator("#keys")).to_contain_text("after")
    expect(page.locator("#claims-empty")).to_be_visible()
    page.locator("#slider").focus()
    for _ in range(20):
        page.keyboard.press("PageDown")
    expect(page.locator("#keys-empty")).to_have_text("This namespace had no values then.")
    expect(page.locator("#moment")).to_have_text(_contains("UTC"))


def test_filter_shows_one_agent_with_its_sub_agents(server: HttpServer, store: Any, visit: Visit) -> None:
    for agent in ("ann", "ann/tests", "bob"):
        store.claim(f"custom://{agent}", agent=agent)
    page = visit(server.url)
    page.locator("#claims-list").get_by_role("button", name="ann", exact=True).click()
    for name in ("claims-list", "log-list", "lanes"):
        expect(page.locator(f"#{name}")).not_to_contain_text("bob")
        expect(page.locator(f"#{name}")).to_contain_text("ann/tests")
    page.locator("#filters button").click()
    expect(page.locator("#claims-list")).to_contain_text("bob")


@pytest.mark.parametrize("width", [400, 1280])
def test_page_fits_its_window(server: HttpServer, store: Any, visit: Visit, width: int) -> None:
    store.claim(f"custom://{'long-name' * 20}", agent="a" * 100, note="n" * 300)
    store.set("n" * 100, "k" * 100, "v" * 100_000, updated_by="a" * 100, expected_version=0)
    page = visit(server.url, viewport={"width": width, "height": 800})
    page.locator("#keys button").click()
    expect(page.locator("#history-list pre")).to_contain_text("…")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.get_by_role("button", name="Show all 100,002 characters").click()
    expect(page.locator("#history-list pre")).to_have_text(f'"{"v" * 100_000}"')
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_token_is_asked_for_and_stays_in_its_tab(visit: Visit, tmp_path: Path) -> None:
    allow = ("--allow", "read:*", "--db", str(tmp_path / "state.db"))
    token = run("token", "create", "--name", "viewer", *allow).out.strip()
    with holdlog.StateStore(tmp_path / "state.db") as store:
        store.claim("custom://secret", agent="ann")
        server = HttpServer(tmp_path / "state.db", cwd=tmp_path)
        try:
            page = visit(server.url, failures=True)
            dialog = page.get_by_role("dialog", name="Token required")
            for text, wrong in (("with blanks", "This is not a token"), ("holdlog_x_wrong", "not valid"), (token, "")):
                page.get_by_label("Token", exact=True).fill(text)
                page.keyboard.press("Enter")
                expect(dialog if text != token else page.locator("#claims-list")).to_contain_text(wrong or "secret")
            assert page.evaluate("[localStorage.length, document.cookie, location.href.includes('holdlog_')]") == [
                0,
                "",
                False,
            ]
            page.reload()
            expect(page.locator("#claims-list")).to_contain_text("secret")
            page.get_by_role("button", name="Forget token").click()
            expect(dialog).to_be_visible()
            assert "secret" not in page.content()
            assert page.evaluate("sessionStorage.length") == 0
        finally:
            server.close()
