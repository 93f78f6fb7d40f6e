"""Whose work the dirty files of a worktree are, as an open store knows it."""

from collections.abc import Sequence
from urllib.parse import unquote

from holdlog.adapters.api.claims.files import changes
from holdlog.adapters.hooks.dirty import DirtyWorktree
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.works import FileWork, Party, Sessions, works
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.sqlite.held import MAX_RECENT, ChangedResource, HeldResource
from holdlog.domain.claims.claim import FileChanged
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError


class ReaderLedger:
    """What an open store knows about files."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def names(self, path: str) -> Sequence[str]:
        """The resource that an absolute path is; none outside of every workspace."""
        try:
            return tuple(filter(None, [self._engine.requests.rules.file(path)]))
        except InvalidError:
            return ()

    def all_held(self) -> list[HeldResource]:
        """All that is held."""

        def read(reader: Reader) -> list[HeldResource]:
            claims = {claim.resource: claim for claim in reader.claims(None, -1)}
            now, found = self._engine.requests.rules.steady(), list[HeldResource]()
            for it in reader.leases.of(sorted(claims)):
                grant = claims[it.resource].grant(it.version)
                if it.kind == "held" and it.deadline > now and grant is not None:
                    facts = (it.resource, it.agent, it.principal, it.session, it.server, grant.claimed_at)
                    found.append(HeldResource(*facts, max(0, now - it.last_call_at) / SECOND))
            return found

        return self._engine.read_now(read)

    def last_change(self, resource: str) -> ChangedResource | None:
        """The last change of the file that a resource names."""

        def read(reader: Reader) -> ChangedResource | None:
            return next(map(_changed, changes(reader, resource)), None)

        return self._engine.read_now(read)

    def latest_changes(self) -> dict[str, ChangedResource]:
        """The last changes of files among the newest events, by resource, the newest first."""
        recorded = self._engine.read_now(lambda it: it.log(max(0, it.position() - MAX_RECENT), MAX_RECENT))
        found = dict[str, ChangedResource]()
        for it in reversed(recorded):
            if isinstance(it.event, FileChanged):
                found.setdefault(unquote(it.envelope.stream.removeprefix("claim:")), _changed(it))
        return found

    def changed_below(self, folder: str) -> list[str]:
        """The resources below a folder that were ever claimed or changed."""
        return [it for it in self._engine.read_now(lambda reader: reader.ever_claimed(folder)) if it != folder]


def _changed(recorded: Recorded[Event]) -> ChangedResource:
    caller, event = recorded.envelope.caller, recorded.event
    assert isinstance(event, FileChanged)
    return ChangedResource(event.agent, caller.principal, caller.session, recorded.envelope.at, event.sha256)


def works_in_store(engine: Engine, files: HookFiles, party: Party, worktree: DirtyWorktree) -> list[FileWork]:
    """As `works`, for an open store. `files`: of the hooks on the store."""
    ledger = ReaderLedger(engine)
    return works(ledger, ledger.names, Sessions(files), party, worktree)
