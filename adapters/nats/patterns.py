"""Subject patterns of a subscriber. A pattern that no subject can match is refused: the subscriber would wait in
silence."""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from holdlog.adapters.nats.subjects import (
    HASHED,
    IN_NO_NAMESPACE,
    NO_NAMESPACE,
    PLAIN_PATH,
    matches,
    subject_of_claim,
    token,
)
from holdlog.domain.refusals import InvalidError

KINDS: Final = ("record", "claim", "agent", "token", "thread", "store")
NAMES: Final = 3
"""Tokens of a subject behind its root: kind, namespace, key."""

_STORE: Final = re.compile(r"[A-Za-z0-9_-]+|\*")
_CUT: Final = re.compile(rf"[A-Za-z0-9_%-]{{1,80}}{HASHED}[0-9a-f]{{64}}|{HASHED}")
_OF_CLAIMS: Final = re.compile(rf"{PLAIN_PATH}|custom|file%3A.*|\*")


class Pattern(NamedTuple):
    """A parsed subject pattern. `store`: its token in subjects, `*` for any; `rest`: the pattern behind
    `<prefix>.<store>`."""

    store: str
    rest: str

    def fits(self, subject: str) -> bool:
        """Whether a subject matches. `subject`: behind its root."""
        return matches(self.rest, subject)

    def require_of(self, root: str) -> None:
        """Check that the pattern is of the store that publishes below `root`. Raises InvalidError."""
        name = root.rpartition(".")[2]
        if self.store not in ("*", name):
            raise InvalidError(f"subject: belongs to the store {self.store}; this store publishes as {name}")


def pattern_of(text: str, prefix: str) -> Pattern:
    """Parse a user's pattern, with or without `<prefix>.<store>`. Raises InvalidError if no subject can match."""
    whole = text.removeprefix(f"{prefix}.")
    store, _, rest = whole.partition(".") if whole != ">" else ("*", ".", ">")
    is_kind = prefix.partition(".")[0] in KINDS
    if whole == text or (is_kind and _wrong(rest)):
        store, rest = "*", text
    wrong = _wrong(rest) if _STORE.fullmatch(store) else "the name of the store must have only letters, digits, _ and -"
    if wrong:
        raise InvalidError(f"subject: no event can match {text!r}: {wrong}; see docs/nats.md")
    return Pattern(store, rest)


def _wrong(pattern: str) -> str:
    """The reason why no subject behind a root matches; nothing for a good pattern."""
    names = pattern.split(".")
    last = names.pop() if names[-1] == ">" else None
    if "" in names:
        return "it contains an empty name"
    if ">" in names:
        return "> is only allowed at the end"
    if names and names[0] not in (*KINDS, "*"):
        return "it must start with record, claim, agent, token, thread, store, * or >"
    if any(set(it) & {"*", ">"} and it != "*" for it in names):
        return "* and > replace whole names"
    if len(names) > NAMES or any(it != "*" and not _is_token(it) for it in names):
        return f"names must be percent-encoded, as in {_encoded(names)}"
    if len(names) != NAMES - (last is not None) and (last is None or len(names) == NAMES):
        return "it must have kind, namespace and key, as in record.campaign.budget, record.campaign.* or claim.>"
    if names[:1] == ["claim"] and len(names) > 1 and not _OF_CLAIMS.fullmatch(names[1]):
        return f"the namespace of claims is {PLAIN_PATH}, custom or file%3A<workspace>"
    if names[0:1] and names[0] in IN_NO_NAMESPACE and len(names) > 1 and names[1] not in (NO_NAMESPACE, "*"):
        return f"the namespace of {names[0]}s is {NO_NAMESPACE}, as in {names[0]}.{NO_NAMESPACE}.{names[-1]}"
    return ""


def _is_token(name: str) -> bool:
    return _CUT.fullmatch(name) is not None or _token(name) == name


def _encoded(names: list[str]) -> str:
    """The most likely intended pattern: a dot that is not written as `%2E` has split a key into several names."""
    kind, namespace, *key = names
    if kind == "claim" and "://" in ".".join(names):
        return subject_of_claim(unquote(".".join(names[1:])))
    return ".".join((kind, namespace if namespace == "*" else _token(namespace), _token(".".join(key) or "key")))


def _token(name: str) -> str:
    """Encode one token. Encoded text stays as it is; characters that no name can contain are replaced."""
    return token(unquote(name).encode(errors="replace").decode())
