"""Limits on the concurrent requests and the requests per minute of one principal. ASGI middleware.

Unauthenticated clients are counted by address. Servers share no counts: two servers allow twice as much.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdlog.adapters.http.answers import failed
from holdlog.adapters.http.edge.addresses import address_of
from holdlog.adapters.http.edge.buckets import Bucket
from holdlog.adapters.http.edge.request_checks import UNHOSTED
from holdlog.adapters.http.options import HttpOptions

MINUTE: Final = 60.0
MOST_REMEMBERED: Final = 10_000
"""Principals and addresses that are remembered; the least recently active are forgotten first."""
NEW_TOKENS: Final = 60
"""Tokens that POST /token issues per address and hour: each creates a store."""


class ClientUsage:
    """The current requests of one principal, and its usage in the last minute."""

    __slots__ = ("in_flight", "requests", "tokens", "upload")

    def __init__(self, options: HttpOptions, now: float) -> None:
        self.requests = Bucket(options.max_requests, MINUTE, now)
        self.upload = Bucket(options.max_upload, MINUTE, now)
        self.tokens = Bucket(NEW_TOKENS, 60 * MINUTE, now)
        self.in_flight = 0


class RequestLimits:
    """Apply the limits, behind authentication. `clock`: monotonic seconds."""

    def __init__(self, app: ASGIApp, options: HttpOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._options = options
        self._clock = clock
        self._uses: OrderedDict[str, ClientUsage] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNHOSTED:
            await self._app(scope, receive, send)
            return
        now = self._clock()
        use = self._use(_who(scope), now)
        if (over := self._over(use, scope, now)) is not None:
            message, seconds = over
            await failed(message, 429, {"retry-after": str(seconds)})(scope, receive, send)
            return
        use.requests.take()
        use.in_flight += 1
        try:
            has_body = scope["method"] not in ("GET", "HEAD")
            await self._app(scope, _counting(receive, use.upload) if has_body else receive, send)
        finally:
            use.in_flight -= 1

    def _over(self, use: ClientUsage, scope: Scope, now: float) -> tuple[str, int] | None:
        """The exceeded limit, and the seconds until it no longer is."""
        most = self._options.max_in_flight
        if most and use.in_flight >= most:
            return f"more than {most} calls at once (--max-in-flight); wait for a response, then try again", 1
        if not use.requests.has(now):
            return (
                f"more than {self._options.max_requests} calls a minute (--max-requests); wait for Retry-After seconds",
                use.requests.seconds(),
            )
        if not use.upload.has(now):
            return (
                f"more than {self._options.max_upload} bytes per minute (--max-upload); wait for Retry-After seconds",
                use.upload.seconds(),
            )
        if scope["path"] == "/token" and scope["method"] == "POST":
            if not use.tokens.has(now):
                return f"more than {NEW_TOKENS} new tokens per hour; wait for Retry-After seconds", use.tokens.seconds()
            use.tokens.take()
        return None

    def _use(self, who: str, now: float) -> ClientUsage:
        use = self._uses.get(who)
        if use is None:
            if len(self._uses) >= MOST_REMEMBERED:
                self._forget()
            use = self._uses[who] = ClientUsage(self._options, now)
        else:
            self._uses.move_to_end(who)
        return use

    def _forget(self) -> None:
        """Forget the least recently active client; one with calls in flight is more recent than it seems."""
        for who in self._uses:
            if not self._uses[who].in_flight:
                del self._uses[who]
                return


def _who(scope: Scope) -> str:
    context = scope.get("state", {}).get("served")
    if context is None or context.caller.principal is None:
        return f"@{address_of(scope)}"
    return str(context.caller.principal)


def _counting(receive: Receive, upload: Bucket) -> Receive:
    async def counting() -> Message:
        message = await receive()
        if body := message.get("body"):
            upload.take(len(body))
        return message

    return counting
