"""One line for each answered request on stderr, of which none holds a secret or anything stored.

It names the route, not the path, whose parts are keys: `/kv/{group}/{key}`. No header and no query is told.
"""

import json
import re
import sys
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TextIO

Format = Literal["text", "json"]
_PLAIN: Final = re.compile(r"[\w.:/{}@*+-]+", re.ASCII)


class AccessLogEntry(NamedTuple):
    """`bytes`: of the answer's body. `request`: of the answer's header X-Request-Id; `trace`: of OpenTelemetry."""

    method: str
    route: str
    status: int
    ms: float
    bytes: int
    principal: str | None
    request: str | None
    trace: str | None


class AccessLog:
    """`text`: `name=value` with blanks between them, where what is not plain is quoted as in JSON."""

    def __init__(self, form: Format, to: TextIO | None = None) -> None:
        self._line = _json if form == "json" else _text
        self._to = to or sys.stderr

    def write(self, entry: AccessLogEntry) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {"at": at} | {name: value for name, value in entry._asdict().items() if value is not None}
        try:
            self._to.write(self._line(told) + "\n")
            self._to.flush()
        except (OSError, ValueError):
            pass  # nobody reads stderr any more: that is no reason to serve nobody


def _json(told: dict[str, object]) -> str:
    return json.dumps(told, separators=(",", ":"))


def _text(told: dict[str, object]) -> str:
    return " ".join(f"{name}={_quoted(str(value))}" for name, value in told.items())


def _quoted(text: str) -> str:
    """Control characters, quotes and what is not ASCII are escaped: nobody's name forges a line or moves a cursor."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
