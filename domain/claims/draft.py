"""What a decider decides on: a working copy of the board, into which it folds its own events."""

from typing import Generic, NamedTuple, TypeVar

from holdlog.domain.claims.board import ClaimBoard, Key, LiveHold, Waiting
from holdlog.domain.claims.claim import Claim, ClaimEvent, ended_ticket, evolve, new_ticket
from holdlog.domain.claims.lease import Lease, Loss, Who, Why

Outcome = TypeVar("Outcome")


class Decision(NamedTuple, Generic[Outcome]):
    """What a decider returns. `events`: each with the state of its claim before and after it. `kept`: new and changed
    leases. `dropped`: leases that end. `losses`: grants that ended without a release by their holder."""

    outcome: Outcome
    events: list[tuple[Claim, ClaimEvent, Claim]]
    kept: list[Lease]
    dropped: set[Key]
    losses: list[Loss]


class BoardDraft(ClaimBoard):
    """A copy of a board with the changes of one command: each step sees those before it."""

    def __init__(self, board: ClaimBoard) -> None:
        self.claims = dict(board.claims)
        self.tickets = dict(board.tickets)
        self.leases = dict(board.leases)
        self.now, self.at, self.restored, self.ticket_count = board.now, board.at, board.restored, board.ticket_count
        self.events: list[tuple[Claim, ClaimEvent, Claim]] = []
        self._kept = dict(board.restored)
        self._dropped: set[Key] = set()
        self.losses: list[Loss] = []
        self.queue = dict(board.queue)
        self._overlapping_holds = {}

    def decide(self, outcome: Outcome) -> Decision[Outcome]:
        return Decision(outcome, self.events, list(self._kept.values()), self._dropped, self.losses)

    def record(self, resource: str, event: ClaimEvent) -> int:
        """Record the event. Returns its version."""
        before = self.claims.get(resource) or Claim(resource)
        self.claims[resource] = after = evolve(before, event, self.at)
        if after.waiting != before.waiting:
            self._change_queue(after, event)
        self.events.append((before, event, after))
        self._overlapping_holds = {}
        return after.version

    def keep(self, lease: Lease) -> None:
        """Add or change a lease. That of a ticket follows the event that queued it."""
        key = lease.resource, lease.version
        self.leases[key] = self._kept[key] = lease
        self._dropped.discard(key)
        if lease.kind == "waits":
            self.queue[key] = Waiting(lease.resource, self.tickets[key], lease)
        self._overlapping_holds = {}

    def drop(self, key: Key) -> None:
        self.leases.pop(key, None)
        self._kept.pop(key, None)
        self._dropped.add(key)
        self.queue.pop(key, None)
        self._overlapping_holds = {}

    def lose(self, hold: LiveHold, why: Why, note: str | None = None) -> None:
        """Drop the lease of a hold that another caller ended, and record the loss for its holder."""
        self.drop(hold.lease.key)
        self.losses.append(hold.lease.lost(why, self.at, note))

    def revive(self, who: Who, server: str) -> bool:
        """Mark the leases of the caller's session as alive again. Returns whether any of them counted as belonging to
        an ended session."""
        if who.session is None or not server:
            return False
        revived = False
        for lease in tuple(self.leases.values()):
            if lease.session == who.session and lease.principal == who.principal and lease.has_ended(self.now):
                self.keep(lease.revived(server, self.now))
                revived = True
        return revived

    def _change_queue(self, claim: Claim, event: ClaimEvent) -> None:
        """Add or remove the ticket of an event. `claim`: after it."""
        if (ticket := new_ticket(claim, event, self.at)) is not None:
            self.tickets[ticket.resource, ticket.version] = ticket
        else:
            del self.tickets[claim.resource, ended_ticket(event) or 0]
