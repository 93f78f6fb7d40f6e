"""A copy of a store, from each kind to each: what it has, whose id it has, and what becomes of its source."""

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdlog import CopyReport, InvalidError, SealedError, StateStore, StoreError, UnavailableError
from holdlog.adapters.compose import examine, open_holdlog
from holdlog.adapters.python.copying import copy
from holdlog.adapters.stores.copying import carried, file
from holdlog.adapters.stores.copying.database import DatabaseCopyTarget
from holdlog.adapters.stores.copying.file import FileTarget
from holdlog.adapters.stores.event_log.sealing import SEAL, Seal
from holdlog.adapters.stores.postgres.target import database_target, name_of
from holdlog.adapters.stores.postgres.transaction import PostgresReader
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim, Renew
from holdlog.domain.claims.lease import Lease
from holdlog.domain.commands import AnyCommand
from holdlog.domain.envelope import payload_hash
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Refusal, Store
from holdlog.projections.fold import VIEWS
from holdlog.projections.store_log import STORE_LOG
from tests.conftest import fresh_schema
from tests.support.claim_calls import by
from tests.support.commands import (
    drop,
    noted_refusals,
    put,
    require_chained,
    require_views_equal_the_log,
    rows,
    run,
    transact,
    until,
)
from tests.support.copies import require_fork
from tests.support.places import Place, Somewhere, engine, places, stands

PAIRS = list(itertools.product(["file", "schema"], repeat=2))
KINDS = ["file", "schema"]
# A file's clock and a database's tick in steps of their own.
CLOCKS_DIFFER_BY = 0.1  # seconds


@pytest.fixture
def somewhere(tmp_path: Path, postgres_server: str) -> Iterator[Somewhere]:
    with places(tmp_path, postgres_server) as found:
        yield found


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, somewhere: Somewhere) -> Place:
    place = somewhere(request.param)
    with StateStore(place) as store:
        store.set("n", "a", 1, updated_by="ann")
    return place


@pytest.fixture(params=PAIRS, ids="-to-".join)
def pair(request: pytest.FixtureRequest, somewhere: Somewhere) -> tuple[Place, Place]:
    return somewhere(request.param[0]), somewhere(request.param[1])


def fill(place: Place) -> None:
    with StateStore(place) as store:
        for number in range(12):
            store.set("n", f"k{number % 5}", {"n": number, "t": "ä\u0000\\u0000'"}, updated_by="ann", reason="why: 'x'")
        store.delete("n", "k1", deleted_by="bob", expected_version=3)
        store.set("other", "ends", "soon", updated_by="ann", ttl_seconds=3600)
        store.set("other", "nul", None, updated_by="ann", request_id="r1")
        store.claim("src/", agent="ann", lease_seconds=200, note="mine")
        store.claim("b.md", agent="bob")
        store.release("b.md", agent="bob", outcome="modified", note="done")
        assert store.claim("src/a.py", agent="eve").status == "busy"
    with engine(place) as found, found.transaction(time.monotonic() + 10) as transaction:
        transaction.note_refusals([Refusal(7, "busy", "what", "eve", None)])


def views(store: Store) -> dict[str, list[Any]]:
    """The rows of the views, without facts about the log itself, in which copies differ."""
    with store.snapshot() as reader:
        assert isinstance(reader, SqliteReader | PostgresReader)
        return {
            it.name: sorted(reader.connection.execute(f"SELECT * FROM {it.name}").fetchall())
            for it in VIEWS
            if it is not STORE_LOG
        }


def meta(place: Place, name: str) -> str | None:
    with engine(place) as store, store.reader() as reader:
        return reader.meta(name)


def leases(place: Place) -> dict[str, tuple[Lease, float]]:
    """By resource, with the seconds that are left."""
    with engine(place) as store, store.transaction(time.monotonic() + 10) as transaction:
        found = transaction.leases.of(["src/", "a", "b"])
        return {it.resource: (it, (it.deadline - transaction.steady) / 1e6) for it in found}


def line_of(refusal: BaseException) -> str:
    line = str(refusal)
    assert "\n" not in line
    return line


# --- what a copy has


def test_copy_has_every_event_at_its_position_and_all_views(pair: tuple[Place, Place]) -> None:
    source, target = pair
    fill(source)
    report = copy(source, target)
    require_fork(source, target)
    with engine(source) as ours, engine(target) as theirs:
        assert (report.events, report.position) == (len(rows(ours)), rows(ours)[-1][0] + 1)
        assert views(theirs) == views(ours)
        assert noted_refusals(theirs) == noted_refusals(ours) != []
        require_chained(theirs)
        require_views_equal_the_log(theirs)


def test_a_store_without_events_can_be_copied(pair: tuple[Place, Place]) -> None:
    source, target = pair
    StateStore(source).close()
    assert copy(source, target, seal=True)[2:4] == (0, 0)
    with engine(target) as store:
        assert rows(store) == []


def test_copy_continues_at_the_position_of_its_source(pair: tuple[Place, Place]) -> None:
    source, target = pair
    fill(source)
    copy(source, target)
    with StateStore(target) as store:
        assert store.set("n", "k1", "back", updated_by="ann", expected_version=0).version == 5
        assert store.set("new", "k", 1, updated_by="ann").version == 1
    require_fork(source, target, later=2)
    with engine(target) as theirs:
        require_views_equal_the_log(theirs)


def test_redacted_values_stay_redacted_in_a_copy_that_verifies(somewhere: Somewhere) -> None:
    source, between, target = (somewhere(it) for it in ("file", "schema", "file"))
    fill(source)
    with engine(source) as store, store.transaction(time.monotonic() + 10) as transaction:
        transaction.wrote = True  # type: ignore[misc]
        connection = transaction.connection  # type: ignore[attr-defined]
        salt, payload = connection.execute("SELECT salt, payload FROM stored_events WHERE rowid = 1").fetchone()
        redact = "UPDATE stored_events SET salt = NULL, payload = NULL, payload_hash = ? WHERE rowid = 1"
        connection.execute(redact, (payload_hash(salt, payload),))
    copy(source, between)
    require_fork(source, between)
    copy(between, target)
    require_fork(between, target)
    with engine(target) as theirs:
        assert rows(theirs)[0][13] is None
        require_chained(theirs)


def test_a_repeated_request_gets_its_first_answer_in_the_copy(pair: tuple[Place, Place]) -> None:
    source, target = pair
    with StateStore(source) as store:
        first = store.set("n", "k", "once", updated_by="ann", request_id="r-1")
    copy(source, target, seal=True)
    with StateStore(target) as store:
        assert store.set("n", "k", "once", updated_by="ann", request_id="r-1") == first
        assert store.get("n", "k").version == 1
        with pytest.raises(InvalidError):
            store.set("n", "k", "twice", updated_by="ann", request_id="r-1")


# --- claims


@pytest.mark.parametrize("seal", [False, True])
def test_claim_in_a_copy_has_the_remaining_time_it_had(pair: tuple[Place, Place], seal: bool) -> None:
    source, target = pair
    with StateStore(source) as store:
        store.claim("a", agent="ann", lease_seconds=500)
        store.claim("b", agent="bob", lease_seconds=3)
    began = time.monotonic()
    before = leases(source)
    copy(source, target, seal)
    after = leases(target)
    took = time.monotonic() - began
    for name, (_, left) in before.items():
        assert left - took - CLOCKS_DIFFER_BY < after[name][1] <= left
    assert {
        name: it._replace(deadline=0, last_call_at=0, last_seen_at=0, ended_at=0, server="")
        for name, (it, _) in before.items()
    } == {name: it._replace(deadline=0, last_call_at=0, last_seen_at=0, ended_at=0) for name, (it, _) in after.items()}
    assert all(it.ended_at for it, _ in after.values()), "no session of the source is one of the copy"


def test_leases_do_not_run_between_the_seal_and_the_copy(
    pair: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    began = time.monotonic()
    with engine(source) as store:
        run(store, AcquireClaim(resource="a", agent="ann", lease=100_000_000), by())
    with monkeypatch.context() as patch:
        for kind in (FileTarget, DatabaseCopyTarget):
            patch.setattr(kind, "publish", _full)
        with pytest.raises(UnavailableError):
            copy(source, target, seal=True)
    sealed = time.monotonic()
    time.sleep(1)
    again = time.monotonic()
    copy(source, target, seal=True)
    left = leases(target)["a"][1]
    counted = (sealed - began) + (time.monotonic() - again)
    assert 100 - counted - CLOCKS_DIFFER_BY < left < 100


def test_holder_returns_to_its_claim_in_the_copy_and_others_stay_blocked(pair: tuple[Place, Place]) -> None:
    source, target = pair
    with StateStore(source) as store:
        claimed = store.claim("src/", agent="ann", lease_seconds=100)
    copy(source, target, seal=True)
    with StateStore(target) as store:
        assert store.claim("src/a.py", agent="eve").status == "busy"
        again = store.claim("src/", agent="ann")
        assert (again.status, again.resumed, again.version) == ("claimed", True, claimed.version + 1)
        guard = [{"resource": "src/", "version": again.version}]
        assert store.set("n", "k", 1, updated_by="ann", guard=guard).version == 1
        assert store.release("src/", agent="ann").status == "released"
        assert store.claim("src/a.py", agent="eve").status == "claimed"


def test_waiter_keeps_its_queue_position_in_the_copy(pair: tuple[Place, Place]) -> None:
    source, target = pair
    with engine(source) as store:
        run(store, AcquireClaim(resource="a", agent="ann"), by("s1"))
        run(store, AcquireClaim(resource="a", agent="bob", wait=30_000_000), by("s2"))
        run(store, AcquireClaim(resource="a", agent="eve", wait=30_000_000), by("s3"))
    copy(source, target, seal=True)
    with engine(target) as store:
        run(store, AcquireClaim(resource="a", agent="eve", wait=30_000_000), by("s8", server="v8"))
        run(store, AcquireClaim(resource="a", agent="bob", wait=30_000_000), by("s9", server="v9"))
        run(store, ReleaseClaim(resource="a", agent="ann"), by("s7", server="v7"))
        with store.reader() as reader:
            assert [it.agent for it in reader.claim("a").grants] == ["bob"]


def test_losses_are_reported_in_the_copy(pair: tuple[Place, Place]) -> None:
    source, target = pair
    with engine(source) as store, store.transaction(time.monotonic() + 10) as transaction:
        lost = Lease("a", 1, "held", "ann", None, "s1", "v1", 0, 0).lost("forced", transaction.at, "lunch")
        transaction.leases.lose([lost], transaction.at)
    copy(source, target, seal=True)
    with engine(target) as store, store.reader() as reader:
        (loss,) = reader.leases.losses(None, "s1", None)
        assert (loss.resource, loss.why, loss.note, loss.server) == ("a", "forced", "lunch", "")


# --- whose id


def test_copy_has_its_own_store_id(pair: tuple[Place, Place]) -> None:
    source, target = pair
    fill(source)
    report = copy(source, target)
    assert not report.kept_id
    assert report.store_id == meta(target, "store_id") != meta(source, "store_id")
    with StateStore(source) as store:
        store.set("n", "k", 1, updated_by="ann")


def test_sealed_copy_keeps_the_store_id(pair: tuple[Place, Place]) -> None:
    source, target = pair
    fill(source)
    with engine(source) as store, store.transaction(time.monotonic() + 10) as transaction:
        transaction.put_meta("relay:x", "where it stands")
    report = copy(source, target, seal=True)
    assert report.kept_id
    assert report.store_id == meta(target, "store_id") == meta(source, "store_id")
    assert meta(target, "relay:x") == "where it stands"
    assert meta(target, SEAL) is None
    with StateStore(target) as store:
        store.set("n", "k", 1, updated_by="ann")


def test_store_id_is_given_to_one_copy_only(pair: tuple[Place, Place], somewhere: Somewhere) -> None:
    source, target = pair
    fill(source)
    copy(source, target, seal=True)
    third, fourth = somewhere("file"), somewhere("file")
    with pytest.raises(StoreError, match="and its id moved with it") as refusal:
        copy(source, third, seal=True)
    line_of(refusal.value)
    assert not stands(third)
    assert not copy(source, fourth).kept_id


def test_sealed_store_without_a_target_may_move_elsewhere(
    pair: tuple[Place, Place], somewhere: Somewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    fill(source)
    broken = somewhere("file")
    with monkeypatch.context() as patch:
        patch.setattr(FileTarget, "put", _full)
        with pytest.raises(UnavailableError, match="full"):
            copy(source, broken, seal=True)
    assert not stands(broken)
    with StateStore(source) as store, pytest.raises(SealedError, match=str(broken)):
        store.set("n", "k", 1, updated_by="ann")
    assert copy(source, target).kept_id
    with engine(source) as store, pytest.raises(SealedError) as refusal:
        run(store, transact(put("k", 1)))
    assert str(broken) not in line_of(refusal.value)


def _full(*_: object) -> None:
    raise UnavailableError("the disk is full")


@pytest.mark.check
def test_store_moved_several_times_stays_the_same_store(somewhere: Somewhere) -> None:
    stops = [somewhere(kind) for kind in ("file", "schema", "file", "schema", "schema", "file")]
    fill(stops[0])
    ids = {copy(source, target, seal=True).store_id for source, target in itertools.pairwise(stops)}
    assert len(ids) == 1
    with engine(stops[0]) as first, engine(stops[-1]) as last:
        assert rows(first) == rows(last)
        assert views(first) == views(last)


def test_repeating_a_finished_move_reports_that_it_is_done(pair: tuple[Place, Place]) -> None:
    source, target = pair
    fill(source)
    first = copy(source, target, seal=True)
    with StateStore(target) as store:
        store.set("n", "k", "news", updated_by="ann")
    assert copy(source, target, seal=True) == first._replace(already=True)
    with StateStore(target) as store:
        assert store.get("n", "k").value == "news"


def test_lost_response_of_a_move_is_recovered_by_moving_again(
    pair: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    fill(source)
    for kind in (FileTarget, DatabaseCopyTarget):
        monkeypatch.setattr(kind, "publish", _then_interrupted(kind.publish))
    with pytest.raises(KeyboardInterrupt):
        copy(source, target, seal=True)
    assert copy(source, target, seal=True).already


def _then_interrupted(publish: Any) -> Any:
    def interrupted(*arguments: Any) -> None:
        publish(*arguments)
        raise KeyboardInterrupt

    return interrupted


def test_moved_store_that_was_deleted_is_not_recreated_under_its_id(somewhere: Somewhere) -> None:
    source, target = somewhere("schema"), somewhere("file")
    fill(source)
    copy(source, target, seal=True)
    assert isinstance(target, Path)
    target.unlink()
    with pytest.raises(StoreError, match="moved"):
        copy(source, target, seal=True)
    assert not copy(source, target).kept_id


# --- a sealed source


def test_sealed_store_refuses_every_write(source: Place, somewhere: Somewhere) -> None:
    with StateStore(source) as store:
        store.claim("src/", agent="ann", request_id="c1")
        copy(source, somewhere("file"), seal=True)
        before = everything(source)
        for call in (
            lambda: store.set("n", "a", 2, updated_by="ann"),
            lambda: store.delete("n", "a", deleted_by="ann"),
            lambda: store.clear_namespace("n", deleted_by="ann"),
            lambda: store.claim("b.md", agent="bob"),
            lambda: store.claim("src/", agent="ann"),
            lambda: store.claim("src/", agent="ann", request_id="c1"),
            lambda: store.release("src/", agent="ann"),
            lambda: store.update("n", "a", lambda value: value + 1, updated_by="ann"),
        ):
            with pytest.raises(SealedError, match=r"sealed on \d{4}-\d\d-\d\d at .* and moved to .*; use it there"):
                call()
        assert everything(source) == before
        assert store.get("n", "a").value == 1
        assert len(store.history("n", "a")) == 1
        assert store.status("src/").status == "claimed"
        assert store.wait("b.md").status == "available"
        with pytest.raises(SealedError, match="use it there"):
            store.wait("src/", timeout_seconds=0.1)
        with pytest.raises(SealedError, match="use it there"):
            store.watch("n", "a", since_version=1, timeout_seconds=0.1)


def test_doctor_reports_a_sealed_store(source: Place, somewhere: Somewhere) -> None:
    target = somewhere("file")
    assert "seal" not in {finding.name for finding in examine(source)}
    copy(source, target, seal=True)
    (told,) = [finding for finding in examine(source) if finding.name == "seal"]
    assert told.level == "warn"
    assert "sealed on" in told.text
    assert "seal" not in {finding.name for finding in examine(target)}


def everything(place: Place) -> Any:
    with engine(place) as store, store.snapshot() as reader:
        assert isinstance(reader, SqliteReader | PostgresReader)
        names = ["stored_events", "leases", "losses", "requests", *(view.name for view in VIEWS)]
        return [sorted(map(repr, reader.connection.execute(f"SELECT * FROM {name}").fetchall())) for name in names]


def test_database_refuses_writes_of_builds_that_know_no_seals(source: Place, somewhere: Somewhere) -> None:
    """`run` does what their writers do: it asks nothing, and appends."""
    with engine(source) as store:
        run(store, AcquireClaim(resource="a", agent="ann"), by("s1"))
        copy(source, somewhere("file"), seal=True)
        before = everything(source)
        commands: list[AnyCommand] = [
            transact(put("a", 2)),
            transact(drop("a")),
            AcquireClaim(resource="b", agent="bob"),
            AcquireClaim(resource="a", agent="ann"),
            ReleaseClaim(resource="a", agent="ann"),
        ]
        for command in 5 * commands:
            with pytest.raises(SealedError, match="sealed on"):
                run(store, command, by("s1"))
        run(store, Renew(server="v1", sessions=(("s1", 1),), grants=(("a", 1),)), by("s1"))  # has no effect
        assert everything(source) == before


def test_a_seal_survives_a_reboot(somewhere: Somewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = somewhere("file"), somewhere("file")
    with StateStore(source) as store:
        store.claim("src/", agent="ann", lease_seconds=500)
    with monkeypatch.context() as patch:
        patch.setattr(FileTarget, "publish", _full)
        with pytest.raises(UnavailableError):
            copy(source, target, seal=True)
    monkeypatch.setattr("holdlog.adapters.operating_system.platform.boot_id", lambda: "another")
    with StateStore(source) as store, pytest.raises(SealedError):
        store.set("n", "k", 1, updated_by="ann")
    copy(source, target, seal=True)
    assert 490 < leases(target)["src/"][1] <= 500


@pytest.mark.check
def test_lease_maintenance_pauses_in_a_sealed_store(source: Place, somewhere: Somewhere) -> None:
    holdlog = open_holdlog(source)
    try:
        holdlog.keep_sessions()
        holdlog.writer.run(AcquireClaim(resource="a", agent="ann", lease=1_000_000), holdlog.caller)
        copy(source, somewhere("file"), seal=True)
        tries: list[float] = []
        run_, until_it_tried = holdlog.writer.run, threading.Event()

        def counted(command: Any, caller: Caller) -> Any:
            tries.append(time.monotonic())
            until_it_tried.set()
            return run_(command, caller)

        holdlog.writer.run = counted  # type: ignore[method-assign]
        with holdlog.lease_maintenance.waiting():
            assert until_it_tried.wait(30)
            time.sleep(2.5)  # it would have tried twice more
        assert len(tries) == 1
    finally:
        holdlog.close()


def test_damaged_source_is_not_sealed(source: Place, somewhere: Somewhere) -> None:
    tamper(source, "UPDATE stored_events SET at = at + 1")
    with pytest.raises(StoreError, match="does not verify"):
        copy(source, target := somewhere("file"), seal=True)
    assert not stands(target)
    assert meta(source, SEAL) is None


def test_events_of_unknown_kinds_are_not_copied(source: Place, somewhere: Somewhere) -> None:
    tamper(source, "UPDATE stored_events SET originator_version = 2")
    for kind in KINDS:
        with pytest.raises(StoreError):
            copy(source, target := somewhere(kind))
        assert not stands(target)


def tamper(place: Place, statement: str) -> None:
    with engine(place) as store, store.transaction(time.monotonic() + 10) as transaction:
        transaction.connection.execute(statement)  # type: ignore[attr-defined]
        transaction.put_meta("test", "tampered")


# --- the target


@pytest.mark.parametrize("kind", KINDS)
def test_occupied_target_is_refused_and_the_source_is_not_sealed(
    source: Place, somewhere: Somewhere, kind: str
) -> None:
    target = somewhere(kind)
    with StateStore(target) as store:
        store.set("theirs", "k", 1, updated_by="eve")
    before = everything(target)
    with pytest.raises(StoreError, match="already") as refusal:
        copy(source, target, seal=True)
    line_of(refusal.value)
    assert everything(target) == before
    assert meta(source, SEAL) is None


def test_copy_leaves_tables_of_other_programs_alone(source: Place, somewhere: Somewhere) -> None:
    import psycopg

    target = str(somewhere("schema"))
    server, _, schema = target.partition("&schema=")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
        connection.execute(f'CREATE VIEW "{schema}".mine AS SELECT 1')
        with pytest.raises(StoreError, match="tables"):
            copy(source, target)
        connection.execute(f'DROP VIEW "{schema}".mine')
    assert copy(source, target).events == 1  # a schema without any is as good as none


def test_write_ahead_log_of_another_file_is_not_applied_to_the_copy(source: Place, somewhere: Somewhere) -> None:
    target = somewhere("file")
    assert isinstance(target, Path)
    target.with_name(target.name + "-wal").write_bytes(b"left")
    with pytest.raises(StoreError, match="-wal is left over from another store"):
        copy(source, target)


def test_copied_file_is_private_and_no_side_file_remains(source: Place, tmp_path: Path) -> None:
    target = tmp_path / "new" / "state.db"
    target.parent.mkdir()
    target.with_name("state.db.copying").write_bytes(b"of one that was killed")
    copy(source, target)
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(it.name for it in target.parent.iterdir()) == ["state.db", "state.db.gate"]


@pytest.mark.parametrize("kind", KINDS)
def test_copy_that_differs_from_its_source_is_discarded(
    source: Place, somewhere: Somewhere, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target_kind in (FileTarget, DatabaseCopyTarget):
        monkeypatch.setattr(target_kind, "put_events", _losing_one(target_kind.put_events))
    with pytest.raises(StoreError, match="differs from what was written"):
        copy(source, target := somewhere(kind), seal=True)
    assert not stands(target)


def _losing_one(put_rows: Any) -> Any:
    def losing(self: Any, rows: Any) -> None:
        put_rows(self, rows[:-1])

    return losing


def test_copying_a_store_to_itself_is_refused(source: Place) -> None:
    with pytest.raises(StoreError, match="same store"):
        copy(source, source)


@pytest.mark.parametrize("kind", KINDS)
def test_copying_a_missing_source_does_not_create_it(somewhere: Somewhere, kind: str) -> None:
    source, target = somewhere(kind), somewhere("file")
    with pytest.raises(StoreError, match="there is no store at"):
        copy(source, target)
    assert not stands(source)
    assert not stands(target)


@pytest.mark.parametrize("place", [":memory:", "mysql://h/d", "postgresql://h:0/d"])
def test_invalid_copy_locations_are_refused(source: Place, somewhere: Somewhere, place: str) -> None:
    with pytest.raises(StoreError):
        copy(source, place)
    with pytest.raises(StoreError):
        copy(place, somewhere("file"))


# --- in between


def test_copy_is_of_one_moment_while_others_write(pair: tuple[Place, Place], monkeypatch: Any) -> None:
    source, target = pair
    with StateStore(source) as store:
        for number in range(30):
            store.set("n", f"k{number}", number, updated_by="ann")
        monkeypatch.setattr(carried, "PAGE_ROWS", 10)
        put_before = {kind: kind.put for kind in (FileTarget, DatabaseCopyTarget)}

        def meanwhile(self: Any, table: Any, rows: Any) -> None:
            store.set("n", "k0", "meanwhile", updated_by="ann")
            put_before[type(self)](self, table, rows)

        for kind in put_before:
            monkeypatch.setattr(kind, "put", meanwhile)
        report = copy(source, target)
        assert (report.events, report.position) == (30, 31)
    with StateStore(target) as store:
        assert store.get("n", "k0").value == 0


def test_copy_pages_are_limited_by_bytes() -> None:
    small, large = (1, "s", b"x" * 10), (2, "s", "x" * (carried.PAGE_CHARACTERS // 2))
    assert [len(page) for page in carried.pages([small] * (carried.PAGE_ROWS + 1))] == [carried.PAGE_ROWS, 1]
    assert [len(page) for page in carried.pages([large] * 5)] == [2, 2, 1]


def test_copy_may_pause_longer_than_the_idle_limit_of_servers(
    pair: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions of servers end when nothing is heard of them; those of a copy may rest."""
    monkeypatch.setattr("holdlog.adapters.stores.postgres.connection.STOPPED_SECONDS", 1)
    source, target = pair
    fill(source)
    for kind in (FileTarget, DatabaseCopyTarget):
        monkeypatch.setattr(kind, "steady", _slow(kind.steady))
    assert copy(source, target, seal=True).kept_id


def _slow(steady: Any) -> Any:
    def slowly(self: Any) -> Any:
        time.sleep(1.5)
        return steady(self)

    return slowly


def test_copy_reports_its_progress(source: Place, somewhere: Somewhere) -> None:
    with engine(source) as store:
        run(store, transact(*(put(f"k{number}", number) for number in range(1_000))))
    told: list[tuple[int, int]] = []
    copy(source, somewhere("file"), progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert {total for _, total in told} == {1_001}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgres://ann:secret@db:5433/x?password=secret&sslkey=secret&schema=a", "ann@db:5433/x?schema=a"),
        ("postgresql://:secret@db/x", "db/x?schema=holdlog"),
        ("postgresql://db/x?user=o%40dd", "o%40dd@db/x?schema=holdlog"),
        ("postgresql://ann%3Ab:secret@db/x?schema=50%25%20of%20it", "ann%3Ab@db/x?schema=50%25%20of%20it"),
        ("postgresql:///x?host=/run/pg&user=ann", "ann@/x?host=/run/pg&schema=holdlog"),
    ],
)
def test_copy_prints_a_url_with_its_user_and_without_secrets(url: str, told: str) -> None:
    assert name_of(url) == f"postgresql://{told}"
    assert database_target(name_of(url)).schema == database_target(url).schema


def test_move_names_the_user_to_continue_as_and_no_password(source: Place, postgres_server: str) -> None:
    with fresh_schema(f"{postgres_server}&password=hunter2") as to:
        report = copy(source, to, seal=True)
        with engine(source) as store, pytest.raises(SealedError) as refusal:
            run(store, transact(put("k", 1)))
        for told in (report.target, line_of(refusal.value)):
            assert "postgresql://postgres@" in told
            assert "hunter2" not in told
        with StateStore(report.target) as store:
            assert store.get("n", "a").value == 1


def test_move_may_be_repeated_as_another_user(source: Place, postgres_server: str) -> None:
    with fresh_schema(postgres_server) as target, psycopg.connect(postgres_server, autocommit=True) as connection:
        other = f"repeats_{os.getpid()}"
        connection.execute(f"CREATE ROLE {other} LOGIN SUPERUSER")  # type: ignore[call-overload]
        first = copy(source, target, seal=True)
        assert copy(source, f"{target}&user={other}", seal=True).already
        assert copy(source, target, seal=True) == first._replace(already=True)
        with pytest.raises(StoreError, match="are the same store"):
            copy(target, f"{target}&user={other}")
        connection.execute(f"DROP ROLE {other}")  # type: ignore[call-overload]


def test_seal_is_read_as_it_was_written() -> None:
    seal = Seal(1_800_000_000_000_000, 5, "/a 'b'/c.db", given=True)
    assert Seal(**json.loads(seal.text)) == seal
    assert "2027-01-15 at 08:00:00 UTC and moved to /a 'b'/c.db" in seal.line


def test_copy_accepts_quotes_in_a_path(somewhere: Somewhere, tmp_path: Path) -> None:
    for kind in KINDS:
        source, target = somewhere(kind), tmp_path / f'it\'s {kind} 100% "new".db'
        StateStore(source).close()
        copy(source, target, seal=True)
        with engine(source) as store, pytest.raises(SealedError, match=r"it's \w+ 100% \"new\".db; use it there"):
            run(store, transact(put("k", 1)), NOBODY)


def test_two_concurrent_copies_to_one_target_make_one_store(
    pair: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    fill(source)
    monkeypatch.setattr(file, "LOCK_TIMEOUT", 0.05)
    inside, go_on = threading.Event(), threading.Event()
    done: list[CopyReport] = []

    def wait(*_: object) -> int:
        inside.set()
        assert go_on.wait(30)
        return 0

    for kind in (FileTarget, DatabaseCopyTarget):
        monkeypatch.setattr(kind, "steady", wait)
    first = threading.Thread(target=lambda: done.append(copy(source, target)))
    first.start()
    until(inside.is_set)
    with pytest.raises(UnavailableError, match="process") as refusal:
        copy(source, target)
    line_of(refusal.value)
    go_on.set()
    first.join()
    assert done[0].events == 18
    with pytest.raises(StoreError, match="already"):
        copy(source, target)
