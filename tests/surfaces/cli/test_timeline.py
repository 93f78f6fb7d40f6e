"""`holdlog timeline`: lanes in the terminal and as a picture, over both kinds of stores."""

import io
import json
import os
import re
import stat
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from holdlog import StateStore
from holdlog.adapters.api.questions.responses import HoldEntry, Lane, TimelineResult, WaitEntry
from holdlog.adapters.cli.drawing.axis import Clock
from holdlog.adapters.cli.drawing.picture import WIDTH, picture
from holdlog.adapters.cli.timeline_texts import describe, drawn
from tests.support.command_line import run_command
from tests.support.commands import until

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ("<script>alert(1)</script>", "a&b\"'", "x\u202ey", "\u0430nn", "\ufffe\ud800\x1b[2J", "]]>")


@pytest.fixture(autouse=True)
def outside_of_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = str(tmp_path / "state.db" if request.param == "sqlite" else request.getfixturevalue("postgres"))
    with StateStore(place, session="of ann") as ann, StateStore(place, session="of bob") as bob:
        ann.claim("src/", agent="ann")
        waiting = threading.Thread(target=lambda: bob.claim("src/a.py", agent="bob", wait_seconds=60))
        waiting.start()
        until(lambda: len(ann.board().queues) == 1)
        ann.set("campaign", "budget", 1, updated_by="ann")
        ann.release("src/", agent="ann")
        waiting.join()
    return place


@pytest.fixture
def db(tmp_path: Path) -> str:
    with StateStore(tmp_path / "state.db") as store:
        store.claim("lib/", agent="ann")
        store.set("n", "k", 1, updated_by="ann")
    return str(tmp_path / "state.db")


def run(capsys: pytest.CaptureFixture[str], db: str, *words: str) -> tuple[int, str, str]:
    return run_command(capsys, "timeline", *words, "--db", db)


def test_lanes_of_a_resource_a_value_and_an_agent(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, place, "src/a.py")
    title, _, ann, bob, _, _, _, legend = out.splitlines()
    assert (code, err) == (0, "")
    assert title.startswith("src/a.py: ")
    assert (ann.split()[0], bob.split()[0]) == ("ann", "bob")
    assert set(ann[3:]) == set(" █")
    assert bob.endswith("█")
    assert legend == "█ held   ░ waited"
    assert [line.split()[0] for line in run(capsys, place, "campaign", "budget")[1].splitlines()[2:3]] == ["ann"]
    lanes = run(capsys, place, "ann")[1].splitlines()[2:4]
    assert [line.split()[0] for line in lanes] == ["src/", "campaign/budget"]
    assert "◆" in lanes[1]


@pytest.mark.parametrize("seconds", range(1, 40))
def test_axis_has_no_label_that_is_cut(seconds: int) -> None:
    begin = datetime(2026, 11, 25, 23, 59, 50, tzinfo=UTC)
    found = TimelineResult(
        agent="ann",
        begins_at=begin,
        ends_at=begin + timedelta(seconds=seconds),
        lanes=[Lane(namespace="n", key="k", holds=[], waits=[], changes=[])],
    )
    labels = describe(found, io.StringIO()).splitlines()[4].split()[1:]
    assert labels
    assert [it for it in labels if not re.fullmatch(r"\d\d:\d\d:\d\d(\.\d{3})?", it)] == []


def test_json_has_the_whole_response(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, place, "src/", "--json")[1])
    assert (found["status"], found["resource"]) == ("ok", "src/")
    ann, bob = found["lanes"]
    assert (ann["agent"], ann["holds"][0]["outcome"], ann["waits"], ann["changes"]) == ("ann", "released", [], [])
    assert (bob["agent"], bob["waits"][0]["outcome"]) == ("bob", "granted")
    assert "ended_at" not in bob["holds"][0]
    found = json.loads(run(capsys, place, "--agent", "ann", "--since", "3", "--json")[1])
    assert [lane.get("key") or lane["resource"] for lane in found["lanes"]] == ["src/", "budget"]
    assert found["lanes"][1]["changes"][0] | {"at": ""} == {
        "namespace": "campaign",
        "key": "budget",
        "agent": "ann",
        "at": "",
        "change": "write",
        "version": 1,
        "position": 3,
    }


def test_picture_is_private_and_has_a_lane_for_each_agent(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("old.svg").write_text("old")
    Path("old.svg").chmod(0o644)
    before = os.umask(0)
    try:
        assert run(capsys, place, "src/", "--svg", "old.svg")[:2] == (0, "")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("old.svg").stat().st_mode) == 0o600
    root = ElementTree.parse("old.svg").getroot()
    assert [lane.get("data-agent") for lane in root.iter(f"{SVG}g")] == ["ann", "bob"]
    assert [path.name for path in Path().iterdir() if path.suffix == ".svg" or path.name.startswith(".")] == ["old.svg"]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ((), 2, "holdlog: NAME: pass a resource, NAMESPACE and KEY, or an agent"),
        (("lib/", "--agent", "ann"), 2, "holdlog: NAME: pass a resource"),
        (("none",), 1, "holdlog: none was never claimed, and no agent of that name"),
        (("n", "none"), 1, "holdlog: n/none does not exist; to see which keys have a value: holdlog list n --db"),
        (("lib/", "--since", "2", "--until", "1"), 2, "holdlog: --until: is earlier than since; swap the two"),
        (("lib/", "--since", "9"), 2, "holdlog: --since: is 9, but the log ends at position 2"),
        (("lib/", "--limit", "0"), 2, "holdlog: --limit: must be a whole number from 1 to 1000"),
        (("--agent", "\x1b[2J"), 2, "holdlog: --agent: must not"),
        (("../x",), 2, "holdlog: NAME: must"),
        (("lib/", "--svg", "no/folder.svg"), 2, "holdlog timeline: argument --svg: must be a file in a folder"),
        (("lib/", "--svg", "/dev/null"), 2, "holdlog timeline: argument --svg: must be a file in a folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    words: tuple[str, ...], code: int, error: str, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = run(capsys, db, *words)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(error)
    assert "\x1b" not in err


def test_missing_store_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, str(tmp_path / "none.db"), "lib/")[0] == 1
    assert not list(tmp_path.iterdir())


# --- drawings


def time(second: float) -> datetime:
    return datetime.fromtimestamp(1_000_000_000 + second, UTC)


def hold(resource: str, agent: str, begin: float, end: float | None, mode: str = "exclusive") -> HoldEntry:
    times = {"claimed_at": time(begin), "held_for_seconds": 1, "ended_at": None if end is None else time(end)}
    return HoldEntry.model_validate({"resource": resource, "held_by": agent, "mode": mode, "version": 1, **times})


def wait(resource: str, agent: str, begin: float, end: float) -> WaitEntry:
    return WaitEntry(resource=resource, agent=agent, mode="exclusive", queued_at=time(begin), ended_at=time(end))


def timeline(*lanes: Lane, end: float = 100.0) -> TimelineResult:
    return TimelineResult(resource="src/", begins_at=time(0), ends_at=time(end), lanes=list(lanes))


class Stream(io.StringIO):
    encoding = "utf-8"


class Ascii(io.StringIO):
    encoding = "ascii"


def test_lane_is_drawn_to_scale() -> None:
    shared, waited = hold("src/", "ben", 50, None, "shared"), wait("src/", "ben", 25, 50)
    found = timeline(
        Lane(agent="ann", holds=[hold("src/", "ann", 0, 50)], waits=[], changes=[]),
        Lane(agent="ben", holds=[shared], waits=[waited], changes=[]),
    )
    lines = describe(found, Stream()).splitlines()
    ann, ben = lines[2][5:], lines[3][5:]
    assert (ann, len(ben)) == ("█" * 48, 94)
    assert (ben.strip(), ben.index("░"), ben.index("▒")) == ("░" * 24 + "▒" * 47, 23, 47)
    plain = describe(found, Ascii())
    assert plain.isascii()
    assert plain.splitlines()[3][5:].strip() == "." * 24 + "=" * 47


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_cannot_break_the_picture_or_the_terminal(name: str) -> None:
    found = timeline(
        Lane(agent=name, holds=[hold(name, name, 0, 50)], waits=[wait(name, name, 60, 90)], changes=[]),
        Lane(agent=name * 50, holds=[hold(name, name, 0, None)], waits=[], changes=[]),
    )
    text = picture(drawn(found.model_copy(update={"resource": name})))
    root = ElementTree.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "style", "defs", "pattern", "path", "rect", "line", "text", "g")
    }
    assert all(float(it.get("x", "0")) <= WIDTH for it in root.iter(f"{SVG}text"))
    shown = describe(found, Stream())
    assert all(line.isprintable() for line in shown.splitlines())


def test_empty_timeline_is_reported_and_its_picture_has_no_lane() -> None:
    assert describe(timeline(), Stream()) == "nothing happened to src/ in that time"
    assert not list(ElementTree.fromstring(picture(drawn(timeline(end=0)))).iter(f"{SVG}g"))


@pytest.mark.parametrize(
    ("seconds", "least", "labels"),
    [
        (0.01, 0.003, ["12:00:00.000", "12:00:00.005", "12:00:00.010"]),
        (60, 20, ["12:00:00", "12:00:30", "12:01:00"]),
        (7200, 1900, ["12:00", "13:00", "14:00"]),
        (86_400, 20_000, ["12:00", "18:00", "03-02", "06:00", "12:00"]),
        (10 * 86_400, 4 * 86_400, ["03-05", "03-09"]),
    ],
)
def test_marks_of_a_clock_are_round_times(seconds: float, least: float, labels: list[str]) -> None:
    begin = datetime(2026, 3, 1, 12, tzinfo=UTC)
    marks = Clock(begin).marks(seconds * 1000, least * 1000)
    assert [label for _, label in marks] == labels
    assert all(0 <= at <= seconds * 1000 for at, _ in marks)
    assert all(later[0] - earlier[0] >= least * 1000 for earlier, later in pairwise(marks))
