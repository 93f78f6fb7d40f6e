"""Audit on both stores: tampering by those who know the tables and the rule of digests."""

import io
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import psycopg
import pytest

import holdlog
from holdlog.adapters.engine.port import Snapshot
from holdlog.adapters.operations.base import OPERATIONS
from holdlog.adapters.stores.chain import verify_log
from holdlog.adapters.stores.check import rebuild
from tests.support.library import Blocking, in_thread
from tests.support.waiting import until

SECRET = "sk-1234567890"
EVENTS = 12
PROGRAM = Path(__file__).parents[1] / "docs" / "verify_log.py"
POSTGRES = pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))
WHY = {"redacted_by": "bob", "reason": "it leaked"}


@pytest.fixture(params=["file", POSTGRES])
def place(request, tmp_path):
    return request.getfixturevalue("postgres") if request.param == "postgres" else tmp_path / "state.db"


@pytest.fixture(params=["file", "memory", "coroutines", POSTGRES])
def store(request, tmp_path):
    places = {"memory": ":memory:", "postgres": ""}
    place = places.get(request.param, tmp_path / "state.db") or request.getfixturevalue("postgres")
    opened = (Blocking if request.param == "coroutines" else holdlog.StateStore)(place)
    yield opened
    (opened.stop if request.param == "coroutines" else opened.close)()


def fill(place):
    """Twelve events. Returns a checkpoint."""
    with holdlog.StateStore(place, session="s-1") as store:
        for number in range(5):
            for key in ("a", "b"):
                store.set("n", key, number * 1000, updated_by="ann", reason="more")
        store.claim("src/a.py", agent="ann")
        store.release("src/a.py", agent="ann", note="done")
        return str(store.checkpoint())


def ask(place, statement):
    if not isinstance(place, str):
        with closing(sqlite3.connect(place, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()
    url, _, schema = place.partition("?schema=")
    with psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}") as postgres:
        cursor = postgres.execute(statement)
        return cursor.fetchall() if cursor.description else []


def put(place, column, value, position):
    """Change a column of an event; bytes are bytes in both databases."""
    literal = value if not isinstance(value, bytes) else f"'\\x{value.hex()}'::bytea"
    literal = literal if isinstance(place, str) or not isinstance(value, bytes) else f"x'{value.hex()}'"
    ask(place, f"UPDATE events SET {column} = {literal} WHERE position = {position}")


def verify(place, checkpoint=None):
    with holdlog.StateStore(place) as store:
        result = store.verify(checkpoint)
        return "" if result else result.problem


def read(place, position, columns="salt, payload"):
    return ask(place, f"SELECT {columns} FROM events WHERE position = {position}")[0]


# --- tampering


def swap_texts(place):
    for position, (salt, payload) in ((3, read(place, 5)), (5, read(place, 3))):
        put(place, "salt", salt, position)
        put(place, "payload", f"'{payload}'", position)


def take_out_text(place):
    salt, payload = read(place, 5)
    put(place, "payload_hash", sha256(salt + payload.encode()).digest(), 5)
    put(place, "payload = NULL, salt", "NULL", 5)


CHANGES = {
    "nothing": (lambda place: None, ""),
    "edited payload": (lambda place: put(place, "payload", "'7'", 5), "position 5: the event was changed"),
    "edited author": (lambda place: put(place, "meta", "replace(meta, 'ann', 'eve')", 5), "position 5: "),
    "edited time": (lambda place: put(place, "at", "at + 1", 5), "position 5: "),
    "moved salt": (lambda place: put(place, "salt", read(place, 3)[0], 5), "position 5: "),
    "swapped texts": (swap_texts, "position 3: "),
    "renumbered event": (lambda place: put(place, "version", "9", 8), "position 8: "),
    "renumbered position": (lambda place: put(place, "position", "13", 12), "position 12: the event is missing"),
    "removed event": (lambda place: ask(place, "DELETE FROM events WHERE position = 5"), "position 5: the event is"),
    "text taken out": (take_out_text, "position 5: its text was removed"),
    "no text nor hash": (lambda place: put(place, "payload = NULL, salt", "NULL", 5), "position 5: the event has no"),
    "cut tail": (lambda place: ask(place, "DELETE FROM events WHERE position > 10"), "the log ends at position 10"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_log_is_found_and_the_first_event_named(place, change):
    kept = fill(place)
    tamper, problem = CHANGES[change]
    tamper(place)
    found = verify(place, kept)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


FORGERIES = {
    "author": ("meta", "replace(meta, 'ann', 'eve')", 5, ""),
    "version": ("version", "9", 10, "position 10: version 9 follows version 4 of record:n/b"),
    "time": ("at", "at - 1000000", 5, "position 5: its time is before that of the event before it"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_chain_that_was_forged_to_its_end_is_found_against_a_checkpoint(place, forgery):
    """Whoever can write the tables can also compute all digests again, by the rule that docs/verify_log.py states."""
    column, value, changed, problem = FORGERIES[forgery]
    kept = fill(place)
    put(place, column, value, changed)
    if forgery == "version":
        ask(place, "UPDATE current SET version = 9 WHERE stream = 'record:n/b'")
    digest = bytes(32)
    columns = "position, stream, version, topic, at, meta, payload, salt"
    for *header, payload, salt in ask(place, f"SELECT {columns} FROM events ORDER BY position"):
        text = "".join(f"{part}\n" for part in header).encode() + sha256(salt + payload.encode()).digest()
        digest = sha256(digest + sha256(text).digest()).digest()
        put(place, "digest", digest, header[0])
    assert verify(place) == problem
    differs = f"position {EVENTS}: the log has another history than the checkpoint"
    assert verify(place, kept) == (problem if forgery == "time" else differs)


def test_history_of_another_store_is_found_against_a_checkpoint(place, tmp_path):
    kept = fill(tmp_path / "other.db")
    fill(place)
    assert verify(place, kept) == f"position {EVENTS}: the log has another history than the checkpoint"


@pytest.mark.parametrize("keeps_hash", [True, False])
def test_redacted_text_that_is_put_back_is_found(place, keeps_hash):
    kept = fill(place)
    salt, payload = read(place, 3)
    with holdlog.StateStore(place) as store:
        store.redact("record:n/a@2", **WHY)
    assert verify(place, kept) == ""
    put(place, "salt", salt, 3)
    put(place, "payload", f"'{payload}'", 3)
    if not keeps_hash:
        put(place, "payload_hash", "NULL", 3)
    assert verify(place).startswith("position 3: ")


def test_doctor_finds_a_backup_that_was_copied_back_and_a_page_that_was_overwritten(tmp_path):
    db = tmp_path / "state.db"
    fill(db)
    shutil.copy(db, tmp_path / "backup")
    fill(db)
    assert diagnose(db) == []
    shutil.copy(tmp_path / "backup", db)
    for _ in range(2):  # also after writes on the fork
        assert diagnose(db) == ["pages"]
        with holdlog.StateStore(db) as store:
            store.set("n", "k", 1, updated_by="ann")
    with db.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xff" * 4096)
    assert "pages" in diagnose(db)


def diagnose(place):
    """What is bad."""
    with holdlog.StateStore(place) as store:
        diagnosis = store.doctor()
    assert bool(diagnosis) == all(finding.level == "ok" for finding in diagnosis.findings)
    return [finding.name for finding in diagnosis.findings if finding.level == "bad"]


# --- views


def test_rebuild_gives_claims_whose_rows_are_gone_a_full_life_and_waiters_time(place):
    with holdlog.StateStore(place) as ann, holdlog.StateStore(place) as bob:
        ann.claim("src/", agent="ann", lease_seconds=100)
        ann.claim("b.py", agent="ann")
        ann.claim("c.py", agent="ann", mode="shared")
        assert bob.claim("src/a.py", agent="bob", also=["d.py"], wait_seconds=0.01).status == "busy"
        ann.set("n", "k", 1, updated_by="ann", ttl_seconds=3600)
        ann.set("n", "l", 1, updated_by="ann")
        before, expiry = ann.status(), ann.get("n", "k").expires_at
        for rows in ("claims", "holders", "current WHERE stream = 'record:n/k'"):
            ask(place, f"DELETE FROM {rows}")
        for key in ("A", "z"):
            ask(place, f"INSERT INTO current VALUES ('record:n/{key}', 1, 1, 1, NULL)")
        row = "'z.py', 1, 0, 'exclusive', 'eve', 's', '', 1, 1, 1, NULL, NULL, 0, 0, NULL"
        ask(place, f"INSERT INTO claims VALUES ({row})")
        assert verify(place) == "the view of claim:b.py differs from the log; run doctor --rebuild"
        assert diagnose(place) == ["views"]
        assert ann.rebuild() == (8, 6, "ok")
        assert (diagnose(place), ann.rebuild().changed) == ([], 0)
        after = ann.status()
        held = [[(it.resource, it.held_by, it.version, it.claimed_at) for it in it.claims] for it in (after, before)]
        assert held[0] == held[1] != []
        assert all(it.expires_in_seconds > 250 for it in after.claims)
        assert [[it.agent for it in queue.line] for queue in after.queues] == [["bob"]]
        assert (ann.get("n", "k").expires_at, ann.list("n").count) == (expiry, 2)
        assert ann.release("b.py", agent="ann").status == "released"


def test_nothing_is_rebuilt_from_a_damaged_log(place):
    fill(place)
    put(place, "at", "at + 1", 5)
    ask(place, "DELETE FROM current WHERE stream = 'record:n/a'")
    with holdlog.StateStore(place) as store, pytest.raises(holdlog.StoreError, match="position 5"):
        store.rebuild()
    assert diagnose(place) == ["log"]
    assert ask(place, "SELECT stream FROM current") == [("record:n/b",)]


def test_redaction_between_the_two_looks_of_a_rebuild_is_no_damage(place):
    fill(place)
    with holdlog.StateStore(place) as store:
        engine = store._engine
        with engine.store.snapshot() as view:
            chain = verify_log(view)
        store.redact("record:n/a@1", **WHY)
        ask(place, "DELETE FROM current WHERE stream = 'record:n/a'")
        with engine.write_alone() as batch:
            assert rebuild(chain, Snapshot(engine.store.execute, batch.at, batch.steady), engine.store.execute) == 1
        assert store.verify()


def test_writers_of_a_busy_process_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("holdlog.adapters.engine.engine.LOCK_SECONDS", 0.1)
    store, done = Blocking(tmp_path / "state.db"), threading.Event()

    class Slow(io.BytesIO):
        def readline(self, size=-1):
            done.wait()
            return super().readline(size)

    try:
        importing = in_thread(store.import_, Slow())
        until(lambda: store._store._engine._busy.locked())
        with pytest.raises(holdlog.UnavailableError, match="busy"):
            store.set("n", "k", 1, updated_by="ann")
        done.set()
        with pytest.raises(holdlog.InvalidError):
            importing.result()
        assert store.set("n", "k", 1, updated_by="ann").version == 1
    finally:
        done.set()
        store.stop()


def test_audit_needs_the_scope_admin_and_has_no_routes():
    import_module("holdlog.adapters.operations.admin")  # which the library loads when it is called
    audit = [it for it in OPERATIONS.values() if it.group == "audit"]
    assert {it.name for it in audit if it.scope != "admin"} == {"checkpoint"}
    assert [it.name for it in audit if it.route] == []


# --- redaction


def test_redacted_value_shows_as_one_wherever_it_is_read(store):
    for value in (SECRET, "safe"):
        store.set("n", "k", value, updated_by="ann", reason=value)
    store.claim("a.py", agent="ann")
    store.release("a.py", agent="ann", note=SECRET)
    kept = str(store.checkpoint())
    with pytest.raises(holdlog.CurrentError):
        store.redact("record:n/k@2", **WHY)
    for event in ("record:n/k@1", "claim:a.py@2"):
        assert store.redact(event, **WHY).redacted == 1
    assert store.redact("record:n/k@1", **WHY) == (0, 6, "ok")
    assert store.verify(kept).checkpoint == 4
    assert store.get("n", "k").value == "safe"
    newest, redacted = store.history("n", "k")
    assert (newest.event_type, redacted.event_type, redacted.value, redacted.reason) == ("write", "redact", None, None)
    assert (redacted.updated_by, redacted.version, redacted.position) == ("ann", 1, 1)
    exported = store.export_namespace("n").records[0].history[1]
    assert (exported.event_type, exported.value) == ("redact", None)
    assert store.status("a.py").previous_note is None
    events = store.events().events
    assert [(it.kind, it.by, it.positions) for it in events[4:]] == [("TextsRedacted", "bob", [it]) for it in (1, 4)]
    assert SECRET not in repr(events)
    assert store.redact(events[-1].id, redacted_by="bob", reason="private").redacted == 1
    assert [it.fields.get("reason") for it in store.events(after=5).events] == [None, "private"]
    assert store.verify()


def test_repeated_request_of_a_redacted_write_does_nothing(store):
    first = store.set("n", "r", SECRET, updated_by="ann", request_id="r-1")
    for request_id in ("r-2", "r-3"):
        appended = store.update("n", "m", append=SECRET, unique=True, updated_by="ann", request_id=request_id)
        assert (appended.version, appended.position) == (1, 2)
    other = store.set("n", "s", "other", updated_by="ann", request_id="r-4")
    store.set("m", "k", 1, updated_by="ann")
    cleared = store.clear_namespace("m", deleted_by="ann", reason=SECRET, request_id="r-5")
    assert store.redact("record:m/k@2", **WHY).redacted == 1
    again = store.clear_namespace("m", deleted_by="ann", request_id="r-5")
    assert (again.position, again.redacted) == (cleared.position, True)
    for key in ("r", "m"):
        store.set("n", key, "safe", updated_by="ann")
        assert store.redact(f"record:n/{key}@1", **WHY).redacted == 1
    again = store.set("n", "r", SECRET, updated_by="ann", request_id="r-1")
    assert (again.status, again.position, again.redacted) == ("ok", first.position, True)
    for request_id in ("r-2", "r-3"):
        again = store.update("n", "m", append="a guess", updated_by="ann", request_id=request_id)
        assert (again.position, again.redacted) == (2, True)
    assert [store.get("n", key).value for key in ("r", "m")] == ["safe", "safe"]
    assert store.set("n", "s", "other", updated_by="ann", request_id="r-4") == other


def test_note_of_a_claim_leaves_remembered_results_and_losses(place):
    with holdlog.StateStore(place) as ann, holdlog.StateStore(place) as bob:
        ann.claim("a.py", agent="ann")
        released = ann.release("a.py", agent="ann", note=SECRET, request_id="r-1")
        claimed = bob.claim("a.py", agent="bob", request_id="r-2")
        ann.claim("b.py", agent="ann")
        assert (released.status, claimed.previous_note) == ("released", SECRET)
        ask(place, f"""UPDATE holders SET lost = '[["a.py", 1, "forced", "{SECRET}"]]' WHERE agent = 'ann'""")
        assert bob.redact("claim:a.py@2", **WHY).redacted == 1
        again = bob.claim("a.py", agent="bob", request_id="r-2")
        assert (again.status, again.position, again.redacted) == ("ok", 3, True)
        assert ann.claim("b.py", agent="ann").lost == [("a.py", "forced", "bob", None)]


@pytest.mark.parametrize("note", ["ok", "ann", "n"])
def test_only_results_that_contain_a_redacted_note_are_forgotten(place, note):
    with holdlog.StateStore(place) as ann, holdlog.StateStore(place) as bob:
        calls = {
            "r-1": lambda **request: ann.set("n", "k", note, updated_by="ann", **request),
            "r-2": lambda **request: ann.claim("a.py", agent="ann", **request),
            "r-3": lambda **request: bob.claim("a.py", agent="bob", **request),
            "r-4": lambda **request: bob.claim("a.py", agent="bob", **request),
            "r-5": lambda **request: bob.release("a.py", agent="bob", **request),
        }
        before = {request: call(request_id=request) for request, call in [*calls.items()][:2]}
        ann.release("a.py", agent="ann", note=note)
        before["r-3"] = calls["r-3"](request_id="r-3")
        waiting = in_thread(ann.claim, "a.py", agent="ann", wait_seconds=50, note=note)
        until(lambda: ann.status("a.py").queue_length == 1)
        before |= {request: calls[request](request_id=request) for request in ("r-4", "r-5")}
        assert (before["r-3"].previous_note, before["r-4"].waiting[0].note) == (note, note)
        assert waiting.result().status == "claimed"
        ann.release("a.py", agent="ann")
        (event,) = (it.id for it in ann.events().events if it.kind == "ClaimQueued")
        assert [ann.redact(it, **WHY).redacted for it in ("claim:a.py@2", event)] == [1, 1]
        after = {request: call(request_id=request) for request, call in calls.items()}
        assert {request for request in calls if getattr(after[request], "redacted", None)} == {"r-3", "r-4"}
        assert after["r-1"] == before["r-1"]


def test_only_results_that_contain_a_redacted_value_are_forgotten(store):
    steps = [
        {"op": "append", "namespace": "n", "key": "k", "value": SECRET, "unique": True},
        {"op": "set", "namespace": "n", "key": "other", "value": 1},
    ]
    calls = {
        "r-1": lambda: store.transact(steps, updated_by="ann", request_id="r-1"),
        "r-2": lambda: store.transact(steps, updated_by="ann", request_id="r-2"),
        "r-3": lambda: store.set("n", "k", "safe", updated_by="ann", request_id="r-3"),
        "r-4": lambda: store.delete("n", "k", deleted_by="ann", request_id="r-4"),
    }
    before = {request: call() for request, call in calls.items()}
    assert (before["r-2"].results[0].version, before["r-3"].version) == (1, 2)
    assert store.redact("record:n/k@1", **WHY).redacted == 1
    after = {request: call() for request, call in calls.items()}
    assert {request for request in calls if after[request] != before[request]} == {"r-1", "r-2"}


@pytest.mark.parametrize(
    ("value", "reason"), [(4111111111111111, "bad 4111111111111111"), ({"p": "hunter2"}, "hunter2 leaked")]
)
def test_reason_that_repeats_the_text_is_refused(tmp_path, value, reason):
    with holdlog.StateStore(tmp_path / "state.db") as store:
        for it in (value, 1):
            store.set("n", "k", it, updated_by="ann")
        with pytest.raises(holdlog.InvalidError, match="reason"):
            store.redact("record:n/k@1", redacted_by="bob", reason=reason)


def test_reason_that_old_texts_contain_does_not_stop_their_redaction(tmp_path):
    db = tmp_path / "state.db"
    with holdlog.StateStore(db) as store:
        steps = [{"op": "set", "namespace": "n", "key": f"{key}", "value": "retention"} for key in range(205)]
        steps[0]["value"] = SECRET
        for written in (steps, [step | {"value": "safe"} for step in steps]):
            store.transact(written, updated_by="ann")
        assert store.redact(older_than_seconds=0.000001, redacted_by="ann", reason="retention").redacted == 205
        assert not [it for it in tmp_path.iterdir() if SECRET.encode() in it.read_bytes()]


@pytest.mark.parametrize("event", ["record:n/\0@1", "record:n/\udc80@1", "record:n/k", "record:n/k@-1"])
def test_what_is_no_id_of_an_event_is_refused(store, event):
    with pytest.raises(holdlog.InvalidError, match="id of an event"):
        store.redact(event, **WHY)


def test_note_that_a_live_claim_has_from_its_ticket_is_not_redacted(place):
    with holdlog.StateStore(place) as ann, holdlog.StateStore(place) as bob:
        ann.claim("a.py", agent="ann")
        waiting = in_thread(bob.claim, "a.py", agent="bob", wait_seconds=50, note=SECRET)
        until(lambda: ann.status("a.py").queue_length == 1)
        ann.release("a.py", agent="ann")
        assert waiting.result().status == "claimed"
        noted = [event.id for event in ann.events().events if event.fields.get("note") == SECRET]
        for event in noted:
            with pytest.raises(holdlog.CurrentError):
                ann.redact(event, **WHY)
        bob.release("a.py", agent="bob")
        assert [ann.redact(event, **WHY).redacted for event in noted] == [1] * len(noted) != []
        assert SECRET not in repr(ann.events().events)


def test_redaction_says_so_if_a_reader_keeps_the_text_in_the_write_ahead_log(tmp_path):
    db = tmp_path / "state.db"
    with holdlog.StateStore(db) as store:
        for value in (SECRET, "safe"):
            store.set("n", "k", value, updated_by="ann")
        with closing(sqlite3.connect(db, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM events").fetchone() == (2,)
            with pytest.raises(holdlog.UnavailableError, match="redact again") as refused:
                store.redact("record:n/k@1", **WHY)
            assert refused.value.in_doubt, "the text is redacted, only not yet gone"
            with pytest.raises(holdlog.CurrentError):  # nothing is redacted, whatever readers keep
                store.redact("record:n/k@2", **WHY)
            assert store.history("n", "k")[1].value is None
            reader.execute("ROLLBACK")
            assert store.redact("record:n/k@1", **WHY).redacted == 0
    assert not [it for it in tmp_path.iterdir() if SECRET.encode() in it.read_bytes()]


def test_texts_that_many_redact_at_once_are_redacted_once(place):
    with holdlog.StateStore(place) as ann, holdlog.StateStore(place) as bob:
        for number in range(21):
            ann.set("n", "k", number, updated_by="ann")

        def redact_each(store):
            return sum(store.redact(f"record:n/k@{number}", **WHY).redacted for number in range(1, 21))

        def redact_all(store):
            return store.redact(older_than_seconds=0.000001, **WHY).redacted

        running = [in_thread(work, store) for work in (redact_each, redact_all) for store in (ann, bob)]
        assert sum(it.result() for it in running) == 20
        positions = [position for event in ann.events(after=21).events for position in event.positions]
        assert sorted(positions) == [*range(1, 21)]
        assert ann.verify()


# --- an export, verified without holdlog


def verify_export(*words):
    done = subprocess.run([sys.executable, "-IS", PROGRAM, *words], capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stderr), done
    return done.stderr.partition("not verified: ")[2].strip()


def test_program_verifies_an_export_and_names_what_differs(tmp_path):
    names = ("db", "before", "log", "part", "prefix", "kept", "changed")
    db, before, log, part, prefix, kept, changed = (tmp_path / name for name in names)
    kept.write_text(fill(db))
    with holdlog.StateStore(db) as store:
        store.set("n", "é", "é\u2028", updated_by="ann")
        store.export(before)
        store.redact("record:n/a@2", **WHY)
        store.export(log)
        store.export(part, first=10, values=False)
        store.export(prefix, last=3)
    assert verify_export(log) == verify_export(log, "--checkpoint", kept) == ""
    for words in ([], ["--help"], [log, "--checkpoint"]):
        done = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, check=False)
        assert done.stderr.startswith("Verify an export of holdlog's log without holdlog: python3 verify_log.py FILE")
    assert verify_export(part, "--checkpoint", kept) == verify_export(prefix) == ""
    old, lines = (file.read_text().splitlines(keepends=True) for file in (before, log))
    event = json.loads(old[3])
    redacted = {name: value for name, value in json.loads(lines[3]).items() if name in ("payload_hash", "digest")}
    bare = {name: value for name, value in event.items() if name not in ("payload", "salt")}
    texts = {
        "position 5: the event was changed": [*lines[:5], lines[5].replace("more", "less"), *lines[6:]],
        "position 5: the event is missing": [*lines[:5], *lines[6:]],
        "position 3: a redacted text is back": [*lines[:3], old[3], *lines[4:]],
        "position 3: has a text and the hash": [*lines[:3], json.dumps(event | redacted) + "\n", *lines[4:]],
        "position 3: a text is gone": [*old[:3], json.dumps(bare | redacted) + "\n", *old[4:]],
        "position 14: the export does not end": [*lines[:-1], lines[-1].replace('"end":14', '"end":15')],
        "the export was cut": lines[:-1],
        "the log does not contain the checkpoint": [
            lines[0].replace('"last":14', '"last":1'),
            lines[1],
            end_at(lines[1]),
        ],
    }
    for problem, text in texts.items():
        changed.write_text("".join(text))
        assert verify_export(changed, "--checkpoint", kept).startswith(problem)


def end_at(line):
    return json.dumps({"end": 1, "digest": json.loads(line)["digest"]})
