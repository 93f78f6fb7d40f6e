"""The demo's text: aligned lines, in colour only where a terminal shows it."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from holdlog.adapters.cli.drawing.timeline import Timeline

WIDTH: Final = 80
_INDENT: Final = 30
_COLOURS: Final = {"bold": "1", "dim": "2", "red": "1;31", "green": "1;32"}
_OF_AGENTS: Final = ("1;36", "1;35", "1;33", "1;34")


class Screen:
    """Writes to a text stream. `timeline` provides the milliseconds in front of actions, and records them."""

    def __init__(self, out: TextIO, timeline: Timeline, environ: Mapping[str, str] = os.environ) -> None:
        self.timeline = timeline
        self._out = out
        self._coloured = out.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self._code = dict(zip(timeline.agents, _OF_AGENTS, strict=False)) | _COLOURS

    def line(self, text: str = "") -> None:
        print(text, file=self._out, flush=True)

    def paint(self, colour: str, text: str) -> str:
        """Colour a text. `colour`: an agent's name, bold, dim, red or green; anything else leaves the text plain."""
        code = self._code.get(colour)
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured and code else text

    def title(self, text: str, about: str = "") -> None:
        self.line()
        self.line(self.paint("bold", text))
        if about:
            self.line(f"   {about}")

    def act(self, agent: str, verb: str, what: str, colour: str = "", at: float | None = None) -> None:
        """Print an action of an agent (just now, or `at`): milliseconds since the scene began, agent, verb, details."""
        since = (self.timeline.now() if at is None else at) - self.timeline.scenes[-1].start
        who = self.paint(agent, f"{agent:<4}")
        self.line(f"{since:9.1f} ms  {who}  {self.paint(colour, f'{verb:<9}')} {what}")

    def note(self, label: str, text: str) -> None:
        """Print a longer remark below an action, wrapped."""
        for number, part in enumerate(textwrap.wrap(text, WIDTH - _INDENT - len(label) - 1)):
            lead = label if number == 0 else " " * len(label)
            self.line(" " * _INDENT + self.paint("dim", f"{lead} {part}"))

    def outcome(self, text: str, good: bool) -> None:
        self.line("   " + self.paint("green" if good else "red", text))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], aligned: str) -> None:
        """Print a table. `aligned`: one `<` or `>` per column. A cell that is an agent's name gets its colour."""
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]

        def laid_out(cells: Sequence[str]) -> list[str]:
            return [f"{cell:{side}{width}}" for cell, side, width in zip(cells, aligned, widths, strict=True)]

        self.line("   " + self.paint("dim", "  ".join(laid_out(heads)).rstrip()))
        for row in rows:
            painted = [
                self.paint(cell, padded) if cell in self.timeline.agents else padded
                for cell, padded in zip(row, laid_out(row), strict=True)
            ]
            self.line("   " + "  ".join(painted).rstrip())
