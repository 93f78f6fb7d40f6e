"""The stdio server does the work of its host's hooks: see asking.py."""

import json
import os
import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.hooks.asking import MAX_LINE, PROTOCOL
from holdlog.adapters.hooks.binding import BoundServer, sessions_folder
from holdlog.adapters.hooks.calls import MAX_PATHS, HookCall
from holdlog.adapters.hooks.claiming import perform
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.operating_system.hook_socket import socket_path
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext

READ_SECONDS: Final = 2.0
"""A client that has not sent its line by then is disconnected, because hooks are served one after the other."""
RETRY_SECONDS: Final = 0.1
READ_BYTES: Final = 64 * 1024


def is_in_workspace(engine: Engine, folder: str) -> bool:
    """Whether a folder is in a workspace of the store's server, as far as it knows workspaces."""
    workspaces = engine.settings.workspaces
    return workspaces is None or workspaces.covers(folder)


class HookService:
    """Serves hooks in a thread until `close`. Without Unix sockets it does nothing, and hooks open the store
    themselves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        if isinstance(engine.location, Path) and engine.caller.session is not None:
            self._store = engine.location
            self._files = HookFiles(self._store)
            self._server = BoundServer(engine.caller.server, engine.caller.session)
            with suppress(OSError, AttributeError):
                self._listen()

    def close(self) -> None:
        """Stop after the hook that is being served."""
        listener, self._listener = self._listener, None
        if listener is None or self._thread is None:
            return
        with suppress(OSError), socket_path(sessions_folder(self._store), self._server.server) as path:
            os.unlink(path)
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        listener.close()
        self._thread.join(READ_SECONDS)

    def _listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_path(sessions_folder(self._store), self._server.server) as path:
                listener.bind(path)
            listener.listen()
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="holdlog-hooks", daemon=True)
        self._thread.start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._listener is None:
                    return
                time.sleep(RETRY_SECONDS)  # too many descriptors
                continue
            with connection, suppress(OSError):
                line = _line_from(connection)
                if _is_closed(connection):
                    continue  # the hook did the work itself, perhaps long ago
                connection.sendall(json.dumps(self._response(line)).encode() + b"\n")

    def _response(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if request["protocol"] != PROTOCOL:
                return {"protocol": PROTOCOL}
            call = _call_from(request["call"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return {"protocol": 0}
        try:
            if not is_in_workspace(self._engine, call.folder):
                return {"protocol": 0}  # the hook names its files by its own folder
            if call.event not in ("turn-end", "subagent-end"):  # nothing is renewed after those
                self._engine.lease_maintenance.record_call(self._server.session)
            context = RequestContext(self._engine, self._engine.caller)
            output = perform(context, call, self._files, self._server)
        except Exception as error:  # the hook reports it, and the edit is allowed
            return {"protocol": PROTOCOL, "error": (str(error).splitlines() or [type(error).__name__])[0]}
        return {"protocol": PROTOCOL, "output": output}


def _line_from(connection: socket.socket) -> bytes:
    """The client's line, or what there is of it after `READ_SECONDS`. Raises OSError."""
    deadline, text = time.monotonic() + READ_SECONDS, bytearray()
    while not text.endswith(b"\n") and len(text) < MAX_LINE:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(READ_BYTES)
        if not part:
            break
        text += part
    return bytes(text)


def _is_closed(connection: socket.socket) -> bool:
    """Whether the client no longer waits for the response."""
    waiting = select.poll()
    waiting.register(connection, 0)  # POLLHUP is always reported
    return any(event & select.POLLHUP for _, event in waiting.poll(0))


def _call_from(given: dict[str, Any]) -> HookCall:
    """The call in a request. Raises ValueError, TypeError, KeyError."""
    paths = given["paths"]
    if not isinstance(paths, list) or len(paths) > MAX_PATHS or not all(isinstance(it, str) for it in paths):
        raise ValueError
    git = tuple(GitCommand(tuple(words), folder) for words, folder in given["git"])
    return HookCall(**{**given, "paths": tuple(paths), "git": git})
