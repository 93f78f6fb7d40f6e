"""The chain of digests: verification of a log, or of an export, event by event."""

import json
from collections.abc import Iterator
from typing import Any, Final

from holdlog.adapters.engine.port import Head, Reader
from holdlog.adapters.stores.codec import FIRST_DIGEST, digest_event, hash_payload
from holdlog.adapters.stores.decoding import decode_event
from holdlog.adapters.stores.sql import ROWS
from holdlog.domain.claims.claim import Claims
from holdlog.projections.fold import refold
from holdlog.projections.results import Damaged

PAGE: Final = 200
"""Rows with texts that are in memory at once: as many values of 256 kB are 50 MB."""


class DamageError(Exception):
    """The first thing that is wrong."""

    def __init__(self, damage: Damaged) -> None:
        super().__init__(damage.problem)
        self.damage = damage


class Chain:
    """A log up to its `head`, as far as it is verified, and the `claims` that follow from it. Redactions of events up
    to `trusted` are not verified: these were read when they had their texts."""

    def __init__(self) -> None:
        self.head = Head(0, FIRST_DIGEST, 0)
        self.claims: Claims = {}
        self.trusted = 0
        self._redacted: set[int] = set()
        """Events without text that no later event has explained yet."""

    def follow(self, row: Any) -> None:
        """Verify the next row of the log. Raises DamageError."""
        position = self.head.position + 1
        hashed = _hash_row(row, position)
        _, stream, version, topic, at, meta, payload = row[:7]
        digest = digest_event(self.head.digest, position, stream, version, topic, at, meta, hashed)
        if digest != row[9]:
            raise make_damage_error(position, "the event was changed")
        if at < self.head.at:
            raise make_damage_error(position, "its time is before that of the event before it")
        self.head = Head(position, digest, at)
        if payload is None:
            self._redacted.add(position)
        try:
            self._fold(row)
        except (KeyError, TypeError, ValueError):
            raise make_damage_error(position, "this event cannot follow the ones before it") from None

    def _fold(self, row: Any) -> None:
        position, stream, version, topic, at, meta, payload = row[:7]
        if stream.startswith("claim:"):
            refold({}, self.claims, decode_event(stream, topic, meta, payload), version, position, at)
        elif topic == "TextsRedacted":
            for target in json.loads(meta)["positions"]:
                if target not in self._redacted and target > self.trusted:
                    raise make_damage_error(target, f"a text is back that the event at position {position} redacted")
                self._redacted.discard(target)

    def finish(self) -> None:
        """Verify that the log may end here. Raises DamageError."""
        if self._redacted:
            raise make_damage_error(min(self._redacted), "its text was removed, and no event says so")


def read_log(snapshot: Reader, after: int = 0) -> Iterator[Any]:
    """The rows of the log after a position, in order."""
    while rows := snapshot.read(ROWS, {"after": after, "limit": PAGE}):
        yield from rows
        after = rows[-1][0]


def verify_log(snapshot: Reader, checkpoint: tuple[int, str] | None = None) -> Chain:
    """Verify a whole log. Raises DamageError, also if it does not contain the checkpoint, a position and a digest in
    hexadecimal."""
    chain, rows = Chain(), read_log(snapshot)
    last, digest = checkpoint or (0, FIRST_DIGEST.hex())
    while True:
        if chain.head.position == last and chain.head.digest.hex() != digest:
            problem = f"position {last}: the log has another history than the checkpoint"
            raise DamageError(Damaged("checkpoint", problem, last))
        if (row := next(rows, None)) is None:
            break
        chain.follow(row)
    chain.finish()
    if last > (end := chain.head.position):
        problem = f"the log ends at position {end}, before the checkpoint: events were removed at its end"
        raise DamageError(Damaged("checkpoint", problem, end))
    return chain


def make_damage_error(position: int, problem: str) -> DamageError:
    return DamageError(Damaged("log", f"position {position}: {problem}", position))


def _hash_row(row: Any, position: int) -> bytes:
    payload, salt, payload_hash = row[6:9]
    if row[0] != position:
        raise make_damage_error(position, "the event is missing")
    try:
        if payload is None and salt is None:
            return bytes(payload_hash)
        if payload_hash is None:
            return hash_payload(payload, salt)
    except (TypeError, AttributeError, ValueError):
        raise make_damage_error(position, "the event has no text, nor the hash of one") from None
    raise make_damage_error(position, "the event has a text and the hash of one that was redacted")
