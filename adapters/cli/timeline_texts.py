"""Formats timelines as lanes of text, and for pictures. The names in them come from agents, so they are escaped."""

import shutil
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TextIO

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.questions.responses import HoldEntry, Lane, TimelineResult, WaitEntry
from holdlog.adapters.cli.drawing import timeline as pictures
from holdlog.adapters.cli.drawing.axis import Clock
from holdlog.adapters.cli.texts import marked, moment, printable

_WIDTH: Final = 100
"""Characters, where the output is not a terminal."""
_LEAST: Final = 20
"""Characters of a lane without its name."""
_WIDEST_NAME: Final = 36
_LEAST_LENGTH: Final = timedelta(milliseconds=1)


class _Marks(NamedTuple):
    held: str
    shared: str
    waited: str
    changed: str
    forced: str
    line: str


_PLAIN: Final = _Marks("#", "=", ".", "*", "!", "-")
_DRAWN: Final = _Marks("█", "▒", "░", "◆", "!", "─")


def describe(found: TimelineResult, stream: TextIO) -> str:
    """The timeline as text for this stream, which may be a terminal."""
    names = [_cut(_name(lane)) for lane in found.lanes]
    if not names:
        return f"nothing happened to {_about(found)} in that time"
    marks = _DRAWN if _can_show("".join(_DRAWN), stream) else _PLAIN
    left = max(map(len, names)) + 2
    room = shutil.get_terminal_size((_WIDTH, 24)).columns if stream.isatty() else _WIDTH
    width = max(_LEAST, room - left - 1)
    scale = _Scale(found.begins_at, _length(found), width)
    lanes = [
        f"{name:<{left}}{_track(lane, scale, marks)}".rstrip() for name, lane in zip(names, found.lanes, strict=True)
    ]
    return "\n".join([_title(found), "", *lanes, *_axis(found, scale, left, marks), "", _legend(found, marks)])


def drawn(found: TimelineResult) -> pictures.Timeline:
    """The timeline as a picture shows it."""
    scale = _Scale(found.begins_at, _length(found), 1)
    length = scale.length / timedelta(milliseconds=1)
    names = [_unique(number, found.lanes) for number in range(len(found.lanes))]
    picture = pictures.Timeline(tuple(names), _title(found), Clock(found.begins_at))
    picture.scenes.append(pictures.Scene(_title(found), 0.0, length))
    for name, lane in zip(names, found.lanes, strict=True):
        for wait in lane.waits:
            picture.spans.append(_span(name, wait, scale, length))
        for hold in lane.holds:
            picture.spans.append(_span(name, hold, scale, length))
        for change in lane.changes:
            at = scale.milliseconds(change.at)
            picture.spans.append(pictures.Span(name, "write", at, at))
    return picture


class _Scale(NamedTuple):
    begin: datetime
    length: timedelta
    width: int

    def column(self, at: datetime) -> int:
        """The column of a moment; of one outside, the nearest."""
        return max(0, min(self.width - 1, int((at - self.begin) / self.length * self.width)))

    def milliseconds(self, at: datetime) -> float:
        return max(0.0, (at - self.begin) / timedelta(milliseconds=1))


def _length(found: TimelineResult) -> timedelta:
    return max(_LEAST_LENGTH, found.ends_at - found.begins_at)


def _track(lane: Lane, scale: _Scale, marks: _Marks) -> str:
    cells = [" "] * scale.width
    end = scale.begin + scale.length

    def fill(begin: datetime, ended: datetime | None, mark: str) -> None:
        first, last = scale.column(begin), scale.column(end if ended is None else ended)
        cells[first : last + 1] = mark * (last + 1 - first)

    for wait in lane.waits:
        fill(wait.queued_at, _end(wait), marks.waited)
    for hold in lane.holds:
        fill(hold.claimed_at, _end(hold), marks.shared if hold.mode == "shared" else marks.held)
    for change in sorted(lane.changes, key=lambda it: it.forced is not None):
        cells[scale.column(change.at)] = marks.forced if change.forced else marks.changed
    return "".join(cells)


def _end(entry: HoldEntry | WaitEntry) -> datetime | None:
    """When it ended; None: it has not. Of a waiter that did not return only the time is known when that was noticed."""
    return entry.ended_at or entry.noticed_at


def _span(name: str, entry: HoldEntry | WaitEntry, scale: _Scale, length: float) -> pictures.Span:
    is_hold = isinstance(entry, HoldEntry)
    begin, ended = entry.claimed_at if isinstance(entry, HoldEntry) else entry.queued_at, _end(entry)
    end = length if ended is None else min(length, scale.milliseconds(ended))
    words = marked(entry.resource)
    return pictures.Span(name, "hold" if is_hold else "wait", scale.milliseconds(begin), end, words)


def _axis(found: TimelineResult, scale: _Scale, left: int, marks: _Marks) -> list[str]:
    milliseconds = scale.length / timedelta(milliseconds=1)
    ticks, words = [marks.line] * scale.width, " " * scale.width
    clock = Clock(found.begins_at)
    for at, label in clock.marks(milliseconds, milliseconds / scale.width * (clock.width + 2)):
        column = min(scale.width - 1, int(at / milliseconds * scale.width))
        ticks[column] = "+"
        if column + len(label) <= scale.width:  # a label that is cut would be another time
            words = words[:column] + label + words[column + len(label) :]
    return [" " * left + "".join(ticks), f"{'UTC':<{left}}{words.rstrip()}"]


def _title(found: TimelineResult) -> str:
    return f"{_about(found)}: {moment(found.begins_at)} to {moment(found.ends_at)}"


def _about(found: TimelineResult) -> str:
    about = found.agent or found.resource or f"{found.namespace}/{found.key}"
    return printable(marked(about), kept="")


def _name(lane: Lane) -> str:
    if lane.agent is not None:
        return printable(author(marked(lane.agent), lane.principal), kept="")
    return printable(marked(lane.resource or f"{lane.namespace}/{lane.key}"), kept="")


def _unique(number: int, lanes: list[Lane]) -> str:
    """The name of a lane. A resource and a value may have the same one."""
    name = _name(lanes[number])
    return f"{name} (value)" if lanes[number].key is not None and lanes[number].agent is None else name


def _legend(found: TimelineResult, marks: _Marks) -> str:
    holds = [hold for lane in found.lanes for hold in lane.holds]
    changes = [change for lane in found.lanes for change in lane.changes]
    meanings = [
        (marks.held, "held", any(hold.mode != "shared" for hold in holds)),
        (marks.shared, "shared", any(hold.mode == "shared" for hold in holds)),
        (marks.waited, "waited", any(lane.waits for lane in found.lanes)),
        (marks.changed, "changed a value", any(not it.forced for it in changes)),
        (marks.forced, "overwrote or deleted one by force", any(it.forced for it in changes)),
    ]
    return "   ".join(f"{mark} {meaning}" for mark, meaning, is_used in meanings if is_used)


def _cut(name: str) -> str:
    return name if len(name) <= _WIDEST_NAME else name[: _WIDEST_NAME - 3] + "..."


def _can_show(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
