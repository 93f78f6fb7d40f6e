"""The rules of `holdlog.toml` that are in force where the server was started: `/policy`."""

import asyncio
import os
from pathlib import Path
from typing import Literal

from starlette.responses import Response

from holdlog.adapters.api.values.responses import Part, Result
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import Answer, ApiRoute, HttpOperation
from holdlog.adapters.policy.in_force import head_of, project_policy


class GlobRule(Part):
    """A rule for paths. `glob`: relative to the root of the repository; `line`: of the file."""

    glob: str
    mode: Literal["block", "warn", "human"]
    across_worktrees: bool
    line: int


class PolicyRules(Result):
    """`rules`: those that the caller may see, in the order of the file; the last that matches a path decides.
    `commit`: the one in force; none without git. `problem`: why the file is not in force: its line only, because the
    rest may quote the file."""

    status: Literal["ok"] = "ok"
    rules: list[GlobRule]
    commit: str | None = None
    problem: str | None = None


async def _policy(request: HttpRequest) -> Response:
    found = await asyncio.to_thread(_rules_here)
    sees = request.context.requests.rules.grants.sees_claim
    return answer(found.model_copy(update={"rules": [it for it in found.rules if sees(it.glob)]}))


def _rules_here() -> PolicyRules:
    root, found = project_policy(os.environ, Path.cwd())
    rules = [
        GlobRule(glob=it.glob, mode=it.mode, across_worktrees=it.across_worktrees, line=it.line)
        for it in found.policy.rules
        if it.glob is not None and it.line is not None
    ]
    commit = None if root is None or found.content is None else head_of(root)
    return PolicyRules(rules=rules, commit=commit, problem=found.notice)


routes = [
    ApiRoute(
        "/policy",
        GET=HttpOperation(
            _policy,
            "The rules of holdlog.toml",
            {200: Answer("The rules in force where the server was started.", PolicyRules)},
        ),
    ),
]
