"""Applies `holdlog.toml` to the response of `holdlog check`. It needs no store."""

import argparse
import getpass
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdlog.adapters.cli.settings import location_of, workspaces_of
from holdlog.adapters.operating_system.location import LocationError

if TYPE_CHECKING:
    from holdlog.adapters.api.claims.checks import Checked

_Caller = Literal["agent", "person", "unknown"]


def under_policy(result: "Checked", paths: Sequence[tuple[str, str]], options: argparse.Namespace) -> "Checked":
    """Let files that others hold only warn where the policy says so, and add those that only a person may change. A
    wrong policy is a warning. Raises LocationError, InvalidError."""
    from holdlog.adapters.api.claims.checks import HumanFile
    from holdlog.adapters.policy.in_force import rule_of

    workspaces = workspaces_of(options)
    rules = {shown: rule_of(workspaces.located, path)[1] for shown, path in paths}
    files = [
        it.model_copy(update={"blocks": False, "why_not": "policy"})
        if it.blocks and rules[it.path].mode == "warn"
        else it
        for it in result.files
    ]
    by_person = [(path, rule) for path, rule in rules.items() if rule.mode == "human"]
    caller = _caller(options) if by_person else "person"
    blocks = caller == "agent" or (caller == "unknown" and options.strict)
    human = [
        HumanFile(path=it, blocks=blocks, caller=caller, rule=rule.source)
        for it, rule in by_person
        if caller != "person"
    ]
    status = "ok" if result.status == "held" and not any(it.blocks for it in files) else result.status
    if human and blocks and status != "held":
        status = "human"
    warnings = [*(result.warnings or ()), *_problems_of_policy()]
    facts = {"files": files, "human": human or None, "status": status, "warnings": warnings or None}
    return result.model_copy(update=facts)


def _problems_of_policy() -> list[str]:
    """What is wrong with the `holdlog.toml` in force, and with one that is not committed."""
    from holdlog.adapters.policy.in_force import project_policy, uncommitted_policy

    root, found = project_policy(os.environ, Path.cwd())
    edited = None if root is None else uncommitted_policy(root)
    problems = [f"{found.problem}; the defaults apply"] if found.problem else []
    if edited is not None and edited.problem:
        problems.append(f"{edited.problem}; fix it before you commit it")
    return problems


def _caller(options: argparse.Namespace) -> _Caller:
    """Who runs the check: a person who names themselves is not an agent, unless an agent's host runs it."""
    from holdlog.adapters.hooks.binding import newest_server
    from holdlog.adapters.hooks.session import HOST_SESSION
    from holdlog.adapters.operating_system.ancestry import ancestors

    with suppress(LocationError):
        store = location_of(options.db)
        is_hosted = isinstance(store, Path) and newest_server(store, ancestors(os.getpid())) is not None
        if is_hosted or os.environ.get(HOST_SESSION):
            return "agent"
    if options.agent is None:
        return "unknown" if options.session is None else "agent"
    with suppress(OSError, KeyError):
        return "person" if options.agent == getpass.getuser() else "agent"
    return "agent"
