"""How far a warm call of the library goes. The figures are the same on any machine, so a detour fails here before a
benchmark could show it."""

import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

import pytest

from holdlog import StateStore
from tests.support.counted import calls_of

ROOT: Final = Path(__file__).parents[3]
LAYERS: Final = frozenset({"domain", "projections", "adapters"})


class Length(NamedTuple):
    """The length of one call's path. `files` and `functions`: of the package. `returns`: how often it calls into a file
    that it had left before. `calls`: all calls of functions, those of libraries and in C included."""

    files: int
    functions: int
    returns: int
    calls: int


AT_MOST: Final = {
    "set": Length(files=26, functions=63, returns=16, calls=160),
    "get": Length(files=14, functions=29, returns=9, calls=49),
    "history": Length(files=18, functions=37, returns=74, calls=292),
    "claim and release": Length(files=38, functions=164, returns=149, calls=561),
}
"""A little more than measured. Lower them when a path gets shorter; a longer one needs a reason. Each read compares the
file with the one that was opened (docs/decisions/0052-backup-and-restore.md): one file, two functions, four calls."""

CALLS: Final[dict[str, Callable[[StateStore], object]]] = {
    "set": lambda store: store.set("n", "k", {"tea": "green"}, updated_by="ann"),
    "get": lambda store: store.get("n", "k"),
    "history": lambda store: store.history("n", "k", 10),
    "claim and release": lambda store: (store.claim("a.py", agent="ann"), store.release("a.py", agent="ann")),
}
WARM: Final = 10
"""Calls before those that are measured: they open connections and fill caches. As many as the history has entries."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with StateStore(tmp_path / "state.db") as store:
        for _ in range(WARM):
            for call in CALLS.values():
                call(store)
        yield store


@pytest.mark.parametrize("name", CALLS)
def test_path_of_a_warm_call_is_short(store: StateStore, name: str) -> None:
    measured = length_of(lambda: CALLS[name](store))
    assert all(found <= most for found, most in zip(measured, AT_MOST[name], strict=True)), measured


def test_returns_to_a_file_are_counted() -> None:
    """The path of functions whose files are known: a detour through `two.py` is a return to `one.py`."""
    names: dict[str, Callable[..., int]] = {}
    for file, text in (("one", "def one(): return len('a')"), ("two", "def two(one): return one() + one()")):
        exec(compile(text, str(ROOT / "domain" / f"{file}.py"), "exec"), names)
    direct = length_of(lambda: names["two"](names["one"]))
    assert (direct.files, direct.functions, direct.returns) == (2, 2, 0)
    detour = length_of(lambda: names["one"]() + names["two"](names["one"]))
    assert (detour.files, detour.functions, detour.returns) == (2, 2, 1)
    assert detour.calls == direct.calls + 2


def length_of(call: Callable[[], object]) -> Length:
    """Call twice, with one profiler each."""
    entered: list[CodeType] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and is_ours(frame.f_code):
            entered.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    files = [code.co_filename for code in entered]
    moves = sum(1 for _ in groupby(files))
    return Length(len(set(files)), len(set(entered)), moves - len(set(files)), calls_of(call))


def is_ours(code: CodeType) -> bool:
    """Whether it is a function of the package. Comprehensions are none: from Python 3.12 on they have no frame."""
    path = Path(code.co_filename).resolve()
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in LAYERS and "comp>" not in code.co_name
