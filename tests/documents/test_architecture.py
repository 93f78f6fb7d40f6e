"""Imports point inwards, SQL stays in its files, and a program pays only for what it uses."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORES = ROOT / "adapters" / "stores"
"""Who may speak SQL: the store, its schema, and who opens, rebuilds and examines a file."""

SQL = re.compile(
    r"\b(SELECT\s.+?\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX)|DROP\s+TABLE"
    r"|BEGIN\s+IMMEDIATE|PRAGMA\s+\w+)\b",
    re.DOTALL,
)

BELOW: dict[str, set[str]] = {"domain": set(), "projections": {"domain"}}
BELOW["operating_system"] = {"domain"}
BELOW["auth"] = {"domain", "operating_system"}
BELOW["policy"] = {"domain", "operating_system"}
BELOW["stores"] = {"domain", "projections", "operating_system", "auth"}
BELOW["nats"] = {"domain", "projections", "operating_system"}
BELOW["api"] = {"domain", "projections", "operating_system", "auth"}
BELOW["runtime"] = BELOW["api"] | {"api"}
BELOW["compose"] = BELOW["runtime"] | {"runtime", "stores", "nats"}
SURFACES = ("mcp", "http", "cli", "python", "langgraph", "eventsourcing", "hooks")
BELOW |= {surface: BELOW["compose"] | {"compose", "policy"} for surface in SURFACES}
"""What each layer may import besides itself."""
EXCEPTIONS = {
    ("cli", "mcp"): "the command line starts servers",
    ("cli", "http"): "the command line starts servers",
    ("cli", "python"): "the command line copies and subscribes as programs do",
    ("cli", "eventsourcing"): "its read models are built as those of programs",
    ("cli", "hooks"): "a hook is a command",
    ("hooks", "cli"): "the store and its workspaces are those of every command",
    ("http", "mcp"): "MCP is one of the routes",
    ("http", "hooks"): "a hook may be a request",
    ("http", "eventsourcing"): "its read models are built as those of programs",
    ("langgraph", "python"): "LangGraph's store is built on StateStore",
    ("runtime", "stores"): "a store that moved away answers with its seal",
}


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    names = set[str]()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def texts(path: Path) -> list[str]:
    """The strings of a file but for its docstrings."""
    tree = parsed(path)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]


def layer_of(module: str) -> str | None:
    """The layer of one of our modules; None for others, and for the top of the package, which names all."""
    parts = module.split(".")
    if parts[0] != "holdlog" or len(parts) < 2:
        return None
    if parts[1] != "adapters":
        return parts[1] if parts[1] in BELOW else None
    return parts[2] if len(parts) > 2 else None


def foreign_imports(layer: str) -> set[tuple[str, str]]:
    """Pairs of file and layer that the rule does not allow, but for exceptions."""
    place = ROOT / layer if layer in ("domain", "projections") else ROOT / "adapters" / layer
    files = sorted(place.rglob("*.py")) or [place.with_suffix(".py")]
    allowed = BELOW[layer] | {layer} | {other for own, other in EXCEPTIONS if own == layer}
    return {
        (str(file.relative_to(ROOT)), other)
        for file in files
        for other in map(layer_of, imported(file))
        if other is not None and other not in allowed
    }


@pytest.mark.parametrize("layer", BELOW)
def test_imports_point_inwards(layer: str) -> None:
    assert not foreign_imports(layer)


def test_rule_of_imports_reports_a_forbidden_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BELOW, "stores", {"domain", "projections", "operating_system"})
    assert {other for _, other in foreign_imports("stores")} == {"auth"}


def test_every_folder_of_adapters_is_a_layer() -> None:
    adapters = ROOT / "adapters"
    folders = {file.relative_to(adapters).parts[0] for file in adapters.glob("*/**/*.py")} - {"package"}
    assert folders | {"domain", "projections", "compose"} == set(BELOW)
    assert {path.name for path in adapters.glob("*.py")} == {"__init__.py", "compose.py"}


def test_no_class_name_exists_twice() -> None:
    names = [
        node.name
        for folder in ("domain", "projections", "adapters")
        for path in modules(folder)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    ]
    assert len(names) > 300
    assert not {name for name in names if names.count(name) > 1}


@pytest.mark.parametrize("folder", ["domain", "projections"])
def test_inner_layers_import_no_io(folder: str) -> None:
    foreign = ("sqlite3", "socket", "subprocess", "os", "pathlib", "eventsourcing", "fastmcp", "mcp", "nats")
    for path in modules(folder):
        assert not {name.split(".")[0] for name in imported(path)} & {*foreign}, path


def test_domain_imports_no_clock_threads_or_randomness() -> None:
    outside = {"time", "threading", "asyncio", "random", "secrets", "uuid"}
    for path in modules("domain"):
        assert not {name.split(".")[0] for name in imported(path)} & outside, path


def test_sql_is_written_in_the_stores_only() -> None:
    for folder in ("domain", "projections", "adapters"):
        for path in modules(folder):
            if STORES not in path.parents:
                assert not [text for text in texts(path) if SQL.search(text)], path


def test_sql_detector_finds_the_sql_of_the_stores() -> None:
    assert any(SQL.search(text) for text in texts(ROOT / "adapters" / "stores" / "sqlite" / "store.py"))
    assert any(SQL.search(text) for text in texts(ROOT / "adapters" / "stores" / "sqlite" / "schema.py"))
    assert SQL.search("SELECT one,\n  other\nFROM somewhere")


EVENTS_TABLE = "stored_events"
RECORDERS = {f"adapters/stores/{folder}/recorder.py" for folder in ("sql", "sqlite", "postgres")}
LOG_DATA = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE|COPY)\s+\"?{EVENTS_TABLE}\b")
NAMES_THE_LOG = {
    "adapters/stores/sql/tables.py": "the name itself",
    "adapters/stores/sqlite/schema.py": "creates the table",
    "adapters/stores/postgres/schema.py": "creates the table",
    "adapters/stores/sqlite/migrating.py": "adds columns, and compares a backup of an older schema",
    "adapters/stores/postgres/migrating.py": "adds columns and locks the table",
    "adapters/stores/postgres/catalog.py": "lists the tables and indexes of a store",
    "adapters/stores/postgres/opening.py": "recognises a store by its tables",
    "adapters/stores/event_log/sealing.py": "triggers that refuse inserts",
    "adapters/stores/sqlite/held.py": "hooks read who changed a file, without the rest of the store",
}
"""Files that name the log's table besides the recorders. None but the last and the migration runs a statement about
its rows."""


@cache
def statements(path: Path) -> list[str]:
    """The strings of a file; names of tables in f-strings are replaced."""
    found = list(texts(path))
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.JoinedStr):
            parts = (it.value if isinstance(it, ast.Constant) else ast.unparse(it) for it in node.values)
            found.append("".join(map(str, parts)).replace("{EVENTS_TABLE}", EVENTS_TABLE))
    return found


def names_the_log(path: Path) -> bool:
    tree = parsed(path)
    names = {it.id for it in ast.walk(tree) if isinstance(it, ast.Name)} | imported(path)
    return any(EVENTS_TABLE in text for text in statements(path)) or any(it.endswith("EVENTS_TABLE") for it in names)


def test_recorder_alone_has_statements_about_rows_of_the_log() -> None:
    files = {
        str(path.relative_to(ROOT)): path
        for folder in ("domain", "projections", "adapters")
        for path in modules(folder)
    }
    assert {name for name, path in files.items() if names_the_log(path)} == RECORDERS | NAMES_THE_LOG.keys()
    about_rows = {name for name, path in files.items() if any(LOG_DATA.search(text) for text in statements(path))}
    assert about_rows == RECORDERS | {"adapters/stores/sqlite/migrating.py", "adapters/stores/sqlite/held.py"}


def test_langgraph_is_imported_by_its_own_layer_only() -> None:
    own = ROOT / "adapters" / "langgraph"
    for folder in ("domain", "projections", "adapters"):
        for path in modules(folder):
            if own not in path.parents and path != ROOT / "adapters" / "package" / "langgraph.py":
                foreign = [it for it in imported(path) if it.startswith(("langgraph", "holdlog.adapters.langgraph"))]
                assert not foreign, path


WAYS = """\
import json, os, sys, threading
from holdlog import StateStore
root, place = os.path.realpath(sys.argv[1]), sys.argv[2]

def way(call):
    seen = []
    def note(frame, event, argument):
        file = os.path.relpath(os.path.realpath(frame.f_code.co_filename), root)
        if event == "call" and file.split(os.sep)[0] in ("domain", "projections", "adapters") and file not in seen:
            seen.append(file)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen

with StateStore(place) as store:
    store.set("n", "warm", 1, updated_by="ann")
    store.claim("custom://warm", agent="ann")
    ways = way(lambda: store.set("n", "k", 1, updated_by="ann")), way(lambda: store.claim("custom://x", agent="ann"))
print(json.dumps(ways))
"""


def test_path_of_a_call_is_as_documented(tmp_path: Path) -> None:
    """One warm `set` and one warm `claim`, as the profiler sees them."""
    command = [sys.executable, "-c", WAYS, str(ROOT), str(tmp_path / "state.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    documented = (ROOT / "CONTRIBUTING.md").read_text().split("<!-- ways -->")[1:3]
    for traced, text in zip(json.loads(done.stdout), documented, strict=True):
        assert re.findall(r"`([a-z_/]+\.py)`", text) == traced


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_no_dependency() -> None:
    assert not loaded_after("import holdlog") & {"pydantic", "eventsourcing", "sqlite3", "asyncio"}


def test_ascii_names_do_not_load_unicode_tables() -> None:
    claims = "from holdlog import StateStore; StateStore(':memory:').claim({!r}, agent='ann')"
    assert "precis_i18n" not in loaded_after(claims.format("src/a b.py"))
    assert "precis_i18n" in loaded_after(claims.format("src/é.py"))


def test_hook_that_finds_its_claim_held_imports_the_standard_library_alone() -> None:
    heavy = {"pydantic", "eventsourcing", "asyncio", "argparse", "dataclasses", "subprocess", "hashlib"}
    assert not loaded_after("import holdlog.adapters.hooks.running") & heavy


@pytest.mark.parametrize(
    "statement",
    [
        "import holdlog.adapters.python.store",
        "from holdlog import StateStore, AsyncStateStore",
        "from holdlog import StateStore; StateStore(':memory:').set('n', 'k', 1, updated_by='a')",
    ],
)
def test_library_imports_nothing_of_the_servers(statement: str) -> None:
    assert not loaded_after(statement) & {
        *("fastmcp", "mcp", "nats", "uvicorn", "starlette", "rich", "httpx"),
        *("langgraph", "langchain_core"),
    }
