"""`holdlog run`: holds claims while a command runs."""

import os
import shutil
import signal
import subprocess
import threading
from argparse import SUPPRESS, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

from holdlog.adapters.cli.derived import BY_SIGNAL
from holdlog.adapters.cli.fields import add_fields, collect, rename_argument
from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.store import find_caller, find_names, open_to_write
from holdlog.adapters.cli.texts import print_note, show_since
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operating_system.files import format_duration
from holdlog.adapters.operating_system.processes import name_handle
from holdlog.adapters.operations.claims import Claim, FindEnd
from holdlog.adapters.operations.steps import take_steps
from holdlog.adapters.operations.surface import parse
from holdlog.adapters.python.block import Block
from holdlog.domain.refusals import BusyError, DeadlockError, FencedError, HoldlogError, InvalidError

CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
"""Exit codes of shells, like BY_SIGNAL."""
FOREVER: Final = 1e9
"""Seconds."""
CHECK_SECONDS: Final = 5.0
"""The claim is checked at least this often."""
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to all its foreground processes, so the command already gets them."""
_FORWARDED: Final = (*_FROM_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_EXAMPLES: Final = (
    "run --claim custom://merge --wait 600 -- git push origin main",
    "run --claim custom://deploy --note 'release 7' -- ./deploy.sh",
    "run --claim migrations/ --claim schema.sql --outcome modified -- make migration",
)


class EndedBySignal(BaseException):
    """A signal ended the wait for the claim."""

    def __init__(self, number: int) -> None:
        self.number = number


class Signals:
    """Handles signals of this process: they end the wait for the claim; once the command runs, it gets them."""

    def __init__(self) -> None:
        self._command: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._early: list[int] = []

    @contextmanager
    def handle(self) -> Iterator[None]:
        """Handle signals while the block runs, except those that this process inherited as ignored."""
        before = {number: signal.getsignal(number) for number in _FORWARDED}
        handlers = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
        for number in handlers:
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def start(self, words: Sequence[str], environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        """Start the command. Raises OSError."""
        self._is_starting = True
        self._command = command = subprocess.Popen(words, env=environ)
        for number in self._early:
            _forward(number, command)
        return command

    def _receive(self, number: int, _: object) -> None:
        if self._command is not None:
            _forward(number, self._command)
        elif self._is_starting:
            self._early.append(number)
        else:
            raise EndedBySignal(number)


def run(words: list[str]) -> int:
    end = words.index("--") if "--" in words else len(words)
    parser = Parser(
        "run",
        "Claim resources, run a command, and release them when it ends, however it ends. The command gets"
        " HOLDLOG_CLAIM_VERSION, HOLDLOG_CLAIM_POSITION and HOLDLOG_AGENT. Exit code: that of the command; 1 if the"
        " claim was refused, timed out or was lost; 126 and 127 if the command cannot be run.",
        _EXAMPLES,
        has_json=False,
    )
    parser.add_argument("--claim", action="append", required=True, metavar="RESOURCE", help="repeatable: all or none")
    add_fields(parser, Claim, (), ("resource", "also", "receipt"))
    outcomes = ("released", "modified", "created", "deleted")
    parser.add_argument("--outcome", choices=outcomes, help="what the command does to it")
    parser.add_argument("words", nargs="*", metavar="COMMAND", default=SUPPRESS, help="after --, with its arguments")
    options, rest = parser.parse_args(words[:end]), words[end + 1 :]
    command = [*getattr(options, "words", ()), *rest]
    if not command:
        raise InvalidError("COMMAND: is missing; put it after --, for example -- git push origin main")
    if shutil.which(command[0]) is None:  # before it waits for the claim
        exists = os.path.dirname(command[0]) and os.path.exists(command[0])
        print_note(f"{command[0]}: {'cannot be run' if exists else 'command not found'}; nothing was claimed")
        return CANNOT_RUN if exists else NOT_FOUND
    return _run_claimed(options, command)


def _run_claimed(options: Namespace, words: list[str]) -> int:
    options.resource, *options.also = options.claim
    arguments = {name: value for name, value in collect(Claim, options).items() if value != []}
    names = find_names(options)
    signals = Signals()
    try:
        parse(Claim, {"agent": "x"} | arguments, names)
        with closing(open_to_write(options)) as engine, signals.handle():
            caller, agent = find_caller(options, engine, has_own_session=True)
            claim = parse(Claim, {"agent": agent} | arguments, names)
            fields = {name: getattr(claim, name) for name in claim.model_fields_set} | {"outcome": options.outcome}
            block = Block(fields, caller._replace(handle=name_handle()), engine)
            try:
                return _hold(block, engine, signals, words)
            except EndedBySignal as ended:
                return BY_SIGNAL + ended.number
            except (BusyError, DeadlockError) as refusal:
                print_note(_explain(refusal))
                return 1
    except InvalidError as error:
        raise rename_argument(error, Claim, ()) from None


def _hold(block: Block, engine: Engine, signals: Signals, words: list[str]) -> int:
    """Run the command while the block holds its claim. Returns the exit code."""
    code = 0
    try:
        take_steps(block.enter(), engine)
        with _watch(block, engine):
            code = _run_command(signals, words, block)
        block.note = "completed" if code == 0 else f"failed with exit code {code}"
        take_steps(block.leave(None), engine)
    except FencedError as lost:
        print_note(f"{lost.resource} was not claimed until the command ended; check what it did")
        return code or 1
    except BaseException as error:
        with suppress(HoldlogError):
            take_steps(block.leave(error), engine)
        raise
    return code


def _run_command(signals: Signals, words: list[str], block: Block) -> int:
    """Run the command and wait for its end. Returns its exit code, or 128 + n after signal n."""
    variables = {
        "HOLDLOG_AGENT": block.agent,
        "HOLDLOG_CLAIM_VERSION": str(block.version),
        "HOLDLOG_CLAIM_POSITION": str(block.position),
    }
    try:
        command = signals.start(words, dict(os.environ) | variables)
    except OSError as error:
        print_note(f"{words[0]}: cannot be run ({error.strerror})")
        return CANNOT_RUN
    # With a time limit, wait() polls every 50 ms. Without one, a signal that arrives just before it blocks would be
    # handled only after the command has ended.
    code = command.wait(FOREVER)
    return code if code >= 0 else BY_SIGNAL - code


@contextmanager
def _watch(block: Block, engine: Engine) -> Iterator[None]:
    """Warn at once if the claim is lost while the block runs."""
    woken, has_ended = threading.Event(), threading.Event()

    def watch() -> None:
        topics = tuple(f"claim:{condition['resource']}" for condition in block.guard)
        with engine.waiters.subscribe(topics, woken.set):
            while not has_ended.is_set():
                with suppress(HoldlogError):  # if the store cannot be read now, the next check may succeed
                    for condition in block.guard:
                        if (end := engine.query(FindEnd(**condition))) is not None:
                            why = f": {end.reason}" if end.reason else ""
                            print_note(f"warning: you lost {end.resource}{why}; the command runs on without it")
                            return
                woken.wait(CHECK_SECONDS)
                woken.clear()

    watcher = threading.Thread(target=watch, name="holdlog-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        woken.set()
        watcher.join()


def _forward(number: int, command: "subprocess.Popen[bytes]") -> None:
    if number not in _FROM_TERMINAL or not _is_in_foreground():
        command.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether this process is in the foreground, so that its terminal also sends signals to the command."""
    with suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


def _explain(refusal: HoldlogError) -> str:
    """Why the command does not run, in one line, and what to do."""
    hold: Any = refusal.detail
    if isinstance(refusal, DeadlockError):
        return f"{hold.resource}: its holder waits for a claim of yours; release that first"
    since = show_since(hold.claimed_at, hold.held_for_seconds)
    left = f"for another {format_duration(hold.expires_in_seconds)} unless renewed"
    remedy = "to queue, add --wait 600" if hold.ticket is None else "to wait longer, raise --wait"
    return f"{hold.resource} is held by {hold.held_by} {since}, {left}; nothing was run; {remedy}"
