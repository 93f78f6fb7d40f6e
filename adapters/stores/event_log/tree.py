"""The Merkle tree of a store: checkpoints of it, and the roots that are kept."""

import time
from contextlib import suppress
from typing import Final

from holdlog.adapters.stores.event_log.audit import Faults
from holdlog.adapters.stores.event_log.rebuild import TURN_TIMEOUT
from holdlog.domain import checkpoint
from holdlog.domain.checkpoint import Checkpoint
from holdlog.domain.merkle import SUBTREE
from holdlog.domain.ports import Reader, Store
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.refusals import StoreError
from holdlog.projections.tree import LogTree

TURN_SUBTREES: Final = 256
"""Roots that are written at once."""


def checkpoint_of(store: Store, progress: Progress = ignore_progress) -> Checkpoint:
    """The checkpoint of all events; keeps roots that are missing. Raises UnavailableError."""
    complete_tree(store, progress)
    with store.snapshot() as reader:
        tree = LogTree(reader)
        return checkpoint.checkpoint_of(reader.meta("store_id"), tree.size, tree.root())


def complete_tree(store: Store, progress: Progress = ignore_progress) -> int:
    """Keep the roots that are missing, unless the store is sealed, while other processes read and write. Returns how
    many. If it is interrupted, some are still missing, and readers compute them. Raises UnavailableError."""
    with store.reader() as reader:
        missing = LogTree(reader).missing()
    for done in range(0, len(missing), TURN_SUBTREES):
        roots = {}
        for count, end in enumerate(missing[done : done + TURN_SUBTREES], done + 1):
            with store.reader() as reader:
                roots[end] = LogTree(reader, trusts_view=False).subtree(end)
            progress(count * SUBTREE, len(missing) * SUBTREE)
        with store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
            if transaction.sealed is not None:
                return 0
            transaction.put_subtree_roots(roots)
    return len(missing)


def rebuild_tree(store: Store) -> int:
    """Replace all kept roots. Returns their number. Raises UnavailableError."""
    with store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
        if transaction.sealed is not None:
            return 0
        transaction.drop_subtree_roots()
    return complete_tree(store)


def check_tree(reader: Reader, tree: LogTree, faults: Faults) -> int:
    """Compare each kept root with those of `tree`, which trusts none of them. Returns how many there are."""
    roots = reader.subtree_roots()
    ends = set(range(SUBTREE, tree.size + 1, SUBTREE))
    for end, root in roots.items():
        if end not in ends:  # in a file it can also be something other than a number
            faults.add(f"position {end}, where no subtree ends")
            continue
        with suppress(StoreError):  # events are missing
            if tree.subtree(end) == root:
                continue
        faults.add(f"positions {end - SUBTREE + 1:,} to {end:,}")
    return len(roots)
