"""`holdlog demo`: two agents share a budget and a file, in ten seconds, in a temporary store."""

import os
import sys
import tempfile
import time
from typing import Any, Final

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.texts import is_coloured
from holdlog.adapters.python.store import StateStore
from holdlog.domain.refusals import ConflictError, FencedError

SECONDS: Final = 0.6
"""Pause between two lines, on a terminal."""
_COLOURS: Final = {"ann": 36, "bob": 33}


def run(words: list[str]) -> int:
    text = "See two agents share a budget and a file. It uses a temporary store."
    Parser("demo", text, ("demo",), has_json=False).parse_args(words)
    with tempfile.TemporaryDirectory() as folder, StateStore(os.path.join(folder, "demo.db"), session="demo") as store:
        _share_value(store)
        _share_file(store)
        _show_log(store)
    print("\nNext: holdlog init sets up the agents of this project; holdlog --help lists all commands.")
    return 0


def _share_value(store: StateStore) -> None:
    print("1. A value has a version, so nobody overwrites what they have not read.\n")
    _say("ann", "set campaign budget 2000 --version 0", store.set("campaign", "budget", 2000, updated_by="ann").status)
    read = store.get("campaign", "budget")
    _say("ann", "get campaign budget", f"{read.value}, version {read.version}")
    _say("bob", "get campaign budget", f"{read.value}, version {read.version}")
    wrote = store.set("campaign", "budget", 1500, updated_by="bob", expected_version=read.version)
    _say("bob", "set campaign budget 1500 --version 1", f"ok, version {wrote.version}")
    try:
        store.set("campaign", "budget", 2500, updated_by="ann", expected_version=read.version)
    except ConflictError as refusal:
        detail = refusal.detail
        actual = f"{detail.actual_updated_by} wrote {detail.actual_value} as version {detail.actual_version}"
        _say("ann", "set campaign budget 2500 --version 1", f"conflict: {actual}")
        merged = store.set("campaign", "budget", 2000, updated_by="ann", expected_version=detail.actual_version)
        _say("ann", "set campaign budget 2000 --version 2", f"ok, version {merged.version}: merged, nothing was lost")


def _share_file(store: StateStore) -> None:
    print("\n2. A claim says who works on a file, and fences writes of those who lost it.\n")
    claim: Any = store.claim("src/parser.py", agent="ann", note="renaming parse()")
    _say("ann", "claim src/parser.py --note 'renaming parse()'", f"claimed, version {claim.version}")
    busy: Any = store.claim("src/parser.py", agent="bob")
    _say("bob", "claim src/parser.py", f"busy: held by {busy.held_by}: {busy.holder_note}")
    store.release("src/parser.py", agent="ann", outcome="modified", note="parse() is parse_text() now")
    _say("ann", "release src/parser.py --outcome modified", "released")
    then: Any = store.claim("src/parser.py", agent="bob")
    _say(
        "bob",
        "claim src/parser.py",
        f"claimed; {then.previous_holder} {then.previous_outcome} it: {then.previous_note}",
    )
    guard = [{"resource": "src/parser.py", "version": claim.version}]
    try:
        store.set("build", "parser", "ready", updated_by="ann", guard=guard)
    except FencedError:
        _say("ann", "set build parser ready --guard src/parser.py@1", "fenced: this claim has ended")


def _show_log(store: StateStore) -> None:
    print("\n3. Every change is an event in one log, which can be verified.\n")
    for event in store.events().events:
        print(f"  {event.position}  {event.by}  {event.kind}  {event.stream}")
        _pause()
    verified: Any = store.verify()
    print(f"  verified: {verified.position} events, digest {verified.digest[:16]}…")


def _say(agent: str, command: str, result: str) -> None:
    name = f"\x1b[{_COLOURS[agent]}m{agent}\x1b[0m" if is_coloured(sys.stdout) else agent
    print(f"  {name}$ holdlog {command}\n       {result}", flush=True)
    _pause()


def _pause() -> None:
    if sys.stdout.isatty():
        time.sleep(SECONDS)
