"""View `agents`: the profiles that agents registered."""

from holdlog.domain.agent import Profile
from holdlog.projections.projection import Row, Table

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


def row_of_profile(profile: Profile, digest: bytes) -> Row:
    return (*profile[:6], digest, profile.principal)


def profile_of(row: Row) -> Profile:
    return Profile(*row[:6], *row[7:])
