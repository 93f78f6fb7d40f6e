"""What tools are made of: a declaration, a docstring for the agent, a signature, one request, one response."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import update_wrapper
from typing import Annotated, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from fastmcp import Context
from fastmcp.tools import ToolResult
from mcp_types import TextContent
from pydantic import Field, WithJsonSchema

from holdlog.adapters.api.request import Answered, BlockingQuery, ClaimRequest, CommandRequest, Query
from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.validation import caller
from holdlog.adapters.api.values import presenter, responses
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.message import Caller
from holdlog.domain.refusals import HoldlogError, SealedError, StoreError

PROGRESS_EVERY: Final = 5.0
"""Seconds between progress notifications of a call that waits."""

_log = logging.getLogger("holdlog")
current_context: ContextVar[RequestContext] = ContextVar("holdlog_served")
"""The context of the running call."""

NameList = list[str]
_GUARD: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "resource": {"type": "string"},
            "version": {"type": "integer", "minimum": 1},
            "receipt": {"type": "string"},
        },
        "required": ["resource", "version"],
    },
}
Guards = Annotated[list[dict[str, Any]], WithJsonSchema(_GUARD)]

Arguments = ParamSpec("Arguments")
Group = TypeVar("Group", bound="ToolGroup")


class ToolKind(NamedTuple):
    """One tool as hosts see it: its possible responses, and its effects."""

    name: str
    title: str
    answers: tuple[type[responses.Result], ...]
    read_only: bool
    destructive: bool
    idempotent: bool


def tool(
    title: str,
    *answers: type[responses.Result],
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
) -> Callable[
    [Callable[Concatenate[Group, Arguments], Awaitable[responses.Result]]],
    Callable[Concatenate[Group, Arguments], Awaitable[ToolResult]],
]:
    """Declare a method of a group to be a tool, and turn every outcome of it into a response."""

    def declare(
        body: Callable[Concatenate[Group, Arguments], Awaitable[responses.Result]],
    ) -> Callable[Concatenate[Group, Arguments], Awaitable[ToolResult]]:
        async def respond(group: Group, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> ToolResult:
            receipt: Any = kwargs.get("receipt")
            return await group.respond(body(group, *args, **kwargs), receipt)

        update_wrapper(respond, body)
        respond.kind = ToolKind(body.__name__, title, answers, read_only, destructive, idempotent)  # type: ignore[attr-defined]
        return respond

    return declare


def number(description: str | None = None, **bounds: float) -> Any:
    """The bounds are those of the schema only: requests check them, with errors that name the argument."""
    return Field(description=description, json_schema_extra=dict(bounds))


class ToolGroup:
    """Some tools. Agents read their docstrings; `wait()` in one becomes the tool's full name."""

    def __init__(self, prefix: str, progress_every: float) -> None:
        self.prefix = prefix
        self._progress_every = progress_every

    @classmethod
    def kinds(cls) -> tuple[ToolKind, ...]:
        """The tools, in the order of their declarations."""
        return tuple(method.kind for method in vars(cls).values() if hasattr(method, "kind"))

    @property
    def engine(self) -> Engine:
        return current_context.get().engine

    @property
    def requests(self) -> Requests:
        return current_context.get().requests

    async def write(self, request: CommandRequest[Answered], reason: str | None = None) -> Answered:
        return await self.engine.write_async(request, caller(current_context.get().caller, reason=reason))

    async def read(self, request: Query[Answered]) -> Answered:
        return await self.engine.read_async(request)

    async def claim_or_queue(self, ctx: Context, request: ClaimRequest[Answered]) -> Answered:
        context = current_context.get()
        claiming = self.engine.claim_async(request._replace(still=context.still), context.caller)
        return await _with_progress(ctx, claiming, self._progress_every)

    async def wait_for(self, ctx: Context, request: BlockingQuery[Answered]) -> Answered:
        waiting = self.engine.wait_async(request._replace(still=current_context.get().still))
        return await _with_progress(ctx, waiting, self._progress_every)

    async def respond(self, call: Awaitable[responses.Result], receipt: str | None) -> ToolResult:
        """Return every outcome of a call as a response; only bad arguments, denials and bugs are errors. `receipt`:
        passed by the caller."""
        who = current_context.get().caller
        self.engine.lease_maintenance.record_call(who.session)
        try:
            try:
                result = await call
            except SealedError as error:
                return failed(f"{error}. Nothing was written. Ask the person you work for to start holdlog there.")
            except StoreError as error:
                return failed(f"{self.requests.rules.describe(error)}. Report this to the person you work for.")
            except HoldlogError as refusal:
                result = self.requests.refused(refusal)
            if isinstance(result, responses.Denied | responses.Failed):
                return _error(result)
            return self._answer(await self._with_losses(result, who, receipt))
        except Exception:
            _log.exception("a call failed")
            return failed(
                "internal error of holdlog; report it to the person you work for: details are in holdlog's log on"
                " stderr"
            )

    async def _with_losses(self, result: responses.Result, who: Caller, receipt: str | None) -> responses.Result:
        """Add to the next response of any kind the lost claims of the session, or of the holder of a receipt, once."""
        try:
            losses = await self.engine.losses_async(who, receipt and self.engine.identity.receipt(receipt))
            if not losses:
                return result
            return result.model_copy(update={"lost": await self.engine.read_async(self.requests.claims.lost(losses))})
        except HoldlogError:  # locked, full: the response matters more, and the next one reports the losses
            return result

    def _answer(self, result: responses.Result) -> ToolResult:
        body = result.body()
        if "hint" in body:
            body["hint"] = presenter.named(body["hint"], self.prefix)
        return ToolResult(content=[TextContent(type="text", text=_compact(body))], structured_content=body)


def failed(message: str) -> ToolResult:
    return _error(responses.Failed(message=message))


def _error(result: responses.Result) -> ToolResult:
    return ToolResult(content=[TextContent(type="text", text=_compact(result.body()))], is_error=True)


def _compact(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


async def _with_progress(ctx: Context, waiting: Awaitable[Answered], every: float) -> Answered:
    """Await, and send progress notifications every so many seconds if the client asked for progress."""
    wait = asyncio.ensure_future(waiting)
    waited = 0.0
    try:
        while not wait.done():
            await asyncio.wait([wait], timeout=every)
            if not wait.done():
                waited += every
                await ctx.report_progress(waited, message="still waiting")
        return wait.result()
    finally:
        wait.cancel()
