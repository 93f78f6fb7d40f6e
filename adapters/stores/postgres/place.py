"""Where a PostgreSQL store is: a URL, with the schema that holds its tables."""

from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from holdlog.domain.refusals import StoreError

SCHEMES = ("postgresql", "postgres")
SCHEMA = "holdlog"
"""The schema of a URL that names none with `?schema=`."""
MAX_SCHEMA = 50
"""Bytes; PostgreSQL's names have 63, and ours add to it."""


class Place(NamedTuple):
    """`url`: as libpq takes it."""

    url: str
    schema: str


def name_of(url: str) -> str:
    """Where that is, without anything that a person has to hide. Raises StoreError as `place_of`."""
    place = place_of(url)
    parts = urlsplit(place.url)
    kept = [(name, it) for name, it in parse_qsl(parts.query) if name in ("host", "hostaddr", "port", "dbname")]
    query = urlencode([*kept, ("schema", place.schema)], safe="/")
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}?{query}"


def place_of(url: str) -> Place:
    """Raises StoreError for a URL that libpq could not take either."""
    try:
        parts = urlsplit(url)
        if parts.port == 0:
            raise ValueError
        plain = parts.query.replace("+", "%2B")  # libpq knows no other way to write a blank than %20
        options = parse_qsl(plain, keep_blank_values=True, strict_parsing=bool(plain))
    except ValueError:
        raise StoreError("the URL cannot be read; write postgresql://user@host:5432/database") from None
    schema = dict(options).get("schema", SCHEMA)
    if not schema or "\0" in schema or len(schema.encode()) > MAX_SCHEMA:
        raise StoreError(f"schema: must have 1 to {MAX_SCHEMA} bytes")
    rest = urlencode([(name, value) for name, value in options if name != "schema"], quote_via=quote)
    return Place(urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")), schema)
