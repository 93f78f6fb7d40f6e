"""`holdlog serve --transport http`: starts, reports its address, and ends without losing a call."""

import gc
import logging
import os
import signal
import socket
from importlib import import_module
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdlog.adapters.auth.authenticate import read_options
from holdlog.adapters.cli.texts import print_note
from holdlog.adapters.compose import open_engine
from holdlog.adapters.http.application import build
from holdlog.adapters.http.calls import Calls
from holdlog.adapters.http.mcp import serve_mcp
from holdlog.adapters.mcp.lines import ESCAPED, MAX_LINE
from holdlog.adapters.mcp.tools import choose_groups
from holdlog.adapters.operating_system.location import mask_password, prepare_folder
from holdlog.adapters.operations.tokens import TokenList
from holdlog.adapters.policy.names import CurrentNames
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.cli.settings import Settings

BACKLOG: Final = 1024
KEEP_ALIVE: Final = 75
"""Seconds that a connection may be idle: longer than proxies keep it, so that they close it first."""
LAST_CALLS: Final = 5
"""Seconds for calls to finish after the end: the longest commit."""
MAX_HEAD: Final = 1024 * 1024
"""Bytes of a request before or after its body: the edge, which sees them when they are complete, allows fewer."""


def serve(settings: "Settings") -> int:
    """Serve until a signal comes: then calls that wait are answered, and the store is closed. Raises InvalidError for
    settings, StoreError."""
    tools = choose_groups(settings.tools, settings.tool_prefix), settings.tool_prefix
    jwt = read_options(settings.jwt_issuer, settings.jwt_audience, settings.jwt_jwks_url)
    names = CurrentNames(os.environ, os.getcwd(), settings.db, settings.workspace)
    prepare_folder(settings.db, os.environ)
    engine = open_engine(settings.db, settings.max_value_bytes)
    try:
        is_open = jwt is None and not settings.open_tokens and not engine.query(TokenList(limit=1)).tokens
        if is_open and not _is_loopback(settings.host):
            raise InvalidError("--host: other machines could reach this server; first run holdlog token create")
        calls = Calls(engine, names, jwt, is_open, settings)
        bound = bind(settings.host, settings.port)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # clients cause what it logs
        limit = max(MAX_LINE, ESCAPED * settings.max_value_bytes)
        app = build(calls, limit, settings.allowed_host, [serve_mcp(calls, settings.path, tools, limit)])
        if settings.nats is not None:
            import_module("holdlog.adapters.nats.relay").start(engine, settings.nats)
        config = uvicorn.Config(
            app, http=Protocol, ws="none", log_config=None, access_log=False, server_header=False, backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=LAST_CALLS, proxy_headers=False,
        )  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # uvicorn raises its signal once more at the end
        gc.freeze()  # what the libraries made stays for ever; looking through it costs calls of MCP 8 % of their time
        rest = "anybody who reaches it may call it" if is_open else "tokens are required"
        Server(config, calls, f"the store {mask_password(settings.db)}; {rest}").run([bound])
    finally:
        engine.close()
    return 0


class Protocol(HttpToolsProtocol):
    """Refuses an address, headers or trailers that do not end: uvicorn would keep all of them in memory."""

    _head = 0

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > MAX_HEAD:
            self.send_400_response(f"the address or the headers have more than {MAX_HEAD} bytes")


class Server(uvicorn.Server):
    """Reports its address and `rest` when it accepts requests, and ends the calls that wait when it shuts down."""

    def __init__(self, config: uvicorn.Config, calls: Calls, rest: str) -> None:
        super().__init__(config)
        self._calls = calls
        self._rest = rest

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port, *_ = (sockets or [])[0].getsockname()
        print_note(f"serving at http://{f'[{host}]' if ':' in host else host}:{port}, {self._rest}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._calls.ending.set()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)  # acknowledged writes are in the store
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises InvalidError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise InvalidError("--host: is not an address of this machine; try --host 127.0.0.1") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        text = os.strerror(error.errno or 0)
        raise InvalidError(f"--port: {host} port {port} cannot be used ({text}); choose another") from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
