"""Imports point inwards, SQL stays in its files, and a program pays only for what it uses."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STORES = ROOT / "adapters" / "stores"
"""Who may speak SQL: the store, its schema, and who opens, rebuilds and examines a file."""

SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX)|DROP\s+TABLE"
    r"|BEGIN IMMEDIATE|PRAGMA\s+\w+)\b"
)


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


def imported(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def texts(path: Path) -> list[str]:
    """The strings of a file but for its docstrings."""
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]


@pytest.mark.parametrize(
    ("folder", "outer"),
    [("domain", ("holdlog.projections", "holdlog.adapters")), ("projections", ("holdlog.adapters",))],
)
def test_imports_point_inwards(folder: str, outer: tuple[str, ...]) -> None:
    for path in modules(folder):
        assert not [name for name in imported(path) if name.startswith(outer)], path


@pytest.mark.parametrize("folder", ["domain", "projections"])
def test_the_inner_layers_know_no_io(folder: str) -> None:
    foreign = ("sqlite3", "socket", "subprocess", "os", "pathlib", "eventsourcing", "fastmcp", "mcp", "nats")
    for path in modules(folder):
        assert not {name.split(".")[0] for name in imported(path)} & {*foreign}, path


def test_the_domain_knows_no_clock_no_threads_and_no_chance() -> None:
    outside = {"time", "threading", "asyncio", "random", "secrets", "uuid"}
    for path in modules("domain"):
        assert not {name.split(".")[0] for name in imported(path)} & outside, path


def test_sql_is_spoken_in_the_store_only() -> None:
    for folder in ("domain", "projections", "adapters"):
        for path in modules(folder):
            if STORES not in path.parents:
                assert not [text for text in texts(path) if SQL.search(text)], path


def test_this_test_knows_sql_when_it_sees_it() -> None:
    assert any(SQL.search(text) for text in texts(ROOT / "adapters" / "stores" / "sqlite" / "store.py"))
    assert any(SQL.search(text) for text in texts(ROOT / "adapters" / "stores" / "sqlite" / "schema.py"))


def test_langgraph_is_imported_by_its_own_store_only() -> None:
    own = ROOT / "adapters" / "langgraph"
    for folder in ("domain", "projections", "adapters"):
        for path in modules(folder):
            if own not in path.parents and path != ROOT / "adapters" / "package" / "langgraph.py":
                foreign = [it for it in imported(path) if it.startswith(("langgraph", "holdlog.adapters.langgraph"))]
                assert not foreign, path


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_no_dependency() -> None:
    assert not loaded_after("import holdlog") & {"pydantic", "eventsourcing", "sqlite3", "asyncio"}


def test_names_in_ascii_do_not_load_the_tables_of_unicode() -> None:
    claims = "from holdlog import StateStore; StateStore(':memory:').claim({!r}, agent='ann')"
    assert "precis_i18n" not in loaded_after(claims.format("src/a b.py"))
    assert "precis_i18n" in loaded_after(claims.format("src/é.py"))


@pytest.mark.parametrize(
    "statement",
    [
        "import holdlog.adapters.python.store",
        "from holdlog import StateStore, AsyncStateStore",
        "from holdlog import StateStore; StateStore(':memory:').set('n', 'k', 1, updated_by='a')",
    ],
)
def test_the_library_imports_nothing_of_servers(statement: str) -> None:
    assert not loaded_after(statement) & {
        *("fastmcp", "mcp", "nats", "uvicorn", "starlette", "rich", "httpx"),
        *("langgraph", "langchain_core"),
    }
