"""Limits of what can be counted, and what hooks and doors may import."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = {".py", ".pyi", ".sql", ".js"}
SKIPPED = {"__pycache__", "build", ".venv", "node_modules"}
FAST = (
    *("domain", "projections", "adapters/engine", "adapters/stores/sqlite", "adapters/stores/codec.py"),
    *("adapters/stores/sql.py", "adapters/compose.py", "adapters/operating_system", "adapters/policy"),
    "adapters/hooks",
)
"""What a hook loads: the standard library alone."""
SLOW_TO_IMPORT = {"dataclasses", "inspect", "asyncio"}
FOR_SOME_HOOKS = {"tree_sitter", "tree_sitter_bash"}
"""Imported inside functions, where a command needs them."""
PUBLIC = {"holdlog", "holdlog.eventsourcing", "holdlog.langgraph"}


def files(folder: str, endings: set[str] = CODE) -> list[Path]:
    found = (ROOT / folder).rglob("*")
    return sorted(it for it in found if it.suffix in endings and it.is_file() and not SKIPPED & set(it.parts[:-1]))


def lines(paths: list[Path]) -> int:
    return sum(len(it.read_text().splitlines()) for it in paths)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def product() -> list[Path]:
    return [it for folder in ("domain", "projections", "adapters") for it in files(folder, {".py"})]


def functions() -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = (node for path in product() for node in ast.walk(parsed(path)))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Line, module, and whether a function contains the import. Those for type checkers are left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, it.name, inside) for it in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "", inside
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            yield from imports(node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def pages() -> list[Path]:
    return [it for it in files("docs", {".md"}) if "decisions" not in it.parts]


GATES = {
    "lines of domain": (3_400, lambda: lines(files("domain"))),
    "lines of projections": (900, lambda: lines(files("projections"))),
    "lines of adapters": (21_700, lambda: lines(files("adapters"))),
    "lines of the page": (1_000, lambda: lines(files("adapters", {".html", ".css"}))),
    "product files": (170, lambda: len(product())),
    "imports inside functions": (25, lambda: sum(inside for it in product() for _, _, inside in imports(parsed(it)))),
    "lines of tests": (28_000, lambda: lines(files("tests"))),
    "test files over 50 kB": (0, lambda: sum(it.stat().st_size > 50_000 for it in files("tests"))),
    "lines of bench and examples": (4_000, lambda: lines(files("bench") + files("examples"))),
    "pages beside decisions": (22, lambda: len(pages())),
    "words of pages": (40_000, lambda: sum(len(it.read_text().split()) for it in pages())),
    "functions over 40 lines": (40, lambda: sum((it.end_lineno or 0) - it.lineno >= 40 for it in functions())),
    "files below 40 lines": (25, lambda: sum(it.name != "__init__.py" and lines([it]) < 40 for it in product())),
    "files over 600 lines": (0, lambda: sum(lines([it]) > 600 for it in product())),
}


@pytest.mark.parametrize("name", GATES)
def test_gate_is_kept(name: str) -> None:
    gate, count = GATES[name]
    assert count() <= gate


def test_files_on_the_path_of_a_hook_import_the_standard_library_alone() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for place in FAST
        for path in ([ROOT / place] if place.endswith(".py") else files(place, {".py"}))
        if path.exists()
        for line, module, inside in imports(parsed(path))
        if not (inside and path.name == "compose.py")
        if _is_slow(module.split(".")[0], inside)
    ]
    assert found == []


def _is_slow(name: str, inside: bool) -> bool:
    if inside:
        return name not in sys.stdlib_module_names | FOR_SOME_HOOKS | {"holdlog"}
    return name in SLOW_TO_IMPORT or name not in sys.stdlib_module_names | {"holdlog"}


@pytest.mark.parametrize("folder", ["tests/doors", "tests/support"])
def test_doors_import_nothing_of_holdlog_but_its_public_names(folder: str) -> None:
    found = {
        f"{path.name}:{line} {module}"
        for path in files(folder, {".py"})
        for line, module, _ in imports(parsed(path))
        if module.split(".")[0] in ("holdlog", "domain", "projections", "adapters") and module not in PUBLIC
    }
    assert found == set()
