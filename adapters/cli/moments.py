"""Moments as people write them: positions in the log, and times in their own time zone."""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from holdlog.domain.refusals import InvalidError

Moment = int | datetime
"""A position in the log, or a time (UTC)."""

TIMES: Final = '14:03, "yesterday 9:00", "2026-11-23 14:03", 2026-11-23T14:03:00Z, "10 minutes ago"'
EXAMPLES: Final = f"{TIMES} or a position such as #1234"
"""What `parse_moment` understands, for help texts."""
MOMENT_HELP: Final = f"MOMENT is {EXAMPLES}.\nA time without an offset is in your time zone"

_POSITION: Final = re.compile(r"#?([0-9]{1,18})")
_AGO: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?|an?) ?([a-z]+) ago")
_CLOCK: Final = re.compile(
    r"(?:(?P<day>today|yesterday|[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[t ]+|$))?"
    r"(?:(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?"
    r" ?(?P<zone>utc|z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_UNITS: Final = {
    timedelta(seconds=1): ("s", "sec", "secs", "second", "seconds"),
    timedelta(minutes=1): ("m", "min", "mins", "minute", "minutes"),
    timedelta(hours=1): ("h", "hour", "hours"),
    timedelta(days=1): ("d", "day", "days"),
    timedelta(weeks=1): ("w", "week", "weeks"),
}
_UNIT: Final = {name: unit for unit, names in _UNITS.items() for name in names}
_MILLISECONDS: Final = 3
"""Digits. Commands print times cut to milliseconds: such a time means the end of its millisecond, so that it includes
the event from whose line it was copied."""

_LAST_OF_MILLISECOND: Final = 999
"""Microseconds."""


def parse_moment(text: str, argument: str = "moment", now: datetime | None = None, expected: str = EXAMPLES) -> Moment:
    """The position or the time (UTC) that a text names. A time without an offset is in the local time zone; without a
    day, it is today. `now`: aware, for tests. Raises InvalidError with one line, for `argument`,
    that says what is `expected`."""
    written = " ".join(text.lower().split())
    now = datetime.now(UTC) if now is None else now
    try:
        if found := _POSITION.fullmatch(written):
            return int(found[1])
        if written == "now":
            return now.astimezone(UTC)
        if found := _AGO.fullmatch(written):
            count = 1.0 if found[1].startswith("a") else float(found[1])
            return (now - count * _UNIT[found[2]]).astimezone(UTC)
        if written and (found := _CLOCK.fullmatch(written)):
            return _at_clock(found, now, argument)
    except InvalidError:
        raise
    except (KeyError, ValueError, OverflowError):
        pass
    raise InvalidError(f"{argument}: must be {expected}")


def beginning(moment: datetime) -> datetime:
    """The beginning of what a parsed time names, for a range that begins with it: of a millisecond, see above."""
    ends_millisecond = moment.microsecond % 1000 == _LAST_OF_MILLISECOND
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000) if ends_millisecond else moment


def _at_clock(found: re.Match[str], now: datetime, argument: str) -> datetime:
    """The time of a clock, with or without a day. Raises InvalidError and ValueError."""
    if found["hour"] is None:
        raise InvalidError(f'{argument}: needs a time of day, such as "{found["day"]} 14:03"')
    fraction = found["fraction"] or ""
    microsecond = int(fraction.ljust(6, "9" if len(fraction) == _MILLISECONDS else "0"))
    clock = time(int(found["hour"]), int(found["minute"]), int(found["second"] or 0), microsecond)
    zone = found["zone"]
    if zone is not None:
        here = datetime.strptime("+0000" if zone in ("utc", "z") else zone, "%z").tzinfo
        meant = datetime.combine(_day(found["day"], now.astimezone(here).date()), clock, here).astimezone(UTC)
    else:
        meant = _local(datetime.combine(_day(found["day"], now.astimezone().date()), clock), argument)
    if found["day"] in (None, "today") and meant > now:
        written = found.string[found.start("hour") :].upper()
        raise InvalidError(f'{argument}: is later today; for the day before, write "yesterday {written}"')
    return meant


def _day(written: str | None, today: date) -> date:
    match written:
        case None | "today":
            return today
        case "yesterday":
            return today - timedelta(days=1)
        case _:
            return date.fromisoformat(written)


def _local(written: datetime, argument: str) -> datetime:
    """The UTC time of a local one. Raises InvalidError if clocks skipped it or showed it twice."""
    first, second = (written.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if first.astimezone().replace(tzinfo=None) != written:
        around = sorted(it.astimezone() for it in (first, second))
        before, after = (f'"{it:%Y-%m-%d %H:%M:%S}"' for it in around)
        raise InvalidError(f"{argument}: clocks skipped this time; write {before} or {after}")
    if first != second:
        raise InvalidError(
            f"{argument}: clocks showed this time twice; write {first:%Y-%m-%dT%H:%M:%SZ} or"
            f" {second:%Y-%m-%dT%H:%M:%SZ}"
        )
    return first
