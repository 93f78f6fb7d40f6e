"""A rebuild beside writers and readers in other processes, and killed at its worst moments."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdlog import NotFoundError, StateStore
from holdlog.adapters.compose import open_shadow_tables
from holdlog.adapters.stores.event_log import rebuild as rebuilding
from holdlog.adapters.stores.event_log.rebuild import RebuildReport
from holdlog.adapters.stores.sqlite.schema import MAJOR, MINOR, MINORS_PER_MAJOR
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import Record
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.projections import fold
from holdlog.projections.rebuild import replay
from tests.support.commands import did, redact, run
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.slow import check
from tests.support.threads import append, change_data, fork, message, replace, results, start

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
from holdlog.adapters.compose import open_shadow_tables
from holdlog.adapters.stores.event_log import rebuild as rebuilding
from holdlog.adapters.stores.sqlite.shadow_tables import SqliteTables
from holdlog.adapters.stores.postgres import shadow_tables as postgres
where, place = sys.argv[1:]
rebuilding.PAGE_EVENTS = 10
store, shadow = open_shadow_tables(place if "://" in place else Path(place), print)

def stop(*_):
    print("here", flush=True)
    sys.stdin.readline()

def stopping_after(call):
    return lambda *arguments: (call(*arguments), stop())[0]

if where == "the catching up":  # nobody else writes
    rebuilding._catch_up = stopping_after(rebuilding._catch_up)
if where == "the swap":  # its statements have run, its commit has not
    SqliteTables.swap = stopping_after(SqliteTables.swap)
    postgres.indexes_there = stopping_after(postgres.indexes_there)
rebuilding.rebuild(shadow, stop if where == "a page" else lambda *_: None)
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


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A store of 84 events in 29 streams, of one to many versions."""
    if request.param == "postgres":
        found: Kind = InDatabase(request.getfixturevalue("postgres"))
    else:
        folder = tmp_path / "store"
        folder.mkdir(0o700)
        found = InFile(folder / "state.db")
    with StateStore(found.place) as store:
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
        write_queue(store._engine.store)
        write_threads(store._engine.store)
    return found


def write_queue(store: Store) -> None:
    """3 events: one of two waiters leaves."""
    for agent in ("cleo", "dora"):
        claim = AcquireClaim(resource="src/a b.py", agent=agent, also=("b.py",), wait=600 * SECOND)
        run(store, claim, Caller(session=agent))
    run(store, ReleaseClaim(resource="src/a b.py", agent="cleo"), Caller(session="cleo"))


def write_threads(store: Store) -> None:
    """14 events."""
    did(store, start(plan=1))
    did(store, append(message("hi"), *results("ab")))
    did(store, replace(*results("b")))
    did(store, change_data(None, "plan", left=1))
    did(store, fork("new"))
    did(store, append(*results("bc"), thread="new"))
    did(store, append(message("ho")))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", 7)


@contextmanager
def engine(kind: Kind) -> Iterator[Store]:
    found = open_shadow_tables(kind.place, print)
    assert found is not None
    yield found[0]
    found[0].close()


def patiently_rebuilt(kind: Kind) -> RebuildReport:
    while True:
        try:
            return kind.rebuilt()
        except UnavailableError:
            continue  # a disk that takes seconds to sync is the machine's affair


@pytest.mark.parametrize("page", [1, 2, 7, 83, 84, 85, 1000])
def test_rebuilt_views_equal_those_that_the_writers_kept(
    kind: Kind, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", page)
    before, schema = kind.views(), kind.tables()
    count = {
        "current": 26,
        "claims": 1,
        "agents": 0,
        "tokens": 0,
        "threads": 2,
        "store_log": 0,
        "thread_items": 13,
        "thread_data": 3,
    }
    assert kind.rebuilt() == RebuildReport(84, 84, count | {"tickets": 1})
    assert kind.views() == before
    assert kind.tables() == schema


def test_rebuild_pages_are_limited_by_the_size_of_values(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_CHARACTERS", 20)
    before = kind.views()
    pages: list[int] = []
    kind.rebuilt(lambda done, total: pages.append(done))
    assert len(pages) > 10
    assert pages == sorted(pages)
    assert kind.views() == before


def test_damaged_views_are_repaired_by_a_rebuild(kind: Kind) -> None:
    before = kind.views()
    kind.doctored("DELETE FROM current WHERE key < 'key 3'")
    kind.doctored("UPDATE current SET value = '0', version = 99 WHERE key = 'many'")
    kind.doctored("INSERT INTO claims (resource, version) VALUES ('stray', 1)")
    assert kind.unsound()
    kind.rebuilt()
    assert kind.views() == before
    assert kind.unsound() == []


def test_missing_view_table_is_recreated_by_a_rebuild(kind: Kind) -> None:
    before = kind.views()
    kind.doctored("DROP TABLE claims")
    kind.rebuilt()
    assert kind.views() == before


def test_leftovers_of_a_killed_rebuild_are_not_reused(kind: Kind) -> None:
    before = kind.views()
    kind.doctored("CREATE TABLE current_rebuilt AS SELECT * FROM current")
    kind.doctored("UPDATE current_rebuilt SET key = 'stray ' || key")
    kind.rebuilt()
    assert kind.views() == before


def test_replay_in_memory_matches_the_views(kind: Kind) -> None:
    with engine(kind) as store, store.snapshot() as reader:
        states = replay(reader.log(0, -1))
    puts = [fold.put(*folded) for folded in states.values()]
    rows = sorted(put.row for put in puts if put.table is fold.CURRENT)
    assert rows == sorted(kind.views()["current"])


@pytest.mark.usefixtures("small_pages")
def test_rebuild_includes_events_written_between_its_pages(kind: Kind) -> None:
    with StateStore(kind.place) as others:

        def write(done: int, total: int) -> None:
            others.set("n", "many", done, updated_by="eve")
            others.set("n", f"new {done}", done, updated_by="eve")
            others.delete("n", f"new {done}", deleted_by="eve")
            others.claim(f"new/{done}", agent="eve")

        report = kind.rebuilt(write)
        assert report.position > 90
        assert others.get("n", "many").updated_by == "eve"
    assert kind.unsound() == []


@pytest.mark.usefixtures("small_pages")
def test_rebuild_finds_a_row_reset_to_its_state_at_the_start(kind: Kind) -> None:
    kind.doctored("CREATE TABLE kept AS SELECT * FROM current WHERE key = 'many'")
    with StateStore(kind.place) as others:

        def set_back(done: int, total: int) -> None:
            others.set("n", "many", "new", updated_by="eve", request_id="once")
            kind.doctored("DELETE FROM current WHERE key = 'many'", "INSERT INTO current SELECT * FROM kept")

        kind.rebuilt(set_back)
        assert others.get("n", "many").value == "new"


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE stored_events SET topic = 'os:system' WHERE POSITION = 60", "unknown topic"),
        ("UPDATE stored_events SET topic = 'ClaimReleased' WHERE POSITION = 1", "cannot be read"),
        (
            "UPDATE stored_events SET topic = 'ValueDeleted', state = BYTES('{\"by\":\"x\"}') WHERE POSITION = 67",
            "another kind",
        ),
        ("UPDATE stored_events SET state = BYTES('{') WHERE POSITION = 60", "cannot be read"),
        (
            "UPDATE stored_events SET originator_id = 'unknown:1' WHERE originator_id = 'record:m%2F%C3%BC/key%200'",
            "kind",
        ),
        ("DELETE FROM stored_events WHERE POSITION = 3", "events are missing"),
    ],
)
def test_unreadable_log_leaves_the_views_unchanged(kind: Kind, damage: str, said: str) -> None:
    before, schema = kind.views(), kind.tables()
    kind.doctored(damage)
    with pytest.raises(StoreError, match=said):
        kind.rebuilt()
    assert kind.views() == before
    assert kind.tables() == schema


@pytest.mark.usefixtures("small_pages")
def test_second_rebuild_takes_over_from_the_first(kind: Kind) -> None:
    before, schema = kind.views(), kind.tables()
    reports: list[RebuildReport] = []

    def start_another(done: int, total: int) -> None:
        if not reports:
            reports.append(kind.rebuilt())

    with pytest.raises(UnavailableError, match="another rebuild"):
        kind.rebuilt(start_another)
    assert reports[0].events == 84
    assert kind.views() == before
    assert kind.tables() == schema


@pytest.mark.usefixtures("small_pages")
def test_rebuild_stops_when_a_text_is_redacted_which_it_may_have_read(kind: Kind) -> None:
    schema, redacted = kind.tables(), list[int]()

    def redact_a_value(done: int, total: int) -> None:
        if not redacted and done:
            [(position,)] = kind.ask(f"SELECT MIN({kind.position}) FROM stored_events WHERE topic = 'ValueWritten'")
            redacted.append(position)
            with engine(kind) as store:
                redact(store, position)
                store.scrub()

    with pytest.raises(UnavailableError, match="a text was redacted"):
        kind.rebuilt(redact_a_value)
    assert kind.bad() == {}
    assert kind.tables() == schema
    kind.rebuilt()
    assert kind.bad() == {}


@pytest.mark.check
@pytest.mark.usefixtures("small_pages")
def test_superseded_rebuild_does_not_disturb_the_running_one(kind: Kind) -> None:
    before = kind.views()
    with process(REBUILD_AND_STOP, "a page", str(kind.place)) as first:
        told: list[str] = []

        def let_the_first_go_on(done: int, total: int) -> None:
            if not told:
                told.append(first.communicate("go on\n")[1])

        assert kind.rebuilt(let_the_first_go_on).events == 84
    assert "another rebuild started" in told[0]
    assert first.returncode == 1
    assert kind.views() == before


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.usefixtures("small_pages")
def test_rebuild_leaves_a_newer_schema_alone(kind: Kind, moment: str) -> None:
    def upgrade(done: int = 0, total: int = 0) -> None:
        if isinstance(kind, InFile):
            kind.doctored(f"PRAGMA user_version = {MAJOR * MINORS_PER_MAJOR + MINOR + 1}")
        else:
            kind.doctored(f"UPDATE meta SET value = '{MAJOR + 1}' WHERE name = 'major'")

    before = kind.views()
    if moment == "before":
        upgrade()
    with pytest.raises(
        StoreError, match=rf"schema ({MAJOR}\.{MINOR + 1}|{MAJOR + 1}\.{MINOR}|{MAJOR + 1}), but this holdlog supports"
    ):
        kind.rebuilt(upgrade)
    assert kind.views() == before


@pytest.mark.check
@pytest.mark.usefixtures("small_pages")
def test_writers_and_readers_in_other_processes_notice_no_rebuild(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", 50)
    with (
        process(WRITE_UNTIL_TOLD, "w1", str(kind.place)) as first,
        process(WRITE_UNTIL_TOLD, "w2", str(kind.place)) as second,
        process(READ_UNTIL_TOLD, "r1", str(kind.place)) as reader,
    ):
        reports = []
        for _ in range(5):
            if isinstance(kind, InDatabase):  # each has something to mend; beside a file's writers nobody may write so
                kind.doctored("UPDATE current SET updated_by = 'eve' WHERE namespace = 'n'")
            reports.append(patiently_rebuilt(kind))
        written = ended(first) + ended(second)
        assert ended(reader) <= written
    assert [report.position for report in reports] == sorted(report.position for report in reports)
    with StateStore(kind.place) as store:
        assert store.get("all", "sum").value == written
    assert kind.unsound() == []


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_snapshot_sees_the_views_of_its_moment_during_a_rebuild(kind: Kind, moment: str) -> None:
    kind.doctored("UPDATE current SET value = '0' WHERE key = 'many'", "DELETE FROM current WHERE key = 'key 13'")
    with engine(kind) as store, store.snapshot() as reader:

        def take(done: int = 0, total: int = 0) -> None:
            reader.position()  # the moment: its first look, and not at a view

        if moment == "before":
            take()
        kind.rebuilt(take)
        found = reader.records("n", "", None, -1, deleted=False)
        assert len(found) == 15
        assert reader.record("n", "many").value.text == "0"
        assert reader.record("n", "key 13") == Record("n", "key 13")
        assert reader.claim("src/a b.py").grants
    with engine(kind) as store, store.reader() as reader:
        assert reader.record("n", "many").value.text == "7"
    assert kind.unsound() == []


@pytest.mark.parametrize("seed", [0, 1, *check(*range(2, 6))])
def test_rebuild_restores_the_views_after_any_history_and_damage(
    kind: Kind, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", chance.randint(1, 60))
    with StateStore(kind.place) as store:
        for _ in range(120):
            agent, key = chance.choice(["ann", "bob", "ann/sub"]), chance.choice("ab\u00e9%/\U0002a6df")
            match chance.randrange(6):
                case 0:
                    with suppress(NotFoundError):
                        store.delete(chance.choice("nm"), key, deleted_by=agent)
                case 1:
                    store.claim(f"src/{key}", agent=agent, mode=chance.choice(["shared", "exclusive"]))
                case 2:
                    store.release(f"src/{key}", agent=agent)
                case 3:
                    letters = "".join(chance.choices("abc", k=3))
                    did(store._engine.store, start(key, b=1))
                    did(store._engine.store, append(message(key), *results(letters), thread=key))
                    did(store._engine.store, replace(*results(letters), thread=key))
                    did(store._engine.store, change_data(None, "b", a=letters, thread=key))
                case _:
                    ends = chance.choice([None, None, 3600])
                    store.set(chance.choice("nm"), key, chance.random(), updated_by=agent, ttl_seconds=ends)
    before, schema = kind.views(), kind.tables()
    assert kind.unsound() == []
    damages = [
        "UPDATE current SET version = version + 1",
        "UPDATE claims SET grants = '', held = 0",
        "DELETE FROM thread_items",
        "UPDATE thread_data SET live = 1 - live",
        "DROP TABLE threads",
        "DELETE FROM current WHERE live = 1",
        "INSERT INTO current (namespace, key, version, live) VALUES ('n', 'stray', 1, 1)",
        "INSERT INTO claims (resource, version) VALUES ('stray', 1)",
        "DELETE FROM claims",
        "DROP INDEX current_due",
        "DROP TABLE agents",
    ]
    kind.doctored(*chance.sample(damages, 3))
    kind.rebuilt()
    assert kind.views() == before
    assert kind.tables() == schema
    assert kind.unsound() == []


@pytest.mark.check
@pytest.mark.parametrize("where", ["a page", "the catching up", "the swap"])
def test_killed_rebuild_leaves_the_views_complete(kind: Kind, where: str) -> None:
    before, schema = kind.views(), kind.tables()
    with process(REBUILD_AND_STOP, where, str(kind.place)) as killed:
        killed.kill()
        killed.wait()
    assert kind.views() == before
    with StateStore(kind.place) as store:
        assert store.set("n", "many", "after", updated_by="ann").version == 9
    (finding,) = kind.unsound()
    assert finding == (
        "rebuild: a rebuild is running, or was interrupted; the views in use are complete, and the next rebuild"
        " cleans up"
    )
    assert kind.rebuilt().events == 85
    assert kind.unsound() == []
    assert kind.tables() == schema
