"""Requests that read models outside the store answer: activity of agents, and conflicts between them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol

from holdlog.adapters.api.events.ranges import range_of, window_of
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.questions.responses import (
    Activity,
    AgentHour,
    CollisionEntry,
    Conflicts,
    RefusedAgent,
    RefusedCall,
)
from holdlog.adapters.api.request import Answered, Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import STORED_AGENT, page_size, text
from holdlog.domain.names import acts_for
from holdlog.domain.ports import Reader, Refusal
from holdlog.domain.times import utc
from holdlog.projections.activity import HOUR, ActivityRow
from holdlog.projections.collisions import CollisionRow

CONFLICTS_PAGE: Final = 100
HOURS: Final = 24
CODES: Final = ("busy", "conflict", "deadlock", "fenced")
"""Codes of refusals that another agent caused."""
_FOREVER: Final = 2**62
"""Microseconds UTC: later than every event."""


class ReadModelRows(Protocol):
    """The rows of the read models. Times are in microseconds UTC; `agent`: only this one and its sub-agents."""

    def activity(self, first_hour: int, last_hour: int, agent: str | None) -> list[ActivityRow]:
        """Newest hour first. Hours since 1970."""

    def collisions(
        self, since: int, until: int, resource: str | None, agent: str | None, limit: int
    ) -> list[CollisionRow]:
        """The most frequent first. `resource`: what overlaps it."""


class Period(NamedTuple):
    """A span of time: microseconds UTC, both ends included."""

    since: int
    until: int


class ModelReport(NamedTuple, Generic[Answered]):
    """A response from read models. `answer` gets them, the time that `period` found, and their position."""

    period: Query[Period]
    answer: Callable[[Reader, ReadModelRows, Period, int], Answered]


class ReportRequests:
    """Builds requests for reports, which count what all agents did: they need the grant to read everything. `since`,
    `until`: the last `hours` hours if there is no beginning. The query of the period raises InvalidError as
    `range_of`."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def activity(
        self,
        agent: str | None = None,
        since: PointInTime | None = None,
        until: PointInTime | None = None,
        hours: int = HOURS,
    ) -> ModelReport[Activity]:
        """Count the events that each agent caused, per hour."""
        agent = None if agent is None else text(agent, "agent", STORED_AGENT)
        self._rules.require("read", "*")

        def answer(reader: Reader, models: ReadModelRows, period: Period, position: int) -> Activity:
            kinds: dict[tuple[int, str, str | None], dict[str, int]] = defaultdict(dict)
            for row in models.activity(period.since // HOUR, period.until // HOUR, agent):
                kinds[row.hour, row.agent, row.principal][row.topic] = row.times
            found = [
                AgentHour(hour=utc(hour * HOUR), agent=name, principal=who, events=sum(times.values()), kinds=times)
                for (hour, name, who), times in kinds.items()
            ]
            return Activity(position=position, activity=found)

        return ModelReport(_period(since, until, hours), answer)

    def conflicts(
        self,
        resource: str | None = None,
        agent: str | None = None,
        since: PointInTime | None = None,
        until: PointInTime | None = None,
        hours: int = HOURS,
        limit: int = CONFLICTS_PAGE,
    ) -> ModelReport[Conflicts]:
        """Who queued behind whom, and who was refused because of another agent; the store does not record at which
        resource, so refusals are left out if there is a `resource`. `limit`: rows of each kind."""
        agent = None if agent is None else text(agent, "agent", STORED_AGENT)
        resource, size = None if resource is None else self._rules.resource(resource), page_size(limit)
        self._rules.require("read", "*")

        def answer(reader: Reader, models: ReadModelRows, period: Period, position: int) -> Conflicts:
            rows = models.collisions(*period, resource, agent, size)
            refusals = [
                it
                for it in (reader.refusals(CODES, period.since, -1) if resource is None else [])
                if it.at <= period.until and (agent is None or acts_for(it.by, agent))
            ]
            found = Conflicts(
                position=position,
                collisions=list(map(_collision, rows)),
                refused=_refused(refusals)[:size],
                refusals=[RefusedCall(at=utc(it.at), code=it.code, by=it.by, what=it.what) for it in refusals[:size]],
            )
            return self._rules.shown(found)

        return ModelReport(_period(since, until, hours), answer)


def _period(since: PointInTime | None, until: PointInTime | None, hours: int) -> Query[Period]:
    def answer(reader: Reader) -> Period:
        begin, end = window_of(reader, range_of(reader, since, until), since, until)
        last = reader.at if end is None else end
        return Period(last - hours * HOUR if begin is None else begin, _FOREVER if end is None else end)

    return Query(answer)


def _collision(row: CollisionRow) -> CollisionEntry:
    fields = row._asdict()
    waited, last = fields.pop("waited"), fields.pop("last")
    return CollisionEntry(**fields, waited_seconds=round(waited / 1_000_000, 3), last_at=utc(last))


def _refused(refusals: Sequence[Refusal]) -> list[RefusedAgent]:
    """How often each agent was refused, most often first. `refusals`: newest first."""
    codes: dict[str, Counter[str]] = defaultdict(Counter)
    last: dict[str, int] = {}
    for it in refusals:
        codes[it.by][it.code] += 1
        last.setdefault(it.by, it.at)
    return [
        RefusedAgent(agent=agent, times=times.total(), codes=dict(sorted(times.items())), last_at=utc(last[agent]))
        for agent, times in sorted(codes.items(), key=lambda it: (-it[1].total(), it[0]))
    ]
