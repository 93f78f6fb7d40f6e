"""What a write relied on is recorded, and its reason can be redacted: events of format 2, next to those of format 1."""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.api.events.event_view import event_view
from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.nats import payload
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.envelope import CheckedClaim, Envelope, Recorded
from holdlog.domain.message import Caller, Event
from holdlog.domain.ports import Store
from holdlog.domain.record import FencingCondition, Merge, Transact, ValueWritten
from holdlog.domain.refusals import StoreError
from holdlog.domain.value import Json
from tests.support.clock import SECOND, Clock
from tests.support.commands import (
    PATIENCE,
    change,
    clear,
    did,
    drop,
    put,
    redact,
    require_chained,
    rows,
    run,
    whole_log,
    write,
)
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.older import format_1
from tests.support.threads import append, change_data, message, start

ANN = Caller(session="s-1", principal="token:ci", reason="because of issue 7", request_id="r-1")


def newest(store: Store) -> Envelope:
    return whole_log(store)[-1].envelope


def basis(store: Store) -> tuple[Any, ...]:
    """Of the newest event: operation, based_on, forced, guard."""
    envelope = newest(store)
    assert envelope.format == 2
    return envelope.operation, envelope.based_on, envelope.forced, envelope.guard


# --- what is recorded


def test_a_write_records_the_version_that_it_expected(store: Store) -> None:
    write(store, "k", 1, expected=0)
    assert basis(store) == ("set", 0, False, ())
    write(store, "k", 2, expected=1)
    assert basis(store) == ("set", 1, False, ())
    change(store, drop("k", expected=2))
    assert basis(store) == ("delete", 2, False, ())


def test_a_write_that_expected_nothing_was_forced_if_there_was_a_value(store: Store, clock: Clock) -> None:
    write(store, "k", 1)
    assert basis(store) == ("set", None, False, ())
    write(store, "k", 2)
    assert basis(store) == ("set", None, True, ())
    change(store, drop("k"))
    assert basis(store) == ("delete", None, True, ())
    change(store, put("k", 3, ttl=5))
    assert basis(store) == ("set", None, False, ())
    clock.pass_by(6)
    write(store, "k", 4)
    assert basis(store) == ("set", None, False, ())


def test_a_merge_and_a_cleared_namespace_are_recorded_as_such(store: Store) -> None:
    merge = Merge(namespace="n", key="k", patch=Json.of({"a": 1}), max_bytes=100, expected_version=0)
    run(store, Transact(operations=(merge,), by="ann"))
    assert basis(store) == ("merge", 0, False, ())
    run(store, clear())
    assert basis(store) == ("clear", None, True, ())


def test_a_write_records_the_claims_that_it_relied_on(store: Store) -> None:
    for resource in ("a.py", "ü b/"):
        run(store, AcquireClaim(resource=resource, agent="ann"))
    guard = (FencingCondition(resource="a.py", version=1), FencingCondition(resource="ü b/", version=1))
    run(store, Transact(operations=(put("k", 1, 0), put("l", 2)), by="ann", guard=guard))
    conditions = (CheckedClaim("a.py", 1), CheckedClaim("ü b/", 1))
    found = [it.envelope for it in whole_log(store)[-2:]]
    assert [(it.based_on, it.forced, it.guard) for it in found] == [(0, False, conditions), (None, False, conditions)]
    assert json.loads(rows(store)[-1][20]) == [{"resource": "a.py", "version": 1}, {"resource": "ü b/", "version": 1}]


def test_the_end_of_a_value_that_a_write_notices_relied_on_nothing(store: Store, clock: Clock) -> None:
    change(store, put("k", 1, ttl=5))
    clock.pass_by(6)
    write(store, "k", 2, expected=0)
    ended, written = (it.envelope for it in whole_log(store)[-2:])
    assert (ended.operation, ended.based_on, ended.forced, ended.guard) == (None, None, False, ())
    assert (written.operation, written.based_on) == ("set", 0)


def test_a_change_of_a_threads_data_records_the_version_that_it_expected(store: Store) -> None:
    did(store, start("t", a=1))
    did(store, change_data(2, b=2, thread="t"))
    assert basis(store) == (None, 2, False, ())
    did(store, change_data(None, b=3, thread="t"))
    assert basis(store) == (None, None, False, ())
    did(store, append(message("hi"), thread="t"))
    assert basis(store) == (None, None, False, ())


def test_an_event_of_a_claim_relies_on_nothing(store: Store) -> None:
    run(store, AcquireClaim(resource="a.py", agent="ann"))
    assert basis(store) == (None, None, False, ())


def test_clock_is_recorded_when_it_differs_from_the_event_time(store: Store, clock: Clock) -> None:
    clock.now = 1_000_000 * SECOND
    write(store, "k", 1)
    assert newest(store).clock is None
    for behind, recorded in ((1.0, False), (1.000_001, True), (3600.0, True)):
        clock.now = 1_000_000 * SECOND
        clock.move(-behind)
        write(store, "k", 2)
        envelope = newest(store)
        assert envelope.at == 1_000_000 * SECOND
        assert envelope.clock == (clock.now if recorded else None)
    require_chained(store)


def test_record_keeps_the_principal_that_was_authenticated_at_the_write(store: Store, clock: Clock) -> None:
    change(store, put("k", 1, ttl=5), caller=Caller(principal="token:ci"))
    change(store, put("gone", 1), caller=Caller(principal="token:ci"))
    change(store, drop("gone"), caller=Caller(principal="eva"))
    write(store, "plain", 1)
    with store.reader() as reader:
        assert [reader.record("n", key).principal for key in ("k", "gone", "plain")] == ["token:ci", "eva", None]
    clock.pass_by(6)
    write(store, "other", 1)
    with store.reader() as reader:
        assert reader.record("n", "k").principal == "token:ci"


def test_a_request_is_kept_by_principal_session_and_id(store: Store) -> None:
    caller = Caller(principal="p", session="s-1", request_id="r")
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        transaction.remember(caller, b"alone", "1")
        transaction.remember(caller, b"in a session", "2", session="s-1")
        found = [transaction.repeated(caller, session=it) for it in ("", "s-1", "s-2")]
    assert found == [(b"alone", "1"), (b"in a session", "2"), None]
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        assert transaction.repeated(caller) == (b"alone", "1")
        assert transaction.repeated(Caller(request_id="r")) is None


# --- older events


def test_reliance_of_an_event_of_format_1_was_not_recorded(store: Store) -> None:
    with format_1():
        change(store, put("k", 1, 0), caller=ANN)
    envelope = newest(store)
    assert (envelope.format, envelope.operation, envelope.based_on) == (1, None, None)
    assert (envelope.forced, envelope.guard, envelope.clock) == (None, None, None)
    assert envelope.caller.reason == "because of issue 7"
    change(store, put("k", 2, 1), caller=ANN.model_copy(update={"request_id": "r-2"}))
    assert basis(store) == ("set", 1, False, ())
    require_chained(store)


# --- redaction


def test_a_redacted_reason_reads_as_none_and_the_chain_holds(kind: Kind) -> None:
    with engine(kind) as store:
        redact(store, 2, "reason")
    assert kind.bad() == {}
    with engine(kind) as store:
        recorded = whole_log(store)[1]
        assert recorded.envelope.caller.reason is None
        assert recorded.envelope.caller.principal == "token:ci"
        assert not recorded.redacted
        assert "reason" not in event_view(recorded).model_dump()
        require_chained(store)
    kind.rebuilt()
    assert kind.bad() == {}


# --- tampering


@pytest.mark.parametrize(
    "tampering",
    [
        "format = NULL",
        "format = 1",
        "format = 3",
        "clock = 5",
        "operation = 'merge'",
        "operation = NULL",
        "based_on = 7",
        "based_on = NULL",
        "forced = 1",
        "guard = NULL",
        "guard = '[]'",
        "reason = 'another'",
        "reason = NULL",
        "reason = NULL, reason_salt = NULL",
        "reason_salt = BYTES('0123456789abcdef')",
        "payload = '\"forged\"'",
        "session = 's-2'",
        "principal = NULL",
    ],
)
def test_a_changed_column_is_found_by_the_digest(kind: Kind, tampering: str) -> None:
    kind.doctored(f"UPDATE stored_events SET {tampering} WHERE POSITION = 2")
    assert "record:n/k@1" in kind.bad()["digests"]


@pytest.mark.parametrize(("column", "position"), [("payload", 2), ("payload", 3), ("reason", 2)])
def test_a_forged_text_next_to_the_hash_of_the_true_one_is_found(kind: Kind, column: str, position: int) -> None:
    """As if it had been redacted: but it is there, and everybody would read it. Event 3 is of format 1."""
    salt_column = "salt" if column == "payload" else "reason_salt"
    salt, true = kind.ask(f"SELECT {salt_column}, {column} FROM stored_events WHERE {kind.position} = {position}")[0]
    hashed = hashlib.sha256(bytes(salt) + true.encode()).hexdigest()
    forged = "'\"forged\"'" if column == "payload" else "'forged'"
    for extra in ("", f", {salt_column} = NULL"):
        kind.run(
            f"UPDATE stored_events SET {column} = {forged}, {column}_hash = {_hex(kind, hashed)}{extra}"
            f" WHERE {kind.position} = {position}"
        )
        assert "digests" in kind.bad()


@pytest.mark.parametrize("column", ["clock = 5", "operation = 'set'", "based_on = 7", "forced = 1", "guard = '[]'"])
def test_new_columns_of_an_event_of_format_1_are_found_and_not_read(kind: Kind, column: str) -> None:
    kind.doctored(f"UPDATE stored_events SET {column} WHERE POSITION = 3")
    assert "record:n/old@1" in kind.bad()["digests"]
    with engine(kind) as store:
        envelope = whole_log(store)[2].envelope
    assert (envelope.operation, envelope.based_on, envelope.forced, envelope.guard) == (None, None, None, None)


def test_reading_an_event_of_a_newer_format_is_an_error(kind: Kind) -> None:
    kind.doctored("UPDATE stored_events SET format = 3 WHERE POSITION = 2")
    with engine(kind) as store:
        with pytest.raises(StoreError, match="record:n/k@1 has format 3; a newer holdlog"):
            whole_log(store)
        assert write(store, "k", 3) == 2


def test_reading_fencing_conditions_that_are_not_json_is_an_error(kind: Kind) -> None:
    kind.doctored("UPDATE stored_events SET guard = '[' WHERE POSITION = 2")
    with engine(kind) as store, pytest.raises(StoreError, match="record:n/k@1 cannot be read"):
        whole_log(store)


# --- on surfaces

SPELLED = {"a.py": "here/a.py", "secret.py": "here/secret.py"}


def sees(grants: str) -> Callable[[str], bool]:
    return Grants.parse((grants,)).sees


def a_guarded_write() -> Recorded[Event]:
    event = ValueWritten(value=Json.of(1), by="ann")
    guard = (CheckedClaim("a.py", 3), CheckedClaim("secret.py", 4, "5f1a"))
    envelope = Envelope(
        position=7, stream="record:n/k", version=2, topic="ValueWritten", at=5, caller=Caller(), digest=b"",
        format=2, operation="set", based_on=1, forced=False, guard=guard,
    )  # fmt: skip
    return Recorded[Event](envelope=envelope, event=event)


def test_event_answer_shows_what_the_write_relied_on() -> None:
    found = event_view(a_guarded_write()).model_dump()
    assert (found["operation"], found["based_on"]) == ("set", 1)
    assert "forced" not in found
    assert found["guard"] == [
        {"resource": "a.py", "version": 3},
        {"resource": "secret.py", "version": 4, "former_session": "5f1a"},
    ]


def test_claims_hidden_from_the_caller_are_left_out_of_what_a_write_relied_on() -> None:
    recorded = a_guarded_write()
    found = event_view(
        recorded, SPELLED.__getitem__, lambda stream: stream in ("record:n/k", "claim:a.py")
    ).model_dump()
    assert found["guard"] == [{"resource": "here/a.py", "version": 3}]
    assert "guard" not in event_view(recorded, None, sees("read:n")).model_dump()


def test_nats_message_contains_what_the_write_relied_on() -> None:
    found = json.loads(payload.text_of("x", a_guarded_write()))["data"]
    assert (found["operation"], found["based_on"], found["value"]) == ("set", 1, 1)
    assert [it["resource"] for it in found["guard"]] == ["a.py", "secret.py"]
    assert "guard" not in json.loads(payload.text_of("x", a_guarded_write(), lists=False))["data"]


def test_library_shows_what_a_write_relied_on_if_it_was_recorded(place: str) -> None:
    with StateStore(place) as store:
        with format_1():
            store.set("n", "k", 0, updated_by="ann")
        store.set("n", "k", 1, updated_by="ann")
        version = store.claim("a.py", agent="ann").model_dump()["version"]
        store.set("n", "k", 2, updated_by="ann", expected_version=2, guard=[{"resource": "a.py", "version": version}])
        events = [it.model_dump(mode="json") for it in store.events(namespace="n").events]
        entries = [it.body() for it in reversed(store.history("n", "k"))]
    for found in (events, entries):
        shown = [{name: it.get(name) for name in ("operation", "based_on", "forced", "guard")} for it in found]
        assert shown == [
            {"operation": None, "based_on": None, "forced": None, "guard": None},
            {"operation": "set", "based_on": None, "forced": True, "guard": None},
            {"operation": "set", "based_on": 2, "forced": None, "guard": [{"resource": "a.py", "version": version}]},
        ]
        assert "guard" not in found[0]


# --- fixtures


@pytest.fixture(params=["file", "schema"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A store with a claim, a write of format 2 that relied on it, and one of format 1."""
    found: Kind = (
        InFile(tmp_path / "state.db") if request.param == "file" else InDatabase(request.getfixturevalue("postgres"))
    )
    with engine(found) as store:
        run(store, AcquireClaim(resource="a.py", agent="ann"), ANN.model_copy(update={"request_id": None}))
        guard = (FencingCondition(resource="a.py", version=1),)
        run(store, Transact(operations=(put("k", "true", 0),), by="ann", guard=guard), ANN)
        with format_1():
            change(store, put("old", "true", 0), caller=ANN.model_copy(update={"request_id": "r-2"}))
    assert found.bad() == {}
    return found


def engine(kind: Kind) -> Any:
    return closing(open_sqlite(kind.place) if isinstance(kind.place, Path) else open_postgres(kind.place))


def _hex(kind: Kind, hexadecimal: str) -> str:
    return f"X'{hexadecimal}'" if isinstance(kind, InFile) else f"'\\x{hexadecimal}'::bytea"
