"""Write docs/demo.svg, the picture in README.md, from a run of `holdlog demo`: `make picture`."""

import html
import re
import subprocess
import sys
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs" / "demo.svg"
PARTS = 2
"""Of the demo: more would be too small to read."""
LINE, CHARACTER, MARGIN = 19, 8.5, 20
"""Height of a line, width of a character, and margin, in pixels."""
STYLE = """
rect { fill: #14181f } text { font: 14px ui-monospace, 'SF Mono', Consolas, monospace; fill: #d5dae2 }
.heading { fill: #fff; font-weight: bold } .ann { fill: #4cc3d9 } .bob { fill: #e5b454 } .refused { fill: #f0716b }
"""


def main() -> None:
    done = subprocess.run([sys.executable, "-m", "holdlog", "demo"], check=True, capture_output=True, text=True)
    PICTURE.write_text(draw(done.stdout.split(f"\n{PARTS + 1}. ")[0].rstrip().splitlines()))


def draw(lines: list[str]) -> str:
    """Lines of a terminal as SVG."""
    rows = "\n".join(
        f'<text x="{MARGIN + CHARACTER * (len(line) - len(line.lstrip()))}"'
        f' y="{MARGIN + LINE * row}">{mark(line)}</text>'
        for row, line in enumerate(lines, 1)
        if line
    )
    size = f"0 0 {max(map(len, lines)) * CHARACTER + 2 * MARGIN:.0f} {2 * MARGIN + LINE * len(lines)}"
    title = "<title>holdlog demo: an edit and a write that others would have lost are refused</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">'
    return f'{head}{title}<style>{STYLE}</style>\n<rect width="100%" height="100%" rx="8"/>\n{rows}\n</svg>\n'


def mark(line: str) -> str:
    """A line with a colour for headings, names of agents and refusals."""
    text = html.escape(line.lstrip(), quote=False)
    if re.match(r"\d\. ", line):
        return f'<tspan class="heading">{text}</tspan>'
    text = re.sub(r"^(ann|bob)\b", r'<tspan class="\1">\1</tspan>', text)
    return re.sub(r"^((?:denied|conflict):.*)", r'<tspan class="refused">\1</tspan>', text)


if __name__ == "__main__":
    main()
