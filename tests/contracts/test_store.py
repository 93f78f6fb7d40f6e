"""What every store keeps, whatever it is made of."""

import hashlib
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.application import LocalNotificationLog

from holdlog.adapters.operating_system.write_lock import WriteLock
from holdlog.adapters.stores.sqlite import schema
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.claims.claim import Claim, ClaimGranted, ClaimReleased, Grant, PastHold
from holdlog.domain.commands import RecordsChanged
from holdlog.domain.message import Caller
from holdlog.domain.ports import REFUSALS_KEPT, REQUEST_SECONDS, Refusal, Store
from holdlog.domain.record import Record, ValueDeleted, ValueWritten, Written
from holdlog.domain.refusals import ConflictError, InvalidError, NotFoundError, StoreError
from holdlog.domain.value import Json
from tests.support.clock import Clock
from tests.support.commands import (
    HERE,
    PATIENCE,
    append,
    change,
    check,
    claim,
    clear,
    drop,
    holder_of,
    keys,
    let_go,
    noted_refusals,
    put,
    release,
    require_chained,
    require_views_equal_the_log,
    rows,
    run,
    take,
    transact,
    whole_log,
    write,
)

ODD_KEYS = ["%", "%%", "_", "a", "a%", "a%b", "a_b", "aXb", "a b", "a\U0010ffff", "a\U0010ffffz", "ab", "A", "é", "é/x"]
ODD_KEYS += [
    "ez",
    "\ud7ff",
    "\ue000",
    "\ufffd",
    "\U0010ffff",
    "\U0010ffff\U0010ffff",
    "'",
    '"',
    "--",
    "\\",
    "*",
    "?[a]",
]

OURS = schema.MAJOR * schema.MINORS_PER_MAJOR + schema.MINOR


# --- versions, positions, times


def test_versions_are_never_skipped_or_reused_even_after_deletions(store: Store) -> None:
    versions = [write(store, "k", 1), write(store, "k", 2, expected=1)]
    versions += [change(store, drop("k", 2))[0].version, write(store, "k", 3, expected=0)]
    versions += [change(store, drop("k"))[0].version, write(store, "k", 4)]
    assert versions == [1, 2, 3, 4, 5, 6]
    assert [recorded.envelope.version for recorded in whole_log(store)] == versions


def test_a_refused_write_uses_up_no_version(store: Store) -> None:
    write(store, "k", 1)
    with pytest.raises(ConflictError):
        write(store, "k", 2, expected=7)
    assert write(store, "k", 2) == 2


def test_positions_are_counted_across_all_streams(store: Store) -> None:
    write(store, "a", 1)
    claim(store, "r")
    write(store, "b", 1)
    assert [(it.envelope.position, it.envelope.stream) for it in whole_log(store)] == [
        (1, "record:n/a"),
        (2, "claim:r"),
        (3, "record:n/b"),
    ]
    with store.reader() as reader:
        assert reader.position() == 3


def test_event_times_never_decrease_when_the_clock_is_set_back(store: Store, clock: Clock) -> None:
    write(store, "k", 1)
    clock.move(seconds=-3600)
    write(store, "k", 2)
    clock.move(seconds=3599)
    claim(store, "r")
    clock.move(seconds=2)
    write(store, "k", 3)
    assert [it.envelope.at for it in whole_log(store)] == [1_000_000_000] * 3 + [1_001_000_000]


def test_events_of_one_transaction_share_one_time(store: Store, clock: Clock) -> None:
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        clock.move(seconds=10)
        assert transaction.at == 1_000_000_000


# --- a transaction is all or nothing


class Stopped(Exception):
    pass


def test_transaction_that_raises_writes_nothing(store: Store) -> None:
    write(store, "k", 1)
    with suppress(Stopped), store.transaction(time.monotonic() + PATIENCE) as transaction:
        before = transaction.record("n", "k")
        append(transaction, before, ValueWritten(value=Json.of(2), by="ann"), caller=Caller(request_id="r"))
        append(transaction, transaction.claim("c"), ClaimGranted(agent="ann"))
        transaction.remember(Caller(request_id="r"), b"f", "{}")
        transaction.note_refusals([Refusal(1, "conflict", "what", "ann", None)])
        raise Stopped
    with store.reader() as reader:
        assert (reader.position(), reader.record("n", "k").value, reader.claim("c").version) == (1, Json.of(1), 0)
    assert noted_refusals(store) == []
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        assert transaction.repeated(Caller(request_id="r")) is None
    assert write(store, "k", 2, expected=1) == 2
    require_chained(store)


def test_a_transaction_sees_its_own_writes(store: Store) -> None:
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        append(transaction, Record("n", "k"), ValueWritten(value=Json.of(1), by="ann"))
        assert transaction.record("n", "k").live
        assert [record.key for record in transaction.records("n", "", None, -1, deleted=False)] == ["k"]
        assert transaction.position() == 1
        assert transaction.log(0, -1)[0].envelope.stream == "record:n/k"


def test_operations_of_one_command_see_each_other(store: Store) -> None:
    results = change(store, put("k", 1, 0), put("k", 2, 1), drop("k", 2), put("k", 3, 0), check("k", 4), check("x", 0))
    assert [(it.version, it.previous_version) for it in results] == [
        (1, None),
        (2, 1),
        (3, 2),
        (4, None),
        (4, 4),
        (0, None),
    ]
    assert len(whole_log(store)) == 4
    require_chained(store)


def test_one_refused_operation_undoes_its_whole_command(store: Store) -> None:
    write(store, "b", 1)
    with pytest.raises(ConflictError) as conflict:
        change(store, put("a", 1), put("b", 2, expected=7), put("c", 1))
    assert conflict.value.operation == 1
    with store.reader() as reader:
        assert keys(reader) == ["b"]
    assert len(whole_log(store)) == 1


def test_command_that_changes_nothing_returns_the_position(store: Store) -> None:
    write(store, "a", 1)
    outcome = run(store, transact(check("a", 1)))
    assert isinstance(outcome, RecordsChanged)
    assert outcome.position == 1
    assert len(whole_log(store)) == 1


def test_clearing_a_namespace_deletes_its_live_values_and_nothing_else(store: Store) -> None:
    for key in ODD_KEYS:
        write(store, key, 1)
    write(store, "k", 1, namespace="n2")
    write(store, "gone", 1)
    change(store, drop("gone"))
    outcome = run(store, clear(by="bob"))
    assert isinstance(outcome, RecordsChanged)
    assert sorted(it.key for it in outcome.results) == sorted(ODD_KEYS)
    with store.reader() as reader:
        assert (keys(reader), keys(reader, "n2"), reader.namespaces(None, -1)) == ([], ["k"], [("n2", 1)])
        assert reader.record("n", "a").updated_by == "bob"
    again = run(store, clear())
    assert isinstance(again, RecordsChanged)
    assert again.results == ()


# --- reading


def test_missing_record_reads_as_empty(store: Store) -> None:
    with store.reader() as reader:
        assert reader.position() == 0
        assert reader.record("n", "k") == Record("n", "k")
        assert reader.claim("r").version == 0
        assert reader.records("n", "", None, -1, deleted=False) == []
        assert reader.namespaces(None, -1) == []
        assert reader.claims(None, -1) == []
        assert reader.history("record:n/k", None, -1) == reader.log(0, -1) == []


def test_a_record_reads_as_it_was_written(store: Store, clock: Clock) -> None:
    write(store, "k", 1)
    clock.move(seconds=5)
    change(store, put("k", {"a": [None, "é"]}), by="bob")
    with store.reader() as reader:
        record = reader.record("n", "k")
    assert (record.version, record.live, record.value.value) == (2, True, {"a": [None, "é"]})
    assert (record.updated_by, record.updated_at) == ("bob", 1_005_000_000)


@pytest.mark.parametrize(
    "value",
    [
        {"_type_": "datetime_iso", "_data_": "2020-01-01T00:00:00"},
        {"_type_": "uuid_hex", "_data_": "not one"},
        {"_type_": "nobody_knows"},
        {"__class__": "x", "py/object": "os.system"},
        "\0\u2028é👩‍👧\U0010ffff",
        10**400,
        -0.0,
        5e-324,
        None,
        [[]] * 60,
    ],
)
def test_values_come_back_as_they_went_in(store: Store, value: Any) -> None:
    write(store, "k", value)
    with store.reader() as reader:
        assert repr(reader.record("n", "k").value.value) == repr(value)
        (recorded,) = reader.history("record:n/k", None, -1)
    assert isinstance(recorded.event, ValueWritten)
    assert repr(recorded.event.value.value) == repr(value)


def test_live_records_are_listed_by_key(store: Store) -> None:
    for key in ODD_KEYS:
        write(store, key, key)
    change(store, drop("a"))
    with store.reader() as reader:
        assert keys(reader) == sorted(set(ODD_KEYS) - {"a"})
        assert [it.value.value for it in reader.records("n", "", None, -1, deleted=False)] == keys(reader)
        assert [it.key for it in reader.records("n", "", None, -1, deleted=True)] == ["a"]
        assert keys(reader, "N") == keys(reader, "n ") == []


@pytest.mark.check
@pytest.mark.parametrize("prefix", [*ODD_KEYS, "", "a\U0010ffff\U0010ffff", "zz", "\U0010fffe", "e\u0301", "\ud7fe"])
def test_a_prefix_is_taken_literally(store: Store, prefix: str) -> None:
    change(store, *(put(key, 1) for key in ODD_KEYS))
    with store.reader() as reader:
        assert keys(reader, prefix=prefix) == sorted(key for key in ODD_KEYS if key.startswith(prefix))


@pytest.mark.check
@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("prefix", ["", "a", "\U0010ffff"])
def test_pages_of_records_together_are_the_complete_list(store: Store, size: int, prefix: str) -> None:
    change(store, *(put(key, 1) for key in ODD_KEYS))
    with store.reader() as reader:
        assert pages(lambda after: keys(reader, prefix=prefix, after=after, limit=size), size) == keys(
            reader, prefix=prefix
        )


def test_namespaces_are_listed_by_name_with_their_live_counts(store: Store) -> None:
    for namespace in ODD_KEYS:
        change(store, put("a", 1, namespace=namespace), put("b", 1, namespace=namespace))
    change(store, drop("a", namespace="%"), drop("a", namespace="_"), drop("b", namespace="_"))
    expected = [(name, 1 if name == "%" else 2) for name in sorted(ODD_KEYS) if name != "_"]
    with store.reader() as reader:
        assert reader.namespaces(None, -1) == expected
        assert pages(lambda after: [name for name, _ in reader.namespaces(after, 2)], 2) == [it[0] for it in expected]


def test_held_claims_are_listed_by_resource(store: Store) -> None:
    """Also under names that new claims may not have any more."""
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        for resource in ODD_KEYS:
            granted = ClaimGranted(agent=f"agent {resource}" if resource.strip() else "x")
            append(transaction, Claim(resource.replace("\\", "b")), granted, caller=HERE)
        ended = transaction.claim("a")
        append(transaction, ended, ClaimReleased(agent="agent a", grant=1), caller=HERE)
    with store.reader() as reader:
        listed = [it.resource for it in reader.claims(None, -1)]
        assert listed == sorted({key.replace("\\", "b") for key in ODD_KEYS} - {"a"})
        assert pages(lambda after: [it.resource for it in reader.claims(after, 3)], 3) == listed
        assert holder_of(reader.claims(None, 1)[0]) == "agent " + listed[0]


def test_a_claim_reads_as_it_was_granted_and_released(store: Store, clock: Clock) -> None:
    claim(store, "r", "ann")
    clock.move(seconds=1)
    let_go(store, "r", "ann")
    clock.move(seconds=1)
    claim(store, "r", "bob")
    with store.reader() as reader:
        held = reader.claim("r")
    assert (held.version, held.grants) == (3, (Grant(3, "bob", None, "exclusive", 1_002_000_000, "here"),))
    assert held.past == PastHold("ann", "released", 1_001_000_000, session="here", version=1)


def test_history_is_newest_first_and_comes_in_pages(store: Store) -> None:
    for number in range(1, 8):
        write(store, "k", number)
        write(store, "other", number)
    change(store, drop("k"))
    with store.reader() as reader:
        newest = reader.history("record:n/k", None, 3)
        assert [it.envelope.version for it in newest] == [8, 7, 6]
        assert isinstance(newest[0].event, ValueDeleted)
        assert [it.envelope.version for it in reader.history("record:n/k", 6, 3)] == [5, 4, 3]
        assert [it.envelope.version for it in reader.history("record:n/k", 3, -1)] == [2, 1]
        assert reader.history("record:n/k", 1, -1) == reader.history("record:n/never", None, -1) == []


def test_streams_with_similar_names_are_kept_apart(store: Store) -> None:
    change(store, put("b", 1, namespace="a/b"), put("b/b", 2, namespace="a"), put("b", 3, namespace="a%2Fb"))
    with store.reader() as reader:
        assert reader.record("a/b", "b").value.value == 1
        assert reader.record("a", "b/b").value.value == 2
        assert reader.record("a%2Fb", "b").value.value == 3
        assert len({it.envelope.stream for it in reader.log(0, -1)}) == 3


def test_the_log_is_read_in_order_from_any_position(store: Store) -> None:
    for number in range(10):
        write(store, f"k{number % 3}", number)
    with store.reader() as reader:
        assert [it.envelope.position for it in reader.log(0, -1)] == list(range(1, 11))
        assert [it.envelope.position for it in reader.log(4, 3)] == [5, 6, 7]
        assert [it.envelope.position for it in reader.log(8, 100)] == [9, 10]
        assert reader.log(10, 5) == reader.log(99, -1) == reader.log(0, 0) == []


def test_event_envelope_records_caller_and_reason(store: Store) -> None:
    caller = Caller(principal="org", session="s", request_id="r", reason="because", correlation_id="c")
    change(store, put("k", 1), caller=caller)
    run(store, take("x", "ann"), Caller(session="s2"))
    run(store, release("x", "ann"), Caller(session="s2"))
    written, granted, released = whole_log(store)
    assert (written.envelope.topic, written.envelope.caller) == ("ValueWritten", caller)
    assert (granted.event, granted.envelope.caller) == (
        ClaimGranted(agent="ann", session="s2"),
        Caller(session="s2"),
    )
    assert (released.event, released.envelope.caller) == (
        ClaimReleased(agent="ann", grant=1),
        Caller(session="s2"),
    )
    assert not written.redacted


def test_readers_never_wait_for_writers(store: Store) -> None:
    write(store, "k", 1)

    def read() -> int:
        with store.snapshot() as snapshot, store.reader() as reader:
            assert keys(snapshot) == ["k"]
            return reader.record("n", "k").version

    with ThreadPoolExecutor(1) as pool, store.transaction(time.monotonic() + PATIENCE) as transaction:
        append(transaction, Record("n", "l"), ValueWritten(value=Json.of(1), by="ann"))
        assert pool.submit(read).result(PATIENCE) == 1


@pytest.mark.check
def test_snapshot_is_of_one_moment_while_others_write(store: Store) -> None:
    stop, failed = threading.Event(), list[BaseException]()

    def keep_writing() -> None:
        try:
            number = 0
            while not stop.is_set() and number < 1000:  # the reader reads all of it: it must not fall behind for ever
                number += 1
                change(store, put("a", number), put("b", number))
                claim(store, "r") if number % 2 else let_go(store, "r")
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        seen = set[int]()
        while len(seen) < 30 and writer.is_alive():
            with store.snapshot() as reader:
                a = reader.record("n", "a")
                log = reader.log(0, -1)
                b, listed = reader.record("n", "b"), reader.records("n", "", None, -1, deleted=False)
                held, position = reader.claims(None, -1), reader.position()
            assert a.version == b.version
            assert [record.version for record in listed] == ([a.version] * 2 if a.version else [])
            assert position == len(log) == (log[-1].envelope.position if log else 0)
            assert len(held) == sum(
                1 if it.envelope.topic == "ClaimGranted" else -1 for it in log if "claim" in it.envelope.stream
            )
            seen.add(position)
    finally:
        stop.set()
        writer.join()
    for error in failed:
        raise error


# --- the chain


def test_digests_chain_within_their_streams(store: Store) -> None:
    change(store, put("a", 1), put("b", {"x": "é"}), put("a", 2), drop("a"), put("a", None))
    claim(store, "r")
    let_go(store, "r")
    change(store, put("a", 3), caller=Caller(session="s", reason="why"))
    require_chained(store)
    require_views_equal_the_log(store)
    digests = [it.envelope.digest for it in whole_log(store)]
    assert len(set(digests)) == len(digests)


def test_equal_values_have_unequal_salts(store: Store) -> None:
    write(store, "a", "secret")
    write(store, "b", "secret")
    first, second = (row[12] for row in rows(store))
    assert first != second
    assert len(first) == len(second) == 16


# --- request ids


def test_repeated_request_gets_the_same_response_and_writes_nothing(store: Store) -> None:
    first = change(store, put("k", 1), caller=Caller(request_id="r"))
    write(store, "k", 2)
    assert (
        change(store, put("k", 1), caller=Caller(request_id="r"))
        == first
        == [Written(namespace="n", key="k", version=1, previous_version=None)]
    )
    assert len(whole_log(store)) == 2


def test_repeated_release_gets_the_same_response(store: Store) -> None:
    claim(store, "r", "bob")
    caller = HERE.model_copy(update={"request_id": "d"})
    released = run(store, release("r", "bob"), caller)
    claim(store, "r", "ann")
    assert run(store, release("r", "bob"), caller) == released
    assert len(whole_log(store)) == 3


def test_request_id_identifies_one_request(store: Store) -> None:
    change(store, put("k", 1), caller=Caller(request_id="r"))
    for other in (transact(put("k", 2)), transact(put("k", 1), by="bob"), transact(put("l", 1)), clear()):
        with pytest.raises(InvalidError, match="request_id"):
            run(store, other, Caller(request_id="r"))
    assert len(whole_log(store)) == 1


def test_request_id_belongs_to_its_principal(store: Store) -> None:
    for _ in range(2):
        for version, principal in enumerate((None, "p1", "p2"), start=1):
            (written,) = change(store, put("k", 1), caller=Caller(principal=principal, request_id="r"))
            assert written.version == version
    assert len(whole_log(store)) == 3


def test_session_and_reason_do_not_change_the_request_fingerprint(store: Store) -> None:
    change(store, put("k", 1), caller=Caller(session="s1", request_id="r"))
    change(store, put("k", 1), caller=Caller(session="s2", request_id="r", reason="again"))
    assert len(whole_log(store)) == 1


def test_request_is_remembered_for_exactly_a_day(store: Store, clock: Clock) -> None:
    caller = Caller(request_id="r")
    change(store, put("k", 1), caller=caller)
    clock.move(seconds=REQUEST_SECONDS)
    assert change(store, put("k", 1), caller=caller)[0].version == 1
    clock.move(seconds=1)
    assert change(store, put("k", 1), caller=caller)[0].version == 2
    clock.move(seconds=1)
    assert change(store, put("k", 1), caller=caller)[0].version == 2


def test_a_refused_request_is_not_remembered(store: Store) -> None:
    caller = Caller(request_id="r")
    with pytest.raises(NotFoundError):
        change(store, drop("k"), caller=caller)
    write(store, "k", 1)
    assert change(store, drop("k"), caller=caller)[0].version == 2


# --- refusals


def test_refusals_are_kept_as_they_were_noted(store: Store) -> None:
    noted = [Refusal(1, "conflict", "n/k", "ann", "s"), Refusal(2, "busy", "r", "bob", None)]
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        transaction.note_refusals(noted)
    assert noted_refusals(store) == noted
    assert whole_log(store) == []


def test_only_the_newest_refusals_are_kept(store: Store) -> None:
    numbered = [Refusal(number, "conflict", "what", "ann", None) for number in range(REFUSALS_KEPT + 50)]
    for start in (0, 60, 5000, 10_000):
        stop = {0: 60, 60: 5000, 5000: 10_000, 10_000: None}[start]
        with store.transaction(time.monotonic() + PATIENCE) as transaction:
            transaction.note_refusals(numbered[start:stop])
    assert noted_refusals(store) == numbered[50:]


# --- SQLite alone: its rows, and the library over them


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    with_two = open_sqlite(path)
    write(with_two, "k", 1)
    claim(with_two, "r")
    with_two.close()
    return path


def doctor(path: Path, statement: str, *parameters: Any) -> None:
    """Change the file as another process would: through the gate."""
    gate = WriteLock(path.with_name(path.name + ".gate"))
    gate.acquire(time.monotonic() + PATIENCE)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, parameters)
    connection.close()
    gate.release()
    gate.close()


def read_all(path: Path) -> list[Any]:
    store = open_sqlite(path)
    try:
        return whole_log(store)
    finally:
        store.close()


def test_an_unknown_topic_is_an_error_and_never_an_import(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdlog_test_trap.py").write_text("class Trap: pass")
    monkeypatch.syspath_prepend(tmp_path)
    doctor(file, "UPDATE stored_events SET topic = 'holdlog_test_trap:Trap' WHERE rowid = 1")
    with pytest.raises(StoreError, match="unknown topic"):
        read_all(file)
    store = open_sqlite(file)
    with pytest.raises(StoreError, match="unknown topic"), store.reader() as reader:
        reader.history("record:n/k", None, -1)
    with store.reader() as reader:
        assert holder_of(reader.claim("r")) == "ann"
    store.close()
    assert "holdlog_test_trap" not in sys.modules


@pytest.mark.parametrize(
    "body", [b"{}", b"", b"[]", b"null", b"\xff", b'{"by":"ann","more":1}', b'{"by":7}', b'{"by":" "}']
)
def test_event_body_that_does_not_fit_its_topic_is_an_error(file: Path, body: bytes) -> None:
    doctor(file, "UPDATE stored_events SET state = ? WHERE rowid = 1", body)
    with pytest.raises(StoreError, match="cannot be read"):
        read_all(file)


def test_redacted_payload_reads_as_null_and_the_chain_still_verifies(file: Path) -> None:
    store = open_sqlite(file)
    (salt, payload), *_ = [row[12:14] for row in rows(store)]
    store.close()
    hashed = hashlib.sha256(salt + payload.encode()).digest()
    doctor(file, "UPDATE stored_events SET salt = NULL, payload = NULL, payload_hash = ? WHERE rowid = 1", hashed)
    store = open_sqlite(file)
    redacted, kept = whole_log(store)
    require_chained(store)
    store.close()
    assert isinstance(redacted.event, ValueWritten)
    assert (redacted.redacted, redacted.event.value.value, kept.redacted) == (True, None, False)


def test_newer_major_version_stops_open_writers_and_holds_no_lock(file: Path) -> None:
    store = open_sqlite(file)
    assert write(store, "k", 2) == 2
    doctor(file, f"PRAGMA user_version = {OURS + schema.MINORS_PER_MAJOR}")
    for _ in range(2):
        with pytest.raises(StoreError, match="upgrade"):
            write(store, "k", 3)
    doctor(file, f"PRAGMA user_version = {OURS}")  # fails when the refused writers kept the write lock
    assert write(store, "k", 3) == 3
    store.close()


def test_store_of_a_newer_minor_version_is_shared(file: Path) -> None:
    store = open_sqlite(file)
    doctor(file, f"PRAGMA user_version = {OURS + 7}")
    assert write(store, "k", 2) == 2
    store.close()
    assert len(read_all(file)) == 3


def test_first_connections_to_a_file_do_not_block_each_other(tmp_path: Path) -> None:
    """Whoever comes first sets up the write-ahead log anew and locks out the others meanwhile."""
    for round_ in range(15):
        store = open_sqlite(tmp_path / f"{round_}.db")
        together = threading.Barrier(6)

        def read(store: SqliteStore = store, together: threading.Barrier = together) -> None:
            together.wait()
            with store.snapshot() as reader:
                reader.record("n", "k")

        def put_one(store: SqliteStore = store, together: threading.Barrier = together) -> None:
            together.wait()
            write(store, "k", 1)

        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(it) for it in (read, read, read, read, put_one, put_one)]
        for call in calls:
            call.result()
        store.close()


def test_eventsourcing_library_reads_our_log(file: Path) -> None:
    store = open_sqlite(file)
    for number in range(20):
        write(store, f"k{number % 2}", number)
    recorder = store.recorder
    assert recorder.max_notification_id() == 22
    assert [it.id for it in recorder.select_notifications(start=3, limit=4)] == [3, 4, 5, 6]
    assert [it.id for it in recorder.select_notifications(start=1, limit=9, topics=["ClaimGranted"])] == [2]
    events = list(recorder.select_events("record:n/k0"))
    assert [(it.originator_version, it.topic) for it in events] == [(number, "ValueWritten") for number in range(1, 11)]
    assert [it.originator_version for it in recorder.select_events("record:n/k0", desc=True, limit=2)] == [10, 9]
    log = LocalNotificationLog(recorder, section_size=5)
    section = log["1,5"]
    assert (section.id, section.next_id) == ("1,5", "6,10")
    assert [it.id for it in log.select(20, 5)] == [20, 21, 22]
    assert section.items[1].originator_id == "claim:r"
    store.close()


def test_database_key_refuses_a_version_that_exists(store: Store) -> None:
    """The lock that no mistake above it can switch off."""
    write(store, "k", 1)
    begun = store.transaction(time.monotonic() + PATIENCE)
    with pytest.raises(Exception, match=r"(?i)unique"), begun as transaction:
        append(transaction, Record("n", "k"), ValueWritten(value=Json.of(2), by="ann"))
    assert len(whole_log(store)) == 1


def pages(page: Callable[[str | None], list[str]], size: int) -> list[str]:
    """All pages one after the other, each after the last row of the one before."""
    found: list[str] = []
    after: str | None = None
    while rows_of_page := page(after):
        assert len(rows_of_page) <= size
        found += rows_of_page
        after = found[-1]
    return found


def test_store_has_its_own_id_and_keeps_metadata(store: Store) -> None:
    with store.transaction(time.monotonic() + 5) as transaction:
        transaction.put_meta("place", "1")
        transaction.put_meta("place", "2")
    with suppress(LookupError), store.transaction(time.monotonic() + 5) as transaction:
        transaction.put_meta("place", "3")
        raise LookupError
    with store.reader() as reader:
        assert reader.meta("place") == "2"
        assert reader.meta("nothing") is None
        assert uuid.UUID(reader.meta("store_id") or "")
