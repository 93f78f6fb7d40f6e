"""A Merkle tree over the log, as in RFC 6962 section 2.1: its root commits to the number, the order and the digest of
all events. The leaf with index n - 1 is that of the event at position n.

Functions that need nodes take `hash_of(first, last)`: the root of the leaves from index `first` up to and without
`last`, whose number is a power of two, and `first` a multiple of it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

SUBTREE: Final = 1024
"""Leaves of a subtree whose root a store keeps."""
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()

HashOf = Callable[[int, int], bytes]


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
    left to right: bounds as for `hash_of`. Their roots before and after a range of leaves prove that it is complete."""
    while first < last:
        size = min(first & -first or last, 1 << (last - first).bit_length() - 1)
        yield first, first + size
        first += size


def root_of(first: int, last: int, hash_of: HashOf) -> bytes:
    """The root of the leaves from index `first` up to and without `last`."""
    count = last - first
    if count == 0:
        return EMPTY_ROOT
    if count & (count - 1) == 0:
        return hash_of(first, last)
    split = first + _left(count)
    return node(hash_of(first, split), root_of(split, last, hash_of))


def inclusion_proof(index: int, size: int, hash_of: HashOf) -> list[bytes]:
    """The nodes that prove that a leaf is in the tree with `size` leaves, from its sibling upwards."""
    return _path(index, 0, size, hash_of)


def consistency_proof(old: int, new: int, hash_of: HashOf) -> list[bytes]:
    """The nodes that prove that the tree with `new` leaves begins with that of `old` leaves."""
    return _subproof(old, 0, new, True, hash_of) if 0 < old < new else []


def is_included(index: int, size: int, leaf_hash: bytes, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof shows that the leaf is in the tree (RFC 9162 section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    number, last, result = index, size - 1, leaf_hash
    for sibling in proof:
        if last == 0:
            return False
        if number & 1 or number == last:
            result = node(sibling, result)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            result = node(result, sibling)
        number, last = number >> 1, last >> 1
    return last == 0 and result == root


def is_consistent(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof shows that the newer tree begins with the older one (RFC 9162 section 2.1.4.2)."""
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof and old_root == EMPTY_ROOT
    if not 0 < old < new:
        return False
    nodes = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not nodes:
        return False
    number, last = old - 1, new - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    before = after = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            before, after = node(sibling, before), node(sibling, after)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            after = node(after, sibling)
        number, last = number >> 1, last >> 1
    return last == 0 and before == old_root and after == new_root


def _left(count: int) -> int:
    """The largest power of two below `count`, which is at least 2."""
    return 1 << (count - 1).bit_length() - 1


def _path(index: int, first: int, last: int, hash_of: HashOf) -> list[bytes]:
    count = last - first
    if count == 1:
        return []
    split = first + _left(count)
    if first + index < split:
        return [*_path(index, first, split, hash_of), root_of(split, last, hash_of)]
    return [*_path(first + index - split, split, last, hash_of), root_of(first, split, hash_of)]


def _subproof(old: int, first: int, last: int, is_known: bool, hash_of: HashOf) -> list[bytes]:
    """`is_known`: the verifier has the root of the leaves from `first` to `last` if these are all the old ones."""
    count = last - first
    if old == count:
        return [] if is_known else [root_of(first, last, hash_of)]
    left = _left(count)
    split = first + left
    if old <= left:
        return [*_subproof(old, first, split, is_known, hash_of), root_of(split, last, hash_of)]
    return [*_subproof(old - left, split, last, False, hash_of), root_of(first, split, hash_of)]
