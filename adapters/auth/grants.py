"""Grants: what a principal may do, as scopes on patterns of namespaces and resources."""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple, cast
from urllib.parse import unquote

from holdlog.domain.refusals import DeniedError, InvalidError
from holdlog.domain.token import MAX_ALLOWED, SCOPES, Scope, allowed

_READ: Final[frozenset[Scope]] = frozenset({"read", "read-values", "read-claims", "read-threads"})
_INCLUDED: Final[dict[Scope, frozenset[Scope]]] = {
    "read": _READ,
    "write": _READ | {"write", "write-values", "write-threads"},
    "claim": frozenset({"claim"}),
    "admin": frozenset(SCOPES),
    "read-values": frozenset({"read-values"}),
    "read-claims": frozenset({"read-claims"}),
    "read-threads": frozenset({"read-threads"}),
    "write-values": frozenset({"write-values", "read-values"}),  # a conflict shows the current value
    "write-threads": frozenset({"write-threads", "read-threads"}),
    "metrics": frozenset({"metrics"}),
}
"""The scopes that each scope includes. `read` and `write` cover values, claims and threads whose names match."""
WIDE: Final[dict[str, str]] = {
    "read": "values, claims and threads",
    "write": "values and threads; reads claims",
}
"""Scopes that cover several kinds of names, and those kinds."""


class ScopeGrant(NamedTuple):
    """One grant: a scope on the names that a pattern matches. `pattern`: matches namespaces or resources; `*` matches
    any text, including the empty one; all else is literal."""

    scope: Scope
    pattern: str

    def __str__(self) -> str:
        return f"{self.scope}:{self.pattern}"


class Grants(NamedTuple):
    """All permissions of one principal. `write` includes `read`, `admin` includes everything; `read` and `write` cover
    values, claims and threads, `read-values` and similar scopes only one kind.

    Names are namespaces as stored, and resources by their canonical name: the path in the default workspace,
    `file://<workspace>/<path>` in another one, `custom://<name>`.
    """

    grants: tuple[ScopeGrant, ...]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Grants":
        """Parse `scope:pattern`, such as `write:build-*`. Raises InvalidError."""
        grants = tuple(dict.fromkeys(_grant(text) for text in texts))
        if not grants or len(grants) > MAX_ALLOWED:
            raise InvalidError(f"allow: must have 1 to {MAX_ALLOWED} grants, such as write:build-*")
        return cls(grants)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Grants":
        """Parse like `parse`, but ignore invalid grants. Without a valid one, nothing is allowed."""
        found: dict[ScopeGrant, None] = {}
        for text in texts:
            with suppress(InvalidError):
                found[_grant(text)] = None
        return cls(tuple(found))

    def allows(self, scope: Scope, name: str) -> bool:
        return any(scope in _INCLUDED[grant.scope] and _matches(grant.pattern, name) for grant in self.grants)

    def allows_some(self, *scopes: Scope) -> bool:
        """Whether any of these scopes is granted on at least one name."""
        return any(scope in _INCLUDED[grant.scope] for grant in self.grants for scope in scopes)

    def require(self, scope: Scope, name: str) -> None:
        """Require `scope` on `name`. Raises DeniedError."""
        if not self.allows(scope, name):
            raise DeniedError(f"{scope}:{name}")

    def sees_claim(self, resource: str) -> bool:
        """Whether the principal may know who holds the resource."""
        return self.allows("read-claims", resource) or self.allows("claim", resource)

    def sees(self, stream: str) -> bool:
        """Whether the principal may read the events of a stream. Required: for a record `read-values` on its namespace;
        for a claim `read-claims` or `claim` on its resource; for a thread `read-threads` on its name; for a token
        `admin`; for the log itself (`store:log`) `admin` on all names; for an agent any scope but `metrics`."""
        kind, _, rest = stream.partition(":")
        match kind:
            case "record":
                return self.allows("read-values", unquote(rest.partition("/")[0]))
            case "claim":
                return self.sees_claim(unquote(rest))
            case "thread":
                return self.allows("read-threads", unquote(rest))
            case "token":
                return self.allows("admin", unquote(rest))
            case "store":  # it names streams of all kinds
                return self.allows("admin", "*")
            case _:
                return kind == "agent" and any(grant.scope != "metrics" for grant in self.grants)


EVERYTHING: Final = Grants((ScopeGrant("admin", "*"),))


def _grant(text: str) -> ScopeGrant:
    try:
        scope, _, pattern = allowed(text).partition(":")
    except ValueError as error:
        raise InvalidError(f"allow: {error}") from None
    return ScopeGrant(cast(Scope, scope), pattern)


def _matches(pattern: str, name: str) -> bool:
    """Match in one pass over the name, however many stars there are: an issuer of tokens must not be able to stall a
    server."""
    if "*" not in pattern:
        return pattern == name
    first, *middle, last = _parts(pattern)
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


@lru_cache(1024)
def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("*"))
