"""Exports of logs, as lines that tests can change."""

import json
from collections.abc import Sequence
from io import BufferedReader, BytesIO
from typing import Any

from holdlog import CopyReport
from holdlog.adapters.python.copying import export_log, import_log
from tests.support.places import Place


def exported(place: Place) -> list[bytes]:
    """The lines of an export."""
    lines: list[bytes] = []
    assert export_log(place, lines.append) == len(lines) - 2
    return lines


def imported(lines: Sequence[bytes], place: Place) -> CopyReport:
    return import_log(BufferedReader(BytesIO(b"".join(lines))), "log.jsonl", place)  # type: ignore[arg-type]


def parsed(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]
