"""The calls about threads, over every store."""

import threading
import tracemalloc
from typing import Any

from holdlog.adapters.api.threads.conversation import AgentResult, new_result
from holdlog.adapters.api.threads.responses import ThreadItems
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from holdlog.domain.threads.commands import ReplaceResults


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "role": "user", "content": content}


def result(content: str) -> dict[str, Any]:
    return {"agent_name": "writer", "output": [text(content)], "created_at": "2026-11-21T12:00:00Z"}


def replace_results(engine: Engine, *contents: str) -> None:
    found = tuple(new_result(AgentResult.model_validate(result(it))) for it in contents)
    engine.writer.run(ReplaceResults(thread="t", results=found, by="ann"), NOBODY)


def page(engine: Engine, **bounds: Any) -> ThreadItems:
    found = engine.read(engine.requests.threads.page("t", **bounds))
    assert isinstance(found, ThreadItems)
    return found


def said(found: ThreadItems) -> list[str]:
    return [(it.message or it.result["output"][0])["content"] for it in found.items]


def append(engine: Engine, *messages: str, results: tuple[str, ...] = ()) -> None:
    told = [text(it) for it in messages], [result(it) for it in results]
    engine.write(engine.requests.threads.append("t", "ann", *told), NOBODY)


def test_thread_pages_return_the_current_items_from_either_end(engine: Engine) -> None:
    engine.write(engine.requests.threads.start("ann", "t", {"k": 1}), NOBODY)
    for number in range(3):
        append(engine, f"m-{number}", results=(f"r-{number}",))
    replace_results(engine, "r-9")
    append(engine, "m-3", results=("r-3",))
    standing = ["m-0", "m-1", "m-2", "r-9", "m-3", "r-3"]
    assert said(page(engine)) == standing
    forward, after = [], 0
    while len(forward) < len(standing):
        found = page(engine, after_version=after, limit=2)
        forward, after = [*forward, *said(found)], found.version
    assert forward == standing
    newest = page(engine, limit=4)
    assert said(newest) == standing[2:]
    assert said(page(engine, limit=4, before_version=newest.next_before)) == standing[:2]
    assert page(engine, after_version=after).items == []


def test_thread_page_between_empty_bounds_has_no_cursor(engine: Engine) -> None:
    engine.write(engine.requests.threads.start("ann", "t"), NOBODY)
    append(engine, *"abc")
    for bounds in ({"before_version": 0}, {"before_version": 1}, {"after_version": 3, "before_version": 2}):
        found = page(engine, **bounds)
        assert (found.items, found.version) == ([], bounds.get("after_version", 0))


def test_reader_of_a_thread_sees_every_message_once_while_others_append_and_clear(engine: Engine) -> None:
    engine.write(engine.requests.threads.start("ann", "t"), NOBODY)

    def write(name: str) -> None:
        for number in range(20):
            append(engine, f"{name}-{number}")
            if number % 5 == 0:
                replace_results(engine, f"r-{number}")

    writers = [threading.Thread(target=write, args=(name,)) for name in ("b", "c")]
    for writer in writers:
        writer.start()
    seen: list[str] = []
    after = 0
    while sum(not it.startswith("r") for it in seen) < 40:
        found = engine.wait(engine.requests.threads.next_page("t", after, 3, wait_seconds=30))
        assert isinstance(found, ThreadItems)
        assert found.items or found.cleared > after
        seen += said(found)
        after = found.version
    for writer in writers:
        writer.join()
    for name in ("b", "c"):
        assert [it for it in seen if it.startswith(name)] == [f"{name}-{number}" for number in range(20)]


def test_page_of_thread_data_uses_memory_for_one_page_only(engine: Engine) -> None:
    data = {f"k{number:02}": "x" * 200_000 for number in range(60)}
    engine.write(engine.requests.threads.start("ann", "t", data), NOBODY)
    tracemalloc.start()
    try:
        found = engine.read(engine.requests.thread_data.page("t", "k10"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert list(found.data) == ["k11", "k12", "k13", "k14", "k15"]
    assert (found.next_after, peak < 6_000_000) == ("k15", True)


def test_threads_are_listed_by_name_in_pages(engine: Engine) -> None:
    for name in ("b", "a/b", "Z", "ä"):
        engine.write(engine.requests.threads.start("ann", name), NOBODY)
    first = engine.read(engine.requests.threads.listed(limit=3))
    assert [it.thread_id for it in first.threads] == ["Z", "a/b", "b"]
    assert [it.thread_id for it in engine.read(engine.requests.threads.listed(after=first.next_after)).threads] == ["ä"]
