"""Time axes: where their marks are, and how moments and durations are written. Times are in milliseconds."""

import math
from datetime import datetime, timedelta
from typing import Final, Protocol

_STEPS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0),
    *(seconds * 1_000.0 for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * 60_000.0 for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600_000.0 for hours in (1, 2, 3, 6, 12)),
)
"""Distances of the marks of a clock, up to a day."""
_DAY: Final = 86_400_000.0
_SECOND: Final = 1_000.0
_MINUTE: Final = 60_000.0


class Axis(Protocol):
    @property
    def unit(self) -> str:
        """What the marks count, written next to them."""

    @property
    def width(self) -> int:
        """Characters of a mark."""

    def marks(self, length: float, least: float) -> list[tuple[float, str]]:
        """The marks of a length that begins at 0, at least `least` apart."""

    def duration(self, length: float) -> str: ...


class Milliseconds:
    """Counts from 0."""

    unit, width = "ms", 6

    def marks(self, length: float, least: float) -> list[tuple[float, str]]:
        step = round_step(least)
        return [(number * step, f"{number * step:g}") for number in range(int(length / step) + 1)]

    def duration(self, length: float) -> str:
        return f"{length:.1f} ms"


class Clock:
    """The time of day in UTC. `begin`: the time at 0."""

    unit, width = "UTC", 12

    def __init__(self, begin: datetime) -> None:
        self._begin = begin

    def marks(self, length: float, least: float) -> list[tuple[float, str]]:
        step = next((it for it in _STEPS if it >= least), None) or _DAY * math.ceil(least / _DAY)
        midnight = self._begin.replace(hour=0, minute=0, second=0, microsecond=0)
        before = (self._begin - midnight) / timedelta(milliseconds=1)
        first = math.ceil(before / step)
        count = math.floor((before + length) / step) - first + 1
        found = [((first + number) * step - before) for number in range(count)]
        return [(at, self._label(at, step)) for at in found]

    def duration(self, length: float) -> str:
        from holdlog.adapters.cli.texts import duration

        return duration(length / _SECOND)

    def _label(self, at: float, step: float) -> str:
        time = self._begin + timedelta(milliseconds=at)
        if step >= _DAY or (step >= _MINUTE and (time.hour, time.minute) == (0, 0)):
            return f"{time:%m-%d}"
        if step >= _MINUTE:
            return f"{time:%H:%M}"
        return f"{time:%H:%M:%S}" + (f".{time.microsecond // 1000:03}" if step < _SECOND else "")


def round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
