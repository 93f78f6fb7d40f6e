"""The command `holdlog`: chooses by the first word, before anything slow is imported."""

import codecs
import gc
import json
import os
import sys
from importlib import import_module
from typing import Final

from holdlog.adapters.cli.texts import print_note
from holdlog.adapters.operating_system.location import mask_password
from holdlog.domain.refusals import HoldlogError, InvalidError, NoStoreError, UnavailableError

REFUSED: Final = 1
BAD_ARGUMENTS: Final = 2
INTERRUPTED: Final = 130
BY_HAND: Final = {
    "init": ("hooks.init:run", "set up the hosts of this project, with hooks"),
    "demo": ("cli.demo:run", "see two agents share a file and a budget, in ten seconds"),
    "run": ("cli.run:run", "hold a claim while a command runs: merge lanes, deploys, migrations"),
    "claims --dirty": ("cli.commit:list_dirty_files", ""),
    "check": ("cli.check:run", "check that files are not claimed by others, for git hooks and scripts"),
    "commit": ("cli.commit:run", "commit the files that this session changed, and nothing else"),
    "thread": ("cli.actions:run_thread", "append to a conversation of agents, or read it"),
    "log": ("cli.log:run", "list events, and follow them"),
    "doctor": ("cli.doctor:run", "check the store and how hosts are set up"),
    "token": ("cli.actions:run_token", "create, list and revoke tokens for callers over HTTP"),
    "serve": ("cli.settings:serve", "serve MCP over stdio, or MCP and REST over HTTP (the default command)"),
    "hook": ("cli.commands:print_hook_help", "guard an edit, as a host asks on standard input"),
    "relay": ("nats.relay:run", "publish the log to NATS"),
    "subscribe": ("nats.subscriber:run", "print events from NATS, without gaps"),
    "export": ("cli.transfer:export", "write the log, or the values of a namespace, as JSON"),
    "import": ("cli.transfer:import_", "import an export of a whole log into a new store"),
    "completion": ("cli.completion:run", "print a script that lets bash, zsh or fish complete commands"),
}
"""Commands that are not derived from operations: the function that takes the words after the command, and returns the
exit code; what it does, for `--help`."""


def main() -> int:
    """Run the command line. 0: done; 1: it was refused, or found a problem; 2: bad arguments or settings. Reports every
    error in one line."""
    _make_every_character_writable()
    try:
        try:
            return _run_command(sys.argv[1:])
        finally:
            print(end="", flush=True)  # report a full disk here, not when the interpreter ends
    except HoldlogError as error:
        code = REFUSED if isinstance(error, UnavailableError | NoStoreError) else BAD_ARGUMENTS
        return _report(str(error), getattr(error, "exit_code", code))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdlog"):
            raise
        return _report(f"{error.name} is not installed; install holdlog[all]", BAD_ARGUMENTS)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        where = "" if error.filename is None else f"{error.filename}: "
        return _report(f"{where}{error.strerror or error}", REFUSED)


def _report(problem: str, code: int) -> int:
    """Report a problem in one line; returns the exit code."""
    print_note(mask_password(problem))
    return code


def _run_command(words: list[str]) -> int:
    command, rest = split_command(words)
    if command == "claims" and "--dirty" in rest:
        command, rest = "claims --dirty", [word for word in rest if word != "--dirty"]
    module_name, _, function = BY_HAND.get(command, ("cli.derived:run", ""))[0].partition(":")
    if command not in BY_HAND:
        rest = [command, *rest]
    gc.disable()  # modules stay until the end
    module = import_module(f"holdlog.adapters.{module_name}")
    gc.freeze()
    gc.enable()
    return int(getattr(module, function)(rest))


def split_command(words: list[str]) -> tuple[str, list[str]]:
    """The command, `serve` by default, and its words; `--db` may come before it. Raises InvalidError."""
    before = 0
    while before < len(words) and words[before].startswith("-"):
        if words[before] in ("-h", "--help", "--version"):
            return words[before], words[:before]
        before += 1 + (words[before] != "--" and "=" not in words[before])
    if before >= len(words):
        return "serve", words
    options = [word.partition("=")[0] for word in words[:before] if word.startswith("-")]
    if strange := [option for option in options if option != "--db"]:
        raise InvalidError(f"{strange[0]}: put it after {words[before]}; only --db may come before a command")
    return words[before], words[:before] + words[before + 1 :]


def _discard_output() -> None:
    """Discard buffered output, which would fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_every_character_writable() -> None:
    """Escape what standard output cannot encode as in JSON: in text it is readable, in JSON it is equivalent. Standard
    error escapes by default."""
    if sys.stdout.errors not in ("strict", "surrogateescape"):  # the user's choice (PYTHONIOENCODING)
        return
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        codecs.register_error("holdlog.json", _escape)
        sys.stdout.reconfigure(errors="holdlog.json")  # type: ignore[union-attr]


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
