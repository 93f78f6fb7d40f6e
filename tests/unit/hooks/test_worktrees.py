"""Which worktrees are guarded, and the lines of git's hooks, run by a real shell."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.hooks.worktrees import (
    Guard,
    Worktree,
    checkout_line,
    commit_line,
    guard,
    parse_worktrees,
    without_own_lines,
)

ZERO, HEAD = "0" * 40, "1" * 40
LISTING = (
    ("worktree /r", "HEAD a", "branch refs/heads/main"),
    ("worktree /w with\nbreak", "HEAD a", "detached", "locked on a stick"),
    ("worktree /gone", "HEAD a", "detached", "prunable gitdir file points to non-existent location"),
)


def listing(end: str) -> str:
    return "".join(f"{end.join(block)}{end}{end}" for block in LISTING)


def test_worktrees_are_read_from_what_git_lists() -> None:
    main, linked, gone = parse_worktrees(listing("\0"))
    assert (main, linked) == (Worktree("/r"), Worktree("/w with\nbreak"))
    assert gone.path == "/gone"
    assert gone.problem.startswith("is missing, so it is not set up")
    [bare] = parse_worktrees("worktree /r.git\nbare\n\n")
    assert bare.problem.startswith("is a bare repository")
    assert [it.path for it in parse_worktrees(listing("\n").replace("with\nbreak", ""))] == ["/r", "/w ", "/gone"]
    assert parse_worktrees("") == []


def claude(matcher: str | None = "Edit|Write|Bash", **handler: Any) -> dict[str, Any]:
    handler = handler or {"type": "command", "command": "holdlog hook"}
    return {"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [handler]}]}}


@pytest.mark.parametrize(
    ("host", "contents", "expected"),
    [
        ("claude-code", [claude()], Guard((), ("holdlog",))),
        ("claude-code", [None, claude(".*", command="'/a b/holdlog' hook")], Guard((), ("/a b/holdlog",))),
        ("claude-code", [claude(None, command="holdlog", args=["hook"])], Guard((), ("holdlog",))),
        ("claude-code", [claude("*", command="A=1 /x/holdlog hook --url http://x")], Guard((), ("/x/holdlog",))),
        ("claude-code", [claude(type="http", url="http://x:8420/hook")], Guard(())),
        ("claude-code", [claude("Edit|Write")], Guard(("Bash",), ("holdlog",))),
        ("claude-code", [claude("Edit|Write"), claude("Bash")], Guard((), ("holdlog",))),
        ("claude-code", [claude("[")], Guard(("Edit", "Write", "Bash"))),
        ("claude-code", [claude(command="beep"), {"hooks": []}, [], "x"], Guard(("Edit", "Write", "Bash"))),
        ("claude-code", [claude(command="echo holdlog hooks"), None], Guard(("Edit", "Write", "Bash"))),
        ("claude-code", [claude(type="http", url="http://x/other")], Guard(("Edit", "Write", "Bash"))),
        ("codex", [claude("Bash|apply_patch")], Guard((), ("holdlog",))),
        ("codex", [claude("Edit")], Guard(("apply_patch", "Bash"))),
        (
            "cursor",
            [{"hooks": {"preToolUse": [{"command": "holdlog hook"}]}}],
            Guard(("beforeShellExecution",), ("holdlog",)),
        ),
        ("opencode", ['const COMMAND = "/x/holdlog"\nspawn(COMMAND, ["hook"])'], Guard((), ("/x/holdlog",))),
        ("opencode", ["export const Other = 1", None], Guard(("edits",))),
        ("vscode", [claude()], Guard(())),
    ],
)
def test_guard_is_read_from_the_files_of_a_host(host: str, contents: list[Any], expected: Guard) -> None:
    assert guard(host, contents) == expected


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def run_line(line: str, *arguments: str, shell: str = "sh") -> tuple[int, str]:
    """The exit code of a git hook with this line, which does nothing else, and what it prints."""
    done = subprocess.run([shell, "-ec", f"{line}\necho went on", "hook", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("folder", ["plain", "with 'quotes' and \"blanks\"", "$HOME`x`\\"])
def test_commit_line_blocks_if_a_file_is_held_and_else_not(shell: str, folder: str, tmp_path: Path) -> None:
    held = 'case "$*" in "check --staged") echo held; exit 1;; --version) exit 0;; *) exit 9;; esac'
    command = program(tmp_path / folder / "holdlog", held)
    assert run_line(commit_line(command), shell=shell) == (1, "held\n")
    free = program(tmp_path / folder / "holdlog", "exit 0")
    assert run_line(commit_line(free), shell=shell) == (0, "went on\n")
    os.remove(free)
    code, shown = run_line(commit_line(free), shell=shell)
    assert (code, shown.count("\n"), "went on\n" in shown) == (0, 2, True)
    assert "is missing or does not start, so holdlog check is skipped" in shown


@pytest.mark.parametrize("script", ["exit 126", "exit 1"], ids=["no interpreter", "no package"])
def test_commit_line_lets_the_commit_pass_if_holdlog_is_broken(script: str, tmp_path: Path) -> None:
    code, shown = run_line(commit_line(program(tmp_path / "holdlog", script)))
    assert (code, shown.count("does not start"), "went on" in shown) == (0, 1, True)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("folder", ["plain", "with 'quotes' and \"blanks\""])
def test_checkout_line_runs_for_new_worktrees_only_and_never_fails(shell: str, folder: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = program(
        tmp_path / folder / "holdlog", f'echo "$@" >> {shlex.quote(str(ran))}; echo noise; echo noise >&2'
    )
    line = checkout_line(command)
    for previous, flag in ((HEAD, "1"), (HEAD, "0"), (ZERO[:-1] + "a", "1")):
        assert run_line(line, previous, HEAD, flag, shell=shell) == (0, "went on\n")
    assert not ran.exists()
    assert run_line(line, ZERO, HEAD, "1", shell=shell) == (0, "went on\n")
    assert run_line(line, "0" * 64, HEAD, "1", shell=shell) == (0, "went on\n")
    assert ran.read_text() == "init --new-worktree\n" * 2
    os.remove(command)
    code, shown = run_line(line, ZERO, HEAD, "1", shell=shell)
    assert (code, shown.count("\n"), "run in it: holdlog init" in shown) == (0, 2, True)


def test_own_lines_are_found_whatever_path_they_name() -> None:
    former = "holdlog check --staged || exit 1  # holdlog: files that other sessions hold\n"
    script = f"#!/bin/sh\n{former}{commit_line('/x/holdlog')}\n{checkout_line('holdlog')}\nmake lint # holdlog\n"
    assert without_own_lines(script) == "#!/bin/sh\nmake lint # holdlog\n"
    assert without_own_lines(f"#!/bin/sh\n{checkout_line('/x/holdlog')}\n") == "#!/bin/sh\n"
