"""docs/promises.md names tests that exist, and that `make check` runs at least one of each promise."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = (ROOT / "docs/promises.md").read_text()
SECTIONS = re.findall(r"^## \d+\. (.*?)\n(.*?)(?=^## )", PROMISES, re.DOTALL | re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = TEST.findall(PROMISES)
NEEDS_MORE = ("pytest.mark.slow", "skipif", "STRACE", "SHIM", "AS_ROOT")
"""In a decorator: the test is slow, or is skipped where a program or a right is missing."""


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_promised_test_exists(file: str, test: str) -> None:
    assert test in functions_of(file)


def promises() -> list[list[tuple[str, str]]]:
    """The tests of each promise: those that are named without a paragraph in between."""
    found: list[list[tuple[str, str]]] = [[]]
    for paragraph in re.split(r"\n\n+", PROMISES):
        tests = TEST.findall(paragraph)
        if tests and (paragraph.startswith("* ") or found[-1] == []):
            found[-1] += tests
        else:
            found += [tests, []] if tests else [[]]
    return [tests for tests in found if tests]


def test_every_promise_has_a_test_that_make_check_runs_everywhere() -> None:
    assert len(promises()) > 60
    assert [tests for tests in promises() if not any(runs_everywhere(*test) for test in tests)] == []


def runs_everywhere(file: str, test: str) -> bool:
    marks = functions_of(file)[test]
    return not file.startswith("tests/surfaces/browser/") and not any(it in mark for mark in marks for it in NEEDS_MORE)


@cache
def functions_of(file: str) -> dict[str, list[str]]:
    """Each function with its decorators."""
    return {
        node.name: [ast.unparse(it) for it in node.decorator_list]
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_promise_names_a_test_or_is_marked_as_not_kept_yet() -> None:
    assert len(SECTIONS) == 14
    for promise, text in SECTIONS:
        assert "`tests/" in text or text.strip().startswith("**Not yet.**"), promise
