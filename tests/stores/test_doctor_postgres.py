"""The doctor of a store in PostgreSQL finds what that of a file finds, and says it in the same words."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdlog import ConflictError, StateStore
from holdlog.adapters.stores.event_log import audit
from holdlog.adapters.stores.event_log.codec import payload_hash
from holdlog.adapters.stores.postgres import doctor
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.schema import MAJOR
from tests.support.commands import redact
from tests.support.kinds import InDatabase, InFile, Kind


def fill(kind: Kind) -> None:
    """Events 1 to 9, of streams with one to three versions."""
    with StateStore(kind.place) as store:
        store.set("n", "a", {"budget": 1}, updated_by="ann")
        store.set("n", "b", "ünï/cödé", updated_by="bob")
        store.set("n", "a", {"budget": 2}, updated_by="bob", reason="more")
        store.set("n", "a", {"budget": 3}, updated_by="ann")
        store.set("other ns", "x/y", None, updated_by="ann")
        store.delete("n", "b", deleted_by="ann")
        store.claim("src/a b.py", agent="ann")
        store.claim("custom://deploy", agent="ann")
        store.release("custom://deploy", agent="ann")


@pytest.fixture
def kind(postgres: str) -> InDatabase:
    kind = InDatabase(postgres)
    fill(kind)
    return kind


@pytest.fixture
def file(tmp_path: Path) -> InFile:
    kind = InFile(tmp_path / "state.db")
    fill(kind)
    return kind


EVENT = "UPDATE stored_events SET {} WHERE POSITION = 3"
"""Event 3 is record:n/a@2, neither first nor last of its stream."""
ZEROS = "BYTES('00000000000000000000000000000000')"

DAMAGES = {
    "a byte of a payload": EVENT.format("payload = replace(payload, '2', '7')"),
    "a payload taken out without its hash": EVENT.format("payload = NULL, salt = NULL"),
    "another salt": EVENT.format(f"salt = {ZEROS}"),
    "another author": EVENT.format('state = BYTES(\'{"by":"eve"}\')'),
    "another session": EVENT.format("session = 'eve'"),
    "another reason": EVENT.format("reason = NULL"),
    "another time": EVENT.format("at = at + 1"),
    "a time before that of the event before": EVENT.format("at = 5"),
    "another digest": EVENT.format(f"digest = {ZEROS}"),
    "an unknown topic": EVENT.format("topic = 'os:system'"),
    "the topic of another aggregate": EVENT.format("topic = 'ClaimReleased'"),
    "another topic": EVENT.format("topic = 'ClaimGranted'"),
    "a body that is no JSON": EVENT.format("state = BYTES('[')"),
    "a version left out": "DELETE FROM stored_events WHERE POSITION = 3",
    "a version counted up": "UPDATE stored_events SET originator_version = 9 WHERE POSITION = 4",
    "the first event gone": "DELETE FROM stored_events WHERE POSITION = 1",
    "the last event of a stream gone": "DELETE FROM stored_events WHERE POSITION = 4",
    "the last event of all gone": "DELETE FROM stored_events WHERE POSITION = 9",
    "the only event of a stream gone": "DELETE FROM stored_events WHERE POSITION = 5",
    "a position moved": "UPDATE stored_events SET POSITION = 99 WHERE POSITION = 9",
    "a position moved to the front": "UPDATE stored_events SET POSITION = 0 WHERE POSITION = 5",
    "a stream of unknown kind": "UPDATE stored_events SET originator_id = 'thread:1' WHERE POSITION = 5",
    "a stream spelled differently": (
        "UPDATE stored_events SET originator_id = 'record:other ns/x/y' WHERE POSITION = 5"
    ),
    "a view row gone": "DELETE FROM current WHERE key = 'a'",
    "a claim's row gone": "DELETE FROM claims WHERE held = 0",
    "a stray view row": (
        "INSERT INTO current SELECT namespace, 'stray', 1, 1, value, 'x', 1, digest, NULL, NULL FROM current"
        " WHERE key = 'a'"
    ),
    "a stray claim": "INSERT INTO claims (resource, version) VALUES ('stray', 1)",
    "a view row moved": "UPDATE current SET key = 'c' WHERE key = 'a'",
    "meta without the id": "DELETE FROM meta WHERE name = 'store_id'",
    "grants that are no JSON": "UPDATE claims SET grants = '[' WHERE held > 0",
    "grants of another shape": "UPDATE claims SET grants = '[[1]]' WHERE held > 0",
    "a lease of nothing": "UPDATE leases SET resource = 'stray'",
    "no leases": "DELETE FROM leases",
    "another version in a view": "UPDATE current SET version = version + 1 WHERE key = 'a'",
    "another value in a view": "UPDATE current SET value = '7' WHERE key = 'a'",
    "another author in a view": "UPDATE current SET updated_by = 'eve' WHERE key = 'a'",
    "another digest in a view": f"UPDATE current SET digest = {ZEROS} WHERE key = 'a'",
}
SAME = ("positions", "versions", "times", "digests", "events", "views", "leases", "kept")


@pytest.mark.check
@pytest.mark.parametrize("damage", DAMAGES)
def test_doctor_identifies_each_kind_of_damage_in_postgres_as_in_a_file(
    kind: InDatabase, file: InFile, damage: str
) -> None:
    for each in (kind, file):
        each.doctored(DAMAGES[damage])
    found, expected = kind.look(), file.look()
    assert {name: found[name] for name in SAME} == {name: expected[name] for name in SAME}
    assert kind.bad().keys() == file.bad().keys()
    assert kind.bad() or damage in ("a lease of nothing", "no leases")


@pytest.mark.check
def test_doctor_counts_stored_responses_and_refusals(kind: InDatabase, file: InFile) -> None:
    for each in (kind, file):
        with StateStore(each.place) as store:
            with pytest.raises(ConflictError):
                store.set("n", "a", 1, updated_by="ann", expected_version=1)
            store.set("n", "a", 1, updated_by="ann", request_id="once")
        assert each.look()["kept"].text == "responses to 1 request, 1 refusal"


def test_doctor_reports_a_sound_store_in_postgres_as_sound(kind: InDatabase) -> None:
    found = kind.look()
    assert kind.bad() == {}
    assert [name for name in found if found[name].level == "warn"] == ["durability"]  # fsync is off in tests
    assert "9 events, 2 records (1 deleted)" in found["contents"].text
    assert found["leases"].text == "1 claim held, 0 agents waiting"
    assert found["database"].text.startswith("PostgreSQL 1")
    assert found["tables"].text == "19 tables and 13 indexes exist"
    assert found["schema"].text == "4"


@pytest.mark.check
def test_doctor_reports_an_empty_store_in_postgres_as_sound(postgres: str) -> None:
    open_postgres(postgres).close()
    assert InDatabase(postgres).bad() == {}


@pytest.mark.check
def test_doctor_reports_a_server_without_fsync_and_its_effect(kind: InDatabase) -> None:
    told = kind.look()["durability"]
    assert told.level == "warn"
    assert told.text.startswith("fsync is off")
    assert "acknowledged writes are lost" in told.text


@pytest.mark.check
@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        ("DROP TABLE current", "table current, index current_due; run `holdlog rebuild` to create them again"),
        (
            "DROP TABLE claims",
            ("table claims, index claims_active, index claims_waiting; run `holdlog rebuild` to create them again"),
        ),
        ("ALTER TABLE leases DROP CONSTRAINT leases_pkey", "index leases_pkey"),
        ("ALTER TABLE stored_events DROP CONSTRAINT stored_events_pkey", "index stored_events_pkey"),
        (
            "ALTER TABLE stored_events DROP CONSTRAINT stored_events_notification_id_key",
            "index stored_events_notification_id_key",
        ),
        (
            "DROP TABLE leases",
            (
                "table leases, index leases_agent, index leases_deadline, index leases_present, index leases_principal,"
                " index leases_queued, index leases_session"
            ),
        ),
        ("DROP TABLE refusals", "table refusals"),
        ("DROP INDEX claims_active", "index claims_active; run `holdlog rebuild` to create them again"),
        ("DROP TABLE meta", "table meta"),
        ("DROP TABLE stored_events", "table stored_events"),
    ],
)
def test_doctor_names_missing_tables_and_indexes(kind: InDatabase, damage: str, missing: str) -> None:
    kind.doctored(damage)
    found = kind.look()
    assert found["tables"].level == "bad"
    assert found["tables"].text == f"missing: {missing}"
    assert "connected" in found


def test_doctor_finds_a_damaged_event_row_and_table_at_once(kind: InDatabase) -> None:
    kind.doctored("DROP TABLE claims", EVENT.format("session = 'eve'"), "DELETE FROM current WHERE key = 'a'")
    assert kind.bad()["digests"] == "1 do not verify: record:n/a@2"
    assert kind.bad()["views"].startswith(
        "2 differ from the log; run `holdlog rebuild`: the table claims is missing; current has no"
    )


@pytest.mark.check
def test_doctor_reports_another_schema_version_and_stops(kind: InDatabase) -> None:
    kind.doctored(f"UPDATE meta SET value = '{MAJOR + 1}' WHERE name = 'major'")
    found = kind.look()
    expected = f"the store has schema {MAJOR + 1}, but this holdlog supports {MAJOR}; upgrade holdlog"
    assert found["schema"].text == expected
    assert found["log"].level == "warn"
    assert "digests" not in found


@pytest.mark.check
def test_doctor_reports_an_unfinished_rebuild_in_postgres(kind: InDatabase) -> None:
    kind.doctored("INSERT INTO meta VALUES ('rebuild', 'x')")
    assert kind.look()["rebuild"].level == "warn"
    assert kind.bad() == {}


@pytest.mark.check
def test_doctor_accepts_a_text_that_is_missing_only_if_it_was_redacted(kind: InDatabase) -> None:
    [(salt, payload)] = kind.ask("SELECT salt, payload FROM stored_events WHERE notification_id = 3")
    with closing(open_postgres(str(kind.place))) as store:
        redact(store, 1)
    assert kind.bad() == {}
    with kind.connect() as connection:
        connection.execute(
            "UPDATE stored_events SET salt = NULL, payload = NULL, payload_hash = %s WHERE notification_id = 3",
            (payload_hash(salt, payload),),
        )
    assert kind.bad() == {"redactions": "1 differ from the log: record:n/a@2 lacks a text that nobody redacted"}


@pytest.mark.check
def test_doctor_changes_nothing_in_postgres_and_needs_no_right_to_write(kind: InDatabase) -> None:
    kind.doctored("DELETE FROM current WHERE key = 'a'")
    before = (kind.views(), kind.all_tables(), kind.ask("SELECT pg_current_wal_insert_lsn() IS NOT NULL"))
    reading = InDatabase(f"{kind.place}&options=-c%20default_transaction_read_only%3Don")
    assert "views" in reading.bad()
    assert (kind.views(), kind.all_tables(), kind.ask("SELECT pg_current_wal_insert_lsn() IS NOT NULL")) == before


@pytest.mark.check
def test_doctor_runs_while_servers_of_postgres_write_and_hold_the_log_lock(kind: InDatabase) -> None:
    with kind.connect() as writing:
        writing.execute("BEGIN")
        writing.execute("LOCK TABLE stored_events IN EXCLUSIVE MODE")
        writing.execute("DELETE FROM current")
        assert kind.bad() == {}


@pytest.mark.check
def test_doctor_of_postgres_ignores_what_is_written_while_it_runs(
    kind: InDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PROGRESS_EVERY", 1)
    with StateStore(kind.place) as store:
        written: list[int] = []

        def write(done: int, total: int) -> None:
            written.append(store.set("n", "a", done, updated_by="ann").version)
            store.set("aaa", f"k{done}", done, updated_by="ann")

        found = kind.look(write)
        assert len(written) >= 9
        assert [it for it in found.values() if it.level == "bad"] == []
        assert found["positions"].text == "1 to 9 without a gap"
    assert kind.bad() == {}


@pytest.mark.check
def test_doctor_compares_views_of_many_rows_in_parts(kind: InDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_COMPARED", 3)
    with StateStore(kind.place) as store:
        for number in range(20):
            store.set("many", f"k{number:02}", "x" * number, updated_by="ann")
    assert kind.bad() == {}
    monkeypatch.setattr(audit, "MAX_WEIGHT", 50)
    kind.doctored("DELETE FROM current WHERE namespace = 'many' AND key > 'k02'")
    kind.doctored("INSERT INTO current (namespace, key, version) SELECT 'stray', namespace || key, 1 FROM current")
    assert kind.bad()["views"].startswith(f"{17 + 6} differ from the log")


@pytest.mark.check
def test_doctor_lists_agents_connected_to_this_store_in_postgres(kind: InDatabase, postgres_server: str) -> None:
    assert kind.look()["connected"].text == "0 servers"
    other = InDatabase(f"{kind.place}x")
    try:
        with StateStore(kind.place) as store, StateStore(other.place) as elsewhere:
            store.claim("a", agent="ann")
            elsewhere.claim("a", agent="ann")
            [(server,)] = kind.ask("SELECT DISTINCT server FROM leases WHERE resource = 'a'")
            told = kind.look()["connected"].text
            assert told.startswith(f"1 server: {server}, from ")
        assert kind.look()["connected"].text == "0 servers"
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{str(other.place).rpartition("=")[2]}" CASCADE')


@pytest.mark.check
def test_doctor_reports_few_free_connections(kind: InDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kind.look()["connections"].level == "ok"
    monkeypatch.setattr(doctor, "FEW_CONNECTIONS", 1_000_000)
    assert kind.look()["connections"].level == "warn"


@pytest.mark.check
def test_doctor_reports_a_connection_lost_while_it_runs(kind: InDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PROGRESS_EVERY", 1)

    def cut(done: int, total: int) -> None:
        kind.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE relation = 'stored_events'::regclass AND pid <> pg_backend_pid()"
        )

    found = kind.look(cut)
    assert found["database"].level == "bad"
    assert "views" not in found


@pytest.mark.parametrize(
    "url",
    ["postgresql://nobody:SECRET@127.0.0.1:1/x", "postgresql://h:x/d?password=SECRET", "postgresql://h/x?schema="],
)
def test_doctor_reports_a_silent_database_without_the_password(url: str) -> None:
    found = InDatabase(url).look()
    assert found["database"].level == "bad"
    assert "SECRET" not in str(found)


@pytest.mark.check
def test_doctor_command_reports_the_same_for_postgres_and_fails_on_a_bad_one(kind: InDatabase) -> None:
    def holdlog(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "holdlog", *arguments, "--db", str(kind.place)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert holdlog("doctor").returncode == 0
    kind.doctored("DELETE FROM current WHERE key = 'a'")
    told = holdlog("doctor")
    assert told.returncode == 1
    assert "views        1 differ from the log" in told.stdout
    rebuilt = holdlog("rebuild", "--json")
    assert rebuilt.returncode == 0
    assert '"position": 9, "events": 9' in rebuilt.stdout
    assert holdlog("doctor", "--json").returncode == 0
