"""`holdlog demo`: two agents edit one file, share a budget and claim a name, in a temporary folder."""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.texts import is_coloured
from holdlog.adapters.python.store import StateStore
from holdlog.domain.refusals import ConflictError, FencedError

SECONDS: Final = 0.4
"""Pause between two lines, on a terminal."""
_FILE: Final = "src/parser.py"
_COLOURS: Final = {"ann": 36, "bob": 33}


def run(words: list[str]) -> int:
    text = "See two agents edit one file, share a budget and claim a name. It uses a temporary folder."
    Parser("demo", text, ("demo",), has_json=False).parse_args(words)
    with tempfile.TemporaryDirectory() as folder, StateStore(os.path.join(folder, "demo.db"), session="demo") as store:
        subprocess.run(["git", "init", "--quiet", folder], check=True)
        _edit_file(store, folder)
        _share_value(store)
        _claim_name(store)
        _show_log(store)
    print("\nNext: holdlog init sets up the agents of this project; holdlog --help lists all commands.")
    return 0


def _edit_file(store: StateStore, folder: str) -> None:
    print("1. Hooks claim each file that an agent edits, and deny the edit to others.\n")
    for session, event, action in (
        ("ann", "pre-edit", f"edits {_FILE}"),
        ("bob", "pre-edit", f"edits {_FILE}"),
        ("ann", "turn-end", "has changed nothing, and ends its turn"),
        ("bob", "pre-edit", f"edits {_FILE}"),
    ):
        denied = _run_hook(folder, event, session).removeprefix("holdlog: ").partition(";")[0]
        status: Any = store.status(_FILE)
        holder = f"claimed for {status.held_by}" if status.status == "claimed" else "no longer claimed"
        _say(session, action, f"denied: {denied}" if denied else f"allowed; {_FILE} is {holder}")


def _run_hook(folder: str, event: str, session: str) -> str:
    """Run the hook as a host does. Returns the reason of a denial, else an empty string."""
    call = json.dumps({"session_id": session, "cwd": folder, "paths": [_FILE]})
    environment = {**os.environ, "HOLDLOG_DB": os.path.join(folder, "demo.db")}
    command = [sys.executable, "-m", "holdlog", "hook", event]
    done = subprocess.run(command, input=call, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    reason: str = json.loads(done.stdout or "{}").get("reason", "")
    return reason


def _share_value(store: StateStore) -> None:
    print("\n2. A value has a version, so nobody overwrites what they have not read.\n")
    created = store.set("campaign", "budget", 2000, updated_by="ann")
    _say("ann", "$ holdlog set campaign budget 2000 --version 0", created.status)
    read = store.get("campaign", "budget")
    _say("ann", "$ holdlog get campaign budget", f"{read.value}, version {read.version}")
    _say("bob", "$ holdlog get campaign budget", f"{read.value}, version {read.version}")
    wrote = store.set("campaign", "budget", 1500, updated_by="bob", expected_version=read.version)
    _say("bob", "$ holdlog set campaign budget 1500 --version 1", f"ok, version {wrote.version}")
    try:
        store.set("campaign", "budget", 2500, updated_by="ann", expected_version=read.version)
    except ConflictError as refusal:
        detail = refusal.detail
        actual = f"{detail.actual_updated_by} wrote {detail.actual_value} as version {detail.actual_version}"
        _say("ann", "$ holdlog set campaign budget 2500 --version 1", f"conflict: {actual}")
        merged = store.set("campaign", "budget", 2000, updated_by="ann", expected_version=detail.actual_version)
        result = f"ok, version {merged.version}: merged, nothing was lost"
        _say("ann", "$ holdlog set campaign budget 2000 --version 2", result)


def _claim_name(store: StateStore) -> None:
    print("\n3. A claim of any name has one holder, hands over a note, and fences writes of those who lost it.\n")
    claim: Any = store.claim("api", agent="ann", note="adding /v2/users")
    _say("ann", "$ holdlog claim api --note 'adding /v2/users'", f"claimed, version {claim.version}")
    busy: Any = store.claim("api", agent="bob")
    _say("bob", "$ holdlog claim api", f"busy: held by {busy.held_by}: {busy.holder_note}")
    store.release("api", agent="ann", outcome="modified", note="/v2/users works")
    _say("ann", "$ holdlog release api --outcome modified", "released")
    then: Any = store.claim("api", agent="bob")
    before = f"{then.previous_holder} {then.previous_outcome} it: {then.previous_note}"
    _say("bob", "$ holdlog claim api", f"claimed; {before}")
    guard = [{"resource": "api", "version": claim.version}]
    try:
        store.set("build", "api", "ready", updated_by="ann", guard=guard)
    except FencedError:
        _say("ann", "$ holdlog set build api ready --guard api@1", "fenced: this claim has ended")


def _show_log(store: StateStore) -> None:
    print("\n4. Every change is an event in one log, which can be verified.\n")
    for event in store.events().events:
        print(f"  {event.position}  {event.by}  {event.kind}  {event.stream}")
        _pause()
    verified: Any = store.verify()
    print(f"  verified: {verified.position} events, digest {verified.digest[:16]}…")


def _say(agent: str, action: str, result: str) -> None:
    name = f"\x1b[{_COLOURS[agent]}m{agent}\x1b[0m" if is_coloured(sys.stdout) else agent
    print(f"  {name} {action}\n       {result}", flush=True)
    _pause()


def _pause() -> None:
    if sys.stdout.isatty():
        time.sleep(SECONDS)
