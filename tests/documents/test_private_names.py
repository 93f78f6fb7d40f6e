"""docs/private-names.md lists exactly the private names of libraries that the code uses."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "private-names.md"
LIBRARIES = ("eventsourcing", "fastmcp", "mcp", "mcp_types", "uvicorn")
SOURCES = [path for folder in ("domain", "projections", "adapters") for path in (ROOT / folder).rglob("*.py")]
PUBLIC = frozenset({"_replace", "_asdict", "_fields", "_make"})
"""Public names of NamedTuple."""


@pytest.mark.check
def test_list_of_private_names_is_complete_and_current() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| \[[^]]+\]\(\.\./([^)]+)\) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 1
    listed = {(name.rpartition(".")[2], path) for name, path in rows}
    used = {(name, str(path.relative_to(ROOT))) for path in SOURCES for name in private_names(path)}
    assert listed == used


def test_every_private_name_has_what_would_end_it() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for row in rows:
        reason, end = [cell.strip() for cell in row.split("|")[3:5]]
        assert reason
        assert re.search(r"https://github\.com/\S+/(issues|pull)/\d+|^No report found: ", end), row


def private_names(path: Path) -> set[str]:
    """The private names of `LIBRARIES` in one file: imported, read from an object, or overridden by a subclass."""
    tree = ast.parse(path.read_text())
    found = set(_imported(tree))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_self(node.value):
            found |= {node.attr} & _PRIVATE_OF_LIBRARIES - own
        if isinstance(node, ast.ClassDef) and (inherited := _inherited(node, path)):
            found |= {it.name for it in node.body if isinstance(it, ast.AsyncFunctionDef | ast.FunctionDef)} & inherited
            found |= {it.attr for it in ast.walk(node) if isinstance(it, ast.Attribute)} & inherited
    return found


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            yield from (part for part in (node.module or "").split(".") if _is_private(part))
            yield from (alias.name for alias in node.names if _is_private(alias.name))


def _inherited(node: ast.ClassDef, path: Path) -> set[str]:
    """The private names that a class of ours inherits from libraries."""
    module = importlib.import_module("holdlog." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    kind = getattr(module, node.name, None)
    bases = [base for base in getattr(kind, "__mro__", ()) if base.__module__.split(".")[0] in LIBRARIES]
    return {name for base in bases for name in _private_in(inspect.getsource(base))}


def _private_in(source: str) -> set[str]:
    """What a source defines or sets: `def _name`, `self._name`, and `_name:` of a class."""
    return set(re.findall(r"(?:def |self\.|^    )(_[a-z]\w*)\b(?=\(| =|:)", source, re.MULTILINE)) - PUBLIC


def _library_sources() -> Iterator[str]:
    for name in LIBRARIES:
        folder = Path(str(importlib.import_module(name).__file__)).parent
        for path in folder.rglob("*.py"):
            yield path.read_text()


_PRIVATE_OF_LIBRARIES = {name for source in _library_sources() for name in _private_in(source)}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "os")
