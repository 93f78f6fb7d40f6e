"""The location of a PostgreSQL store: a URL, with the schema that holds its tables."""

import hashlib
import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from holdlog.domain.names import closest
from holdlog.domain.refusals import StoreError

SCHEMES = ("postgresql", "postgres")
SCHEMA = "holdlog"
"""The schema of a URL that names none with `?schema=`."""
MAX_SCHEMA = 50
"""Bytes; PostgreSQL allows names of 63, and ours append to it."""

_UNREADABLE: Final = (
    "the URL cannot be parsed; write postgresql://user@host:5432/database, with %40 for @, %3A for :, %2F for /,"
    " %3F for ?, %23 for # and %25 for % in names and passwords"
)

_WORD: Final = re.compile("[A-Za-z][A-Za-z0-9_-]{0,30}")


class DatabaseTarget(NamedTuple):
    """A database and a schema. `url`: in the form that libpq takes."""

    url: str
    schema: str


def name_of(url: str) -> str:
    """Host, database and user of a URL, without secrets. Raises StoreError in the same cases as `database_target`."""
    target = database_target(url)
    parts = urlsplit(target.url)
    options = parse_qsl(parts.query)
    who, _, host = parts.netloc.rpartition("@")
    user = quote(dict(options).get("user", ""), safe="") or who.partition(":")[0]
    kept = [(name, it) for name, it in options if name in ("host", "hostaddr", "port", "dbname")]
    query = urlencode([*kept, ("schema", target.schema)], safe="/", quote_via=quote)
    return f"postgresql://{user}{'@' if user else ''}{host}{parts.path}?{query}"


def database_target(url: str) -> DatabaseTarget:
    """Parse a URL. Raises StoreError for one that libpq would not accept either."""
    try:
        parts, options = _parsed(url)
    except (ValueError, ProgrammingError):  # whose text may contain the password
        raise StoreError(_UNREADABLE) from None
    schema = dict(options).get("schema", SCHEMA)
    if not schema or "\0" in schema or len(schema.encode()) > MAX_SCHEMA:
        raise StoreError(f"schema: must have 1 to {MAX_SCHEMA} bytes")
    if schema != schema.strip() or schema == "$user":  # the library and PostgreSQL would change these names
        raise StoreError("schema: must not start or end with a blank, nor be $user")
    return DatabaseTarget(_without_schema(parts, options), schema)


def location_of_space(url: str, name: str) -> str:
    """The URL of a space of this store: in schema `<schema>_space_<name>`, or, if that is too long, one named by its
    hash. Raises StoreError in the same cases as `database_target`."""
    target = database_target(url)
    schema = f"{target.schema}_space_{name}"
    if len(schema.encode()) > MAX_SCHEMA:
        schema = f"space_{hashlib.sha256(schema.encode()).hexdigest()[:32]}"
    return f"{target.url}{'&' if '?' in target.url else '?'}schema={quote(schema, safe='')}"


def _parsed(url: str) -> tuple[SplitResult, list[tuple[str, str]]]:
    """Split a URL and its options. Raises ValueError, ProgrammingError; StoreError for an unknown option."""
    parts = urlsplit(url)
    who, _, _ = parts.netloc.rpartition("@")
    if f"{parts.scheme}://" != url[: len(parts.scheme) + 3] or parts.port == 0 or "@" in who or "#" in url:
        raise ValueError
    plain = parts.query.replace("+", "%2B")  # libpq knows only %20 for a blank
    options = parse_qsl(plain, keep_blank_values=True, strict_parsing=bool(plain), errors="strict", separator="&")
    if "@" not in parts.query:  # else the names may be parts of an unencoded password
        _require_known([name for name, _ in options])
    conninfo_to_dict(_without_schema(parts, options))
    return parts, options


def _require_known(names: list[str]) -> None:
    """Raise StoreError for an option that neither we nor libpq know."""
    known = {"schema", "ssl", *(option.keyword.decode() for option in Conninfo.get_defaults())}
    for name in names:
        if name not in known and _WORD.fullmatch(name):
            near = closest(name.lower(), known)
            meant = f"did you mean {near}?" if near else "known options: schema, and those of libpq"
            raise StoreError(f"unknown option {name} in the URL; {meant}")


def _without_schema(parts: SplitResult, options: list[tuple[str, str]]) -> str:
    rest = urlencode([(name, value) for name, value in options if name != "schema"], quote_via=quote)
    return f"postgresql://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
