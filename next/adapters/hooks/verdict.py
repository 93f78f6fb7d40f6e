"""What an agent is shown about a git command over the works of other sessions. Pure."""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdlog.adapters.hooks.describe import list_names, shorten
from holdlog.adapters.hooks.git import GitAction
from holdlog.adapters.operating_system.files import format_duration

MAX_TEXT: Final = 400  # characters of a text, unless its names are very long
_SEPARATE: Final = "Work in a folder of your own: git worktree add."
_LIMITABLE: Final = tuple(
    f"git {verb}"
    for verb in ["add", "checkout", "clean", "commit", "reset", "restore", "rm", "stage", "stash", "switch"]
)
"""Commands that take the names of files, or can be replaced by one that does."""


class OthersWork(NamedTuple):
    """A dirty file with the session that holds it or changed it last, which is not the caller's party. `path`: as the
    agent knows it. `agent`: its name; empty for a file that guards all agents. `seconds`: since when. `is_live`:
    whether that session still works."""

    path: str
    agent: str
    seconds: float
    is_live: bool


class Judgement(NamedTuple):
    """What the agent is shown. `denies`: the command must not run."""

    denies: bool
    text: str


def judge(action: GitAction, works: Sequence[OthersWork], own: Sequence[str], folder: str = "") -> Judgement | None:
    """What the agent is shown about a command over the works of other sessions; None: it runs, silently. `own`: the
    files that remain for it, among those that the action concerns. Absolute paths are shown relative to `folder`, in
    which the agent works."""
    live, folder = [work for work in works if work.is_live], folder or action.folder
    start, listed = f"holdlog: {shorten(action.name)}", _list(live or works, folder)
    if not live:
        text = f"{start} takes in changes of an ended session: {listed}."
        return Judgement(False, text) if works and action.effect == "includes" else None
    if action.effect == "moves":
        remedy = f" {_SEPARATE}" * action.name.startswith(("git checkout", "git switch"))
        return Judgement(False, f"{start} runs below uncommitted work of another session: {listed}.{remedy}")
    what = "work of another session" if live[0].agent else "files that guard the agents"
    start += f" would take {'away' if action.effect == 'discards' else 'in'} {what}: {listed}."
    names = list_names([shorten(_relative(path, folder)) for path in own])
    texts = [f"{start} {it} A person can run this in a terminal." for it in _list_remedies(action, names)]
    return Judgement(True, next((text for text in texts if len(text) <= MAX_TEXT), texts[-1]))


def _list_remedies(action: GitAction, own: str) -> list[str]:
    """What the agent can do instead, the best first; the last one is short. `own`: its files, listed."""
    if not action.name.startswith(_LIMITABLE) or action.stash:
        return ["Leave it to that session." if action.stash else "Wait until it is committed."]
    if action.tree and not action.pathspecs:
        return [_SEPARATE]
    if not own:
        return ["It concerns no change of yours."]
    if action.name.startswith("git commit"):
        return ["Run `holdlog commit -m …` instead, which commits your files only."]
    way = "Restore only your own files" if action.name.startswith("git reset") else "Name only your own files"
    return [f"{way}: {own} (holdlog claims --dirty lists all).", f"{way}; holdlog claims --dirty lists them."]


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
