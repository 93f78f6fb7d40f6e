"""The texts that hooks show to an agent. Of what other agents wrote, they contain only names of agents and resources,
shortened."""

import json
import shlex
from collections.abc import Collection, Sequence
from typing import Final

from holdlog.adapters.api.claims.files import FileChange
from holdlog.adapters.api.values.responses import Lost
from holdlog.adapters.hooks.holder import Holder
from holdlog.adapters.policy.policy import PathRule
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.lease import SECOND, Lease
from holdlog.domain.names import acts_for
from holdlog.domain.refusals import Hold
from holdlog.domain.times import utc

MAX_SHOWN: Final = 80
"""Characters of a name."""
MAX_LISTED: Final = 3
WAIT: Final = 50
"""Seconds that the suggested call waits."""


def describe_denial(engine: Engine, hold: Hold, name: str, bound: bool) -> str:
    """Who holds it, since when, for how long, and the call to make. `bound`: the agent has our tools."""
    full = engine.requests.rules.spell(hold.resource)
    if bound:
        arguments = f"resource={json.dumps(full)}, agent={json.dumps(name)}, wait_seconds={WAIT}"
        remedy = f"call claim({arguments}) of holdlog, then try again"
    else:
        remedy = f"run: holdlog wait {shlex.quote(full)} --timeout {WAIT}, then try again: hooks claim it for you"
    return f"holdlog: {_describe_hold(engine, hold, name)}. Work on something else first, or {remedy}."


def describe_warning(engine: Engine, hold: Hold, rule: PathRule) -> str:
    """Who holds a file that others may edit nevertheless, because the policy only warns."""
    return (
        f"holdlog: {_describe_hold(engine, hold)}. {rule.source} only warns: keep your change small, or wait for them."
    )


def describe_elsewhere(engine: Engine, resource: str, others: Sequence[tuple[str, str]]) -> str:
    """Who edits the same file in other workspaces. `others`: the workspaces and the holders."""
    listed = _listed([f"{_shown(agent)} in {_shown(workspace)}" for workspace, agent in others])
    name = _shown(engine.requests.rules.spell(resource))
    return f"holdlog: {name} is also claimed by {listed}: another copy of the file. Coordinate before you merge."


def describe_human(name: str, rule: PathRule) -> str:
    """That only a person may change a file. `name`: its path as the agent knows it."""
    return (
        f"holdlog: only a person may change {_shown(name)} ({rule.source}). Describe the change that you need to your"
        " user instead."
    )


def describe_unexamined(name: str) -> str:
    """That a folder may contain files that only a person may change."""
    return f"holdlog: {_shown(name)} has too many files to look for those that only a person may change."


def _describe_hold(engine: Engine, hold: Hold, name: str = "") -> str:
    """Who holds it. `name`: of the agent that reads this."""
    rules = engine.requests.rules
    moment = rules.moment()
    held = hold.covered_by or hold.resource
    what = _shown(rules.spell(held))
    since, held_for = utc(hold.claimed_at), (moment.at - hold.claimed_at) / SECOND
    is_sub_agent = name and hold.held_by != name and acts_for(hold.held_by, name)
    who = f"{'your sub-agent ' if is_sub_agent else ''}{_shown(hold.held_by)}"
    left = max(0, hold.expires_in) / SECOND
    if hold.in_line:
        return f"{what} is reserved for {who}, who waited for it"
    return (
        f"{what} is held by {who} since {since:%H:%M:%S} UTC ({_duration(held_for)});"
        f" the claim expires in {_duration(left)} unless it is renewed"
    )


def describe_stale(engine: Engine, resource: str, change: FileChange | None) -> str:
    """Who changed a file since the agent read it. Contains nothing of its content."""
    name = _shown(engine.requests.rules.spell(resource))
    if change is None:
        return f"holdlog: {name} changed since you read it, by a program or a person; read it again if you rely on it."
    verb = "changed" if change.sha256 else "removed"
    return (
        f"holdlog: {_shown(change.agent)} {verb} {name} at {change.at:%H:%M:%S} UTC, after you read it;"
        " read it again before you edit it."
    )


def describe_session(
    holder: Holder, name: str, is_start: bool, losses: Sequence[Lost], failures: Sequence[str], notice: str | None
) -> str:
    """What the session lost, who waits for it, and what it holds; empty if there is nothing to report. `notice`:
    as in PolicyInForce."""
    parts = [f"your agent name is {_shown(name)}; hooks claim the files that you edit"] if is_start else []
    leases = holder.leases()
    held = _spelled(holder, leases)
    parts += _lost(losses, held)
    if waiting := _waiting(holder, leases):
        parts.append(f"waiting for you: {_listed(waiting)}")
    if held:
        parts.append(f"you hold {_listed(list(map(_shown, held)))}")
    if failures:
        parts.append(
            f"{len(failures)} hook call{'s' if len(failures) > 1 else ''} failed, the last: {_shown(failures[-1])}"
        )
    if notice is not None:
        parts.append(f"{notice} (holdlog doctor shows why)")
    return f"holdlog: {'; '.join(parts)}." if parts else ""


def describe_losses(holder: Holder, losses: Sequence[Lost]) -> str:
    """What the session lost; empty if there is nothing to report."""
    parts = _lost(losses, _spelled(holder, holder.leases())) if losses else []
    return f"holdlog: {'; '.join(parts)}." if parts else ""


def _lost(losses: Sequence[Lost], held: Collection[str]) -> list[str]:
    """What a person took, with the command that shows the reason, and what else was lost and is not held again."""
    taken = [it.resource for it in losses if it.why == "forced"]
    lost = [
        f"{_shown(it.resource)}{f' (now {_shown(it.held_by)})' if it.held_by else ''}"
        for it in losses
        if it.why != "forced" and it.resource not in held
    ]
    parts = []
    if taken:
        command = f"holdlog history {_shown(shlex.quote(taken[0]))}"
        parts.append(f"a person took {_listed(list(map(_shown, taken)))} (run: {command})")
    if lost:
        parts.append(f"lost {_listed(lost)}")
    return parts


def _spelled(holder: Holder, leases: Sequence[Lease]) -> list[str]:
    """The resources, as the agent knows them."""
    return [holder.engine.requests.rules.spell(it.resource) for it in leases]


def describe_waiting(holder: Holder) -> str:
    """Who waits for what the session holds; empty if nobody does."""
    waiting = _waiting(holder, holder.leases())
    return f"holdlog: waiting for you: {_listed(waiting)}; finish these files first." if waiting else ""


def _waiting(holder: Holder, leases: Sequence[Lease]) -> list[str]:
    """Who waits for what the session holds."""
    if not leases:
        return []
    held = sorted({it.resource for it in leases})
    waiters = holder.engine.read_now(lambda reader: reader.leases.of(held))
    return sorted({f"{_shown(it.agent)} ({_shown(it.resource)})" for it in waiters if it.kind == "waits"})


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _shown(text: str) -> str:
    text = "".join(it if it.isprintable() else "?" for it in text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
