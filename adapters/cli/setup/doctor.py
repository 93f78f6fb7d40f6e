"""`holdlog doctor --client`: how a host is set up here, whether its server starts, and whether it obeys a denial."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from holdlog.adapters.cli.init import own_command, project_folder
from holdlog.adapters.cli.settings import location_of
from holdlog.adapters.cli.setup.hosts import HOSTS, Project
from holdlog.adapters.cli.setup.live_test import test_live
from holdlog.adapters.cli.setup.plan import project_here
from holdlog.adapters.cli.setup.report import command_for, configured, started
from holdlog.adapters.cli.setup.switched_off import switched_off
from holdlog.adapters.cli.setup.versions import unknown_versions
from holdlog.adapters.cli.store import finding_line, print_line
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.observed import Observed, observations
from holdlog.adapters.stores.event_log.findings import Finding

_CLIENT_OF: Final = {"claude-code": "claude"}
"""Names of hosts in hooks (hooks/calls.py), where they differ."""


def examine_client(name: str, live_test: bool, as_json: bool) -> int:
    """Check a host. Returns the exit code. Raises HoldlogError, LocationError."""
    project = project_here(project_folder(), own_command(), dict(os.environ))
    store = location_of(None)
    if live_test:
        test_live(name, project, store)
    findings = list(_findings(name, project, store))
    sound = all(it.level != "bad" for it in findings)
    if not sound and findings[-1].level == "ok":  # the last line is what people read
        wrong = sum(it.level == "bad" for it in findings)
        line = (
            f"not guarded as it should be: {wrong} of the lines above {'says' if wrong == 1 else 'say'} what is wrong"
        )
        findings.append(Finding("result", "bad", line))
    if as_json:
        print_line(
            json.dumps({"client": name, "sound": sound, "findings": [it._asdict() for it in findings]}, indent=2)
        )
    else:
        print_line(f"{HOSTS[name].title} in {project.root}")
        for finding in findings:
            print_line(finding_line(finding))
    return 0 if sound else 1


def _findings(name: str, project: Project, store: Path | str) -> Iterator[Finding]:
    found = configured(name, project)
    for file in found:
        where = f"{file.path}: {file.what}"
        if file.problem is not None:
            yield Finding("file", "bad", f"{file.path} cannot be read: {file.problem}")
        elif file.missing:
            missing = f"missing entries: {file.missing}" if file.path.exists() else "the file is missing"
            yield Finding("file", "bad", f"{where}: {missing}; run: {command_for(name, file.path)}")
        else:
            yield Finding("file", "ok", where)
    line, starts = started(name, project)
    yield Finding("server", "ok" if starts else "bad", line)
    seen = _observed(name, store)
    yield from switched_off(name, project)
    yield from unknown_versions(name, _CLIENT_OF.get(name, name), project, seen)
    is_set_up = not any(file.missing or file.problem for file in found)
    yield _guard(name, store, seen, is_set_up)


def _observed(name: str, store: Path | str) -> dict[str, Observed]:
    """What was seen of a host, by its name in hooks and its version; the last one was seen last."""
    client = _CLIENT_OF.get(name, name)
    found = observations(HookFiles(store)) if isinstance(store, Path) else {}
    return {it: seen for it, seen in found.items() if it.partition(" ")[0] == client}


def _guard(name: str, store: Path | str, seen: Mapping[str, Observed], is_set_up: bool) -> Finding:
    """Whether the host was seen to obey a denial, in the version that was seen last."""
    if not isinstance(store, Path):
        line = "not guarded: holdlog hook needs a store in a file, but HOLDLOG_DB names a database"
        return Finding("guard", "warn", line)
    if not HOSTS[name].has_hooks:
        line = f"not guarded: holdlog init sets up no hooks for {HOSTS[name].title}; its agents must call claim"
        return Finding("guard", "warn", line)
    client = _CLIENT_OF.get(name, name)
    version, found = list(seen.items())[-1] if seen else (client, Observed())
    version = version.replace(" unknown", " (version unknown)")
    match found.state:
        case "guarded":
            return Finding("guard", "ok", f"guarded: {version} did not run a denied edit ({found.guarded})")
        case "bypassed":
            return Finding(
                "guard", "bad", f"bypassed: {version} ran a denied edit ({found.bypassed}); its edits are not guarded"
            )
        case _:
            todo = f"; to try one: holdlog doctor --client {name} --live-test" if is_set_up else ""
            line = f"unverified: no denied edit has shown yet whether {client} obeys{todo}"
            return Finding("guard", "warn", line)
