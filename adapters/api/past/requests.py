"""Requests about an earlier position or time: the queries of the present over a `PastReader`, and claims as they
were."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from holdlog.adapters.api.claims.requests import BOARD_PAGE
from holdlog.adapters.api.pagination import page
from holdlog.adapters.api.past import presenter, responses
from holdlog.adapters.api.past.presenter import PastState
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import STORED_AGENT, after_argument, page_size, text, whole
from holdlog.adapters.api.values.responses import AsOf, Result
from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.resource import overlap
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import TO_START_A_THREAD, InvalidError, NotFoundError
from holdlog.domain.times import microseconds, utc
from holdlog.projections.past import PastReader

RECENT_SECONDS: Final = 60
"""Up to this long ago, writes that are in progress may still get the time that was asked for."""
CLOCKS_DIFFER: Final = 1_000_000
"""Microseconds by which a caller's clock may be ahead of that of the database."""
_FOLLOWING: Final = 16
"""Events after a time that are checked for a clock that had jumped ahead."""

Answer = TypeVar("Answer")
Dated = TypeVar("Dated", bound=Result)


class PointInTime(NamedTuple):
    """An earlier state of the store: at a position of the log, or at a time (microseconds UTC). `as_of`: what it was
    resolved to; None: each query resolves it. `names`: of its arguments, for errors."""

    position: int | None
    at: int | None
    as_of: AsOf | None = None
    names: tuple[str, str] = ("position", "time")


def point_in_time(position: object, time: object, names: tuple[str, str] = ("position", "time")) -> PointInTime:
    """Check a position, or a time: a `datetime`, aware or in UTC, or RFC 3339 text. Raises InvalidError."""
    if (position is None) == (time is None):
        raise InvalidError(f"{names[0]}: pass either {names[0]} or {names[1]}")
    if time is None:
        return PointInTime(whole(position, names[0]), None, names=names)
    return PointInTime(None, _microseconds(time, names[1]), names=names)


def position_or_time(given: str, name: str = "at") -> PointInTime:
    """Parse the text of one argument: digits are a position, all else is a time. Raises InvalidError."""
    if given.isascii() and given.isdecimal() and len(given) <= 18:
        return point_in_time(int(given), None, (name, name))
    at = _microseconds(given, name, "a position such as 1234, or a time")
    return PointInTime(None, at, names=(name, name))


class PastRequests:
    """Builds requests about earlier moments. They need the grants that requests about the present need. Every query
    raises InvalidError for a moment that the log does not have."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def resolved(self, point: PointInTime) -> Query[AsOf]:
        return Query(lambda reader: as_of(reader, point))

    def of(self, query: Query[Dated], point: PointInTime) -> Query[Dated]:
        """A query about values or threads, at an earlier moment."""
        return self._query(lambda moment: _dated(query.answer(moment.reader), moment.as_of), point, query.large)

    def all_of(self, query: Query[list[Dated]], point: PointInTime) -> Query[list[Dated]]:
        """Like `of`, for a list of responses."""

        return self._query(lambda moment: [_dated(it, moment.as_of) for it in query.answer(moment.reader)], point)

    def plain(self, query: Query[Answer], point: PointInTime) -> Query[tuple[Answer, AsOf]]:
        """Like `of`, for anything: the answer and its `as_of`."""
        return self._query(lambda moment: (query.answer(moment.reader), moment.as_of), point, query.large)

    def status(self, resource: str, point: PointInTime) -> Query[responses.PastHeld | responses.PastAvailable]:
        """Who held a resource."""
        resource = self._rules.resource(resource)
        self._rules.require_to_see(resource)

        def answer(moment: _Moment) -> responses.PastHeld | responses.PastAvailable:
            state = self._state(moment, moment.reader.overlapping([resource]))
            found = presenter.status(resource, state, moment.reader.last_hold(resource))
            return self._dated_claims(found, state, moment)

        return self._query(answer, point)

    def board(
        self,
        point: PointInTime,
        agent: str | None = None,
        limit: int = BOARD_PAGE,
        after: str | None = None,
        resource: str | None = None,
    ) -> Query[responses.PastClaims]:
        """List claims and queues; with `agent`, only those of this agent and its sub-agents; with `resource`, only
        those that overlap it."""
        size, after = page_size(limit), after_argument(after, "after")
        stored = None if resource is None else self._rules.resource(resource)
        if agent is not None:
            agent = text(agent, "agent", STORED_AGENT)

        def answer(moment: _Moment) -> responses.PastClaims:
            past = moment.reader
            claims = past.claims(after, -1)
            if stored is not None:
                claims = [it for it in claims if overlap(it.resource, stored)]
            found, more = page(self._seen(claims), size)
            state = self._state(moment, found)
            held = {it.grant.agent for it in state.grants} | {it.agent for it in state.tickets}
            profiles = {it.agent: it for it in past.agents(sorted(held))}
            shown = presenter.board([claim.resource for claim in found], state, profiles, agent, more)
            return self._dated_claims(shown, state, moment)

        return self._query(answer, point)

    def agents(self, point: PointInTime) -> Query[responses.PastAgents]:
        """The agents that had registered, or held or waited for something."""

        def answer(moment: _Moment) -> responses.PastAgents:
            past, sees = moment.reader, self._rules.sees
            found = past.agents(past.registered(None, -1))
            profiles = {it.agent: it for it in found if sees is None or sees(it.stream)}
            state = self._state(moment, list(self._seen(past.claims(None, -1))))
            agents = presenter.agents(state, profiles, registered=True)
            shown = responses.PastAgents(agents=agents, not_recorded=responses.NOT_RECORDED)
            return self._dated_claims(shown, state, moment)

        return self._query(answer, point)

    def tokens(self, point: PointInTime) -> Query[responses.PastTokens]:
        """The tokens that had been issued; only those that the caller may administer."""
        grants = self._rules.grants

        def answer(moment: _Moment) -> responses.PastTokens:
            found = moment.reader.tokens(None, -1)
            seen = [it for it in found if grants is EVERYTHING or grants.allows("admin", it.name)]
            tokens = [presenter.token(it, moment.at) for it in seen]
            return responses.PastTokens(tokens=tokens, as_of=moment.as_of)

        return self._query(answer, point)

    def _query(self, answer: Callable[["_Moment"], Answer], point: PointInTime, large: bool = True) -> Query[Answer]:
        def answered(reader: Reader) -> Answer:
            moment = _Moment.of(reader, point)
            try:
                return answer(moment)
            except NotFoundError as error:
                facts = {**error.facts, "as_of": moment.as_of}
                missing, position = str(error).removesuffix(TO_START_A_THREAD), moment.as_of.position
                raise NotFoundError(f"{missing} at position {position}", facts) from None

        return Query(answered, large)

    def _seen(self, claims: Iterable[Claim]) -> Iterator[Claim]:
        """Those that the caller may see."""
        grants = self._rules.grants
        return (it for it in claims if grants is EVERYTHING or grants.sees_claim(it.resource))

    def _state(self, moment: "_Moment", claims: Sequence[Claim]) -> PastState:
        past = moment.reader
        waiting = past.board.tickets.values()
        return presenter.state_of(claims, waiting, past.endings(claims), moment.at, past.by_time)

    def _dated_claims(self, answer: Dated, state: PastState, moment: "_Moment") -> Dated:
        """Add `as_of`. An expiry that is due, but not recorded yet, will change what is shown."""
        as_of = moment.as_of
        if moment.reader.by_time and as_of.may_change is None:
            unended = {(it.resource, it.grant.version) for it in state.grants if it.ending is None}
            latest = self._rules.steady() - max(0, self._rules.clock() - moment.at)
            leases = moment.present.leases.of(list({resource for resource, _ in unended})) if unended else []
            if any(lease.key in unended and lease.deadline <= latest for lease in leases):
                as_of = as_of.model_copy(update={"may_change": True})
        return self._rules.shown(answer.model_copy(update={"as_of": as_of}))


class _Moment(NamedTuple):
    """The store at an earlier moment. `present`: the store now; `time`: the time that was asked for, microseconds
    UTC."""

    reader: PastReader
    as_of: AsOf
    present: Reader
    time: int | None

    @classmethod
    def of(cls, reader: Reader, point: PointInTime) -> "_Moment":
        found = as_of(reader, point) if point.as_of is None else point.as_of
        return cls(PastReader(reader, found.position, point.at), found, reader, point.at)

    @property
    def at(self) -> int:
        """The time that was asked for, or else that of the position: microseconds UTC."""
        return microseconds(self.as_of.at) if self.time is None else self.time


def as_of(reader: Reader, point: PointInTime) -> AsOf:
    """Find the position of a moment. Raises InvalidError for one that the log does not have."""
    position, time, name = point.position, point.at, point.names[point.position is None]
    if position == 0:
        raise InvalidError(f"{name}: must be 1 or more, the position of an event")
    if time is not None:
        position = _position_at(reader, time, name)
    assert position is not None
    found = reader.times(position - 1, 2 if time is None else _FOLLOWING)
    if not found:
        raise InvalidError(f"{name}: is {position}, but the log ends at position {reader.position()}")
    first, *following = found
    if time is None:
        suspect = first.clock is not None or any(it.clock is not None for it in following)
        recent = False
    else:
        suspect = first.clock is not None or any(it.clock is not None and it.clock <= time for it in following)
        recent = not following and reader.at - time < RECENT_SECONDS * 1_000_000
    return AsOf(position=position, at=utc(first.at), clock_suspect=suspect or None, may_change=recent or None)


def require_past(reader: Reader, time: int, name: str) -> None:
    """Raises InvalidError for a time in the future of the log. The caller's clock may be a little ahead of it: "now" is
    never in the future."""
    if time > reader.at + CLOCKS_DIFFER:
        raise InvalidError(f"{name}: is in the future; the last position is {reader.position()}")


def _position_at(reader: Reader, time: int, name: str) -> int:
    require_past(reader, time, name)
    position = reader.position_at(time)
    if not position:
        begun = reader.times(0, 1)
        when = f"which begins at {utc(begun[0].at).isoformat()}" if begun else "which is empty"
        raise InvalidError(f"{name}: is before the first event of the log, {when}")
    return position


def _dated(answer: Dated, as_of: AsOf) -> Dated:
    """Add `as_of` to a response that was just made. What is left of a lifetime depends on the present, so it is left
    out."""
    fields = answer.__dict__  # changed in place: a copy would take longer than the read of a key
    fields["as_of"] = as_of
    if "expires_in_seconds" in fields:
        fields["expires_in_seconds"] = None
    return answer


def _microseconds(time: object, name: str, expected: str = "a time") -> int:
    try:
        moment = datetime.fromisoformat(time) if isinstance(time, str) else time
        if not isinstance(moment, datetime):
            raise TypeError
        return max(0, microseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)))
    except (ValueError, TypeError, OverflowError):
        raise InvalidError(f"{name}: must be {expected} such as 2026-01-31T12:00:00Z") from None
