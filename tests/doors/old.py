"""Translates the vocabulary of 0.2 to that of 0.1, so that the same doors judge both. Goes at the switch.

At most 250 lines: what differs by more than a name is marked with `changes_in_02`.
"""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdlog

OLD = holdlog.__version__.startswith("0.1")
"""Whether these tests run against release 0.1."""

_OPTIONS = {
    "--expected-version": "--version",
    "--updated-by": "--by",
    "--deleted-by": "--by",
    "--lease-seconds": "--lease",
    "--wait-seconds": "--wait",
    "--timeout-seconds": "--timeout",
    "--ttl-seconds": "--ttl",
}
_SERVER_OPTIONS = {"--lease-seconds"}
"""Those of the server have this name in both."""


_QUERY = {"wait_seconds": "wait", "after_key": "after", "before_version": "before"}


def changes_in_02(reason: str) -> pytest.MarkDecorator:
    """Mark a test that states what 0.2 does and 0.1 does not. Also for `pytest.param(…, marks=…)`."""
    return pytest.mark.xfail(OLD, strict=True, reason=f"0.2: {reason}")


def words(*given: str) -> list[str]:
    """The words of a command, without `holdlog`."""
    if not OLD:
        return list(given)
    is_server = given[:1] == ("serve",)
    given = tuple(_without_values(given))
    given = tuple(_AUDIT[given[0]](*given[1:])) if given[0] in _AUDIT else given
    return [it if is_server and it in _SERVER_OPTIONS else _OPTIONS.get(it, it) for it in given]


def _without_values(given: tuple[str, ...]) -> Iterator[str]:
    """`--open-tokens N` had no number, and `--space-bytes B` did not exist."""
    for before, word in zip(("", *given), given, strict=False):
        if before not in ("--open-tokens", "--space-bytes") and word != "--space-bytes":
            yield word


def route(method: str, path: str, options: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """A request over HTTP: method, path and the keyword arguments of `requests.request`."""
    if not OLD:
        return method, path, options
    if options.get("params"):
        options = options | {"params": {_QUERY.get(name, name): it for name, it in options["params"].items()}}
    path = path.removeprefix("/v1")
    if path.startswith("/history/"):
        options = options | {"params": {"history": "1"} | options.get("params", {})}
    kind = path.split("/")[1]
    return method, path.replace(f"/{kind}/", "/kv/", 1) if kind in ("values", "history") else path, options


def _redact(stream: str, *more: str) -> tuple[str, ...]:
    return "redact", *stream.removeprefix("record:").split("/", 1), *more


def _replayed(*more: str) -> tuple[str, ...]:
    return ("--from", more[0], "--to", more[1], "--state", *more[2:]) if more[1:] else more


_MOMENTS = {"--from": "--since", "--to": "--until"}
_AUDIT: dict[str, Any] = {
    "doctor": lambda *more: ("rebuild", *more[1:]) if more[:1] == ("--rebuild",) else ("doctor", *more),
    "export": lambda *more: ("export", *more) if more and more[0][0] != "-" else ("export", "--log", *more),
    "log": lambda *more: ("log", *(_MOMENTS.get(it, it) for it in more)),
    "redact": _redact,
    "replay": lambda *more: ("replay", *_replayed(*more)),
}
"""Commands about the log, by their first word."""


def checkpoint(db: Any) -> str:
    """A line that proves what the log is now. 0.1's library knew none of these five; its commands did."""
    if OLD:
        return _run("checkpoint", db)[1]
    with holdlog.StateStore(db) as opened:
        return str(opened.checkpoint())


def verify(db: Any, kept: Path | None = None) -> str:
    """What is wrong with a store; empty if nothing is. `kept`: a file with a checkpoint."""
    if OLD:
        code, out, _ = _run("verify", db, *(() if kept is None else ("--checkpoint", kept)))
        return out if code else ""
    with holdlog.StateStore(db) as opened:
        result = opened.verify(None if kept is None else kept.read_text())
    return "" if result else result.problem


def redact(db: Any, event: str | None = None, reason: str = "it leaked", older_than: float | None = None) -> str:
    """Redact one text, or all of an age in seconds; the refusal, or nothing."""
    if OLD:
        return _refusal("redact", db, event, *(("--reason", reason) if reason else ()))
    return _try(db, "redact", event, older_than_seconds=older_than, redacted_by="ann", reason=reason)


def rebuild(db: Any) -> None:
    assert (_refusal("rebuild", db) if OLD else _try(db, "rebuild")) == ""


def diagnose(db: Any) -> list[str]:
    """Names of what is wrong, or the refusal to open the store."""
    if OLD:
        findings = json.loads(_run("doctor", db, "--json")[1])["findings"]
        return [it["name"] for it in findings if it["level"] == "bad"]
    try:
        with holdlog.StateStore(db) as opened:
            return [it.name for it in opened.doctor().findings if it.level == "bad"]
    except holdlog.StoreError as refusal:
        return [str(refusal)]


def export(db: Any) -> str:
    if OLD:
        return str(_run("export", db)[1])
    with holdlog.StateStore(db) as opened:
        opened.export(file := io.BytesIO())
    return file.getvalue().decode()


def import_(text: str, db: Any) -> str:
    """The refusal, or nothing."""
    return _refusal("import", db, "-", stdin=text) if OLD else _try(db, "import_", io.BytesIO(text.encode()))


def _try(db: Any, method: str, *arguments: Any, **options: Any) -> str:
    with holdlog.StateStore(db) as opened:
        try:
            getattr(opened, method)(*arguments, **options)
        except holdlog.HoldlogError as refusal:
            return str(refusal)
    return ""


def _refusal(*words: Any, **options: Any) -> str:
    return done.err if (done := _run(*words, **options)).code else ""


def _run(word: str, db: Any, *more: Any, **options: Any) -> Any:
    from tests.support.programs import run

    done = run(word, *more, "--db", db, **options)
    assert "Traceback" not in done.err
    return done


def store(opened: Any) -> Any:
    """A handle of the library with the method names of 0.2."""
    return _Store(opened) if OLD else opened


class _Store:
    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, {"list": "list_records"}.get(name, name))

    def status(self, resource: str | None = None, **options: Any) -> Any:
        """Without a resource, the board."""
        return self._opened.board(**options) if resource is None else self._opened.status(resource, **options)

    def at(self, moment: Any, *words: str, **more: Any) -> Any:
        """As status, list or get now. A version (`v3`) is that of the key."""
        if str(moment).startswith("v"):
            return self.blame(*words, at=moment)
        past = self._opened.at(**_moment("", moment))
        named = {"resource": "status", "thread_id": "thread"}
        name = next((named[it] for it in more if it in named), ("board", "list_records", "get")[len(words)])
        result = getattr(past, name)(*words, **more)
        return self._opened.finish(result) if hasattr(result, "__await__") else result

    def events(self, after: Any = 0, **options: Any) -> Any:
        """Its bookmarks were those of `changes`."""
        if isinstance(after, str):
            list(self._opened.changes(after, wait_seconds=0))
            after = int(after.rpartition(":")[2])
        return self._opened.events(after, **options)

    def blame(self, namespace: str, key: str, at: Any = None) -> Any:
        return self._opened.blame(namespace, key, **_moment("", at))

    def diff(self, first: Any, last: Any = None, *, namespace: str, key: str | None = None, **more: Any) -> Any:
        return self._opened.diff(namespace, key, **_moment("from_", first), **_moment("to_", last), **more)


def _moment(prefix: str, moment: Any) -> dict[str, Any]:
    if isinstance(moment, str) and moment[0] == "v":
        return {f"{prefix}version": int(moment[1:])}
    return {prefix + ("position" if isinstance(moment, int) else "time"): moment} if moment is not None else {}


_PATIENT = """
import runpy, sys
from holdlog.adapters.hooks import running
running.SECONDS = 60.0
sys.argv = ["holdlog", "hook", *sys.argv[1:]]
runpy.run_module("holdlog", run_name="__main__")
"""


def hook(program: str) -> list[str]:
    """The words that start a hook. A slow one that runs out of time allows the edit, and 0.1's are slow."""
    return [sys.executable, "-c", _PATIENT] if OLD else [program, "hook"]
