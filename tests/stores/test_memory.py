"""The store in memory, where it is not like a file."""

import os
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from holdlog.adapters.stores.sqlite.memory import MemoryDatabase, open_memory
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.record import Record, ValueWritten
from holdlog.domain.refusals import StoreError, UnavailableError
from holdlog.domain.value import Json
from tests.support.commands import append, put, run, transact, until, whole_log, write

PATIENCE = 30.0


def test_stores_in_memory_are_independent() -> None:
    with closing(open_memory()) as one, closing(open_memory()) as other:
        write(one, "k", 1)
        assert (len(whole_log(one)), len(whole_log(other))) == (1, 0)
        with one.reader() as ours, other.reader() as theirs:
            assert ours.meta("store_id") != theirs.meta("store_id")


def test_closed_store_in_memory_leaves_nothing_behind() -> None:
    store = open_memory()
    write(store, "k", 1)
    store.close()
    with closing(sqlite3.connect(store.database.uri, uri=True)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone() == (0,)
    with pytest.raises(StoreError):
        write(store, "k", 2)


def test_commit_waits_for_reads_that_run_and_lets_them_read_more() -> None:
    with closing(open_memory()) as store:
        write(store, "k", 1)
        with store.snapshot() as snapshot:
            assert snapshot.record("n", "k").version == 1
            writer = threading.Thread(target=write, args=(store, "k", 2))
            writer.start()
            until(lambda: not _admits_reads(store))
            with store.reader() as reader:  # the snapshot cannot end before this read: neither may wait for the writer
                assert reader.record("n", "k").version == 1
            assert snapshot.record("n", "k").version == 1
        writer.join(PATIENCE)
        with store.reader() as reader:
            assert reader.record("n", "k").version == 2


def test_abandoned_read_blocks_no_commit() -> None:
    """An interrupt may end a read anywhere, even before its `finally` blocks."""
    with closing(open_memory()) as store:
        write(store, "k", 1)
        reading = store.snapshot()
        reading.__enter__().record("n", "k")
        del reading
        assert write(store, "k", 2) == 2


def test_commit_is_refused_when_a_read_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.sqlite.memory.COMMIT_SECONDS", 0.1)
    with closing(open_memory()) as store:
        write(store, "k", 1)
        with store.snapshot() as snapshot:
            assert snapshot.record("n", "k").version == 1
            with pytest.raises(UnavailableError, match="read"):
                write(store, "k", 2)
        assert write(store, "k", 2) == 2


def test_uncommitted_pages_of_a_large_transaction_are_invisible() -> None:
    with closing(open_memory()) as store:
        with store.transaction(time.monotonic() + PATIENCE) as transaction:
            for number in range(400):  # 40 MB: far above the page cache
                value = ValueWritten(value=Json.of("x" * 100_000), by="ann")
                append(transaction, Record("n", f"k{number}"), value)
            with store.snapshot() as reader:
                assert (reader.position(), reader.records("n", "", None, -1, deleted=False)) == (0, [])
        assert len(whole_log(store)) == 400


def test_size_counts_the_pages_in_memory() -> None:
    with closing(open_memory()) as store:
        before = store.size()
        write(store, "k", "x" * 1_000_000)
        assert store.size() > before + 1_000_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_store_in_memory_is_closed_in_a_forked_child_and_open_in_its_parent() -> None:
    store = SqliteStore(MemoryDatabase())
    write(store, "k", 1)
    if (child := os.fork()) == 0:
        store.detach_after_fork()
        try:
            run(store, transact(put("k", 2)))
        except StoreError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert write(store, "k", 2) == 2
    store.close()


def _admits_reads(store: SqliteStore) -> bool:
    with closing(sqlite3.connect(store.database.uri, uri=True, timeout=0)) as connection:
        try:
            connection.execute("SELECT * FROM meta").fetchall()
        except sqlite3.OperationalError:
            return False
        return True
