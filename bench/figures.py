"""Figures with their targets, and the statistics behind them."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final


@dataclass(frozen=True)
class Figure:
    """One measured number. `target`: the most (or with `at_least` the least) that it should be; None: only shown.

    `beside`: what the number was made from or compares with.
    """

    group: str
    what: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    beside: str = ""

    @property
    def met(self) -> bool:
        assert self.target is not None
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def verdict(self) -> str:
        """One line: met, or missed by how much."""
        assert self.target is not None
        word = "least" if self.at_least else "most"
        measured, target = f"{number(self.value)}{self.unit}", f"{number(self.target)}{self.unit}"
        line = f"{self.group} · {self.what}: {measured}, target at {word} {target}"
        if self.met:
            return f"met     {line}"
        if not (self.target and self.value):
            return f"MISSED  {line}"
        short = self.target / self.value if self.at_least else self.value / self.target
        return f"MISSED  {line}: {number(short, digits=2)} times off"


def number(value: float, digits: int = 3) -> str:
    """With about three digits, thousands set apart."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.{digits}f}"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


LONGEST: Final = 30.0
"""Seconds after which no further round begins: on a slow disk there are fewer of them."""
FEWEST: Final = 5


def interleaved(
    names: Sequence[str], rounds: int, measure: Callable[[str], Sequence[float]], tick: Callable[[int], None]
) -> "Rounds":
    """Let the contestants take turns, in another order each round; each round gives one median per contestant."""
    medians: dict[str, list[float]] = {name: [] for name in names}
    end = time.monotonic() + LONGEST
    for turn in range(rounds):
        if turn >= FEWEST and time.monotonic() > end:
            break
        start = turn % len(names)
        for name in (*names[start:], *names[:start]):
            medians[name].append(median(measure(name)))
        tick(turn)
    return Rounds(medians)


@dataclass(frozen=True)
class Rounds:
    """The medians of every round by contestant."""

    medians: dict[str, list[float]]

    def __contains__(self, name: str) -> bool:
        return name in self.medians

    def median(self, name: str) -> float:
        return median(self.medians[name])

    def ratio(self, name: str, to: str) -> float:
        """The median of the ratios within a round: noise that lasts longer than a round falls out."""
        return median(mine / theirs for mine, theirs in zip(self.medians[name], self.medians[to], strict=True))

    def described(self, unit: str) -> str:
        return ", ".join(f"{name} {number(self.median(name))}" for name in self.medians) + unit


def aligned(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> Iterator[str]:
    """Rows as lines of columns; those in `right` are aligned to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
