"""Snapshots of the board: computed again from the log, and checked against it."""

import time

from holdlog.adapters.stores.event_log.audit import Faults
from holdlog.adapters.stores.event_log.codec import UNREADABLE
from holdlog.adapters.stores.event_log.rebuild import TURN_TIMEOUT
from holdlog.domain.claims.board import Key
from holdlog.domain.claims.claim import Claim, Ticket
from holdlog.domain.ports import Reader, Store
from holdlog.domain.refusals import StoreError
from holdlog.projections.claims import SNAPSHOT_EVERY
from holdlog.projections.past_board import CLAIM_TOPICS, fold_board


def rebuild_snapshots(store: Store) -> int:
    """Replace all snapshots, while other processes read and write. Returns their number. If it is interrupted, some
    are missing: earlier moments are then read more slowly. Raises UnavailableError if the store is locked, StoreError
    for a log that cannot be folded."""
    with store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
        transaction.drop_snapshots()
    folded = _FoldedBoard()
    count = 0
    while True:
        with store.snapshot() as reader:
            if reader.position() < folded.position + SNAPSHOT_EVERY:
                return count
            folded.advance(reader, folded.position + SNAPSHOT_EVERY)
        with store.transaction(time.monotonic() + TURN_TIMEOUT) as transaction:
            transaction.put_snapshot(folded.position, folded.active(), list(folded.tickets.values()))
        count += 1


def check_snapshots(reader: Reader, faults: Faults) -> int:
    """Compare each snapshot with the log. Returns how many there are."""
    positions: list[int] = []
    below = reader.position()
    while found := reader.snapshot_before(below)[0]:
        positions.append(found)
        below = found - 1
    folded = _FoldedBoard()
    for position in reversed(positions):
        try:
            folded.advance(reader, position)
            _, claims, tickets = reader.snapshot_before(position)
            if sorted(claims) != sorted(folded.active()) or sorted(tickets) != sorted(folded.tickets.values()):
                faults.add(f"position {position:,}")
        except (StoreError, *UNREADABLE):
            faults.add(f"position {position:,} cannot be read")
    return len(positions)


class _FoldedBoard:
    """The claims, free ones too, and the tickets after the events up to a position."""

    def __init__(self) -> None:
        self.position = 0
        self.tickets: dict[Key, Ticket] = {}
        self._claims: dict[str, Claim] = {}

    def advance(self, reader: Reader, position: int) -> None:
        while self.position < position:
            upto = min(position, self.position + SNAPSHOT_EVERY)
            fold_board(self._claims, self.tickets, reader.log_of(CLAIM_TOPICS, self.position, upto, -1))
            self.position = upto

    def active(self) -> list[Claim]:
        return [claim for claim in self._claims.values() if claim.grants or claim.waiting]
