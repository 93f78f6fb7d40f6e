"""Whose work the dirty files of a worktree are, as an open store knows it."""

from collections.abc import Sequence

from holdlog.adapters.api.claims.files import changes
from holdlog.adapters.hooks.dirty import DirtyWorktree
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.works import FileWork, Party, Sessions, works
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.sqlite.held import ChangedResource, HeldResource
from holdlog.domain.claims.claim import FileChanged
from holdlog.domain.claims.lease import SECOND
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
            for it in changes(reader, resource):
                caller, event = it.envelope.caller, it.event
                assert isinstance(event, FileChanged)
                return ChangedResource(event.agent, caller.principal, caller.session, it.envelope.at, event.sha256)
            return None

        return self._engine.read_now(read)

    def changed_below(self, folder: str) -> list[str]:
        """The resources below a folder that were ever claimed or changed."""
        return [it for it in self._engine.read_now(lambda reader: reader.ever_claimed(folder)) if it != folder]


def works_in_store(engine: Engine, files: HookFiles, party: Party, worktree: DirtyWorktree) -> list[FileWork]:
    """As `works`, for an open store. `files`: of the hooks on the store."""
    ledger = ReaderLedger(engine)
    return works(ledger, ledger.names, Sessions(files), party, worktree)
