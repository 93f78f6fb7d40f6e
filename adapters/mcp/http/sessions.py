"""Sessions of clients that use 2025-11-25 or older: only a subscription and its stream need one (decision 0025).

An id costs nothing: the first stream or subscription creates its state, which ends soon after the last one.
"""

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from mcp.server.connection import Connection
from mcp.server.runner import aclose_shielded
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from holdlog.adapters.mcp.http.exchange import Exchange, notification
from holdlog.adapters.mcp.resources.subscriptions import GIVE_UP

IDLE_SECONDS: Final = 60.0
"""Seconds that a session outlives its last stream or subscription call: time to reconnect."""
MOST_SESSIONS: Final = 4096
MOST_PENDING: Final = 1024
"""Different notifications that wait for a stream; a client that falls further behind must start over."""
MOST_ENDED: Final = 4096
"""Ended ids that are remembered."""
LONGEST_ID: Final = 128

Key = tuple[str | None, str]
"""Principal and id: no caller can use the session of another."""


class HttpSession:
    """The SDK's Outbound, its way to the client: notifications, in order, each pending once."""

    def __init__(self, key: Key) -> None:
        self.connection = Connection(self, protocol_version=LATEST_HANDSHAKE_VERSION, session_id=key[1])
        self.connection.initialized.set()
        self.connection.state[GIVE_UP] = self.end
        self.came = asyncio.Event()
        self.ended = False
        self.subscribed = False
        self.users = 0
        self.reader: object | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._pending: dict[bytes, None] = {}

    def take(self) -> list[bytes]:
        """The notifications to send now."""
        notifications = list(self._pending)
        self._pending.clear()
        self.came.clear()
        return notifications

    def end(self) -> None:
        self.ended = True
        self.came.set()

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        self._pending[notification(method, params)] = None
        self.came.set()
        if len(self._pending) > MOST_PENDING:
            self.end()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)


class HttpSessions:
    """The sessions of one replica, for coroutines of one loop."""

    def __init__(self, idle: float = IDLE_SECONDS) -> None:
        self.open: dict[Key, HttpSession] = {}
        self.calls: dict[tuple[Key, str | int], Exchange] = {}
        self._idle = idle
        self._ended: dict[Key, bool] = {}
        self._here = secrets.token_hex(8)
        self._closing: set[asyncio.Task[None]] = set()
        self._over = False

    def new(self) -> str:
        """A new id that cannot be guessed; it names the replica that issued it."""
        return f"{self._here}-{secrets.token_urlsafe(24)}"

    def ended(self, key: Key) -> bool:
        """Whether its client ended the session here."""
        return self._ended.get(key, False)

    @contextmanager
    def use(self, key: Key) -> Iterator[HttpSession | None]:
        """The session while it is used. None: it ended, its subscriptions were dropped, it belongs to another replica,
        or there are too many; the client must start over."""
        session = self.open.get(key)
        if session is not None and session.ended:
            self.forget(key)
            session = None
        if session is None:
            if self._over or key in self._ended or not self._is_ours(key[1]) or not self._has_capacity():
                yield None
                return
            session = self.open[key] = HttpSession(key)
        session.users += 1
        if session.timer is not None:
            session.timer.cancel()
        try:
            yield session
        finally:
            session.users -= 1
            if session.ended:
                self.forget(key)
            elif not session.users:
                session.timer = asyncio.get_running_loop().call_later(self._idle, self.forget, key)

    def end(self, key: Key) -> None:
        """End the session for its client: cancel its calls, and refuse every later request with its id."""
        self.forget(key)
        self._remember(key, True)
        for exchange in [it for (owner, _), it in self.calls.items() if owner == key]:
            exchange.cancel()  # a claim acquired after this would have a holder that can no longer release it

    def forget(self, key: Key) -> None:
        """Drop the session's state. Its calls continue; a subscriber finds out when it requests its stream."""
        if (session := self.open.pop(key, None)) is not None:
            if session.subscribed:
                self._remember(key, False)
            session.end()
            if session.timer is not None:
                session.timer.cancel()
            closing = asyncio.ensure_future(aclose_shielded(session.connection))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    @contextmanager
    def running(self, key: Key | None, exchange: Exchange) -> Iterator[None]:
        """Register a call, so that its client can cancel it by its id."""
        if key is None:
            yield
            return
        request = (key, exchange.request_id)
        self.calls[request] = exchange
        try:
            yield
        finally:
            if self.calls.get(request) is exchange:
                del self.calls[request]

    def cancel(self, key: Key, identity: str | int) -> None:
        if (exchange := self.calls.get((key, identity))) is not None:
            exchange.cancel()

    def finish(self) -> None:
        """End every stream; no sessions from now on."""
        self._over = True
        for key in list(self.open):
            self.forget(key)

    async def close(self) -> None:
        self.finish()
        if self._closing:
            await asyncio.wait(set(self._closing))

    def _is_ours(self, given: str) -> bool:
        return given.startswith(self._here) and len(given) <= LONGEST_ID

    def _has_capacity(self) -> bool:
        """Whether there is room for another session; evicts the one that was idle longest."""
        if len(self.open) >= MOST_SESSIONS:
            idle = next((key for key, session in self.open.items() if not session.users), None)
            if idle is None:
                return False
            self.forget(idle)
        return True

    def _remember(self, key: Key, ended: bool) -> None:
        if len(key[1]) <= LONGEST_ID:
            self._ended[key] = ended
            if len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]
