"""Hooks as hosts run them, over input, stores and disks that are not as they should be: the edit is allowed, and one
line says why it is not guarded."""

import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdlog.adapters.hooks.running import SECONDS
from holdlog.adapters.stores.sqlite.schema import MAJOR, MINORS_PER_MAJOR
from tests.support.processes.hosts import EDIT, ENVIRONMENT, Host, commit_policy, held, run_hook, store_of

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.check,
]

A_FILE = {"session_id": "s-1", "hook_event_name": EDIT, "tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
BUSY_MACHINE = 10
"""Seconds that starting a process may take."""


def require_open(done: "subprocess.CompletedProcess[str]") -> None:
    """Require that the edit was allowed and that one line says why it is not guarded."""
    assert done.returncode == 0
    if "took longer than" not in done.stderr:  # a busy machine: the agent is warned at once
        assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("holdlog hook: ")
    assert done.stderr.endswith("; the edit is not guarded\n")
    assert "Error;" not in done.stderr  # the name of a class says nothing to a person


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"hook_event_name": "PreToolUse"}', "[" * 100_000, '{"session_id": 1}', "\ud800"]
)
def test_malformed_input_allows_the_edit_and_is_reported_once(host: Callable[[], Host], text: str) -> None:
    claude = host()
    command = [sys.executable, "-m", "holdlog", "hook"]
    given = text.encode(errors="surrogatepass")
    done = subprocess.run(command, input=given, capture_output=True, cwd=claude.folder, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"holdlog hook: ")
    text_of_start = claude.hook("s-1", "SessionStart")["additionalContext"]
    assert "1 hook call failed" in text_of_start
    assert "failed" not in claude.hook("s-1", "SessionStart")["additionalContext"]


@pytest.mark.parametrize(
    ("field", "content", "why"),
    [
        ("paths", "a.py", "paths: must be a list of paths"),
        ("paths", ["a.py", 1], "paths: must be a list of paths"),
        ("cwd", "/missing", "cwd: must be a folder that exists"),
        ("cwd", "a\0b", "cwd: must be a folder that exists"),
    ],
)
def test_wrong_field_is_reported(repository: Path, field: str, content: object, why: str) -> None:
    done = run_hook(repository, {"session_id": "s-1", "paths": ["a.py"], field: content}, "pre-edit")
    require_open(done)
    assert why in done.stderr


@pytest.mark.parametrize(
    "facts", [{"cwd": "/missing"}, {"workspace_roots": ["file:///missing"]}, {"workspace_roots": ["/missing"]}]
)
def test_host_that_names_a_folder_that_is_gone_is_guarded(repository: Path, facts: dict[str, object]) -> None:
    given = A_FILE | facts | {"tool_input": {"file_path": str(repository / "a.py")}}
    done = run_hook(repository, given)
    assert (done.stdout, done.stderr) == ("", "")
    assert list(held(repository)) == ["a.py"]


@pytest.mark.parametrize("content", ["src", None, [1]])
def test_paths_that_a_host_passes_for_another_purpose_are_ignored(repository: Path, content: object) -> None:
    read = {
        "hook_event_name": "PostToolUse",
        "tool_name": "Read",
        "tool_input": {"file_path": "a.py", "paths": content},
    }
    prompt = {"hook_event_name": "UserPromptSubmit", "paths": content}
    for given in (read, prompt):
        assert run_hook(repository, {"session_id": "s-1", **given}).stderr == ""


@pytest.mark.parametrize("words", [["pre-edti"], ["--bogus"], ["--db", "postgresql://nobody@127.0.0.1:1/x"]])
def test_hook_with_wrong_arguments_allows_the_edit(repository: Path, words: list[str]) -> None:
    done = run_hook(repository, A_FILE, *words)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1


def test_hook_that_waits_for_its_input_ends_by_itself(repository: Path) -> None:
    command = [sys.executable, "-m", "holdlog", "hook"]
    started = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=repository) as process:
        assert process.stderr is not None
        assert b"took longer than 4 s" in process.stderr.read()
        assert process.wait() == 0
    assert time.monotonic() - started < 20


def a_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def another_format(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def overwritten(path: Path) -> None:
    """All pages but the first are garbage."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {(MAJOR + 1) * MINORS_PER_MAJOR}")
    connection.close()


def open_to_others(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize(
    "damage", [a_pipe, a_socket, a_folder, a_loop, another_format, torn, overwritten, newer, open_to_others]
)
def test_store_that_cannot_be_opened_allows_the_edit(
    repository: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    store = store_of(repository)
    damage(store)
    before = (store.lstat().st_mode, store.read_bytes() if store.is_file() else None)
    started = time.monotonic()
    require_open(run_hook(repository, A_FILE))
    assert time.monotonic() - started < SECONDS + BUSY_MACHINE
    assert (store.lstat().st_mode, store.read_bytes() if store.is_file() else None) == before
    assert sorted(os.listdir(repository)) == [".git", "a.py", "b.py"]
    assert (repository / "a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("suffix", "make"),
    [(suffix, a_pipe) for suffix in ("-wal", "-shm", "-journal", ".gate", ".sessions", ".hooks")]
    + [("-wal", a_folder), (".gate", a_folder), ("-wal", another_format), (".sessions", another_format)],
)
def test_side_file_that_is_something_else_allows_the_edit(
    repository: Path, suffix: str, make: Callable[[Path], None]
) -> None:
    store = store_of(repository)
    path = store.with_name(store.name + suffix)
    if path.is_dir():
        path.rmdir()
    make(path)
    started = time.monotonic()
    done = run_hook(repository, A_FILE)
    assert time.monotonic() - started < SECONDS + BUSY_MACHINE
    if done.stderr:
        require_open(done)
    else:  # SQLite and holdlog replace what they find
        assert (done.returncode, done.stdout) == (0, "")
        assert list(held(repository)) == ["a.py"]


def test_empty_store_file_becomes_a_store(repository: Path) -> None:
    store_of(repository).write_bytes(b"")
    done = run_hook(repository, A_FILE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(held(repository)) == ["a.py"]


@pytest.mark.parametrize("content", [b"[paths\n", b"\xff\xfe", b"x" * 2_000_000], ids=["cut", "bytes", "large"])
def test_damaged_policy_allows_the_edit_and_keeps_claims(repository: Path, content: bytes) -> None:
    commit_policy(repository, content)
    done = run_hook(repository, A_FILE)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == (list(held(repository)) != ["a.py"])
    assert (repository / "holdlog.toml").read_bytes() == content


def test_hook_that_cannot_write_to_the_disk_allows_the_edit(repository: Path) -> None:
    def forbid_writing() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command = [sys.executable, "-m", "holdlog", "hook"]
    text = json.dumps(A_FILE)
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        cwd=repository,
        env=ENVIRONMENT,
        preexec_fn=forbid_writing,
        check=False,
    )
    require_open(done)
    assert held(repository) == {}


@pytest.mark.parametrize("redirection", [">/dev/full", "2>/dev/full", "<&-", ">&-", "2>&-"])
def test_hook_whose_streams_fail_ends_without_output(repository: Path, redirection: str) -> None:
    run_hook(repository, A_FILE)
    command = ["sh", "-c", f"exec {sys.executable} -m holdlog hook {redirection}"]
    for given in (json.dumps({**A_FILE, "session_id": "s-2"}), "{"):  # denied, and malformed
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, cwd=repository, env=ENVIRONMENT, check=False
        )
        assert done.returncode == 0
        assert done.stderr.count("\n") <= 1
        assert "Traceback" not in done.stderr


def lock(repository: Path, is_exclusive: bool) -> sqlite3.Connection:
    """Lock the store for writers, or for readers, too."""
    connection = sqlite3.connect(store_of(repository), isolation_level=None)
    if is_exclusive:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")  # SQLite waits for it in C, so that no signal ends the hook
    connection.execute("CREATE TABLE another (a)")
    return connection


@pytest.mark.parametrize("is_exclusive", [False, True])
def test_hook_that_waits_for_a_locked_store_ends_and_warns_the_agent(repository: Path, is_exclusive: bool) -> None:
    connection = lock(repository, is_exclusive)
    started = time.monotonic()
    done = run_hook(repository, A_FILE)
    assert time.monotonic() - started < SECONDS + 3
    assert done.returncode == 0
    assert done.stderr == "holdlog hook: took longer than 4 s; the edit is not guarded\n"
    output = json.loads(done.stdout)["hookSpecificOutput"]
    assert "permissionDecision" not in output
    assert output["additionalContext"] == "holdlog: took longer than 4 s; this call was not guarded."
    connection.execute("ROLLBACK")
    connection.close()
    assert held(repository) == {}


def edit_while_locked(repository: Path, session: str, path: str) -> "tuple[str, str]":
    """The decision about an edit while the store is locked for writing, and its reason."""
    connection = lock(repository, is_exclusive=False)
    done = run_hook(repository, {**A_FILE, "session_id": session, "tool_input": {"file_path": path}})
    connection.execute("ROLLBACK")
    connection.close()
    output = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}
    return output.get("permissionDecision", ""), output.get("permissionDecisionReason", "")


@pytest.mark.parametrize("mode", ["block", "warn"])
def test_file_of_a_live_session_is_denied_also_while_the_store_is_locked(repository: Path, mode: str) -> None:
    commit_policy(repository, f'[paths]\n"a.py" = "{mode}"\n')
    run_hook(repository, A_FILE)
    decision, reason = edit_while_locked(repository, "s-2", "a.py")
    assert (decision == "deny") is (mode == "block")
    assert mode == "warn" or reason.startswith("holdlog: a.py is held by claude-")
    assert mode == "warn" or reason.endswith(". Work on something else first, then try again.")
    assert edit_while_locked(repository, "s-1", "a.py") == ("", "")
    assert edit_while_locked(repository, "s-2", "b.py") == ("", "")
