"""A store that a process may read but not write, as in a sandbox, or not even read: nothing takes it for no store."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from tests.support.processes.hosts import store_of
from tests.support.processes.sandboxed import Sandbox, bound_by_modes, read_only_mount
from tests.support.slow import check, slow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts and rights of Linux")
STRANGER = 12_345
READS = (
    *("claims", "claims --json", "status src/b.py", "get n k", "list n", "list", "history n k", "history src/b.py"),
    *("log --last 1", "wait src/a.py --timeout 1", "watch n k --since 0 --timeout 1", "agents", "replay", "verify"),
    *("at now", "at now list n", "diff n 1 now", "blame n k", "timeline src/b.py", "activity", "conflicts", "doctor"),
    *("check src/a.py --agent bob", "thread list", "token list", "retention", "checkpoint", "export", "export --log"),
)
WRITES = (
    *("set n k 2 --version 1", "update n k --increment 1", "delete n k --version 1", "claim src/a.py --agent bob"),
    *("release src/b.py --agent ann --session ann-1", "run --claim src/a.py -- true", "rebuild"),
    *("token create --name x --allow read:*", "retention n 30d"),
)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a store, in which ann holds src/b.py."""
    folder = tmp_path / "r"
    (folder / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monkeypatch.chdir(folder)
    assert main(["claim", "src/b.py", "--agent", "ann", "--session", "ann-1", "--lease", "600"]) == 0
    assert main(["set", "n", "k", "1", "--version", "0", "--by", "ann"]) == 0
    return folder


@contextmanager
def unwritable(repository: Path, how: str) -> Iterator[Sandbox]:
    """A sandbox that reads the store but does not write it."""
    folder = store_of(repository).parent
    try:
        if how == "mount":
            yield read_only_mount(repository, folder.parent)
            return
        sandbox = bound_by_modes(repository)
    except LookupError as error:
        pytest.skip(str(error))
    for each in (*folder.rglob("*"), folder):
        each.chmod(0o500 if each.is_dir() else 0o400)
    try:
        yield sandbox
    finally:
        for each in (folder, *folder.rglob("*")):
            each.chmod(0o700 if each.is_dir() else 0o600)


@contextmanager
def hidden(repository: Path, how: str) -> Iterator[tuple[Sandbox, str]]:
    """A sandbox that cannot read the store, and what its refusals name."""
    entry = {"store": store_of(repository), "git": repository / ".git"}.get(how, store_of(repository).parent)
    try:
        sandbox = bound_by_modes(repository)
    except LookupError as error:
        pytest.skip(str(error))
    if how == "stranger":
        if os.geteuid() != 0:
            pytest.skip("only root can give files to another user")
        os.chown(entry, STRANGER, STRANGER)
        yield sandbox, f"{entry} belongs to uid {STRANGER}, and you are root (uid 0); ask uid {STRANGER} for access"
        return
    mode = entry.stat().st_mode & 0o777
    entry.chmod(0)
    try:
        yield sandbox, "its mode is 0000; run: chmod u+rw"
    finally:
        entry.chmod(mode)


@pytest.mark.check
def test_init_creates_no_store_next_to_one_that_cannot_be_read(repository: Path) -> None:
    with hidden(repository, "folder") as (sandbox, reason):
        (ran,) = sandbox.run(["init", "--client", "cursor", "--yes"])
    assert (ran.code, reason in ran.err) == (2, True)
    assert not (repository / ".cursor").exists()
    assert not (repository / ".holdlog").exists()


def split(commands: Sequence[str]) -> list[list[str]]:
    return [it.split() for it in commands]


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("modes", "open"),
        *check(("mount", "closed"), ("mount", "crashed"), ("modes", "closed")),
        *slow(("mount", "open"), ("modes", "crashed")),
    ],
)
def test_everything_that_reads_works_in_a_store_that_cannot_be_written(repository: Path, how: str, state: str) -> None:
    path = store_of(repository)
    if state == "crashed":
        program = "import os, sys; from holdlog import StateStore; s = StateStore(sys.argv[1]);"
        program += " s.set('n', 'last', 5, updated_by='eve'); os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    with ExitStack() as stack:
        if state == "open":
            stack.enter_context(StateStore(path)).set("n", "last", 5, updated_by="eve")
        sandbox = stack.enter_context(unwritable(repository, how))
        before = sorted(path.parent.rglob("*"))
        results = sandbox.run(*split(READS), ["check", "src/b.py", "--agent", "bob"], ["get", "n", "last"])
        assert sorted(path.parent.rglob("*")) == before
    failed = {words: it for words, it in zip(READS, results, strict=False) if it.code != 0}
    assert failed == {}
    assert results[0].out.startswith("src/b.py  ann")
    doctor = results[READS.index("doctor")].out
    assert "reads work here, writes are refused: " in doctor
    assert results[-2].code == 1
    assert "src/b.py: held by ann" in results[-2].err
    assert results[-1].out == ("" if state == "closed" else "5\n")


def test_writes_are_refused_in_one_line_where_the_store_cannot_be_written(repository: Path) -> None:
    with unwritable(repository, "mount") as sandbox:
        results = sandbox.run(*split(WRITES))
        folder = store_of(repository).parent
        line = f"{folder} cannot be written (Read-only file system); in a sandbox, allow writes to {folder}\n"
        assert {words: it.code for words, it in zip(WRITES, results, strict=True)} == dict.fromkeys(WRITES, 1)
        assert [it for it in results if line not in it.out + it.err] == []
        assert [it for it in results if "--db" in it.out + it.err] == []


@pytest.mark.check
def test_server_starts_reads_and_refuses_writes_where_it_cannot_write(repository: Path) -> None:
    with unwritable(repository, "mount") as sandbox:
        server = sandbox.start("-m", "holdlog", "serve", "--tools", "claims,state")
        assert server.stdin is not None
        assert server.stdout is not None
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        calls = [("status", {"resource": "src/b.py"}), ("get", {"namespace": "n", "key": "k"})]
        calls.append(("claim", {"resource": "src/a.py", "agent": "bob"}))
        answers = []
        for number, (method, params) in enumerate(
            [("initialize", hello)]
            + [("tools/call", {"name": f"holdlog_{name}", "arguments": given}) for name, given in calls]
        ):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            answers.append(json.loads(server.stdout.readline())["result"])
        _, err = server.communicate(timeout=30)
    held, value, refused = [json.loads(it["content"][0]["text"]) for it in answers[1:]]
    assert (held["held_by"], value["value"]) == ("ann", 1)
    assert (refused["status"], refused["in_doubt"]) == ("unavailable", False)
    assert "cannot be written (Read-only file system)" in refused["message"]
    assert (server.returncode, err) == (0, "")


def test_hook_warns_that_nothing_is_guarded_where_it_cannot_write(repository: Path) -> None:
    with unwritable(repository, "mount") as sandbox:
        edit = sandbox.hook(hook_event_name="PreToolUse", tool_name="Write", tool_input={"file_path": "src/b.py"})
        start = sandbox.hook(hook_event_name="SessionStart", source="startup")
    for ran in (edit, start):
        assert ran.code == 0
        assert ran.err.endswith("; the edit is not guarded\n")
        assert "cannot be written (Read-only file system)" in ran.err
    assert edit.out == ""
    assert "your edits are not guarded" in json.loads(start.out)["hookSpecificOutput"]["additionalContext"]


@pytest.mark.parametrize("how", ["folder", *check("store", "stranger"), *slow("git")])
def test_store_that_cannot_be_read_is_never_taken_for_no_store(repository: Path, how: str) -> None:
    words = [
        "claims",
        "claims --json",
        "status",
        "status src/b.py",
        "get n k",
        "list n",
        "log",
        "history n k",
        "verify",
    ]
    words += ["wait src/b.py --timeout 1", "agents", "at now", "export", "activity", "doctor", "claim src/a.py"]
    with hidden(repository, how) as (sandbox, reason):
        results = sandbox.run(*split(words), ["check", "src/b.py", "--agent", "bob"])
        hook = sandbox.hook(hook_event_name="PreToolUse", tool_name="Write", tool_input={"file_path": "src/b.py"})
    texts = [it.out + it.err for it in (*results, hook)]
    assert [it for it in texts if reason not in it or "no store" in it or "--db" in it] == []
    assert [it for it in zip(words, results, strict=False) if it[1].code == 0] == []
    assert "nothing was checked" in results[-1].err
    assert (hook.code, hook.out) == (0, "")
    assert hook.err.endswith("; the edit is not guarded\n")


@pytest.mark.check
def test_library_reads_and_refuses_where_it_cannot_write(repository: Path) -> None:
    program = """\
import sys
from holdlog import StateStore, UnavailableError
with StateStore(sys.argv[1]) as store:
    for line in sys.stdin:
        try:
            print(eval(line), flush=True)
        except UnavailableError as error:
            print(type(error).__name__, flush=True)
"""
    path = store_of(repository)
    with unwritable(repository, "mount") as sandbox:
        reader = sandbox.start("-c", program, str(path))
        assert reader.stdin is not None
        assert reader.stdout is not None

        def ask(expression: str) -> str:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write(f"{expression}\n")
            reader.stdin.flush()
            return reader.stdout.readline().strip()

        assert ask("store.get('n', 'k').value") == "1"
        assert ask("store.set('n', 'k', 2, updated_by='bob')") == "ReadOnlyError"
        with StateStore(path) as writer:
            for number in range(5):
                writer.set("n", "k", number, updated_by="eve")
                assert ask("store.get('n', 'k').value") == str(number)
        assert ask("store.get('n', 'k').value") == "4"  # its log is still there, and nobody has it open
        with StateStore(path) as writer:
            writer.set("n", "big", "x" * 200_000, updated_by="eve")
            for number in range(5):
                writer.set("n", "k", number, updated_by="eve")
                writer.set("n", f"big{number}", "x" * 250_000, updated_by="eve")  # pages move into the file
                assert ask("store.get('n', 'k').value") == str(number)
        assert reader.communicate(timeout=30) == ("", "")
    with StateStore(path) as writer:
        assert writer.get("n", "k").value == 4
