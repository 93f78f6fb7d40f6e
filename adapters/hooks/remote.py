"""Hooks that a host posts to a server over HTTP: the server does the work, with the grants of the token."""

import os
from pathlib import Path
from typing import Any

from holdlog.adapters.hooks.binding import BoundServer
from holdlog.adapters.hooks.calls import BadInputError, HookCall, NotAHookCallError, parse
from holdlog.adapters.hooks.claiming import perform
from holdlog.adapters.hooks.holder import Check
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.problems import add_problem, is_new_problem
from holdlog.adapters.hooks.session import own_session
from holdlog.adapters.operating_system.location import is_url, state_location
from holdlog.adapters.operating_system.private import make_private_folder
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.claims.lease import BY_LEASE
from holdlog.domain.refusals import HoldlogError


def perform_remote(context: RequestContext, given: object, event: str | None, check: Check) -> dict[str, Any]:
    """Do what the event requires, and return the output for the host: empty if that fails, which is logged for the next
    start of a session. `check`: raises for a name that belongs to somebody else. Raises NotAHookCallError, which is
    logged, too."""
    files: HookFiles | None = None
    try:
        files = _files_of(context)
        call = parse(given, event)
        return {} if call is None else _perform(context, call, files, check)
    except (HoldlogError, OSError, ValueError) as error:
        if files is not None:
            files.record_failure(event or "hook", _describe(error, context))
        if isinstance(error, NotAHookCallError):
            raise
        return {}


def _perform(context: RequestContext, call: HookCall, files: HookFiles, check: Check) -> dict[str, Any]:
    workspaces = context.engine.settings.workspaces
    if workspaces is None or not workspaces.covers(call.folder):
        raise BadInputError("cwd: is not in a workspace of the server")
    # A caller may be on another machine: the server opens no file for it that nobody could claim.
    paths = (path for path in call.paths if workspaces.covers(path) and not files.is_of_store(path))
    call = call._replace(paths=tuple(paths))
    caller = context.caller.model_copy(update={"server": BY_LEASE})
    bound = BoundServer(BY_LEASE, own_session(call, context.engine.identity))
    output = perform(context._replace(caller=caller), call, files, bound, check)
    if is_new_problem(call, files):
        files.record_failure(call.event, f"{call.problem}; the edit is not guarded")
        return add_problem(call, output)
    return output


def _describe(error: Exception, context: RequestContext) -> str:
    """An error in one line for a caller, who must not learn where the server keeps its files."""
    if isinstance(error, HoldlogError):
        return context.requests.rules.describe(error)
    return str(error) if isinstance(error, BadInputError) else type(error).__name__


def _files_of(context: RequestContext) -> HookFiles:
    """Next to the store, or, for a database, in the user's folder; one folder for each principal, because session ids
    are what callers say. Raises LocationError, BadInputError, StoreError, OSError."""
    engine = context.engine
    owner = (
        ""
        if context.caller.principal is None
        else engine.identity.session("hook", f"principal {context.caller.principal}")
    )
    if isinstance(engine.location, Path):
        return HookFiles(engine.location, owner)
    if not is_url(engine.location):
        raise BadInputError("a store in memory has no hooks")
    folder = state_location(os.environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    make_private_folder(folder)
    return HookFiles(folder / str(engine.read_now(lambda reader: reader.meta("store_id"))), owner)
