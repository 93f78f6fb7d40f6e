"""Runs a hook: reads the host's JSON, and writes the host's JSON. It fails open: whatever goes wrong, the edit is
allowed and the exit code is 0.

Standard library only until a claim must be written: most calls find the claim already held.
"""

import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.hooks.binding import BoundServer, find_server
from holdlog.adapters.hooks.calls import (
    SHARED_SERVER,
    BadInputError,
    HookCall,
    add_context,
    ask_afterwards,
    ask_person,
    denial,
    folder_of,
    is_denial,
    parse,
    read_json,
    warning,
)
from holdlog.adapters.hooks.notes import HookFiles, Notes
from holdlog.adapters.hooks.problems import add_problem, describe_unguarded_git, is_new_problem
from holdlog.adapters.hooks.reads import Reads, read_now
from holdlog.adapters.hooks.repositories import (
    POLICY_FILE,
    Repositories,
    UsedRepository,
    merge,
    name_repository,
    split,
    working_in,
)
from holdlog.adapters.hooks.session import main_of, name_of, session_of, terminal_of
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
_READER: Final = r"[ \t]*(?:cat|cd|echo|grep|head|ls|pwd|rg|stat|tail|wc|which)(?:[ \t]+[\w./~=@%+:,*?-]+)*[ \t]*"
_READING: Final = rf"{_READER}(?:(?:&&|\|\|?|;){_READER})*"
"""Shell commands that are frequent and change nothing."""
_HOMES: Final = frozenset({"CLAUDE_CONFIG_DIR", "CODEX_HOME"})
"""Variables with a folder of settings. Those of projects are in folders whose names begin with a dot."""


class OutOfTimeError(BaseException):
    """The hook took too long. Not an Exception: only the outermost handler catches it."""


def run(words: Sequence[str]) -> int:
    """Run `holdlog hook [EVENT]`. Always returns 0."""
    event = words[0] if words else None
    files: HookFiles | None = None
    call: HookCall | None = None
    given: object = None
    output: dict[str, Any] = {}
    try:
        with _limited():
            given = _read()
            _enter(given)
            own = _find_opted_in()
            if own is not None:
                files = HookFiles(own.store)
                call = parse(given, event)
                if call is not None:
                    call = _with_git(call)
                    output = _answer_parts(call, own)
                    if is_new_problem(call, files):
                        output = add_problem(call, output)
                        _report(call.event, BadInputError(call.problem), files)
            elif isinstance(given, dict):
                output = _answer_elsewhere(given, event)
            else:
                raise BadInputError("the input must be a JSON object")
    except (Exception, OutOfTimeError, KeyboardInterrupt) as error:
        problem = _report(event, error, files)
        if not is_denial(output):
            called = call or _call_without_input(given, event)
            output = {} if called is None else _warn(called, problem, _is_momentary(error))
    if output:
        write_output(output)
    return 0


def _answer_elsewhere(given: dict[str, Any], event: str | None) -> dict[str, Any]:
    """Answer for an agent in a folder that does not use holdlog: it may change files of a repository that does. What
    else it passes is not reported there."""
    named = given.get("tool_input") or given
    if not isinstance(named, dict) or _only_reads(named.get("command")):
        return {}
    with suppress(BadInputError):
        call = parse(given, event)
        if call is not None and (call.paths or call.git):
            return _answer_parts(_with_git(call), None)
    return {}


def _only_reads(command: object) -> bool:
    """Whether a shell command is a plain one that changes no file: then its grammar is not loaded."""
    return isinstance(command, str) and re.fullmatch(_READING, command) is not None


def _with_git(call: HookCall) -> HookCall:
    """The call with what its git commands name."""
    if not call.git:
        return call
    from holdlog.adapters.hooks.guarding import with_named

    return with_named(call)


def _answer_parts(call: HookCall, own: UsedRepository | None) -> dict[str, Any]:
    """Answer a call in each store that it concerns. If one denies it, the others release what it has claimed there."""
    if os.environ.get("HOLDLOG_DB") or os.environ.get("HOLDLOG_DB_FILE"):
        parts = [] if own is None else [(own, call)]
    else:
        parts = split(call, own, os.environ)
    outputs = list[dict[str, Any]]()
    for number, (repository, part) in enumerate(parts):
        output = _answer_part(repository, part, len(parts) == 1)
        if is_denial(output):
            for before, granted in parts[:number]:
                _answer_part(before, granted._replace(event="turn-end"), is_only=False)
            return output
        outputs.append(output)
    return merge(outputs)


def _answer_part(repository: UsedRepository, call: HookCall, is_only: bool) -> dict[str, Any]:
    """Answer in one store. What fails there leaves no file of another store unguarded."""
    files = HookFiles(repository.store)
    of_store = [it for it in call.paths if files.is_of_store(it)]
    call = call._replace(paths=tuple(it for it in call.paths if it not in of_store))
    try:
        with working_in(repository):
            output = _answer(call, repository.store, files)
            if of_store and call.event == "pre-edit" and not is_denial(output):
                from holdlog.adapters.hooks.guard_files import describe_settings, find_settings

                if (found := find_settings(of_store)) is not None:
                    output = merge([output, ask_person(call, describe_settings(found, call.folder))])
            return name_repository(output, call, repository)
    except Exception as error:
        if is_only and not repository.root:
            raise
        problem = _report(call.event, error, files)
        return _warn(call, problem, is_momentary=True) if _is_momentary(error) else {}


def _answer(call: HookCall, store: Path, files: HookFiles) -> dict[str, Any]:
    server = find_server(store)
    if server is not None and not call.version:
        call = call._replace(version=server.version)
    output = _output(call, store, files, server)
    if call.event == "pre-edit" and (call.reports or call.git) and not is_denial(output) and os.path.exists(store):
        from holdlog.adapters.hooks.commands import before_command
        from holdlog.adapters.hooks.dirty import GitFailedError
        from holdlog.adapters.hooks.guarding import quick_source

        with suppress(sqlite3.Error, GitFailedError), lease_file(store) as leases:
            session = session_of(call, server, Identity(leases.salt)).held_by
            if before_command(call, quick_source(call, store, files, leases, session), session):
                return output | ask_afterwards(call)
    return output


def _output(call: HookCall, store: Path, files: HookFiles, server: BoundServer | None) -> dict[str, Any]:
    if os.path.exists(store):
        is_readable = False
        with suppress(sqlite3.Error), lease_file(store) as leases:
            session = session_of(call, server, Identity(leases.salt)).held_by
            if server is not None and call.client not in SHARED_SERVER and call.event != "subagent-end":
                files.set_paused(session, call.event == "turn-end" and not call.paths)
            reads, notes = Reads(files, session, call.agent), files.read(session)
            if call.event == "read":
                for path in call.real_paths:
                    reads.note(path, read_now(path))
            has_news = call.reaches_agent and files.has_news(session)
            if (
                not has_news
                and _needs_nothing(call, notes, leases, session, reads)
                and _is_harmless(call, store, files, leases, session, notes)
            ):
                if call.prompt:
                    _note_prompt(call, files, session, Identity(leases.salt))
                return {}
            is_readable = True
        if call.event == "read" and not is_readable:  # the store is locked or damaged
            return {}
    if server is not None:
        from holdlog.adapters.hooks.asking import HookFailedError, ask

        with suppress(HookFailedError):  # what fails here, too, is reported
            output = ask(store, server, call)
            if output is not None:
                return output
    return _perform_alone(call, store, files, server)


def _perform_alone(call: HookCall, store: Path, files: HookFiles, server: BoundServer | None) -> dict[str, Any]:
    from holdlog.adapters.hooks.opening import perform_alone

    def describe_failure(error: BaseException) -> dict[str, Any]:
        """The output if the store cannot be used now."""
        if call.event != "pre-edit" or not _is_momentary(error):
            return {}
        from holdlog.adapters.hooks.last_resort import describe_held

        reason = describe_held(call, store, files, server)
        return denial(call, reason) if reason else {}

    try:
        with _ended_at_last(call, files, describe_failure):
            return perform_alone(call, store, files, server)
    except (Exception, OutOfTimeError) as error:
        if output := describe_failure(error):
            return output
        raise


def _needs_nothing(call: HookCall, notes: Notes, leases: LeaseFile, session: str, reads: Reads) -> bool:
    """Whether the call changes nothing and prints nothing, as far as known without opening the whole store."""
    paths = call.real_paths
    if _has_new_waiters(call, notes, leases, session):
        return False
    match call.event:
        case "pre-edit":
            hands_over = call.claiming and session.startswith("hook-")
            if hands_over or notes.denied:
                return False
            is_known = _holds_all(call, notes, leases, session) and all(map(reads.is_current, paths))
            return is_known and not _needs_person(call)
        case "post-edit":
            return not notes.denied and all(map(reads.has_current, paths))
        case "prompt":
            return not notes.denied and leases.is_idle(session)
        case "turn-end" | "subagent-end":
            return not notes.denied and not notes.claims
        case "read":
            return True
        case _:
            return False


def _needs_person(call: HookCall) -> bool:
    """Whether a person decides about a call, each time."""
    if _HOMES.isdisjoint(os.environ) and not any("/." in it for it in (*call.paths, *call.real_paths)):
        return False
    from holdlog.adapters.hooks.guard_files import find_settings

    return find_settings(call.paths) is not None


def _note_prompt(call: HookCall, files: HookFiles, session: str, identity: Identity) -> None:
    """Note the first words of the session's first prompt."""
    with suppress(OSError):
        if terminal_of(call, files.read(session), identity) is not None:
            with files.change(session) as notes:
                terminal = terminal_of(call, notes, identity)
                if terminal is not None:
                    notes.terminals[main_of(call)] = terminal


def _is_harmless(call: HookCall, store: Path, files: HookFiles, leases: LeaseFile, session: str, notes: Notes) -> bool:
    """Whether a shell command neither will concern the work of other sessions nor has, as far as known without opening
    the whole store."""
    if call.event == "turn-end" and any(it.lasts for it in notes.before.values()):
        from holdlog.adapters.hooks.commands import has_lasting_differences

        return not has_lasting_differences(files, session)
    if not (call.git or call.reports) or call.event not in ("pre-edit", "post-edit"):
        return True
    from holdlog.adapters.hooks.commands import after_unchanged
    from holdlog.adapters.hooks.dirty import GitFailedError
    from holdlog.adapters.hooks.guarding import findings, quick_source

    if call.event == "post-edit":
        return after_unchanged(call, files, session)
    try:
        return not call.git or not findings(call, quick_source(call, store, files, leases, session))
    except GitFailedError:  # the agent is warned
        return False


def _has_new_waiters(call: HookCall, notes: Notes, leases: LeaseFile, session: str) -> bool:
    """Whether somebody waits for what the agent holds, and the agent does not know it."""
    if not call.reaches_agent or not (waiting := leases.waiting(session)):
        return False
    name = name_of(call, notes)
    return any(
        (call.holds_all or f"{it.holder}/".startswith(f"{name}/"))
        and (it.agent, it.session) != (name, session)
        and (call.agent, it.resource, it.version) not in notes.reported
        for it in waiting
    )


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
    return read_json(text)


def _enter(given: object) -> None:
    """Go to the folder in which the agent works: it decides which store is used. If a host's folder is gone, stay in
    the one in which the host started the hook. Raises BadInputError for the plain form."""
    if not isinstance(given, dict):
        return
    if folder := folder_of(given):
        try:
            os.chdir(folder)
        except (OSError, ValueError):
            if not given.get("hook_event_name") and not given.get("hookEventName"):
                raise BadInputError("cwd: must be a folder that exists") from None


def _find_opted_in() -> UsedRepository | None:
    """The store of the agent's repository, or of the innermost one around that which has a store or a `holdlog.toml`;
    None if there is none. Raises LocationError."""
    if os.environ.get("HOLDLOG_DB") or os.environ.get("HOLDLOG_DB_FILE"):
        from holdlog.adapters.cli.settings import location_of

        named = location_of(None)
        if not isinstance(named, Path):
            raise BadInputError("hooks need a store in a file, but HOLDLOG_DB names a database")
        return UsedRepository(named) if is_there(named) else None
    store = find_store(None, os.environ, Path.cwd())
    if store.parent == state_location(os.environ):
        return None  # outside of every project
    if is_there(store):
        return UsedRepository(store)
    root = project_root(os.environ, Path.cwd())
    if root is None or os.path.isfile(root / POLICY_FILE):
        return None if root is None else UsedRepository(store)
    return Repositories(None, os.environ).find(str(root))


def warn_at_start(given: object, event: str | None, problem: str) -> dict[str, Any]:
    """The output for an agent whose session starts, that hooks do not guard it: few hosts show standard error. Empty
    later, because each edit would repeat it."""
    call = _call_without_input(given, event)
    return {} if call is None else _warn(call, problem)


def _call_without_input(given: object, event: str | None) -> HookCall | None:
    """The call, without what a tool is to do: its command may be what took too long."""
    if not isinstance(given, dict):
        return None
    try:
        return parse({**given, "tool_input": {}} if "tool_name" in given else given, event)
    except ValueError:
        return None


def _warn(call: HookCall, problem: str, is_momentary: bool = False) -> dict[str, Any]:
    """As `warn_at_start`, or that a git command is not guarded: it may take away the work of all others. What is wrong
    for the moment only is reported at once."""
    if call.event == "start":
        return add_context(call, f"holdlog: your edits are not guarded, and you do not see what others hold: {problem}")
    if call.event == "pre-edit" and call.git:
        return warning(call, describe_unguarded_git(problem))
    if call.event == "pre-edit" and is_momentary:
        return warning(call, f"holdlog: {problem}; this call was not guarded.")
    return {}


def _is_momentary(error: BaseException) -> bool:
    """Whether the next call will probably not fail in this way."""
    return isinstance(error, OutOfTimeError) or str(error).endswith("; try again") or "is locked" in str(error)


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


def write_output(output: dict[str, Any]) -> None:
    """Print the output for the host, if it still reads it."""
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
def _ended_at_last(
    call: HookCall, files: HookFiles, describe: Callable[[BaseException], dict[str, Any]]
) -> Iterator[None]:
    """End the process if the block outlasts OutOfTimeError: while SQLite waits for a lock, no signal is handled.
    `describe`: the output then, empty for a warning."""
    import threading

    only_one = threading.Lock()  # writes the output

    def end() -> None:
        if not only_one.acquire(blocking=False):
            return
        error = OutOfTimeError()
        output = describe(error) or _warn(call, _report(call.event, error, files), is_momentary=True)
        if output:
            write_output(output)
        os._exit(0)

    left = signal.getitimer(signal.ITIMER_REAL)[0] if hasattr(signal, "getitimer") else SECONDS
    timer = threading.Timer(left + GRACE_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        only_one.acquire()


def is_direct(words: Sequence[str]) -> bool:
    """Whether these arguments of `holdlog hook` have no options, so that no command line is needed."""
    return not any(word.startswith("-") for word in words)
