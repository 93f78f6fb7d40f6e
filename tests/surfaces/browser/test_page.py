"""The page `/` in a browser, over a server process; what it shows is written by this process."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from holdlog import StateStore
from holdlog.adapters.compose import open_holdlog
from holdlog.domain.message import Caller
from tests.support.commands import redact
from tests.support.http import HttpServer, http_server
from tests.support.thread_story import append, change_data, fork, result, said, start

pytestmark = pytest.mark.xdist_group("browser")

Visits = Callable[..., Page]


def claim_of(page: Page, resource: str):  # type: ignore[no-untyped-def]
    return page.locator("#claim-list > li").filter(has=page.get_by_text(resource, exact=True))


@pytest.mark.check
def test_page_shows_writes_of_another_process_by_itself(visit: Visits, server: HttpServer, store: StateStore) -> None:
    store.set("live", "first", 1, updated_by="ann")
    page = visit(server.url)
    expect(page.get_by_role("status")).to_have_text("Live")
    page.locator("#namespaces").get_by_role("button", name="live").click()
    expect(page.locator("#key-list > li")).to_have_count(1)
    store.set("live", "second", {"left": 2000}, updated_by="bob")
    expect(page.locator("#key-list > li")).to_have_count(2)
    row = page.locator("#key-list > li", has_text="second")
    expect(row).to_contain_text('{"left":2000}')
    expect(row).to_contain_text("bob")
    expect(page.locator("#event-list > li").first).to_contain_text("bob wrote live/second")
    store.set("elsewhere", "key", 1, updated_by="bob")
    expect(page.locator("#namespaces").get_by_role("button", name="elsewhere")).to_be_visible()


@pytest.mark.check
def test_page_shows_names_with_the_authenticated_principal(visit: Visits, server: HttpServer) -> None:
    ci = Caller(principal="token:ci", session="s1", server="calls")
    engine = open_holdlog(Path(server.process.args[5]))  # type: ignore[index]
    engine.write(engine.requests.values.set("signed", "key", 1, "boss", None), ci)
    engine.claim(engine.requests.claims.claim("signed.py", "boss"), ci)
    engine.close()
    page = visit(server.url)
    shown = "boss (token ci)"
    expect(claim_of(page, "signed.py")).to_contain_text(shown)
    expect(page.locator("#agent-list > li").filter(has_text="boss")).to_contain_text(shown)
    expect(page.locator("#event-list > li").first).to_contain_text(f"{shown} claimed signed.py")
    page.locator("#namespaces").get_by_role("button", name="signed").click()
    expect(page.locator("#key-list > li")).to_contain_text([shown])
    page.get_by_role("link", name="key").filter(has_text="v1").click()
    expect(page.locator("#history-list > li")).to_contain_text([shown])


@pytest.mark.check
def test_page_shows_what_changed_in_the_history_of_a_key(visit: Visits, server: HttpServer, store: StateStore) -> None:
    budget = {"title": "May", "left": 10_000, "by": ["search", "social"], "serial": 12345678901234567890}
    store.set("money", "budget", budget, updated_by="ann")
    store.set("money", "budget", {**budget, "left": 2000, "by": ["search", "social", "mail"]}, updated_by="bob")
    page = visit(server.url)
    page.locator("#namespaces").get_by_role("button", name="money").click()
    page.get_by_role("link", name="budget").filter(has_text="v2").click()
    past = page.locator("#history-list > li")
    expect(past).to_have_count(2)
    expect(past.first.locator(".gone")).to_have_text(['removed: -   "left": 10000,\n'])
    expect(past.first.locator(".added")).to_have_text(['added: +   "left": 2000,\n', 'added: +     "mail"\n'])
    expect(past.first.locator(".added mark")).to_have_text(["2000"])
    expect(past.last.locator("pre")).to_contain_text('"serial": 12345678901234567890')
    store.delete("money", "budget", deleted_by="cy")
    expect(past).to_have_count(3)
    expect(past.first).to_contain_text("cydeleted")
    # It was the only value of its namespace, and this has been seen.
    expect(page.locator("#namespaces").get_by_role("button", name="money")).to_have_count(0)
    expect(page.get_by_text("3 versions, no value now")).to_be_visible()
    assert page.url.endswith("#/money/budget")
    page.reload()
    expect(past).to_have_count(3)


@pytest.mark.check
def test_page_shows_redacted_values_as_redacted(visit: Visits, server: HttpServer, store: StateStore) -> None:
    store.set("leaks", "token", "sk-1234567890", updated_by="ann")
    store.set("leaks", "token", "safe", updated_by="ann", expected_version=1)
    store.set("leaks", "other", "sk-0987654321", updated_by="ann")
    redact(store._engine.store, store.history("leaks", "token")[1].position)
    redact(store._engine.store, store.history("leaks", "other")[0].position)
    page = visit(server.url)
    page.locator("#namespaces").get_by_role("button", name="leaks").click()
    expect(page.locator("#key-list > li", has_text="other")).to_contain_text("redacted")
    page.get_by_role("link", name="token").filter(has_text="v2").click()
    past = page.locator("#history-list > li")
    expect(past.last).to_contain_text("The value was redacted.")
    expect(past.first).to_contain_text('"safe"')
    expect(page.locator("body")).not_to_contain_text("sk-")


@pytest.mark.check
def test_page_loads_a_long_history_in_parts(visit: Visits, server: HttpServer, store: StateStore) -> None:
    for number in range(45):
        store.set("long", "count", number, updated_by="ann")
    page = visit(server.url)
    page.goto(f"{server.url}/#/long/count")
    past = page.locator("#history-list > li")
    expect(past).to_have_count(20)
    store.set("long", "count", "new", updated_by="ann")
    expect(past.first).to_contain_text("v46")
    expect(past).to_have_count(20)
    for shown in (40, 46):
        page.get_by_role("button", name="Show older versions").click()
        expect(past).to_have_count(shown)
    expect(page.get_by_role("button", name="Show older versions")).to_be_hidden()


@pytest.mark.check
def test_page_shows_a_claim_with_its_waiters(visit: Visits, server: HttpServer, store: StateStore) -> None:
    page = visit(server.url)
    expect(page.get_by_role("status")).to_have_text("Live")
    store.claim("src/queue.py", agent="ann", note="renaming it", lease_seconds=900)
    row = claim_of(page, "src/queue.py")
    expect(row).to_contain_text("ann")
    expect(row).to_contain_text("“renaming it”")
    expect(row.locator(".lease > :first-child")).to_have_text("14:58")  # it counts down
    asked = {"agent": "bob", "wait_seconds": 30, "note": "tests for it"}
    waiting = threading.Thread(target=lambda: store.claim("src/queue.py", **asked))  # type: ignore[arg-type]
    waiting.start()
    expect(row.locator(".line li")).to_contain_text(["bob"])
    expect(row.locator(".line li")).to_contain_text(["“tests for it”"])
    expect(page.locator("#agent-list > li", has_text="bob")).to_contain_text("waits for 1")
    store.release("src/queue.py", agent="ann", outcome="modified")
    expect(row.locator(".hold")).to_contain_text("bob")
    expect(row.locator(".line li")).to_have_count(0)
    waiting.join(10)
    store.release("src/queue.py", agent="bob")
    expect(row).to_have_count(0)


def test_page_filters_by_one_agent(visit: Visits, server: HttpServer, store: StateStore) -> None:
    store.claim("src/eve.py", agent="eve")
    store.claim("src/fay.py", agent="fay")
    page = visit(server.url)
    page.locator("#agent-list").get_by_role("button", name="eve").click()
    expect(claim_of(page, "src/fay.py")).to_have_count(0)
    expect(claim_of(page, "src/eve.py")).to_be_visible()
    expect(page.locator("#event-list > li")).to_contain_text(["eve claimed src/eve.py"])
    page.keyboard.press("/")
    page.keyboard.type("nothing like that")
    expect(page.locator("#claims-empty")).to_contain_text("Nothing here matches")
    page.keyboard.press("Escape")
    expect(claim_of(page, "src/fay.py")).to_be_visible()
    for agent in ("eve", "fay"):
        store.release(None, agent=agent)  # type: ignore[arg-type]


def test_page_filters_and_pauses_the_latest_events(visit: Visits, server: HttpServer, store: StateStore) -> None:
    page = visit(server.url)
    expect(page.get_by_role("status")).to_have_text("Live")
    first = page.locator("#event-list > li").first
    store.set("feed", "a", 1, updated_by="ann")
    expect(first).to_contain_text("feed/a")
    page.get_by_role("button", name="Pause").click()
    store.set("feed", "b", 1, updated_by="ann")
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    expect(first).to_contain_text("feed/a")
    page.get_by_role("button", name="Resume (1 new)").click()
    expect(first).to_contain_text("feed/b")
    page.locator("#events").get_by_role("button", name="Values").click()
    expect(page.get_by_text("ann wrote feed/b")).to_have_count(0)


def test_page_shows_thread_events_as_text(visit: Visits, server: HttpServer, store: StateStore) -> None:
    page = visit(server.url)
    expect(page.get_by_role("status")).to_have_text("Live")
    engine, thread = store._engine, "run <i>7</i>"
    start(engine, thread, plan=1)
    append(engine, said("<img src=//evil.example/i>\u202e"), result("a.py", "<b>writer</b>"), thread=thread)
    change_data(engine, {"<b>files</b>": [], "plan": 2}, thread=thread)
    change_data(engine, {}, "plan", thread=thread)
    fork(engine, "run 8", thread)
    rows = page.locator("#event-list > li")
    for sentence in (
        f"ann started thread {thread}",
        f"ann added a message to thread {thread}",
        r"<img src=//evil.example/i>\u202e",
        f"<b>writer</b>’s result was added to thread {thread}",
        f"ann changed the data of thread {thread}: wrote <b>files</b>, plan",
        f"ann changed the data of thread {thread}: deleted plan",
        f"ann started thread run 8 from {thread}",
    ):
        expect(rows.filter(has_text=sentence).first).to_be_visible()


@pytest.mark.check
def test_page_shows_the_rules_of_the_repository(visit: Visits, tmp_path: Path) -> None:
    (tmp_path / ".holdlog").mkdir()
    rules = '"<b>x</b>/**" = "warn"\n"LICENSE" = "human"\n"*.lock" = "across-worktrees"\n'
    (tmp_path / "holdlog.toml").write_text(f"[paths]\n{rules}")
    with http_server(tmp_path / "state.db", env={"CLAUDE_PROJECT_DIR": str(tmp_path)}) as server:
        page = visit(server.url)
        page.locator("#rules summary").get_by_text("3 rules of holdlog.toml").click()
        expect(page.locator("#rules li")).to_have_text(
            [
                "<b>x</b>/** · others are only warned · line 2",
                "LICENSE · only a person may change it · line 3",
                "*.lock · one agent at a time, in all worktrees · line 4",
            ]
        )
        (tmp_path / "holdlog.toml").write_text("[paths\n")
        page.reload()
        expect(page.locator("#rules summary")).to_have_text("holdlog.toml:1 is not in force, so the defaults apply")


@pytest.mark.check
def test_page_of_an_empty_store_explains_what_to_do(own_server: HttpServer, visit: Visits) -> None:
    page = visit(own_server.url)
    expect(page.get_by_text("holdlog claim src/parser.py --agent ann")).to_be_visible()
    expect(page.get_by_text("holdlog set plan parser")).to_be_visible()
    expect(page.get_by_text("Nothing has happened yet")).to_be_visible()
