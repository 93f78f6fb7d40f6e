"""Which processes share a store, and which of them are alive."""

from collections.abc import Sequence
from typing import NamedTuple

from holdlog.domain.claims.lease import BY_CALLS, BY_LEASE


class Process(NamedTuple):
    """A live process that has the store open. `server`: its name in leases; `pid` 0: unknown; `program`: what it is,
    such as `mcp stdio`; `folder`: its working directory; `host`: the address it connects from, empty on this machine.
    `program` and `folder` are reported by the process and not verified."""

    server: str
    pid: int
    program: str
    folder: str
    host: str = ""


class Liveness:
    """Liveness of the processes that share the store, by their names in leases. This base class knows only this
    process."""

    name = "here"

    def join(self) -> str:
        """Register this process as connected; return its name."""
        return self.name

    def connected(self, server: str) -> bool:
        """Whether the process of that name is alive. A session kept alive by calls alone counts as connected."""
        return server in (BY_CALLS, BY_LEASE) or self._lives(server)

    def _lives(self, server: str) -> bool:
        return server == self.name

    def others_of(self, session: str) -> Sequence[str]:
        """The other live processes that serve this session."""
        return ()

    def is_paused(self, session: str) -> bool:
        """Whether the session's turn has ended, so that its claims are not renewed for now."""
        return False

    def resume(self, session: str) -> bool:
        """End such a pause, because the session's agent made a call. Returns whether there was one."""
        return False

    def describe(self, what: str) -> None:
        """Describe this process more exactly, once more is known (its client's name)."""

    def processes(self) -> Sequence[Process]:
        """Processes connected to the store now, including this one once it joined."""
        return ()

    def descriptors(self) -> Sequence[int]:
        """File descriptors that keep this process's sessions alive for as long as a child process has them."""
        return ()

    def close(self) -> None:
        """Deregister this process."""
