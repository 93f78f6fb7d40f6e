"""Claims: who holds a resource, who waits for it, and how the last hold ended."""

import json
from typing import Any, Final, Literal, NamedTuple

from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.resource import overlap
from holdlog.domain.moment import SECOND

Mode = Literal["exclusive", "shared"]
Outcome = Literal["released", "modified", "created", "deleted", "moved"]
"""What the holder reports that it did to the resource."""

OFFER: Final = 30 * SECOND
"""How long a grant from the queue waits for the call that collects it."""
ABSENCE: Final = 120 * SECOND
"""How long a ticket outlives the call that waited: a caller that returns in time keeps its place."""

# --- events


class ClaimGranted(NamedTuple):
    """`by`, `of_principal`, `of_session`: the holder, who need not be the caller. `ticket`: version of the ClaimQueued
    that it fulfils; `instead_of`: version of the holder's own grant that it replaces."""

    stream: str
    by: str
    of_session: str
    of_principal: str | None = None
    mode: Mode = "exclusive"
    ticket: int | None = None
    instead_of: int | None = None
    note: str | None = None


class ClaimReleased(NamedTuple):
    """The grant of version `grant` ended. `forced_by`: the person who took it; `note` is then the reason."""

    stream: str
    by: str
    grant: int
    outcome: Outcome = "released"
    moved_to: str | None = None
    forced_by: str | None = None
    note: str | None = None


class ClaimExpired(NamedTuple):
    """The lease of a grant ended at `due` (microseconds since 1970). The event may be recorded later."""

    stream: str
    by: str
    of_session: str
    grant: int
    due: int


class OfferExpired(NamedTuple):
    """A grant ended because the waiter to which it was offered did not collect it in time."""

    stream: str
    by: str
    grant: int


class ClaimQueued(NamedTuple):
    """An agent queued for the resource and `also`."""

    stream: str
    by: str
    of_session: str
    of_principal: str | None = None
    mode: Mode = "exclusive"
    also: tuple[str, ...] = ()
    note: str | None = None


class ClaimUnqueued(NamedTuple):
    """A ticket left the queue: its waiter left, did not return in time, or got what it wanted otherwise."""

    stream: str
    by: str
    ticket: int
    why: Literal["left", "absent", "granted"]


class ClaimHandedOver(NamedTuple):
    """The grant or ticket of version `claim` now belongs to agent `by` in session `of_session`: the same agent, which
    continues in that session, or uses that name."""

    stream: str
    by: str
    claim: int
    of_session: str


class FileChanged(NamedTuple):
    """An agent changed a file, as hooks of its host saw it. `sha256`: of the new content; None: it was removed."""

    stream: str
    by: str
    sha256: str | None


# --- state


class Claim(NamedTuple):
    """A row of the view `claims`: a grant or a ticket, identified by resource and version of its event. `position`,
    `since`: of that event; the position orders all tickets. `hold`: version of the holder's first grant of the
    resource, if grants in another mode have replaced it.

    These are not in the view: `deadline` (steady clock, microseconds) is the end of a grant with its own lease, of an
    offer, or of a ticket whose waiter is absent. `waits_until` is the end of the call that waits. `is_offered`: not
    collected yet. `note` is the latest.
    """

    resource: str
    version: int
    is_ticket: bool
    mode: Mode
    who: HolderId
    position: int
    since: int
    hold: int
    also: tuple[str, ...] = ()
    deadline: int | None = None
    waits_until: int = 0
    is_offered: bool = False
    note: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.resource, self.version

    @property
    def resources(self) -> tuple[str, ...]:
        return self.resource, *self.also


Claims = dict[tuple[str, int], Claim]
Keys = tuple[tuple[str, int], ...]


class Ended(NamedTuple):
    """How the last hold of a resource ended. `grant`: the version that ended."""

    position: int
    resource: str
    outcome: str
    holder: str
    at: int
    grant: int
    of_session: str | None = None
    note: str | None = None
    moved_to: str | None = None
    forced_by: str | None = None


_parse: Final[Any] = vars(json.JSONDecoder())["scan_once"]
"""The C function inside json.loads: faster, and the log contains only JSON without leading blanks."""


def read_end(resource: str, position: int, topic: str, at: int, meta: str, payload: str | None) -> Ended:
    """Read it from a row of the log. `at`: microseconds since 1970."""
    fields = _parse(meta, 0)[0]
    note = _parse(payload, 0)[0].get("note") if payload is not None else None
    forced_by = fields.get("forced_by")
    outcome = "expired" if topic == "ClaimExpired" else "forced" if forced_by else fields.get("outcome", "released")
    facts = (fields["grant"], fields.get("of_session"), note, fields.get("moved_to"), forced_by)
    return Ended(position, resource, outcome, fields["by"], fields.get("due", at), *facts)


def describe_release(event: ClaimReleased, position: int, at: int) -> Ended:
    """The same as `read_end` will return once the event is in the log."""
    outcome = "forced" if event.forced_by is not None else event.outcome
    facts = (event.grant, None, event.note, event.moved_to, event.forced_by)
    return Ended(position, event.stream.partition(":")[2], outcome, event.by, at, *facts)


def wants(ticket: Claim, resources: tuple[str, ...]) -> bool:
    """Whether a ticket asks for something that overlaps one of these."""
    return any(overlap(one, other) for one in ticket.resources for other in resources)


# --- evolve


def evolve(claims: Claims, event: Any, version: int, position: int, at: int) -> Keys:
    """Change the grants and tickets of the event's resource; `version`: that of the event in its stream. Returns the
    keys of the rows that changed."""
    resource = event.stream[_PREFIX:]
    kind = type(event)
    if kind is ClaimGranted:
        who, note, deadline, hold = HolderId(event.by, event.of_session, event.of_principal), event.note, None, version
        keys: Keys = ((resource, version),)
        for replaced in (event.instead_of, event.ticket):
            if replaced is not None and (old := claims.pop((resource, replaced), None)) is not None:
                note = note or old.note
                if replaced == event.instead_of:
                    deadline, hold = None if old.is_offered else old.deadline, old.hold
                keys = (*keys, (resource, replaced))
        columns = (resource, version, False, event.mode, who, position, at, hold)
        claims[keys[0]] = Claim(*columns, (), deadline, 0, False, note)
        return keys
    if kind is ClaimQueued:
        who = HolderId(event.by, event.of_session, event.of_principal)
        facts = (event.mode, who, position, at, version, event.also)
        claims[resource, version] = Claim(resource, version, True, *facts, note=event.note)
        return ((resource, version),)
    if kind is ClaimHandedOver:
        key = (resource, event.claim)
        claims[key] = claims[key]._replace(who=HolderId(event.by, event.of_session, claims[key].who.principal))
        return (key,)
    if kind is FileChanged:
        return ()  # its version is counted
    key = (resource, event.ticket if kind is ClaimUnqueued else event.grant)
    claims.pop(key, None)
    return (key,)


_PREFIX: Final = len("claim:")
