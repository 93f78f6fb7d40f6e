"""The Merkle tree over the log (domain/merkle.py), and the view that keeps roots of its complete subtrees."""

from collections.abc import Iterator
from typing import Protocol

from holdlog.domain.merkle import SUBTREE, log_root, subtree_root
from holdlog.domain.refusals import StoreError
from holdlog.projections.projection import Table

TREE = Table("tree", {"position": int, "root": bytes}, key=1)
"""`root`: of the `SUBTREE` leaves that end at this position. Rows may be missing, for events that were migrated,
copied, imported, or written by servers without this table."""


class Digests(Protocol):
    """The part of a reader that a tree needs."""

    def position(self) -> int:
        """The position of the newest event."""

    def digests(self, after: int, upto: int) -> list[bytes]:
        """The digests of the events above one position, up to another."""

    def subtree_roots(self) -> dict[int, bytes]:
        """The roots in the view, by position."""


class LogTree:
    """The tree over the events that a reader sees. Reads the digests of at most a few subtrees for each answer, if the
    view has all roots. `trusts_view`: False computes all roots from the digests, once. Raises StoreError where events
    are missing."""

    def __init__(self, reader: Digests, trusts_view: bool = True) -> None:
        self.size = reader.position()
        self._reader = reader
        self._roots = dict(filter(_is_root, reader.subtree_roots().items())) if trusts_view else {}

    def missing(self) -> list[int]:
        """Positions at which complete subtrees end whose roots the view lacks."""
        return [end for end in range(SUBTREE, self.size + 1, SUBTREE) if end not in self._roots]

    def subtree(self, end: int) -> bytes:
        """The root of the complete subtree that ends at this position."""
        root = self._roots.get(end)
        if root is None:
            root = self._roots[end] = subtree_root(self._digests(end - SUBTREE, end))
        return root

    def hash_of(self, first: int, last: int) -> bytes:
        """The root of the leaves from index `first` up to and without `last`, whose number is a power of two, and
        `first` a multiple of it."""
        if last - first < SUBTREE:
            return subtree_root(self._digests(first, last))
        return log_root(self._subtrees(first, last), ())

    def root(self, size: int | None = None) -> bytes:
        """The root of the first `size` leaves; None: of all."""
        size = self.size if size is None else size
        full = size - size % SUBTREE
        return log_root(self._subtrees(0, full), self._digests(full, size))

    def _subtrees(self, first: int, last: int) -> Iterator[bytes]:
        return map(self.subtree, range(first + SUBTREE, last + 1, SUBTREE))

    def _digests(self, after: int, upto: int) -> list[bytes]:
        found = self._reader.digests(after, upto)
        if len(found) != upto - after:
            raise StoreError(f"events are missing between positions {after + 1:,} and {upto:,}; run: holdlog verify")
        return found


def _is_root(row: tuple[object, object]) -> bool:
    """Whether a row of the view has the type of one: in a file, another program can have written anything."""
    return isinstance(row[1], bytes)
