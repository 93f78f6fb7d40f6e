"""One HTTP request while it runs: notifications before its response, and cancellation by the client."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
from mcp.server.runner import modern_error_data
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCRequest
from starlette.requests import Request
from starlette.types import Receive, Scope

from holdlog.adapters.mcp.http.reply import PING_EVERY, Reply

QUICK: Final = 0.05
"""Seconds within which most calls finish. Only slower calls are watched for a client that disconnects."""
LISTEN: Final = "subscriptions/listen"
REQUEST_CANCELLED: Final = -32800
"""Response to a request that its client cancelled; up to 2025-11-25 every request must have a response."""

_CANCELLED: Final = ErrorData(code=REQUEST_CANCELLED, message="the request was cancelled")
_log = logging.getLogger("holdlog")


class Exchange:
    """The SDK's DispatchContext of a request: sends notifications; can ask the client nothing."""

    can_send_request = False

    def __init__(
        self, request: JSONRPCRequest, scope: Scope, headers: Mapping[str, str], receive: Receive, reply: Reply
    ) -> None:
        self.request_id = request.id
        self.transport = TransportContext(kind="streamable-http", can_send_request=False, headers=headers)
        self.message_metadata = ServerMessageMetadata(request_context=Request(scope), can_send_request=False)
        self.cancel_requested = anyio.Event()
        self.gone = False
        self._token = progress_token_from_params(request.params)
        self._receive = receive
        self._reply = reply
        self._scope = anyio.CancelScope()
        self._watching: asyncio.Task[None] | None = None
        self._still = scope["state"]["served"].still if request.method == LISTEN else None

    async def outcome(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any] | ErrorData | None:
        """The result of `work`. The work is cancelled when the client disconnects (then returns None) or cancels the
        request."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(QUICK, self._start_watching, loop)
        try:
            with self._scope:
                return await work()
        except Exception as error:
            return modern_error_data(error)
        finally:
            timer.cancel()
            if self._watching is not None:
                self._watching.cancel()
        return None if self.gone else _CANCELLED

    def cancel(self) -> None:
        self.cancel_requested.set()
        self._scope.cancel()

    # --- called by the SDK

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        try:
            await self._reply.event(notification(method, params))
        except TimeoutError:
            self._disconnect()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._token is not None:
            params = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
            await self.notify("notifications/progress", {name: it for name, it in params.items() if it is not None})

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    # --- the client disconnects

    def _start_watching(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching = loop.create_task(self._watch())

    async def _watch(self) -> None:
        gone = asyncio.ensure_future(disconnected(self._receive))
        try:
            while not gone.done():
                await asyncio.wait({gone}, timeout=PING_EVERY)
                if self._still is not None and not await self._still():
                    break
                if not gone.done():
                    await self._reply.ping()
        except TimeoutError:
            pass
        finally:
            gone.cancel()
        self._disconnect()

    def _disconnect(self) -> None:
        self.gone = True
        self.cancel()


async def disconnected(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def notification(method: str, params: Mapping[str, Any] | None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _text(message)


def answered(identity: str | int, outcome: dict[str, Any] | ErrorData) -> bytes:
    """The JSON-RPC response."""
    if isinstance(outcome, ErrorData):
        return refused(identity, outcome)
    try:
        return _text({"jsonrpc": "2.0", "id": identity, "result": outcome})
    except Exception as error:
        _log.warning("a response could not be written as JSON: %s", type(error).__name__)
        return refused(identity, ErrorData(code=INTERNAL_ERROR, message="the response cannot be written as JSON"))


def refused(identity: str | int | None, error: ErrorData) -> bytes:
    return _text({"jsonrpc": "2.0", "id": identity, "error": error.model_dump(mode="json", exclude_none=True)})


def _text(message: dict[str, Any]) -> bytes:
    # ASCII: some clients treat U+2028 in an event as the end of its line.
    return json.dumps(message, separators=(",", ":")).encode()
