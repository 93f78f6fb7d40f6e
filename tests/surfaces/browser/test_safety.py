"""What agents wrote is text on the page, whatever it says; and who may see it."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from holdlog import StateStore
from holdlog.adapters.api.request import CommandRequest
from tests.support.http import HttpServer
from tests.support.page_policy import require_page_headers

pytestmark = pytest.mark.xdist_group("browser")

Visits = Callable[..., Page]

IMAGE = "<img src=//evil.example/i onerror=alert(1)>"
SCRIPT = "<script>alert(2)<\u2215script>"
TAG = "<svg onload=alert(3)><a href=javascript:alert(4)>x"
VALUE = {
    "</script><script>alert(5)</script>": "\"'><iframe srcdoc='<script>alert(6)</script>'>",
    "__proto__": {"polluted": True},
    "turned": "user\u202egnp.exe\u202c \u2066x\u2069 \u200b",
    "שלום": "عربي",
    "nul": "\u0000\u001b[31m",
}


@pytest.mark.check
def test_page_shows_markup_in_names_notes_and_values_as_text(
    visit: Visits, server: HttpServer, store: StateStore
) -> None:
    store.set(IMAGE, SCRIPT, {}, updated_by=TAG)
    store.set(IMAGE, SCRIPT, VALUE, updated_by=TAG)
    store.claim(f"custom://{IMAGE}", agent=TAG, note=SCRIPT)
    page = visit(server.url)
    claim = page.locator("#claim-list > li", has_text="evil.example")
    expect(claim).to_contain_text(f"custom://{IMAGE}")
    expect(claim).to_contain_text(f"“{SCRIPT}”")
    expect(claim).to_contain_text(TAG)
    page.locator("#namespaces").get_by_role("button", name=IMAGE).click()
    page.locator("#key-list a").click()
    written = page.locator("#history-list > li").first
    expect(written).to_contain_text(r'"turned": "user\u202egnp.exe\u202c \u2066x\u2069 \u200b"')
    expect(written).to_contain_text(r'"nul": "\u0000\u001b[31m"')
    expect(written).to_contain_text('"</script><script>alert(5)</script>"')
    expect(written).to_contain_text('"polluted": true')
    for strange in (IMAGE, TAG):
        for place in page.get_by_text(strange).all():
            if place.is_visible():
                place.hover()
    assert page.locator("main img, main script, main iframe, main svg, main [onerror], main [onload]").count() == 0
    assert page.locator("a:not([href^='#'])").count() == 0
    expect(page).to_have_title(re.compile(r"^holdlog · "))
    store.release(f"custom://{IMAGE}", agent=TAG)


@pytest.mark.check
def test_page_finds_names_made_of_url_characters(visit: Visits, server: HttpServer, store: StateStore) -> None:
    for name in ("a/b?c#d", "100%", "%2F", "..", "ünï ☃", "a+b&c=d"):
        store.set("odd/names?", name, f"is {name}", updated_by="ann")
    page = visit(server.url)
    page.locator("#namespaces").get_by_role("button", name="odd/names?").click()
    for name in ("a/b?c#d", "100%", "%2F", "ünï ☃", "a+b&c=d"):
        page.locator("#key-list").get_by_text(name, exact=True).click()
        expect(page.locator("#history-list")).to_contain_text(f'"is {name}"')
    page.locator("#key-list").get_by_text("..", exact=True).click()
    expect(page.locator("#values-wrong")).to_contain_text("Browsers cannot request")


def test_page_shows_a_large_value_in_part_until_it_is_expanded(
    visit: Visits, server: HttpServer, store: StateStore
) -> None:
    store.set("large", "text", "x" * 100_000, updated_by="ann")
    store.set("large", "list", list(range(10_000)), updated_by="ann")
    page = visit(server.url)
    page.goto(f"{server.url}/#/large/text")
    past = page.locator("#history-list")
    expect(past).to_contain_text("99,002 more characters")
    past.get_by_role("button", name="Show the whole value").click()
    expect(past.locator("pre")).to_have_text(f'"{"x" * 100_000}"')
    page.goto(f"{server.url}/#/large/list")
    expect(past).to_contain_text("9,702 more lines")
    assert page.evaluate("document.querySelectorAll('*').length") < 2_000


def test_server_sends_the_content_security_policy_of_the_page(visit: Visits, server: HttpServer) -> None:
    page = visit(server.url)
    answered = page.request.get(server.url)
    require_page_headers(answered.headers)
    again = page.request.get(server.url, headers={"If-None-Match": answered.headers["etag"]})
    assert again.status == 304


def test_page_marks_names_that_imitate_others(visit: Visits, server: HttpServer, store: StateStore) -> None:
    for resource, agent in (("custom://one", "\u0430nn"), ("custom://tw\u043e", "ben"), ("custom://three", "cleo")):
        store.claim(resource, agent=agent)
    command = store._engine.requests.claims.claim("custom://four", "dora").command.model_copy(
        update={"agent": "dora\u3164"}
    )
    store._engine.write(CommandRequest(command, lambda outcome: outcome), store._engine.caller)
    page = visit(server.url)
    for place, marks in (("#claim-list", [True, True, False]), ("#event-list", [True, True, False])):
        for resource, marked in zip(("custom://one", "custom://tw\u043e", "custom://three"), marks, strict=True):
            row = page.locator(f"{place} > li").filter(has_text=resource)
            expect(row.get_by_text("mixed scripts")).to_have_count(1 if marked else 0)
        expect(page.locator(f"{place} > li").filter(has_text="custom://four")).to_contain_text(r"dora\u3164")
    agents = page.locator("#agent-list > li").filter(has_text="mixed scripts")
    expect(agents).to_have_count(1)
    expect(agents).to_contain_text("\u0430nn")
    for resource, agent in (("custom://one", "\u0430nn"), ("custom://tw\u043e", "ben"), ("custom://three", "cleo")):
        store.release(resource, agent=agent)
    release = store._engine.requests.claims.release("custom://four", "boss", note="a test ends", forced=True)
    store._engine.write(release, store._engine.caller)
