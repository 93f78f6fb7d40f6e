"""The texts that hooks show to an agent. Of what other agents wrote, they contain only names, shortened."""

import json
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from holdlog.domain.claims.claim import Claim
from holdlog.domain.results import Lost, utc

MAX_SHOWN: Final = 80
"""Characters of a name in a text."""
MAX_LISTED: Final = 3
"""Names in a text."""
WAIT: Final = 50
"""Seconds that the suggested call waits."""
Spell = Callable[[str], str]


def describe_denial(busy: Any, name: str, has_server: bool, spell: Spell) -> str:
    """Who holds it, since when, for how long, and how to queue for it. `has_server`: the agent has our tools."""
    resource = spell(busy.resource)
    if has_server:
        arguments = f"resource={json.dumps(resource)}, agent={json.dumps(name)}, wait_seconds={WAIT}"
        remedy = f"call claim({arguments}) of holdlog"
    else:  # with its name, the command acts for this agent, also where it cannot find out who runs it
        path = f"./{resource}" if resource.startswith("-") else resource
        agent = f"--agent={shlex.quote(name)}" if name.startswith("-") else f"--agent {shlex.quote(name)}"
        remedy = f"run: holdlog claim {shlex.quote(path)} {agent} --wait-seconds {WAIT}"
    held = _describe_hold(busy, name, spell)
    return f"holdlog: {held}. Work on something else first, or {remedy}, then try again."


def describe_warning(busy: Any, name: str, source: str, spell: Spell) -> str:
    """Who holds a file that others may edit nevertheless, because the policy at `source` only warns."""
    held = _describe_hold(busy, name, spell)
    return f"holdlog: {held}. {source} only warns: keep your change small, or wait for them."


def describe_elsewhere(resource: str, others: Sequence[tuple[str, str]], spell: Spell) -> str:
    """Who edits the same file in other workspaces: their names, and the holders."""
    listed = list_names([f"{shorten(agent)} in {shorten(workspace)}" for workspace, agent in others])
    name = shorten(spell(resource))
    return f"holdlog: {name} is also claimed by {listed}: another copy of the file. Coordinate before you merge."


def describe_human(name: str, source: str) -> str:
    """That only a person may change a file."""
    return (
        f"holdlog: only a person may change {shorten(name)} ({source}). Describe the change that you need to your user"
        " instead."
    )


def describe_unexamined(name: str) -> str:
    return f"holdlog: {shorten(name)} has too many files to look for those that only a person may change."


def describe_stale(resource: str, change: tuple[int, str, bool] | None, name: str, spell: Spell) -> str:
    """Who changed a file since the agent read it, when, and whether it was removed; None: nobody knows."""
    shown = shorten(spell(resource))
    if change is None:
        return f"holdlog: {shown} changed since you read it, by a program or a person; read it again if you rely on it."
    at, agent, is_removed = change
    verb = "removed" if is_removed else "changed"
    return (
        f"holdlog: {_who(agent, name)} {verb} {shown} at {utc(at):%H:%M:%S} UTC, after you read it; read it again"
        " before you edit it."
    )


def describe_losses(losses: Sequence[Lost], held: Collection[str], name: str, spell: Spell) -> list[str]:
    """What a person took, with the command that shows the reason, and what else was lost and is not held again."""
    taken = [spell(it.resource) for it in losses if it.why == "forced"]
    lost = [
        f"{shorten(spell(it.resource))}{f' (now {_who(it.held_by, name)})' if it.held_by else ''}"
        for it in losses
        if it.why != "forced" and it.resource not in held
    ]
    parts = []
    if taken:
        command = f"holdlog history {shorten(shlex.quote(taken[0]))}"
        parts.append(f"a person took {list_names(list(map(shorten, taken)))} (run: {command})")
    return parts + ([f"lost {list_names(lost)}"] if lost else [])


def describe_waiting(waiting: Sequence[Claim], name: str, spell: Spell) -> str:
    """Who waits for what the agent holds, by their tickets."""
    return list_names(sorted({f"{_who(it.who.agent, name)} ({shorten(spell(it.resource))})" for it in waiting}))


def list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _describe_hold(busy: Any, name: str, spell: Spell) -> str:
    what, who = shorten(spell(busy.covered_by or busy.resource)), _who(busy.held_by, name)
    left = format_duration(busy.expires_in_seconds)
    since = f"{busy.claimed_at:%H:%M:%S} UTC ({format_duration(busy.held_for_seconds)})"
    if busy.holder_connected is False:
        return f"{what} is held by {who} since {since}, whose process has ended; it becomes free in {left}"
    return f"{what} is held by {who} since {since}; the claim expires in {left} unless it is renewed"


def _who(agent: str, name: str) -> str:
    """Another agent, or another session of the same name. `name`: of the agent that reads this."""
    if agent == name:
        return f"another session named {shorten(agent)}"
    return f"your sub-agent {shorten(agent)}" if agent.startswith(f"{name}/") else shorten(agent)


def shorten(text: str) -> str:
    """A name as texts show it: printable, and of at most `MAX_SHOWN` characters."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def format_duration(seconds: float) -> str:
    """How long something lasts, never negative."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
