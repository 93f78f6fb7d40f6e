"""View `agents`: the profiles that agents registered."""

from typing import Any

from holdlog.domain.agent import Profile
from holdlog.projections.projection import Put, Table

AGENTS = Table(
    "agents",
    {
        "agent": str,
        "version": int,
        "name": str,
        "model": str,
        "purpose": str,
        "registered_at": int,
        "digest": bytes,
        "principal": str,
    },
    key=1,
)


def put_agent(profile: Profile) -> Put:
    return Put(AGENTS, tuple(profile))


def profile_of(row: tuple[Any, ...]) -> Profile:
    return Profile(*row)
