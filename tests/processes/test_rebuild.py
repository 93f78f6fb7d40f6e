"""A rebuild beside writers and readers in other processes, and killed at its worst moments."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.stores import rebuilding
from holdlog.adapters.stores.doctor import examine
from holdlog.adapters.stores.opening import open_sqlite
from holdlog.adapters.stores.rebuilding import RebuildReport, rebuild
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.projections import fold
from holdlog.projections.rebuild import replay

WRITE_UNTIL_TOLD = """
import select, sys
from holdlog import StateStore, UnavailableError
me, path = sys.argv[1:]

def patiently(call, *arguments, **named):  # a disk that takes seconds to sync is the machine's affair
    while True:
        try:
            return call(*arguments, **named)
        except UnavailableError as refusal:
            assert not refusal.in_doubt

with patiently(StateStore, path) as store:
    count = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        count += 1
        patiently(store.set, me, f"k{count % 50}", count, updated_by=me)
        patiently(store.update, "all", "sum", lambda value: (value or 0) + 1, updated_by=me)
        patiently(store.claim, f"src/{me}", agent=me)
        patiently(store.release, f"src/{me}", agent=me)
        if count == 1:
            print("writing", flush=True)
    print(count, flush=True)
"""

READ_UNTIL_TOLD = """
import select, sys
from holdlog import StateStore
me, path = sys.argv[1:]
with StateStore(path) as store:
    last = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        now = store.get("all", "sum").version
        assert now >= last, (now, last)
        assert len(store.list_keys("all")) == 1
        if not last:
            print("reading", flush=True)
        last = now
    print(last, flush=True)
"""

REBUILD_AND_STOP = """
import sys
from pathlib import Path
from holdlog.adapters.stores import rebuilding
from holdlog.adapters.stores.opening import open_sqlite
where, path = sys.argv[1:]
rebuilding.PAGE_EVENTS = 10

def stop(*_):
    print("here", flush=True)
    sys.stdin.readline()

if where == "a page":
    rebuilding.rebuild(open_sqlite(Path(path)), stop)
if where == "the swap":  # its statements have run, its commit has not
    swap = rebuilding._swap
    rebuilding._swap = lambda connection: (swap(connection), stop())
    rebuilding.rebuild(open_sqlite(Path(path)))
"""


@contextmanager
def process(script: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python process that has said its first word."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        try:
            assert started.stdout.readline()
            yield started
        finally:
            started.kill()


def ended(started: "subprocess.Popen[str]") -> int:
    """Tell it to end; its last word."""
    told, complaint = started.communicate("end\n")
    assert started.returncode == 0, complaint
    return int(told)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of 67 events in 27 streams, of one to many versions."""
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    with StateStore(folder / "state.db") as store:
        for number in range(40):
            store.set("n", f"key {number % 20}", {"n": number}, updated_by="ann")
        for number in range(5):
            store.delete("n", f"key {number}", deleted_by="bob")
            store.set("m/ü", f"key {number}", None, updated_by="bob")
        for number in range(8):
            store.set("n", "many", number, updated_by="ann")
        for _ in range(4):
            store.claim("src/a b.py", agent="ann")
            store.release("src/a b.py", agent="ann")
        store.claim("src/a b.py", agent="bob")
    return folder / "state.db"


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", 7)


def views(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    connection = sqlite3.connect(path)
    rows = {view.name: connection.execute(f'SELECT * FROM "{view.name}"').fetchall() for view in fold.VIEWS}
    connection.close()
    return rows


def doctored(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    assert connection.execute(statement).rowcount != 0
    connection.close()


def rebuilt(path: Path) -> RebuildReport:
    store = open_sqlite(path)
    try:
        return rebuild(store)
    finally:
        store.close()


def patiently_rebuilt(path: Path) -> RebuildReport:
    while True:
        try:
            return rebuilt(path)
        except UnavailableError:
            continue  # a disk that takes seconds to sync is the machine's affair


def unsound(path: Path) -> list[str]:
    return [f"{found.name}: {found.text}" for found in examine(path) if found.level == "bad" or found.name == "rebuild"]


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    left = connection.execute("SELECT COUNT(*) FROM meta WHERE name NOT IN ('store_id', 'boot_id')").fetchone()[0]
    connection.close()
    assert left == 0
    return names


@pytest.mark.parametrize("page", [1, 2, 7, 66, 67, 68, 1000])
def test_rebuilt_views_equal_those_that_the_writers_kept(
    path: Path, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", page)
    before, schema = views(path), tables(path)
    assert rebuilt(path) == RebuildReport(67, 67, {"current": 26, "claims": 1, "agents": 0})
    assert views(path) == before
    assert tables(path) == schema


def test_pages_are_bounded_by_what_the_values_weigh(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_CHARACTERS", 20)
    before = views(path)
    pages: list[int] = []
    store = open_sqlite(path)
    rebuild(store, lambda done, total: pages.append(done))
    store.close()
    assert len(pages) > 10
    assert pages == sorted(pages)
    assert views(path) == before


def test_damaged_views_are_made_whole(path: Path) -> None:
    before = views(path)
    doctored(path, "DELETE FROM current WHERE key < 'key 3'")
    doctored(path, "UPDATE current SET value = '0', version = 99 WHERE key = 'many'")
    doctored(path, "INSERT INTO claims (resource, version) VALUES ('stray', 1)")
    assert unsound(path)
    rebuilt(path)
    assert views(path) == before
    assert unsound(path) == []


def test_a_view_whose_table_is_gone_comes_back(path: Path) -> None:
    before = views(path)
    doctored(path, "DROP TABLE claims")
    rebuilt(path)
    assert views(path) == before


def test_what_a_killed_rebuild_left_is_not_taken_over(path: Path) -> None:
    before = views(path)
    doctored(path, "CREATE TABLE current_rebuilt AS SELECT * FROM current")
    doctored(path, "UPDATE current_rebuilt SET key = 'stray ' || key")
    rebuilt(path)
    assert views(path) == before


def test_a_replay_in_memory_says_the_same(path: Path) -> None:
    store = open_sqlite(path)
    with store.snapshot() as reader:
        states = replay(reader.log(0, -1))
    store.close()
    rows = sorted(fold.put(state).row for state in states.values() if fold.put(state).table is fold.CURRENT)
    assert rows == sorted(views(path)["current"])


@pytest.mark.usefixtures("small_pages")
def test_what_is_written_between_pages_is_in_the_new_views(path: Path) -> None:
    with StateStore(path) as others:
        store = open_sqlite(path)

        def write(done: int, total: int) -> None:
            others.set("n", "many", done, updated_by="eve")
            others.set("n", f"new {done}", done, updated_by="eve")
            others.delete("n", f"new {done}", deleted_by="eve")
            others.claim(f"new/{done}", agent="eve")

        report = rebuild(store, write)
        store.close()
        assert report.position > 90
        assert others.get("n", "many").updated_by == "eve"
    assert unsound(path) == []


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE stored_events SET topic = 'os:system' WHERE rowid = 60", "unknown topic"),
        ("UPDATE stored_events SET topic = 'ClaimReleased' WHERE rowid = 1", "cannot be read"),
        (
            "UPDATE stored_events SET topic = 'ValueDeleted', state = CAST('{\"by\":\"x\"}' AS BLOB) WHERE rowid = 67",
            "another kind",
        ),
        ("UPDATE stored_events SET state = CAST('{' AS BLOB) WHERE rowid = 60", "cannot be read"),
        (
            "UPDATE stored_events SET originator_id = 'thread:1' WHERE originator_id = 'record:m%2F%C3%BC/key%200'",
            "kind",
        ),
        ("DELETE FROM stored_events WHERE rowid = 3", "events are missing"),
    ],
)
def test_a_log_that_cannot_be_folded_leaves_the_views_as_they_are(path: Path, damage: str, said: str) -> None:
    before, schema = views(path), tables(path)
    doctored(path, damage)
    with pytest.raises(StoreError, match=said):
        rebuilt(path)
    assert views(path) == before
    assert tables(path) == schema


@pytest.mark.usefixtures("small_pages")
def test_a_second_rebuild_takes_over_from_the_first(path: Path) -> None:
    before, schema = views(path), tables(path)
    store, other = open_sqlite(path), open_sqlite(path)
    reports: list[RebuildReport] = []

    def start_another(done: int, total: int) -> None:
        if not reports:
            reports.append(rebuild(other))

    with pytest.raises(UnavailableError, match="another rebuild"):
        rebuild(store, start_another)
    assert reports[0].events == 67
    assert views(path) == before
    assert tables(path) == schema
    store.close()
    other.close()


@pytest.mark.usefixtures("small_pages")
def test_a_rebuild_that_was_taken_over_does_not_disturb_the_one_that_runs(path: Path) -> None:
    before = views(path)
    with process(REBUILD_AND_STOP, "a page", str(path)) as first:
        store = open_sqlite(path)
        told: list[str] = []

        def let_the_first_go_on(done: int, total: int) -> None:
            if not told:
                told.append(first.communicate("go on\n")[1])

        assert rebuild(store, let_the_first_go_on).events == 67
        store.close()
    assert "another rebuild started meanwhile" in told[0]
    assert first.returncode == 1
    assert views(path) == before


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.usefixtures("small_pages")
def test_a_newer_schema_is_left_to_newer_builds(path: Path, moment: str) -> None:
    store = open_sqlite(path)

    def upgrade(done: int = 0, total: int = 0) -> None:
        doctored(path, "PRAGMA user_version = 2001")

    if moment == "before":
        upgrade()
    with pytest.raises(StoreError, match=r"schema 2\.1"):
        rebuild(store, upgrade)
    store.close()


@pytest.mark.usefixtures("small_pages")
def test_writers_and_readers_in_other_processes_notice_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", 50)
    with (
        process(WRITE_UNTIL_TOLD, "w1", str(path)) as first,
        process(WRITE_UNTIL_TOLD, "w2", str(path)) as second,
        process(READ_UNTIL_TOLD, "r1", str(path)) as reader,
    ):
        reports = [patiently_rebuilt(path) for _ in range(5)]
        written = ended(first) + ended(second)
        assert ended(reader) <= written
    assert [report.position for report in reports] == sorted(report.position for report in reports)
    with StateStore(path) as store:
        assert store.get("all", "sum").value == written
    assert unsound(path) == []


@pytest.mark.parametrize("where", ["a page", "the swap"])
def test_a_rebuild_killed_in_the_middle_leaves_the_views_whole(path: Path, where: str) -> None:
    before, schema = views(path), tables(path)
    with process(REBUILD_AND_STOP, where, str(path)) as killed:
        killed.kill()
        killed.wait()
    assert views(path) == before
    with StateStore(path) as store:
        assert store.set("n", "many", "after", updated_by="ann").version == 9
    assert unsound(path) == [
        "rebuild: a rebuild is running, or did not end; the views in use are whole, and the next one clears up"
    ]
    assert rebuilt(path).events == 68
    assert unsound(path) == []
    assert tables(path) == schema
