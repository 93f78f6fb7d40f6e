"""Runs a hook that has no server of its host: it opens the store itself, which takes most of its time."""

import argparse
from pathlib import Path
from typing import Any

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.cli.settings import WorkspaceOptions, add_options, given_options, policy_settings, workspaces_of
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.binding import BoundServer
from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.claiming import perform
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.claims.lease import BY_LEASE
from holdlog.domain.refusals import ReadOnlyError


def perform_alone(call: HookCall, store: Path, files: HookFiles, server: BoundServer | None) -> dict[str, Any]:
    """Do what the event requires, and return the output for the host. Raises HoldlogError, OSError, LocationError."""
    options = argparse.ArgumentParser(add_help=False)
    add_options(options, WorkspaceOptions)
    add_options(options, Settings)
    found = options.parse_args([])
    given = policy_settings() | given_options(Settings, found) | {"workspaces": workspaces_of(found)}
    engine = open_holdlog(store, Settings(**given), SessionId("hook", call.session), "hook", report=lambda line: None)
    if why := getattr(engine.store, "why_read_only", None):
        engine.close()
        raise ReadOnlyError(why)
    engine.kept_by = server.server if server is not None else BY_LEASE
    try:
        return perform(RequestContext(engine, engine.caller), call, files, server)
    finally:
        engine.close()
