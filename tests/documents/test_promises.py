"""docs/promises.md names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = (ROOT / "docs/promises.md").read_text()
SECTIONS = re.findall(r"^## \d+\. (.*?)\n(.*?)(?=^## )", PROMISES, re.DOTALL | re.MULTILINE)
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PROMISES)


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_promised_test_exists(file: str, test: str) -> None:
    assert test in functions_of(file)


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_promise_names_a_test_or_is_marked_as_not_kept_yet() -> None:
    assert len(SECTIONS) == 14
    for promise, text in SECTIONS:
        assert "`tests/" in text or text.strip().startswith("**Not yet.**"), promise
