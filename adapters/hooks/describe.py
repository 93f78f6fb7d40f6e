"""The texts that hooks show to an agent. They contain only names that other agents wrote, shortened, no other text."""

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from holdlog.adapters.operating_system.files import format_duration, show
from holdlog.adapters.policy.in_force import FILE
from holdlog.domain.claims.claim import Claim
from holdlog.domain.results import Lost, utc

MAX_SHOWN: Final = 80
"""Characters of a name in a text."""
MAX_LISTED: Final = 3
"""Names in a text."""
WAIT: Final = 50
"""Seconds for which the suggested call waits."""


class Describer(NamedTuple):
    """Texts for an agent with this name. `format_name`: writes a resource as this agent can pass it."""

    name: str
    format_name: Callable[[str], str]

    def describe_denial(self, busy: Any, has_server: bool, receipt: str = "") -> str:
        """Who holds a resource, since when, for how long, and how to queue for it: by a tool if the host `has_server`,
        else with a command."""
        resource = self.format_name(busy.resource)
        if has_server:
            arguments = f"resource={json.dumps(resource)}, agent={json.dumps(self.name)}, wait_seconds={WAIT}"
            arguments += f", receipt={json.dumps(receipt)}" * bool(receipt)
            remedy = f"call claim({arguments}) of holdlog"
        else:  # --agent, because the command may be unable to find out which agent runs it
            path = shlex.quote(f"./{resource}" if resource.startswith("-") else resource)
            agent = f"--agent{'=' if self.name.startswith('-') else ' '}{shlex.quote(self.name)}"
            remedy = f"run: holdlog claim {path} {agent} --wait-seconds {WAIT}"
        return f"{self._describe_hold(busy)}. Work on something else first, or {remedy}, then try again."

    def describe_warning(self, busy: Any) -> str:
        """Who holds a file that the agent may edit nevertheless, because the policy only warns."""
        return f"{self._describe_hold(busy)}. {FILE} only warns: keep your change small, or wait for them."

    def describe_elsewhere(self, resource: str, others: Sequence[tuple[str, str]]) -> str:
        """Who edits the same file in other workspaces: their names, and the holders."""
        listed = list_names([f"{shorten(agent)} in {shorten(workspace)}" for workspace, agent in others])
        shown = self._show(resource)
        return f"holdlog: {shown} is also claimed by {listed}: another copy of the file. Coordinate before you merge."

    def describe_stale(self, resource: str, change: tuple[int, str, bool] | None) -> str:
        """Who changed or removed a file since the agent read it, and when. `change`: microseconds since 1970, agent,
        and whether it was removed; None if no hook saw it."""
        shown = self._show(resource)
        if change is None:
            verb = "changed since you read it, by a program or a person"
            return f"holdlog: {shown} {verb}; read it again if you rely on it."
        at, agent, is_removed = change
        verb = f"{self._name_agent(agent)} {'removed' if is_removed else 'changed'}"
        return (
            f"holdlog: {verb} {shown} at {utc(at):%H:%M:%S} UTC, after you read it; read it again before you edit it."
        )

    def describe_losses(self, losses: Sequence[Lost], held: Sequence[Claim]) -> list[str]:
        """Which claims a person took, with the command that shows the reason, and which others the agent lost, except
        those that it holds again."""
        taken = [it.resource for it in losses if it.why == "forced"]
        again = {claim.resource for claim in held}
        lost = [
            self._show(it.resource) + (f" (now {self._name_agent(it.held_by)})" if it.held_by else "")
            for it in losses
            if it.why != "forced" and it.resource not in again
        ]
        parts = []
        if taken:
            command = f"holdlog history {shorten(shlex.quote(self.format_name(taken[0])))}"
            parts.append(f"a person took {self.list(taken)} (run: {command})")
        return parts + ([f"lost {list_names(lost)}"] if lost else [])

    def describe_waiting(self, waiting: Sequence[Claim]) -> str:
        """Who waits for what the agent holds, by their tickets."""
        return list_names(sorted({f"{self._name_agent(it.who.agent)} ({self._show(it.resource)})" for it in waiting}))

    def list(self, resources: Sequence[str]) -> str:
        return list_names([self._show(resource) for resource in resources])

    def _show(self, resource: str) -> str:
        return shorten(self.format_name(resource))

    def _name_agent(self, agent: str) -> str:
        """How a text names another agent: by its name, as a sub-agent, or as another session of the same name."""
        if agent == self.name:
            return f"another session named {shorten(agent)}"
        return f"your sub-agent {shorten(agent)}" if agent.startswith(f"{self.name}/") else shorten(agent)

    def _describe_hold(self, busy: Any) -> str:
        left = format_duration(busy.expires_in_seconds)
        since = f"{busy.claimed_at:%H:%M:%S} UTC ({format_duration(busy.held_for_seconds)})"
        end = f"; the claim expires in {left} unless it is renewed"
        if busy.holder_connected is False:
            end = f", whose process has ended; it becomes free in {left}"
        return (
            f"holdlog: {self._show(busy.covered_by or busy.resource)} is held by {self._name_agent(busy.held_by)} since"
            f" {since}{end}"
        )


def list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def shorten(text: str) -> str:
    """Make a name printable, and cut it to `MAX_SHOWN` characters."""
    text = show(text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
