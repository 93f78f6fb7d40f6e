"""Runs a hook: reads the host's JSON, and writes the host's JSON. It fails open: whatever goes wrong, the edit is
allowed, one line says so, and the exit code is 0. Loads the standard library alone."""

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.hooks.calls import (
    HookCall,
    InputError,
    add_context,
    deny,
    find_folder,
    is_denial,
    parse,
    read_json,
    warn,
)
from holdlog.adapters.hooks.look import needs_nothing, only_reads
from holdlog.adapters.hooks.places import Place, Places
from holdlog.adapters.operating_system.files import CANNOT_WRITE, explain, open_private
from holdlog.adapters.operating_system.location import is_url
from holdlog.domain.refusals import HoldlogError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.hooks.work import Work

SECONDS: Final = 4.0
"""A hook ends after this time at the latest: hosts wait for it before each edit."""
MAX_INPUT: Final = 32 * 1024 * 1024
"""Bytes of the host's JSON, which contains the whole new file."""
MAX_REPORT: Final = 300
"""Characters."""
MAX_FAILURES: Final = 64 * 1024
"""Bytes of the file with what failed."""
MAX_FOLDER: Final = 80
_FOLLOWED: Final = ("prompt", "turn-end", "subagent-end", "session-end")
"""Events that concern what the conversation holds in any store."""
_TEXTS: Final = frozenset(
    {"permissionDecisionReason", "additionalContext", "additional_context", "systemMessage", "context", "warning"}
    | {"reason", "user_message", "agent_message"}
)
"""Fields of an output that an agent or a person reads."""


class OutOfTimeError(BaseException):
    """The hook took too long. No Exception: only the outermost handler catches it."""


def run(words: Sequence[str]) -> int:
    """Run `holdlog hook [EVENT]`. Always returns 0."""
    gc.disable()
    try:
        output = Hook(words[0] if words else None).run()
        if output:
            _write(output)
    finally:
        gc.freeze()  # what the imports have made is not worth a look at the end
    return 0


class Hook:
    """One call."""

    def __init__(self, event: str | None) -> None:
        self._event = event
        self._given: Any = None
        self._call: HookCall | None = None
        self._places: Places | None = None
        self._output: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        try:
            with _limit():
                self._given = _read()
                self._enter()
                if not self._is_idle():
                    self._answer()
        except (Exception, OutOfTimeError, KeyboardInterrupt) as error:
            problem = self._report(error)
            if not is_denial(self._output):
                self._output = self._warn(problem, error)
        return self._output

    def _enter(self) -> None:
        """Go to the folder in which the agent works. If it is gone, stay in the one in which the hook started."""
        if isinstance(self._given, dict) and (folder := find_folder(self._given)):
            try:
                os.chdir(folder)
            except (OSError, ValueError):
                if not (self._given.get("hook_event_name") or self._given.get("hookEventName")):
                    raise InputError("cwd: must be a folder that exists") from None
        self._places = Places(os.environ, os.getcwd())

    def _is_idle(self) -> bool:
        """Whether the call is one of the many that change nothing and need nothing."""
        own = self._places.own if self._places is not None else None
        if own is None or is_url(own.store) or not only_reads(self._given):
            return False
        call = parse({**self._given, "tool_input": {}}, self._event)
        return call is not None and call.event in ("pre-edit", "post-edit") and needs_nothing(call, own.store)

    def _answer(self) -> None:
        assert self._places is not None
        if self._places.own is None:
            if not isinstance(self._given, dict):
                raise InputError("the input must be a JSON object")
            with suppress(InputError):  # what it passes is not reported where holdlog is not used
                self._call = parse(self._given, self._event)
        else:
            self._call = parse(self._given, self._event)
        if self._call is None:
            return
        if self._call.event == "pre-edit" and (self._call.git or self._call.targets.reports):
            from holdlog.adapters.hooks.guard import read_call  # which only commands need

            reading = read_call(self._call.targets, self._call.folder)
            self._call = self._call._replace(targets=reading.targets, reading=reading)
        parts, works = self._places.split(self._call), list["Work"]()
        others = [place for place in parts if place != self._places.own] if self._call.event == "pre-edit" else []
        queue = list(parts.items())
        while queue:
            place, paths = queue.pop(0)
            output = self._answer_in(place, paths, others, works)
            self._output = merge([self._output, output])
            if is_denial(output):
                self._output = output
                for work in works[:-1]:
                    with self._open(work.place, ()) as again:
                        again.release(work.claimed)
                return
            if self._call.event in _FOLLOWED and place == self._places.own and works:
                queue += [(it, []) for it in works[0].list_places() if it not in parts and os.path.lexists(it.store)]

    def _answer_in(
        self, place: Place, paths: Sequence[str], others: Sequence[Place], works: "list[Work]"
    ) -> dict[str, Any]:
        """Answer in one store. What fails there leaves no file of another store unguarded."""
        assert self._call is not None
        assert self._places is not None
        is_own = place == self._places.own
        try:
            with self._open(place, paths) as work:
                works.append(work)
                for other in others if is_own else ():
                    work.note_place(other)
                output = work.answer()
        except Exception as error:
            if is_own and not others:
                raise
            return self._warn(self._report(error), error)
        if works[-1].new_problem:
            self._report(InputError(works[-1].new_problem))
        if is_own and self._call.event == "start":
            output = merge([output, self._describe_failures()])
        return output if is_own else _name_place(output, self._call, place)

    def _open(self, place: Place, paths: Sequence[str]) -> "AbstractContextManager[Work]":
        from holdlog.adapters.hooks.work import open_work  # slow to import, and many calls need nothing

        assert self._call is not None
        assert self._places is not None
        return open_work(self._call, place, paths, place == self._places.own)

    # --- failures

    def _report(self, error: BaseException) -> str:
        """Print in one line what failed, and record it for the next start of a session. Returns the line."""
        is_ours = type(error).__module__.startswith("holdlog.") or isinstance(error, OSError)
        text = str(error).strip() if is_ours and str(error) else type(error).__name__
        if isinstance(error, OutOfTimeError):
            text = f"took longer than {SECONDS:.0f} s"
        elif isinstance(error, OSError) and error.errno in CANNOT_WRITE and error.filename:
            text = explain(os.fsdecode(error.filename), error.errno)
        text = "".join(it if it.isprintable() else " " for it in text[:MAX_REPORT])
        self._record(text)
        with suppress(OSError, ValueError, AttributeError):  # None: closed before the start
            sys.stderr.write(f"holdlog hook: {text}; the edit is not guarded\n")
        return text

    @property
    def _failures(self) -> str | None:
        """The file with what failed, next to the store."""
        own = self._places.own if self._places is not None else None
        return None if own is None or is_url(own.store) else f"{own.store}.failures"

    def _record(self, text: str) -> None:
        if self._failures is None or not os.path.isdir(os.path.dirname(self._failures)):
            return
        with suppress(OSError):
            descriptor = open_private(self._failures, os.O_APPEND)
            try:
                if os.fstat(descriptor).st_size > MAX_FAILURES:
                    os.truncate(descriptor, 0)
                os.write(descriptor, f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n".encode())
            finally:
                os.close(descriptor)

    def _describe_failures(self) -> dict[str, Any]:
        """What failed since the last start of a session; it is then forgotten."""
        lines = list[str]()
        with suppress(OSError):
            if self._failures is not None:
                with open(self._failures, encoding="utf-8", errors="replace") as file:
                    lines = file.read().splitlines()
                os.unlink(self._failures)
        if not lines or self._call is None:
            return {}
        last = "".join(it if it.isprintable() else "?" for it in lines[-1][:MAX_FOLDER])
        return add_context(self._call, f"{len(lines)} hook call{'s' * (len(lines) > 1)} failed, the last: {last}.")

    def _warn(self, problem: str, error: BaseException) -> dict[str, Any]:
        """Tell an agent whose session starts that hooks do not guard it: few hosts show standard error. Later only
        what is wrong for the moment, and that a git command is not guarded, which may take away the work of others."""
        call = self._call or self._parse_without_tool()
        if call is None:
            return {}
        is_momentary = isinstance(error, OutOfTimeError | UnavailableError)
        if call.event == "start":
            text = f"holdlog: your edits are not guarded, and you do not see what others hold: {problem}"
            return add_context(call, text)
        if call.event == "pre-edit" and (call.git or is_momentary):
            what = "this git command is" if call.git else "this call was"
            return warn(call, f"holdlog: {problem}; {what} not guarded.")
        return {}

    def _parse_without_tool(self) -> HookCall | None:
        """The call, without what a tool is to do: its command may be what took too long."""
        if not isinstance(self._given, dict):
            return None
        with suppress(ValueError, HoldlogError):
            return parse({**self._given, "tool_input": {}} if "tool_name" in self._given else self._given, self._event)
        return None


def merge(outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One output with the texts of all."""
    merged: dict[str, Any] = {}
    for output in outputs:
        for field, value in output.items():
            if isinstance(value, dict):
                merged[field] = merge([merged.get(field, {}), value])
            elif field in _TEXTS and field in merged and value != merged[field]:
                merged[field] = f"{merged[field]} {value}"
            else:
                merged[field] = value
    return merged


def _name_place(output: dict[str, Any], call: HookCall, place: Place) -> dict[str, Any]:
    """Name the repository in which commands of holdlog see what a text is about, as the agent works elsewhere."""
    if not output or call.event != "pre-edit":
        return output
    folder = "".join(it if it.isprintable() else "?" for it in os.path.relpath(place.root, call.folder)[:MAX_FOLDER])
    text = f"The repository in {folder} has its own store: run holdlog there."
    return merge([output, deny(call, text) if is_denial(output) else warn(call, text)])


def _read() -> Any:
    try:
        text = sys.stdin.buffer.read(MAX_INPUT + 1)
    except AttributeError:  # closed before the start
        raise InputError("standard input is closed") from None
    if len(text) > MAX_INPUT:
        raise InputError(f"standard input is larger than {MAX_INPUT // 1024 // 1024} MB")
    return read_json(text)


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
