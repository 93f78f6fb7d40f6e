"""Runs the application on uvicorn until shutdown, on a socket that is bound before anything else starts."""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from holdlog.adapters.http.edge.connections import Connection
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.domain.refusals import InvalidError

SHUTDOWN_SECONDS: Final = 10.0
"""Seconds after which the process ends, whatever clients and stores do."""
ANSWERED_WITHIN: Final = 6
"""Seconds for calls in flight to finish; the remaining ones are aborted."""
BACKLOG: Final = 1024
KEEP_ALIVE: Final = 30
"""Seconds that a connection may be idle between two requests: longer than proxies keep it, so that they close first."""
UNANSWERED_MS: Final = 30_000
"""Milliseconds after which the kernel drops a peer that acknowledges nothing (half-open) or reads nothing."""
_SPARE_FILES: Final = 256
"""File descriptors for stores, notifiers and logs, in addition to the connections."""

_log = logging.getLogger("holdlog")


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind the listening socket. Raises InvalidError with one line with what to do."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise InvalidError("host: is not an address of this machine; try --host 127.0.0.1") from None
    family, kind, number, _, address = min(found, key=lambda it: it[0] != socket.AF_INET)
    bound = socket.socket(family, kind, number)
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        _notice_dead_peers(bound)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise InvalidError(f"host: {host} is not an address of this machine; try --host 127.0.0.1") from None
        raise InvalidError(
            f"port: {host} port {port} cannot be used ({os.strerror(error.errno or 0)});"
            " choose another with --port, or --port 0 for any free one"
        ) from None
    bound.setblocking(False)
    return bound


def url_of(bound: socket.socket) -> str:
    """The URL for clients on this machine."""
    host, port, *_ = bound.getsockname()
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def server_of(
    app: ASGIApp,
    options: HttpOptions,
    ending: Shutdown,
    on_ready: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """The server that serves on the sockets given to its `run` until SIGTERM or SIGINT, which sets `ending` first.

    `on_ready`: called when requests are accepted. A second signal ends the process immediately.
    """
    most = _files(options.max_connections + _SPARE_FILES) - _SPARE_FILES
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # one bad request is not worth a log line
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        app,
        http=_protocol(max(1, most)),
        loop="auto",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(options.trusted_proxies),
        forwarded_allow_ips=list(options.trusted_proxies),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=ANSWERED_WITHIN,
        backlog=BACKLOG,
        lifespan="on",
    )
    return _Server(config, options.drain, ending, on_ready)


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        drain: float,
        ending: Shutdown,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._ending = ending
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def main_loop(self) -> None:
        await super().main_loop()
        self._ending.began = True
        await asyncio.sleep(self._drain)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                connection.end_if_due(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if threading.current_thread() is threading.main_thread():
            last = threading.Timer(SHUTDOWN_SECONDS, _give_up)
            last.daemon = True
            last.start()
        asyncio.get_running_loop().call_soon(self._ending.finish)  # uvicorn calls this once it accepts nothing more
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does, except that a requested shutdown is not a failure: the process exits
        normally."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)  # memory holds nothing that must be saved: acknowledged writes are in the store
        self.should_exit = self._ending.began = True


def _is_news(record: logging.LogRecord) -> bool:
    """Whether to log a record. Calls cut at shutdown are not errors, and a traceback adds nothing."""
    return not (record.exc_info and record.exc_info[0] is asyncio.CancelledError)


def _give_up() -> None:
    _log.error("the shutdown took more than %.0f seconds; closing the remaining connections", SHUTDOWN_SECONDS)
    os._exit(1)


def _protocol(most: int) -> type[Connection]:
    class Bounded(Connection):
        most_connections = most

    return Bounded


def _notice_dead_peers(bound: socket.socket) -> None:
    """Make the kernel detect dead peers. Accepted sockets inherit the options on Linux; elsewhere the bounds in
    connections.py must suffice."""
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", UNANSWERED_MS),
    ):
        if hasattr(socket, name):
            with suppress(OSError):
                bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _files(wanted: int) -> int:
    """The process's limit of open files, raised towards `wanted` as far as the system allows."""
    try:
        import resource
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
        return more
    return soft
