"""`holdlog doctor PATH`: which rule of `holdlog.toml` applies to a path, and why."""

import json
import os
import shlex
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.operating_system.location import LocationError
from holdlog.adapters.operating_system.paths import Workspace
from holdlog.adapters.policy.in_force import (
    FolderRule,
    head_of,
    policy_at,
    project_policy,
    rule_in,
    uncommitted_policy,
)
from holdlog.adapters.policy.policy import FILE
from holdlog.adapters.stores.event_log.findings import Level
from holdlog.adapters.stores.sqlite.held import lease_file
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.operating_system.workspaces import Workspaces

_MEANINGS: Final = {
    "block": "an edit is denied while another live session holds it",
    "warn": "an edit is allowed, with a warning while another session holds it",
    "human": "only a person may change {}",
}


def examine_path(path: str, as_json: bool) -> int:
    """Print what applies to a path. Returns the exit code: 1 if `holdlog.toml` is wrong, committed or not. Raises
    InvalidError, LocationError."""
    from holdlog.adapters.cli.settings import workspaces_here
    from holdlog.adapters.cli.store import mark, print_line
    from holdlog.adapters.cli.texts import printable

    workspaces = workspaces_here()
    given = f"{path}/" if os.path.isdir(path) and not path.endswith("/") else path
    workspace, inside, resource = _located(workspaces, given)
    own = policy_at(workspace.root).policy.rule(inside, workspace.folds)
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    rule, below, is_complete = rule_in(workspace, inside, os.path.abspath(path)) if is_folder else FolderRule(own)
    because_of = f"{inside}{below}" if below else None
    facts = {
        "rule": rule.mode,
        "across_worktrees": own.across_worktrees,
        "glob": rule.glob,
        "line": rule.line,
        "because_of": because_of,
        "path": inside or ".",
        "workspace": workspace.name,
        "resource": resource,
    }
    policy = describe_policy(workspace.root)
    code = 1 if policy["problem"] or policy["uncommitted_problem"] else 0
    if as_json:
        print_line(json.dumps({**facts, "policy": policy}, indent=2))
        return code
    why = f"{json.dumps(rule.glob)} in {rule.source}" if rule.line else "the default; no glob matches"
    name = f"; resource {resource}" if resource is not None else ", its root, which cannot be claimed"
    print_line(printable(f"path       {inside or '.'} in workspace {workspace.name}{name}", kept=""))
    meaning = _MEANINGS[rule.mode].format(because_of or "it")
    print_line(printable(f"rule       {rule.mode}: {meaning} ({why})", kept=""))
    if not is_complete:
        print_line(
            "           not every file was examined; those that only a person may change may be among the others"
        )
    scope = "all worktrees share one claim" if own.across_worktrees else "each worktree has its own"
    print_line(f"worktrees  {scope}")
    level, text = policy_finding(policy)
    print_line(f"{mark(level, sys.stdout)} {printable(text, kept='')}")
    return code


def _located(workspaces: "Workspaces", path: str) -> tuple[Workspace, str, str | None]:
    """The workspace of a path, the path in it, and its resource: "" and None for the root. Raises InvalidError."""
    full = path if "://" in path else os.path.abspath(path) + ("/" if path.endswith("/") else "")
    if os.path.isdir(path) and (workspace := workspaces.with_root(full)) is not None:
        return workspace, "", None
    try:
        resource, found = workspaces.shown(workspaces.canonical(full)), workspaces.located(full)
    except ValueError as error:
        if "://" in path or workspaces.covers(full):
            raise InvalidError(f"PATH: {error}") from None
        resource, found = "", None
    if found is not None:
        return *found, resource
    if resource.startswith("custom://"):
        raise InvalidError(f"PATH: {path} is not a file; rules of holdlog.toml apply to files only")
    raise InvalidError(
        f"PATH: {path} is in no workspace here, so no rule of holdlog.toml applies; run this in its repository, or"
        " name its folder under [workspaces] in holdlog.toml"
    )


def describe_policy(root: str | Path) -> dict[str, Any]:
    """Which `holdlog.toml` is in force in a folder: `commit` (None without git), whether there is one, whether the file
    differs from it, why it is not in force, and what is wrong with the file that differs."""
    found, edited = policy_at(root), uncommitted_policy(root)
    return {
        "file": FILE,
        "commit": head_of(root),
        "exists": found.content is not None,
        "uncommitted": edited is not None,
        "problem": found.problem,
        "uncommitted_problem": edited and edited.problem,
    }


def policy_finding(policy: dict[str, Any]) -> tuple[Level, str]:
    """The level of what `describe_policy` found, and a line about it."""
    problem = policy["uncommitted_problem"]
    wrong = f"; the uncommitted file is wrong: {problem}" if problem else ""
    if policy["problem"]:
        is_fixed = policy["exists"] and policy["uncommitted"]
        edits = wrong or ("; the uncommitted change is valid: commit it" if is_fixed else "")
        return "warn", f"{policy['problem']}; the defaults apply{edits}"
    where = f"at commit {policy['commit']}" if policy["commit"] else "in this folder"
    if policy["exists"]:
        edits = wrong or ("; changes that are not committed are not in force" if policy["uncommitted"] else "")
        return "warn" if edits else "ok", f"{FILE} {where} is in force{edits}"
    if policy["uncommitted"]:
        return "warn", f"{FILE} is not committed, so it is not in force{wrong}"
    return "ok", f"there is no {FILE}; the defaults apply"


def project_finding() -> tuple[Level, str] | None:
    """The line for `holdlog doctor` without a path; None if there is nothing to say."""
    root, _ = project_policy(os.environ, Path.cwd())
    policy = None if root is None else describe_policy(root)
    if policy is None or not (policy["exists"] or policy["uncommitted"] or policy["problem"]):
        return None
    return policy_finding(policy)


def gone_finding(location: Path | str) -> tuple[Level, str] | None:
    """A line about claims of files whose worktree or folder is gone; None if there are none."""
    if not isinstance(location, Path):
        return None
    from holdlog.adapters.cli.settings import workspaces_here

    with suppress(sqlite3.Error, LocationError), lease_file(location) as leases:
        gone = list(filter(workspaces_here().is_gone, leases.resources()))
        if gone:
            return "warn", (
                f"the folder of {len(gone)} claim{'s' if len(gone) > 1 else ''} is gone, the first: {gone[0]};"
                f" to release it: holdlog release {shlex.quote(gone[0])} --force --reason TEXT"
            )
    return None
