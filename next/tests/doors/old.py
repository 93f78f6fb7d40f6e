"""Translates the vocabulary of 0.2 to that of 0.1, so that the same doors judge both. Goes at the switch.

At most 250 lines: what differs by more than a name is marked with `changes_in_02`.
"""

from collections.abc import Iterator
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
    given = tuple(_AUDIT[given[0]](*given[1:])) if given[0] in _AUDIT else given
    given = tuple(_without_values(given))
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
    namespace, _, key = stream.removeprefix("record:").partition("/")
    return "redact", namespace, key, *more


_AUDIT: dict[str, Any] = {
    "export": lambda *more: ("export", *more) if more and more[0][0] != "-" else ("export", "--log", *more),
    "redact": _redact,
}
"""Commands about the log, by their first word."""


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
