"""What reading costs in SQLite, in steps of its machine: the same on every computer."""

from pathlib import Path

from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.rows import SqliteReader
from holdlog.domain.record import Transact
from tests.support.commands import put, run

KEYS = 1_000


def steps(reader: SqliteReader, after: str, deleted: bool) -> int:
    """Steps of SQLite's machine, in tens, to read ten records after a key."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    reader.connection.set_progress_handler(count, 10)
    found = reader.records("n", "", after, 10, deleted)
    reader.connection.set_progress_handler(None, 0)
    assert len(found) == 10
    return taken


def test_page_at_the_end_of_a_namespace_costs_as_much_as_one_at_its_start(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "state.db")
    run(store, Transact(operations=tuple(put(f"{number:04}", 1) for number in range(KEYS)), by="ann"))
    with store.reader() as reader:
        assert isinstance(reader, SqliteReader)
        first, last = (steps(reader, after, deleted=False) for after in ("0000", f"{KEYS - 11:04}"))
    store.close()
    assert 0 < last <= 2 * first
