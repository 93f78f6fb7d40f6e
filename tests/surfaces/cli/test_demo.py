"""`holdlog demo` with real servers: what it tells, what it draws, and that it says so when a step goes wrong."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from holdlog.adapters.cli.demo.screen import Screen
from holdlog.adapters.cli.drawing.picture import WIDTH, picture
from holdlog.adapters.cli.drawing.timeline import Scene, Span, Tick, Timeline, Wake

pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.check]

SVG = "{http://www.w3.org/2000/svg}"

DEMO = """
import argparse, sys
from holdlog.adapters.cli.demo.command import add_demo
parser = argparse.ArgumentParser()
add_demo(parser.add_subparsers())
options = parser.parse_args()
sys.exit(options.run(options))
"""
WITH_SERVER = """
import sys
from pathlib import Path
from holdlog.adapters.cli.demo.command import perform
sys.exit(perform(sys.stdout, Path("demo.svg"), [sys.executable, *sys.argv[1:]]))
"""
MUTANT = """
import os, sys
from holdlog.adapters.api.claims.requests import ClaimRequests
from holdlog.adapters.api.values.requests import ValueRequests
from holdlog.adapters.cli.main import main
write, take = ValueRequests.set, ClaimRequests.claim
{change}
sys.exit(main())
"""


class Ran(NamedTuple):
    code: int
    out: str
    svg: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    project = tmp_path_factory.mktemp("project")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    folder = project / "demo"
    folder.mkdir()
    svg = folder / "demo.svg"
    run = demo(DEMO, "demo", "--svg", str(svg), folder=folder)
    assert run.stderr == ""
    return Ran(run.returncode, run.stdout, svg)


def demo(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The demo as a process; its own temporary files go to `folder`, too."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env=environment,
    )


def test_demo_succeeds_as_a_whole(ran: Ran) -> None:
    assert ran.code == 0
    assert "wrong" not in ran.out


def test_demo_budget_is_overspent_without_version_checks_and_exact_with_them(ran: Ran) -> None:
    assert "$15,000 of $10,000 committed" in ran.out
    assert "$10,000 of $10,000 committed, exactly." in ran.out
    assert len(re.findall(r" ms  (ada|ben)   conflict ", ran.out)) == 1
    wrote = re.search(r"Who wrote what: version 1 by demo, version 2 by (\w+), version 3 by (\w+)\.", ran.out)
    assert wrote is not None
    assert set(wrote.groups()) == {"ada", "ben"}


def test_demo_claim_is_refused_and_its_release_grants_it_to_the_waiter(ran: Ran) -> None:
    assert re.search(r"ben   busy      src/report.md: held_by ada", ran.out)
    assert "hint: Work on something else" in ran.out
    assert re.search(r"ben   queues    in one call: claim\(wait_seconds=10\)", ran.out)
    assert 'ada   releases  "section 2 is new": granted to ben' in ran.out
    assert re.search(r"ben   claimed   \d+\.\d ms after the release( returned|, before it returned)", ran.out)
    assert 'past: modified by ada: "section 2 is new"' in ran.out
    assert "No such file" not in ran.out


def test_demo_shows_the_log_and_its_replay_gives_the_same_state(ran: Ran) -> None:
    rows = re.findall(r"^ +(\d+) +[\d:.]+ +(\w+) +(demo|ada|ben) +(\S+)@(\d)", ran.out, re.M)
    assert [int(row[0]) for row in rows] == list(range(1, 11))
    assert [row[1] for row in rows] == ["ValueWritten"] * 6 + [
        "ClaimGranted",
        "ClaimQueued",
        "ClaimReleased",
        "ClaimGranted",
    ]
    assert "replayed 10 events: same state" in ran.out


def test_demo_ends_with_init_and_a_configuration_to_paste(ran: Ran) -> None:
    end = ran.out[ran.out.index("\nNext\n") :]
    assert end.splitlines()[2].strip() == "uv tool install 'holdlog[mcp] @ git+https://github.com/holdlog/holdlog'"
    assert "run holdlog init in your project" in end
    config = json.loads(end[end.index("{") : end.rindex("}") + 1])
    assert config == {"mcpServers": {"holdlog": {"command": "holdlog"}}}


def test_demo_output_in_a_pipe_is_plain_and_fits_a_window(ran: Ran) -> None:
    assert "\x1b" not in ran.out
    assert ran.out.isascii()
    assert max(map(len, ran.out.replace(str(ran.svg), "").splitlines())) <= 80


def test_demo_leaves_nothing_behind(ran: Ran) -> None:
    assert list(ran.svg.parent.iterdir()) == [ran.svg]


@pytest.mark.parametrize("name", ["missing/demo.svg", "."])
def test_demo_refuses_an_impossible_picture_at_once(name: str, tmp_path: Path) -> None:
    run = demo(
        "from holdlog.adapters.cli.main import main; raise SystemExit(main())", "demo", "--svg", name, folder=tmp_path
    )
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert "argument --svg: must be a file in a folder that exists" in run.stderr


def test_demo_picture_has_a_lane_per_agent_and_its_marks(ran: Ran) -> None:
    root = ElementTree.parse(ran.svg).getroot()
    assert root.get("width") == "860"
    assert [lane.get("data-agent") for lane in lanes(root)] == ["ada", "ben"]
    ada, ben = lanes(root)
    thoughts = marks(ada, "rect", "a0 light") + marks(ben, "rect", "a1 light")
    writes_and_holds = marks(ada, "rect", "a0") + marks(ben, "rect", "a1")
    assert (len(thoughts), len(writes_and_holds), len(marks(ben, "rect", "h1"))) == (5, 4 + 2, 1)
    assert len(marks(ada, "line", "refused") + marks(ben, "line", "refused")) == 2  # a conflict, and a busy claim
    assert len(marks(root, "line", "wake")) == 2  # and the one in the legend


def test_demo_picture_has_no_overlapping_words(ran: Ran) -> None:
    found = lanes(ElementTree.parse(ran.svg).getroot())
    assert found
    for lane in found:
        rows: dict[str | None, list[tuple[float, float]]] = {}
        for text in lane.iter(f"{SVG}text"):
            rows.setdefault(text.get("y"), []).append(extent(text))
        assert rows
        for extents in map(sorted, rows.values()):
            assert all(left[1] <= right[0] for left, right in pairwise(extents))
            assert extents[0][0] >= 0
            assert extents[-1][1] <= WIDTH


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "finding"),
    [
        pytest.param(
            "ValueRequests.set = lambda it, space, key, value, by, *rest: write(it, space, key, value, by, None)",
            r"wrong: with versions \$15,000 were committed and \$[78],000 recorded, not \$10,000",
            id="ignores versions",
        ),
        pytest.param(
            "ClaimRequests.claim = lambda self, resource, agent, *rest: take(self, resource + agent, agent)",
            r"wrong: ben's claim of what ada holds returned claimed, held by None",
            id="gives one resource to two",
        ),
        pytest.param(
            "ValueRequests.set = lambda *_: os._exit(7)",
            r"wrong: (ada|ben)'s set got no answer \(.+\)",
            id="dies of a write",
        ),
    ],
)
def test_demo_detects_a_server_that_answers_wrongly(change: str, finding: str, tmp_path: Path) -> None:
    (tmp_path / "mutant.py").write_text(MUTANT.format(change=change))
    run = demo(WITH_SERVER, "mutant.py", folder=tmp_path)
    assert (run.returncode, run.stderr) == (1, "")
    assert re.fullmatch(finding, run.stdout.splitlines()[-1].strip())
    assert not (tmp_path / "demo.svg").exists()


@pytest.mark.check
def test_demo_reports_a_server_that_does_not_start_in_one_line(tmp_path: Path) -> None:
    run = demo(WITH_SERVER, "-c", "import sys; sys.exit('no disk')", folder=tmp_path)
    assert (run.returncode, run.stderr) == (1, "")
    assert re.fullmatch(
        r"holdlog demo\n   wrong: (ada|ben)'s server did not start \(.+\); its last line: no disk\n", run.stdout
    )


@pytest.mark.check
def test_demo_uses_colour_on_a_terminal(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    arguments = [sys.executable, "-c", WITH_SERVER, "-c", "raise SystemExit"]
    with subprocess.Popen(arguments, stdout=slave, cwd=tmp_path, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(slave)
        shown = b"".join(read_until_end(master))
    assert process.returncode == 1
    assert b"\x1b[1mholdlog demo\x1b[0m" in shown
    assert b"\x1b[1;31mwrong: " in shown


def read_until_end(descriptor: int) -> Iterator[bytes]:
    try:
        while data := os.read(descriptor, 4096):
            yield data
    except OSError:  # how Linux tells that the other side of a terminal was closed
        pass
    finally:
        os.close(descriptor)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_demo_colour_can_be_disabled(environ: dict[str, str]) -> None:
    out = Terminal()
    Screen(out, Timeline(("ada",)), environ).outcome("all is well", good=True)
    assert out.getvalue() == "   all is well\n"


def test_demo_columns_stay_aligned_in_colour() -> None:
    out = Terminal()
    Screen(out, Timeline(("ada",)), {}).table(("who", "n"), [("ada", "1"), ("somebody", "12")], "<>")
    plain = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert plain.splitlines() == ["   who        n", "   ada        1", "   somebody  12"]
    assert "\x1b[1;36mada" in out.getvalue()


def test_demo_picture_escapes_words_and_gives_every_agent_a_lane() -> None:
    names = ("<b>&", 'q"uote', "c")
    timeline = Timeline(names)
    timeline.scenes.append(Scene("<script>alert(1)</script>", 0, 1000, ("a & b", "")))
    timeline.spans.append(Span(names[0], "hold", 10, 900, "holds <x>"))
    timeline.spans.append(Span(names[1], "wait", 20, 905, "waits"))
    timeline.ticks.append(Tick(names[1], "busy", 15, "busy & told"))
    timeline.wakes.append(Wake(names[0], names[1], 900, 905))
    text = picture(timeline)
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    assert [lane.get("data-agent") for lane in lanes(root)] == list(names)
    assert "busy & told" in [words.text for words in root.iter(f"{SVG}text")]


def test_demo_picture_omits_words_without_space() -> None:
    timeline = Timeline(("ada",), scenes=[Scene("one", 0, 100)])
    timeline.spans += [Span("ada", "write", at, at + 0.1, "a long remark") for at in (50.0, 50.2, 50.4)]
    (lane,) = lanes(ElementTree.fromstring(picture(timeline)))
    assert len(marks(lane, "rect")) == 3
    assert [words.text for words in lane.iter(f"{SVG}text")].count("a long remark") == 2


def lanes(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == "lane"]


def marks(parent: ElementTree.Element, kind: str, only: str | None = None) -> list[str]:
    found = [shape.get("class", "") for shape in parent.iter(f"{SVG}{kind}")]
    return found if only is None else [mark for mark in found if mark == only]


def extent(text: ElementTree.Element) -> tuple[float, float]:
    """From where to where words go, in a common font."""
    width, x = 6.0 * len(text.text or ""), float(text.get("x", "0"))
    left = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor", "start")]
    return left, left + width
