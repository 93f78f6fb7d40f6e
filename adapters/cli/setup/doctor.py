"""`holdlog doctor --client`: how a host is set up here, whether its server starts, and whether it obeys a denial."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.cli.init import own_command, project_folder
from holdlog.adapters.cli.setup.hosts import HOSTS, Project
from holdlog.adapters.cli.setup.plan import project_here
from holdlog.adapters.cli.setup.report import configured, started
from holdlog.adapters.cli.store import finding_line, print_line
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.observed import Observed, observations
from holdlog.adapters.operating_system.location import find_store
from holdlog.adapters.stores.event_log.findings import Finding
from holdlog.domain.claims.lease import BY_LEASE
from holdlog.domain.refusals import InvalidError

TEST_FILE: Final = "holdlog-live-test.txt"
TEST_SECONDS: Final = 300
_CLIENT_OF: Final = {"claude-code": "claude"}
"""Names of hosts in hooks (hooks/calls.py), where they differ."""


def examine_client(name: str, live_test: bool, as_json: bool) -> int:
    """Check a host. Returns the exit code. Raises HoldlogError, LocationError."""
    project = project_here(project_folder(), own_command(), dict(os.environ))
    store = find_store(None, os.environ, project.root)
    if live_test:
        _test_live(name, project, store)
    findings = list(_findings(name, project, store))
    sound = all(it.level != "bad" for it in findings)
    if as_json:
        print_line(
            json.dumps({"client": name, "sound": sound, "findings": [it._asdict() for it in findings]}, indent=2)
        )
    else:
        print_line(f"{HOSTS[name].title} in {project.root}")
        for finding in findings:
            print_line(finding_line(finding))
    return 0 if sound else 1


def _findings(name: str, project: Project, store: Path) -> Iterator[Finding]:
    for file in configured(name, project):
        where = f"{file.path}: {file.what}"
        if file.problem is not None:
            yield Finding("file", "bad", f"{file.path} cannot be read: {file.problem}")
        elif file.missing:
            yield Finding("file", "bad", f"{where}: missing entries: {file.missing}; run: holdlog init --client {name}")
        else:
            yield Finding("file", "ok", where)
    line, starts = started(name, project)
    yield Finding("server", "ok" if starts else "bad", line)
    yield _guard(name, store)


def _guard(name: str, store: Path) -> Finding:
    """Whether the host was seen to obey a denial, in the version that was seen last."""
    client = _CLIENT_OF.get(name, name)
    seen = {it: found for it, found in observations(HookFiles(store)).items() if it.partition(" ")[0] == client}
    version, found = list(seen.items())[-1] if seen else (client, Observed())
    match found.state:
        case "guarded":
            return Finding("guard", "ok", f"guarded: {version} did not run a denied edit ({found.guarded})")
        case "bypassed":
            return Finding(
                "guard", "bad", f"bypassed: {version} ran a denied edit ({found.bypassed}); its edits are not guarded"
            )
        case _:
            todo = f"holdlog doctor --client {name} --live-test"
            return Finding("guard", "warn", f"unverified: no denied edit of {client} was seen yet; to try one: {todo}")


def _test_live(name: str, project: Project, store: Path) -> None:
    """Hold a file in a session for this test while the person's agent tries to edit it. Raises InvalidError."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidError("--live-test: needs a terminal, because you have to ask your agent for an edit")
    print(f"This holds {TEST_FILE} for {TEST_SECONDS // 60} min. Then ask your agent in {HOSTS[name].title}, here:")
    print(f"    write the word yes into {TEST_FILE}")
    if input("Begin? [y/N] ").strip().lower() not in ("y", "yes"):
        return
    engine = open_holdlog(store, session=SessionId("option", f"live-test-{os.getpid()}"), what="holdlog doctor")
    engine.kept_by = BY_LEASE
    path = project.root / TEST_FILE
    try:
        call = engine.requests.claims.claim(str(path), "live-test", lease_seconds=TEST_SECONDS)
        engine.claim(call, engine.caller)
        _wait_for_edit(name, path, store)
        engine.write(engine.requests.claims.release(call.command.resource, "live-test"), engine.caller)
    finally:
        engine.close()


def _wait_for_edit(name: str, path: Path, store: Path) -> None:
    before, existed = observations(HookFiles(store)), path.exists()
    print("Ask it now, and end its turn. Waiting (Ctrl-C ends it) …")
    deadline = time.monotonic() + TEST_SECONDS
    while time.monotonic() < deadline and observations(HookFiles(store)) == before:
        time.sleep(0.5)
        if path.exists() and not existed:
            print(
                f"{path.name} was written: {HOSTS[name].title} does not guard it (are its hooks set up, and trusted?)"
            )
            return
