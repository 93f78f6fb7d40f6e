"""Arrays in the text form that PostgreSQL reads (its manual, 8.15.2)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final


def arrays(kinds: Sequence[type], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Convert rows to one array per column, the form that statements with `unnest` take.

    psycopg can do this, but that doubled the time of a batch of 32 commands (docs/decisions/0018).
    """
    columns: Iterable[tuple[Any, ...]] = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return [f"{{{','.join(map(_ELEMENTS[kind], column))}}}" for kind, column in zip(kinds, columns, strict=True)]


def _text(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _number(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _bytes(value: bytes | None) -> str:
    return "NULL" if value is None else f'"\\\\x{value.hex()}"'


_ELEMENTS: Final[dict[type, Callable[[Any], str]]] = {str: _text, int: _number, bytes: _bytes}
