"""Requests for timelines: lanes of what one agent did, or of who did something with one resource or value."""

from typing import Any, Final, NamedTuple, get_args

from holdlog.adapters.api.authors import principal_of
from holdlog.adapters.api.events.event_filter import done_by, names_in
from holdlog.adapters.api.events.ranges import LogRange, range_of, window_of
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.questions.presenter import change_entry, hold_entry, wait_entry
from holdlog.adapters.api.questions.responses import Lane, TimelineResult
from holdlog.adapters.api.questions.spans import Newest, SpanReader
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import NAME, STORED_AGENT, page_size, text
from holdlog.domain.claims.claim import ClaimGranted, ClaimQueued, ClaimResumed
from holdlog.domain.envelope import Recorded
from holdlog.domain.history import of_topics, oldest_first
from holdlog.domain.message import Event
from holdlog.domain.names import acts_for, record_stream
from holdlog.domain.ports import Reader
from holdlog.domain.record import RecordEvent
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.times import utc
from holdlog.projections.past_board import CLAIM_TOPICS, resource_of
from holdlog.projections.spans import ClaimSpan, HoldSpan

TIMELINE_PAGE: Final = 500
SCANNED: Final = 100_000
"""Events of the log that the timeline of an agent covers at most."""
_TOPICS: Final = (*CLAIM_TOPICS, *(event.topic for event in get_args(RecordEvent)))

Subject = tuple[tuple[str, str | None], ...]
"""What a lane is about: the names and values of its fields."""


class Timespan(NamedTuple):
    """What part of the past a timeline shows. `limit`: the newest entries."""

    since: PointInTime | None = None
    until: PointInTime | None = None
    limit: int = TIMELINE_PAGE


ALL: Final = Timespan()


class TimelineRequests:
    """Builds requests for timelines. Their queries raise InvalidError as `range_of`."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def of_resource(self, resource: str, part: Timespan = ALL) -> Query[TimelineResult]:
        """The agents that held a resource, or one that overlaps it, or waited for it. The query raises NotFoundError
        if nothing that overlaps it was ever claimed or changed."""
        resource, size = self._rules.resource(resource), page_size(part.limit)
        self._rules.require_to_see(resource)

        def answer(reader: Reader) -> TimelineResult:
            draft = _Draft(reader, self._rules, part, size)
            for span in draft.spans.overlapping(resource):
                draft.add_span(span, (("agent", span.owner.agent), ("principal", span.owner.principal)))
            return self._rules.shown(draft.timeline(resource=resource))

        return Query(answer, large=True)

    def of_value(self, namespace: str, key: str, part: Timespan = ALL) -> Query[TimelineResult]:
        """The agents that changed a value. The query raises NotFoundError if nobody ever did."""
        namespace, key, size = text(namespace, "namespace", NAME), text(key, "key", NAME), page_size(part.limit)
        self._rules.require("read-values", namespace)

        def answer(reader: Reader) -> TimelineResult:
            draft, stream = _Draft(reader, self._rules, part, size), record_stream(namespace, key)
            if not reader.record(namespace, key).version:
                raise NotFoundError.of_record(namespace, key)
            for recorded in oldest_first(reader, stream, reader.version_at(stream, draft.range.after, None)):
                if recorded.envelope.position > draft.range.upto:
                    break
                draft.add_change(recorded, (("agent", done_by(recorded)), ("principal", principal_of(recorded))))
            return draft.timeline(namespace=namespace, key=key)

        return Query(answer, large=True)

    def of_agent(self, agent: str, part: Timespan = ALL) -> Query[TimelineResult]:
        """The resources that an agent or its sub-agents held or waited for, and the values that they changed; without a
        beginning, in the last `SCANNED` events. The query raises InvalidError for a longer range."""
        agent, size = text(agent, "agent", STORED_AGENT), page_size(part.limit)

        def answer(reader: Reader) -> TimelineResult:
            draft, sees = _Draft(reader, self._rules, part, size), self._rules.sees
            draft.shorten(reader)
            resources = _held_at(reader, draft.range.after, agent)
            for recorded in of_topics(reader, _TOPICS, *draft.range):
                event, stream = recorded.event, recorded.envelope.stream
                if isinstance(event, ClaimGranted | ClaimResumed | ClaimQueued) and acts_for(event.agent, agent):
                    resources.add(resource_of(stream))
                elif isinstance(event, RecordEvent) and acts_for(event.by, agent) and (sees is None or sees(stream)):
                    draft.add_change(recorded, tuple(names_in(stream).items()))
            for name in sorted(resources):
                for span in draft.spans.of(name):
                    if acts_for(span.owner.agent, agent):
                        draft.add_span(span, (("resource", name),))
            return self._rules.shown(draft.timeline(agent=agent))

        return Query(answer, large=True)


class _Draft:
    """Collects the entries of a timeline, and arranges them in lanes."""

    def __init__(self, reader: Reader, rules: RequestRules, part: Timespan, size: int) -> None:
        self.range = range_of(reader, part.since, part.until)
        self.spans = SpanReader(reader, rules)
        self._part = part
        self._window = window_of(reader, self.range, part.since, part.until)
        self._newest = Newest[tuple[Subject, ClaimSpan | Recorded[Event]]](size)
        self._is_shortened = False

    def shorten(self, reader: Reader) -> None:
        """Cover at most `SCANNED` events. Raises InvalidError if the caller wants more."""
        after, upto = self.range
        if upto - after <= SCANNED:
            return
        if self._part.since is not None:
            raise InvalidError(
                f"{self._part.since.names[0]}: {upto - after} events follow it, but the timeline of an agent covers at"
                f" most {SCANNED}; choose a later beginning or an earlier end"
            )
        self.range, self._is_shortened = LogRange(upto - SCANNED, upto), True
        self._window = window_of(reader, self.range, None, self._part.until)

    def add_span(self, span: ClaimSpan, subject: Subject) -> None:
        if self._window.includes(span.began, span.ended):
            self._newest.add(span.began, span.key, (subject, span))

    def add_change(self, recorded: Recorded[Event], subject: Subject) -> None:
        envelope = recorded.envelope
        self._newest.add(envelope.at, (envelope.stream, envelope.version), (subject, recorded))

    def timeline(self, **about: Any) -> TimelineResult:
        """The response. `about`: what it is the timeline of."""
        lanes: dict[Subject, Lane] = {}
        now, times = self.spans.now, list[int]()
        for subject, what in reversed(self._newest.found()):
            lane = lanes.get(subject)
            if lane is None:
                lane = lanes[subject] = Lane(**dict(subject), holds=[], waits=[], changes=[])
            if isinstance(what, Recorded):
                lane.changes.append(change_entry(what))
                times.append(what.envelope.at)
                continue
            if isinstance(what, HoldSpan):
                lane.holds.append(hold_entry(what, now))
            else:
                lane.waits.append(wait_entry(what, now))
            times += [what.began, now if what.ended is None else what.ended]
        since, until = self._window
        return TimelineResult(
            **about,
            begins_at=utc(min(times, default=now) if since is None else since),
            ends_at=utc(max(times, default=now) if until is None else until),
            lanes=list(lanes.values()),
            more=self._newest.more or self._is_shortened or None,
        )


def _held_at(reader: Reader, position: int, agent: str) -> set[str]:
    """The resources that an agent may have held or waited for at a position."""
    after, claims, tickets = reader.snapshot_before(position)
    found = {claim.resource for claim in claims for grant in claim.grants if acts_for(grant.agent, agent)}
    found |= {ticket.resource for ticket in tickets if acts_for(ticket.agent, agent)}
    for recorded in of_topics(reader, CLAIM_TOPICS, after, position):
        event = recorded.event
        if isinstance(event, ClaimGranted | ClaimResumed | ClaimQueued) and acts_for(event.agent, agent):
            found.add(resource_of(recorded.envelope.stream))
    return found
