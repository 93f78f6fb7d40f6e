"""`holdlog activity` and `holdlog conflicts`: they catch up with the log, and count each event once."""

import json
import os
import random
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from holdlog import ConflictError, StateStore
from holdlog.adapters.api.authors import principal_of
from holdlog.adapters.api.events.event_filter import done_by
from holdlog.adapters.cli.main import main
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.eventsourcing import read_models
from holdlog.adapters.stores.read_models import tables
from tests.support.commands import until

Answer = Callable[..., dict[str, Any]]
HOUR = 3_600_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "state.db" if request.param == "sqlite" else request.getfixturevalue("postgres"))


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Answer:
    def run(place: Path | str, *words: str) -> dict[str, Any]:
        assert main([words[0], "--db", str(place), "--json", *words[1:]]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def queue(
    place: Path | str, resource: str, agent: str, holder: StateStore, *, mode: Any = "exclusive"
) -> threading.Thread:
    """An agent with its own session that waits in the queue."""
    with_session = StateStore(place, session=agent)

    def wait() -> None:
        with with_session:
            with_session.claim(resource, agent=agent, wait_seconds=60, mode=mode)

    before = len(waiters(holder))
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: len(waiters(holder)) > before)
    return thread


def waiters(store: StateStore) -> list[str]:
    return [waiter.agent for queue in store.board().queues for waiter in queue.line]


def counted(place: Path | str) -> Counter[tuple[str, str, str | None, str]]:
    """Events per hour, agent, principal and kind, from the log alone."""
    engine = open_holdlog(place)
    with engine.store.reader() as reader:
        log = reader.log(0, -1)
    engine.close()
    return Counter(
        (str(it.envelope.at // HOUR), done_by(it), principal_of(it), it.envelope.topic)
        for it in log
        if not it.envelope.topic.endswith("Expired")
    )


def shown(found: dict[str, Any]) -> Counter[tuple[str, str, str | None, str]]:
    return Counter(
        {
            (
                str(int(datetime.fromisoformat(row["hour"]).timestamp()) // 3600),
                row["agent"],
                row.get("principal"),
                kind,
            ): times
            for row in found["activity"]
            for kind, times in row["kinds"].items()
        }
    )


def test_activity_counts_each_event_of_each_agent(place: str, answer: Answer) -> None:
    with StateStore(place) as store:
        for number in range(5):
            store.set("n", "k", number, updated_by="ann")
        store.claim("src/a.py", agent="claude/tests")
        store.set("n", "short", 1, updated_by="bob", ttl_seconds=0.000_001)
        until(lambda: store.set("n", "short", 2, updated_by="eve").version >= 3)
    found = answer(place, "activity")
    assert shown(found) == counted(place)
    assert found["position"] == 9
    assert [row["agent"] for row in answer(place, "activity", "--agent", "claude")["activity"]] == ["claude/tests"]
    with StateStore(place) as store:
        store.set("n", "k", 6, updated_by="ann")
    again = answer(place, "activity", "--agent", "ann")
    assert [row["events"] for row in again["activity"]] == [6]
    assert again["position"] == 10


def test_collisions_name_waiter_holder_and_waiting_time(place: str, answer: Answer) -> None:
    with StateStore(place, session="of ann") as ann:
        ann.claim("src/", agent="ann")
        threads = [queue(place, "src/a.py", "bob", ann), queue(place, "src/a.py", "cid", ann)]
        live = answer(place, "conflicts")["collisions"]
        assert [(row["agent"], row["behind"], row["granted"]) for row in live] == [("cid", "ann", 0), ("bob", "ann", 0)]
        ann.release("src/", agent="ann")
        threads[0].join()
        with StateStore(place, session="bob") as bob:
            bob.release("src/a.py", agent="bob")
        threads[1].join()
    found = answer(place, "conflicts")["collisions"]
    assert {(row["resource"], row["agent"], row["behind"], row["times"], row["granted"]) for row in found} == {
        ("src/", "bob", "ann", 1, 1),
        ("src/", "cid", "ann", 1, 1),
    }
    assert all(row["waited_seconds"] > 0 for row in found)
    for overlapping in ("src/a.py", "src/", "src/a.py/below"):
        assert len(answer(place, "conflicts", "--resource", overlapping)["collisions"]) == 2
    for elsewhere in ("lib/a.py", "lib/", "src-2/", "custom://src"):
        assert answer(place, "conflicts", "--resource", elsewhere)["collisions"] == []
    assert [row["agent"] for row in answer(place, "conflicts", "--agent", "cid")["collisions"]] == ["cid"]
    assert len(answer(place, "conflicts", "--agent", "ann")["collisions"]) == 2
    assert len(answer(place, "conflicts", "--limit", "1")["collisions"]) == 1


def test_waiter_behind_a_waiter_is_a_collision_with_it(tmp_path: Path, answer: Answer) -> None:
    place = tmp_path / "state.db"
    with StateStore(place, session="of ann") as ann:
        ann.claim("custom://merge", agent="ann", mode="shared")
        first = queue(place, "custom://merge", "bob", ann)
        second = queue(place, "custom://merge", "cid", ann, mode="shared")
        found = answer(place, "conflicts")["collisions"]
        ann.release("custom://merge", agent="ann")
        first.join()
        with StateStore(place, session="bob") as bob:
            bob.release("custom://merge", agent="bob")
        second.join()
    assert {(row["agent"], row["behind"]) for row in found} == {("bob", "ann"), ("cid", "bob")}


def test_time_of_a_waiter_that_did_not_return_is_unknown(tmp_path: Path, answer: Answer) -> None:
    place = tmp_path / "state.db"
    with StateStore(place, session="of ann") as ann:
        ann.claim("custom://merge", agent="ann")
        with StateStore(place, session="of bob") as bob:
            assert bob.claim("custom://merge", agent="bob", wait_seconds=0.01).body()["status"] == "busy"
    with closing(sqlite3.connect(place)) as connection:  # as if minutes had passed
        connection.execute("UPDATE leases SET deadline = 1 WHERE kind = 'waits'")
        connection.commit()
    with StateStore(place, session="of cid") as cid:
        cid.claim("custom://merge", agent="cid")
        assert "absent" in [getattr(it, "why", None) for it in cid.events().events]
    (found,) = answer(place, "conflicts", "--agent", "bob")["collisions"]
    assert (found["times"], found["granted"], found["waited_seconds"]) == (1, 0, 0)


def test_refusals_caused_by_others_come_from_the_store(place: str, answer: Answer) -> None:
    with StateStore(place, session="one") as one, StateStore(place, session="two") as two:
        one.claim("src/a.py", agent="ann")
        assert two.claim("src/a.py", agent="bob").body()["status"] == "busy"
        with pytest.raises(ConflictError):
            two.set("n", "k", 1, updated_by="claude/tests", expected_version=7)
        two.set("n", "k", 1, updated_by="bob")  # refusals are written with the next events
    found = answer(place, "conflicts")["refusals"]
    assert [(row["code"], row["by"]) for row in found] == [("conflict", "claude/tests"), ("busy", "bob")]
    assert found[1]["what"] == "src/a.py is held by ann"
    assert [row["by"] for row in answer(place, "conflicts", "--agent", "claude")["refusals"]] == ["claude/tests"]


def test_limit_counts_only_refusals_of_the_agent_that_was_asked_for(tmp_path: Path, answer: Answer) -> None:
    with StateStore(tmp_path / "state.db") as store:
        for agent in ("ann", "bob", "bob"):
            with pytest.raises(ConflictError):
                store.set("n", "k", 1, updated_by=agent, expected_version=7)
        store.set("n", "k", 1, updated_by="bob")  # refusals are written with the next events
    found = answer(tmp_path / "state.db", "conflicts", "--agent", "ann", "--limit", "1")["refusals"]
    assert [row["by"] for row in found] == ["ann"]


@pytest.mark.parametrize("command", ["activity", "conflicts"])
@pytest.mark.parametrize("agent", ["\udcff", "", "a\0b"])
def test_agent_that_cannot_exist_is_refused_in_one_line(
    command: str, agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    StateStore(tmp_path / "state.db").close()
    assert main([command, "--db", str(tmp_path / "state.db"), "--agent", agent]) == 2
    assert re.fullmatch("holdlog: --agent: must not .*\n", capsys.readouterr().err)


def test_text_has_a_line_for_each_row(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with StateStore(place, session="one") as one, StateStore(place, session="two") as two:
        one.claim("src/a.py", agent="ann")
        two.claim("src/a.py", agent="bob")
        two.set("n", "k", 1, updated_by="bob")
    assert main(["activity", "--db", place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["hour", "agent", "events", "values", "claims", "threads", "other"]
    assert lines[1].split()[2:] == ["UTC", "ann", "1", "1"]
    assert lines[2].split()[2:] == ["UTC", "bob", "1", "1"]
    assert main(["conflicts", "--db", place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["refused", "agent", "times", "busy", "last"]
    assert lines[1].split()[:3] == ["bob", "1", "1"]
    assert lines[-1].endswith("busy  bob    src/a.py is held by ann")
    assert main(["activity", "--db", place, "--agent", "nobody"]) == 0
    assert re.fullmatch(r"no activity since .* UTC\n", capsys.readouterr().out)


def test_refused_agents_are_counted_by_code(place: str, answer: Answer) -> None:
    with StateStore(place, session="one") as one, StateStore(place, session="two") as two:
        one.claim("src/a.py", agent="ann")
        for agent in ("bob", "bob", "cid"):
            two.claim("src/a.py", agent=agent)
        with pytest.raises(ConflictError):
            two.set("n", "k", 1, updated_by="bob", expected_version=7)
        two.set("n", "k", 1, updated_by="bob")  # refusals are written with the next events
    found = answer(place, "conflicts")["refused"]
    assert [(row["agent"], row["times"], row["codes"]) for row in found] == [
        ("bob", 3, {"busy": 2, "conflict": 1}),
        ("cid", 1, {"busy": 1}),
    ]
    assert [row["agent"] for row in answer(place, "conflicts", "--limit", "1")["refused"]] == ["bob"]
    assert answer(place, "collisions") == answer(place, "conflicts")  # its earlier name


def test_moments_restrict_activity_and_conflicts(place: str, answer: Answer) -> None:
    with StateStore(place, session="of ann") as ann:
        ann.claim("src/", agent="ann")
        thread = queue(place, "src/a.py", "bob", ann)
        ann.release("src/", agent="ann")
        thread.join()
    assert len(answer(place, "conflicts", "--since", "2", "--until", "2")["collisions"]) == 1
    assert answer(place, "conflicts", "--since", "3")["collisions"] == []
    assert answer(place, "conflicts", "--until", "1")["collisions"] == []
    assert answer(place, "activity", "--since", "1", "--until", "4") == answer(place, "activity")


@pytest.mark.parametrize("command", ["activity", "conflicts"])
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--since", "99"), "holdlog: --since: is 99, but the log ends at position 1\n"),
        (("--since", "now", "--until", "1"), "holdlog: --until: is earlier than since; swap the two\n"),
        (("--until", "soon"), "holdlog: --until: must be 14:03, "),
        (("--hours", "1", "--since", "1"), "argument --since: not allowed with argument --hours"),
    ],
)
def test_time_that_cannot_be_is_refused_in_one_line(
    command: str, words: tuple[str, ...], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StateStore(tmp_path / "state.db") as store:
        store.claim("src/a.py", agent="ann")
    with suppress(SystemExit):
        assert main([command, "--db", str(tmp_path / "state.db"), *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert error in err


def test_reading_a_long_log_shows_its_progress(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[tuple[int, int]]()
    monkeypatch.setattr(read_models, "PAGE", 10)
    with closing(open_holdlog(db)) as engine:
        report = engine.requests.reports.activity()
        read_models.run_report(engine, report, lambda *progress: drawn.append(progress))
        assert drawn == [(10, 30), (20, 30), (30, 30)]
        drawn.clear()
        read_models.run_report(engine, report, lambda *progress: drawn.append(progress))
    assert drawn == []


def test_missing_store_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("activity", "conflicts"):
        assert main([command, "--db", str(tmp_path / "state.db")]) == 1
        assert "there is no store at" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(["activity", "--db", ":memory:"]) == 2
    assert "a store in memory has no read models" in capsys.readouterr().err


# --- the view file


@pytest.fixture
def db(tmp_path: Path) -> Path:
    place = tmp_path / "state.db"
    with StateStore(place) as store:
        for number in range(30):
            store.set("n", f"k{number % 3}", number, updated_by=f"agent-{number % 4}")
    return place


def views(db: Path) -> Path:
    return db.with_name(db.name + ".views")


def rows(db: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(views(db))) as connection:
        names = ("activity", "holds", "tickets", "collisions", "tracking", "reached")
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}


@pytest.mark.parametrize("umask", [0o000, 0o277])
def test_view_file_is_private_under_any_umask(db: Path, umask: int, answer: Answer) -> None:
    before = os.umask(umask)
    try:
        answer(db, "activity")
    finally:
        os.umask(before)
    made = [path for path in db.parent.iterdir() if path.name.startswith("state.db.views")]
    assert len(made) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}


def test_view_file_that_others_may_read_or_that_is_a_link_is_refused(
    db: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(db, "activity")
    views(db).chmod(0o644)
    assert main(["activity", "--db", str(db)]) == 2
    assert "is open to other users" in capsys.readouterr().err
    views(db).unlink()
    views(db).symlink_to(db.parent / "elsewhere")
    assert main(["activity", "--db", str(db)]) == 2
    assert "is a symbolic link" in capsys.readouterr().err
    assert not (db.parent / "elsewhere").exists()


def test_removed_view_file_is_rebuilt_to_the_same_rows(db: Path, answer: Answer) -> None:
    answer(db, "activity")
    with StateStore(db) as store:
        store.set("n", "k", 1, updated_by="ann")
    answer(db, "activity")
    before = rows(db)
    views(db).unlink()
    answer(db, "conflicts")
    assert rows(db) == before
    assert before["tracking"][-1][1] == 31


def test_view_of_a_restored_or_replaced_store_is_rebuilt(db: Path, tmp_path: Path, answer: Answer) -> None:
    backup = shutil.copy(db, tmp_path / "backup.db")
    with StateStore(db) as store:
        store.set("n", "k", 1, updated_by="lost")
    answer(db, "activity")
    for suffix in ("", "-wal", "-shm"):
        db.with_name(db.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, db)
    assert shown(answer(db, "activity")) == counted(db)  # shorter than what the view has read
    shutil.copy(backup, db)
    with StateStore(db) as store:
        store.set("n", "k", 1, updated_by="instead")
        store.set("n", "k", 2, updated_by="instead")
    assert shown(answer(db, "activity")) == counted(db)  # longer, with another event in that place
    for suffix in ("", "-wal", "-shm"):
        db.with_name(db.name + suffix).unlink(missing_ok=True)
    with StateStore(db) as store:
        store.set("n", "k", 1, updated_by="new")
    assert shown(answer(db, "activity")) == counted(db)  # another store


def test_view_file_of_another_version_is_rebuilt(db: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(db, "activity")
    with closing(sqlite3.connect(views(db))) as connection:
        connection.execute("DROP TABLE activity")
        connection.execute("CREATE TABLE activity (other TEXT)")
        connection.execute(f"PRAGMA user_version = {tables.VERSION + 1}")
    assert shown(answer(db, "activity")) == counted(db)


def test_damaged_view_file_is_named_with_what_to_do(
    db: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(db, "activity")
    views(db).write_bytes(b"no database" * 1000)
    assert main(["activity", "--db", str(db)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("if you remove the file, it is rebuilt from the log")
    assert str(views(db)) in line


@pytest.mark.check
def test_commands_at_once_count_each_event_once(db: Path) -> None:
    command = [sys.executable, "-m", "holdlog", "activity", "--db", str(db), "--json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert shown(json.loads(out)) == counted(db)


@pytest.mark.check
def test_command_killed_while_it_catches_up_leaves_a_view_that_counts_once(tmp_path: Path, answer: Answer) -> None:
    db = tmp_path / "state.db"
    with StateStore(db) as store:
        for number in range(2_500):
            store.set("n", f"k{number % 9}", number, updated_by=f"agent-{number % 4}")
    dice = random.Random(7)
    program = (
        "import sys; from holdlog.adapters.eventsourcing import read_models as it; it.PAGE = 50\n"
        "page = it.ReadModels.process_event\n"
        "from holdlog.adapters.cli.main import main; print('ready', flush=True); main(sys.argv[1:])"
    )
    reached = set[int]()
    for _ in range(6):
        command = [sys.executable, "-c", program, "activity", "--db", str(db)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            target = dice.randrange(50, 300) + max(reached, default=0)
            until(lambda: position(db) >= target or process.poll() is not None)  # noqa: B023
            process.kill()
        reached.add(position(db))
    assert len(reached) > 2
    assert shown(answer(db, "activity")) == counted(db)


def position(db: Path) -> int:
    """How far the view has come; 0 if it does not exist yet."""
    try:
        with closing(sqlite3.connect(f"file:{views(db)}?mode=ro", uri=True)) as connection:
            (found,) = connection.execute(
                "SELECT COALESCE(MAX(notification_id), 0) FROM tracking WHERE application_name <> '__migration__'"
            ).fetchone()
            return int(found)
    except sqlite3.Error:
        return 0
