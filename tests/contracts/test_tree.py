"""The Merkle tree over the log, in every store: the roots that it keeps, and the root of everything."""

import time

import pytest

from holdlog.adapters.stores.event_log.audit import Faults
from holdlog.adapters.stores.event_log.tree import check_tree, complete_tree, rebuild_tree
from holdlog.domain.merkle import Frontier, leaf
from holdlog.domain.ports import Store
from holdlog.projections.tree import LogTree
from tests.support.commands import PATIENCE, change, put, write
from tests.support.subtrees import SIZE, use_small_subtrees


@pytest.fixture(autouse=True)
def small_subtrees(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_subtrees(monkeypatch)


def kept(store: Store) -> list[int]:
    with store.reader() as reader:
        return sorted(reader.subtree_roots())


def faults(store: Store) -> str:
    found = Faults()
    with store.snapshot() as reader:
        check_tree(reader, LogTree(reader, trusts_view=False), found)
    return str(found)


def root_of_all(store: Store) -> bytes:
    """The root, leaf by leaf."""
    tree = Frontier()
    with store.reader() as reader:
        for recorded in reader.log(0, -1):
            tree.add(leaf(recorded.envelope.digest))
    return tree.root()


def deadline() -> float:
    return time.monotonic() + PATIENCE


def write_many(store: Store, count: int) -> None:
    for number in range(count):
        write(store, f"k{number}", number)


def test_commit_that_completes_a_subtree_keeps_its_root(store: Store) -> None:
    write_many(store, SIZE - 1)
    assert kept(store) == []
    write_many(store, SIZE + 2)
    assert kept(store) == [SIZE, 2 * SIZE]
    assert faults(store) == ""


def test_transaction_of_many_events_keeps_every_root_that_it_completes(store: Store) -> None:
    write(store, "first", 1)
    change(store, *(put(f"k{number}", number) for number in range(3 * SIZE)))
    assert kept(store) == [SIZE, 2 * SIZE, 3 * SIZE]
    assert faults(store) == ""


def test_root_is_that_of_all_leaves(store: Store) -> None:
    for _ in range(2 * SIZE + 1):
        write(store, "k", 1)
        with store.reader() as reader:
            assert LogTree(reader).root() == root_of_all(store)


def test_missing_roots_are_computed_and_then_kept(store: Store) -> None:
    write_many(store, 2 * SIZE + 1)
    with store.transaction(deadline()) as transaction:
        transaction.drop_subtree_roots()
    with store.reader() as reader:
        tree = LogTree(reader)
        assert (tree.missing(), tree.root()) == ([SIZE, 2 * SIZE], root_of_all(store))
    assert complete_tree(store) == 2
    assert (kept(store), faults(store)) == ([SIZE, 2 * SIZE], "")
    assert complete_tree(store) == 0


def test_changed_and_misplaced_roots_are_found_and_rebuilt(store: Store) -> None:
    write_many(store, 2 * SIZE)
    with store.transaction(deadline()) as transaction:
        transaction.put_subtree_roots({SIZE: bytes(32), SIZE + 1: bytes(32), 3 * SIZE: bytes(32)})
    assert faults(store) == "positions 1 to 4; position 5, where no subtree ends; position 12, where no subtree ends"
    assert rebuild_tree(store) == 2
    assert faults(store) == ""
