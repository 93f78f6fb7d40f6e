"""Events as messages: subject, headers, and a CloudEvent 1.0 as JSON (https://github.com/cloudevents/spec)."""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.json import Object, to_object, to_text
from holdlog.adapters.operations.log import BOOKMARK_BYTES, GROUPS
from holdlog.adapters.operations.rows import cut_page, scan, show_event
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.codec import FIRST_DIGEST, FOREIGN
from holdlog.domain.names import split_stream
from holdlog.domain.refusals import InvalidError
from holdlog.domain.results import utc

PAGE: Final = 256
"""Events that are read and published together."""
BOOKMARK: Final = "Holdlog-Bookmark"
"""Header: bookmark of the event."""
PREVIOUS: Final = "Holdlog-Previous"
"""Header: bookmark of the event before it, so that readers notice gaps, and a log with another history."""
STORE: Final = "holdlog-store"
"""In the metadata of a stream: the id of its store."""
FOREIGN_SUBJECT: Final = "foreign"
"""Of events of other applications: their messages have no content, and subscribers pass over them."""
KINDS: Final = (*GROUPS, "store")
_ROOM: Final = 4096
"""Bytes of the largest message that are for its subject and headers."""
_LONGEST_TOKEN: Final = 160
"""Characters; a subject may have 4,000."""
_KEPT: Final = 80
_SECRET: Final = ("session", "of_session")
"""Who knows the session of a holder can act as this holder."""
_NAMES: Final = ("by", "namespace", "key", "resource", "thread", "token")
_NO_NAMESPACE: Final = "_"


class Row(NamedTuple):
    """An event as the log has it."""

    position: int
    stream: str
    version: int
    topic: str
    at: int
    meta: str
    payload: str | None
    digest: bytes

    @property
    def is_foreign(self) -> bool:
        return self.topic.startswith(FOREIGN)


def read_events(reader: Reader, after: int) -> list[Row]:
    """The next events, at most PAGE, fewer if they are large."""
    rows = (Row(*row) for row in scan(reader, sql.EVENTS, {"after": after}, PAGE + 1, payload=6))
    return cut_page(rows, PAGE, payload=6)[0]


def read_bookmark(reader: Reader, position: int) -> str | None:
    """The bookmark of a position, the log's beginning included; None if the log is shorter."""
    rows = [(FIRST_DIGEST,)] if position == 0 else reader.read(sql.DIGEST, {"position": position})
    return make_bookmark(position, bytes(rows[0][0])) if rows else None


def read_store_id(reader: Reader) -> str:
    return str(reader.read(sql.STORE_ID, {})[0][0])


def make_bookmark(position: int, digest: bytes) -> str:
    return f"{position}.{digest[:BOOKMARK_BYTES].hex()}"


def describe_event(row: Row, store_id: str, is_whole: bool = True) -> Object:
    """The event as a CloudEvent, which says where in the log it is. Without sessions; if it is not `is_whole`, with
    nothing but names."""
    event: Object = {"specversion": "1.0", "id": f"{row.stream}@{row.version}", "source": f"holdlog:{store_id}"}
    event |= {
        "type": f"holdlog.{row.topic}",
        "subject": row.stream,
        "time": utc(row.at).isoformat(timespec="microseconds"),
    }
    event |= {"position": row.position, "version": row.version, "digest": row.digest.hex()}
    event |= {"bookmark": make_bookmark(row.position, row.digest)}
    if row.is_foreign:
        return event | {"id": str(row.position), "type": "holdlog.Foreign", "subject": FOREIGN_SUBJECT}
    data = to_object(show_event(row))
    for name in ("position", "id", "stream", "version", "kind", "at", *_SECRET):
        data.pop(name, None)
    if row.payload is None:
        event["redacted"] = True
    elif not is_whole:
        event["omitted"] = True
        data = {name: data[name] for name in _NAMES if name in data}
    return event | {"datacontenttype": "application/json", "data": data}


def encode_event(row: Row, store_id: str, max_payload: int) -> bytes:
    """The text of a message. An event that NATS would refuse as too large has only names, and is marked `omitted`."""
    text = to_text(describe_event(row, store_id)).encode()
    if len(text) <= max_payload - _ROOM:
        return text
    return to_text(describe_event(row, store_id, is_whole=False)).encode()


# --- subjects: holdlog.<store>.<kind>.<namespace>.<key>


def name_stream(store_id: str) -> str:
    """The stream of JetStream with the events of a store."""
    return f"holdlog_{store_id}"


def name_root(store_id: str) -> str:
    """What the subjects of a store start with."""
    return f"holdlog.{store_id}"


@lru_cache(4096)
def name_subject(stream: str) -> str:
    """The subject of the events of a stream, below the root: `record.campaign.budget`, `claim.path.src%2Fa%2Epy`."""
    kind, _, name = stream.partition(":")
    namespace = _NO_NAMESPACE
    if kind == FOREIGN[:-1]:
        return FOREIGN_SUBJECT
    if kind == "record":
        namespace, name = split_stream(stream)
    elif kind == "claim":
        scheme, separator, rest = name.partition("://")
        namespace, name = (scheme, rest) if separator else ("path", name)
    return f"{kind}.{_encode(namespace)}.{_encode(name)}"


def _encode(name: str) -> str:
    """One name as one token: percent-encoded, but for ASCII letters, digits, `_` and `-`. Different names have
    different tokens; a long one is cut, and ends with the hash of the name."""
    token = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(token) <= _LONGEST_TOKEN:
        return token
    return f"{re.sub('%.?$', '', token[:_KEPT])}%_{sha256(name.encode()).hexdigest()}"


def check_pattern(text: str) -> str:
    """Raises InvalidError for a pattern that no event could match: its reader would wait for ever."""
    tokens = text.split(".")
    wrong = ""
    if tokens[0] not in (*KINDS, "*", ">"):
        wrong = f"it must start with {', '.join(KINDS)} or *"
    elif len(tokens) > 3 or (len(tokens) < 3 and tokens[-1] != ">"):
        wrong = "it must be KIND.NAMESPACE.KEY, or end with >"
    elif not all(re.fullmatch(r"[A-Za-z0-9_%-]+|\*|>", token) for token in tokens) or ">" in tokens[:-1]:
        wrong = "names are percent-encoded, but for letters, digits, _ and -; > is the last"
    if wrong:
        raise InvalidError(f"subject: matches no event: {wrong}")
    return text


def matches(patterns: Sequence[str], subject: str) -> bool:
    """Whether one of the patterns matches a subject below the root, by the rules of NATS; without patterns all do."""
    return not patterns or any(_match(pattern.split("."), subject.split(".")) for pattern in patterns)


def _match(pattern: list[str], tokens: list[str]) -> bool:
    if pattern[-1] == ">":
        pattern = pattern[:-1]
        if len(tokens) <= len(pattern):
            return False
        tokens = tokens[: len(pattern)]
    return len(pattern) == len(tokens) and all(one in ("*", other) for one, other in zip(pattern, tokens, strict=True))
