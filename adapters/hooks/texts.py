"""The texts that hooks show to an agent. Of what other agents wrote, they contain only names of agents and resources,
shortened."""

import json
import shlex
from collections.abc import Collection, Sequence
from typing import Final

from holdlog.adapters.api.claims.files import FileChange
from holdlog.adapters.api.values.responses import Lost
from holdlog.adapters.hooks.commands import Difference
from holdlog.adapters.hooks.git import MAX_LISTED, format_duration, shorten
from holdlog.adapters.hooks.holder import HookAgent
from holdlog.adapters.hooks.notes import News, WatchedFile
from holdlog.adapters.policy.policy import PathRule
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.names import acts_for
from holdlog.domain.refusals import Hold
from holdlog.domain.times import utc

WAIT: Final = 50
"""Seconds that the suggested call waits."""

_CHANGES: Final = {
    "changed": ("changed", ""),
    "committed": ("got into a commit", ": unfinished work of others, so do not push it"),
    "staged": ("got into the index", " (take it out: git restore --staged FILE)"),
}
"""What a command did to files of others, for its agent, with what to do."""
_DONE: Final = {
    "changed": ("a command of another session changed {}, which you work on; read it again", "by"),
    "committed": ("a command of another session took {} into a commit", "by"),
    "staged": ("a command of another session staged {}", "by"),
    "edited": ("another session changes {}, which you changed last and do not hold", "by"),
    "lasted": ("your command in the background reached {}; do not change it again", "of"),
}
"""What happened to the work of agents, for them, and who the agent in brackets is."""


def describe_denial(engine: Engine, hold: Hold, name: str, bound: bool) -> str:
    """Who holds it, since when, for how long, and how to queue for it. `bound`: the agent has our tools."""
    full = engine.requests.rules.spell(hold.resource)
    if bound:
        arguments = f"resource={json.dumps(full)}, agent={json.dumps(name)}, wait_seconds={WAIT}"
        remedy = f"call claim({arguments}) of holdlog"
    else:  # with its name, the command acts for this agent, also where it cannot find out who runs it
        path = f"./{full}" if full.startswith("-") else full
        agent = f"--agent={name}" if name.startswith("-") else f"--agent {shlex.quote(name)}"
        remedy = f"run: holdlog claim {shlex.quote(path)} {agent} --wait {WAIT}"
    held = _describe_hold(engine, hold, name)
    return f"holdlog: {held}. Work on something else first, or {remedy}, then try again."


def describe_warning(engine: Engine, hold: Hold, rule: PathRule, name: str) -> str:
    """Who holds a file that others may edit nevertheless, because the policy only warns."""
    held = _describe_hold(engine, hold, name)
    return f"holdlog: {held}. {rule.source} only warns: keep your change small, or wait for them."


def describe_elsewhere(engine: Engine, resource: str, others: Sequence[tuple[str, str]]) -> str:
    """Who edits the same file in other workspaces. `others`: the workspaces and the holders."""
    listed = _listed([f"{shorten(agent)} in {shorten(workspace)}" for workspace, agent in others])
    name = shorten(engine.requests.rules.spell(resource))
    return f"holdlog: {name} is also claimed by {listed}: another copy of the file. Coordinate before you merge."


def describe_human(name: str, rule: PathRule) -> str:
    """That only a person may change a file. `name`: its path as the agent knows it."""
    return (
        f"holdlog: only a person may change {shorten(name)} ({rule.source}). Describe the change that you need to your"
        " user instead."
    )


def describe_unexamined(name: str) -> str:
    """That a folder may contain files that only a person may change."""
    return f"holdlog: {shorten(name)} has too many files to look for those that only a person may change."


def _describe_hold(engine: Engine, hold: Hold, name: str) -> str:
    """Who holds it, and until when. `name`: of the agent that reads this."""
    rules = engine.requests.rules
    held_for = (rules.moment().at - hold.claimed_at) / SECOND
    what, who = shorten(rules.spell(hold.covered_by or hold.resource)), _who(hold.held_by, name)
    left = format_duration(hold.expires_in / SECOND)
    if hold.in_line:
        return f"{what} is reserved for {who}, who waited for it, for at most {left}"
    # A clock that was set back would place the claim in the future.
    since = f" since {utc(hold.claimed_at):%H:%M:%S} UTC ({format_duration(held_for)})" if held_for >= 0 else ""
    if hold.session_ended:
        return f"{what} is held by {who}{since}, whose process has ended; it becomes free in {left}"
    return f"{what} is held by {who}{since}; the claim expires in {left} unless it is renewed"


def _who(agent: str, name: str) -> str:
    """Another agent, or another session of the same name. `name`: of the agent that reads this."""
    if agent == name:
        return f"another session named {shorten(agent)}"
    return f"your sub-agent {shorten(agent)}" if acts_for(agent, name) else shorten(agent)


def describe_stale(engine: Engine, resource: str, change: FileChange | None, name: str) -> str:
    """Who changed a file since the agent read it. Contains nothing of its content. `name`: of the agent."""
    shown = shorten(engine.requests.rules.spell(resource))
    if change is None:
        return f"holdlog: {shown} changed since you read it, by a program or a person; read it again if you rely on it."
    verb = "changed" if change.sha256 else "removed"
    return (
        f"holdlog: {_who(change.agent, name)} {verb} {shown} at {change.at:%H:%M:%S} UTC, after you read it;"
        " read it again before you edit it."
    )


def describe_differences(engine: Engine, differences: Sequence[Difference]) -> str:
    """What happened to files of others while a command ran."""
    texts = []
    for verb, (change, remedy) in _CHANGES.items():
        files = [it.file for it in differences if it.verb == verb]
        names = [
            f"{shorten(engine.requests.rules.spell(it.resource))}"
            f" ({'changed' if it.changed else 'held'} by {shorten(it.agent)})"
            for it in files
        ]
        if names:
            texts.append(f"{_listed(names)} {change} while your command ran{remedy}")
    return f"holdlog: {'; '.join(texts)}. The holder is informed; do not change it again." if texts else ""


def describe_former(engine: Engine, files: Sequence[WatchedFile]) -> str:
    """Whose uncommitted changes files contain that nobody held before the agent."""
    if not files:
        return ""
    rules = engine.requests.rules
    names = _listed([shorten(rules.spell(it.resource)) for it in files])
    seconds = max(0, (rules.moment().at - max(it.changed for it in files)) / SECOND)
    agents = _listed(sorted({shorten(it.agent) for it in files}))
    verb = "have" if len(files) > 1 else "has"
    return f"holdlog: {names} {verb} uncommitted changes of {agents}, made {format_duration(seconds)} ago; keep them."


def describe_news(engine: Engine, news: Sequence[News]) -> str:
    """What others did to the work of the agent."""
    if not news:
        return ""
    texts = []
    for verb, (text, relation) in _DONE.items():
        files = [it for it in news if it.verb == verb]
        names = [f"{shorten(engine.requests.rules.spell(it.resource))} ({relation} {shorten(it.by)})" for it in files]
        texts += [text.format(_listed(names))] * bool(names)
    return f"holdlog: {'; '.join(texts)}." if texts else ""


def describe_session(
    agent: HookAgent, is_start: bool, losses: Sequence[Lost], failures: Sequence[str], notice: str | None
) -> str:
    """What the agent lost, who waits for it, and what it holds; empty if there is nothing to report. `notice`: as in
    PolicyInForce."""
    parts = [f"your agent name is {shorten(agent.name)}; hooks claim the files that you edit"] if is_start else []
    held = _spelled(agent)
    parts += _lost(losses, held, agent.name)
    if agent.waiting:
        parts.append(f"waiting for you: {_waiters(agent)}")
    if held:
        parts.append(f"you hold {_listed(list(map(shorten, held)))}")
    if failures:
        parts.append(
            f"{len(failures)} hook call{'s' if len(failures) > 1 else ''} failed, the last: {shorten(failures[-1])}"
        )
    if notice is not None:
        parts.append(f"{notice} (holdlog doctor shows why)")
    return f"holdlog: {'; '.join(parts)}." if parts else ""


def describe_losses(agent: HookAgent, losses: Sequence[Lost]) -> str:
    """What the agent lost; empty if there is nothing to report."""
    parts = _lost(losses, _spelled(agent), agent.name) if losses else []
    return f"holdlog: {'; '.join(parts)}." if parts else ""


def _lost(losses: Sequence[Lost], held: Collection[str], name: str) -> list[str]:
    """What a person took, with the command that shows the reason, and what else was lost and is not held again."""
    taken = [it.resource for it in losses if it.why == "forced"]
    lost = [
        f"{shorten(it.resource)}{f' (now {_who(it.held_by, name)})' if it.held_by else ''}"
        for it in losses
        if it.why != "forced" and it.resource not in held
    ]
    parts = []
    if taken:
        command = f"holdlog history {shorten(shlex.quote(taken[0]))}"
        parts.append(f"a person took {_listed(list(map(shorten, taken)))} (run: {command})")
    if lost:
        parts.append(f"lost {_listed(lost)}")
    return parts


def _spelled(agent: HookAgent) -> list[str]:
    """What the agent holds, as it knows it."""
    return [agent.engine.requests.rules.spell(it.resource) for it in agent.leases]


def describe_waiting(agent: HookAgent) -> str:
    """Who waits for what the agent holds; empty if nobody does."""
    return f"holdlog: waiting for you: {_waiters(agent)}; finish these files first." if agent.waiting else ""


def _waiters(agent: HookAgent) -> str:
    spell = agent.engine.requests.rules.spell
    return _listed(sorted({f"{_who(it.agent, agent.name)} ({shorten(spell(it.resource))})" for it in agent.waiting}))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
