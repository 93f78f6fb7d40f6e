"""Files of agenthold, imported into new stores. The fixture was made by agenthold 0.10.0 itself."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from holdlog import StateStore, StoreError
from holdlog.adapters.python.copying import import_agenthold
from holdlog.adapters.stores.copying import writing
from holdlog.adapters.stores.sqlite.doctor import examine
from holdlog.domain.value import Json

FIXTURE: Final = Path(__file__).parents[1] / "support" / "fixtures" / "agenthold.sql"
ANN, BOB = "agent-1a2b3c4d", "agent-5e6f7a8b"
REASON = "imported from agenthold"
_RECORD = "INSERT OR REPLACE INTO state_records VALUES (?, ?, ?, ?, ?, ?)"


class Peer:
    """Writes a file as agenthold does. A row has the time of its number in minutes."""

    def __init__(self, path: Path, start: datetime) -> None:
        self.path = path
        self._start = start
        self._rows = 0
        script = FIXTURE.read_text()
        self.run = lambda *statement: self._connection.execute(*statement)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self.run("PRAGMA synchronous = OFF")
        self._connection.executescript("\n".join(line for line in script.splitlines() if "INSERT" not in line))

    def close(self) -> None:
        self._connection.close()

    def version(self, namespace: str, key: str) -> int:
        found = self.run("SELECT version FROM state_records WHERE (namespace, key) = (?, ?)", (namespace, key))
        return int((found.fetchone() or [0])[0])

    def set(self, namespace: str, key: str, value: Any, by: str = "ann") -> None:
        row = (namespace, key, json.dumps(value), self.version(namespace, key) + 1, by, self._time())
        self.run("INSERT INTO state_history VALUES (NULL, ?, ?, ?, ?, ?, ?, 'write')", row)
        self.run(_RECORD, row)

    def delete(self, namespace: str, key: str, by: str = "ann") -> None:
        if version := self.version(namespace, key):
            row = (namespace, key, "null", version, by, self._time())
            self.run("INSERT INTO state_history VALUES (NULL, ?, ?, ?, ?, ?, ?, 'delete')", row)
            self.run("DELETE FROM state_records WHERE (namespace, key) = (?, ?)", (namespace, key))

    def claim(self, resource: str, agent: str) -> None:
        self.set("claims", resource, {"status": "claimed", "by": agent, "at": "x"}, agent)

    def free(self, resource: str, agent: str, **outcome: str) -> None:
        self.set("claims", resource, {"status": "free", "released_by": agent, "at": "x", **outcome}, agent)

    def _time(self) -> str:
        self._rows += 1
        return (self._start + timedelta(minutes=self._rows)).isoformat()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The fixture as a file."""
    path = tmp_path / "agenthold.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIXTURE.read_text())
    return path


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with closing(Peer(tmp_path / "peer.db", datetime.now(UTC) - timedelta(hours=2))) as peer:
        yield peer


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "state.db"


def require_sound(path: Path) -> None:
    assert [finding.text for finding in examine(path) if finding.level == "bad"] == []


def test_values_come_with_their_histories_authors_and_times(path: Path, target: Path) -> None:
    report = import_agenthold(path, target)
    assert (report.changes, report.events, report.unchanged) == (26, 23, 3)  # the activity of agents is no event
    assert (report.values, report.claims, report.agents) == (5, 1, 2)
    require_sound(target)
    with StateStore(target) as store:
        past = store.history("order", "status")
        assert [(it.version, it.value["n"], it.updated_by) for it in past] == [
            (3, 2, "ann"),
            (2, 1, "ann"),
            (1, 0, "ann"),
        ]
        assert past[0].value["t"] == "größe"
        assert past[0].updated_at == datetime(2026, 3, 17, 10, 0, 3, tzinfo=UTC)
        assert {it.reason for it in past} == {REASON}
        assert store.get("claims", "notes").value == "mine"
        assert [it.namespace for it in (store.list_keys("order"))] == ["order"] * 3


def test_versions_continue_over_a_deletion_and_the_report_counts_such_keys(path: Path, target: Path) -> None:
    report = import_agenthold(path, target)
    with StateStore(target) as store:
        past = store.history("order", "gone")
        assert [(it.version, it.event_type, it.value) for it in past] == [
            (3, "write", [2.5, None]),
            (2, "delete", None),
            (1, "write", 1),
        ]
    assert report.renumbered == 1


def test_value_that_is_not_json_is_imported_as_its_text(path: Path, target: Path) -> None:
    assert import_agenthold(path, target).as_text == 1
    with StateStore(target) as store:
        assert store.get("order", "nan").value == "NaN"


def test_names_that_holdlog_does_not_allow_are_encoded_and_reported(path: Path, target: Path) -> None:
    report = import_agenthold(path, target)
    assert [name.rpartition("-")[0] for name in report.renamed] == ["%20b%20", "", "a%2F%2Fb"]
    with StateStore(target) as store:
        (deleted,) = [it for it in store.list_records("tmp", deleted=True).records if it.key != "a"]
        assert deleted.key == report.renamed[0]
        assert store.history("tmp", deleted.key)[1].updated_by == report.renamed[2]


def test_agents_and_the_history_of_claims_are_imported(path: Path, target: Path) -> None:
    import_agenthold(path, target)
    with StateStore(target) as store:
        events = [event.model_dump() for event in store.events(kinds=["claim", "agent"]).events]
        claims = [(it["kind"], it["resource"], it["version"], it["agent"]) for it in events if "resource" in it]
        assert claims == [
            ("ClaimGranted", "src/a.py", 1, ANN),
            ("ClaimReleased", "src/a.py", 2, ANN),
            ("ClaimGranted", "src/a.py", 3, BOB),
            ("ClaimGranted", "custom://deploy", 1, ANN),
            ("ClaimGranted", "file://other/x.md", 1, ANN),
            ("ClaimReleased", "file://other/x.md", 2, ANN),
            ("ClaimExpired", "custom://deploy", 2, ANN),
        ]
        assert (events[0]["name"], events[0]["model"], events[0]["purpose"]) == (
            "Ann the great",
            "opus",
            "writes code and tests",
        )
        moved = store.status("file://other/x.md")
        assert (moved.status, moved.previous_outcome, moved.moved_to) == ("available", "moved", "file://other/y.md")
        held = store.status("src/a.py")
        assert (held.status, held.held_by, held.version) == ("claimed", BOB, 3)


def test_live_claim_ends_after_the_time_that_its_agent_had_left(peer: Peer, target: Path) -> None:
    peer.claim("custom://a", "agent-1")
    peer.set("_agents", "agent-1", {"name": "One", "last_activity": datetime.now(UTC).isoformat()})
    report = import_agenthold(peer.path, target, claim_ttl=600)
    assert (report.claims, report.expired) == (1, 0)
    with StateStore(target) as store:
        held = store.status("custom://a")
        assert 590 < held.expires_in_seconds <= 600
        assert store.claim("custom://a", agent="bob").status == "busy"
        resumed = store.claim("custom://a", agent="agent-1")
        assert (resumed.status, resumed.resumed) == ("claimed", True)


def test_claim_without_a_time_limit_gets_that_of_holdlog(peer: Peer, target: Path) -> None:
    peer.claim("custom://a", "agent-1")
    import_agenthold(peer.path, target)
    with StateStore(target) as store:
        assert 290 < store.status("custom://a").expires_in_seconds <= 300


def test_claim_whose_time_was_over_is_history(peer: Peer, target: Path) -> None:
    peer.claim("custom://a", "agent-1")
    assert import_agenthold(peer.path, target, claim_ttl=60).expired == 1
    require_sound(target)
    with StateStore(target) as store:
        free = store.status("custom://a")
        assert (free.status, free.previous_outcome, free.previous_holder) == ("available", "expired", "agent-1")


def test_claim_taken_over_or_released_by_others_is_recorded_so(peer: Peer, target: Path) -> None:
    peer.claim("custom://a", "agent-1")
    peer.claim("custom://a", "agent-2")  # after the time of agent-1
    peer.claim("custom://a", "agent-2")
    peer.free("custom://a", "agent-3", outcome="modified")
    peer.free("custom://a", "agent-3")
    assert import_agenthold(peer.path, target).unchanged == 1
    require_sound(target)
    with StateStore(target) as store:
        events = [it.model_dump() for it in store.events().events]
        assert [(it["kind"], it["agent"]) for it in events] == [
            ("ClaimGranted", "agent-1"),
            ("ClaimExpired", "agent-1"),
            ("ClaimGranted", "agent-2"),
            ("ClaimGranted", "agent-2"),
            ("ClaimReleased", "agent-2"),
        ]
        assert events[-1]["forced_by"] == "agent-3"


def test_claims_that_holdlog_cannot_hold_are_imported_as_values(peer: Peer, target: Path) -> None:
    peer.claim("custom://tree/", "agent-1")  # a subtree in holdlog
    peer.set("claims", "custom://mine", {"status": "odd"})
    peer.claim("custom://mine", "agent-1")
    peer.set("_agents", "me", 7)
    assert import_agenthold(peer.path, target).values == 3
    with StateStore(target) as store:
        assert store.get("claims", "custom://mine").version == 2
        assert store.get("_agents", "me").value == 7


def test_times_never_decrease_and_are_not_in_the_future(peer: Peer, target: Path) -> None:
    for days in (0, 3, -3, 400):
        peer.set("n", "k", days)
        at = (datetime.now(UTC) + timedelta(days=days)).isoformat()
        peer.run("UPDATE state_history SET updated_at = ? WHERE id = (SELECT MAX(id) FROM state_history)", (at,))
        peer.run("UPDATE state_records SET updated_at = ?", (at,))
    import_agenthold(peer.path, target)
    require_sound(target)
    with StateStore(target) as store:
        times = [it.updated_at for it in reversed(store.history("n", "k"))]
        assert times == sorted(times)
        assert times[-1] <= datetime.now(UTC)
        assert store.set("n", "k", 1, updated_by="ann").version == 5


def test_database_is_imported_into_as_well(path: Path, target: Path, postgres: str) -> None:
    in_a_file, in_a_database = import_agenthold(path, target), import_agenthold(path, postgres)
    assert in_a_database == in_a_file._replace(store_id=in_a_database.store_id)
    with StateStore(target) as store, StateStore(postgres) as other:
        assert other.list_keys("order") == store.list_keys("order")
        assert other.status("src/a.py").held_by == BOB


def test_store_that_was_imported_goes_on(path: Path, target: Path) -> None:
    import_agenthold(path, target)
    with StateStore(target) as store:
        assert store.set("order", "status", 1, updated_by="ann", expected_version=3).version == 4
        assert store.claim("custom://deploy", agent="ann").status == "claimed"
    require_sound(target)


def test_file_of_an_early_version_has_no_deletions(path: Path, target: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "DELETE FROM state_history WHERE namespace = 'tmp' OR (key, id) = ('gone', 4);"
            "DELETE FROM state_history WHERE event_type = 'delete';"
            "ALTER TABLE state_history DROP COLUMN event_type"
        )
    import_agenthold(path, target)
    with StateStore(target) as store:
        assert store.get("order", "status").version == 3


def test_import_leaves_the_file_and_a_running_server_alone(path: Path, target: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as server:
        server.execute("PRAGMA journal_mode = WAL")
        server.execute(_RECORD, ("n", "late", "1", 1, "ann", "2026-03-17T11:00:00+00:00"))
        server.execute("INSERT INTO state_history SELECT NULL, *, 'write' FROM state_records WHERE key = 'late'")
        files = [path, path.with_name(path.name + "-wal")]
        before = [file.read_bytes() for file in files]
        import_agenthold(path, target)
        assert [file.read_bytes() for file in files] == before
        server.execute("DELETE FROM state_records")
    with StateStore(target) as store:
        assert store.get("n", "late").value == 1


def changed(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return change


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:8192] = bytes(4096)
    path.write_bytes(content)


UNUSABLE: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "missing": (Path.unlink, "there is no file"),
    "text": (lambda path: path.write_text("dear diary\n" * 1000), "damaged or not a file of agenthold"),
    "empty": (lambda path: path.write_bytes(b""), "is not a file of agenthold"),
    "zeroed page": (damaged, "damage"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:8192]), "damaged"),
    "holdlog": (lambda path: (path.unlink(), StateStore(path).close()), "to copy it: holdlog copy"),
    "other database": (changed("DROP TABLE state_history"), "is not a file of agenthold"),
    "newer table": (changed("CREATE TABLE leases (a)"), "another version of agenthold"),
    "newer column": (changed("ALTER TABLE state_records ADD COLUMN ttl REAL"), "another version of agenthold"),
    "newer schema": (changed("PRAGMA user_version = 2"), "another version of agenthold"),
    "newer event": (changed("UPDATE state_history SET event_type = 'expire' WHERE id = 2"), "row 2"),
    "no time": (changed("UPDATE state_history SET updated_at = 'noon' WHERE id = 2"), "row 2"),
    "blob": (changed("UPDATE state_history SET value = x'00' WHERE id = 2"), "row 2"),
    "not UTF-8": (changed("UPDATE state_history SET value = CAST(x'ff' AS TEXT) WHERE id = 2"), "damaged"),
    "value changed": (changed("UPDATE state_records SET value = '9' WHERE key = 'status'"), "current values"),
    "value without history": (changed("DELETE FROM state_history WHERE key = 'status'"), "current values"),
    "history without value": (changed("DELETE FROM state_records WHERE key = 'status'"), "current values"),
    "deleted value": (
        changed("UPDATE state_history SET event_type = 'delete' WHERE id = 3"),
        "current values",
    ),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_file_that_cannot_be_imported_is_refused_in_one_line(path: Path, target: Path, kind: str) -> None:
    make, expected = UNUSABLE[kind]
    make(path)
    with pytest.raises(StoreError, match=expected) as refusal:
        import_agenthold(path, target)
    assert "\n" not in str(refusal.value)
    assert "größe" not in str(refusal.value)
    assert not target.exists()
    assert not target.parent.exists() or list(target.parent.iterdir()) == []


def test_import_refuses_a_place_that_is_taken(path: Path, target: Path) -> None:
    target.parent.mkdir()
    with StateStore(target) as store:
        store.set("n", "k", 1, updated_by="ann")
    with pytest.raises(StoreError, match="there is already a file"):
        import_agenthold(path, target)
    with StateStore(target) as store:
        assert store.events().bookmark == 1


def test_interrupted_import_leaves_nothing(peer: Peer, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "REPORT_EVERY", 1)
    peer.set("n", "k", 1)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_agenthold(peer.path, target, progress=interrupt)
    assert [file.name for file in target.parent.iterdir()] == []
    assert import_agenthold(peer.path, target).events == 1


KEYS = st.sampled_from(["a", "b", " c", "ä", "a\u0308"])
AUTHORS = st.sampled_from(["ann", "", "x" * 200])
VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(), lambda part: st.lists(part) | st.dictionaries(st.text(), part)
)
RESOURCES = st.sampled_from(["custom://a", "file://default/b", "custom://t/"])
STEPS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(["n", "claims"]), KEYS, VALUES, AUTHORS),
    st.tuples(st.just("delete"), st.sampled_from(["n", "claims", "_agents"]), KEYS | RESOURCES, AUTHORS),
    st.tuples(st.just("claim"), RESOURCES, st.sampled_from(["ann", "bob"])),
    st.tuples(st.just("free"), RESOURCES, st.sampled_from(["ann", "bob"])),
)


@pytest.mark.check
@given(steps=st.lists(STEPS, max_size=30), ttl=st.none() | st.floats(1, 10_000))
def test_any_history_is_imported_completely(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]], ttl: float | None
) -> None:
    folder = tmp_path_factory.mktemp("peer")
    with closing(Peer(folder / "peer.db", datetime.now(UTC) - timedelta(hours=1))) as peer:
        for name, *arguments in steps:
            getattr(peer, name)(*arguments)
        import_agenthold(peer.path, folder / "state.db", ttl)
        rows = peer.run("SELECT value FROM state_records WHERE namespace = 'n' ORDER BY updated_at").fetchall()
    require_sound(folder / "state.db")
    with StateStore(folder / "state.db") as store:
        found = sorted(store.list_keys("n"), key=lambda it: it.updated_at)
        assert [it.value for it in found] == [imported(text) for (text,) in rows]


def imported(text: str) -> Any:
    """The value of a row: its text if that is not JSON."""
    try:
        return Json.of(from_json(text)).value
    except ValueError:
        return text
