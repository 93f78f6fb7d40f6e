"""Formats tokens for people and programs: never their secrets or hashes."""

from collections.abc import Iterable
from typing import Any

from holdlog.adapters.auth.grants import WIDE
from holdlog.adapters.cli.texts import duration, moment
from holdlog.adapters.operating_system.users import local_names
from holdlog.adapters.runtime.name_protection import first_part
from holdlog.domain.times import utc
from holdlog.domain.token import Token, has_ended


def row(token: Token, now: int) -> tuple[str, ...]:
    """A row of the table. `now`: microseconds UTC."""
    match _state(token, now):
        case "revoked":
            end = f"revoked {moment_of(token.revoked_at)}"
        case "expired":
            end = f"expired {moment_of(token.expires_at)}"
        case _ if token.expires_at is not None:
            end = f"expires in {duration((token.expires_at - now) / 1e6)}"
        case _:
            end = "never expires"
    rotated = "" if token.rotated_at is None else f"rotated {moment_of(token.rotated_at)}"
    space = f"space {token.space}" if token.space else ""
    covers = covered(token.allow)
    grants = [f"{grant} ({covers[grant]})" if grant in covers else grant for grant in token.allow]
    local = "has your user name" if is_local_name(token.name) else ""
    return (token.name, ", ".join(grants), end, rotated, space, local)


def described(token: Token, now: int) -> dict[str, Any]:
    """All public fields of a token, as JSON."""
    left = None if token.expires_at is None else round((token.expires_at - now) / 1e6, 3)
    return {
        "name": token.name,
        "state": _state(token, now),
        "allow": token.allow,
        "covers": covered(token.allow),
        "space": token.space,
        "has_local_name": is_local_name(token.name),
        "issued_by": token.issued_by,
        "issued_at": time_of(token.issued_at),
        "expires_at": time_of(token.expires_at),
        "expires_in_seconds": left,
        "rotated_at": time_of(token.rotated_at),
        "previous_until": time_of(token.previous_until),
        "revoked_at": time_of(token.revoked_at),
    }


def is_local_name(name: str) -> bool:
    """Whether a token has the name of the user of this process. Such tokens can no longer be created; existing ones may
    use their name."""
    return name in map(first_part, local_names())


def covered(allow: Iterable[str]) -> dict[str, str]:
    """The grants that cover names of several kinds, and which kinds."""
    scopes = {grant: grant.partition(":")[0] for grant in allow}
    return {grant: WIDE[scope] for grant, scope in scopes.items() if scope in WIDE}


def _state(token: Token, now: int) -> str:
    return "revoked" if not token.is_known else "expired" if has_ended(token, now) else "active"


def time_of(at: int | None) -> str | None:
    """The time in RFC 3339."""
    return None if at is None else utc(at).isoformat().replace("+00:00", "Z")


def moment_of(at: int | None) -> str:
    """The time for people; empty for none."""
    return "" if at is None else moment(utc(at))
