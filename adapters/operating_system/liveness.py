"""Which processes share a store, and which of them live."""

from collections.abc import Sequence
from typing import NamedTuple

from holdlog.domain.claims.lease import BY_CALLS, BY_LEASE


class Process(NamedTuple):
    """A live process that has the store open. `server`: its name in leases; `pid` 0: unknown; `program`: what it is,
    such as `mcp stdio`; `folder`: its working directory; `host`: the address it connects from, empty on this machine.
    `program` and `folder` are what the process reports; nobody checks them."""

    server: str
    pid: int
    program: str
    folder: str
    host: str = ""


class Liveness:
    """This process among all that share the store, by the name that stands in leases. Here: the only one."""

    name = "here"

    def join(self) -> str:
        """Be connected from now on; the name."""
        return self.name

    def connected(self, server: str) -> bool:
        """Whether the process of that name lives; what is kept alive by calls alone does."""
        return server in (BY_CALLS, BY_LEASE) or self._lives(server)

    def _lives(self, server: str) -> bool:
        return server == self.name

    def others_of(self, session: str) -> Sequence[str]:
        """The other live processes whose own session this is."""
        return ()

    def processes(self) -> Sequence[Process]:
        """Those that are connected to the store now, this one included once it joined."""
        return ()

    def close(self) -> None:
        """Be gone."""
