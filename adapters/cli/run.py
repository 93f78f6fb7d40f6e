"""`holdlog run`: holds a claim while a command runs."""

import argparse
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.claims import OUTCOMES
from holdlog.adapters.cli.commands import AGENT_HELP, LONGEST_WAIT, act_as_agent
from holdlog.adapters.cli.parsers import Commands, as_option
from holdlog.adapters.cli.settings import location_of, policy_settings, workspaces_of
from holdlog.adapters.cli.signals import BY_SIGNAL, handled
from holdlog.domain.refusals import FencedError, HoldlogError, InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.python.block import HeldClaim
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.domain.ports import Reader

CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
"""Exit codes of shells (POSIX, 2.8.2)."""

RETRY_SECONDS: Final = 1.0
"""Time before the claim is checked again if the store could not be read."""
FOREVER: Final = 1e9
"""Seconds."""
_FROM_TERMINAL: Final = ("SIGINT", "SIGQUIT")
"""Signals that a terminal sends to all its foreground processes, so the command gets them, too."""
_PASSED_ON: Final = (*_FROM_TERMINAL, "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_NAMES_HERE: Final = {"resource": "--claim", "also": "--claim", "lease_seconds": "--lease", "wait_seconds": "--wait"}
_EXAMPLES: Final = """\
examples:
  holdlog run --claim custom://merge --wait 600 -- git push origin main
  holdlog run --claim custom://deploy --note 'release 7' -- ./deploy.sh
  holdlog run --claim migrations/ --claim schema.sql --outcome modified -- make migration

The command gets HOLDLOG_CLAIM_VERSION and HOLDLOG_CLAIM_POSITION, with which it can guard what it writes, and
HOLDLOG_AGENT. Exit code: that of the command; 1 if the claim was refused, timed out or was lost; 126 and 127 if the
command cannot be run.
"""


def add_run(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        parents=[store, locations],
        help="hold a claim while a command runs: merge lanes, deploys, migrations",
        description="Claim resources, run a command, and release them when it ends, however it ends. The claim is\n"
        "renewed meanwhile. holdlog itself runs and pushes nothing else.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--claim",
        action="append",
        required=True,
        metavar="RESOURCE",
        help="a path, a folder with / at its end, or custom://NAME; repeatable: all or nothing",
    )
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="queue for it this long (default: 0, do not wait)"
    )
    parser.add_argument(
        "--shared",
        action="store_const",
        const="shared",
        default="exclusive",
        dest="mode",
        help="others may share it (default: nobody else may hold it)",
    )
    parser.add_argument(
        "--lease",
        type=float,
        metavar="SECONDS",
        help="the claim expires this long after its last renewal (default: 300)",
    )
    parser.add_argument("--note", metavar="TEXT", help="what you do with it, for other agents to read (default: none)")
    parser.add_argument("--outcome", choices=OUTCOMES, help="what the command does to it (default: released)")
    parser.add_argument("--agent", metavar="NAME", help=AGENT_HELP)
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the command to run, with its arguments"
    )
    parser.set_defaults(run=_run)


class EndedBySignal(KeyboardInterrupt):
    """A signal ended the wait for the claim."""

    def __init__(self, number: int) -> None:
        self.number = number


class Signals:
    """The signals of this process: they end the wait for the claim; once the command runs, they are passed on to it."""

    def __init__(self) -> None:
        self._command: subprocess.Popen[bytes] | None = None
        self._starting = False
        self._early: list[int] = []

    def start(self, words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start the command. Raises OSError."""
        self._starting = True
        self._command = command = subprocess.Popen(words, **options)
        for number in self._early:
            _pass_on(number, command)
        return command

    def handle(self, number: int, _: object) -> None:
        """Handle a signal that this process gets."""
        if self._command is not None:
            _pass_on(number, self._command)
        elif self._starting:
            self._early.append(number)
        else:
            raise EndedBySignal(number)


def _pass_on(number: int, command: "subprocess.Popen[bytes]") -> None:
    if signal.Signals(number).name not in _FROM_TERMINAL or not _in_foreground():
        command.send_signal(number)


def _in_foreground() -> bool:
    """Whether this process is one of those to which its terminal sends signals."""
    with suppress(OSError, AttributeError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


def _run(options: argparse.Namespace) -> int:
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.auth.identity import SessionId
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, process_session

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise InvalidError("COMMAND: is missing; put it after --, for example -- git push origin main")
    if shutil.which(words[0]) is None:  # before it waits for the claim
        exists = os.path.dirname(words[0]) and os.path.exists(words[0])
        print_note(f"{words[0]}: {'cannot be run' if exists else 'command not found'}; nothing was claimed")
        return CANNOT_RUN if exists else NOT_FOUND
    settings = Settings(**policy_settings(), workspaces=workspaces_of(options), max_wait=LONGEST_WAIT)
    session = SessionId("shell", process_session())
    engine = open_holdlog(location_of(options.db), settings, session, "holdlog run", print_note)
    try:
        return _run_claimed(engine, options, words)
    except InvalidError as error:
        raise InvalidError(as_option(str(error), _NAMES_HERE)) from None
    except EndedBySignal as ended:
        return BY_SIGNAL + ended.number
    finally:
        engine.close()


def _run_claimed(engine: "Engine", options: argparse.Namespace, words: Sequence[str]) -> int:
    from holdlog.adapters.cli.texts import marked, print_note
    from holdlog.adapters.python.calls import hold_options
    from holdlog.adapters.python.held import held
    from holdlog.domain.refusals import BusyError, DeadlockError

    first, *also = options.claim
    agent = act_as_agent(engine, options.agent)
    wanted = (agent, also, options.wait, options.lease, options.mode, options.note, options.outcome)
    signals, code = Signals(), 0
    try:
        with handled(_PASSED_ON, signals.handle), held(engine, hold_options(engine.requests, first, *wanted)) as claim:
            environ = {
                **os.environ,
                "HOLDLOG_AGENT": agent,
                "HOLDLOG_CLAIM_VERSION": str(claim.version),
                "HOLDLOG_CLAIM_POSITION": str(claim.position),
            }
            with _watched(engine, claim):
                code = _end_of(signals, words, environ, engine.liveness.descriptors())
            claim.note = "completed" if code == 0 else f"failed with exit code {code}"
    except (BusyError, DeadlockError) as refusal:
        print_note(_refusal(engine, refusal, options.wait))
        return 1
    except FencedError as lost:
        shown = engine.requests.rules.spell
        print_note(f"{marked(shown(lost.resource))} was not claimed until the command ended; check what it did")
        return code or 1
    return code


def _end_of(signals: Signals, words: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int]) -> int:
    """Run the command to its end. Returns its exit code, as a shell does. `descriptors`: with them, the claim of a
    killed `holdlog run` lasts while its command does, but no longer than its lease."""
    from holdlog.adapters.cli.texts import print_note

    try:
        command = signals.start(words, env=environ, pass_fds=descriptors)
    except OSError as error:
        print_note(f"{words[0]}: cannot be run ({error.strerror})")
        return CANNOT_RUN
    # With a time limit, wait() polls every 50 ms. Without one, a signal that arrives just before it blocks would be
    # handled only after the command has ended.
    code = command.wait(FOREVER)
    return code if code >= 0 else BY_SIGNAL - code


@contextmanager
def _watched(engine: "Engine", claim: "HeldClaim") -> Iterator[None]:
    """Warn at once if the claim is lost while the block runs."""
    from holdlog.adapters.api.request import BlockingQuery
    from holdlog.domain.names import claim_stream

    resources = [resource for resource, _ in claim.grants]
    interests = tuple(map(claim_stream, resources))
    ended = threading.Event()

    def is_lost(reader: "Reader") -> bool | None:
        now = engine.requests.rules.steady()
        live = {lease.key for lease in reader.leases.of(resources) if lease.deadline > now}
        return None if live.issuperset(claim.grants) else True

    call = BlockingQuery(lambda reader, elapsed: is_lost(reader), lambda reader, elapsed: None, LONGEST_WAIT)

    def watch() -> None:
        while not ended.is_set():
            try:
                if engine.until(is_lost, call, interests):
                    _warn(engine)
                    return
            except HoldlogError:  # the store cannot be read now
                ended.wait(RETRY_SECONDS)

    watcher = threading.Thread(target=watch, name="holdlog-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        engine.finish_waiting()
        watcher.join()


def _warn(engine: "Engine") -> None:
    from holdlog.adapters.cli.response_texts import describe_loss
    from holdlog.adapters.cli.texts import print_note

    with suppress(HoldlogError):
        for loss in engine.lost(engine.caller):
            print_note(f"warning: {describe_loss(loss)}; the command runs on without it")


def _refusal(engine: "Engine", refusal: HoldlogError, waited: float) -> str:
    """Why the command does not run, in one line: who holds the claim, since when, until when, and what to do."""
    from holdlog.adapters.api.authors import author
    from holdlog.adapters.api.claims.responses import Busy, Deadlock
    from holdlog.adapters.cli.texts import duration, marked, since

    found = engine.requests.expected(refusal)
    if isinstance(found, Deadlock):
        return f"{marked(found.resource)}: its holder waits for a claim of yours; release that first"
    assert isinstance(found, Busy)
    holder = author(marked(found.held_by), found.held_by_principal)
    begin = since(found.claimed_at, found.held_for_seconds)
    until = f"for another {duration(found.expires_in_seconds)} unless renewed"
    todo = "run it again later, or queue for longer: --wait 3600" if waited else "to queue for it, add --wait 600"
    after = f" after {duration(waited)}" if waited else ""
    return f"{marked(found.resource)} is held by {holder}{after}, {begin}, {until}; nothing was run; {todo}"
