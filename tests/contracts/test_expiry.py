"""Values with a time to live: on every store, what is due reads as ended, noticed or not."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.values import responses as results
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.operating_system.liveness import Liveness
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.command_handler import expire_values
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.event_log.rebuild import rebuild
from holdlog.adapters.stores.sql.reader import SELECT_DUE, SELECT_NEXT_END
from holdlog.adapters.stores.sql.text import for_sqlite
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.shadow_tables import SqliteShadowTables
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.message import NOBODY
from holdlog.domain.ports import Store
from holdlog.domain.record import MAX_TTL_SECONDS, Set, ValueExpired, ValueWritten
from holdlog.domain.refusals import ConflictError, InvalidError, NotFoundError, UnavailableError
from holdlog.domain.times import utc
from tests.support.clock import Clock
from tests.support.commands import (
    PATIENCE,
    change,
    check,
    clear,
    drop,
    put,
    require_chained,
    require_views_equal_the_log,
    run,
    until,
    whole_log,
    write,
)
from tests.support.commands import rows as stored

IDENTITY = Identity("salt")

START = 1_000_000_000
"""Microseconds: where the clock of these tests begins."""
SECOND = 1_000_000


@pytest.fixture
def engine(store: Store, clock: Clock) -> Iterator[Engine]:
    server, settings = Liveness(), Settings()
    calls = Requests(RequestRules(settings, clock, clock.steady, server.connected, IDENTITY))
    holdlog = Engine(store, ProcessNotifier(), NOBODY, calls, server)
    yield holdlog
    holdlog.close()


def put_for(key: str, value: Any, seconds: float, expected: int | None = None) -> Set:
    return put(key, value, expected, ttl=seconds)


def notice(store: Store, limit: int = 100) -> bool:
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        return expire_values(transaction, limit)


def next_end(store: Store) -> int | None:
    with store.reader() as reader:
        return reader.next_value_end()


def get(engine: Engine, key: str = "k") -> results.StateRecord:
    return engine.read(engine.requests.values.get("n", key))


def missing(engine: Engine, key: str = "k") -> dict[str, Any]:
    with pytest.raises(NotFoundError) as refusal:
        get(engine, key)
    return refusal.value.facts


def listed(engine: Engine, deleted: bool = False) -> list[tuple[str, int]]:
    found = engine.read(engine.requests.values.records("n", deleted=deleted))
    return [(it.key, it.version) for it in found.records]


def seen_by_all_reads(engine: Engine) -> Any:
    """Every answer that tells of a value, but for positions and for what history shows."""
    calls = engine.requests
    try:
        got: Any = get(engine)
    except NotFoundError as refusal:
        got = refusal.facts
    return (
        got,
        listed(engine),
        listed(engine, deleted=True),
        engine.read(calls.values.namespaces()).namespaces,
        engine.read(calls.values.all_namespaces()),
        engine.read(calls.values.all_records("n")),
        [record.key for record in engine.read(calls.values.export("n")).records],
        [(it.key, it.version, it.updated_at) for it in engine.read(calls.values.export("n", True)).records],
    )


# --- what reads say


def test_value_with_a_time_to_live_shows_its_expiry(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    clock.move(15.5)
    found = get(engine)
    assert (found.value, found.expires_at, found.expires_in_seconds) == (1, utc(START + 60 * SECOND), 44.5)
    (kept,) = engine.read(engine.requests.values.all_records("n"))
    assert kept == found


def test_value_without_a_time_to_live_shows_no_expiry(engine: Engine) -> None:
    write(engine.store, "k", 1)
    assert not {"expires_at", "expires_in_seconds"} & get(engine).body().keys()


def test_value_expires_for_readers_at_the_exact_microsecond(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    clock.now = START + 60 * SECOND - 1
    assert get(engine).expires_in_seconds == 0.000_001
    clock.now += 1
    assert missing(engine) == {
        "namespace": "n",
        "key": "k",
        "version": 2,
        "deleted_by": "ann",
        "deleted_at": utc(START + 60 * SECOND),
        "expires_at": utc(START + 60 * SECOND),
    }


def test_reading_expired_values_writes_nothing(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    clock.move(61)
    seen_by_all_reads(engine)
    assert len(whole_log(engine.store)) == 1


def test_expired_value_is_listed_among_the_deleted_only(engine: Engine, clock: Clock) -> None:
    change(engine.store, put("a", 1), put_for("k", 1, seconds=60), put_for("l", 1, seconds=61), put("z", 1))
    clock.move(60)
    assert listed(engine) == [("a", 1), ("l", 1), ("z", 1)]
    assert listed(engine, deleted=True) == [("k", 2)]
    (namespace,) = engine.read(engine.requests.values.namespaces()).namespaces
    assert namespace.count == 3
    assert [it.key for it in engine.read(engine.requests.values.export("n")).records] == ["a", "l", "z"]
    exported = engine.read(engine.requests.values.export("n", include_deleted=True)).records
    assert [(it.key, it.version, it.value) for it in exported] == [
        ("a", 1, 1),
        ("k", 2, None),
        ("l", 1, 1),
        ("z", 1, 1),
    ]


def test_namespace_with_only_expired_values_is_not_listed(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    clock.move(60)
    assert engine.read(engine.requests.values.all_namespaces()) == []


def test_recording_an_expiry_changes_nothing_for_readers(engine: Engine, clock: Clock) -> None:
    change(engine.store, put("a", 1), put_for("k", 1, seconds=60), put_for("l", 1, seconds=70))
    for seconds in (60, 5, 5):
        clock.move(seconds)
        before = seen_by_all_reads(engine)
        notice(engine.store)
        assert seen_by_all_reads(engine) == before
    assert listed(engine, deleted=True) == [("k", 2), ("l", 2)]


def test_snapshot_judges_all_expiries_by_one_time(store: Store, clock: Clock) -> None:
    change(store, put_for("k", 1, seconds=60))
    with store.snapshot() as reader:
        clock.move(61)
        assert reader.at == START
        assert [it.key for it in reader.records("n", "", None, -1, deleted=False)] == ["k"]
        assert reader.namespaces(None, -1) == [("n", 1)]
    with store.snapshot() as reader:
        assert reader.at == START + 61 * SECOND
        assert reader.namespaces(None, -1) == []


def test_value_renewed_during_a_read_is_not_reported_as_expired(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read, then renewed by another, then the log goes on beyond the old end: there was always a value."""
    change(engine.store, put_for("k", 1, seconds=60))
    with engine.store.reader() as reader:
        kind: Any = type(reader)
    record, renewals = kind.record, 0

    def renew_after_the_first_look(reader: Any, *place: str) -> Any:
        nonlocal renewals
        found = record(reader, *place)
        renewals += 1
        if renewals == 1:
            clock.move(59)
            change(engine.store, put_for("k", 2, seconds=60))
            clock.move(2)
            write(engine.store, "other", 1)
        return found

    monkeypatch.setattr(kind, "record", renew_after_the_first_look)
    assert get(engine).value in (1, 2)


# --- what writes do


def test_expiry_is_its_own_event_before_the_next_write(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60), by="bob")
    clock.move(100)
    (written,) = change(engine.store, put("k", 2, expected=0))
    assert (written.version, written.previous_version) == (3, None)
    ended, second = whole_log(engine.store)[1:]
    assert ended.event == ValueExpired(due=START + 60 * SECOND, by="bob")
    assert isinstance(second.event, ValueWritten)
    assert ended.envelope.at == second.envelope.at == START + 100 * SECOND
    require_chained(engine.store)
    require_views_equal_the_log(engine.store)


def test_refused_write_records_no_expiry(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    clock.move(61)
    for operation in (put("k", 2, expected=1), put("k", 2, expected=2), drop("k", 1), check("k", 1), drop("k")):
        with pytest.raises((ConflictError, NotFoundError)):
            change(engine.store, put("other", 1), operation)
    assert len(whole_log(engine.store)) == 1


def test_clearing_a_namespace_deletes_live_values_and_skips_expired_ones(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60), put_for("l", 1, seconds=70))
    clock.move(61)
    outcome: Any = run(engine.store, clear())
    assert [it.key for it in outcome.results] == ["l"]
    notice(engine.store)
    assert [it.event.topic for it in whole_log(engine.store)] == [
        "ValueWritten",
        "ValueWritten",
        "ValueDeleted",
        "ValueExpired",
    ]


def test_later_operation_of_a_transaction_sees_the_recorded_expiry(store: Store, clock: Clock) -> None:
    change(store, put_for("k", 1, seconds=60))
    clock.move(61)
    results_ = change(store, check("k", 0), put("k", 2, expected=0), put("k", 3, expected=3), drop("k", 4))
    assert [it.previous_version for it in results_] == [None, None, 3, 4]
    require_views_equal_the_log(store)


def test_set_replaces_or_clears_the_time_to_live(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    change(engine.store, put_for("k", 2, seconds=90, expected=1))
    assert get(engine).expires_in_seconds == 90
    change(engine.store, put("k", 3, expected=2))
    clock.move(1_000)
    assert get(engine).expires_at is None
    assert next_end(engine.store) is None


def test_history_and_export_show_an_expiry_at_the_time_it_was_due(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=60), by="bob")
    clock.move(100)
    notice(engine.store)
    newest, _ = engine.read(engine.requests.values.history("n", "k")).history
    assert newest.body() == {
        "version": 2,
        "value": None,
        "updated_by": "bob",
        "updated_at": utc(START + 60 * SECOND).isoformat(timespec="microseconds"),
        "event_type": "expire",
        "position": 2,
    }
    (record,) = engine.read(engine.requests.values.export("n", include_deleted=True)).records
    assert record.history[0] == newest


def test_unrecorded_expiry_is_not_in_the_history(engine: Engine, clock: Clock) -> None:
    """As docs/answers.md says it: a read writes nothing, and a position cannot be told before there is one."""
    change(engine.store, put_for("k", 1, seconds=60))
    clock.move(100)
    with pytest.raises(NotFoundError) as gone:
        get(engine)
    assert gone.value.facts["version"] == 2
    versions = [it.version for it in engine.read(engine.requests.values.history("n", "k")).history]
    notice(engine.store)
    assert (versions, [it.version for it in engine.read(engine.requests.values.history("n", "k")).history]) == (
        [1],
        [2, 1],
    )


def test_event_without_expiry_keeps_its_old_stored_form(store: Store) -> None:
    """So its digest can be worked out as ever."""
    change(store, put("k", 1))
    change(store, put_for("k", 2, seconds=60))
    assert [row[4] for row in stored(store)] == [b'{"by":"ann"}', b'{"by":"ann","expires_at":1060000000}']


# --- who notices


def test_expiries_are_recorded_earliest_first_up_to_the_given_number(store: Store, clock: Clock) -> None:
    for key, seconds in (("c", 30), ("a", 10), ("d", 40), ("b", 20)):
        change(store, put_for(key, 1, seconds=seconds))
    assert notice(store) is False
    clock.move(30)
    assert notice(store, limit=2) is True
    assert notice(store, limit=2) is True
    assert notice(store, limit=2) is False
    ended = [it.envelope.stream for it in whole_log(store) if isinstance(it.event, ValueExpired)]
    assert ended == ["record:n/a", "record:n/b", "record:n/c"]
    assert all(it.envelope.caller == NOBODY for it in whole_log(store))
    require_views_equal_the_log(store)
    require_chained(store)


def test_next_expiry_is_that_of_a_live_value(store: Store, clock: Clock) -> None:
    assert next_end(store) is None
    change(store, put("always", 1), put_for("a", 1, seconds=20), put_for("b", 1, seconds=10))
    assert next_end(store) == START + 10 * SECOND
    clock.move(15)
    assert next_end(store) == START + 10 * SECOND  # due, and nobody noticed
    notice(store)
    assert next_end(store) == START + 20 * SECOND
    change(store, drop("a"))
    assert next_end(store) is None


def test_expired_values_are_found_by_index_even_after_a_rebuild(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "state.db")
    for _ in range(2):
        connection = store.database.connect()
        for statement, parameters in ((SELECT_DUE, {"at": 0, "limit": 1}), (SELECT_NEXT_END, {})):
            plan = connection.execute(f"EXPLAIN QUERY PLAN {for_sqlite(statement)}", parameters).fetchall()
            assert "current_due" in plan[0][3], plan
        connection.close()
        rebuild(SqliteShadowTables(store))
    store.close()


# --- clocks


def test_expiry_counts_from_the_time_of_the_transaction(store: Store, clock: Clock) -> None:
    clock.move(100)
    write(store, "other", 1)
    clock.move(-50)
    change(store, put_for("k", 1, seconds=10))
    assert next_end(store) == START + 110 * SECOND


def test_reads_and_writes_agree_on_expiry_when_the_clock_is_set_back(engine: Engine, clock: Clock) -> None:
    """Time is never before the newest event; behind that it is the clock's, so a value that was due may live on."""
    change(engine.store, put_for("k", 1, seconds=10))
    clock.move(20)
    write(engine.store, "other", 1)
    clock.move(-15)
    assert missing(engine)["version"] == 2
    with pytest.raises(ConflictError):
        change(engine.store, put("k", 2, expected=1))
    assert change(engine.store, put("k", 2, expected=0))[0].version == 3


def test_value_with_unrecorded_expiry_lives_on_when_the_clock_is_set_back(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=10))
    clock.move(20)
    assert missing(engine)
    with pytest.raises(ConflictError):
        change(engine.store, put("k", 2, expected=1))
    clock.move(-15)
    assert get(engine).version == 1
    assert change(engine.store, put("k", 2, expected=1))[0].version == 2


def test_recorded_expiry_is_kept_when_the_clock_is_set_back(engine: Engine, clock: Clock) -> None:
    change(engine.store, put_for("k", 1, seconds=10))
    clock.move(20)
    notice(engine.store)
    clock.move(-15)
    assert missing(engine)["version"] == 2


def test_event_after_a_refused_transaction_is_not_older_than_the_log(tmp_path: Path) -> None:
    """Another writes with a later clock while this one cannot begin: the next event must not lie before it."""
    early, late = Clock(1_000), Clock(2_000)
    first, second = open_sqlite(tmp_path / "state.db", early), open_sqlite(tmp_path / "state.db", late)
    write(first, "k", 1)
    write(second, "k", 2)
    foreign = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError), first.transaction(time.monotonic() + 0.05):
        pass
    foreign.execute("ROLLBACK")
    foreign.close()
    write(first, "k", 3)
    assert [it.envelope.at for it in whole_log(first)] == [1_000, 2_000, 2_000]
    assert isinstance(first, SqliteStore)
    first.close()
    second.close()


# --- watching


def test_watch_reports_a_recorded_expiry(engine: Engine, clock: Clock, in_thread: Any) -> None:
    change(engine.store, put_for("k", 1, seconds=60), by="bob")
    watching = in_thread(engine, engine.requests.values.watch("n", "k", 1, 50))
    clock.move(60)
    notice(engine.store)
    engine.notifier.notify()
    answer = watching.result(PATIENCE)
    assert (answer.status, answer.version, answer.deleted_by) == ("deleted", 2, "bob")
    assert answer.deleted_at == answer.expires_at == utc(START + 60 * SECOND)


def test_watch_reports_an_unrecorded_expiry_once(engine: Engine, clock: Clock, in_thread: Any) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    watching = in_thread(engine, engine.requests.values.watch("n", "k", 1, 50))
    clock.move(60)
    engine.notifier.notify()
    answer = watching.result(PATIENCE)
    assert (answer.status, answer.version) == ("deleted", 2)
    assert engine.wait(engine.requests.values.watch("n", "k", answer.version, 0)).status == "timeout"
    notice(engine.store)
    assert engine.wait(engine.requests.values.watch("n", "k", answer.version, 0)).status == "timeout"
    write(engine.store, "k", 2)
    assert engine.wait(engine.requests.values.watch("n", "k", answer.version, 0)).version == 3


def test_watch_from_version_0_waits_until_an_expired_key_is_set_again(
    engine: Engine, clock: Clock, in_thread: Any
) -> None:
    change(engine.store, put_for("k", 1, seconds=60))
    clock.move(60)
    assert engine.wait(engine.requests.values.watch("n", "k", 0, 0)).status == "timeout"
    watching = in_thread(engine, engine.requests.values.watch("n", "k", 0, 50))
    write(engine.store, "k", 2)
    engine.notifier.notify()
    assert watching.result(PATIENCE).version == 3


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Any]]:
    """Start a wait in a thread; answers when it has begun."""
    pool = ThreadPoolExecutor(2)

    def start(engine: Engine, call: Any) -> Any:
        future = pool.submit(engine.wait, call)
        until(lambda: bool(engine.notifier._wakers) or future.done())
        return future

    yield start
    pool.shutdown()


# --- bounds


@pytest.mark.parametrize(
    "seconds",
    [0, -1, -0.0, 0.000_000_4, MAX_TTL_SECONDS + 1, float("inf"), float("nan"), 10**400, True, "60", b"1", []],
)
def test_time_to_live_out_of_range_is_refused_by_name(engine: Engine, seconds: Any) -> None:
    with pytest.raises(InvalidError, match=r"ttl_seconds: must be a number of seconds from 0\.000001 to 315360000"):
        engine.requests.values.set("n", "k", 1, "ann", None, ttl_seconds=seconds)


@pytest.mark.parametrize(("seconds", "lasts"), [(0.000_001, 1), (1, SECOND), (MAX_TTL_SECONDS, 315_360_000 * SECOND)])
def test_time_to_live_is_exact_to_the_microsecond(engine: Engine, seconds: float, lasts: int) -> None:
    engine.write(engine.requests.values.set("n", "k", 1, "ann", None, ttl_seconds=seconds), NOBODY)
    assert next_end(engine.store) == START + lasts
