"""Commands about the log, each on a handle of its own: a test changes the file between them."""

import io
from pathlib import Path
from typing import Any

import holdlog


def checkpoint(db: Any) -> str:
    """A line that proves what the log is now."""
    with holdlog.StateStore(db) as store:
        return str(store.checkpoint())


def verify(db: Any, kept: Path | None = None) -> str:
    """What is wrong with a store; empty if nothing is. `kept`: a file with a checkpoint."""
    with holdlog.StateStore(db) as store:
        result = store.verify(None if kept is None else kept.read_text())
    return "" if result else result.problem


def redact(db: Any, event: str | None = None, reason: str = "it leaked", older_than: float | None = None) -> str:
    """Redact one text, or all of an age in seconds; the refusal, or nothing."""
    return _try(db, "redact", event, older_than_seconds=older_than, redacted_by="ann", reason=reason)


def rebuild(db: Any) -> None:
    assert _try(db, "rebuild") == ""


def diagnose(db: Any) -> list[str]:
    """Names of what is wrong, or the refusal to open the store."""
    try:
        with holdlog.StateStore(db) as store:
            return [it.name for it in store.doctor().findings if it.level == "bad"]
    except holdlog.StoreError as refusal:
        return [str(refusal)]


def export(db: Any) -> str:
    with holdlog.StateStore(db) as store:
        store.export(file := io.BytesIO())
    return file.getvalue().decode()


def import_(text: str, db: Any) -> str:
    """The refusal, or nothing."""
    return _try(db, "import_", io.BytesIO(text.encode()))


def _try(db: Any, method: str, *arguments: Any, **options: Any) -> str:
    with holdlog.StateStore(db) as store:
        try:
            getattr(store, method)(*arguments, **options)
        except holdlog.HoldlogError as refusal:
            return str(refusal)
    return ""
