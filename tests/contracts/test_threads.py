"""Threads in every store: what is appended stands in order, is found again at any version, and is nobody else's."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.runtime.command_handler import handle, prefetch
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Store
from holdlog.domain.refusals import DataConflictError, HoldlogError, InvalidError, NotFoundError, ReusedError
from holdlog.domain.threads import changing
from holdlog.domain.threads.changing import MAX_DETAILS
from holdlog.domain.threads.commands import ThreadChanged, ThreadCommand
from holdlog.domain.threads.past import data_at, items_at
from holdlog.domain.threads.thread import KINDS, ItemKind, Thread
from tests.support.clock import SECOND, Clock
from tests.support.commands import (
    PATIENCE,
    did,
    put,
    require_chained,
    require_views_equal_the_log,
    transact,
    whole_log,
    write,
)
from tests.support.threads import (
    Holds,
    append,
    change_data,
    checksum,
    fork,
    held,
    item,
    message,
    replace,
    result,
    results,
    start,
)


def holds(store: Store, thread: str = "t", version: int | None = None) -> Holds:
    """What it held at a version, or holds."""
    with store.snapshot() as reader:
        found = reader.thread(thread)
        version = found.version if version is None else version
        data = {key: value.value for key, value in data_at(reader, found, version).items()}
        return Holds(data, [item(it.event) for it in items_at(reader, thread, version)])


def together(store: Store, *commands: ThreadCommand, ahead: bool = True) -> list[ThreadChanged]:
    """All in one transaction, as the writer runs a batch."""
    told = []
    with store.transaction(time.monotonic() + PATIENCE, (lambda: prefetch(commands)) if ahead else None) as transaction:
        for command in commands:
            outcome = handle(command, NOBODY, transaction)
            assert isinstance(outcome, ThreadChanged)
            told.append(outcome)
    return told


def a_long_story(store: Store) -> None:
    """A thread `t` of 16 events, beside others."""
    did(store, start("s", left=1))
    did(store, start(plan="x", draft=None))  # 1, 2
    did(store, append(message("hi"), result("a"), result("b")))  # 3, 4, 5
    did(store, append(message("s"), result("a"), thread="s"))
    did(store, change_data(2, "draft", plan="y"))  # 6
    did(store, replace(*results("ca")))  # 7, 8, 9
    write(store, "k", 1)
    did(store, append(message("ho"), result("b")))  # 10, 11
    did(store, change_data(None, "plan"))  # 12
    did(store, change_data(12, plan="z", é=[1]))  # 13
    did(store, replace())  # 14
    did(store, append(result("a"), message("hey")))  # 15, 16


# --- what commands do


def test_thread_that_was_never_started_is_empty(store: Store) -> None:
    with store.reader() as reader:
        assert reader.thread("t") == Thread("t")
        assert reader.threads(None, -1) == []
        assert reader.thread_events("t", KINDS, 0, None, -1, newest=True) == []
        assert reader.checksums("t", 0, None) == reader.checksums("t", 0, [checksum("a")]) == []
        assert reader.thread_data("t", None) == reader.thread_data("t", ["a"]) == []
        assert reader.changed_keys("t", 0, -1) == []
        assert reader.version_at("thread:t", 10, None) == reader.version_at("thread:t", None, 10**18) == 0


def test_a_thread_is_started_once_and_then_resumed(store: Store, clock: Clock) -> None:
    begun = did(store, start(plan="x"))
    assert begun == ThreadChanged("t", 2, 2, 2, created=True)
    clock.move(5)
    assert did(store, start(by="bob", plan="other")) == ThreadChanged("t", 2, 2, 2)
    with store.reader() as reader:
        found = reader.thread("t")
    assert (found.started_by, found.updated_by, found.started_at) == ("ann", "ann", 1_000 * SECOND)
    assert holds(store) == Holds({"plan": "x"}, [])


def test_append_returns_what_is_new_and_what_existed(store: Store) -> None:
    a, b = map(checksum, "ab")
    did(store, start())
    told = did(store, append(message("hi"), result("a")))
    assert told == ThreadChanged("t", 3, 0, 3, appended=2, checksums=(a,), messages=1, results=1)
    told = did(store, append(result("a"), message("hi"), result("b")))
    assert told == ThreadChanged("t", 5, 0, 5, appended=2, already=1, checksums=(a, b), messages=2, results=2)
    told = did(store, append(result("b"), result("a"), by="bob"))
    assert told == ThreadChanged("t", 5, 0, 5, already=2, checksums=(b, a), messages=2, results=2)
    assert holds(store) == Holds({}, ["m:hi", "r:a", "m:hi", "r:b"])


def test_cleared_result_can_be_appended_again_and_is_stored_once(store: Store) -> None:
    did(store, start())
    for _ in range(3):
        assert did(store, append(*results("ab"))).appended == 2
        assert did(store, append(*results("ab"))).already == 2
        assert did(store, replace()).version
    assert did(store, append(*results("ba"))).appended == 2
    assert holds(store) == Holds({}, ["r:b", "r:a"])
    with store.reader() as reader:
        assert reader.thread("t").results == 2
        assert reader.checksums("t", 0, None) == list(map(checksum, "abababba"))
        assert reader.checksums("t", reader.thread("t").cleared, None) == list(map(checksum, "ba"))


def test_results_are_replaced_by_as_few_events_as_it_takes(store: Store) -> None:
    did(store, start())
    for wanted, version in [("ab", 3), ("abc", 4), ("abc", 4), ("cba", 8), ("cb", 11), ("", 12), ("", 12), ("a", 13)]:
        assert did(store, replace(*results(wanted))).version == version
        assert holds(store).items == [f"r:{name}" for name in wanted]


def test_thread_data_is_changed_under_the_version_the_caller_knows(store: Store) -> None:
    did(store, start())
    assert did(store, change_data(0, a=1, b=2)) == ThreadChanged("t", 2, 2, 2)
    did(store, append(message("hi")))
    assert did(store, change_data(2, "b", "never", a=3)) == ThreadChanged("t", 4, 4, 4, deleted=("b",), messages=1)
    assert did(store, change_data(4, "b")) == ThreadChanged("t", 4, 4, 4, messages=1)
    assert did(store, change_data(None, c=None)).data_version == 5
    assert holds(store).data == {"a": 3, "c": None}


@pytest.mark.parametrize("expected", [0, 2, 3, 9])
def test_data_conflict_names_the_changed_keys_and_changes_nothing(store: Store, expected: int) -> None:
    did(store, start(a=1))
    did(store, change_data(2, "a", b=1))
    did(store, change_data(3, b=2))
    with pytest.raises(DataConflictError) as refused:
        did(store, change_data(expected, a=2))
    changed = {0: ("a", "b"), 2: ("a", "b"), 3: ("b",), 9: ()}[expected]
    detail = refused.value.detail
    assert (detail.actual_data_version, detail.expected_data_version, detail.changed_keys) == (4, expected, changed)
    assert holds(store).data == {"b": 2}


def test_data_conflict_names_at_most_a_hundred_keys(store: Store) -> None:
    did(store, start())
    did(store, change_data(0, **{f"k{number:03}": number for number in range(MAX_DETAILS + 5)}))
    with pytest.raises(DataConflictError) as refused:
        did(store, change_data(0, a=2))
    assert refused.value.detail.changed_keys == tuple(f"k{number:03}" for number in range(MAX_DETAILS))


@pytest.mark.parametrize("command", [append(message("hi")), replace(result("a")), change_data(a=1), fork("new")])
def test_command_for_a_missing_thread_does_nothing(store: Store, command: ThreadCommand) -> None:
    with pytest.raises(NotFoundError, match="thread t does not exist; start it first"):
        did(store, command)
    assert whole_log(store) == []


def test_repeated_thread_request_gets_the_same_response(store: Store) -> None:
    for number, command in enumerate([start(a=1), append(message("hi")), change_data(None, "a"), fork("f")]):
        caller = Caller(request_id=f"r{number}")
        first = did(store, command, caller)
        assert did(store, append(message("between"), thread="t")).version
        assert did(store, command, caller) == first
        with pytest.raises(ReusedError):
            did(store, append(message("other")), caller)
    assert holds(store).items == ["m:between", "m:hi", "m:between", "m:between", "m:between"]


# --- forks and the past


def test_thread_at_every_version_matches_its_events(store: Store) -> None:
    a_long_story(store)
    with store.snapshot() as reader:
        events = reader.history("thread:t", None, -1)[::-1]
    assert len(events) == 16
    for version in range(17):
        assert holds(store, version=version) == held(events[:version])
    assert held(events) == Holds({"plan": "z", "é": [1]}, ["m:hi", "m:ho", "r:a", "m:hey"])


def test_fork_at_any_version_equals_its_parent_there_and_changes_independently(store: Store) -> None:
    a_long_story(store)
    before = holds(store)
    for version in range(1, 17):
        name = f"fork {version}"
        expected = holds(store, version=version)
        told = did(store, fork(name, version=version, by="bob"))
        assert told.created
        assert told.appended == len(expected.items)
        assert holds(store, name) == expected
        with store.reader() as reader:
            found = reader.thread(name)
        assert (found.parent, found.parent_version, found.started_by) == ("t", version, "bob")
        did(store, append(message("mine"), result("mine"), thread=name))
        did(store, change_data(None, plan="mine", thread=name))
    assert holds(store) == before
    require_chained(store)
    require_views_equal_the_log(store)


def test_fork_without_a_version_copies_the_current_thread(store: Store) -> None:
    a_long_story(store)
    did(store, fork("new"))
    with store.reader() as reader:
        assert reader.thread("new").parent_version == 16
    assert holds(store, "new") == holds(store)


def test_fork_of_a_fork_knows_its_direct_parent(store: Store) -> None:
    did(store, start())
    did(store, append(result("a")))
    did(store, fork("one"))
    did(store, append(result("b"), thread="one"))
    did(store, fork("two", "one", 3))
    assert holds(store, "two").items == ["r:a", "r:b"]
    assert did(store, append(result("a"), thread="two")).already == 1


def test_invalid_fork_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    did(store, start())
    did(store, append(*results("abc")))
    did(store, start("there"))
    refusals = [
        (fork("there"), "thread already exists"),
        (fork("t"), "already exists"),
        (fork("f", version=5), "parent_version: the parent ends at version 4; pass that or less"),
    ]
    monkeypatch.setattr(changing, "MAX_COPIED", 2)
    for command, said in [*refusals, (fork("f"), "copies at most"), (fork("f", version=4), "copies at most")]:
        with pytest.raises(InvalidError, match=said):
            did(store, command)
    assert did(store, fork("f", version=3)).appended == 2
    with store.reader() as reader:
        assert [it.thread for it in reader.threads(None, -1)] == ["f", "t", "there"]


def test_fork_too_large_for_one_transaction_is_refused_and_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    did(store, start(a="x" * 40))
    did(store, append(*[message(["x" * 10]) for _ in range(3)]))
    monkeypatch.setattr(changing, "MAX_COPIED_CHARACTERS", 70)
    for name, version in (("f", 4), ("d", 2)):
        assert did(store, fork(name, version=version)).created
    for limit in (70, 30):
        monkeypatch.setattr(changing, "MAX_COPIED_CHARACTERS", limit)
        with pytest.raises(InvalidError, match=f"parent: has more than {limit} characters"):
            did(store, fork("g"))
    with store.reader() as reader:
        assert [it.thread for it in reader.threads(None, -1)] == ["d", "f", "t"]


def test_fork_far_back_in_a_long_history_of_data_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    did(store, start(a=0))
    for number in range(1, 5):
        did(store, change_data(a=number))
    monkeypatch.setattr(changing, "MAX_REPLAYED", 3)
    with pytest.raises(InvalidError, match="parent_version: more than 3 changes"):
        did(store, fork("f", version=5))
    for name, version in (("back", 4), ("now", 6)):
        assert did(store, fork(name, version=version)).created


def test_thread_version_at_a_position_and_at_a_time_is_found(store: Store, clock: Clock) -> None:
    for number in range(1, 12):
        clock.move(1)
        did(store, append(message(number)) if number > 1 else start())
        if number % 3 == 0:
            did(store, append(message(number)))
        write(store, "k", number)
    log = whole_log(store)
    moments = range(1_000 * SECOND, 1_013 * SECOND, SECOND // 2)
    with store.reader() as reader:
        for stream in ("thread:t", "record:n/k", "thread:none"):
            versions = [(it.envelope.position, it.envelope.at) for it in log if it.envelope.stream == stream]
            for position in range(len(log) + 2):
                assert reader.version_at(stream, position, None) == sum(at <= position for at, _ in versions)
            for moment in moments:
                assert reader.version_at(stream, None, moment) == sum(at <= moment for _, at in versions)
            assert reader.version_at(stream, None, None) == len(versions)


# --- what readers find


@pytest.mark.check
@pytest.mark.parametrize("kinds", [("message",), ("result",), ("message", "result"), ("data",), ("clear",), KINDS])
def test_thread_events_between_versions_are_limited_to_the_given_number(
    store: Store, kinds: tuple[ItemKind, ...]
) -> None:
    a_long_story(store)
    topics = {
        "message": "MessageAppended",
        "result": "ResultAppended",
        "clear": "ResultsCleared",
        "data": "ThreadDataChanged",
    }
    with store.snapshot() as reader:
        events = [it for it in reader.log(0, -1) if it.envelope.stream == "thread:t"]
        wanted = [it for it in events if it.envelope.topic in {topics[kind] for kind in kinds}]
        for after in (0, 3, 9, 16):
            for before in (None, 1, 10, 17):
                between = [it for it in wanted if after < it.envelope.version < (before or 99)]
                for limit in (-1, 0, 1, 2, 100):
                    first = None if limit < 0 else limit
                    found = reader.thread_events("t", kinds, after, before, limit, newest=False)
                    assert found == between[:first]
                    found = reader.thread_events("t", kinds, after, before, limit, newest=True)
                    assert found == between[::-1][:first]


def test_history_of_a_thread_key_has_its_changes_and_no_others(store: Store) -> None:
    a_long_story(store)
    with store.reader() as reader:

        def versions(key: str, limit: int = -1, newest: bool = True, after: int = 0, before: int | None = None) -> Any:
            found = reader.thread_events("t", ("data",), after, before, limit, newest, key)
            return [it.envelope.version for it in found]

        assert versions("plan") == [13, 12, 6, 2]
        assert versions("plan", limit=2) == [13, 12]
        assert versions("plan", newest=False, limit=3) == [2, 6, 12]
        assert versions("plan", after=2, before=13) == [12, 6]
        assert versions("draft") == [6, 2]
        assert versions("é") == [13]
        assert versions("pla") == versions("plan ") == versions("") == versions("left") == []


def test_checksums_of_results_are_found_with_their_indexes(store: Store) -> None:
    a_long_story(store)
    with store.reader() as reader:
        assert reader.checksums("t", 0, None) == list(map(checksum, "abcaba"))
        assert reader.checksums("t", 9, None) == list(map(checksum, "ba"))
        assert sorted(reader.checksums("t", 9, list(map(checksum, "abcx")))) == sorted(map(checksum, "ab"))
        assert reader.checksums("t", 15, list(map(checksum, "ab"))) == []
        assert reader.checksums("s", 0, list(map(checksum, "abc"))) == [checksum("a")]
        assert reader.checksums("t", 0, []) == []


def test_thread_data_is_found_by_key(store: Store) -> None:
    a_long_story(store)
    with store.reader() as reader:
        assert [(it.key, it.version, it.value.value) for it in reader.thread_data("t", None)] == [
            ("plan", 13, "z"),
            ("é", 13, [1]),
        ]
        assert [it.key for it in reader.thread_data("t", ["é", "plan", "plan", "draft", "left", ""])] == ["plan", "é"]
        assert reader.thread_data("t", []) == []
        for after, limit, keys in [(None, 1, ["plan"]), ("plan", 9, ["é"]), ("draft", -1, ["plan", "é"]), ("é", 1, [])]:
            assert [it.key for it in reader.thread_data("t", None, after, limit)] == keys
        assert reader.changed_keys("t", 0, -1) == ["draft", "plan", "é"]
        assert reader.changed_keys("t", 6, -1) == ["plan", "é"]
        assert reader.changed_keys("t", 0, 1) == ["draft"]
        assert reader.changed_keys("t", 13, -1) == []


def test_threads_are_listed_by_name_in_pages(store: Store) -> None:
    names = ["a", "a b", "a%2Fb", "a/b", "b", "é", "\U0010ffff", "x" * 512]
    for name in reversed(names):
        did(store, start(name))
    with store.reader() as reader:
        assert [it.thread for it in reader.threads(None, -1)] == sorted(names)
        assert [it.thread for it in reader.threads("a%2Fb", 2)] == ["a/b", "b"]
        assert reader.threads("\U0010ffff", 5) == []
    for name in names:
        did(store, append(result("a"), message(name), thread=name))
        did(store, change_data(0, k=name, thread=name))
        assert holds(store, name) == Holds({"k": name}, ["r:a", f"m:{name}"])
    require_views_equal_the_log(store)


# --- many in one transaction


@pytest.mark.parametrize("ahead", [True, False])
def test_commands_of_one_transaction_see_each_other(store: Store, ahead: bool) -> None:
    did(store, start("old", a=1))
    did(store, append(result("a"), thread="old"))
    commands = [
        start(a=1),
        start(a=2),
        append(message("hi"), result("a"), result("b")),
        append(result("b"), result("c")),
        change_data(2, a=3),
        change_data(7, "a", c=4),
        change_data(8, "a", "c"),
        replace(*results("bc")),
        append(*results("acd")),
        fork("new"),
        fork("newer", version=6),
        append(result("e"), thread="new"),
        append(result("a"), result("f"), thread="old"),
        replace(thread="old"),
        append(result("a"), thread="old"),
        change_data(None, "a", z=1, thread="old"),
    ]
    alone = open_memory()
    for command in (start("old", a=1), append(result("a"), thread="old"), *commands):
        did(alone, command)
    told = together(store, *commands, ahead=ahead)
    assert [it.already for it in told if it.already] == [1, 1, 1]
    for name in ("t", "old", "new", "newer"):
        assert holds(store, name) == holds(alone, name)
    with store.reader() as ours, alone.reader() as theirs:
        strange = {"started_at": 0, "updated_at": 0}
        assert [it._replace(**strange) for it in ours.threads(None, -1)] == [
            it._replace(**strange) for it in theirs.threads(None, -1)
        ]
    require_chained(store)
    require_views_equal_the_log(store)


def test_failed_transaction_leaves_no_thread_row(store: Store) -> None:
    did(store, start(a=1))
    did(store, append(result("a")))
    with pytest.raises(HoldlogError):
        together(store, append(result("b")), change_data(2, a=2), start("new"), change_data(2, a=3))
    assert holds(store) == Holds({"a": 1}, ["r:a"])
    assert did(store, append(result("b"))).version == 4
    with store.reader() as reader:
        assert [it.thread for it in reader.threads(None, -1)] == ["t"]
    require_views_equal_the_log(store)


def test_refused_thread_command_leaves_the_others_of_its_batch_alone(store: Store) -> None:
    did(store, start(a=1))
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        for command in (append(result("a")), change_data(0, a=2), append(result("a"), result("b"))):
            try:
                handle(command, NOBODY, transaction)
            except DataConflictError:
                continue
        handle(transact(put("k", 1)), NOBODY, transaction)
    assert holds(store) == Holds({"a": 1}, ["r:a", "r:b"])
    require_views_equal_the_log(store)


def test_concurrent_appends_lose_nothing_and_store_no_result_twice(place: str) -> None:
    count, writers = 20, 4
    with StateStore(place) as one:
        writer = one._engine.writer
        writer.run(start(), NOBODY)

        def work(number: int) -> int:
            known = 0
            for turn in range(count):
                told = writer.run(append(message(f"{number}.{turn}"), result(f"shared {turn}")), NOBODY)
                assert isinstance(told, ThreadChanged)
                known += told.already
            return known

        with ThreadPoolExecutor(writers) as pool:
            known = sum(pool.map(work, range(writers)))
        store = one._engine.store
        assert known == count * (writers - 1)
        found = holds(store)
        assert len(found.items) == count * (writers + 1)
        for number in range(writers):
            mine = [it for it in found.items if it.startswith(f"m:{number}.")]
            assert mine == [f"m:{number}.{turn}" for turn in range(count)]
        require_chained(store)
        require_views_equal_the_log(store)
