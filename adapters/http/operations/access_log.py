"""One line on stderr for each completed request, without secrets or stored data.

A line names the route, not the path, whose parts are keys: `/kv/{group}/{key}`. Headers and queries are not logged.
"""

import json
import re
import sys
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TextIO

Format = Literal["text", "json"]
_PLAIN: Final = re.compile(r"[\w.:/{}@*+-]+", re.ASCII)


class AccessLogEntry(NamedTuple):
    """One line of the access log. `bytes`: of the response body. `request`: the response header X-Request-Id; `trace`:
    the OpenTelemetry trace id."""

    method: str
    route: str
    status: int
    ms: float
    bytes: int
    principal: str | None
    request: str | None
    trace: str | None


class AccessLog:
    """Writes the access log, as JSON or text. `text`: `name=value` separated by blanks; values that are not plain are
    quoted as in JSON."""

    def __init__(self, form: Format, to: TextIO | None = None) -> None:
        self._line = _json if form == "json" else _text
        self._to = to or sys.stderr

    def write(self, entry: AccessLogEntry) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {"at": at} | {name: value for name, value in entry._asdict().items() if value is not None}
        try:
            self._to.write(self._line(fields) + "\n")
            self._to.flush()
        except (OSError, ValueError):
            pass  # stderr is closed: keep serving


def _json(entry: dict[str, object]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _text(entry: dict[str, object]) -> str:
    return " ".join(f"{name}={_quoted(str(value))}" for name, value in entry.items())


def _quoted(text: str) -> str:
    """Escape control characters, quotes and non-ASCII characters: no name can forge a line or move a cursor."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
