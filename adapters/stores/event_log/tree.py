"""The kept roots of the Merkle tree's subtrees: completed, and checked against the log."""

import time
from collections.abc import Callable
from itertools import islice

from holdlog.adapters.stores.event_log.audit import Faults
from holdlog.adapters.stores.event_log.rebuild import TURN_TIMEOUT
from holdlog.domain.merkle import SUBTREE, subtree_root
from holdlog.domain.ports import Reader, Store
from holdlog.projections.tree import LogTree

TURN_SUBTREES = 256
"""Roots that are written at once."""


def complete_tree(store: Store, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Keep the roots that are missing, while other processes read and write. Returns how many. `progress` counts
    events. If it is interrupted, some are still missing: checkpoints then compute them. Raises UnavailableError."""
    with store.reader() as reader:
        missing = LogTree(reader).missing()
    ends = iter(missing)
    done = 0
    while turn := list(islice(ends, TURN_SUBTREES)):
        roots = {}
        for end in turn:
            with store.reader() as reader:
                roots[end] = subtree_root(reader.digests(end - SUBTREE, end))
            done += 1
            progress(done * SUBTREE, len(missing) * SUBTREE)
        with store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
            transaction.put_subtree_roots(roots)
    return done


def rebuild_tree(store: Store) -> int:
    """Replace all kept roots. Returns their number. Raises UnavailableError."""
    with store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
        transaction.drop_subtree_roots()
    return complete_tree(store)


def check_tree(reader: Reader, faults: Faults) -> int:
    """Compare each kept root with the events. Returns how many there are."""
    last = reader.position()
    roots = reader.subtree_roots()
    for end, root in sorted(roots.items()):
        if end % SUBTREE or not SUBTREE <= end <= last:
            faults.add(f"position {end:,}, where no subtree ends")
        elif subtree_root(reader.digests(end - SUBTREE, end)) != root:
            faults.add(f"positions {end - SUBTREE + 1:,} to {end:,}")
    return len(roots)
