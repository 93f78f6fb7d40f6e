"""`POST /hook`: the hooks of hosts that call a URL instead of a command."""

import asyncio
import logging
from typing import Any, Final

from pydantic import TypeAdapter
from starlette.responses import Response

from holdlog.adapters.hooks.calls import Event, NotAHookCallError
from holdlog.adapters.hooks.remote import perform_remote
from holdlog.adapters.http.answers import json_response
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import JSON, Answer, ApiRoute, HttpOperation, Parameter
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import Caller
from holdlog.domain.refusals import InvalidError

SECONDS: Final = 4.0
"""Hosts wait for the response before each edit."""

_log = logging.getLogger("holdlog")


async def _hook(request: HttpRequest) -> Response:
    """Whatever fails behind authentication and limits lets the host continue. Raises InvalidError for a body that is
    not a hook call: by default, hosts continue after that, too."""
    context, loop = request.context, asyncio.get_running_loop()

    def check(command: AnyCommand, caller: Caller) -> None:
        checking = context.engine.check_async(command, caller)
        asyncio.run_coroutine_threadsafe(checking, loop).result(SECONDS)

    given, unreadable = None, None
    try:
        given = await request.json()
    except InvalidError as error:
        unreadable = error  # after perform_remote has logged it
    work = asyncio.to_thread(perform_remote, context, given, request.query.get("event"), check)
    try:
        return json_response(await asyncio.wait_for(work, SECONDS))
    except NotAHookCallError as error:
        raise unreadable or InvalidError(str(error)) from None
    except TimeoutError:
        _log.warning("a hook took longer than %.0f s; its edit was not guarded", SECONDS)
    except Exception:
        _log.exception("a hook failed; its edit was not guarded")
    return json_response({})


_EVENT: Final = Parameter(
    "event",
    "What happens, for hosts whose JSON has no hook_event_name",
    TypeAdapter(Event),
)

routes: Final = [
    ApiRoute(
        "/hook",
        POST=HttpOperation(
            _hook,
            "A hook of an agent's host",
            {200: Answer("What the host reads: empty if it may continue, or if the hook failed.", dict[str, Any])},
            "The host's JSON, as it passes it to a command (docs/hosts.md). Claims files of the server's workspaces.",
            (_EVENT,),
            body={JSON: Any},
            refusals=(*HttpOperation.refusals, 415),
        ),
    )
]
