"""The commands that call a store: what they share, and `holdlog get`, `set` … for people and scripts.

Exit code 0: done; 1: refused, not found, or timed out; 2: bad arguments. `--json` prints the response as in MCP.
"""

import argparse
import getpass
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.existing_store import location_to_read, require_store
from holdlog.adapters.cli.parsers import Commands, as_option
from holdlog.adapters.cli.settings import location_of, policy_settings, variable_of, workspaces_of

if TYPE_CHECKING:
    from holdlog.adapters.api.request import CommandRequest
    from holdlog.adapters.api.values.responses import Result
    from holdlog.adapters.hooks.session import HookSession
    from holdlog.adapters.runtime.engine import Engine

Call = Callable[["Engine", argparse.Namespace], "Result"]
Add = Callable[[str, str, Call], argparse.ArgumentParser]

_READ_ONLY: Final = frozenset({"get", "list", "history", "claims", "agents", "status"})
"""Commands that do not create a missing store."""
_LISTS: Final = frozenset({"list", "claims", "agents"})
"""Commands that print an empty list if the store does not exist yet, as in a new repository. `status` without a
resource does so, too."""

_OF_HOLDERS: Final = frozenset({"claim", "release", "wait", "set", "delete", "update", "transact"})
_OF_RESOURCES: Final = _OF_HOLDERS | {"claims", "agents", "status", "history"}
"""Commands that name resources, which may be paths."""

_EXAMPLES: Final = {
    "get": "get campaign budget",
    "set": "set campaign budget 2000 --version 1 --reason 'ads for May'",
    "delete": "delete campaign budget --version 2",
    "list": "list campaign --prefix bud",
    "watch": "watch campaign budget --since 2 --timeout 30",
    "claims": "claims --agent claude",
    "agents": "agents",
    "claim": "claim src/parser.py --agent ann --wait 30",
    "release": "release src/parser.py --agent ann --outcome modified --note 'renamed parse()'",
    "status": "status src/parser.py",
    "wait": "wait src/parser.py --timeout 30",
}

AGENT_HELP: Final = "the agent's name (default: HOLDLOG_AGENT, the agent with hooks that runs this, or your user name)"
LONGEST_WAIT: Final = 24 * 60 * 60.0
"""Seconds. Longer than over MCP, because no host interrupts a command."""

_NAMES_HERE: Final = {
    "resource": "RESOURCE",
    "namespace": "NAMESPACE",
    "key": "KEY",
    "value": "VALUE",
    "alternatives": "--or",
    "lease_seconds": "--lease",
    "wait_seconds": "--wait",
    "timeout_seconds": "--timeout",
    "ttl_seconds": "--ttl",
    "correlation_id": "--correlation",
    "updated_by": "--by",
    "deleted_by": "--by",
    "expected_version": "--version",
    "since_version": "--since",
    "after_key": "--after",
    "operations": "",
}
"""Arguments that have another name on the command line; empty: the same. Every other argument is an option of the same
name."""

_ARGUMENTS_IN_TEXTS: Final = {
    "outcome=moved": "--outcome moved",
    "in also": "with --also",
    "with also;": "with --also;",
    "combined with append": "combined with --append",
    "requires resource; pass the first name as resource": "requires RESOURCE; pass the first name as RESOURCE",
}
"""How errors about other arguments name these, and what to write on the command line."""

_GOOD: Final = frozenset({"ok", "claimed", "already_claimed", "released", "already_free", "available", "deleted"})


def adder(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> Add:
    """A function that adds the parser of a call."""

    def add(name: str, help_text: str, run: Call) -> argparse.ArgumentParser:
        parser = commands.add_parser(
            name,
            parents=[store, locations] if name in _OF_RESOURCES else [store],
            help=help_text,
            description=help_text[0].upper() + help_text[1:] + ".",
            epilog=f"example:\n  holdlog {_EXAMPLES[name]}" if name in _EXAMPLES else None,
        )
        parser.add_argument("--json", action="store_true", help="print the whole response as JSON (default: text)")
        if name in _OF_HOLDERS:
            parser.add_argument(
                "--session",
                metavar="ID",
                help="a name of your choice: commands with the same ID act as one holder until its claims expire"
                " (default: a new session for each command; the agent's next command can resume its claims)",
            )
        if name in _OF_HOLDERS - {"wait"}:
            parser.add_argument(
                "--correlation",
                metavar="ID",
                default=os.environ.get("HOLDLOG_CORRELATION"),
                help="a name for a task, recorded with each of its events (default: HOLDLOG_CORRELATION, or else none)",
            )
        if name in ("claim", "release"):
            parser.add_argument(
                "--receipt", metavar="TEXT", help="the receipt in the response to a claim without a session"
            )
        if name in _OF_HOLDERS - {"wait"}:
            needs = "; needs --session" if name in ("claim", "release") else ""
            parser.add_argument(
                "--request-id",
                metavar="ID",
                help=f"repeat the command with the same ID within 24 hours: it is done once{needs} (default: none)",
            )
        parser.set_defaults(run=lambda options: _run(run, options))
        return parser

    return add


def add_values(add: Add) -> None:
    """Add the commands about values, but those of update.py and history.py."""
    get = add("get", "print a value", lambda it, o: it.read(it.requests.values.get(o.namespace, o.key)))
    add_address(get)

    put = add("set", "write a value", _set)
    add_address(put)
    put.add_argument(
        "value", metavar="VALUE", type=value_of, help="JSON, else stored as text; - reads it from standard input"
    )
    _version(put)
    put.add_argument("--ttl", type=float, metavar="SECONDS", help="delete the value after this time (default: never)")

    delete = add("delete", "delete a value; its history is kept", _delete)
    add_address(delete)
    _version(delete)

    listing = add("list", "list the values of a namespace, or all namespaces", _list)
    listing.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="a group of keys (default: list namespaces)")
    listing.add_argument("--prefix", default="", metavar="TEXT", help="only keys that start with this (default: all)")
    listing.add_argument(
        "--after", metavar="KEY", help="only keys after this one: the next page (default: from the start)"
    )

    watch = add("watch", "wait until a value changes, and print it", _watch)
    add_address(watch)
    watch.add_argument(
        "--since", type=int, default=0, metavar="VERSION", help="the version that you know (default: 0, no value)"
    )
    watch.add_argument("--timeout", type=float, default=50.0, metavar="SECONDS", help="wait this long (default: 50)")


def _run(call: Call, options: argparse.Namespace) -> int:
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.api.validation import caller
    from holdlog.adapters.auth.identity import SessionId
    from holdlog.adapters.cli import response_texts, texts
    from holdlog.adapters.compose import named_session, open_holdlog, process_session
    from holdlog.domain.claims.lease import BY_LEASE
    from holdlog.domain.refusals import HoldlogError, InvalidError

    is_list = options.command in _LISTS or (options.command == "status" and options.resource is None)
    location = location_to_read(options, is_list=True) if is_list else location_of(options.db)
    if options.command in _READ_ONLY and not is_list:
        require_store(location)
    known = workspaces_of(options) if options.command in _OF_RESOURCES else None
    settings = Settings(**(policy_settings() if known else {}), workspaces=known, max_wait=LONGEST_WAIT)
    session = named_session(getattr(options, "session", None)) or SessionId("shell", process_session())
    engine = open_holdlog(location, settings, session, f"holdlog {options.command}", texts.print_note)
    engine.kept_by = BY_LEASE if session.source == "option" else ""
    try:
        engine.caller = caller(engine.caller, correlation_id=getattr(options, "correlation", None))
        if getattr(options, "guard", None):  # it names a claim, which may be one of the agent's hooks
            options.by = act_as_agent(engine, options.by, options.session)
        elif "guard" in options and options.by is None:
            options.by = user()
        result = call(engine, options)
        if getattr(options, "session", None) is not None and (lost := engine.lost(engine.caller)):
            result = result.model_copy(update={"lost": lost})
    except InvalidError as error:
        names = _NAMES_HERE | ({"note": "--reason"} if getattr(options, "force", False) else {})
        raise InvalidError(_with_options(as_option(str(error), names))) from None
    except HoldlogError as refusal:
        result = engine.requests.expected(refusal)
    finally:
        engine.close()
    good = result.body()["status"] in _GOOD and not getattr(result, "held_elsewhere", None)
    if options.json:
        texts.print_json(_as_an_agent_sees_it(result))
    else:
        for loss in result.lost or ():
            texts.print_note(response_texts.describe_loss(loss))
        print(
            texts.printable(response_texts.describe(result, location, options.command)),
            file=sys.stdout if good else sys.stderr,
        )
        for warning in getattr(result, "warnings", None) or ():
            texts.print_note(f"warning: {warning}")
        remark = response_texts.remark(result, options.command)
        if remark and sys.stdout.isatty():  # for people; programs get only the value
            print(remark, file=sys.stderr)
    return 0 if good else 1


def _with_options(error: str) -> str:
    """Replace the arguments of agents in the text of an error with the options of the command line."""
    for argument, option in _ARGUMENTS_IN_TEXTS.items():
        error = error.replace(argument, option)
    return error


def _as_an_agent_sees_it(result: "Result") -> dict[str, Any]:
    from holdlog.adapters.api.values.presenter import named
    from holdlog.adapters.cli.serve import ServeOptions

    body = result.body()
    if "hint" in body:
        body["hint"] = named(body["hint"], variable_of(ServeOptions, "tool_prefix"))
    return body


def _set(engine: "Engine", options: argparse.Namespace) -> "Result":
    call = engine.requests.values.set(
        options.namespace,
        options.key,
        options.value,
        options.by,
        _expected(options),
        guards(options),
        ttl_seconds=options.ttl,
    )
    return write(engine, call, options)


def _delete(engine: "Engine", options: argparse.Namespace) -> "Result":
    call = engine.requests.values.delete(
        options.namespace, options.key, options.by, _expected(options), guards(options)
    )
    return write(engine, call, options)


def guards(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The fencing conditions from `RESOURCE@VERSION`. Raises InvalidError."""
    from holdlog.domain.refusals import InvalidError

    found = []
    for text in options.guard:
        resource, _, version = text.rpartition("@")
        if not resource or not re.fullmatch("[0-9]{1,18}", version):
            raise InvalidError("--guard: must be RESOURCE@VERSION, for example src/parser.py@3")
        found.append({"resource": resource, "version": int(version)})
    return found


def write(engine: "Engine", call: "CommandRequest[Result]", options: argparse.Namespace | None = None) -> "Result":
    from holdlog.adapters.api.validation import caller

    facts = {} if options is None else {"reason": options.reason, "request_id": options.request_id}
    return engine.write(call, caller(engine.caller, **facts))


def _list(engine: "Engine", options: argparse.Namespace) -> "Result":
    if options.namespace is None:
        return engine.read(engine.requests.values.namespaces(after=options.after))
    return engine.read(engine.requests.values.records(options.namespace, options.prefix, after=options.after))


def _watch(engine: "Engine", options: argparse.Namespace) -> "Result":
    call = engine.requests.values.watch(options.namespace, options.key, options.since, options.timeout)
    return engine.wait(call)


def _expected(options: argparse.Namespace) -> int | None:
    return None if options.force else int(options.version)


def value_of(given: str) -> Any:
    """The value as JSON if it is JSON, else as text; `-` reads it from standard input. Broken JSON is a bad
    argument."""
    text = sys.stdin.read() if given == "-" else given
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] in ("{", "[", '"'):
            message = "starts like JSON but is not valid JSON; to store it as text, make it a JSON string: '\"…\"'"
            raise argparse.ArgumentTypeError(message) from None
        return text


def user() -> str:
    try:
        return os.environ.get("HOLDLOG_AGENT") or getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def act_as_agent(engine: "Engine", named: str | None, session: str | None = None) -> str:
    """The name of the agent for which this command claims. If hooks claim for it, too, and the command names no
    `session`, it uses that of the hooks: another session would be another holder."""
    from holdlog.domain.claims.lease import BY_LEASE

    if named is None:
        named = os.environ.get("HOLDLOG_AGENT") or None
    found = agent_with_hooks(engine, named) if session is None else None
    if found is None:
        return user() if named is None else named
    own, name = found
    engine.caller = engine.caller.model_copy(update={"session": own.held_by})
    engine.kept_by = own.server or BY_LEASE
    return name


def agent_with_hooks(engine: "Engine", named: str | None) -> "tuple[HookSession, str] | None":
    """The session and name under which hooks claim for the agent that runs this command; None if there are no hooks."""
    from holdlog.adapters.hooks.session import agent_of_host

    location = engine.location
    return agent_of_host(location, engine.identity, os.environ, named) if isinstance(location, Path) else None


def add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("namespace", metavar="NAMESPACE", help="the group of keys")
    parser.add_argument("key", metavar="KEY", help="the name of the value")


def _version(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--version", type=int, metavar="N", help="the version that you read; 0: there is no value yet")
    which.add_argument("--force", action="store_true", help="write whatever the current version is")
    add_author(parser)


def add_by(parser: argparse.ArgumentParser, who: str = "the author") -> None:
    parser.add_argument(
        "--by", default=user(), metavar="NAME", help=f"{who} (default: HOLDLOG_AGENT, or else your user name)"
    )


def add_author(parser: argparse.ArgumentParser) -> None:
    """Add the options of all writes."""
    parser.add_argument(
        "--by",
        metavar="NAME",
        help="the author (default: HOLDLOG_AGENT, or else your user name; with --guard as for claim --agent)",
    )
    parser.add_argument(
        "--guard",
        action="append",
        default=[],
        metavar="RESOURCE@VERSION",
        help="write only while you hold this version of a claim; repeatable (default: none)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why, for the history (default: none)")
