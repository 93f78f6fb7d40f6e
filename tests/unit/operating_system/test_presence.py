"""Who is connected, with real processes where it is about their ends."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdlog.adapters.operating_system.presence import MAX_BYTES, MAX_TEXT, ConnectedProcess, announce, connected
from holdlog.domain.refusals import StoreError

ANNOUNCE = """
import sys
from pathlib import Path
from holdlog.adapters.operating_system.presence import announce
presence = announce(Path(sys.argv[1]), sys.argv[2], "mcp stdio")
print("announced", flush=True)
sys.stdin.readline()
"""

ANNOUNCE_AND_FORK = """
import os, sys
from pathlib import Path
from holdlog.adapters.operating_system.presence import announce
presence = announce(Path(sys.argv[1]), "parent", "mcp stdio")
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.readline()
    presence.close()
    print("closed", flush=True)
    sys.stdin.readline()
    os._exit(0)
os.wait()
"""


@contextmanager
def process(script: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python process that has said its first word."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline()
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def files(path: Path) -> list[Path]:
    return sorted(path.with_name("state.db.sessions").iterdir())


def test_server_is_connected_until_it_disconnects(path: Path) -> None:
    presence = announce(path, "s-1", "mcp stdio")
    found = connected(path)
    assert [(one.session, one.pid, one.what) for one in found] == [("s-1", os.getpid(), "mcp stdio")]
    presence.close()
    presence.close()
    presence.describe("too late")
    assert files(path) == []  # before anybody looks, who would clear it away
    assert connected(path) == []


def test_killed_server_is_not_connected_and_its_file_is_removed(path: Path) -> None:
    with process(ANNOUNCE, str(path), "s-1") as server:
        assert [one.pid for one in connected(path)] == [server.pid]
        server.kill()
        server.wait()
        assert connected(path) == []
        assert files(path) == []


def test_new_server_removes_files_of_dead_ones(path: Path) -> None:
    with process(ANNOUNCE, str(path), "s-1") as server:
        server.kill()
        server.wait()
        assert len(files(path)) == 1
        presence = announce(path, "s-2", "mcp stdio")
        assert len(files(path)) == 1
        presence.close()


def test_reading_presence_never_ends_one(path: Path) -> None:
    with process(ANNOUNCE, str(path), "s-1") as server:
        for _ in range(50):
            assert [one.pid for one in connected(path)] == [server.pid]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forked_child_neither_keeps_nor_ends_the_presence_of_its_parent(path: Path) -> None:
    with process(ANNOUNCE_AND_FORK, str(path)) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write("close\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "closed\n"
        assert [one.pid for one in connected(path)] == [parent.pid]
        os.kill(parent.pid, 9)  # the child lives on until its input ends
        os.waitpid(parent.pid, 0)
        assert connected(path) == []


def test_one_session_may_have_several_servers(path: Path) -> None:
    both = [announce(path, "s-1", "mcp stdio"), announce(path, "s-1", "library")]
    assert sorted(one.what for one in connected(path)) == ["library", "mcp stdio"]
    for presence in both:
        presence.close()


def test_client_name_is_shown_when_known(path: Path) -> None:
    presence = announce(path, "s-1", "mcp stdio, client yet unknown")
    presence.describe("mcp stdio: claude")
    assert [one.what for one in connected(path)] == ["mcp stdio: claude"]
    presence.close()


@pytest.mark.parametrize(
    "session", ["../../escape", "a/b", ".", "", "🦊" * 200, "\1" * 200, "x" * 4000, "nul\0", 'quo"te']
)
def test_every_session_has_a_presence_file_in_the_folder(path: Path, session: str) -> None:
    presence = announce(path, session, "🦊" * MAX_BYTES)
    assert [one.session for one in connected(path)] == [session[:MAX_TEXT]]
    assert [file.parent for file in files(path)] == [path.with_name("state.db.sessions")]
    assert list(path.parent.iterdir()) == [path.with_name("state.db.sessions")]
    presence.close()


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"{}", b'{"pid": "x"}', b"null", b"[" * 100_000])
def test_empty_presence_file_still_counts(path: Path, text: bytes) -> None:
    presence = announce(path, "s-1", "mcp stdio")
    [file] = files(path)
    file.write_bytes(text)  # another file's lock is untouched: flock belongs to the open file description
    assert [it._replace(server="") for it in connected(path)] == [ConnectedProcess("", 0, "unknown", "")]
    presence.close()


def test_presence_files_are_private(path: Path) -> None:
    before = os.umask(0)
    try:
        presence = announce(path, "s-1", "mcp stdio")
    finally:
        os.umask(before)
    [file] = files(path)
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["session"] == "s-1"
    presence.close()


def test_presence_does_not_touch_the_store(path: Path) -> None:
    presence = announce(path, "s-1", "mcp stdio")
    connected(path)
    presence.close()
    assert not path.exists()


def test_missing_store_has_no_presence(path: Path) -> None:
    assert connected(path) == []
    assert list(path.parent.iterdir()) == []


def test_presence_folder_that_cannot_be_created_is_reported_in_one_line(path: Path) -> None:
    path.with_name("state.db.sessions").touch(0o600)
    with pytest.raises(StoreError, match="cannot be written"):
        announce(path, "s-1", "mcp stdio")
