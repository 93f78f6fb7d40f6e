"""A store of schema 3, which kept each queue in one column of its claim, is upgraded, in a file and in PostgreSQL."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.schema import MAJOR
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.commands import ReleaseClaim, ReleaseOutcome
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from tests.support.clock import Clock
from tests.support.commands import run
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.older import NOW, SCHEMA_3, STEADY, TABLES_3, lay, lay_in_postgres
from tests.support.processes.soundness import require_sound

LEASES = "SELECT * FROM leases ORDER BY resource, version"


@pytest.fixture(params=["file", "schema"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "schema":
        url = str(request.getfixturevalue("postgres"))
        lay_in_postgres(url, SCHEMA_3, TABLES_3, "3.1")
        return InDatabase(url)
    folder = tmp_path / "store"
    folder.mkdir(0o700)
    found = InFile(lay(folder / "state.db", SCHEMA_3))
    found.run(f"UPDATE meta SET value = '{platform.boot_id()}' WHERE name = 'boot_id'")  # else it is as after a reboot
    return found


def opened(kind: Kind) -> Store:
    clock = Clock(NOW, STEADY)
    return open_sqlite(kind.place, clock, clock.steady) if isinstance(kind.place, Path) else open_postgres(kind.place)


def test_tickets_of_a_queue_become_rows(kind: Kind) -> None:
    queues: list[Any] = kind.ask("SELECT resource, line FROM claims WHERE waiting > 0")
    before = [(resource, *ticket) for resource, line in queues for ticket in json.loads(line)]
    opened(kind).close()
    require_sound(kind.place)
    assert kind.look()["schema"].text.startswith(str(MAJOR))
    assert kind.bad() == {}
    rows = kind.ask("SELECT * FROM tickets ORDER BY turn")
    after = [(*row[:7], *(json.loads(names) if names else [] for names in row[7:])) for row in rows]
    assert len(after) == 3
    assert after == sorted(before, key=lambda ticket: ticket[6])


def test_leases_and_their_sessions_continue(kind: Kind) -> None:
    before = kind.ask(LEASES)
    salt = kind.ask("SELECT value FROM meta WHERE name = 'session_salt'")
    opened(kind).close()
    assert kind.ask(LEASES) == before
    assert kind.ask("SELECT value FROM meta WHERE name = 'session_salt'") == salt


def test_waiters_are_granted_in_the_order_of_before(kind: Kind) -> None:
    with closing(opened(kind)) as store:
        release = ReleaseClaim(resource="src/a.py", agent="ann")
        released = run(store, release, Caller(session="process-1", server="s-1"))
        assert isinstance(released, ReleaseOutcome)
        assert released.granted_to == "bob"
        with store.reader() as reader:
            assert [it.agent for it in reader.tickets(["src/a.py", "docs/x.md"])] == ["cleo"]


def test_upgrade_of_a_file_leaves_a_backup(kind: Kind) -> None:
    opened(kind).close()
    backups = [it.name for it in kind.place.parent.glob("*backup*")] if isinstance(kind.place, Path) else []
    assert backups == (["state.db.backup-3"] if isinstance(kind, InFile) else [])
