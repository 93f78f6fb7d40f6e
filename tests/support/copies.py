"""Copies of stores, and exports of logs as lines that tests can change."""

import json
from collections.abc import Sequence
from io import BufferedReader, BytesIO
from typing import Any

from holdlog import CopyReport
from holdlog.adapters.python.copying import export_log, import_log
from holdlog.domain.merkle import Frontier, leaf
from holdlog.domain.store_log import STORE_STREAM, LogForked
from tests.support.commands import rows, whole_log
from tests.support.places import Place, engine


def exported(place: Place) -> list[bytes]:
    """The lines of an export."""
    lines: list[bytes] = []
    assert export_log(place, lines.append) == len(lines) - 2
    return lines


def imported(lines: Sequence[bytes], place: Place) -> CopyReport:
    return import_log(BufferedReader(BytesIO(b"".join(lines))), "log.jsonl", place)  # type: ignore[arg-type]


def parsed(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def require_fork(source: Place, target: Place, later: int = 0) -> None:
    """Require that the target has all events of the source, a LogForked behind them, and so many later ones."""
    with engine(source) as ours, engine(target) as theirs:
        copied = rows(ours)
        assert rows(theirs)[: len(copied)] == copied
        tree = Frontier()
        for row in copied:
            tree.add(leaf(row[11]))
        fork, *others = whole_log(theirs)[len(copied) :]
        with ours.reader() as reader:
            source_id = reader.meta("store_id")
        assert fork.envelope.stream == STORE_STREAM
        assert fork.event == LogForked(source=source_id, at_position=len(copied), root=tree.root().hex())
        assert len(others) == later
