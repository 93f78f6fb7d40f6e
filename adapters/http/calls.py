"""How operations are carried out for callers over HTTP, and how their results are responses."""

import asyncio
import math
import secrets
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Self

from starlette.responses import Response
from starlette.types import Receive

from holdlog.adapters.auth.access import Access, respond
from holdlog.adapters.auth.authenticate import Authenticator, JwtVerifier
from holdlog.adapters.auth.quota import Quota
from holdlog.adapters.engine.conversations import require_session, require_text
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.http.metrics import LOG, Metrics
from holdlog.adapters.operations.async_steps import AsyncSteps
from holdlog.adapters.operations.base import Operation
from holdlog.adapters.operations.json import BUG, Object, refusal_to_object, to_text
from holdlog.adapters.operations.surface import Names, Surface, find_wait
from holdlog.domain.claims.holder import RECEIPT
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.refusals import HoldlogError

if TYPE_CHECKING:
    from holdlog.adapters.cli.settings import Settings

CODES: Final = {
    "error": 400,
    "denied": 403,
    "not_found": 404,
    "busy": 409,
    "conflict": 409,
    "deadlock": 409,
    "exists": 409,
    "expired": 409,
    "fenced": 409,
    "not_holder": 409,
    "unavailable": 503,
}
"""Of statuses; 200 of all others."""
_REPEATED: Final = "request_id: this id belongs"
SAFE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def render(response: Object, code: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    status = response["status"]
    code = code or (500 if response is BUG else CODES.get(status, 200))
    more = dict(headers or {})
    if status == "unavailable":
        more["retry-after"] = str(math.ceil(response["retry_after"]))
    elif status == "error" and response["message"].startswith(_REPEATED):
        code = 422
    return Response(to_text(response), code, SAFE | more, "application/json")


def fail(code: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return render({"status": "error", "message": message}, code, headers)


QUICK: Final = 0.05
"""Seconds after which the client of a call is watched."""


class Cancellable:
    """A block that is cancelled, without an error, when its client disconnects, or by `cancel`. Most calls end before
    it is worth to watch the client. `ping_every`: seconds between calls of `ping` meanwhile."""

    is_cancelled = is_gone = False

    def __init__(self, receive: Receive, ping_every: float | None = None) -> None:
        self._receive = receive
        self._ping_every = ping_every
        self._watching: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._task: Any = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(QUICK, self._start)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        is_ours = self.is_cancelled and kind is asyncio.CancelledError
        return is_ours and self._task.uncancel() == 0

    def cancel(self) -> None:
        self.is_cancelled = True
        self._task.cancel()

    async def ping(self) -> None:
        """Show the client that its call still runs."""

    def _start(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """The body has been read, so what comes next is that the client has gone."""
        gone = asyncio.ensure_future(self._receive())
        try:
            while not (await asyncio.wait((gone,), timeout=self._ping_every))[0]:
                await self.ping()
        finally:
            gone.cancel()
        self.is_gone = True
        self.cancel()


class Calls(AsyncSteps):
    """What all routes share: the engine, who calls, and how operations are carried out. `ending` is set when the server
    ends; then no call waits any more. Each surface has a `Surface`, which names operations as its callers do."""

    in_pool = AsyncSteps._in_pool

    def __init__(
        self, engine: Engine, names: Names, jwt: JwtVerifier | None, is_open: bool, settings: "Settings"
    ) -> None:
        self._engine = self.engine = engine
        self.names, self.settings = names, settings
        self.surface = self.make_surface("")
        self.authenticator = Authenticator(self._read, jwt, is_open)
        self.quota = Quota(settings.open_tokens, settings.space_bytes, self._read, self._submit)
        self.metrics = Metrics(engine)
        self.ending = asyncio.Event()

    def make_surface(self, prefix: str) -> Surface:
        """A surface whose texts name operations with a prefix."""
        return Surface(self.engine, self.names, self.settings.max_wait, lambda name: prefix + name)

    def name_caller(self, access: Access, session: str | None, request_id: Any, correlation_id: Any) -> Caller:
        """Who makes a call, in a session or without one. Raises InvalidError."""
        if request_id is not None:
            request_id = require_text("request_id", request_id)
            request_id = request_id if access.space is None else f"{access.space}/{request_id}"
        if correlation_id is not None:
            correlation_id = require_text("correlation_id", correlation_id)
        lease = round(self.settings.lease_seconds * SECOND)
        caller = Caller("", access.principal, request_id, correlation_id, lease=lease)
        if session is None:
            return caller._replace(session=RECEIPT + secrets.token_hex(8), is_anonymous=True)
        return caller._replace(session=require_session(session), is_shared=True)

    async def respond(
        self, kind: type[Operation], arguments: Any, caller: Caller, access: Access, surface: Surface | None = None
    ) -> Object:
        """Carry out an operation, if the caller may call it, and return the object for the caller: a result, or why
        there is none. A call that is cancelled leaves its place in a queue."""
        surface = surface or self.surface
        try:
            operation = surface.parse(kind, arguments)
            with self.metrics.waiters.track_inprogress() if find_wait(operation) else nullcontext():
                response = await self.carry_out(operation, caller, access, surface)
        except HoldlogError as refusal:
            response = access.remove_space(surface.name(refusal_to_object(refusal)))
        except Exception:
            LOG.exception("a call failed")
            response = BUG
        self.metrics.count(kind.name, response)
        return response

    async def carry_out(self, operation: Operation, caller: Caller, access: Access, surface: Surface) -> Object:
        """As `respond`, of arguments that have been checked. Raises HoldlogError."""
        access.check(operation, self.names.format_name)
        await self.authenticator.check_author(operation, access)
        waits = find_wait(operation)
        if waits is not None and not self.ending.is_set():
            response: Object | None = await self._make_until(self.ending, respond(access, operation, caller, surface))
            if response is not None:
                return response
        if waits is not None:
            operation = operation.model_copy(update={waits: 0})
        async with self.quota.check(operation, access):
            result: Object = await self._make(respond(access, operation, caller, surface))
            return result
