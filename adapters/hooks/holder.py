"""Claims of one session, as hooks make and release them."""

import os
from collections.abc import Set as AbstractSet
from typing import Final

from holdlog.adapters.api.claims.files import FileChange, last_change
from holdlog.adapters.api.values.responses import Lost
from holdlog.adapters.hooks.notes import HookClaim
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.commands import RecordFileChange, Sweep
from holdlog.domain.claims.lease import Lease
from holdlog.domain.message import NOBODY
from holdlog.domain.refusals import Hold, HoldlogError
from holdlog.domain.times import microseconds

MAX_CLAIMS: Final = 1_000
"""Claims of one session: hooks claim every file that an agent edits."""


class Holder:
    """A session that claims through `engine`."""

    def __init__(self, engine: Engine, session: str) -> None:
        self.engine = engine
        self.session = session
        self.caller = engine.caller.model_copy(update={"session": session})

    def claim(self, path: str, agent: str) -> tuple[HookClaim, bool]:
        """Claim a file, or everything below a folder. Also returns whether the session did not hold it before. Raises
        BusyError, InvalidError for a path outside of every workspace, and other HoldlogErrors."""
        call = self.engine.requests.claims.claim(f"{path}/" if os.path.isdir(path) else path, agent)
        command = call.command.model_copy(update={"most": MAX_CLAIMS})
        call = call._replace(command=command, again=command)
        body = self.engine.claim(call, self.caller).body()
        claim = HookClaim(call.command.resource, body["version"], agent, by="", made=False, digest="")
        return claim, body["status"] == "claimed"

    def release(self, claim: HookClaim) -> None:
        """Release a claim; nothing if it has ended."""
        release = self.engine.requests.claims.release
        try:
            self.engine.write(release(claim.resource, claim.agent, version=claim.version), self.caller)
        except HoldlogError:
            return  # lost, forced, or released by the agent itself

    def is_own(self, hold: Hold, others: AbstractSet[str]) -> bool:
        """Whether the holder is this very agent under another name or session. `others`: names of the session's other
        agents."""
        resource, version = hold.covered_by or hold.resource, hold.version
        found = self.engine.read_now(lambda reader: reader.leases.of([resource]))
        holder = next((it for it in found if it.version == version), None)
        if holder is None or holder.session is None or hold.in_line:
            return False
        if holder.session == self.session:
            return holder.agent not in others
        # An agent whose MCP calls go to a server over HTTP has a session of that server.
        return hold.same_name and self.session.startswith("hook-") and holder.session.startswith(("mcp-", "meta-"))

    def record_change(self, path: str, agent: str, sha256: str | None) -> None:
        """Record that the agent changed a file. Raises InvalidError for a path outside of every workspace."""
        resource = self.engine.requests.rules.claimable(path)
        self.engine.writer.run(RecordFileChange(resource=resource, agent=agent, sha256=sha256), self.caller)

    def change_by_another(self, path: str, digest: str, since: int) -> FileChange | None:
        """The last change of a file by another session: to this digest, or after `since` (microseconds UTC)."""
        resource = self.engine.requests.rules.claimable(path)
        change = self.engine.read_now(lambda reader: last_change(reader, resource, self.session))
        is_newer = change is not None and (change.sha256 == digest or microseconds(change.at) > since)
        return change if is_newer else None

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
        return sorted(it for it in found if it.kind == "held" and it.principal is None and it.deadline > now)
