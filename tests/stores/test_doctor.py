"""The doctor finds every kind of damage, finds none where there is none, and changes nothing."""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.cli import store as cli_store
from holdlog.adapters.operating_system.presence import announce
from holdlog.adapters.stores.event_log import audit
from holdlog.adapters.stores.event_log.codec import payload_hash
from holdlog.adapters.stores.event_log.findings import Finding
from holdlog.adapters.stores.sqlite.doctor import examine, has_wal_reset_bug
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.schema import MAJOR, MINOR, MINORS_PER_MAJOR
from holdlog.domain.store_log import PayloadRedacted, StoreLog
from tests.support.commands import PATIENCE, append, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store in a folder for its owner: events 1 to 9, of streams with one to three versions."""
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    with StateStore(folder / "state.db") as store:
        store.set("n", "a", {"budget": 1}, updated_by="ann")
        store.set("n", "b", "ünï/cödé", updated_by="bob")
        store.set("n", "a", {"budget": 2}, updated_by="bob", reason="more")
        store.set("n", "a", {"budget": 3}, updated_by="ann")
        store.set("other ns", "x/y", None, updated_by="ann")
        store.delete("n", "b", deleted_by="ann")
        store.claim("src/a b.py", agent="ann")
        store.claim("custom://deploy", agent="ann")
        store.release("custom://deploy", agent="ann")
    return folder / "state.db"


def look(path: Path) -> dict[str, Finding]:
    found = {finding.name: finding for finding in examine(path)}
    assert all(len(finding.text.splitlines()) == 1 for finding in found.values())
    return found


def bad(path: Path) -> dict[str, str]:
    return {name: finding.text for name, finding in look(path).items() if finding.level == "bad"}


def doctored(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        assert connection.execute(statement).rowcount != 0, "the damage hit nothing"
    connection.close()


def test_doctor_reports_a_sound_store_as_sound(path: Path) -> None:
    found = look(path)
    assert bad(path) == {}
    assert "9 events, 2 records (1 deleted)" in found["contents"].text
    assert (found["leases"].level, found["leases"].text) == ("ok", "1 claim held, 0 agents waiting")
    assert found["permissions"].level == "ok"
    assert found["positions"].text == "1 to 9 without a gap"
    assert found["versions"].text == "of 5 streams, without a gap"


def test_doctor_counts_holders_and_waiters(path: Path) -> None:
    with StateStore(path) as store:
        store.claim("src/a b.py", agent="bob", wait_seconds=0.01)
        store.claim("custom://deploy", agent="ann", mode="shared")
        store.claim("custom://deploy", agent="bob", mode="shared")
        store.claim("src/", agent="bob", wait_seconds=0.01)
        store.claim("src/", agent="eve", wait_seconds=0.01)
    assert look(path)["leases"].text == "2 claims held, 2 agents waiting"


def test_doctor_lists_a_grant_without_a_lease_as_no_fault(path: Path) -> None:
    doctored(path, "DELETE FROM leases")
    found = look(path)["leases"]
    assert found.level == "ok"
    assert found.text == "1 claim held, 0 agents waiting; 1 without a lease, which expires after the grace period"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("UPDATE leases SET version = 7", "src/a b.py@7"),
        ("UPDATE leases SET resource = 'stray'", "stray@1"),
        ("UPDATE leases SET resource = 'custom://deploy'", "custom://deploy@1"),
        ("UPDATE leases SET kind = 'waits'", "src/a b.py@1"),
        ("UPDATE leases SET agent = 'eve'", "src/a b.py@1"),
        ("UPDATE leases SET principal = 'eve'", "src/a b.py@1"),
    ],
)
def test_doctor_reports_a_lease_without_a_claim_as_minor(path: Path, damage: str, named: str) -> None:
    doctored(path, damage)
    found = look(path)["leases"]
    assert found.level == "warn"
    assert found.text.endswith(f"1 leases match no claim and grant nothing: {named}")
    assert bad(path) == {}


def test_doctor_reports_an_empty_store_as_sound(tmp_path: Path) -> None:
    StateStore(tmp_path / "state.db").close()
    assert bad(tmp_path / "state.db") == {}


EVENT = "UPDATE stored_events SET {} WHERE rowid = 3"
"""Event 3 is record:n/a@2, neither first nor last of its stream."""

DAMAGES = {
    "a byte of a payload": (["digests"], EVENT.format("payload = replace(payload, '2', '7')")),
    "a payload that is no UTF-8": (["digests"], EVENT.format("payload = CAST(x'7bff7d' AS TEXT)")),
    "a payload of bytes": (["digests"], EVENT.format("payload = x'7b7d'")),
    "a payload taken out without its hash": (["digests"], EVENT.format("payload = NULL, salt = NULL")),
    "another salt": (["digests"], EVENT.format("salt = zeroblob(16)")),
    "another author": (["digests"], EVENT.format('state = CAST(\'{"by":"eve"}\' AS BLOB)')),
    "another session": (["digests"], EVENT.format("session = 'eve'")),
    "another reason": (["digests"], EVENT.format("reason = NULL")),
    "another time": (["digests"], EVENT.format("at = at + 1")),
    "a time before that of the event before": (["digests", "times"], EVENT.format("at = 5")),
    "another digest": (["digests"], EVENT.format("digest = zeroblob(32)")),
    "a digest of text": (["digests"], EVENT.format("digest = 'none'")),
    "an unknown topic": (["digests", "events"], EVENT.format("topic = 'os:system'")),
    "the topic of another aggregate": (["digests", "events"], EVENT.format("topic = 'ClaimReleased'")),
    "another topic": (["digests", "events"], EVENT.format("topic = 'ClaimGranted'")),
    "a body that is no JSON": (["digests", "events"], EVENT.format("state = CAST('{' AS BLOB)")),
    "a body of text": (["digests", "events"], EVENT.format("state = '{}'")),
    "a body with too much in it": (["digests", "events"], EVENT.format('state = CAST(\'{"by":"a","x":1}\' AS BLOB)')),
    "a version left out": (["digests", "positions", "versions"], "DELETE FROM stored_events WHERE rowid = 3"),
    "a version counted up": (
        ["digests", "versions", "views"],
        "UPDATE stored_events SET originator_version = 9 WHERE rowid = 4",
    ),
    "a version of text": (["digests", "events", "versions"], EVENT.format("originator_version = 'two'")),
    "the first event gone": (["digests", "positions", "versions"], "DELETE FROM stored_events WHERE rowid = 1"),
    "the last event of a stream gone": (["positions", "views"], "DELETE FROM stored_events WHERE rowid = 4"),
    "the last event of all gone": (["views"], "DELETE FROM stored_events WHERE rowid = 9"),
    "the only event of a stream gone": (["positions", "views"], "DELETE FROM stored_events WHERE rowid = 5"),
    "a position moved": (["positions"], "UPDATE stored_events SET rowid = 99 WHERE rowid = 9"),
    "a stream of bytes": (
        ["digests", "events", "versions", "views"],
        "UPDATE stored_events SET originator_id = CAST(originator_id AS BLOB) WHERE rowid = 4",
    ),
    "a stream of unknown kind": (
        ["digests", "events", "views"],
        "UPDATE stored_events SET originator_id = 'thread:1' WHERE rowid = 5",
    ),
    "a stream spelled differently": (
        ["digests", "events", "views"],
        "UPDATE stored_events SET originator_id = 'record:other ns/x/y' WHERE rowid = 5",
    ),
    "a view row gone": (["views"], "DELETE FROM current WHERE key = 'a'"),
    "a claim's row gone": (["views"], "DELETE FROM claims WHERE held = 0"),
    "a ticket that is not in the log": (
        ["views"],
        "INSERT INTO tickets SELECT resource, version, 'eve', NULL, 'exclusive', 5, 2, '', '' FROM claims LIMIT 1",
    ),
    "a stray view row": (
        ["views"],
        "INSERT INTO current SELECT namespace, 'stray', 1, 1, value, 'x', 1, digest, NULL, 'x' FROM current LIMIT 1",
    ),
    "a stray view row of odd types": (["views"], "INSERT INTO current (namespace, key) VALUES (x'00', 7)"),
    "a stray claim": (["views"], "INSERT INTO claims (resource, version) VALUES ('stray', 1)"),
    "a view row moved": (["views"], "UPDATE current SET key = 'c' WHERE key = 'a'"),
    "meta without the id": (["contents"], "DELETE FROM meta"),
    "a view's table gone": (["contents", "views"], "DROP TABLE current"),
    "the table of claims gone": (["leases", "views"], "DROP TABLE claims"),
    "the table of leases gone": (["leases"], "DROP TABLE leases"),
    "grants that are no JSON": (["views"], "UPDATE claims SET grants = '[' WHERE held > 0"),
    "grants of another shape": (["views"], "UPDATE claims SET grants = '[[1]]' WHERE held > 0"),
} | {
    f"another {column} in a view": (["views"], f"UPDATE current SET {column} = {other} WHERE key = 'a'")
    for column, other in {
        "version": "version + 1",
        "live": "0",
        "value": "'{}'",
        "updated_by": "'eve'",
        "updated_at": "updated_at + 1",
        "digest": "zeroblob(32)",
    }.items()
}


@pytest.mark.check
@pytest.mark.parametrize("damage", DAMAGES)
def test_doctor_identifies_each_kind_of_damage(path: Path, damage: str) -> None:
    wrong, statement = DAMAGES[damage]
    doctored(path, statement)
    assert sorted(bad(path)) == wrong


def test_finding_of_the_doctor_names_event_and_row(path: Path) -> None:
    doctored(path, EVENT.format("session = 'eve'"), "UPDATE current SET updated_by = 'eve', live = 0 WHERE key = 'a'")
    assert bad(path)["digests"] == "1 do not verify: record:n/a@2"
    assert bad(path)["views"].endswith("current and the log differ in live, updated_by for record:n/a")


def test_doctor_summarises_many_faults_in_one_line(path: Path) -> None:
    with StateStore(path) as store:
        for number in range(20):
            store.set("many", f"k{number:02}", number, updated_by="ann")
    doctored(path, "DELETE FROM current WHERE namespace = 'many'")
    assert bad(path)["views"].startswith("20 differ from the log")
    assert bad(path)["views"].endswith("and 17 more")


def test_contents_of_a_damaged_row_cannot_forge_lines_of_the_doctor(path: Path) -> None:
    doctored(
        path,
        "UPDATE stored_events SET topic = 'x' || char(10, 27) || '[31m' WHERE rowid = 3",
        "INSERT INTO claims (resource, version) VALUES ('stray' || char(10, 27) || '[31m', 1)",
    )
    found = bad(path)
    assert {"events", "views"} <= set(found)
    assert all(text.isprintable() for text in found.values())


def test_doctor_reports_a_payload_that_nobody_redacted(path: Path) -> None:
    removed(path, "payload", "salt", position=3)
    assert bad(path) == {"redactions": "1 differ from the log: record:n/a@2 lacks a text that nobody redacted"}


def test_doctor_accepts_redacted_texts_in_the_chain(path: Path) -> None:
    removed(path, "payload", "salt", position=3)
    removed(path, "reason", "reason_salt", position=3)
    redacted(path, PayloadRedacted(target="record:n/a", versions=((2, 2),), by="boss"))
    assert bad(path) == {"redactions": "1 differ from the log: record:n/a@2 lacks a text that nobody redacted"}
    redacted(path, PayloadRedacted(target="record:n/a", versions=((2, 2),), part="reason", by="boss"), after=1)
    assert bad(path) == {}


def removed(path: Path, column: str, salted: str, position: int) -> None:
    """Remove a text from the log, except for its hash, as anyone may who can write to the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    [(salt, text)] = connection.execute(f"SELECT {salted}, {column} FROM stored_events WHERE rowid = {position}")
    update = f"UPDATE stored_events SET {salted} = NULL, {column} = NULL, {column}_hash = ? WHERE rowid = {position}"
    connection.execute(update, (payload_hash(salt, text),))
    connection.close()


def redacted(path: Path, event: PayloadRedacted, after: int = 0) -> None:
    """Record that. `after`: how many facts about the log are recorded."""
    store = open_sqlite(path)
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        append(transaction, StoreLog(after), event)
    store.close()


def test_doctor_finds_overwritten_pages(path: Path) -> None:
    with StateStore(path) as store:
        for number in range(200):
            store.set("many", f"k{number}", "x" * 500, updated_by="ann")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(os.urandom(3 * 4096))
    assert "integrity" in bad(path)


@pytest.mark.parametrize("content", [b"no database" * 1000, b"", b"SQLite format 3\0"])
def test_doctor_reports_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    assert "file" in bad(path)
    assert path.read_bytes() == content


def test_doctor_recognises_an_agenthold_file(tmp_path: Path) -> None:
    doctored(tmp_path / "state.db", "CREATE TABLE state_records (a)", "CREATE TABLE state_history (a)")
    assert "agenthold" in bad(tmp_path / "state.db")["file"]


def test_doctor_does_not_create_a_missing_store(tmp_path: Path) -> None:
    assert "there is no store" in bad(tmp_path / "state.db")["file"]
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_newer_schemas(path: Path) -> None:
    doctored(path, f"PRAGMA user_version = {MAJOR * MINORS_PER_MAJOR + MINOR + 1}")
    assert look(path)["schema"].level == "warn"
    doctored(path, f"PRAGMA user_version = {(MAJOR + 1) * MINORS_PER_MAJOR}")
    assert "upgrade" in bad(path)["file"]


@pytest.mark.parametrize("name", ["state.db", "state.db.gate"])
def test_doctor_reports_files_that_others_can_access_as_bad(path: Path, name: str) -> None:
    (path.parent / name).chmod(0o755)
    found = look(path)["permissions"]
    assert found.level == "bad"
    assert "0755" in found.text


def test_doctor_warns_of_a_folder_that_others_can_read(path: Path) -> None:
    path.parent.chmod(0o755)
    found = look(path)["permissions"]
    assert found.level == "warn"
    assert "0755" in found.text


def test_doctor_reports_an_unfinished_rebuild(path: Path) -> None:
    doctored(path, "CREATE TABLE claims_rebuilt (resource)")
    assert look(path)["rebuild"].level == "warn"
    assert bad(path) == {}


def test_doctor_changes_nothing(path: Path) -> None:
    doctored(path, "DELETE FROM current WHERE key = 'a'")
    before = path.read_bytes()
    assert "views" in bad(path)
    assert path.read_bytes() == before


def test_doctor_runs_while_servers_use_the_store_and_hold_its_locks(path: Path) -> None:
    with StateStore(path) as store:
        store.set("n", "new", 1, updated_by="ann")
        writing = sqlite3.connect(path, isolation_level=None)
        writing.execute("BEGIN IMMEDIATE")
        writing.execute("DELETE FROM current")
        assert bad(path) == {}
        writing.execute("ROLLBACK")
        writing.close()


def test_doctor_ignores_what_is_written_while_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PROGRESS_EVERY", 1)
    with StateStore(path) as store:
        written: list[int] = []

        def write(done: int, total: int) -> None:
            written.append(store.set("n", "a", done, updated_by="ann").version)
            store.set("aaa", f"k{done}", done, updated_by="ann")

        findings = {finding.name: finding for finding in examine(path, write)}
        assert len(written) >= 9
        assert [finding for finding in findings.values() if finding.level == "bad"] == []
        assert findings["positions"].text == "1 to 9 without a gap"
    assert bad(path) == {}


def test_doctor_lists_connected_agents(path: Path) -> None:
    presence = announce(path, "s-1", "mcp stdio: claude")
    assert f"mcp stdio: claude, process {os.getpid()}" in look(path)["connected"].text
    presence.close()
    assert look(path)["connected"].text.startswith("0 servers")


@pytest.mark.parametrize(
    ("version", "bug"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_doctor_knows_the_sqlite_versions_with_the_bug(version: tuple[int, int, int], bug: bool) -> None:
    assert has_wal_reset_bug(version) is bug


def run(path: Path, as_json: bool = False) -> int:
    parser = argparse.ArgumentParser()
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--db")
    commands = parser.add_subparsers()
    cli_store.add_doctor(commands, shared)
    cli_store.add_rebuild(commands, shared)
    options = parser.parse_args(["doctor", "--db", str(path), *(["--json"] if as_json else [])])
    code: int = options.run(options)
    return code


def test_doctor_command_prints_one_line_per_finding_and_fails_on_a_bad_one(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "\x1b" not in told.out
    first, *findings = told.out.splitlines()
    assert first == f"the store {path}"
    assert findings
    assert all(line.startswith(("✓", "!")) for line in findings)
    doctored(path, "DELETE FROM current WHERE key = 'a'")
    assert run(path) == 1
    assert "✗ views" in capsys.readouterr().out


def test_doctor_command_prints_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sound"] is True
    assert {finding["name"]: finding["level"] for finding in told["findings"]}["views"] == "ok"
    doctored(path, "DELETE FROM current WHERE key = 'a'")
    assert run(path, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["sound"] is False


def test_doctor_states_what_verified_digests_do_not_prove(path: Path) -> None:
    assert look(path)["digests"].level == "ok"
    assert "not proven unchanged" in look(path)["proof"].text
    assert "removed the newest events" in look(path)["proof"].text


def test_doctor_omits_the_note_about_proof_when_digests_do_not_verify(path: Path) -> None:
    doctored(path, "UPDATE stored_events SET at = at + 1 WHERE rowid = 1")
    assert look(path)["digests"].level == "bad"
    assert "proof" not in look(path)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_doctor_command_states_what_digests_do_not_prove(path: Path, options: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdlog", "doctor", "--db", str(path), *options],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "without a checkpoint kept elsewhere" in done.stdout


@pytest.mark.parametrize(("ahead", "shown"), [(2, None), (90, "1.5 min"), (23 * 3600, "23.0 h")])
def test_log_that_is_ahead_of_the_clock_is_reported_with_what_it_does_to_ttl(
    path: Path, ahead: int, shown: str | None
) -> None:
    with closing(open_sqlite(path, lambda: time.time_ns() // 1_000 + ahead * 1_000_000)) as store:
        write(store, "late", 1)
    found = [it for it in examine(path) if it.name == "clock"]
    assert [it.level for it in found] == ([] if shown is None else ["warn"])
    assert all(f"the log's time is {shown} ahead of the clock" in it.text for it in found)
    assert all("values with a TTL" in it.text for it in found)
