"""A Merkle tree over the log, as in RFC 6962 section 2.1: its root commits to the number, the order and the digest of
all events. The leaf with index n - 1 is that of the event at position n."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

SUBTREE: Final = 1024
"""Leaves of a subtree whose root a store keeps."""
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()


def leaf(digest: bytes) -> bytes:
    """The hash of an event's stored digest."""
    return hashlib.sha256(b"\x00" + digest).digest()


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def subtree_root(digests: Sequence[bytes]) -> bytes:
    """The root of a complete subtree over events with these digests, whose number is a power of two."""
    sha256 = hashlib.sha256
    level = [sha256(b"\x00" + digest).digest() for digest in digests]
    while len(level) > 1:
        level = [sha256(b"\x01" + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


class Frontier:
    """The roots of the complete subtrees of a growing tree, from left to right: all that is needed to add leaves.

    `size`: how many leaves it has.
    """

    def __init__(self) -> None:
        self.size = 0
        self._roots: list[tuple[int, bytes]] = []

    def add(self, root: bytes, leaves: int = 1) -> None:
        """Add a leaf, or a complete subtree. `leaves`: a power of two that divides the current size."""
        self.size += leaves
        while self._roots and self._roots[-1][0] == leaves:
            root = node(self._roots.pop()[1], root)
            leaves *= 2
        self._roots.append((leaves, root))

    def root(self) -> bytes:
        """The root of all leaves so far."""
        if not self._roots:
            return EMPTY_ROOT
        roots = [root for _, root in self._roots]
        result = roots.pop()
        while roots:
            result = node(roots.pop(), result)
        return result


def subtrees(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The largest complete subtrees that together have the leaves from index `first` up to and without `last`, from
    left to right, each as its first index and the one after its last. Their roots before and after a range of leaves
    prove that it is complete."""
    while first < last:
        size = min(first & -first or last, 1 << (last - first).bit_length() - 1)
        yield first, first + size
        first += size


def log_root(subtree_roots: Iterable[bytes], digests: Iterable[bytes]) -> bytes:
    """The root of a tree that begins with complete subtrees of `SUBTREE` leaves, which have these roots, and continues
    with the events that have these digests."""
    tree = Frontier()
    for root in subtree_roots:
        tree.add(root, SUBTREE)
    for digest in digests:
        tree.add(leaf(digest))
    return tree.root()
