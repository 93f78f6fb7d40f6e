"""Translates the vocabulary of 0.2 to that of 0.1, so that the same doors judge both. Goes at the switch.

At most 250 lines: what differs by more than a name is marked with `changes_in_02`.
"""

import sys
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
    return opened


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
