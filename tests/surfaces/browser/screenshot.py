"""Makes docs/page.png: three agents at work on a real server, as the page shows them.

make screenshot
"""

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from holdlog import StateStore
from tests.support.http import http_server
from tests.surfaces.browser.conftest import CHROMIUM, OPTIONS

PICTURE = Path(__file__).parents[3] / "docs" / "page.png"
SIZE = {"width": 1280, "height": 760}


def work(store: StateStore) -> None:
    plan = {
        "goal": "parse() becomes read()",
        "steps": ["lexer", "parser"],
        "tests": {"written": 12, "green": 9},
        "tokens_left": 180_000,
    }
    store.set("plan", "parser", plan, updated_by="ann", expected_version=0)
    store.set("plan", "migration", 42, updated_by="cy", expected_version=0)
    store.set("decisions", "errors", "RFC 9457 problem details", updated_by="ann")
    store.set("decisions", "python", "3.11", updated_by="bob")
    store.set("ports", "postgres", 5433, updated_by="cy")
    store.claim("src/lexer.py", agent="ann")
    plan |= {"steps": ["lexer", "parser", "errors"], "tests": {"written": 14, "green": 12}, "tokens_left": 131_500}
    store.set("plan", "parser", plan, updated_by="ann", expected_version=1)
    store.release("src/lexer.py", agent="ann", outcome="modified", note="tokens carry their line now")
    store.claim("src/parser.py", agent="ann", note="parse() becomes read()", lease_seconds=900)
    store.claim("docs/", agent="cy", mode="shared", lease_seconds=1800)
    store.claim("docs/", agent="bob", mode="shared", lease_seconds=600)
    store.claim("custom://staging-db", agent="cy", note="migration 43", lease_seconds=58)
    stand_in_line(store, "src/parser.py", "bob/tests", "tests for read()")
    stand_in_line(store, "src/parser.py", "cy")
    stand_in_line(store, "custom://staging-db", "bob")
    store.set("plan", "migration", 43, updated_by="cy", expected_version=1)
    plan |= {"tests": {"written": 14, "green": 14}}
    store.set("plan", "parser", plan, updated_by="bob/tests", expected_version=2)


def stand_in_line(store: StateStore, resource: str, agent: str, note: str | None = None) -> None:
    """And stay there until the line is dissolved."""
    before = in_line(store)
    asked = {"agent": agent, "wait_seconds": 50, "note": note}
    threading.Thread(target=lambda: store.claim(resource, **asked), daemon=True).start()  # type: ignore[arg-type]
    while in_line(store) == before:
        time.sleep(0.01)


def in_line(store: StateStore) -> int:
    return sum(queue.length for queue in store.board().queues)


def main() -> int:
    if CHROMIUM is None:
        print("no chromium is installed here", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp())
    try:
        with StateStore(folder / "state.db") as store, http_server(folder / "state.db") as server:
            work(store)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
                page = browser.new_page(viewport=SIZE, reduced_motion="reduce")  # type: ignore[arg-type]
                page.goto(f"{server.url}/#/plan/parser")
                expect(page.locator("#history-list > li")).to_have_count(3)
                expect(page.locator(".line li")).to_have_count(3)
                page.mouse.move(0, 0)
                page.screenshot(path=PICTURE)
                browser.close()
            for resource in ("src/parser.py", "custom://staging-db"):  # those who wait are done, then
                for agent in ("ann", "cy", "bob/tests"):
                    store.release(resource, agent=agent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{PICTURE.name}: {PICTURE.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
