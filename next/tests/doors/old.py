"""Translates the vocabulary of 0.2 to that of 0.1, so that the same doors judge both. Goes at the switch.

At most 250 lines: what differs by more than a name is marked with `changes_in_02`.
"""

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


def changes_in_02(reason: str) -> pytest.MarkDecorator:
    """Mark a test that states what 0.2 does and 0.1 does not. Also for `pytest.param(…, marks=…)`."""
    return pytest.mark.xfail(OLD, strict=True, reason=f"0.2: {reason}")


def words(*given: str) -> list[str]:
    """The words of a command, without `holdlog`."""
    if not OLD:
        return list(given)
    is_server = given[:1] == ("serve",)
    return [it if is_server and it in _SERVER_OPTIONS else _OPTIONS.get(it, it) for it in given]


def route(method: str, path: str, options: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """A request over HTTP: method, path and the keyword arguments of `requests.request`."""
    return method, path, options


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
