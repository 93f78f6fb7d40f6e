"""What may happen to a thread."""

from typing import Any

import pytest
from pydantic import ValidationError

from holdlog.domain.message import Event
from holdlog.domain.refusals import DataConflictError, HoldlogError, InvalidError, NotFoundError
from holdlog.domain.threads import commands, deciding, thread
from holdlog.domain.threads.commands import (
    MAX_APPENDED,
    MAX_COPIED,
    MAX_KEYS,
    Append,
    ChangeData,
    NewResult,
    ReplaceResults,
    ThreadCommand,
)
from holdlog.domain.threads.deciding import Copy, DecisionContext
from holdlog.domain.threads.thread import (
    MessageAppended,
    ResultAppended,
    ResultsCleared,
    Thread,
    ThreadDataChanged,
    ThreadEvent,
    ThreadStarted,
)
from holdlog.domain.value import NULL, Json
from holdlog.projections.threads import DATA, ITEMS, details
from tests.support.threads import append, change_data, checksum, fork, message, replace, result, results, start

SECOND = 1_000_000
STARTED = ThreadStarted(by="ann")
CLEARED = ResultsCleared(by="ann")


def said(text: str, by: str = "ann") -> MessageAppended:
    return MessageAppended(value=Json.of(text), by=by)


def found(name: str, by: str = "ann") -> ResultAppended:
    return ResultAppended(value=Json.of(name), agent="writer", checksum=checksum(name), by=by)


def changed(*deleted: str, by: str = "ann", **written: Any) -> ThreadDataChanged:
    return ThreadDataChanged(value=Json.of(written), written=tuple(written), deleted=deleted, by=by)


def after(*events: ThreadEvent) -> Thread:
    """The n-th event happens n seconds after 1970."""
    state = Thread("t")
    for number, event in enumerate(events, start=1):
        state = thread.evolve(state, event, number * SECOND)
    return state


class given:
    def __init__(self, *events: ThreadEvent) -> None:
        self._state = after(*events)

    def when(
        self, command: ThreadCommand, checksums: str = "", keys: str = "", since: str = "", copy: Copy | None = None
    ) -> "given":
        """What stands, a letter for each: results by name, keys that have a value, keys changed since."""
        self._command, self._copy = command, copy
        self._standing = DecisionContext([checksum(it) for it in checksums], set(keys), list(since))
        return self

    def then(self, *expected: Event) -> None:
        assert self._decide() == list(expected)

    def refused(self, kind: type[HoldlogError], told: str) -> Any:
        with pytest.raises(kind, match=told) as refused:
            self._decide()
        return refused.value

    def _decide(self) -> list[ThreadEvent]:
        return deciding.decide(self._command, self._state, self._standing, self._copy)


# --- to start and to fork


def test_a_thread_is_started_with_data_or_without() -> None:
    given().when(start()).then(STARTED)
    given().when(start(plan="x", n=1)).then(STARTED, changed(plan="x", n=1))


def test_starting_a_thread_again_resumes_it_and_changes_nothing() -> None:
    given(STARTED).when(start(by="bob")).then()
    given(STARTED, changed(a=1)).when(start(a=2, b=3)).then()


@pytest.mark.parametrize("command", [append(message("hi")), replace(), replace(result("a")), change_data(a=1)])
def test_command_for_a_thread_that_was_not_started_is_refused(command: ThreadCommand) -> None:
    refusal = given().when(command).refused(NotFoundError, "thread t does not exist; start it first")
    assert refusal.facts == {"thread_id": "t"}


def test_fork_is_a_thread_that_begins_with_the_items_of_its_parent() -> None:
    copy = Copy({"plan": Json.of("x")}, [message("hi"), result("a")])
    begun = ThreadStarted(parent="p", parent_version=7, by="ann")
    given().when(fork("t", "p", 7), copy=copy).then(begun, changed(plan="x"), said("hi"), found("a"))
    given().when(fork("t", "p", 7), copy=Copy({}, [])).then(begun)


def test_fork_never_writes_into_an_existing_thread() -> None:
    given(STARTED).when(fork("t", "p", 1), copy=Copy({}, [])).refused(InvalidError, "this thread already exists")


# --- to append


def test_messages_and_results_are_appended_in_their_order() -> None:
    items = (message("hi"), result("a"), message("hi"), result("b"))
    given(STARTED).when(append(*items)).then(said("hi"), found("a"), said("hi"), found("b"))


def test_stored_result_is_skipped_and_a_message_never() -> None:
    given(STARTED).when(append(result("a"), message("hi"), result("b")), checksums="a").then(said("hi"), found("b"))
    given(STARTED).when(append(result("a")), checksums="a").then()


def test_result_repeated_within_one_append_is_appended_once() -> None:
    given(STARTED).when(append(result("a"), result("b"), result("a"))).then(found("a"), found("b"))


def test_first_of_two_results_with_one_checksum_is_kept() -> None:
    other = NewResult(value=NULL, agent="other", checksum=checksum("a"))
    given(STARTED).when(append(result("a"), other)).then(found("a"))
    given(STARTED).when(replace(result("a"), other)).then(found("a"))


# --- to replace results


def test_replacing_results_with_a_continuation_appends_the_rest() -> None:
    given(STARTED).when(replace(*results("ab"))).then(found("a"), found("b"))
    given(STARTED, *map(found, "ab")).when(replace(*results("abc")), checksums="ab").then(found("c"))
    given(STARTED, *map(found, "ab")).when(replace(*results("ab")), checksums="ab").then()
    given(STARTED).when(replace()).then()


@pytest.mark.parametrize("wanted", ["b", "ba", "a", "xab", "", "ac"])
def test_replacing_results_with_others_clears_and_appends_them(wanted: str) -> None:
    before = given(STARTED, *map(found, "ab"))
    before.when(replace(*results(wanted)), checksums="ab").then(CLEARED, *map(found, wanted))


def test_repeated_results_are_stored_once() -> None:
    given(STARTED).when(replace(*results("aba"))).then(found("a"), found("b"))
    given(STARTED, *map(found, "ab")).when(replace(*results("aab")), checksums="ab").then()


# --- to change data


def test_keys_are_written_and_existing_ones_deleted_in_one_change() -> None:
    given(STARTED).when(change_data(None, "b", "c", a=1), keys="b").then(changed("b", a=1))
    given(STARTED).when(change_data(None, "b", "b"), keys="b").then(changed("b"))
    given(STARTED).when(change_data(None, "c")).then()
    given(STARTED).when(change_data()).then()


def test_change_of_concurrently_changed_data_is_refused_with_its_keys() -> None:
    past = (STARTED, changed(a=1), said("hi"), changed(b=1))
    given(*past).when(change_data(4, a=2)).then(changed(a=2))
    given(*past).when(change_data(None, a=2)).then(changed(a=2))
    for expected in (0, 2, 3, 9):
        refusal = given(*past).when(change_data(expected, a=2), since="b").refused(DataConflictError, "found 4;")
        assert refusal.detail.model_dump() == {
            "thread_id": "t",
            "expected_data_version": expected,
            "actual_data_version": 4,
            "changed_keys": ("b",),
        }


def test_before_the_first_change_the_data_version_is_zero() -> None:
    given(STARTED, said("hi")).when(change_data(0, a=1)).then(changed(a=1))
    given(STARTED, said("hi")).when(change_data(2, a=1)).refused(DataConflictError, "expected data version 2, found 0")


def test_refusal_about_thread_data_contains_no_value() -> None:
    past = given(STARTED, changed(a="secret"))
    refusal = past.when(change_data(0, a="mine"), since="a").refused(DataConflictError, "thread t")
    for told in (str(refusal), repr(refusal), repr(refusal.detail)):
        assert "secret" not in told
        assert "mine" not in told


# --- what it then is


def test_thread_records_who_started_and_who_last_changed_it() -> None:
    state = after(ThreadStarted(parent="p", parent_version=3, by="ann"), said("hi", by="bob"))
    assert state._asdict() == Thread("t")._asdict() | {
        "version": 2,
        "messages": 1,
        "started_by": "ann",
        "started_at": SECOND,
        "updated_by": "bob",
        "updated_at": 2 * SECOND,
        "parent": "p",
        "parent_version": 3,
    }


def test_cleared_results_are_not_counted_and_messages_are() -> None:
    state = after(STARTED, said("hi"), found("a"), found("b"), CLEARED, found("a"))
    assert (state.messages, state.results, state.cleared, state.version) == (1, 1, 5, 6)


def test_data_version_is_that_of_the_last_event_that_changed_data() -> None:
    assert after(STARTED).data_version == 0
    assert after(STARTED, changed(a=1), said("hi"), changed("a"), said("ho")).data_version == 4


# --- rows


def test_every_later_thread_event_has_detail_rows_of_its_kind() -> None:
    assert details(after(STARTED), STARTED, 5) == []
    told = [details(Thread("t", version=7), it, 5) for it in (said("hi"), found("a"), CLEARED)]
    assert told == [
        [(ITEMS, ("t", "message", 7, "", 5))],
        [(ITEMS, ("t", "result", 7, checksum("a"), 5))],
        [(ITEMS, ("t", "clear", 7, "", 5))],
    ]


def test_change_of_data_has_a_row_for_each_key_and_its_value() -> None:
    assert details(Thread("t", version=7), changed("b", a=[1]), 5) == [
        (ITEMS, ("t", "data", 7, "a", 5)),
        (ITEMS, ("t", "data", 7, "b", 5)),
        (DATA, ("t", "a", 7, 1, "[1]")),
        (DATA, ("t", "b", 7, 0, "null")),
    ]


def test_redacted_data_reads_as_null_under_each_key() -> None:
    assert changed(a=1, b=2).model_copy(update={"value": NULL}).values() == {"a": NULL, "b": NULL}


# --- what can be asked at all


@pytest.mark.parametrize("key", ["", " ", " a", "a\0b", "x" * 513])
def test_thread_keys_must_be_names(key: str) -> None:
    for more in ({"written": {key: NULL}}, {"deleted": (key,)}):
        with pytest.raises(ValidationError):
            ChangeData(thread="t", by="ann", **more)  # type: ignore[arg-type]


def test_key_cannot_be_written_and_deleted_in_one_change() -> None:
    with pytest.raises(ValidationError, match="must not name a key that the same call writes"):
        change_data(None, "a", a=1)


def test_key_in_two_spellings_is_one_key() -> None:
    command = ChangeData(thread="t", written={"e\u0301": NULL, "\u00e9": Json.of(1)}, by="ann")
    given(STARTED).when(command).then(ThreadDataChanged(value=Json('{"é":1}'), written=("é",), by="ann"))
    with pytest.raises(ValidationError, match="the same call writes"):
        ChangeData(thread="t", written={"e\u0301": NULL}, deleted=("\u00e9",), by="ann")


@pytest.mark.parametrize("wrong", ["", "A" * 32, "a" * 31, "g" * 32, f"{'a' * 32}\n"])
def test_checksum_of_a_result_is_an_md5_digest(wrong: str) -> None:
    with pytest.raises(ValidationError):
        NewResult(value=NULL, agent="writer", checksum=wrong)


def test_every_part_of_a_thread_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    one = message("hi")
    Append(thread="t", items=(one,) * MAX_APPENDED, by="ann")
    for items in ((), (one,) * (MAX_APPENDED + 1)):
        with pytest.raises(ValidationError):
            Append(thread="t", items=items, by="ann")
    with pytest.raises(ValidationError):
        ReplaceResults(thread="t", results=(result("a"),) * (MAX_COPIED + 1), by="ann")
    monkeypatch.setattr(commands, "MAX_COPIED_CHARACTERS", 2 * len(result("a").value.text))
    ReplaceResults(thread="t", results=(result("a"),) * 2, by="ann")
    with pytest.raises(ValidationError, match="characters together"):
        ReplaceResults(thread="t", results=(result("a"),) * 3, by="ann")
    keys = [f"k{number}" for number in range(MAX_KEYS + 1)]
    with pytest.raises(ValidationError):
        ChangeData(thread="t", written=dict.fromkeys(keys, NULL), by="ann")
    with pytest.raises(ValidationError):
        ChangeData(thread="t", deleted=tuple(keys), by="ann")
