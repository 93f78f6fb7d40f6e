"""Converts the history of agenthold to events: one event for each change of a value or a claim.

Each event has the time, author and order of its change. The n-th event of a key has version n: agenthold's own version,
unless the key was deleted, because agenthold then begins again at 1 (docs/store.md).
"""

from collections.abc import Container, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, get_args

from pydantic_core import from_json

from holdlog.adapters.stores.agenthold.file import PeerChange
from holdlog.adapters.stores.agenthold.names import (
    shortened_label,
    shortened_note,
    spelled_agent,
    spelled_name,
    spelled_resource,
)
from holdlog.adapters.stores.event_log.codec import EncodedEvent, encode
from holdlog.domain.agent import AgentRegistered
from holdlog.domain.claims.claim import ClaimExpired, ClaimGranted, ClaimReleased, Outcome
from holdlog.domain.envelope import NO_BASIS, NO_DIGEST
from holdlog.domain.message import Caller, Event
from holdlog.domain.names import agent_stream, claim_stream, record_stream
from holdlog.domain.record import ValueDeleted, ValueWritten
from holdlog.domain.times import microseconds
from holdlog.domain.value import Json

CLAIMS: Final = "claims"
AGENTS: Final = "_agents"
"""Namespaces in which agenthold keeps claims and agents, as values."""
IMPORTED: Final = Caller(reason="imported from agenthold")

_OUTCOMES: Final[dict[object, Outcome]] = {it: it for it in get_args(Outcome)}


class LiveClaim(NamedTuple):
    """A claim that is held at the end of the history. `version`, `position`: of its grant; times: microseconds UTC.
    `active_at`: the last activity of its holder that agenthold recorded."""

    resource: str
    version: int
    position: int
    agent: str
    active_at: int


class Counts:
    """What was converted. `unchanged`: changes that are no event in holdlog, such as the activity of an agent."""

    def __init__(self) -> None:
        self.changes = self.events = self.unchanged = self.as_text = self.expired = 0
        self.renumbered = set[str]()
        self.renamed = set[str]()


class Conversion:
    """`plain`: addresses in `CLAIMS` and `AGENTS` that hold ordinary values. `now`: microseconds UTC."""

    def __init__(self, plain: Container[tuple[str, str]], now: int) -> None:
        self.counts = Counts()
        self.live_values = set[str]()
        self._plain = plain
        self._now = now
        self._at = 0
        self._ends: dict[str, tuple[int, bytes]] = {}
        self._holds: dict[str, LiveClaim] = {}
        self.profiles: dict[str, AgentRegistered] = {}
        self._active: dict[str, int] = {}

    def events(self, changes: Iterable[PeerChange]) -> Iterator[EncodedEvent]:
        for change in changes:
            self.counts.changes += 1
            before = self.counts.events
            if change.namespace in (CLAIMS, AGENTS) and (change.namespace, change.key) not in self._plain:
                yield from (self._of_claim if change.namespace == CLAIMS else self._of_agent)(change)
            else:
                yield self._of_value(change)
            self.counts.unchanged += self.counts.events == before

    def expirations(self, claim_ttl: float | None) -> Iterator[EncodedEvent]:
        """Expire the claims whose time is over. `claim_ttl`: seconds; None: claims do not expire."""
        for hold in list(self._holds.values()):
            due = None if claim_ttl is None else self._active_at(hold) + round(claim_ttl * 1_000_000)
            if due is not None and due <= self._now:
                self.counts.expired += 1
                yield self._expired(hold, due, self._now)

    def live_claims(self) -> list[LiveClaim]:
        return [hold._replace(active_at=self._active_at(hold)) for hold in self._holds.values()]

    def _of_value(self, change: PeerChange) -> EncodedEvent:
        namespace, key = spelled_name(change.namespace), spelled_name(change.key)
        self._note_renamed(change.namespace, namespace)
        self._note_renamed(change.key, key)
        stream, by = record_stream(namespace, key), self._agent(change.by)
        if change.is_deletion:
            self.live_values.discard(stream)
            event: Event = ValueDeleted(by=by)
        else:
            self.live_values.add(stream)
            event = ValueWritten(value=self._value(change.value), by=by)
        return self._encoded(stream, event, change.at, None if change.is_deletion else change.version)

    def _value(self, text: str) -> Json:
        """A value that JSON cannot carry, such as NaN, becomes its text."""
        try:
            return Json.of(from_json(text))
        except ValueError:
            self.counts.as_text += 1
            return Json.of(text)

    def _of_claim(self, change: PeerChange) -> Iterator[EncodedEvent]:
        resource = spelled_resource(change.key)
        assert resource is not None
        value = {} if change.is_deletion else from_json(change.value)
        hold = self._holds.get(resource)
        if value.get("status") == "claimed":
            agent = self._agent(value["by"])
            if hold is not None and hold.agent != agent:  # taken over: its time was over
                yield self._expired(hold, change.at, change.at)
            replaced = hold.version if hold is not None and hold.agent == agent else None
            event = ClaimGranted(agent=agent, instead_of=replaced)
            granted = self._encoded(claim_stream(resource), event, change.at, change.version)
            self._holds[resource] = LiveClaim(resource, granted.originator_version, granted.id, agent, change.at)
            yield granted
        elif hold is not None and value.get("outcome") == "abandoned":
            yield self._expired(hold, change.at, change.at)
        elif hold is not None:
            del self._holds[resource]
            outcome, moved_to, by = value.get("outcome"), value.get("moved_to"), value.get("released_by")
            by = self._agent(by if isinstance(by, str) else change.by)
            released = ClaimReleased(
                agent=hold.agent,
                grant=hold.version,
                outcome=_OUTCOMES.get(outcome, "released") if isinstance(outcome, str) else "released",
                moved_to=spelled_resource(moved_to) if isinstance(moved_to, str) else None,
                forced_by=by if by != hold.agent else None,
            )
            yield self._encoded(claim_stream(resource), released, change.at, change.version)

    def _expired(self, hold: LiveClaim, due: int, at: int) -> EncodedEvent:
        del self._holds[hold.resource]
        event = ClaimExpired(agent=hold.agent, grant=hold.version, due=due)
        return self._encoded(claim_stream(hold.resource), event, at)

    def _of_agent(self, change: PeerChange) -> Iterator[EncodedEvent]:
        if change.is_deletion:
            return
        agent, value = self._agent(change.key), from_json(change.value)
        self._active[agent] = _time(value.get("last_activity")) or change.at
        profile = AgentRegistered(
            name=shortened_label(value["name"]),
            model=shortened_label(value.get("model")),
            purpose=shortened_note(value.get("purpose")),
        )
        if self.profiles.get(agent) != profile:
            self.profiles[agent] = profile
            yield self._encoded(agent_stream(agent), profile, change.at)

    def _encoded(self, stream: str, event: Event, clock: int, peer_version: int | None = None) -> EncodedEvent:
        """The next event of a stream. Times never decrease, and are not in the future; `clock` is recorded if it
        differs."""
        self._at = max(self._at, min(clock, self._now))
        version, digest = self._ends.get(stream, (0, NO_DIGEST))
        version += 1
        if peer_version not in (None, version):
            self.counts.renumbered.add(stream)
        self.counts.events += 1
        encoded = encode(event, stream, version, digest, NO_BASIS, self._at, clock, IMPORTED)
        self._ends[stream] = version, encoded.digest
        return encoded._replace(id=self.counts.events)

    def _agent(self, text: str) -> str:
        agent = spelled_agent(text)
        self._note_renamed(text, agent)
        return agent

    def _note_renamed(self, text: str, spelling: str) -> None:
        if text != spelling:
            self.counts.renamed.add(spelling)

    def _active_at(self, hold: LiveClaim) -> int:
        return self._active.get(hold.agent, hold.active_at)


def plain_addresses(changes: Iterable[PeerChange]) -> set[tuple[str, str]]:
    """The addresses in agenthold's own namespaces that ever held something else than a claim or an agent: clients may
    write there, and agenthold ignores what it does not know."""
    return {
        (it.namespace, it.key)
        for it in changes
        if (it.namespace == CLAIMS and not (spelled_resource(it.key) and (it.is_deletion or _is_claim(it.value))))
        or (it.namespace == AGENTS and not (it.is_deletion or _is_profile(it.value)))
    }


def _is_claim(text: str) -> bool:
    match _parsed(text):
        case {"status": "claimed", "by": str()} | {"status": "free"}:
            return True
        case _:
            return False


def _is_profile(text: str) -> bool:
    match _parsed(text):
        case {"name": str()}:
            return True
        case _:
            return False


def _parsed(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


def _time(text: object) -> int | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return microseconds(time if time.tzinfo else time.replace(tzinfo=UTC))
