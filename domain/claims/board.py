"""The board: the claims, tickets and holders that a transaction has read, and who excludes whom.

The path of a claim: the store fills a Board with rows (adapters/stores/board.py). The engine settles it: it ends what
has expired and grants what is free (queue.py). The command decides (acquire.py) and records events; the board evolves
with each event at once (claim.py). The result is read from the board (describe.py); the store writes the changed rows.

The rule: a claim is granted if it is compatible with every live grant of others, and with every earlier ticket whose
waiter is in a call now, unless that waiter itself waits for the caller.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdlog.domain.claims.claim import (
    ABSENCE,
    Claim,
    ClaimHandedOver,
    ClaimReleased,
    Claims,
    Ended,
    Mode,
    describe_release,
    evolve,
    read_end,
    wants,
)
from holdlog.domain.claims.holder import (
    HEARD_DIVISOR,
    LIFE_DIVISOR,
    MAX_LOSSES,
    SILENCE,
    Holder,
    HolderId,
    Holders,
    Loss,
    enter,
    list_ancestors,
)
from holdlog.domain.claims.resource import overlap
from holdlog.domain.moment import LEASE, SECOND, Moment
from holdlog.domain.results import Lost

LAST: Final = 2**62
"""The position of a claim that is not in the queue: behind all tickets."""
_by_position: Final = attrgetter("position")


class Request(NamedTuple):
    """What an agent asks for: all resources, or none."""

    who: HolderId
    mode: Mode
    resources: tuple[str, ...]
    position: int = LAST


def make_request(ticket: Claim) -> Request:
    return Request(ticket.who, ticket.mode, ticket.resources, ticket.position)


class Board:
    """The rows that the commands of a transaction change, one command after the other.

    `ends`: how holds ended, by resource (Ended, or the arguments of `read_end`). `is_alive` returns whether a process
    lives, None if it cannot be known. A holder with a process that would end between `silence_start` and `silence_end`
    ends at `silence_end`, unless its process is known to be dead. Times are microseconds of the steady clock.
    """

    def __init__(self, now: int, is_alive: Callable[[str | None], bool | None] = lambda process: None) -> None:
        self.now = now
        self.is_alive = is_alive
        self._alive: dict[str | None, bool | None] = {}
        self.claims: Claims = {}
        self.holders: Holders = {}
        self.versions: dict[str, int] = {}
        """The last version of each stream that may get events."""
        self.ends: dict[str, Any] = {}
        self.is_quiet = True
        """Whether no agent waits, nothing has expired, and no loss must be reported."""
        self.silence_start = self.silence_end = 0
        self._ordered: list[Claim] | None = None
        """Cache until something changes: the claims by position. Below: the holders that each waiter waits for."""
        self._blockers: dict[HolderId, set[HolderId]] | None = None
        self._reached: dict[HolderId, set[HolderId]] = {}
        self.changed_claims: set[tuple[str, int]] = set()
        self.changed_holders: set[HolderId] = set()
        self.moment: Moment
        self.who: HolderId
        self.events: list[Any] = []
        self.event_versions: list[int] = []
        self.entered: list[HolderId] = []
        """The holders that got a grant or ticket from the command."""

    def start(self, moment: Moment, agent: str = "") -> HolderId:
        """Begin a command, and count it as a call of its agent. Returns the agent's id as a holder."""
        self.moment, self.events, self.event_versions, self.entered = moment, [], [], []
        self.who = who = HolderId(agent, moment.caller.session, moment.caller.principal)
        if agent and self.holders:
            self._hear(who)
        return who

    def copy(self) -> "Board":
        """A copy for a trial: a change of it does not change this board."""
        copy = Board(self.now, self.is_alive)
        copy.claims, copy.holders = dict(self.claims), dict(self.holders)
        copy.silence_start, copy.silence_end = self.silence_start, self.silence_end
        copy.start(self.moment)
        copy.versions, copy.events = dict(self.versions), list(self.events)
        return copy

    # --- changes

    def record(self, event: Any) -> int:
        """Add an event. Returns its version."""
        self.events.append(event)
        self._ordered = self._blockers = None
        version = self.versions[event.stream] = self.versions[event.stream] + 1
        self.event_versions.append(version)
        position, at = self.moment.position + len(self.events), self.moment.at
        self.changed_claims.update(evolve(self.claims, event, version, position, at))
        if type(event) is ClaimReleased:
            self.ends[event.stream[len("claim:") :]] = describe_release(event, position, at)
        return version

    def keep(self, claim: Claim) -> None:
        """Replace a claim, with a change that no event records: deadline, waits_until, is_offered, note."""
        if self.claims[claim.key] != claim:
            self._ordered = self._blockers = None
            self.claims[claim.key] = claim
            self.changed_claims.add(claim.key)

    def keep_holder(self, holder: Holder) -> None:
        if self.holders.get(holder.who) != holder:
            self._blockers = None
            self.holders[holder.who] = holder
            self.changed_holders.add(holder.who)

    def enter(self, who: HolderId) -> None:
        """Make sure that a holder lives, before it gets a grant or ticket. If it had ended, its old claims stay ended,
        also those whose end is not recorded yet (a transaction records at most MAX_EXPIRED)."""
        self.entered.append(who)
        holder = self.holders.get(who)
        if holder is None or (end := self.find_holder_end(holder)) <= self.now:
            for claim in () if holder is None else list(self.claims.values()):
                if claim.who == who and claim.deadline is None:
                    self.keep(claim._replace(deadline=end))
            lost = () if holder is None else holder.lost
            self.keep_holder(enter(who, self.moment.caller, self.now, lost))

    def adopt(self, who: HolderId) -> None:
        """Create the missing holder of a claim, after a rebuild, with a full life."""
        self.keep_holder(Holder(who, self.now + LEASE, self.now))

    def _hear(self, who: HolderId) -> None:
        """Count a call of a live holder, also for its ancestors, and for holders that left to it (`is_left_to`)."""
        caller, now = self.moment.caller, self.now
        for holder in list(self.holders.values()):
            is_known = caller.handle is None or caller.handle in holder.handles
            if (
                is_known
                and now - holder.seen_at < holder.lease // (LIFE_DIVISOR * HEARD_DIVISOR)
                and not holder.has_left
            ):
                continue  # heard a moment ago
            is_left = holder.is_left_to(who, caller.host)
            is_heard = holder.who == who or ("/" in who.agent and holder.who in list_ancestors(who))
            if not (is_left or is_heard) or self.find_holder_end(holder) <= now:
                continue
            if is_left:
                self.keep_holder(holder._replace(seen_at=now, expires_at=now + holder.lease))
                continue
            is_back = holder.who == who and (holder.has_left or not is_known)
            if is_back:
                self.entered.append(who)  # its handle beats from now on
            if is_back or now - holder.seen_at >= holder.life // HEARD_DIVISOR:
                self.keep_holder(self.remove_dead_handles(holder).hear(caller, now, caller.handle if is_back else None))

    def remove_dead_handles(self, holder: Holder) -> Holder:
        """The holder without its handles, if all their processes are known to be dead; below the caller's host, if its
        own has ended, as after a conversation was resumed."""
        is_dead = holder.handles and self._lives(*holder.handles) is False
        host = self.moment.caller.host if self._lives(holder.host) is False else holder.host
        return holder._replace(host=host, handles=() if is_dead else holder.handles)

    def hand_over(self, left: HolderId, successor: HolderId) -> None:
        """Give the claims of a holder that left, and of its sub-agents and ancestors, to another session: in two
        sessions, they would exclude each other. If that session is not the caller's, the successor's handles beat for
        the new holders."""
        session = successor.session
        handles = self.holders[successor].handles if successor in self.holders else ()
        for claim in list(self.claims.values()):
            holder = self.holders[claim.who]
            if holder.has_left and claim.who.is_family(left):
                who = claim.who._replace(session=session)
                if session == self.moment.caller.session:
                    self.enter(who)
                elif (own := self.holders.get(who)) is None or self.find_holder_end(own) <= self.now:
                    row = Holder(who, self.now + holder.lease, self.now, holder.lease, holder.idle_limit, holder.host)
                    lost = () if own is None else own.lost
                    self.keep_holder(row._replace(handles=handles, lost=lost))
                self.give(claim, who)
        for old in list(self.holders.values()):
            new = self.holders.get(old.who._replace(session=session)) or self.holders.get(successor)
            if old.lost and old.who.is_family(left) and new is not None and new != old:
                self.keep_holder(old._replace(lost=()))
                self.keep_holder(new._replace(lost=(*new.lost, *old.lost)))

    def give(self, claim: Claim, who: HolderId) -> None:
        """Give a claim to another live holder. If both share it, one grant ends."""
        if not claim.is_ticket and self.find_own(claim.resource, who) is not None:
            self.record(ClaimReleased(f"claim:{claim.resource}", claim.who.agent, claim.version))
        else:
            self.record(ClaimHandedOver(f"claim:{claim.resource}", who.agent, claim.version, who.session))

    def has_family_left(self, left: HolderId) -> bool:
        """Whether each agent of a holder's family that holds or waits for something has left. A family is handed over
        as a whole."""
        return all(self.holders[it.who].has_left for it in self.claims.values() if it.who.is_family(left))

    def record_loss(self, claim: Claim, why: str, reason: str | None = None) -> None:
        """Note that a grant ended without its holder's doing."""
        holder = self.holders[claim.who]
        lost = (*holder.lost, Loss(claim.resource, claim.version, why, reason))
        self.keep_holder(holder._replace(lost=lost[-MAX_LOSSES:]))

    def take_losses(self) -> list[Lost]:
        """The lost claims of the caller's session, and of holders that left to the caller. The caller must report
        them: they are not returned again."""
        losses, caller = [], self.moment.caller
        for holder in list(self.holders.values()):
            if holder.lost and (holder.who[1:] == caller[:2] or holder.is_left_to(self.who, caller.host)):
                self.keep_holder(holder._replace(lost=()))
                for resource, _, why, reason in holder.lost:
                    grants = (claim for claim in self.list_grants(resource) if claim.resource == resource)
                    grant = next(grants, None)
                    losses.append(Lost(resource, why, None if grant is None else grant.who.agent, reason))
        return losses

    # --- holders

    def is_held_by(self, claim: Claim, who: HolderId) -> bool:
        """Whether it is a live grant of the caller, or of an agent of the same name that left (same principal, below
        the same host) or has no session."""
        if claim.is_ticket or self.find_claim_end(claim) <= self.now:
            return False
        is_left = self.holders[claim.who].is_left_to(who, self.moment.caller.host) and self.has_family_left(claim.who)
        is_anonymous = self.moment.caller.is_anonymous and claim.who.is_receipt_of(who)
        return claim.who == who or is_left or is_anonymous

    def is_of_ancestor(self, claim: Claim, who: HolderId) -> bool:
        """Whether it is of an agent above this one in its session: `claude` does not block `claude/tests`."""
        of_session = claim.who.session == who.session and claim.who.principal == who.principal
        return of_session and who.agent.startswith(claim.who.agent + "/")

    def is_abandoned_to(self, claim: Claim, who: HolderId) -> bool:
        """Whether a silent sub-agent of the caller holds it: then the caller may take it over."""
        of_session = claim.who.session == who.session and claim.who.principal == who.principal
        if not (of_session and claim.who.agent.startswith(who.agent + "/")):
            return False
        holder = self.holders.get(claim.who)
        return holder is not None and holder.is_silent(self.now)

    # --- grants

    def find_claim_end(self, claim: Claim) -> int:
        """When a grant ends, by the steady clock. If its holder is unknown: a full life from now."""
        if claim.deadline is not None:
            return claim.deadline
        holder = self.holders.get(claim.who)
        if holder is None:
            return self.now + LEASE
        return holder.expires_at if holder.expires_at >= self.silence_end else self.find_holder_end(holder)

    def find_holder_end(self, holder: Holder) -> int:
        """When a holder ends. A live process gets time to beat after a silence, but only once: silences may recur."""
        if holder.handles and self.silence_start <= holder.expires_at < self.silence_end:
            return holder.expires_at if self._lives(*holder.handles) is False else self.silence_end
        return holder.expires_at

    def is_connected(self, who: HolderId) -> bool | None:
        """Whether the holder's process lives, or else the program that runs the agent; None if it cannot be known."""
        holder = self.holders.get(who)
        return None if holder is None else not holder.has_left and self._lives(*(holder.handles or (holder.host,)))

    def _lives(self, *processes: str | None) -> bool | None:
        """Whether one of them lives, None if it cannot be known."""
        for process in processes:
            if process not in self._alive:
                self._alive[process] = self.is_alive(process)
        states = {self._alive[process] for process in processes}
        return True if True in states else None if None in states else False

    def count_idle_seconds(self, who: HolderId) -> float | None:
        holder = self.holders.get(who)
        return None if holder is None else max(0, self.now - holder.seen_at) / SECOND

    def note_silence(self, committed_at: int, began_at: int, ended_at: int) -> None:
        """Note the last silence: from `began_at` to `ended_at`, or since the last commit of any process, at
        `committed_at`, if that was longer than SILENCE ago."""
        if self.now - committed_at > SILENCE:
            began_at, ended_at = committed_at, self.now
        self.silence_start, self.silence_end = began_at, ended_at + SILENCE

    def list_grants(self, *resources: str) -> Iterator[Claim]:
        """Live grants that overlap one of the resources, the oldest first."""
        if self._ordered is None:
            self._ordered = sorted(self.claims.values(), key=_by_position)
        for claim in self._ordered:
            if claim.is_ticket or not any(overlap(claim.resource, resource) for resource in resources):
                continue
            if self.find_claim_end(claim) > self.now:
                yield claim

    def find_own(self, resource: str, who: HolderId) -> Claim | None:
        """The caller's grant of exactly this resource."""
        for claim in self.claims.values():
            if claim.resource != resource or claim.is_ticket:
                continue
            if claim.who == who and self.find_claim_end(claim) > self.now:
                return claim
        return None

    def find_hold(self, resource: str, version: int) -> Claim | None:
        """The grant of that version, or the grant that replaced it in another mode."""
        claim = self.claims.get((resource, version))
        if claim is None:
            holds = (it for it in self.claims.values() if (it.resource, it.hold) == (resource, version))
            claim = next(holds, None)
        return claim

    def find_receipt(self, resource: str, who: HolderId) -> Claim | None:
        """The grant of exactly this resource that a caller of the same name without a session holds."""
        grants = (it for it in self.list_grants(resource) if it.resource == resource)
        return next((it for it in grants if it.who.is_receipt_of(who)), None)

    def list_obstacles(self, request: Request) -> Iterator[Claim]:
        """The grants of others that exclude the request."""
        for claim in self.list_grants(*request.resources):
            who = request.who
            if request.mode == "shared" == claim.mode or claim.who == who or self.is_of_ancestor(claim, who):
                continue
            if not self.is_abandoned_to(claim, who):
                yield claim

    def find_last_end(self, names: tuple[str, ...]) -> Ended | None:
        """How the last hold of these resources ended, recorded or not."""
        for claim in () if self.is_quiet else list(self.claims.values()):
            is_hold = not (claim.is_ticket or claim.is_offered)
            if is_hold and claim.resource in names and self.find_claim_end(claim) <= self.now:
                self.note_expiry(claim)
        last = None
        for name in names:
            if name in self.ends and (last is None or self.ends[name][0] > self.ends[last][0]):
                last = name
        if last is None:
            return None
        end = self.ends[last]
        return end if isinstance(end, Ended) else read_end(last, *end)

    def note_expiry(self, claim: Claim) -> int:
        """Note that an expired grant has ended. Returns when, in microseconds since 1970."""
        at = self.moment.at - (self.now - self.find_claim_end(claim))
        position = self.moment.position + len(self.events) + 1
        facts = (claim.who.agent, at, claim.version, claim.who.session)
        self.ends[claim.resource] = Ended(position, claim.resource, "expired", *facts)
        return at

    # --- tickets

    def find_ticket_end(self, ticket: Claim) -> int:
        """When a ticket leaves the queue: ABSENCE after its waiter's call, or with its holder."""
        end = ticket.deadline if ticket.deadline is not None else ticket.waits_until + ABSENCE
        holder = self.holders.get(ticket.who)
        return end if holder is None else min(end, self.find_holder_end(holder))

    def list_tickets(self, *resources: str) -> list[Claim]:
        """Tickets for something that overlaps, in queue order."""
        tickets = [claim for claim in self.claims.values() if claim.is_ticket and wants(claim, resources)]
        return sorted((it for it in tickets if self.find_ticket_end(it) > self.now), key=_by_position)

    def list_waiters(self) -> list[Claim]:
        """All tickets whose waiters are in a call, in queue order."""
        waiters = [claim for claim in self.claims.values() if claim.is_ticket and claim.waits_until > self.now]
        return sorted((it for it in waiters if self.find_ticket_end(it) > self.now), key=_by_position)

    def list_earlier(self, request: Request) -> Iterator[Claim]:
        """The earlier waiters that exclude the request, except those that wait for its agent."""
        for ticket in self.list_waiters():
            is_earlier = ticket.position < request.position and ticket.who != request.who
            if is_earlier and self._excludes(ticket, request) and not self.waits_for(ticket.who, request.who):
                yield ticket

    def waits_for(self, start: HolderId, goal: HolderId) -> bool:
        """Whether one agent waits for another, directly or through others."""
        if self._blockers is None:
            self._blockers, self._reached = self._find_blockers(), {}
        if start not in self._reached:
            reached: set[HolderId] = set()
            rest = [start]
            while rest:
                others = self._blockers.get(rest.pop(), set()) - reached
                reached |= others
                rest += others
            self._reached[start] = reached
        return goal in self._reached[start]

    def _find_blockers(self) -> dict[HolderId, set[HolderId]]:
        """Whom each waiter waits for."""
        blockers: dict[HolderId, set[HolderId]] = {}
        waiters = self.list_waiters()
        for number, ticket in enumerate(waiters):
            request = make_request(ticket)
            others = blockers.setdefault(ticket.who, set())
            others |= {claim.who for claim in self.list_obstacles(request)}
            others |= {earlier.who for earlier in waiters[:number] if self._excludes(earlier, request)}
        return blockers

    def is_free(self, request: Request) -> bool:
        return next(self.list_obstacles(request), None) is None and next(self.list_earlier(request), None) is None

    def _excludes(self, earlier: Claim, request: Request) -> bool:
        if request.mode == "shared" == earlier.mode or self.is_of_ancestor(earlier, request.who):
            return False
        return wants(earlier, request.resources)
