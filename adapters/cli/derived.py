"""Runs the commands that are derived from operations."""

import os
import signal
import sys
from argparse import SUPPRESS, Namespace
from contextlib import closing
from typing import Final, NoReturn

from holdlog import __version__
from holdlog.adapters.cli.commands import (
    DERIVED,
    OF_RESOURCE,
    describe_operation,
    find_operation,
    list_commands,
    print_help,
)
from holdlog.adapters.cli.fields import add_fields, collect, rename_argument
from holdlog.adapters.cli.parser import Parser, suggest
from holdlog.adapters.cli.results import SUCCESSES, add_remark, describe, describe_loss, describe_rest
from holdlog.adapters.cli.settings import find_place
from holdlog.adapters.cli.store import find_caller, find_names, find_user, open_to_read, open_to_write
from holdlog.adapters.cli.texts import print_json, print_note, print_text
from holdlog.adapters.operating_system.files import escape
from holdlog.adapters.operating_system.location import mask_password, read_variable
from holdlog.adapters.operations.base import Operation, Query, Task
from holdlog.adapters.operations.claims import EndClaims
from holdlog.adapters.operations.json import Object, refusal_to_object
from holdlog.adapters.operations.steps import take_steps
from holdlog.adapters.operations.surface import Surface, parse
from holdlog.domain.moment import Caller
from holdlog.domain.names import AUTHORS
from holdlog.domain.refusals import HoldlogError, InvalidError, StoreError

BY_SIGNAL: Final = 128
"""Exit codes of shells (POSIX, 2.8.2): 128 + n after signal n."""
_LISTS: Final = ("list", "claims", "status", "replay")
_FILES: Final = frozenset(("resource", "also", "guard", "moved_to"))
"""Arguments that may name files."""


def run(words: list[str]) -> int:
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them takes longer than a read
    command, rest = words[0], words[1:]
    if command in ("-h", "--help", "help"):
        return print_help()
    if command == "--version":
        print(f"holdlog {__version__}")
        return 0
    if command not in DERIVED:
        raise InvalidError(f"unknown command {command!r}{suggest(command, list_commands())}")
    derived = DERIVED[command]
    kind = derived.find()
    positional = kind.positional if derived.positional is None else derived.positional
    options = build_parser(command).parse_args(rest)
    if command in OF_RESOURCE and hasattr(options, "namespace") and not hasattr(options, "key"):
        kind, positional = find_operation(*OF_RESOURCE[command]), ("resource",)
        options.resource = options.__dict__.pop("namespace")
    if getattr(options, "force", False) and command == "release":
        kind = EndClaims
    elif hasattr(options, "reason") and command == "release":
        raise InvalidError("--reason: needs --force; use --note TEXT for the next holder")
    return call(command, kind, positional, options)


def build_parser(command: str) -> Parser:
    derived = DERIVED[command]
    kind = derived.find()
    parser = Parser(command, describe_operation(kind), derived.examples)
    positional = kind.positional if derived.positional is None else derived.positional
    add_fields(parser, kind, positional, derived.without, "key" if command in OF_RESOURCE else "")
    if kind.overwrites:
        parser.add_argument("--force", action="store_true", help="write whatever the current version is")
    if command == "claims":
        parser.add_argument("--dirty", action="store_true", help="list what git has not committed, and whose it is")
    if command == "release":
        parser.add_argument("--force", action="store_true", help="end the claim of any holder; needs --reason")
        parser.add_argument("--reason", metavar="TEXT", default=SUPPRESS, help="why you end it; the holder reads it")
    if not issubclass(kind, Query):
        add_caller(parser, kind)
    return parser


def add_caller(parser: Parser, kind: type[Operation] | None = None) -> None:
    """Options that say who calls, unless the operation has arguments of these names."""
    texts = {
        "session": "commands with the same ID act as one holder (default: HOLDLOG_SESSION, or that of the agent or"
        " terminal that runs this)",
        "correlation": "a name for a task, recorded with each of its events (default: HOLDLOG_CORRELATION)",
        "request-id": "repeat the command with the same ID within 24 hours: it is done once",
    }
    taken = () if kind is None else [name.removesuffix("_id") for name in kind.model_fields]
    for name, text in texts.items():
        if name not in taken:
            parser.add_argument(f"--{name}", dest=f"caller_{name.replace('-', '_')}", metavar="ID", help=text)


def call(command: str, kind: type[Operation], positional: tuple[str, ...], options: Namespace) -> int:
    """Call an operation with the options of a command, and print its result. Returns the exit code."""
    arguments = collect(kind, options)
    if "since_version" in kind.model_fields:
        arguments.setdefault("since_version", 0)
    if "limit" in kind.model_fields and (limit := read_variable("limit")):
        arguments.setdefault("limit", limit)
    identities = [name for name in AUTHORS if name in kind.model_fields and kind.model_fields[name].is_required()]
    names = find_names(options) if _FILES & kind.model_fields.keys() else None
    try:
        operation = parse(kind, dict.fromkeys(identities, find_user()) | arguments, names)
        if kind.overwrites and not options.force and "expected_version" not in arguments:
            raise InvalidError("expected_version: is required; give the version you read, or 0 if there is no value")
        opened = open_to_read(options, command in _LISTS) if issubclass(kind, Query | Task) else open_to_write(options)
        if kind.waits:  # to give up its place in a queue
            signal.signal(signal.SIGTERM, _end)
        with closing(opened) as engine:
            caller, agent = Caller(), ""
            if not issubclass(kind, Query):
                caller, agent = find_caller(options, engine, is_person=kind is EndClaims)
            if not arguments.keys() >= {*identities}:
                operation = parse(kind, dict.fromkeys(identities, agent) | arguments, names)
            surface = Surface(engine, names, None, lambda name: f"holdlog {name.replace('_', ' ')}")
            return _respond(command, operation, surface, caller, options)
    except InvalidError as error:
        raise rename_argument(error, kind, positional) from None


def _end(number: int, _: object) -> NoReturn:
    sys.exit(BY_SIGNAL + number)


def _respond(command: str, operation: Operation, surface: Surface, caller: Caller, options: Namespace) -> int:
    try:
        response = take_steps(surface.respond(operation, caller), surface.engine)
    except (InvalidError, StoreError):
        raise
    except HoldlogError as refusal:
        response = surface.name(refusal_to_object(refusal))
        if refusal.detail is None and not options.json:
            print_note(str(refusal))
            return 1
    code = print_result(command, response, options)
    if not options.json and (rest := describe_rest(type(operation), response)):
        print_note(rest)
    return code


def print_result(command: str, response: Object, options: Namespace) -> int:
    """Print a result. Returns the exit code."""
    is_success = response.get("status", "ok") in SUCCESSES
    if options.json:
        print_json(response)
        return 0 if is_success else 1
    for lost in response.get("lost", ()):
        print_note(describe_loss(lost))
    text = describe(command, response, f"the store {mask_password(find_place(options.db))}")
    if is_success:
        print_text(text)
    else:
        sys.stderr.write(f"{escape(text)}\n")
    remark = add_remark(command, response)
    if remark and sys.stdout.isatty():  # for people; programs get only the value
        print_note(remark)
    return 0 if is_success else 1
