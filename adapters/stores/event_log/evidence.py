"""Events with what proves them, checked while they are read: docs/evidence.md describes the proof."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from holdlog.adapters.stores.event_log.codec import COLUMNS, EncodedEvent, is_intact
from holdlog.adapters.stores.sql.reader import SqlReader
from holdlog.domain.checkpoint import Checkpoint
from holdlog.domain.envelope import NO_DIGEST, payload_hash
from holdlog.domain.merkle import Frontier, leaf, node, subtrees
from holdlog.domain.progress import Progress
from holdlog.domain.refusals import StoreError
from holdlog.projections.tree import LogTree

PROGRESS_EVERY: Final = 500
"""Events between two reports of progress."""

Fits = Callable[[EncodedEvent], bool]

_BYTES: Final = tuple(name for name, kind in COLUMNS.items() if kind is bytes and name != "state")


class ProvenEvents:
    """The events above one position, up to another, with what proves that they are in the tree of a checkpoint. Needs
    little memory, however many there are."""

    def __init__(self, reader: SqlReader, log: LogTree, checkpoint: Checkpoint, bounds: tuple[int, int]) -> None:
        self._reader, self._log, self._checkpoint = reader, log, checkpoint
        self._after, self._upto = bounds
        self._tree = Frontier()
        self._gap = _Gap(self._subtrees(0, self._after))
        self.after: list[bytes] = []
        """After `rows`: the roots of the subtrees after the last event."""

    def rows(self, fits: Fits, progress: Progress) -> Iterator[tuple[EncodedEvent, bytes, list[bytes]]]:
        """Each event that fits, with the digest of the event before it in its stream, and the roots of the subtrees
        between the event before it here and it. Raises StoreError for an event that is missing or was changed, and if
        the events do not have the root of the checkpoint."""
        for event, previous in self._checked():
            if event.id % PROGRESS_EVERY == 0:
                progress(event.id - self._after, self._upto - self._after)
            hashed = leaf(event.digest)
            if fits(event):
                before = self._skipped()
                self._tree.add(hashed)
                yield event, previous, before
            else:
                self._gap.add(event.id - 1, 1, hashed)
        for first, count, root in self._subtrees(self._upto, self._checkpoint.size):
            self._gap.add(first, count, root)
        self.after = self._skipped()
        if self._tree.root() != self._checkpoint.root:
            raise StoreError("the events do not have the root of the checkpoint; run: holdlog verify")

    def _checked(self) -> Iterator[tuple[EncodedEvent, bytes]]:
        position = self._after
        for event, before in self._reader.recorder.with_previous(self._after, self._upto, self._reader):
            previous = before or NO_DIGEST
            if event.id != position + 1:
                break
            position += 1
            if not is_intact(event, previous):
                raise StoreError(f"event {position:,} was changed after it was recorded; run: holdlog verify")
            yield event, previous
        if position != self._upto:
            raise StoreError(f"events are missing after position {position:,}; run: holdlog verify")

    def _subtrees(self, first: int, last: int) -> Iterator[tuple[int, int, bytes]]:
        return ((one, other - one, self._log.hash_of(one, other)) for one, other in subtrees(first, last))

    def _skipped(self) -> list[bytes]:
        """The roots of the events since the last one that was accepted, which are now in the tree."""
        nodes, self._gap = self._gap.nodes, _Gap()
        for _, count, root in nodes:
            self._tree.add(root, count)
        return [root for *_, root in nodes]


class _Gap:
    """Events that are left out between two others, as the roots of the largest complete subtrees of the tree: `nodes`,
    each with the index of its first leaf and their number."""

    def __init__(self, nodes: Iterable[tuple[int, int, bytes]] = ()) -> None:
        self.nodes = list(nodes)

    def add(self, first: int, count: int, root: bytes) -> None:
        while self.nodes and self.nodes[-1][1] == count and self.nodes[-1][0] % (2 * count) == 0:
            first, _, left = self.nodes.pop()
            count, root = 2 * count, node(left, root)
        self.nodes.append((first, count, root))


def without_payload(event: EncodedEvent) -> EncodedEvent:
    """The event with the hash of its payload instead of it: its digest is the same."""
    if event.payload is None or event.salt is None:
        return event
    return event._replace(salt=None, payload=None, payload_hash=payload_hash(event.salt, event.payload))


def fields_of(event: EncodedEvent, previous: bytes, before: Sequence[bytes]) -> dict[str, Any]:
    """An event as JSON: the columns of the log, with bytes in lower-case hexadecimal."""
    position, *columns = event
    fields: dict[str, Any] = dict(zip(COLUMNS, columns, strict=True))
    fields["state"] = bytes(event.state).decode()
    for name in _BYTES:
        if (value := fields[name]) is not None:
            fields[name] = bytes(value).hex()
    hashes = [it.hex() for it in before]
    return {"position": position, **fields, "previous": previous.hex(), "before": hashes}
