"""What a principal may do: scopes on namespaces and resources, by patterns."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args
from urllib.parse import unquote

from holdlog.domain.refusals import DeniedError, InvalidError

Scope = Literal["read", "write", "claim", "admin"]

MAX_PATTERN: Final = 512
MAX_GRANTS: Final = 64
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

_INCLUDED: Final[dict[Scope, frozenset[Scope]]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"write", "read"}),  # a conflict shows what stands there
    "claim": frozenset({"claim"}),
    "admin": frozenset(SCOPES),
}


class Grant(NamedTuple):
    """`pattern`: of a namespace or resource; `*` stands for any text, all else for itself."""

    scope: Scope
    pattern: str

    def __str__(self) -> str:
        return f"{self.scope}:{self.pattern}"


class Grants(NamedTuple):
    """All that one principal may do. `write` includes `read`, `admin` includes everything."""

    grants: tuple[Grant, ...]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Grants":
        """From `scope:pattern`, as `write:build-*`. Raises InvalidError."""
        grants = tuple(dict.fromkeys(_grant(text) for text in texts))
        if not grants or len(grants) > MAX_GRANTS:
            raise InvalidError(f"allow: must hold 1 to {MAX_GRANTS} grants, as write:build-*")
        return cls(grants)

    def allows(self, scope: Scope, name: str) -> bool:
        return any(scope in _INCLUDED[grant.scope] and _matches(grant.pattern, name) for grant in self.grants)

    def require(self, scope: Scope, name: str) -> None:
        """Raises DeniedError."""
        if not self.allows(scope, name):
            raise DeniedError(f"{scope}:{name}")

    def sees(self, stream: str) -> bool:
        """Whether the events of a stream may be read: of a record with `read` on its namespace, of a claim with `read`
        or `claim` on its resource, of a token with `admin`, of an agent with anything."""
        kind, _, rest = stream.partition(":")
        match kind:
            case "record":
                return self.allows("read", unquote(rest.partition("/")[0]))
            case "claim":
                return self.allows("read", unquote(rest)) or self.allows("claim", unquote(rest))
            case "token":
                return self.allows("admin", unquote(rest))
            case _:
                return kind == "agent"


EVERYTHING: Final = Grants((Grant("admin", "*"),))


def _grant(text: str) -> Grant:
    scope, colon, pattern = text.partition(":")
    if not colon or scope not in SCOPES or not pattern or len(pattern) > MAX_PATTERN or not pattern.isprintable():
        raise InvalidError(f"allow: must be {', '.join(SCOPES)}, a colon and a pattern, as write:build-*")
    return Grant(scope, pattern)


def _matches(pattern: str, name: str) -> bool:
    return pattern == "*" or _expression(pattern).fullmatch(name) is not None


@lru_cache(1024)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", pattern))), re.DOTALL)
