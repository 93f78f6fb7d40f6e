"""What a hook still does when it runs out of its time, or while the store is locked for writing: it denies an edit of
what another live session holds, as far as the file of the store can be read.

Standard library only and quick to import, but for the policy.
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.hooks.binding import BoundServer
from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.dirty import GitFailedError
from holdlog.adapters.hooks.git import shorten
from holdlog.adapters.hooks.guarding import Source, quick_source
from holdlog.adapters.hooks.inner import worktree_around
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.session import session_of
from holdlog.adapters.hooks.works import held_work
from holdlog.adapters.stores.sqlite.held import HeldResource, lease_file

MAX_EXAMINED: Final = 100
"""Paths of a call: there is no time for more."""


def describe_held(call: HookCall, store: Path, files: HookFiles, server: BoundServer | None) -> str:
    """Why a call is denied, because another live session holds what it changes; empty if none is known to."""
    try:
        with lease_file(store) as leases:
            session = session_of(call, server, Identity(leases.salt)).held_by
            source = quick_source(call, store, files, leases, session)
            held = [it for it in leases.all_held() if not source.party.holds(it)]
            for path in call.real_paths[:MAX_EXAMINED] if held else ():
                agent = _holder(path, held, source)
                if agent and _is_blocked(path):
                    name = f"{shorten(os.path.relpath(path, call.folder))} is held by {shorten(agent)}"
                    return f"holdlog: {name}. Work on something else first, then try again."
    except (sqlite3.Error, OSError, GitFailedError):
        return ""
    return ""


def _holder(path: str, held: Sequence[HeldResource], source: Source) -> str:
    """The agent of another live session that holds a file, or something in a folder; empty if there is none."""
    names = source.names(f"{path}/" if os.path.isdir(path) else path)
    for name in (it for it in names if it == names[0] or it.startswith("file://")):
        for claim in held:
            is_around = claim.resource.endswith("/") and name.startswith(claim.resource)
            is_below = name.endswith("/") and claim.resource.startswith(name)
            if claim.resource == name or is_around or is_below:
                work = held_work(source.sessions, path, "", claim.resource, claim)
                if work.is_live:
                    return work.agent
    return ""


def _is_blocked(path: str) -> bool:
    """Whether the policy denies edits of a file that another session holds."""
    from holdlog.adapters.policy.in_force import policy_at

    root = worktree_around(os.path.dirname(path))
    rule = policy_at(root).policy.rule(os.path.relpath(path, root)) if root else None
    return rule is None or rule.mode != "warn"
