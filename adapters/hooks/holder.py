"""Claims of one session, as hooks make and release them."""

import os
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from holdlog.adapters.api.claims.files import BY_COMMAND, FileChange, change_by_another
from holdlog.adapters.api.values.responses import Lost
from holdlog.adapters.hooks.notes import HookClaim
from holdlog.adapters.hooks.works import is_over_http
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.claims.commands import RecordFileChange, Sweep
from holdlog.domain.claims.lease import BY_LEASE, SECOND, Lease
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.names import acts_for
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import Hold, HoldlogError, InvalidError

MAX_CLAIMS: Final = 1_000
"""Claims of one session: hooks claim every file that an agent edits."""
LONGEST_UNKEPT: Final = 300 * SECOND
"""The lease of a claim that only hooks renew: leases over HTTP are longer by default."""

Check = Callable[[AnyCommand, Caller], None]


def allow(command: AnyCommand, caller: Caller) -> None:
    """A check that refuses nothing."""


class HookAgent(NamedTuple):
    """An agent, during a call of its hook. `leases`: what it and its sub-agents hold; `waiting`: the tickets of others
    that wait for that."""

    engine: Engine
    name: str
    leases: Sequence[Lease]
    waiting: Sequence[Lease]


class ClaimedFile(NamedTuple):
    """A claim of a file. `is_new`: the agent did not hold it before. `elsewhere`: the workspaces in which the same path
    is held, with the holders."""

    resource: str
    version: int
    is_new: bool
    elsewhere: Sequence[tuple[str, str]] = ()


class Holder:
    """A session that claims in a context, within its grants. `check`: raises for a command under a name that belongs to
    somebody else. `sessions`: this one, and those that held claims of the same agents before."""

    def __init__(self, context: RequestContext, session: str, check: Check = allow) -> None:
        self.engine = context.engine
        self.session = session
        self.sessions = {session}
        self.caller = context.caller.model_copy(update={"session": session})
        self._context = context
        self._check = check

    def of(self, session: str) -> "Holder":
        """Another session of the same caller."""
        return Holder(self._context, session, self._check)

    def claim(self, path: str, agent: str) -> ClaimedFile | None:
        """Claim a file, or everything below a folder, which exists or whose path ends with a slash; None if it is in no
        workspace. Raises BusyError, other HoldlogErrors."""
        resource = self._context.requests.rules.file(f"{path.rstrip('/')}/" if os.path.isdir(path) else path)
        if resource is None:
            return None
        call = self._context.requests.claims.claim(resource, agent, is_stored=True)
        lease = min(call.command.lease, LONGEST_UNKEPT) if self.caller.server == BY_LEASE else call.command.lease
        command = call.command.model_copy(update={"most": MAX_CLAIMS, "lease": lease})
        self._check(command, self.caller)
        call = call._replace(command=command, again=command)
        body = self.engine.claim(call, self.caller).body()
        others = [(it["workspace"], it["held_by"]) for it in body.get("also_claimed_in", ())]
        return ClaimedFile(resource, body["version"], body["status"] == "claimed", others)

    def release(self, claim: HookClaim) -> None:
        """Release a claim; nothing if it has ended."""
        try:
            release = self._context.requests.claims.release(claim.resource, claim.agent, version=claim.version)
            self.engine.write(release, self.caller)
        except HoldlogError:
            return  # lost, forced, or released by the agent itself

    def may_claim_again(self, claim: HookClaim) -> bool:
        """Whether the claim is still held, or has expired, and nobody has claimed the resource since."""
        found = self.engine.read_now(lambda reader: reader.claim(claim.resource))
        if found.grant(claim.version) is not None or found.past is None:
            return True
        ended = found.past.version or 0
        return ended < claim.version or (ended == claim.version and found.past.outcome == "expired")

    def lease_of(self, hold: Hold) -> Lease | None:
        """The lease that blocks a claim."""
        resource = hold.covered_by or hold.resource
        found = self.engine.read_now(lambda reader: reader.leases.of([resource]))
        return next((it for it in found if it.version == hold.version), None)

    def is_own(self, hold: Hold, others: AbstractSet[str]) -> bool:
        """Whether the holder is this very agent under another name or session. `others`: names of the session's other
        agents."""
        holder = self.lease_of(hold)
        if holder is None or holder.principal != self.caller.principal or hold.in_line:
            return False
        if holder.session in self.sessions:
            return holder.agent not in others
        return hold.same_name and self.session.startswith("hook-") and is_over_http(holder.session)

    def record_change(self, path: str, agent: str, sha256: str | None, by_command: bool = False) -> None:
        """Record that the agent changed a file; nothing if it is in no workspace. `by_command`: by a shell command that
        does not name it. Raises HoldlogErrors."""
        rules = self._context.requests.rules
        resource = rules.file(path)
        if resource is None:
            return
        rules.require("claim", resource)
        command = RecordFileChange(resource=resource, agent=agent, sha256=sha256)
        caller = self.caller.model_copy(update={"reason": BY_COMMAND}) if by_command else self.caller
        self._check(command, caller)
        self.engine.writer.run(command, caller)

    def change_by_another(self, resource: str, since: int, name: str | None) -> FileChange | None:
        """The last change of a file by another session after `since` (microseconds UTC). `name`: as for
        `change_by_another` in api/claims/files.py."""
        return self.engine.read_now(lambda reader: change_by_another(reader, resource, self.sessions, since, name))

    def lost(self) -> list[Lost]:
        """What the session lost since it was last asked, including claims whose expiry nobody has noticed yet."""
        found = self.engine.read_now(lambda reader: reader.leases.of_session(self.session))
        if any(it.is_due(self.engine.requests.rules.steady()) for it in found):
            self.engine.writer.run(Sweep(), NOBODY)
        return self.engine.lost(self.caller)

    def leases(self) -> list[Lease]:
        """What the session holds."""
        found = self.engine.read_now(lambda reader: reader.leases.of_session(self.session))
        now = self.engine.requests.rules.steady()
        mine = (it for it in found if it.kind == "held" and it.principal == self.caller.principal)
        return sorted(it for it in mine if it.deadline > now)

    def agent(self, name: str, is_whole: bool) -> HookAgent:
        """The agent of this name. `is_whole`: everything that the session holds is its own or that of its sub-agents,
        whatever their names."""
        leases = [it for it in self.leases() if is_whole or acts_for(it.agent, name)]
        return HookAgent(self.engine, name, leases, self._waiting_for(leases, name) if leases else [])

    def _waiting_for(self, leases: Sequence[Lease], name: str) -> list[Lease]:
        """The tickets that wait for what overlaps these, but not those of the agent itself."""
        held = sorted({it.resource for it in leases})

        def read(reader: Reader) -> list[Lease]:
            return reader.leases.of(sorted({*held, *(claim.resource for claim in reader.overlapping(held))}))

        found, now = self.engine.read_now(read), self.engine.requests.rules.steady()
        others = (it for it in found if (it.agent, it.session) != (name, self.session))
        return sorted(it for it in others if it.kind == "waits" and it.deadline > now)

    def file(self, path: str) -> str | None:
        """The name under which the file at `path` is claimed; None if it is in no workspace."""
        try:
            return self.engine.requests.rules.file(path)
        except InvalidError:
            return None

    def resource(self, name: str) -> str | None:
        """What an agent names in our tools, as it is stored; None if it names nothing."""
        try:
            return self.engine.requests.rules.claimable(name)
        except InvalidError:
            return None
