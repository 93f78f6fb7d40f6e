"""Hooks that a host posts to a server over HTTP: the server does the work, with the grants of the token."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdlog.adapters.hooks.binding import BoundServer
from holdlog.adapters.hooks.calls import (
    BadInputError,
    HookCall,
    NotAHookCallError,
    ask_afterwards,
    is_denial,
    parse,
)
from holdlog.adapters.hooks.claiming import perform
from holdlog.adapters.hooks.command_guard import source_of
from holdlog.adapters.hooks.commands import before_command
from holdlog.adapters.hooks.files import GitCommand
from holdlog.adapters.hooks.git import read_git
from holdlog.adapters.hooks.guarding import with_named
from holdlog.adapters.hooks.holder import Check, Holder
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.problems import add_problem, is_new_problem
from holdlog.adapters.hooks.session import own_session, session_of
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
    git = tuple(command for command in call.git if _is_inside(command, workspaces.covers))
    problem = "" if git == call.git else "a git command may work outside of the server's workspaces"
    call = with_named(call._replace(git=git, problem=call.problem or problem))
    paths = (path for path in call.paths if workspaces.covers(path) and not files.is_of_store(path))
    call = call._replace(paths=tuple(paths))
    caller = context.caller.model_copy(update={"server": BY_LEASE})
    own = own_session(call, context.engine.identity)
    bound, context = BoundServer(BY_LEASE, own), context._replace(caller=caller)
    output = perform(context, call, files, bound, check)
    if call.event == "pre-edit" and (call.reports or call.git) and not is_denial(output):
        session = session_of(call, bound, context.engine.identity).held_by
        source = source_of(call, Holder(context, session, check), own, files, files.read(session))
        if before_command(call, source, session):
            output |= ask_afterwards(call)
    if is_new_problem(call, files):
        files.record_failure(call.event, f"{call.problem}; the edit is not guarded")
        return add_problem(call, output)
    return output


def _is_inside(command: GitCommand, covers: Callable[[str], bool]) -> bool:
    """Whether a git command certainly runs in a workspace: its global options may name other folders."""
    actions = read_git(command, {})
    return covers(command.folder) and all(covers(action.folder) and not action.options for action in actions)


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
