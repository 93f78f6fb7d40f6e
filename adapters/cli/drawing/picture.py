"""Draws a timeline: lanes over a time axis, one per agent or per thing. SVG without scripts."""

import math
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from holdlog.adapters.cli.drawing.timeline import Scene, Span, Tick, Timeline, Wake
from holdlog.adapters.cli.texts import printable

WIDTH: Final = 860
LEFT, RIGHT = 54, 10
"""Pixels left and right of the scenes; the names of the lanes are to the left of them, which may need more."""
MOST_LEFT: Final = 240
BETWEEN, INSIDE = 8, 8
"""Pixels between two scenes, and from the edges of a scene to its time."""
HEAD: Final = 46
LANE: Final = 84
BAR_TOP, BAR = 28, 28
"""Pixels from the top of a lane to its bars, and their height."""
WITHOUT_WORDS: Final = (48, 10)
"""The same two, of lanes without words above and below their bars."""
TEXT: Final = 12
CHARACTER: Final = 6.3
"""Maximum average width of a character at that size, in the fonts that may be used."""
LEAST: Final = 3.0
"""Minimum pixels of a span."""
GAP: Final = 6
TICKS_APART: Final = 50

_LIGHT: Final = {
    "card": "fill:#ffffff;stroke:#d0d7de",
    "band": "fill:#f3f5f8",
    "rule": "stroke:#8c959f;stroke-width:1",
    "text": "fill:#1f2328",
    "soft": "fill:#59636e",
    "good": "fill:#1a7f37",
    "bad": "fill:#cf222e",
    "refused": "stroke:#cf222e;stroke-width:3;stroke-linecap:round",
    "wake": "stroke:#1a7f37;stroke-width:2;stroke-dasharray:4 3",
    "on": "fill:#ffffff",
}
_DARK: Final = {
    "card": "fill:#0d1117;stroke:#30363d",
    "band": "fill:#161b22",
    "rule": "stroke:#6e7681;stroke-width:1",
    "text": "fill:#e6edf3",
    "soft": "fill:#9198a1",
    "good": "fill:#3fb950",
    "bad": "fill:#ff7b72",
    "refused": "stroke:#ff7b72;stroke-width:3;stroke-linecap:round",
    "wake": "stroke:#3fb950;stroke-width:2;stroke-dasharray:4 3",
    "on": "fill:#0d1117",
}
_AGENTS_LIGHT: Final = ("#0969da", "#b35900", "#8250df", "#116329")
_AGENTS_DARK: Final = ("#58a6ff", "#f0883e", "#bc8cff", "#56d364")


def picture(timeline: Timeline) -> str:
    """The SVG text. All lengths and texts come from the timeline."""
    return tostring(_Picture(timeline).drawn(), encoding="unicode") + "\n"


class _Picture:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        scenes = timeline.scenes
        self._left = min(MOST_LEFT, max(LEFT, round(max(map(_wide, timeline.agents), default=0)) + 20))
        room = WIDTH - self._left - RIGHT - BETWEEN * (len(scenes) - 1) - 2 * INSIDE * len(scenes)
        self._scale = room / sum(scene.end - scene.start for scene in scenes)
        self._edge = [float(self._left + number * BETWEEN) for number in range(len(scenes))]
        for number, scene in enumerate(scenes[:-1]):
            width = (scene.end - scene.start) * self._scale + 2 * INSIDE
            self._edge[number + 1 :] = [edge + width for edge in self._edge[number + 1 :]]
        has_words = timeline.ticks or any(span.text for span in timeline.spans if span.kind == "write")
        self._lane_height, self._bar_top = (LANE, BAR_TOP) if has_words else WITHOUT_WORDS
        self._bottom = HEAD + self._lane_height * len(timeline.agents)
        self._lane = {agent: number for number, agent in enumerate(timeline.agents)}
        height = self._bottom + 118
        self._svg = Element(
            "svg",
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {height}",
            width=str(WIDTH),
            height=str(height),
            role="img",
        )
        SubElement(self._svg, "title").text = printable(timeline.title)
        SubElement(self._svg, "style").text = _style()
        self._patterns()
        _rect(self._svg, 0.5, 0.5, WIDTH - 1, height - 1, "card", rx="8")

    def drawn(self) -> Element:
        for scene, edge in zip(self._timeline.scenes, self._edge, strict=True):
            self._scene(scene, edge)
        axis = self._timeline.axis
        x = self._left - max(10, _wide("0" * axis.width) / 2 - 12)  # a mark at the beginning is centred there
        _text(self._svg, x, self._bottom + 73, axis.unit, "soft", anchor="end")
        for agent in self._timeline.agents:
            self._lane_of(agent)
        for wake in self._timeline.wakes:
            self._wake(wake)
        self._legend()
        return self._svg

    def _scene_at(self, at: float) -> int:
        return max(number for number, scene in enumerate(self._timeline.scenes) if number == 0 or scene.start <= at)

    def _x(self, at: float) -> float:
        """The x coordinate. All scenes have one scale; the time between them is not drawn."""
        number = self._scene_at(at)
        scene = self._timeline.scenes[number]
        return self._edge[number] + INSIDE + (min(at, scene.end) - scene.start) * self._scale

    def _scene(self, scene: Scene, left: float) -> None:
        """A scene's band, labels, and axis."""
        right = self._x(scene.end) + INSIDE
        _rect(self._svg, left, 10, right - left, self._bottom + 42, "band", rx="4")
        _text(self._svg, left + INSIDE, 30, scene.title, "text strong", most=right - left - 2 * INSIDE)
        for number, line in enumerate(scene.outcome):
            mark = "good strong" if scene.good else "bad strong"
            _text(self._svg, left + INSIDE, self._bottom + 20 + 17 * number, line, mark, most=right - left - 2 * INSIDE)
        y = self._bottom + 58
        _line(self._svg, left + INSIDE, y, right - INSIDE, y, "rule")
        apart = max(TICKS_APART, _wide("0" * self._timeline.axis.width) + GAP)
        for at, words in self._timeline.axis.marks(scene.end - scene.start, apart / self._scale):
            x = left + INSIDE + at * self._scale
            _line(self._svg, x, y, x, y + 5, "rule")
            if x + 1.5 * TEXT < right:
                _text(self._svg, x, y + 18, words, "soft", anchor="middle")

    def _top(self, agent: str) -> float:
        return HEAD + self._lane_height * self._lane[agent]

    def _lane_of(self, agent: str) -> None:
        top = self._top(agent)
        number = self._lane[agent] % len(_AGENTS_LIGHT)
        lane = SubElement(self._svg, "g", {"class": "lane", "data-agent": printable(agent)})
        middle = top + self._bar_top + BAR / 2 + 5
        _text(lane, self._left - 10, middle, agent, f"a{number} strong", anchor="end", most=self._left - 20)
        _line(lane, self._left, top + self._bar_top + BAR, WIDTH - RIGHT, top + self._bar_top + BAR, "rule faint")
        spans = [span for span in self._timeline.spans if span.agent == agent]
        ticks = [tick for tick in self._timeline.ticks if tick.agent == agent]
        for span in spans:
            self._span(lane, span, top + self._bar_top, number)
        for tick in ticks:
            self._tick(lane, tick, top + self._bar_top)
        writes = [(span.start, span.text, f"a{number}") for span in spans if span.kind == "write"]
        refusals = [(tick.at, tick.text, "bad") for tick in ticks]
        self._labels(lane, sorted(writes + refusals), top)

    def _span(self, lane: Element, span: Span, top: float, number: int) -> None:
        x = self._x(span.start)
        width = max(LEAST, self._x(span.end) - x)
        mark = {"think": f"a{number} light", "write": f"a{number}", "hold": f"a{number}", "wait": f"h{number}"}[
            span.kind
        ]
        grow = 4 if span.kind == "write" else 0
        bar = _rect(lane, x, top - grow, width, BAR + 2 * grow, mark, rx="2")
        SubElement(bar, "title").text = printable(
            f"{span.agent} {span.kind} {span.text}: {self._timeline.axis.duration(span.end - span.start)}"
        )
        words = next((words for words in (span.text, span.text.split(" ")[0]) if _wide(words) + 8 < width), "")
        if span.kind == "write" or not words:
            return
        middle, base = x + width / 2, top + BAR / 2 + 4
        if span.kind == "wait":
            _rect(lane, middle - _wide(words) / 2 - 4, top + 5, _wide(words) + 8, BAR - 10, "band", rx="3")
        _text(lane, middle, base, words, "on strong" if span.kind == "hold" else f"a{number}", anchor="middle")

    def _tick(self, lane: Element, tick: Tick, top: float) -> None:
        x = self._x(tick.at)
        mark = _line(lane, x, top - 5, x, top + BAR + 5, "refused")
        SubElement(mark, "title").text = printable(f"{tick.agent}: {tick.text}")

    def _labels(self, lane: Element, labels: Sequence[tuple[float, str, str]], top: float) -> None:
        """The labels: above the bars, or below them if there is no room above; within their scene; omitted if neither
        fits."""
        free = {top + self._bar_top - 9: -math.inf, top + self._bar_top + BAR + 18: -math.inf}
        for at, words, mark in labels:
            end = self._x(self._timeline.scenes[self._scene_at(at)].end) + INSIDE
            x = min(self._x(at) - 2, end - _wide(words) - 4)
            for base, taken in free.items():
                if taken + GAP <= x:
                    free[base] = x + _wide(words)
                    _text(lane, x, base, words, mark)
                    break

    def _wake(self, wake: Wake) -> None:
        first, second = (self._top(agent) + self._bar_top for agent in (wake.by, wake.agent))
        above, below = min(first, second) + BAR, max(first, second)
        line = _line(self._svg, self._x(wake.freed), above, self._x(wake.woken), below, "wake")
        SubElement(line, "title").text = printable(f"{wake.by} releases, {wake.agent} gets it")

    def _patterns(self) -> None:
        definitions = SubElement(self._svg, "defs")
        for number in range(len(_AGENTS_LIGHT)):
            pattern = SubElement(
                definitions, "pattern", id=f"hatch{number}", width="8", height="8", patternUnits="userSpaceOnUse"
            )
            SubElement(pattern, "path", {"d": "M-2 2 L2 -2 M0 8 L8 0 M6 10 L10 6", "class": f"s{number}"})

    def _legend(self) -> None:
        """What the marks mean that the picture has."""
        y = self._bottom + 96
        x = float(self._left)
        kinds = {it.kind for it in self._timeline.spans}
        if "think" in kinds:
            _rect(self._svg, x, y - 2, 22, 14, "a0 light", rx="2")
            x = self._meaning(x, "thinks")
        if "write" in kinds:
            _rect(self._svg, x + 10, y - 4, LEAST, 18, "a0", rx="1")
            x = self._meaning(x, "writes")
        if "hold" in kinds:
            _rect(self._svg, x, y - 2, 22, 14, "a0", rx="2")
            x = self._meaning(x, "holds a claim")
        if "wait" in kinds:
            _rect(self._svg, x, y - 2, 22, 14, "h0", rx="2")
            x = self._meaning(x, "waits")
        if self._timeline.ticks:
            _line(self._svg, x + 11, y - 3, x + 11, y + 13, "refused")
            x = self._meaning(x, "refused")
        if self._timeline.wakes:
            _line(self._svg, x + 11, y - 4, x + 11, y + 14, "wake")
            self._meaning(x, "wakes")

    def _meaning(self, x: float, words: str) -> float:
        """Write what the mark at `x` means; returns where the next one is."""
        _text(self._svg, x + 28, self._bottom + 105, words, "soft")
        return x + 28 + _wide(words) + 26


def _style() -> str:
    def rules(marks: dict[str, str], colours: Sequence[str]) -> str:
        own = "".join(
            f".a{number}{{fill:{colour}}}.h{number}{{fill:url(#hatch{number});stroke:{colour}}}"
            f".s{number}{{stroke:{colour};stroke-width:2}}"
            for number, colour in enumerate(colours)
        )
        return "".join(f".{mark}{{{rule}}}" for mark, rule in marks.items()) + own

    return (
        f"text{{font:{TEXT}px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}}"
        ".strong{font-weight:600}.light{fill-opacity:.22}.faint{stroke-opacity:.35}"
        f"{rules(_LIGHT, _AGENTS_LIGHT)}@media(prefers-color-scheme:dark){{{rules(_DARK, _AGENTS_DARK)}}}"
    )


def _wide(words: str) -> float:
    return len(words) * CHARACTER


def _rect(parent: Element, x: float, y: float, width: float, height: float, mark: str, rx: str) -> Element:
    box = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return SubElement(parent, "rect", box | {"rx": rx, "class": mark})


def _line(parent: Element, x1: float, y1: float, x2: float, y2: float, mark: str) -> Element:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    return SubElement(parent, "line", ends | {"class": mark})


def _text(
    parent: Element, x: float, y: float, words: str, mark: str, anchor: str = "start", most: float = math.inf
) -> None:
    """A text element; text that might be wider than `most` pixels is condensed."""
    attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "class": mark}
    if _wide(words) * 1.1 > most:
        attributes |= {"textLength": f"{most:.1f}", "lengthAdjust": "spacingAndGlyphs"}
    SubElement(parent, "text", attributes).text = printable(words)
