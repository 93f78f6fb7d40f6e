"""What an agent is shown about a git command over the works of other sessions. Pure."""

import os
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdlog.adapters.hooks.describe import format_duration, list_names, shorten
from holdlog.adapters.hooks.git import PATTERN, GitAction

MAX_TEXT: Final = 400  # characters of a text, unless its names are very long


class OthersWork(NamedTuple):
    """A dirty file with the session that holds it or changed it last, which is not the caller's party. `path`: as the
    agent knows it. `status`: the two letters of `git status --porcelain`. `agent`: its name; empty for a file that
    guards all agents. `seconds`: since when. `is_live`: whether that session still works."""

    path: str
    status: str
    agent: str
    seconds: float
    is_live: bool


class Judgement(NamedTuple):
    """What the agent is shown. `denies`: the command must not run."""

    denies: bool
    text: str


def judge(action: GitAction, works: Sequence[OthersWork], own: Sequence[str], folder: str = "") -> Judgement | None:
    """What the agent is shown about a command over the works of other sessions; None: it runs, silently. `own`: the
    files that remain for it, among those that the action concerns. Paths are best absolute: they are named in commands
    relative to the folder of the command, and shown relative to `folder`, in which the agent works."""
    live = [work for work in works if work.is_live]
    start, listed = f"holdlog: {shorten(action.name)}", _list(live or works, folder or action.folder)
    if not live:
        text = f"{start} takes in changes of an ended session: {listed}."
        return Judgement(False, text) if works and action.effect == "includes" else None
    if action.effect == "moves":
        remedy = f" Run `{action.narrower}` for a separate folder." if action.narrower else ""
        return Judgement(False, f"{start} runs below uncommitted work of another session: {listed}.{remedy}")
    what = "work of another session" if live[0].agent else "files that guard the agents"
    start += f" would take {'away' if action.effect == 'discards' else 'in'} {what}: {listed}."
    texts = [f"{start} {remedy} A person can run this in a terminal." for remedy in _remedies(action, live, own)]
    return Judgement(True, next((text for text in texts if len(text) <= MAX_TEXT), texts[-1]))


def _remedies(action: GitAction, live: Sequence[OthersWork], own: Sequence[str]) -> list[str]:
    """What the agent can do instead, the best first; the last one is short."""
    narrower = action.narrower
    if "{" not in narrower:
        return [*([f"Run `{narrower}` instead."] if narrower else []), "Wait until it is committed."]
    if not own:
        return ["It concerns no change of yours."]
    paths, others = ([_relative(path, action.folder) for path in each] for each in (own, [it.path for it in live]))
    choices = [[_spec(path) for path in paths]]
    if "{paths}" in narrower:
        choices.append([*action.pathspecs, *(_spec(path, excludes=True) for path in others)])
    specs = sorted(map(shlex.join, choices), key=len)
    is_plain = all(path.isprintable() for path in (*paths, *others))
    commands = [narrower.replace("{paths}", each).replace("{own}", each) for each in specs if is_plain]
    last = "Name only your own files; holdlog claims --dirty lists them."
    if " commit " in narrower:
        last = "Run `holdlog commit -m …` instead, which commits your files only."
    return [*(f"Run `{command}` instead." for command in commands), last]


def _spec(path: str, excludes: bool = False) -> str:
    """A pathspec for this path, or for all but this path."""
    if excludes:
        is_short = (path[0].isalnum() or path[0] == ".") and not PATTERN & set(path)
        return f":!{path}" if is_short else f":(exclude,literal){path}"
    return f":(literal){path}" if PATTERN & set(path) or path.startswith(":") else path


def _list(works: Sequence[OthersWork], folder: str) -> str:
    return list_names(
        [
            shorten(_relative(work.path, folder))
            + (f" ({shorten(work.agent)}, for {format_duration(work.seconds)})" if work.agent else "")
            for work in works
        ]
    )


def _relative(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) + "/" * path.endswith("/") if os.path.isabs(path) else path
