"""Settings of a store, whichever surface serves it. The command line imports it at each start: it must load fast."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from holdlog.adapters.operating_system.options import (
    LARGEST_VALUE,
    LEASE_SECONDS,
    WAIT_SECONDS,
    option,
    whole_from,
)

if TYPE_CHECKING:
    from holdlog.adapters.operating_system.paths import WorkspacePath

LEASE_OVER_HTTP: Final = 1800.0
"""Seconds: over HTTP only calls keep a lease alive."""


@dataclass(frozen=True)
class Settings:
    """Settings of a store. All values in seconds except `max_value_bytes` (of a value as JSON) and the number
    `max_claims`.
    `lease`: default duration of a claim's lease. `keeps`: whether this process keeps the leases of its callers alive;
    over HTTP only their calls do, because another replica may get the next one. `workspaces`: maps paths to resources;
    None: paths are plain names.
    """

    max_value_bytes: int = option(
        "the largest value, in bytes of JSON", whole_from(1, LARGEST_VALUE, "BYTES"), default=256 * 1024
    )
    max_wait: float = option(
        "the longest wait of one call; many hosts cancel calls after 60", WAIT_SECONDS, default=50.0
    )
    lease: float = option(
        f"a claim expires this long after its last renewal; over HTTP after {LEASE_OVER_HTTP:.0f} by default",
        LEASE_SECONDS,
        name="lease_seconds",
        default=300.0,
    )
    grace: float = option(
        "claims expire this long after the server of their agent ended",
        WAIT_SECONDS,
        name="grace_seconds",
        default=60.0,
    )
    idle_limit: float = option(
        "the server renews claims for this long after their agent's last call", LEASE_SECONDS, default=1800.0
    )
    max_claims: int = option(
        "the most claims that one session may hold or wait for", whole_from(1, 1_000_000), default=64
    )
    keeps: bool = True
    workspaces: "ResourceNames | None" = None


class ResourceNames(Protocol):
    """Maps paths of workspaces to resources."""

    def canonical(self, text: str) -> str:
        """The canonical name of a resource. Raises ValueError."""

    def claimable(self, text: str) -> str:
        """Like `canonical`, but for a new claim. Also raises ValueError for a name that protects nothing."""

    def file(self, path: str) -> str | None:
        """The canonical name of the file at a path, whatever it is called; None if it is in no workspace.
        Raises ValueError."""

    def located(self, text: str) -> "WorkspacePath | None":
        """The workspace of a resource or an absolute path, and the path there. Raises ValueError."""

    def shown(self, resource: str) -> str:
        """A name for a stored resource that `canonical` accepts."""

    def is_folder(self, resource: str) -> bool:
        """Whether a stored resource is the name of a folder that exists."""

    def is_gone(self, text: str) -> bool:
        """Whether a name is that of a file in a workspace that is not known (any more), such as a removed worktree."""

    def is_nested(self, resource: str) -> bool:
        """Whether a stored resource is in a repository with its own store inside a workspace."""

    def is_missing(self, resource: str, given: str) -> bool:
        """Whether no file exists, or is likely to exist, under a stored resource that the caller passed as `given`."""

    def covers(self, folder: str) -> bool:
        """Whether an absolute path is in a workspace, links followed."""

    def elsewhere(self, resource: str) -> list[tuple[str, str]]:
        """The same path in the other workspaces: their names and resources."""
