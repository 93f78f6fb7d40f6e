"""Runs a hook: reads the host's JSON, and writes the host's JSON. It fails open: whatever goes wrong, the edit is
allowed and the exit code is 0.

Standard library only until a claim must be written: most calls find the claim already held.
"""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.hooks.binding import find_server
from holdlog.adapters.hooks.calls import SHARED_SERVER, BadInputError, HookCall, add_context, parse
from holdlog.adapters.hooks.notes import HookFiles, Notes
from holdlog.adapters.hooks.reads import Reads, read_now
from holdlog.adapters.hooks.session import name_of, session_of
from holdlog.adapters.operating_system.location import (
    CANNOT_WRITE,
    explain,
    find_store,
    is_there,
    project_root,
    state_location,
)
from holdlog.adapters.stores.sqlite.held import LeaseFile, lease_file

SECONDS: Final = 4.0
"""A hook ends after this time at the latest: hosts wait for it before each edit."""
MAX_INPUT: Final = 32 * 1024 * 1024
"""Bytes of the host's JSON, which contains the whole new file."""
GRACE_SECONDS: Final = 0.3
"""Until a hook that does not end after `SECONDS` is ended."""
MAX_REPORT: Final = 300
"""Characters."""
POLICY_FILE: Final = "holdlog.toml"
"""As in policy.py, which takes long to import."""


class OutOfTimeError(BaseException):
    """The hook took too long. Not an Exception: only the outermost handler catches it."""


def run(words: Sequence[str]) -> int:
    """Run `holdlog hook [EVENT]`. Always returns 0."""
    event = words[0] if words else None
    files: HookFiles | None = None
    given: object = None
    output: dict[str, Any] = {}
    try:
        with _limited():
            given = _read()
            _enter(given)
            store = _find_opted_in()
            if store is not None:
                files = HookFiles(store)
                call = parse(given, event)
                if call is not None:
                    call = call._replace(paths=tuple(it for it in call.paths if not files.is_of_store(it)))
                    output = _answer(call, store, files)
            elif not isinstance(given, dict):
                raise BadInputError("the input must be a JSON object")
    except (Exception, OutOfTimeError, KeyboardInterrupt) as error:
        problem = _report(event, error, files)
        output = _warn_at_start(given, event, problem)
    if output:
        _write(output)
    return 0


def _answer(call: HookCall, store: Path, files: HookFiles) -> dict[str, Any]:
    server = find_server(store)
    if server is not None and not call.version:
        call = call._replace(version=server.version)
    if os.path.exists(store):
        with suppress(sqlite3.Error), lease_file(store) as leases:
            session = session_of(call, server, Identity(leases.salt)).held_by
            if server is not None and call.client not in SHARED_SERVER and call.event != "subagent-end":
                files.set_paused(session, call.event == "turn-end")
            reads = Reads(files, session, call.agent)
            if call.event == "read":
                for path in call.real_paths:
                    reads.note(path, read_now(path))
                return {}
            if _needs_nothing(call, files.read(session), leases, session, reads):
                return {}
        if call.event == "read":  # the store is locked or damaged
            return {}
    if server is not None:
        from holdlog.adapters.hooks.asking import HookFailedError, ask

        with suppress(HookFailedError):  # what fails here, too, is reported
            output = ask(store, server, call)
            if output is not None:
                return output
    from holdlog.adapters.hooks.opening import perform_alone

    with _ended_at_last(call.event, files):
        return perform_alone(call, store, files, server)


def _needs_nothing(call: HookCall, notes: Notes, leases: LeaseFile, session: str, reads: Reads) -> bool:
    """Whether the call changes nothing and prints nothing, as far as known without opening the whole store."""
    paths = call.real_paths
    match call.event:
        case "pre-edit":
            hands_over = call.claiming and session.startswith("hook-")
            if hands_over or notes.denied:
                return False
            return _holds_all(call, notes, leases, session) and all(map(reads.is_current, paths))
        case "post-edit":
            return not notes.denied and all(map(reads.has_current, paths))
        case "prompt":
            return not notes.denied and leases.is_idle(session)
        case "turn-end" | "subagent-end":
            return not notes.denied and not notes.claims
        case _:
            return False


def _holds_all(call: HookCall, notes: Notes, leases: LeaseFile, session: str) -> bool:
    """Whether the agent holds all that the call changes, under the name that it uses."""
    name = name_of(call, notes)
    found = [notes.claims.get((call.agent, path)) for path in call.real_paths]
    return call.called_name in (None, name) and all(
        it is not None and it.agent == name and leases.holds(it.resource, it.version, name, session) for it in found
    )


def _read() -> object:
    text = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(text) > MAX_INPUT:
        raise BadInputError(f"standard input is larger than {MAX_INPUT // 1024 // 1024} MB")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _enter(given: object) -> None:
    """Go to the folder in which the agent works: it decides which store is used. If a host's folder is gone, stay in
    the one in which the host started the hook. Raises BadInputError for the plain form."""
    if not isinstance(given, dict):
        return
    folder, roots = given.get("cwd"), given.get("workspace_roots")
    if not folder and isinstance(roots, list) and roots:
        folder = roots[0]
    if isinstance(folder, str) and folder:
        try:
            os.chdir(folder)
        except (OSError, ValueError):
            if not given.get("hook_event_name"):
                raise BadInputError("cwd: must be a folder that exists") from None


def _find_opted_in() -> Path | None:
    """The store; None if the repository has neither a store nor a `holdlog.toml`. Raises LocationError."""
    if os.environ.get("HOLDLOG_DB") or os.environ.get("HOLDLOG_DB_FILE"):
        from holdlog.adapters.cli.settings import location_of

        named = location_of(None)
        if not isinstance(named, Path):
            raise BadInputError("hooks need a store in a file, but HOLDLOG_DB names a database")
        return named if is_there(named) else None
    store = find_store(None, os.environ, Path.cwd())
    if store.parent == state_location(os.environ):
        return None  # outside of every project
    if is_there(store):
        return store
    root = project_root(os.environ, Path.cwd())
    return store if root is not None and os.path.isfile(root / POLICY_FILE) else None


def _warn_at_start(given: object, event: str | None, problem: str) -> dict[str, Any]:
    """Tell an agent whose session starts that hooks do not guard it: few hosts show standard error. Not later,
    because each edit would repeat it."""
    try:
        call = parse(given, event)
    except ValueError:
        return {}
    if call is None or call.event != "start":
        return {}
    return add_context(call, f"holdlog: your edits are not guarded, and you do not see what others hold: {problem}")


def _report(event: str | None, error: BaseException, files: HookFiles | None) -> str:
    """Print in one line what failed, and log it for the next start of a session. Returns the line."""
    ours = type(error).__module__.startswith("holdlog.") or isinstance(error, OSError | sqlite3.Error)
    text = str(error).strip() if ours and str(error) else type(error).__name__
    if isinstance(error, OutOfTimeError):
        text = f"took longer than {SECONDS:.0f} s"
    elif isinstance(error, OSError) and error.errno in CANNOT_WRITE and error.filename:
        text = explain(Path(os.fsdecode(error.filename)), "written", error)
    text = "".join(it if it.isprintable() else " " for it in text[:MAX_REPORT])
    if files is not None:
        files.record_failure(event or "hook", text)
    with suppress(OSError, ValueError, AttributeError):  # None: closed before the start
        sys.stderr.write(f"holdlog hook: {text}; the edit is not guarded\n")
    return text


def _write(output: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(output) + "\n")
        sys.stdout.flush()
    except AttributeError:  # closed before the start
        return
    except (OSError, ValueError):  # the host is gone, or its disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _limited() -> Iterator[None]:
    """Raise OutOfTimeError in the block after `SECONDS`, where the system can."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def end(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _ended_at_last(event: str, files: HookFiles) -> Iterator[None]:
    """End the process if the block outlasts OutOfTimeError: while SQLite waits for a lock, no signal is handled."""
    import threading

    def end() -> None:
        _report(event, OutOfTimeError(), files)
        os._exit(0)

    left = signal.getitimer(signal.ITIMER_REAL)[0] if hasattr(signal, "getitimer") else SECONDS
    timer = threading.Timer(left + GRACE_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_direct(words: Sequence[str]) -> bool:
    """Whether these arguments of `holdlog hook` have no options, so that no command line is needed."""
    return not any(word.startswith("-") for word in words)
