"""Answers as a person reads them, and what keeps a terminal safe from what agents wrote."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from holdlog.adapters import results
from holdlog.adapters.answers import named
from holdlog.adapters.results import Result

WIDEST_VALUE = 60
"""Characters of a value in a table."""


def printable(text: str, kept: str = "\n") -> str:
    """Every character that a terminal could obey (controls, C1, directions) as JSON escapes it; `kept` ones stay."""
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in text)


def text(result: Result, place: Path | str) -> str:
    """The answer for a person; `place` is the store's, told where nothing was found."""
    match result:
        case results.StateRecord(value=value):
            return json.dumps(value, ensure_ascii=False, indent=2)
        case results.SetResult(version=version) | results.DeleteResult(version=version):
            return f"version {version}"
        case results.RecordList(namespace=namespace, records=records):
            rows = [(it.key, f"v{it.version}", it.updated_by, _short(it.value)) for it in records]
            return _table(rows) or f"nothing in namespace {namespace} of the store {place}"
        case results.NamespaceList(namespaces=namespaces):
            return _table([(it.namespace, str(it.count)) for it in namespaces]) or f"nothing in the store {place}"
        case results.History(history=history):
            entries = [
                (f"v{it.version}", it.event_type, it.updated_by, _moment(it.updated_at), _past(it)) for it in history
            ]
            return _table(entries) or f"nothing in the store {place}"
        case results.Board(claims=claims):
            holds = [(it.resource, it.held_by, _duration(it.held_for_seconds)) for it in claims]
            return _table(holds) or f"nothing is held in the store {place}"
        case _:
            hint = getattr(result, "hint", "")
            return _sentence(result) + (f"\n{named(hint, 'holdlog ')}" if hint else "")


def _sentence(result: Result) -> str:
    """One line that begins with the status."""
    match result:
        case results.Claimed(resource=resource, version=version):
            told = f"{resource} (version {version})"
        case results.AlreadyClaimed(resource=resource, version=version, claimed_at=since):
            told = f"{resource} is yours since {_clock(since)} (version {version})"
        case results.Held() | results.Busy() | results.WaitTimeout():
            told = (
                f"{result.resource} is held by {result.held_by} since {_clock(result.claimed_at)} "
                f"({_duration(result.held_for_seconds)})"
            )
        case results.Released(resource=resource, version=version):
            told = f"{resource} (version {version})"
        case results.AlreadyFree(resource=resource):
            told = resource
        case results.NotHolder(resource=resource, held_by=holder):
            told = f"{resource} is held by {holder}"
        case results.NeverClaimed(resource=resource):
            told = f"{resource} was never claimed"
        case results.Available(resource=resource, previous_holder=None):
            told = resource
        case results.Available(resource=resource, previous_holder=holder, previous_outcome_at=at):
            told = f"{resource} (released by {holder}" + (f" at {_clock(at)})" if at else ")")
        case results.NotFound(namespace=namespace, key=key, deleted_by=None):
            told = f"{namespace} {key}"
        case results.NotFound(namespace=namespace, key=key, deleted_by=by, deleted_at=at, version=version):
            told = f"{namespace} {key} was deleted by {by}" + (f" at {_moment(at)}" if at else "")
            told += f" (version {version})"
        case results.Deleted(namespace=namespace, key=key, version=version, deleted_by=by, deleted_at=at):
            told = f"{namespace} {key} by {by} at {_moment(at)} (version {version})"
        case results.Conflict(actual_version=0):
            told = f"{result.namespace} {result.key} does not exist now, not at version {result.expected_version}"
        case results.Conflict():
            told = (
                f"{result.namespace} {result.key} is at version {result.actual_version} by "
                f"{result.actual_updated_by}, not {result.expected_version}: {_short(result.actual_value)}"
            )
        case results.WatchTimeout(namespace=namespace, key=key, since_version=since_version):
            told = f"{namespace} {key} is still at version {since_version}"
        case results.Unavailable(message=message):
            told = message
        case _:
            told = ", ".join(
                f"{name} {json.dumps(value, ensure_ascii=False)}"
                for name, value in result.body().items()
                if name not in ("status", "hint")
            )
    status: str = result.body()["status"]
    direct = isinstance(result, results.Claimed | results.Released | results.AlreadyFree) or told == getattr(
        result, "resource", None
    )
    return f"{status} {told}" if direct else f"{status}: {told}"


def _escaped(character: str) -> str:
    """As in JSON: by UTF-16 unit. A lone surrogate is one, too."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _short(value: object) -> str:
    whole = json.dumps(value, ensure_ascii=False)
    return whole if len(whole) <= WIDEST_VALUE else whole[: WIDEST_VALUE - 1] + "…"


def _past(past: results.Past) -> str:
    value = "" if past.event_type == "delete" else _short(past.value)
    return f"{value}  # {past.reason}" if past.reason else value


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _clock(time: datetime) -> str:
    return f"{time:%H:%M:%S} UTC"


def _duration(seconds: float) -> str:
    """The largest unit that fits, and the next one: a hold may last days."""
    whole = int(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Aligned columns, a line per row; nothing without rows."""
    cells = [tuple(printable(cell, kept="") for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
