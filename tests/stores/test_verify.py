"""holdlog verify finds every kind of tampering: without a checkpoint where the log contradicts itself, with one in any
case."""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from holdlog import StateStore, copy
from holdlog.adapters.compose import examine, open_shadow_tables, open_store
from holdlog.adapters.stores.event_log.findings import Verdict, verdict_of
from holdlog.adapters.stores.event_log.rebuild import rebuild
from holdlog.adapters.stores.event_log.snapshots import rebuild_snapshots
from holdlog.adapters.stores.event_log.tree import checkpoint_of, rebuild_tree
from holdlog.domain.checkpoint import Checkpoint
from holdlog.domain.envelope import NO_DIGEST, payload_hash
from holdlog.domain.refusals import StoreError
from tests.support.command_line import run_command
from tests.support.commands import digest_of
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.subtrees import use_small_subtrees

EVENTS: Final = 12


@pytest.fixture(autouse=True)
def small_subtrees(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_subtrees(monkeypatch)


@pytest.fixture(params=["file", "schema"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A closed store with twelve events of four streams."""
    made: Kind
    if request.param == "schema":
        made = InDatabase(str(request.getfixturevalue("postgres")))
    else:
        made = InFile(tmp_path / "state.db")
    fill(made)
    return made


@pytest.fixture
def in_file(tmp_path: Path) -> InFile:
    made = InFile(tmp_path / "state.db")
    fill(made)
    return made


def fill(kind: Kind) -> None:
    with StateStore(kind.place) as store:
        for number in range(3):
            for key in ("a", "b", "c"):
                store.set("n", key, number, updated_by="ann", reason="more")
        store.claim("src/a.py", agent="ann")
        store.release("src/a.py", agent="ann")
        store.set("n", "a", "last", updated_by="ann")


def checkpoint(kind: Kind) -> Checkpoint:
    with closing(open_store(kind.place, lambda line: None)) as store:
        return checkpoint_of(store)


def verify(kind: Kind, *checkpoints: Checkpoint) -> Verdict:
    return verdict_of(examine(kind.place, checkpoints=checkpoints), checkpoints)


def test_untouched_log_is_consistent_and_unchanged_up_to_the_checkpoint(kind: Kind) -> None:
    assert verify(kind) == Verdict(True, 0, None, "consistent; not proven unchanged (see --checkpoint)")
    kept = checkpoint(kind)
    with StateStore(kind.place) as store:
        store.set("n", "d", 1, updated_by="ann")
    assert verify(kind, kept) == Verdict(True, EVENTS, None, f"consistent; unchanged up to position {EVENTS}")
    assert verify(kind, kept, checkpoint(kind)).unchanged_to == EVENTS + 1


@pytest.mark.parametrize(
    ("damage", "named", "position"),
    [
        ("UPDATE stored_events SET payload = '7' WHERE POSITION = 5", "digests", 5),
        ("UPDATE stored_events SET at = at + 1 WHERE POSITION = 5", "digests", 5),
        ("UPDATE stored_events SET reason = 'less' WHERE POSITION = 6", "digests", 6),
        ("UPDATE stored_events SET principal = 'eve' WHERE POSITION = 6", "digests", 6),
        ("DELETE FROM stored_events WHERE POSITION = 5", "positions, versions", 5),
        ("DELETE FROM stored_events WHERE POSITION = 1", "positions, versions", 1),
        ("DELETE FROM stored_events WHERE originator_id = 'record:n/b'", "positions, views", 2),
        ("UPDATE stored_events SET POSITION = 99 WHERE POSITION = 5", "positions", 5),
        ("UPDATE stored_events SET originator_version = 9 WHERE POSITION = 8", "versions", 8),
        (
            "UPDATE stored_events SET payload = NULL, salt = NULL, payload_hash = BYTES('x') WHERE POSITION = 5",
            "digests",
            5,
        ),
    ],
)
def test_verify_names_the_first_event_that_differs(kind: Kind, damage: str, named: str, position: int) -> None:
    kind.doctored(damage)
    found = verify(kind)
    assert not found.consistent
    assert found.position == position
    assert found.text.startswith("not consistent (")
    assert named in found.text
    assert f"the first event that differs is at position {position}" in found.text


def test_value_whose_beginning_was_moved_into_its_salt_does_not_verify(kind: Kind) -> None:
    with StateStore(kind.place) as store:
        store.set("n", "a", 1500, updated_by="ann")
    kept = checkpoint(kind)
    [(salt,)] = kind.ask(f"SELECT salt FROM stored_events WHERE {kind.position} = {EVENTS + 1}")
    longer = kind.bytes_of(bytes(salt) + b"1")
    kind.doctored(
        f"UPDATE stored_events SET salt = {longer}, payload = '500' WHERE POSITION = {EVENTS + 1}",
        "UPDATE current SET value = '500' WHERE key = 'a'",
    )
    assert (verify(kind, kept).consistent, verify(kind).position) == (False, EVENTS + 1)


def test_log_is_unchanged_only_up_to_the_first_text_that_differs(kind: Kind) -> None:
    """The checkpoint commits to digests, which somebody left as they were."""
    kept = checkpoint(kind)
    kind.doctored("UPDATE stored_events SET payload = '7' WHERE POSITION = 5")
    found = verify(kind, kept)
    assert (found.consistent, found.unchanged_to) == (False, 4)
    assert found.text.endswith("the first event that differs is at position 5; unchanged up to position 4")


def test_kept_roots_of_another_type_are_reported_and_not_used(in_file: InFile) -> None:
    kept = checkpoint(in_file)
    in_file.doctored("UPDATE tree SET root = 'text' WHERE position = 4", "INSERT INTO tree VALUES ('abc', x'00')")
    assert "tree" in verify(in_file).text
    assert checkpoint(in_file) == kept


@pytest.mark.parametrize("store_id", ["", "\x1b[31m", "a b", "a+b", f"1f6c\n9\n{'A' * 43}="])
def test_store_id_that_is_the_text_of_another_checkpoint_is_refused(in_file: InFile, store_id: str) -> None:
    with closing(sqlite3.connect(in_file.place)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'store_id'", (store_id,))
        connection.commit()
    with pytest.raises(StoreError, match="has no id"):
        checkpoint(in_file)
    assert "contents" in in_file.bad()


def test_log_that_cannot_be_read_is_not_called_inconsistent(in_file: InFile) -> None:
    kept = checkpoint(in_file)
    Path(in_file.place).write_bytes(b"x" * 4096)
    assert verify(in_file, kept) == Verdict(False, 0, None, "the log cannot be read; nothing is proven")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="needs permissions")
def test_store_in_a_read_only_folder_is_named_with_what_to_do(in_file: InFile) -> None:
    folder = Path(in_file.place).parent
    folder.chmod(0o500)
    try:
        (found,) = [it for it in examine(in_file.place) if it.level == "bad"]
    finally:
        folder.chmod(0o700)
    assert found.text.endswith("examine a copy of it elsewhere")


@pytest.mark.parametrize("left", ["salt", "payload_hash"])
def test_text_and_its_hash_do_not_stand_for_each_other(kind: Kind, left: str) -> None:
    """An event has a text with its salt, or the hash of a redacted text: readers must not see something between."""
    [(salt, payload)] = kind.ask(f"SELECT salt, payload FROM stored_events WHERE {kind.position} = 5")
    hashed = kind.bytes_of(payload_hash(bytes(salt), payload))
    removed = f"payload_hash = {hashed}" + (", payload = NULL" if left == "salt" else "")
    kind.doctored(f"UPDATE stored_events SET {removed} WHERE POSITION = 5")
    assert "digests" in verify(kind).text


def test_cut_tail_is_found_by_the_tree_or_a_checkpoint(kind: Kind) -> None:
    kept = checkpoint(kind)
    kind.doctored("DELETE FROM stored_events WHERE POSITION > 11", "UPDATE current SET version = 3 WHERE key = 'a'")
    assert "tree" in verify(kind).text
    found = verify(kind, kept)
    assert (found.consistent, found.position) == (False, EVENTS)


def test_checkpoint_of_another_store_proves_nothing(kind: Kind, tmp_path: Path) -> None:
    other = InFile(tmp_path / "other.db")
    fill(other)
    found = verify(kind, checkpoint(other))
    assert not found.consistent
    assert found.text == "consistent, but not as in the checkpoint; not proven unchanged"


# --- somebody who computes everything again

Rows = list[list[Any]]
POSITION, STREAM, VERSION, PAYLOAD, DIGEST = 0, 1, 2, 13, 11


def forge(kind: InFile, change: Callable[[Rows], Rows]) -> None:
    """Change the log, then number and chain all events again, and rebuild everything that is made of it."""
    with closing(sqlite3.connect(kind.place, isolation_level=None)) as connection:
        rows = [list(row) for row in connection.execute("SELECT * FROM stored_events ORDER BY rowid")]
        connection.execute("DELETE FROM stored_events")
        places = ", ".join("?" * len(rows[0]))
        for row in chained(change(rows)):
            connection.execute(f"INSERT INTO stored_events VALUES ({places})", row)
    engine = open_shadow_tables(kind.place, lambda line: None)
    assert engine is not None
    store, shadow = engine
    with closing(store):
        rebuild(shadow)
        rebuild_snapshots(store)
        rebuild_tree(store)


def chained(rows: Rows) -> Iterator[Rows]:
    versions: dict[str, int] = {}
    digests: dict[str, bytes] = {}
    for position, row in enumerate(rows, 1):
        stream = row[STREAM]
        versions[stream] = row[VERSION] = versions.get(stream, 0) + 1
        row[POSITION] = position
        digests[stream] = row[DIGEST] = digest_of(tuple(row), digests.get(stream, NO_DIGEST))
        yield row


def changed(rows: Rows) -> Rows:
    rows[4][PAYLOAD] = "7"
    return rows


def swapped(rows: Rows) -> Rows:
    """The first writes of two keys, at the times of the other."""
    rows[0], rows[1] = rows[1], rows[0]
    rows[0][5], rows[1][5] = rows[1][5], rows[0][5]
    return rows


FORGERIES: Final = {
    "a changed value": changed,
    "a removed event": lambda rows: rows[:3] + rows[4:],
    "a removed stream": lambda rows: [row for row in rows if row[STREAM] != "record:n/b"],
    "an inserted event": lambda rows: [*rows[:9], [*rows[8]], *rows[9:]],
    "two events in another order": swapped,
    "a cut tail": lambda rows: rows[:-1],
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_forged_log_is_consistent_and_only_a_checkpoint_shows_it(
    in_file: InFile, change: Callable[[Rows], Rows]
) -> None:
    kept = checkpoint(in_file)
    forge(in_file, change)
    assert verify(in_file).text == "consistent; not proven unchanged (see --checkpoint)"
    found = verify(in_file, kept)
    assert not found.consistent
    assert found.text.startswith("consistent, but not as in the checkpoint")


def test_two_checkpoints_bound_the_place_of_a_change(in_file: InFile) -> None:
    early = checkpoint(in_file)
    with StateStore(in_file.place) as store:
        for number in range(6):
            store.set("n", "e", number, updated_by="ann")
    late = checkpoint(in_file)
    forge(in_file, lambda rows: [*rows[:-1], [*rows[-1][:PAYLOAD], "99", *rows[-1][PAYLOAD + 1 :]]])
    found = verify(in_file, early, late)
    assert (found.consistent, found.unchanged_to) == (False, EVENTS)
    assert found.text == f"consistent, but not as in the checkpoint; unchanged up to position {EVENTS}"


def test_checkpoint_of_the_source_holds_for_its_copy_up_to_where_they_part(in_file: InFile, tmp_path: Path) -> None:
    kept = checkpoint(in_file)
    copied = InFile(tmp_path / "copy.db")
    copy(in_file.place, copied.place)
    assert verify(copied, kept).text == f"consistent; unchanged up to position {EVENTS}"
    with StateStore(in_file.place) as source, StateStore(copied.place) as other:
        for store in (source, other):
            store.set("n", "a", "later", updated_by="ann")
    found = verify(copied, checkpoint(in_file))
    assert (found.consistent, found.unchanged_to) == (False, 0)
    forge(copied, changed)
    assert verify(copied).text == "not consistent (source); not proven unchanged"


def literal(kind: Kind, data: bytes) -> str:
    return f"x'{data.hex()}'" if isinstance(kind, InFile) else f"'\\x{data.hex()}'::bytea"


def test_redacted_text_that_is_put_back_is_found(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    [(salt, payload)] = kind.ask("SELECT salt, payload FROM stored_events WHERE originator_id = 'record:n/b' LIMIT 1")
    assert run_command(capsys, "redact", "n", "b@1", "--reason", "private", "--db", str(kind.place))[0] == 0
    assert verify(kind).consistent
    kind.doctored(
        f"UPDATE stored_events SET payload = '{payload}', payload_hash = NULL, salt = {literal(kind, bytes(salt))}"
        " WHERE originator_id = 'record:n/b' AND originator_version = 1"
    )
    assert verify(kind).text.startswith("not consistent (redactions); the first event that differs is at position 2")
