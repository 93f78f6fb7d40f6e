"""Moments of the past, as people write them: a version of a key, a position, a time."""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.rows import read_position
from holdlog.adapters.stores import sql
from holdlog.domain.refusals import InvalidError
from holdlog.domain.results import utc
from holdlog.projections.past import PastMoment

CLOCK_ERROR: Final = 1_000_000
"""Microseconds by which a caller's clock may be ahead of the store's."""
EXAMPLES: Final = '#1234, v3 of a key, now, 14:03, "yesterday 9:00", 2026-11-23T14:03:00Z, "10 minutes ago"'

_POSITION: Final = re.compile(r"#?([0-9]{1,18})")
_VERSION: Final = re.compile(r"v[0-9]{1,18}")
_AGO: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?|an?) ?([a-z]+?)(?:(?<=[a-z]{2})s)? ago")
_CLOCK: Final = re.compile(
    r"(?:(today|yesterday|[0-9]{4}-[0-9]{2}-[0-9]{2})[t ]+)?"
    r"([0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?) ?(utc|z|[+-][0-9]{2}:?[0-9]{2})?"
)
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "second"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day"), timedelta(days=1)),
    **dict.fromkeys(("w", "week"), timedelta(weeks=1)),
}


def parse_moment(moment: Any) -> int | str | datetime:
    """A position, a version such as `v3`, `now`, or a time in UTC. A time without an offset is one of the local time
    zone, and one without a day is of today; a `datetime` without a time zone is in UTC. Raises ValueError."""
    if isinstance(moment, int) and not isinstance(moment, bool) and 0 <= moment < 10**18:
        return moment
    text = " ".join(moment.lower().split()) if isinstance(moment, str) else ""
    if text == "now" or _VERSION.fullmatch(text):
        return text
    if position := _POSITION.fullmatch(text):
        return int(position[1])
    try:
        if isinstance(moment, datetime):
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if ago := _AGO.fullmatch(text):
            count = 1.0 if ago[1].startswith("a") else float(ago[1])
            return datetime.now(UTC) - count * _UNITS[ago[2]]
        times = _read_clock(text)
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"must be a moment such as {EXAMPLES}") from None
    if len(times) > 1:
        raise ValueError("clocks were set at this time; write it with its offset, such as 2:30+01:00")
    return times.pop()


def _read_clock(text: str) -> set[datetime]:
    """The time; two, if the clocks of the local time zone skipped it or showed it twice. Raises ValueError."""
    if (parts := _CLOCK.fullmatch(text)) is None:
        raise ValueError
    day, clock, zone = parts[1], parts[2], parts[3]
    offset = datetime.strptime("+0000" if zone in ("utc", "z") else zone, "%z").tzinfo if zone else None
    on = date.fromisoformat(day) if day and day[0].isdigit() else datetime.now(offset).date()
    if day == "yesterday":
        on -= timedelta(days=1)
    written = datetime.combine(on, time.fromisoformat(clock if clock[1] != ":" else f"0{clock}"), offset)
    return {written.replace(fold=fold).astimezone(UTC) for fold in (0, 1)}


MomentArgument = Annotated[int | str | datetime, PlainValidator(parse_moment), WithJsonSchema({"type": "string"})]


def find_moment(reader: Reader, moment: int | str | datetime, argument: str, stream: str | None = None) -> PastMoment:
    """The state of the store at a moment, which may be a version of the key with this stream. Raises InvalidError."""
    if moment == "now":
        return PastMoment(read_position(reader), reader.now(), True)
    if isinstance(moment, datetime):
        position, at = _find_time(reader, moment, argument)
        if not position:
            raise InvalidError(f"{argument}: lies before the first event")
        return PastMoment(position, at, True)
    if isinstance(moment, int):
        rows = reader.read(sql.TIME, {"position": moment})
    elif stream is None:
        raise InvalidError(f"{argument}: a version is that of a key; name its namespace and key")
    else:
        rows = reader.read(sql.TIME_OF_VERSION, {"stream": stream, "version": int(moment[1:])})
    if not rows:
        raise InvalidError(
            f"{argument}: the log has no such {'position' if isinstance(moment, int) else 'version of this key'}"
        )
    return PastMoment(rows[0][0], rows[0][1], False)


def find_start(reader: Reader, moment: int | str | datetime, argument: str) -> tuple[int, int]:
    """The position before the first event of a range, and the time that it begins at: 0, if it begins with an event.
    Raises InvalidError."""
    if isinstance(moment, datetime):
        return _find_time(reader, moment, argument, before=1)
    start = find_moment(reader, moment, argument)
    return (start.position, start.at) if start.is_time else (start.position - 1, 0)


def _find_time(reader: Reader, moment: datetime, argument: str, before: int = 0) -> tuple[int, int]:
    """The last position until a time, or until `before` microseconds earlier, and that time. Raises InvalidError."""
    at = (moment - utc(0)) // timedelta(microseconds=1)
    if at > reader.now() + CLOCK_ERROR:
        raise InvalidError(f"{argument}: lies in the future")
    return reader.read(sql.POSITION_AT, {"at": at - before})[0][0] or 0, at
