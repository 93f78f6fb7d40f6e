"""`holdlog doctor PATH`: which rule of `holdlog.toml` applies to a path, and why."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.policy.in_force import (
    FolderRule,
    file_in,
    git_folder_of,
    head_of,
    policy_at,
    project_policy,
    rule_below,
)
from holdlog.adapters.policy.policy import FILE
from holdlog.adapters.stores.event_log.findings import Level
from holdlog.domain.refusals import InvalidError

_MEANINGS: Final = {
    "block": "an edit is denied while another live session holds it",
    "warn": "an edit is allowed, with a warning while another session holds it",
    "human": "only a person may change {}",
}


def examine_path(path: str, as_json: bool) -> int:
    """Print what applies to a path. Returns the exit code: 1 if `holdlog.toml` is wrong. Raises InvalidError,
    LocationError."""
    from holdlog.adapters.cli.settings import WorkspaceOptions, add_options, workspaces_of
    from holdlog.adapters.cli.store import mark, print_line
    from holdlog.adapters.cli.texts import printable

    parser = argparse.ArgumentParser(add_help=False)
    add_options(parser, WorkspaceOptions)
    workspaces = workspaces_of(parser.parse_args([]))
    given = f"{path}/" if os.path.isdir(path) and not path.endswith("/") else path
    try:
        found = workspaces.located(os.path.abspath(given) + ("/" if given.endswith("/") else ""))
        resource = workspaces.canonical(given)
    except ValueError as error:
        raise InvalidError(f"PATH: {error}") from None
    if found is None:
        raise InvalidError("PATH: must be in a workspace, such as a git repository")
    workspace, inside = found
    own = policy_at(workspace.root).policy.rule(inside, workspace.folds)
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    rule, below, is_complete = rule_below(workspaces.located, os.path.abspath(path)) if is_folder else FolderRule(own)
    because_of = f"{inside}{below}" if below else None
    facts = {
        "rule": rule.mode,
        "across_worktrees": own.across_worktrees,
        "glob": rule.glob,
        "line": rule.line,
        "because_of": because_of,
        "path": inside,
        "workspace": workspace.name,
        "resource": resource,
    }
    policy = describe_policy(workspace.root)
    if as_json:
        print_line(json.dumps({**facts, "policy": policy}, indent=2))
        return 1 if policy["problem"] else 0
    why = f"{json.dumps(rule.glob)} in {rule.source}" if rule.line else "the default; no glob matches"
    print_line(printable(f"path       {inside} in workspace {workspace.name}; resource {resource}", kept=""))
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
    return 1 if policy["problem"] else 0


def describe_policy(root: str | Path) -> dict[str, Any]:
    """Which `holdlog.toml` is in force in a folder: `commit` (None without git), whether there is one, whether the file
    differs from it, and why it is not in force."""
    found, file = policy_at(root), file_in(root)
    return {
        "file": FILE,
        "commit": head_of(root),
        "exists": found.content is not None,
        "uncommitted": git_folder_of(root) is not None and file != found.content,
        "problem": found.problem,
    }


def policy_finding(policy: dict[str, Any]) -> tuple[Level, str]:
    """A line about what `describe_policy` found, with its level."""
    if policy["problem"]:
        return "warn", f"{policy['problem']}; the defaults apply"
    where = f"at commit {policy['commit']}" if policy["commit"] else "in this folder"
    if policy["exists"]:
        edits = "; changes that are not committed are not in force" if policy["uncommitted"] else ""
        return "warn" if edits else "ok", f"{FILE} {where} is in force{edits}"
    if policy["uncommitted"]:
        return "warn", f"{FILE} is not committed, so it is not in force"
    return "ok", f"there is no {FILE}; the defaults apply"


def project_finding() -> tuple[Level, str] | None:
    """The line for `holdlog doctor` without a path; None if there is nothing to say."""
    root, _ = project_policy(os.environ, Path.cwd())
    policy = None if root is None else describe_policy(root)
    if policy is None or not (policy["exists"] or policy["uncommitted"] or policy["problem"]):
        return None
    return policy_finding(policy)
