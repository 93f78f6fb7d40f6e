"""`holdlog doctor --client NAME --live-test`: hold a file while the person's agent tries to edit it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.cli.init import is_agreed
from holdlog.adapters.cli.settings import workspaces_here
from holdlog.adapters.cli.setup.hosts import HOSTS, Project
from holdlog.adapters.cli.signals import BY_SIGNAL, handled
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.observed import observations
from holdlog.adapters.operating_system.workspaces import Workspaces
from holdlog.adapters.policy.in_force import rule_of
from holdlog.domain.claims.lease import BY_LEASE
from holdlog.domain.refusals import HoldlogError, InvalidError

TEST_FILE: Final = "holdlog-live-test.txt"
TEST_SECONDS: Final = 300
SPARE_SECONDS: Final = 30
"""The lease lasts longer than the wait, so that no late edit finds the file free."""
AGENT: Final = "live-test"
"""Also the name of the session, so that a test takes over what a killed one held."""


def test_live(name: str, project: Project, store: Path | str) -> None:
    """Ask the person for an edit of a held file, and wait until its hooks show whether the host obeyed. Raises
    HoldlogError, LocationError."""
    title, path = HOSTS[name].title, project.root / TEST_FILE
    if not HOSTS[name].has_hooks:
        raise InvalidError(f"--live-test: holdlog init sets up no hooks for {title}, so no edit is denied")
    if not isinstance(store, Path):
        raise InvalidError("--live-test: needs a store in a file, but HOLDLOG_DB names a database")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidError("--live-test: needs a terminal, because you have to ask your agent for an edit")
    workspaces = workspaces_here()
    rule = rule_of(workspaces.located, str(path))[1]
    if rule.mode == "warn":
        raise InvalidError(f"--live-test: {rule.source} only warns about {TEST_FILE}, so no edit of it is denied")
    print(f"This claims {TEST_FILE} for {TEST_SECONDS // 60} min. Then ask your agent in {title}, in this folder:")
    print(f"    write the word yes into {TEST_FILE}")
    with suppress(KeyboardInterrupt):
        if is_agreed("Begin?", by_default=False):
            with _held(path, store, workspaces):
                _wait_for_edit(title, path, store)
    print()


@contextmanager
def _held(path: Path, store: Path, workspaces: Workspaces) -> Iterator[None]:
    """Hold a file while the block runs. Then remove it, unless it existed before. Raises HoldlogError."""
    existed = path.exists()
    engine = open_holdlog(store, Settings(workspaces=workspaces), SessionId("option", AGENT), "holdlog doctor")
    engine.kept_by = BY_LEASE
    try:
        call = engine.requests.claims.claim(str(path), AGENT, lease_seconds=TEST_SECONDS + SPARE_SECONDS)
        engine.claim(call, engine.caller)
        try:
            with handled(("SIGTERM", "SIGHUP"), _end):
                yield
        finally:
            with suppress(HoldlogError):  # a person took it, or it has expired
                engine.write(engine.requests.claims.release(call.command.resource, AGENT), engine.caller)
            if path.is_file() and not existed:
                path.unlink(missing_ok=True)
                print(f"{TEST_FILE} was removed")
    finally:
        engine.close()


def _end(number: int, _: object) -> None:
    """Exit, so that the file is released: on SIGTERM, and on SIGHUP when the terminal is closed."""
    raise SystemExit(BY_SIGNAL + number)


def _wait_for_edit(title: str, path: Path, store: Path) -> None:
    files = HookFiles(store)
    before, existed, deadline = observations(files), path.exists(), time.monotonic() + TEST_SECONDS
    print("Ask it now, and end its turn. Waiting (Ctrl-C ends it) …", flush=True)
    while time.monotonic() < deadline:
        if observations(files) != before:
            return
        if path.exists() and not existed:
            print(f"{TEST_FILE} was written, so {title} did not guard it: are its hooks set up, and trusted?")
            return
        time.sleep(0.5)
    print(f"no edit was denied within {TEST_SECONDS // 60} min")
