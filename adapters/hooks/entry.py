"""Runs a hook: reads the host's JSON, and writes the host's JSON. It fails open: after any error the edit is allowed,
one line reports the error, and the exit code is 0. Imports the standard library alone."""

import gc
import json
import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.hooks import calls
from holdlog.adapters.hooks.calls import HookCall, InputError, Output
from holdlog.adapters.hooks.places import Place, Places, Server, read_server
from holdlog.adapters.operating_system.files import CANNOT_WRITE, explain, show

if TYPE_CHECKING:
    from holdlog.adapters.hooks.work import Work

SECONDS: Final = 4.0
"""A hook ends after this time at the latest: hosts wait for it before each edit."""
MAX_INPUT: Final = 32 * 1024 * 1024
"""Bytes of the host's JSON, which contains the whole new file."""
MAX_REPORT: Final = 300
"""Characters of an error."""
MAX_SHOWN: Final = 80
_FOLLOWED: Final = ("start", "prompt", "turn-end", "subagent-end", "session-end")
"""Events that concern what the conversation holds in any store."""
_READER: Final = r"[ \t]*(?:cat|cd|echo|grep|head|ls|pwd|rg|stat|tail|wc|which)(?:[ \t]+[\w./~=@%+:,*?-]+)*[ \t]*"
_READING: Final = rf"{_READER}(?:(?:&&|\|\|?|;){_READER})*"
"""Shell commands that are frequent and change nothing."""
_QUIET: Final = """SELECT NOT EXISTS (SELECT 1 FROM holders WHERE session = :session
    AND (lost IS NOT NULL OR seen_at < :now - lease / CASE handles WHEN '' THEN 8 ELSE 40 END))
    AND NOT EXISTS (SELECT 1 FROM claims WHERE is_ticket = 1)
    AND EXISTS (SELECT 1 FROM conversations
    WHERE session = :session AND agent = :agent AND seen_at > :now - 225000000)"""
"""Whether no holder of the conversation has lost a claim or was silent for an eighth of its life, no agent waits, and
the conversation's row is fresh: then the call changes nothing."""


def needs_nothing(call: HookCall, store: str) -> bool:
    """Whether a plain shell command changes no file, the agent holds nothing whose life the call must prolong, and
    there is nothing to report."""
    if call.event not in ("pre-edit", "post-edit") or "holdlog" in call.command or not os.path.isfile(store):
        return False
    if not re.fullmatch(_READING, call.command):
        return False
    path = store.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    mode = "ro" if os.path.exists(f"{store}-wal") else "ro&immutable=1"  # without a log, the file is complete
    facts = {"session": call.session, "agent": call.agent, "now": time.monotonic_ns() // 1000}
    try:
        connection = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, timeout=0.1)
        try:
            return bool(connection.execute(_QUIET, facts).fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:  # opening the store properly reports what is wrong
        return False


class OutOfTimeError(BaseException):
    """The hook took too long. Not an Exception, so that only the outermost handler catches it."""


def run(words: Sequence[str]) -> int:
    """Run `holdlog hook [EVENT]`. Always returns 0."""
    gc.disable()
    try:
        output = Hook().run(words[0] if words else None)
        if output:
            _write(output)
    finally:
        gc.freeze()  # else Python would collect all imported modules at its end, which takes time
    return 0


class Hook:
    """One call."""

    def __init__(self) -> None:
        self._call: HookCall | None = None
        self._own: Place | None = None
        self._output = Output()

    def run(self, event: str | None) -> dict[str, Any]:
        """The output for the host."""
        try:
            with _limit():
                self._handle(calls.read_json(_read()), event)
        except (Exception, OutOfTimeError, KeyboardInterrupt) as error:
            problem = self._report(error)
            if self._call is None:  # the host is unknown: use the form that most hosts read
                return {"systemMessage": f"holdlog: {problem}; this call is not guarded."}
            if self._output.decision != "deny":
                self._output = self._warn(problem)
        return calls.render(self._call, self._output) if self._call is not None else {}

    def _handle(self, fields: Any, event: str | None) -> None:
        _enter(fields)
        places = Places(os.environ, os.getcwd())
        self._own = places.own
        try:
            call = self._call = calls.parse(fields, event)
            if call is None or (self._own is not None and needs_nothing(call, self._own.store)):
                return
            call = self._call = call._replace(targets=calls.find_call_targets(call, fields))
        except InputError:
            if self._own is None and isinstance(fields, dict):
                return  # holdlog is not used in this folder, so the input does not concern it
            raise
        if call.event == "pre-edit" and (call.targets.git or call.targets.reports):
            from holdlog.adapters.hooks.guard import read_call  # only shell commands need it

            reading = read_call(call.targets)
            call = self._call = call._replace(targets=reading.targets, reading=reading)
        with ExitStack() as stack:
            self._handle_in_places(call, places.split(call), stack)

    def _handle_in_places(self, call: HookCall, parts: dict[Place, list[str]], stack: ExitStack) -> None:
        """Handle the call in each of its stores, and in those where the conversation may hold something."""
        others = [place for place in parts if place != self._own] if call.event == "pre-edit" else []
        queue, works = list(parts.items()), list["Work"]()
        for place, paths in queue:
            output = self._handle_in_place(place, paths, others, works, stack)
            if output.decision == "deny":
                self._output = output
                for work in works[:-1]:
                    work.release()
                return
            self._output = calls.merge(self._output, output)
            if call.event in _FOLLOWED and place == self._own and works:
                queue += [(it, []) for it in works[0].list_places() if it not in parts and os.path.lexists(it.store)]

    def _handle_in_place(
        self, place: Place, paths: Sequence[str], others: Sequence[Place], works: "list[Work]", stack: ExitStack
    ) -> Output:
        """Handle the call in one store. If that fails, the files of other stores are still guarded."""
        from holdlog.adapters.hooks.work import open_work  # slow to import, and many calls need nothing

        assert self._call is not None
        is_own = place == self._own
        try:
            work = stack.enter_context(open_work(self._call, place, paths, is_own))
            works.append(work)
            for other in others if is_own else ():
                work.note_place(other)
            output = work.handle()
            if output.decision != "deny" and (server := read_server(place.store)) is not None:
                output = self._forward(server, work, output)
        except Exception as error:
            if is_own and not others:
                raise
            return self._warn(self._report(error))
        if work.new_problem:
            self._report(InputError(work.new_problem))
        if is_own or not output.text or self._call.event != "pre-edit":
            return output
        folder = show(os.path.relpath(place.root, self._call.folder)[:MAX_SHOWN])  # the agent works elsewhere
        return calls.merge(output, Output(f"The repository in {folder} has its own store: run holdlog there."))

    def _forward(self, server: Server, work: "Work", output: Output) -> Output:
        """Forward a call that the local store allows to the server of the repository."""
        from holdlog.adapters.hooks.remote import forward  # slow to import, and most repositories name no server

        try:
            remote = forward(server, work)
        except Exception as error:
            return calls.merge(output, self._warn(self._report(error), " against agents on other hosts"))
        if remote.decision == "deny":
            work.release()
        return calls.merge(remote, output)

    # --- failures

    def _report(self, error: BaseException) -> str:
        """Print in one line what failed. Returns the line."""
        is_ours = type(error).__module__.startswith("holdlog.") or isinstance(error, OSError)
        text = str(error).strip() if is_ours and str(error) else type(error).__name__
        if isinstance(error, OutOfTimeError):
            text = f"took longer than {SECONDS:.0f} s"
        elif isinstance(error, OSError) and error.errno in CANNOT_WRITE and error.filename:
            text = explain(os.fsdecode(error.filename), error.errno)
        text = show(text[:MAX_REPORT])
        with suppress(OSError, ValueError, AttributeError):  # None: closed before the start
            sys.stderr.write(f"holdlog hook: {text}; the edit is not guarded\n")
        return text

    def _warn(self, problem: str, against: str = "") -> Output:
        """Warn the agent that hooks do not guard its edits: few hosts show standard error."""
        if self._call is not None and self._call.event == "start":
            return Output(f"holdlog: your edits are not guarded{against}, and you do not see what they hold: {problem}")
        if self._call is not None and self._call.event == "pre-edit":
            return Output(f"holdlog: {problem}; this call is not guarded{against}.")
        return Output()


def _enter(fields: Any) -> None:
    """Go to the folder in which the agent works. If it is gone, stay in the one in which the hook started."""
    if isinstance(fields, dict) and (folder := calls.find_folder(fields)):
        try:
            os.chdir(folder)
        except (OSError, ValueError):
            if not (fields.get("hook_event_name") or fields.get("hookEventName")):
                raise InputError("cwd: must be a folder that exists") from None


def _read() -> bytes:
    try:
        text = sys.stdin.buffer.read(MAX_INPUT + 1)
    except AttributeError:  # closed before the start
        raise InputError("standard input is closed") from None
    if len(text) > MAX_INPUT:
        raise InputError(f"standard input is larger than {MAX_INPUT // 1024 // 1024} MB")
    return text


def _write(output: dict[str, Any]) -> None:
    """Print the output for the host, if it still reads it."""
    try:
        sys.stdout.write(json.dumps(output) + "\n")
        sys.stdout.flush()
    except AttributeError:  # closed before the start
        return
    except (OSError, ValueError):  # the host is gone, or its disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _limit() -> Iterator[None]:
    """Raise OutOfTimeError in the block after SECONDS."""

    def end(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
