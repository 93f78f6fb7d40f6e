"""Audit and maintenance: verify, checkpoint, redact, export, import, backup, doctor. Commands, and tampered files."""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdlog
from tests.support import audit
from tests.support.programs import HOLDLOG, environment, run
from tests.support.tampering import ask, files_with
from tests.support.waiting import until

EVENTS, FULL = 12, 11


def fill(db):
    """Twelve events of four streams; FULL has all that an event can have."""
    with holdlog.StateStore(db, session="s-1") as store:
        for number in range(3):
            for key in ("a", "b", "c"):
                store.set("n", key, number * 1000, updated_by="ann", reason="more")
        guard = [{"resource": "src/a.py", "version": store.claim("src/a.py", agent="ann").version}]
        store.set("n", "a", "last", updated_by="ann", reason="done", guard=guard, request_id="r-1")
        store.release("src/a.py", agent="ann")


def put(db, *values, key="k", **options):
    with holdlog.StateStore(db) as store:
        for value in values:
            store.set("n", key, value, updated_by="ann", **options)


def read(db):
    """All that readers see of a store: its values with their histories, the board and the events."""
    with holdlog.StateStore(db) as store:
        values = [(it.key, it.version, it.value) for it in store.list("n").records]
        histories = [[(it.version, it.value) for it in store.history("n", key)] for key, *_ in values]
        board = [(it.resource, it.held_by, it.version) for it in store.status().claims]
        return values, histories, board, [(it.position, it.id, it.at) for it in store.events(limit=1000).events]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder with a closed store and a checkpoint of it."""
    folder = tmp_path_factory.mktemp("original")
    fill(folder / "state.db")
    keep_checkpoint(folder / "state.db")
    return folder


@pytest.fixture
def db(original, tmp_path):
    """A copy of that store to tamper with."""
    return Path(shutil.copytree(original, tmp_path / "store")) / "state.db"


def keep_checkpoint(db):
    db.with_name("checkpoint").write_text(audit.checkpoint(db))


def verify(db):
    """What is wrong against the checkpoint that is kept next to the store."""
    return audit.verify(db, db.with_name("checkpoint"))


# --- tampering


def test_untouched_log_verifies_up_to_the_checkpoint(db):
    put(db, 1)
    assert verify(db) == ""


def edited(field, text):
    return f"UPDATE events SET meta = json_set(meta, '$.{field}', '{text}') WHERE position = {FULL}", FULL


CHANGES = {
    "edited payload": ("UPDATE events SET payload = '7' WHERE position = 5", 5),
    "removed event": ("DELETE FROM events WHERE position = 5", 5),
    "edited reason": edited("reason", "less"),
}
MORE_CHANGES = {
    "renumbered event": ("UPDATE events SET version = 9 WHERE position = 8", 8),
    "payload taken out": ("UPDATE events SET payload = NULL, salt = NULL WHERE position = 5", 5),
    "edited time": ("UPDATE events SET at = at + 1 WHERE position = 5", 5),
    "removed first event": ("DELETE FROM events WHERE position = 1", 1),
    "forged digest": ("UPDATE events SET digest = zeroblob(32) WHERE position = 6", 6),
    "edited author": edited("by", "eve"),
    "edited session": edited("session", "s-2"),
    "edited request": edited("request_id", "r-2"),
    "edited guard": edited("guard", "[]"),
    "edited forced": edited("forced", "0"),
}


@pytest.mark.parametrize("change", [*CHANGES, *(pytest.param(it, marks=pytest.mark.rest) for it in MORE_CHANGES)])
def test_changed_log_is_found_and_the_first_event_named(db, change):
    statement, position = (CHANGES | MORE_CHANGES)[change]
    ask(db, statement)
    assert f"position {position}" in verify(db)


@pytest.mark.rest
def test_removed_event_whose_successors_were_renumbered_is_found(db):
    ask(db, "DELETE FROM events WHERE position = 5")
    for position in range(6, EVENTS + 1):
        ask(db, f"UPDATE events SET position = {position - 1} WHERE position = {position}")
    assert verify(db)


def test_cut_tail_is_found_although_the_views_were_rebuilt(db):
    ask(db, "DELETE FROM events WHERE position > 10")
    audit.rebuild(db)
    assert audit.verify(db) == ""
    put(db, "another", 1)
    assert verify(db)


@pytest.mark.rest
def test_history_of_another_store_is_found(db, tmp_path):
    fill(tmp_path / "other.db")
    assert audit.verify(tmp_path / "other.db", db.with_name("checkpoint"))


@pytest.mark.rest
def test_backup_that_was_copied_back_is_found(db, tmp_path):
    shutil.copy(db, tmp_path / "backup")
    put(db, "after the backup")
    keep_checkpoint(db)
    shutil.copy(tmp_path / "backup", db)
    assert read(db)[3][-1][0] == EVENTS
    put(db, "on the fork")
    assert audit.verify(db) == ""
    assert verify(db)


def test_checkpoint_is_one_line(db):
    (line,) = db.with_name("checkpoint").read_text().splitlines()
    position, digest, time = line.split(" ")
    assert (position, re.fullmatch(r"[0-9a-f]{64}", digest) is not None) == (str(EVENTS), True)
    assert datetime.fromisoformat(time).utcoffset() == timedelta(0)


# --- redact

SECRET = "sk-1234567890"


@pytest.fixture
def leaked(tmp_path):
    """A store with the secret in the first version of a value."""
    db = tmp_path / "leaked" / "state.db"
    db.parent.mkdir(mode=0o700)
    put(db, {"token": SECRET}, "safe")
    return db


def test_redacted_text_is_gone_from_every_file_and_the_log_still_verifies(tmp_path):
    db = tmp_path / "leaked" / "state.db"
    db.parent.mkdir(mode=0o700)
    with holdlog.StateStore(db) as store:
        store.update("n", "k", merge={"token": SECRET, "more": "x" * 9000}, updated_by="ann", request_id="r-1")
        for value in ("safe", 3):
            store.set("n", "k", value, updated_by="ann")
        keep_checkpoint(db)
        assert files_with(db.parent, SECRET)
        assert audit.redact(db, "record:n/k@1") == ""
        assert files_with(db.parent, SECRET) == []
        assert [(it.version, it.value) for it in store.history("n", "k")] == [(3, 3), (2, "safe"), (1, None)]
        events = store.events().events
    assert [(it.position, getattr(it, "value", None)) for it in events[:3]] == [(1, None), (2, "safe"), (3, 3)]
    assert (len(events), events[-1].reason) == (4, "it leaked")
    assert verify(db) == ""
    assert audit.redact(db, "record:n/k@1", reason="again") == ""
    assert len(read(db)[3]) == 4


@pytest.mark.rest
def test_redacted_text_is_gone_from_the_space_between_rows(leaked):
    """SQLite leaves text where it divides and joins pages, also if it overwrites what it deletes."""
    with holdlog.StateStore(leaked, session="s-1") as store:
        for number in range(20):
            value = ("" if number % 5 else SECRET) + "x" * (300 + number)
            store.update("n", "u", merge={"token": value}, updated_by="ann", request_id=f"{-number % 20:02}")
    for event in ("k@1", "u@1", "u@6", "u@11", "u@16"):
        assert audit.redact(leaked, f"record:n/{event}") == ""
    assert files_with(leaked.parent, SECRET) == []


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        pytest.param("record:n/k@9", "it leaked", marks=pytest.mark.rest),
        ("record:n/k@1", ""),
        ("record:n/k@1", f"was {SECRET}"),
        pytest.param(
            *("record:n/k@2", "it leaked"),
            marks=pytest.mark.rest,
        ),
    ],
)
def test_redaction_is_refused_and_changes_nothing(leaked, event, reason):
    before = read(leaked)
    refusal = audit.redact(leaked, event, reason=reason)
    assert (len(refusal.splitlines()), SECRET in refusal) == (1, False)
    assert read(leaked) == before


@pytest.mark.rest
def test_note_of_a_live_claim_is_not_redacted(leaked):
    with holdlog.StateStore(leaked) as store:
        stream = f"claim:a.py@{store.claim('a.py', agent='ann', note=SECRET).version}"
        assert "live claim" in audit.redact(leaked, stream)
        store.release("a.py", agent="ann")
        assert audit.redact(leaked, stream) == ""
        assert SECRET not in repr(store.events(resource="a.py").events)


@pytest.mark.rest
def test_all_former_texts_older_than_an_age_are_redacted(leaked):
    with holdlog.StateStore(leaked) as store:
        for number in range(260):
            value = {"token": SECRET + "x" * (number * 97 % 600)}
            store.update("n", "u", merge=value, updated_by="ann", request_id=f"{259 - number:03}")
    put(leaked, "safe", key="u")
    until(lambda: datetime.now(UTC) > read(leaked)[3][-1][2] + timedelta(seconds=1))
    with holdlog.StateStore(leaked) as store:
        for value in ("young", "new"):
            store.set("n", "k", value, updated_by="ann")
        assert audit.redact(leaked, reason="age", older_than=1.0) == ""
        assert [it.value for it in store.history("n", "k")] == ["new", "young", None, None]
        assert store.get("n", "u").value == "safe"
        assert store.verify()
    assert files_with(leaked.parent, SECRET) == []


# --- export and import


def test_exported_log_is_imported_whole_and_goes_on(db, tmp_path):
    exported, before, target = audit.export(db), read(db), tmp_path / "new.db"
    assert audit.import_(exported, target) == ""
    after = read(target)
    assert (after[:3], after[3][:-1]) == (before[:3], before[3])
    assert audit.verify(target, db.with_name("checkpoint")) == ""
    put(target, 1)
    assert len(audit.import_(exported, target).splitlines()) == 1
    assert read(target)[3][-1][0] == EVENTS + 2


def test_export_is_verified_without_holdlog(db, tmp_path):
    program, log = Path(__file__).parents[2] / "docs/verify_log.py", tmp_path / "log"
    exported = audit.export(db)
    for text, code in ((exported, 0), (exported.replace("done", "less"), 1)):
        log.write_text(text)
        words = ("-IS", program, log, "--checkpoint", db.with_name("checkpoint"))
        assert subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode == code


@pytest.mark.rest
def test_redacted_event_is_exported_as_its_hash(leaked, tmp_path):
    keep_checkpoint(leaked)
    assert audit.redact(leaked, "record:n/k@1") == ""
    text, target = audit.export(leaked), tmp_path / "new.db"
    assert SECRET not in text
    assert audit.import_(text, target) == ""
    assert read(target)[1] == [[(2, "safe"), (1, None)]]
    assert audit.verify(target, leaked.with_name("checkpoint")) == ""


def has_open(pid, path):
    links = Path(f"/proc/{pid}/fd").iterdir()
    return any(os.path.samefile(it, path) for it in links if it.exists() and os.path.exists(path))


@pytest.mark.rest
def test_import_that_fails_takes_nothing_from_who_writes_next(db, tmp_path, worker):
    target, text = tmp_path / "new.db", audit.export(db).replace("2000", "3000", 1)
    with subprocess.Popen(
        [HOLDLOG, "import", "-", "--db", target],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as importing:  # fmt: skip
        until(target.with_name("new.db-wal").exists)
        other = worker("serve", target)
        until(lambda: has_open(other.pid, f"{target}.lock"))  # it waits for the import, or has the store already
        _, err = importing.communicate(text)
    assert importing.returncode == 2
    assert err.splitlines()[1:] == ["holdlog: source: position 7: the event was changed"]
    other.hear()
    assert other.call("set", "n", "k", 1, updated_by="ben")["version"] == 1
    assert run("get", "n", "k", "--db", target).out == "1\n"


@pytest.mark.rest
def test_store_moves_to_postgresql_and_back(db, tmp_path, postgres):
    target = tmp_path / "new.db"
    for source, place in ((db, postgres), (postgres, target)):
        assert audit.import_(audit.export(source), place) == ""
    assert read(target)[:3] == read(postgres)[:3] == read(db)[:3]
    assert audit.verify(target, db.with_name("checkpoint")) == ""


# --- doctor, rebuild


def test_doctor_finds_a_view_that_differs_and_rebuilds_it_from_the_log(db):
    with holdlog.StateStore(db) as store:
        store.claim("src/b.py", agent="ann")
        store.delete("n", "b", deleted_by="ann")
        before = read(db)
        for change in ("DELETE FROM current", "UPDATE current SET version = 9", "UPDATE current SET exists_now = 0"):
            ask(db, f"{change} WHERE stream = 'record:n/a'")
            assert audit.diagnose(db) == ["views"], change
            audit.rebuild(db)
            assert read(db) == before, change


@pytest.mark.rest
def test_doctor_neither_creates_nor_changes_a_file(tmp_path):
    for content in (None, b"no database" * 1000):
        path = tmp_path / "state.db"
        if content:
            path.write_bytes(content)
        done = run("doctor", "--db", path)
        assert (done.code, "Traceback" in done.err) == (1, False), done
        assert (path.read_bytes() if content else path.exists()) == (content or False)


def test_current_values_are_a_view_for_a_database_shell(db):
    put(db, {"a": [1, None]}, key="%/:")
    with holdlog.StateStore(db) as store:
        store.delete("n", "b", deleted_by="ann")
    rows = ask(db, "SELECT namespace, key, version, value FROM current_values ORDER BY key")
    assert [(*row[:3], json.loads(row[3])) for row in rows] == [
        ("n", "%/:", 1, {"a": [1, None]}),
        ("n", "a", 4, "last"),
        ("n", "c", 3, 2000),
    ]
