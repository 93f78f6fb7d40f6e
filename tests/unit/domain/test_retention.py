"""Which payloads are due, over random histories."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.domain.ports import Store
from holdlog.domain.retention import MAX_CHANGED, ApplyRetention, ChangeRetention, RetentionApplied, due, is_due
from holdlog.domain.store_log import PayloadRedacted
from tests.support.clock import SECOND, Clock
from tests.support.commands import (
    change,
    drop,
    put,
    redact,
    require_chained,
    require_views_equal_the_log,
    run,
    whole_log,
    write,
)

KEPT = 100
"""Seconds."""
STEPS = st.lists(
    st.tuples(st.sampled_from(["n", "n/a", "m"]), st.sampled_from("ab"), st.sampled_from(["put", "drop", "wait"])),
    max_size=40,
)


def due_versions(store: Store, examined: int, most: int) -> set[tuple[str, int]]:
    """All versions that are due, found in steps."""
    found: set[tuple[str, int]] = set()
    done: dict[str, int] = {}
    more = True
    while more:
        with store.reader() as reader:
            part = due(reader, reader.store_log(), done, examined, most)
        versions = {(it.stream, version) for it in part.former for version in range(it.first, it.last + 1)}
        assert not versions & found
        found |= versions
        done, more = dict(part.done), part.more
    return found


@given(steps=STEPS, examined=st.integers(1, 50), most=st.integers(1, 20))
def test_versions_whose_successors_are_old_enough_are_due_once(
    steps: list[tuple[str, str, str]], examined: int, most: int
) -> None:
    clock = Clock()
    store = open_memory(clock, clock.steady)
    run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    live: set[tuple[str, str]] = set()
    for namespace, key, step in steps:
        match step:
            case "put":
                change(store, put(key, 1, namespace=namespace))
                live.add((namespace, key))
            case "drop" if (namespace, key) in live:
                change(store, drop(key, namespace=namespace))
                live.discard((namespace, key))
            case _:
                clock.pass_by(30)
    with store.reader() as reader:
        events = [it.envelope for it in reader.log(0, -1)]
        now = reader.at
    expected = {
        (it.stream, version)
        for it in events
        if it.stream.startswith("record:n/") and it.at <= now - KEPT * SECOND
        for version in range(1, it.version)
    }
    assert due_versions(store, examined, most) == expected
    store.close()


def apply_all(store: Store) -> int:
    """How many payloads were removed."""
    removed, more = 0, True
    while more:
        outcome = run(store, ApplyRetention())
        assert isinstance(outcome, RetentionApplied)
        removed, more = removed + outcome.removed, outcome.more
    return removed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Iterator[Store]:
    opened = open_memory(clock, clock.steady)
    yield opened
    opened.close()


def redacted(store: Store) -> list[str]:
    return [f"{it.envelope.stream}@{it.envelope.version}" for it in whole_log(store) if it.redacted]


def test_former_values_are_removed_after_their_time_and_current_ones_stay(store: Store, clock: Clock) -> None:
    run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    for value in (1, 2, 3):
        write(store, "a", value)
    write(store, "b", 1)
    change(store, drop("b"))
    write(store, "c", 1, namespace="m")
    write(store, "c", 2, namespace="m")
    clock.pass_by(KEPT - 1)
    assert (apply_all(store), redacted(store)) == (0, [])
    clock.pass_by(2)
    assert apply_all(store) == 3
    assert redacted(store) == ["record:n/a@1", "record:n/a@2", "record:n/b@1"]
    assert not is_due_now(store)
    require_chained(store)
    require_views_equal_the_log(store)


def test_event_of_a_clock_that_was_ahead_makes_nothing_due(store: Store, clock: Clock) -> None:
    run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    write(store, "a", 1)
    write(store, "a", 2)
    then = clock.now
    clock.pass_by(KEPT * 10)
    write(store, "a", 3)
    clock.now = then
    assert (is_due_now(store), apply_all(store), redacted(store)) == (False, 0, [])
    clock.pass_by(KEPT + 1)
    assert apply_all(store) == 1
    assert redacted(store) == ["record:n/a@1"]


def test_values_of_a_key_that_are_due_together_are_one_event(store: Store, clock: Clock) -> None:
    run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    for value in range(6):
        write(store, "a", value)
    redact(store, 4)
    clock.pass_by(KEPT + 1)
    assert apply_all(store) == 4
    events = [it for it in whole_log(store) if isinstance(it.event, PayloadRedacted)]
    assert [(it.event.versions, it.event.by, it.envelope.caller.reason) for it in events] == [
        (((3, 3),), "boss", "leaked"),
        (((1, 2), (4, 5)), "holdlog", "retention"),
    ]


def test_long_history_is_removed_in_parts(store: Store, clock: Clock) -> None:
    run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    change(store, *(put("a", value) for value in range(MAX_CHANGED + 10)))
    clock.pass_by(KEPT + 1)
    first = run(store, ApplyRetention())
    assert isinstance(first, RetentionApplied)
    assert (first.removed, first.more) == (MAX_CHANGED - 1, True)
    assert apply_all(store) == 10
    require_views_equal_the_log(store)


def test_changed_retention_applies_to_what_is_left(store: Store, clock: Clock) -> None:
    run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    write(store, "a", 1)
    write(store, "a", 2)
    run(store, ChangeRetention(namespace="n", seconds=None, by="ann"))
    clock.pass_by(KEPT + 1)
    assert (apply_all(store), is_due_now(store)) == (0, False)
    run(store, ChangeRetention(namespace="n", seconds=10, by="ann"))
    assert apply_all(store) == 1


def test_same_retention_again_records_nothing(store: Store) -> None:
    for _ in range(2):
        run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    assert len(whole_log(store)) == 1


def is_due_now(store: Store) -> bool:
    with store.reader() as reader:
        return is_due(reader)
