"""Whatever a host passes, and whatever is found in place of the files of hooks: the edit is allowed, at most one line
says why it is not guarded, and nothing blocks."""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdlog.adapters.hooks.calls import EVENTS
from holdlog.adapters.hooks.files import targets
from holdlog.adapters.hooks.running import SECONDS, run
from holdlog.adapters.hooks.shell import MAX_COMMAND
from tests.support.slow import check
from tests.surfaces.hooks.test_formats import held

SESSION = "s-1"
SURROGATE = "\ud800"
HOST_EVENTS = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart", "Stop", "SubagentStop", "SessionEnd")


@pytest.fixture
def working_in(store: Path) -> Iterator[Path]:
    """The project folder; hooks change the working folder of this process."""
    yield store.parents[1]
    os.chdir(store.parents[1])


def outcome(given: object, *words: str) -> tuple[str, str]:
    """What a hook in this process writes to standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(json.dumps(given).encode()))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            started = time.monotonic()
            assert run(words) == 0
            assert time.monotonic() - started < SECONDS + 1
    finally:
        sys.stdin = before
    assert err.getvalue().count("\n") <= 1
    assert "Error;" not in err.getvalue()  # the name of a class says nothing to a person
    return out.getvalue(), err.getvalue()


def require_allowed(found: tuple[str, str]) -> None:
    output = json.loads(found[0]) if found[0] else {}
    assert "deny" not in json.dumps(output)


def edit_of(path: object, **more: object) -> dict[str, Any]:
    facts = {"session_id": SESSION, "hook_event_name": "PreToolUse", "tool_name": "Edit", "cwd": os.getcwd()}
    return {**facts, "tool_input": {"file_path": path}, **more}


WRONG: Sequence[object] = (None, True, 0, -1.5, 10**40, "", "x" * 100_000, "a\nb", "a\0b", SURROGATE, [], ["a", 1], {})


@pytest.mark.parametrize(
    "field",
    [
        *("session_id", "hook_event_name", "cwd", "tool_input"),
        *check("conversation_id", "workspace_roots", "agent_id", "subagent_id", "tool_name", "cursor_version"),
        *check("reason", "client", "turn_id", "paths"),
    ],
)
def test_field_of_a_wrong_type_allows_the_edit(field: str, working_in: Path) -> None:
    for number, value in enumerate(WRONG):
        for event in ("PreToolUse", "PostToolUse"):
            os.chdir(working_in)
            require_allowed(outcome({**edit_of(f"{number}.py", hook_event_name=event), field: value}))


@pytest.mark.parametrize(
    "field", ["file_path", "notebook_path", "path", "target_file", "filePath", "command", "patch", "agent"]
)
@pytest.mark.parametrize("tool", ["Edit", *check("Bash", "apply_patch", "mcp__holdlog__holdlog_claim")])
def test_argument_of_a_wrong_type_allows_the_edit(field: str, tool: str, working_in: Path) -> None:
    for value in WRONG:
        call = {"resource": "r.py", "also": value, "alternatives": value, field: value}
        require_allowed(outcome(edit_of("", tool_name=tool, tool_input=call)))


def odd_paths(folder: Path) -> list[str]:
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "outside").symlink_to("/tmp")
    (folder / "secret").write_text("x = 1\n")
    (folder / "secret").chmod(0)
    return [
        *("a\nb.py", "a\0b.py", f"{SURROGATE}.py", "\udcff.py", "x" * 300, "x/" * 50_000, "../" * 50_000 + "a.py"),
        *("~/a.py", "~nobody/a.py", "..", "../a.py", "/etc/passwd", "/nowhere/a.py", ".", "/", "", " ", "//a.py"),
        *("loop", "loop/a.py", "pipe", "folder", "outside/a.py", "secret", "/dev/zero", "/dev/stdin", "/proc/self/mem"),
        *("C:\\Users\\a.py", "\\\\server\\a.py", "file:///a.py", "custom://x", "a.py/b.py", "*", "a" * 255 + ".py"),
        *(".holdlog/state.db", ".holdlog/state.db-shm", ".holdlog/state.db.hooks/failures", ".holdlog/state.db.gate"),
    ]


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
@pytest.mark.parametrize("tool", ["Edit", "Read"])
def test_odd_path_allows_the_edit_and_changes_no_file(event: str, tool: str, working_in: Path) -> None:
    paths = odd_paths(working_in)
    before = sorted(it.name for it in working_in.iterdir())
    for path in paths:
        found = outcome(edit_of(path, hook_event_name=event, tool_name=tool))
        require_allowed(found)
        assert found == ("", "") or not path, path  # an edit of no file says once that it is not guarded
    assert sorted(it.name for it in working_in.iterdir()) == before
    assert (working_in / "secret").read_text() == "x = 1\n"


def test_files_of_the_store_are_neither_claimed_nor_opened(working_in: Path, store: Path) -> None:
    """SQLite loses its locks when its process closes such a file."""
    for suffix in ("", "-wal", "-shm", ".gate"):
        for event in ("PostToolUse", "PreToolUse"):
            for tool in ("Read", "Edit"):
                call = edit_of(f"{store}{suffix}", hook_event_name=event, tool_name=tool)
                assert outcome(call) == ("", "")
    assert held(store) == []
    assert list(store.parent.glob("*.hooks/*.reads")) == []


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def damaged(path: Path) -> None:
    path.write_bytes(
        b'["", "a.py", 1e999]\n' + b"[" * 100_000 + b'\n{"claims": {"a\\u0000": [1, 2, 3, 4, 5, 6]}}\n\xff'
    )


def wrong_types(path: Path) -> None:
    claims = {"a": ["a", 1e400, "a", "b", 1, "d"], "/a\0b": ["a", 1, ["a"], {}, 1, 5]}
    path.write_text(json.dumps({"names": {"": 5}, "claims": claims, "denied": {"/\0": 1}, "sessions": [[], None]}))


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000_000)


@pytest.mark.parametrize("make", [a_pipe, a_folder, damaged, wrong_types, large])
@pytest.mark.parametrize("suffix", [".json", *check(".lock", ".reads", ".paused", "failures", "clients.json")])
def test_damaged_file_of_hooks_blocks_nothing(
    suffix: str, make: Callable[[Path], None], working_in: Path, store: Path
) -> None:
    (working_in / "a.py").write_text("x = 1\n")
    outcome(edit_of("a.py"))
    outcome(edit_of("a.py", hook_event_name="PostToolUse"))
    (notes,) = store.parent.glob("*.hooks/hook-*.json")
    path = notes.with_suffix(suffix) if suffix[0] == "." else notes.with_name(suffix)
    path.unlink(missing_ok=True)
    make(path)
    failed = 0
    for event in (*HOST_EVENTS, "PreToolUse"):
        found = outcome(edit_of("a.py", hook_event_name=event))
        require_allowed(found)
        failed += bool(found[1])
    outcome({"session_id": SESSION})  # fails, which is logged
    if make not in (a_pipe, a_folder):
        assert not failed
        assert held(store) == ["a.py"]


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=[]), max_size=20),
    st.sampled_from(
        ["a.py", "held.py", "../a.py", "~", "/dev/zero", "a\0b", SURROGATE, "x" * 5000, "s-1", "Bash", "Edit"]
    ),
    st.sampled_from(["apply_patch", "mcp__holdlog__holdlog_claim", "clear", *HOST_EVENTS, "beforeReadFile", "Read"]),
    st.sampled_from(["*** Update File: a.py", "mv a.py b.py", "echo > a.py", "rm -rf .", '{"agent": "bob"}']),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
ARGUMENTS = ("file_path", "path", "command", "patch", "agent", "resource", "also", "edits")
FIELDS = (
    "conversation_id",
    "agent_id",
    "subagent_id",
    "tool_input",
    "reason",
    "turn_id",
    "cursor_version",
    "paths",
    "client",
)
INPUTS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"session_id": st.one_of(st.just(SESSION), VALUES), "tool_name": st.one_of(TEXTS, VALUES)},
        optional={
            **dict.fromkeys(FIELDS, VALUES),
            "hook_event_name": st.one_of(st.sampled_from(HOST_EVENTS), VALUES),
            "workspace_roots": st.lists(TEXTS, max_size=2),
            "tool_input": st.fixed_dictionaries({}, optional=dict.fromkeys(ARGUMENTS, VALUES)),
        },
    ),
)


@pytest.mark.check
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event=st.sampled_from([None, *EVENTS, "other"]), content=INPUTS)
@example(event=None, content={"session_id": SESSION, "hook_event_name": "PostToolUse", "tool_input": {"path": "a\0b"}})
def test_no_input_makes_a_hook_fail_loudly_or_block(event: str | None, content: Any, working_in: Path) -> None:
    os.chdir(working_in)
    out, err = outcome(content, *([event] if event else []))
    assert not out or isinstance(json.loads(out), dict)
    assert not (out and err) or "so this call is not guarded" in out or "your edits are not guarded" in out


@pytest.mark.parametrize(
    ("tool", "given_input"),
    [
        ("apply_patch", {"patch": "*** Add File: a" + " " * 200_000 + "x"}),
        ("apply_patch", {"patch": "*** Add File: " + "\t" * 200_000}),
        ("Bash", {"command": "'" + ">" * (MAX_COMMAND - 1)}),
        ("Bash", {"command": "echo " + "''" * 5_000 + ">" * 5_000}),
        ("Bash", {"command": "a;" * 9_000}),
    ],
)
def test_targets_of_a_long_input_are_found_in_linear_time(tool: str, given_input: dict[str, Any]) -> None:
    started = time.process_time()
    assert len(targets(tool, given_input, "/").paths) <= 1
    assert time.process_time() - started < 0.5
