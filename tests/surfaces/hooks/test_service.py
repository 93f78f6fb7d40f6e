"""The stdio server does the work of its host's hooks, over a Unix socket."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks import asking, service
from holdlog.adapters.hooks.asking import PROTOCOL, HookFailedError, ask
from holdlog.adapters.hooks.binding import BoundServer, sessions_folder
from holdlog.adapters.hooks.calls import HookCall, parse
from holdlog.adapters.hooks.service import HookService
from holdlog.adapters.operating_system.hook_socket import socket_path
from holdlog.adapters.operating_system.workspaces import find_workspaces
from holdlog.adapters.runtime.engine import Engine
from tests.support.processes.workers import until

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


class Served:
    """A server of hooks for the store of a folder."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder
        self.engine: Engine = open_holdlog(folder / "state.db", settings, what="mcp stdio")
        self.engine.keep_sessions()
        self.service = HookService(self.engine)
        assert self.engine.caller.session is not None
        self.server = BoundServer(self.engine.caller.server, self.engine.caller.session)

    @property
    def store(self) -> Path:
        return self.folder / "state.db"

    def ask(self, event: str, **given: Any) -> dict[str, Any] | None:
        call = parse({"session_id": "s-1", "cwd": str(self.folder), **given}, event)
        assert call is not None
        return ask(self.store, self.server, call)

    def raw(self, text: bytes) -> Any:
        """The response to bytes, whatever they are."""
        with self.connected() as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as file:
                return json.loads(file.readline())

    def connected(self, seconds: float | None = None) -> socket.socket:
        """A client. Raises BlockingIOError or TimeoutError if the server does not take it in time."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
        try:
            with socket_path(sessions_folder(self.store), self.server.server) as path:
                connection.connect(path)
        except OSError:
            connection.close()
            raise
        return connection

    def held(self) -> list[str]:
        return [it.resource for it in self.engine.read(self.engine.requests.claims.board()).claims]

    def close(self) -> None:
        self.service.close()
        self.engine.close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.chdir(tmp_path)
    server = Served(tmp_path)
    yield server
    server.close()


def test_server_claims_and_releases_for_a_hook(served: Served) -> None:
    assert served.ask("pre-edit", paths=["a.py", "b.py"]) == {}
    assert len(served.held()) == 2
    assert served.ask("session-end") == {}
    assert served.held() == []


def test_refusal_is_the_output_of_the_hook(served: Served) -> None:
    other = open_holdlog(served.store)
    other.claim(other.requests.claims.claim(str(served.folder / "a.py"), "ann"), other.caller)
    output = served.ask("pre-edit", paths=["a.py"])
    other.close()
    assert output is not None
    assert output["decision"] == "deny"
    assert "is held by ann since" in output["reason"]


def test_hook_that_no_longer_waits_is_not_served(served: Served) -> None:
    """It did the work itself: a turn that ended long ago must not release what the next one claims."""
    served.ask("pre-edit", paths=["a.py"])
    call = parse({"session_id": "s-1", "cwd": str(served.folder)}, "session-end")
    assert call is not None
    request = {"protocol": PROTOCOL, "call": call._asdict()}
    with served.connected() as busy:  # the server waits for its request
        with served.connected() as ended:
            ended.sendall(json.dumps(request).encode() + b"\n")
        busy.sendall(b"\n")
        busy.recv(100)
    assert served.ask("prompt") is not None
    assert served.held() == [str(served.folder / "a.py")]


def test_failure_is_reported_to_the_hook(served: Served) -> None:
    (served.folder / "state.db.hooks").write_text("not a folder")
    with pytest.raises(HookFailedError):
        served.ask("pre-edit", paths=["a.py"])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"{number}")
        for number, text in enumerate(
            [b"", b"\n", b"{", b"[]\n", b"1\n", b"{}\n", b'{"protocol": 2}\n', b"[" * 100_000 + b"\n", b"\xff\n"]
            + [b'{"protocol": 2, "call": %s}\n' % it for it in (b"1", b"{}", b'{"paths": 1}', b'{"paths": [], "x": 1}')]
        )
    ],
)
def test_malformed_request_is_answered_and_the_next_one_served(served: Served, text: bytes) -> None:
    assert served.raw(text) == {"protocol": 0}
    assert served.ask("pre-edit", paths=["a.py"]) == {}


@pytest.mark.parametrize(
    "value", [None, 1, 1e400, "a\0b", "\ud800", "x" * 9_999, [], [1], ["\0"], {}, {"a": 1}], ids=type
)
def test_field_of_a_wrong_type_is_answered_and_the_next_request_served(served: Served, value: object) -> None:
    call = parse({"session_id": "s-1", "cwd": str(served.folder), "paths": ["a.py"]}, "pre-edit")
    assert call is not None
    for field in HookCall._fields:
        for event in ("pre-edit", "post-edit", "turn-end"):
            fields = {**call._asdict(), "event": event, field: value}
            response = served.raw(json.dumps({"protocol": PROTOCOL, "call": fields}).encode() + b"\n")
            assert response.keys() <= {"protocol", "output", "error"}
            assert "\n" not in response.get("error", "")
    assert served.ask("pre-edit", paths=["b.py"]) == {}


@pytest.mark.parametrize("text", [b"", b'{"protocol": 2, ', b"x"])
def test_client_that_is_silent_or_slow_is_disconnected_in_time(
    served: Served, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "READ_SECONDS", 0.3)
    ends = threading.Event()
    with served.connected() as slow:

        def send() -> None:
            with suppress(OSError):
                while text and not ends.wait(0.01):
                    slow.sendall(text)

        sender = threading.Thread(target=send)
        sender.start()
        assert served.ask("pre-edit", paths=["a.py"]) == {}
        ends.set()
        sender.join()


def test_thousand_silent_clients_leave_no_descriptor_and_stop_no_tool(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "READ_SECONDS", 0.3)
    assert served.ask("pre-edit", paths=["b.py"]) == {}
    before = len(os.listdir("/proc/self/fd"))
    clients = []
    for _ in range(1_000):
        with suppress(BlockingIOError):  # no more can wait: such a hook does the work itself
            clients.append(served.connected(0))
    assert served.ask("pre-edit", paths=["a.py"]) is None
    assert len(served.held()) == 1
    for client in clients:
        client.close()
    until(lambda: served.ask("pre-edit", paths=["a.py"]) == {})
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_server_of_another_release_is_not_asked(served: Served) -> None:
    assert served.raw(json.dumps({"protocol": PROTOCOL + 1, "call": {}}).encode() + b"\n") == {"protocol": PROTOCOL}


def test_client_that_disappears_does_not_stop_the_server(served: Served) -> None:
    for _ in range(5):
        with served.connected() as connection:
            connection.sendall(b'{"protocol"')
    assert served.ask("pre-edit", paths=["a.py"]) == {}


def test_closed_or_killed_server_cannot_be_asked_and_leaves_no_socket(served: Served) -> None:
    sockets = lambda: [it.name for it in sessions_folder(served.store).iterdir() if it.suffix == ".sock"]  # noqa: E731
    assert len(sockets()) == 1
    served.service.close()
    assert sockets() == []
    assert served.ask("pre-edit", paths=["a.py"]) is None
    assert "holdlog-hooks" not in [it.name for it in threading.enumerate()]


def test_folder_with_a_long_name_has_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    served = Served(folder)
    try:
        assert served.ask("pre-edit", paths=["a.py"]) == {}
    finally:
        served.close()


def test_server_that_does_not_respond_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ASK_SECONDS", 0.05)
    served.service.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as frozen:  # as one that was stopped: nothing is accepted
        with socket_path(sessions_folder(served.store), served.server.server) as path:
            frozen.bind(path)
        frozen.listen()
        assert served.ask("pre-edit", paths=["a.py"]) is None


def test_server_leaves_a_folder_outside_of_its_workspaces_to_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    for folder in (here, other):
        (folder / ".holdlog").mkdir(parents=True)
    monkeypatch.chdir(here)
    served = Served(here, Settings(workspaces=find_workspaces({}, here)))
    try:
        assert served.ask("pre-edit", paths=["a.py"]) == {}
        assert served.ask("pre-edit", cwd=str(other), paths=["a.py"]) is None
        assert served.held() == ["a.py"]
    finally:
        served.close()


def test_pipe_among_the_files_does_not_block_the_server(served: Served) -> None:
    os.mkfifo(served.folder / "pipe")
    assert served.ask("pre-edit", paths=["pipe"]) == {}
    assert served.ask("turn-end") == {}


@pytest.mark.check
def test_ten_thousand_hooks_leave_no_descriptor_and_no_thread(served: Served) -> None:
    call = parse({"session_id": "s-1", "cwd": str(served.folder), "paths": ["a.py"]}, "pre-edit")
    assert isinstance(call, HookCall)
    for number in range(10_000):
        assert ask(served.store, served.server, call) == {}
        if number == 100:
            before = len(os.listdir("/proc/self/fd")), threading.active_count()
    after = len(os.listdir("/proc/self/fd")), threading.active_count()
    assert abs(after[0] - before[0]) <= 1  # the server may not have closed the last connection
    assert after[1] == before[1]
    assert len(list(sessions_folder(served.store).iterdir())) == 2
