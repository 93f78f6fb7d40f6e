"""Subjects: `<prefix>.<store>.<kind>.<namespace>.<key>`, each name one token (docs/nats.md)."""

import hashlib
import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote

from holdlog.domain.agent import Profile
from holdlog.domain.claims.claim import Claim
from holdlog.domain.ports import State
from holdlog.domain.store_log import StoreLog
from holdlog.domain.threads.thread import Thread
from holdlog.domain.token import Token
from holdlog.projections import fold

LONGEST_TOKEN: Final = 160
"""Characters; the control line of a publish, which contains the whole subject, may have 4096."""

KEPT_OF_LONG: Final = 80
"""Characters of a longer token that stay readable before its hash."""

HASHED: Final = "%_"
"""Separates the two; no encoded name contains it, because two hexadecimal digits follow every `%` there."""

NO_NAMESPACE: Final = "_"
"""The namespace of agents, tokens, threads and the store itself."""

IN_NO_NAMESPACE: Final = ("agent", "token", "thread", "store")
"""Kinds without a namespace."""

PLAIN_PATH: Final = "path"
"""The namespace of claims on plain paths; `file:<workspace>` and `custom` are the others."""

_HALF_ESCAPE: Final = re.compile("%.?$")
_BEYOND_ASCII_WORDS: Final = re.compile("[.~]")


class SubjectNames(NamedTuple):
    """The subject of a stream's events: `kind` and two names."""

    kind: str
    namespace: str
    key: str


def token(text: str) -> str:
    """One name as one token: percent-encoded (RFC 3986) except ASCII letters, digits, `_` and `-`.

    Different names have different tokens. A long one is cut and ends in its SHA-256.
    """
    if not text:
        return HASHED
    encoded = _BEYOND_ASCII_WORDS.sub(lambda found: f"%{ord(found[0]):02X}", quote(text, safe=""))
    if len(encoded) <= LONGEST_TOKEN:
        return encoded
    kept = _HALF_ESCAPE.sub("", encoded[:KEPT_OF_LONG])
    return kept + HASHED + hashlib.sha256(text.encode()).hexdigest()


def names_of(state: State) -> SubjectNames:
    """The names in the subject of an aggregate's events."""
    match state:
        case Claim(resource=resource):
            return _names_of_claim(resource)
        case Profile(agent=agent):
            return SubjectNames("agent", NO_NAMESPACE, agent)
        case Token(name=name):
            return SubjectNames("token", NO_NAMESPACE, name)
        case Thread(thread=thread):
            return SubjectNames("thread", NO_NAMESPACE, thread)
        case StoreLog():
            return SubjectNames("store", NO_NAMESPACE, "log")
        case _:
            return SubjectNames("record", state.namespace, state.key)


@lru_cache(4096)
def subject_in(stream: str) -> str:
    """The subject of a stream's events behind `<prefix>.<store>`, as in `record.campaign.budget`."""
    kind, namespace, key = names_of(fold.initial(stream))
    return f"{kind}.{token(namespace)}.{token(key)}"


def subject_of_claim(resource: str) -> str:
    """The subject of a claim's events behind `<prefix>.<store>`."""
    kind, namespace, key = _names_of_claim(resource)
    return f"{kind}.{token(namespace)}.{token(key)}"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a NATS pattern: `*` is one token, `>` at the end one or more."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(one in ("*", other) for one, other in zip(wanted, given, strict=True))


def _names_of_claim(resource: str) -> SubjectNames:
    scheme, separator, rest = resource.partition("://")
    if not separator:
        return SubjectNames("claim", PLAIN_PATH, resource)
    if scheme == "custom":
        return SubjectNames("claim", "custom", rest)
    workspace, slash, path = rest.partition("/")
    return SubjectNames("claim", f"{scheme}:{workspace}", path or slash)
