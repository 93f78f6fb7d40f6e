"""Parameters that leave a test to `make check` or to `make slow`; see tests/README.md."""

from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, with which only `make slow` runs a test."""
    return _marked(pytest.mark.slow, values)


def check(*values: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, with which `make check` runs a test and `make test` does not."""
    return _marked(pytest.mark.check, values)


def _marked(mark: pytest.MarkDecorator, values: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(*(it if isinstance(it, tuple) else (it,)), marks=mark) for it in values]
