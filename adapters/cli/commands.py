"""The calls on the command line: `holdlog get`, `set`, `claims` … for people and scripts.

Exit code 0: done; 1: refused, not found, or timed out; 2: bad arguments. `--json` prints the response as in MCP.
"""

import argparse
import getpass
import json
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.parsers import Commands, as_option
from holdlog.adapters.cli.settings import location_of, named_location, variable_of, workspaces_of

if TYPE_CHECKING:
    from holdlog.adapters.api.request import CommandRequest
    from holdlog.adapters.api.values.responses import Result
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.domain.message import Caller

Call = Callable[["Engine", argparse.Namespace], "Result"]
Add = Callable[[str, str, Call], argparse.ArgumentParser]

_READ_ONLY: Final = frozenset({"get", "list", "history", "claims", "agents", "status"})
"""Commands that do not create a missing store."""
_LISTS: Final = frozenset({"list", "claims", "agents"})
"""Commands that print an empty list if the store does not exist yet, as in a new repository. `status` without a
resource does so, too."""

_OF_HOLDERS: Final = frozenset({"claim", "release", "wait", "set", "delete", "update", "transact"})
_OF_RESOURCES: Final = _OF_HOLDERS | {"claims", "agents", "status"}
"""Commands that name resources, which may be paths."""

_EXAMPLES: Final = {
    "get": "get campaign budget",
    "set": "set campaign budget 2000 --version 1 --reason 'ads for May'",
    "delete": "delete campaign budget --version 2",
    "list": "list campaign --prefix bud",
    "history": "history campaign budget --limit 5",
    "watch": "watch campaign budget --since 2 --timeout 30",
    "claims": "claims --agent claude",
    "agents": "agents",
    "claim": "claim src/parser.py --agent ann --wait 30",
    "release": "release src/parser.py --agent ann --outcome modified --note 'renamed parse()'",
    "status": "status src/parser.py",
    "wait": "wait src/parser.py --timeout 30",
}

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

_OUTCOMES: Final = ("released", "modified", "created", "deleted", "moved")
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


def add_calls(add: Add) -> None:
    """Add one parser per call."""
    _add_state(add)
    _add_claims(add)


def _add_state(add: Add) -> None:
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

    history = add(
        "history",
        "list the versions of a value, newest first",
        lambda it, o: it.read(it.requests.values.history(o.namespace, o.key, o.limit)),
    )
    add_address(history)
    history.add_argument("--limit", type=int, default=100, metavar="N", help="show the newest N (default: 100)")

    watch = add("watch", "wait until a value changes, and print it", _watch)
    add_address(watch)
    watch.add_argument(
        "--since", type=int, default=0, metavar="VERSION", help="the version that you know (default: 0, no value)"
    )
    watch.add_argument("--timeout", type=float, default=50.0, metavar="SECONDS", help="wait this long (default: 50)")


def _add_claims(add: Add) -> None:
    claims = add("claims", "list claims and queues", _board)
    agents = add(
        "agents",
        "list agents with claims, and connected processes",
        lambda it, o: it.read(it.requests.claims.agents(it.liveness.processes(), o.agent)),
    )
    status = add("status", "show who holds a resource, or list claims and queues", _status)
    status.add_argument("resource", nargs="?", metavar="RESOURCE", help="what to look up (default: list all claims)")
    status.add_argument(
        "--version", type=int, metavar="N", help="also report whether this version of a claim is current"
    )
    for parser in (claims, status):
        parser.add_argument(
            "--after", metavar="RESOURCE", help="list only resources after this one: the next page (default: the first)"
        )
    for parser in (claims, agents, status):
        parser.add_argument("--agent", metavar="NAME", help="list only this agent and its sub-agents (default: all)")

    claim = add("claim", "claim a resource, so that other agents leave it alone", _claim)
    claim.add_argument("resource", metavar="RESOURCE", help="a path, a folder with / at its end, or custom://NAME")
    others = claim.add_mutually_exclusive_group()
    others.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="RESOURCE",
        help="claim this one too: all or nothing; repeatable (default: none)",
    )
    others.add_argument(
        "--or",
        action="append",
        default=[],
        dest="alternatives",
        metavar="RESOURCE",
        help="claim this one if the others are not free; repeatable (default: none)",
    )
    modes = claim.add_mutually_exclusive_group()
    modes.add_argument(
        "--mode",
        choices=("exclusive", "shared"),
        default="exclusive",
        help="exclusive: nobody else may hold it; shared: others may share it (default: exclusive)",
    )
    modes.add_argument("--shared", action="store_const", const="shared", dest="mode", help="short for --mode shared")
    claim.add_argument(
        "--lease", type=float, metavar="SECONDS", help="the claim expires after this time (default: 300)"
    )
    claim.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="queue for it this long (default: 0, do not wait)"
    )
    claim.add_argument("--note", metavar="TEXT", help="what you do with it, for other agents to read (default: none)")

    release = add(
        "release", "release a claim, or everything that the session of this command holds or waits for", _release
    )
    release.add_argument(
        "resource",
        nargs="?",
        metavar="RESOURCE",
        help="what to release (default: everything of this command's session; see --session)",
    )
    release.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="RESOURCE",
        help="release this one too; repeatable (default: none)",
    )
    release.add_argument("--outcome", choices=_OUTCOMES, help="what you did to it (default: released)")
    release.add_argument("--moved-to", metavar="RESOURCE", help="its new name, with --outcome moved")
    release.add_argument("--note", metavar="TEXT", help="what the next holder should know (default: none)")
    release.add_argument(
        "--force", action="store_true", help="take RESOURCE from its holder, or all claims of --agent; needs --reason"
    )
    release.add_argument("--reason", metavar="TEXT", help="why you take it; the holder reads it")
    who = "the agent's name (default: HOLDLOG_AGENT, or else your user name)"
    claim.add_argument("--agent", default=user(), metavar="NAME", help=who)
    release.add_argument("--agent", metavar="NAME", help=who)

    wait = add(
        "wait", "wait until a resource is free", lambda it, o: it.wait(it.requests.claims.wait(o.resource, o.timeout))
    )
    wait.add_argument("--timeout", type=float, default=50.0, metavar="SECONDS", help="wait this long (default: 50)")
    wait.add_argument("resource", metavar="RESOURCE", help="what to wait for")


def _run(call: Call, options: argparse.Namespace) -> int:
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.api.validation import caller
    from holdlog.adapters.auth.identity import SessionId
    from holdlog.adapters.cli import response_texts, texts
    from holdlog.adapters.compose import named_session, open_holdlog, process_session, store_exists
    from holdlog.domain.refusals import HoldlogError, InvalidError

    location = location_of(options.db)
    if options.command in _READ_ONLY and not store_exists(location):
        is_list = options.command in _LISTS or (options.command == "status" and options.resource is None)
        may_be_new = is_list and named_location(options.db) is None
        if not (may_be_new and options.json):
            return texts.no_store(location, expected=not may_be_new)
        location = ":memory:"  # an empty list, in the usual shape
    known = workspaces_of(options) if options.command in _OF_RESOURCES else None
    settings = Settings(workspaces=known, max_wait=LONGEST_WAIT)
    session = named_session(getattr(options, "session", None)) or SessionId("shell", process_session())
    engine = open_holdlog(location, settings, session, f"holdlog {options.command}", texts.print_note)
    engine.lives_by_leases = session.source == "option"
    try:
        engine.caller = caller(engine.caller, correlation_id=getattr(options, "correlation", None))
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


def _board(engine: "Engine", options: argparse.Namespace) -> "Result":
    from holdlog.adapters.cli.board_texts import board_with_sessions

    return engine.read(board_with_sessions(engine.requests, options.agent, options.after))


def _status(engine: "Engine", options: argparse.Namespace) -> "Result":
    from holdlog.domain.refusals import InvalidError

    if options.resource is None:
        if options.version is not None:
            raise InvalidError("--version: needs a RESOURCE")
        return _board(engine, options)
    if options.agent is not None or options.after is not None:
        name = "--after" if options.agent is None else "--agent"
        raise InvalidError(f"{name}: applies to the list of claims; leave out RESOURCE")
    return engine.read(engine.requests.claims.status(options.resource, options.version))


def _claim(engine: "Engine", options: argparse.Namespace) -> "Result":
    call = engine.requests.claims.claim(
        options.resource,
        options.agent,
        options.also,
        options.alternatives,
        options.lease,
        options.wait,
        options.mode,
        options.note,
        options.receipt,
    )
    return engine.claim(call, _repeatable(engine, options))


def _repeatable(engine: "Engine", options: argparse.Namespace) -> "Caller":
    """The caller of a claim or release. Raises InvalidError for a request id without a session: each command is then
    another holder."""
    from holdlog.adapters.api.validation import caller
    from holdlog.domain.refusals import InvalidError

    if options.request_id is not None and options.session is None:
        raise InvalidError("--request-id: needs --session ID, because without it each command is another holder")
    return caller(engine.caller, request_id=options.request_id)


def _release(engine: "Engine", options: argparse.Namespace) -> "Result":
    from holdlog.domain.refusals import InvalidError

    if options.force and options.reason is None:
        raise InvalidError("--force: add --reason TEXT, which the holder reads")
    if options.force and (options.also or options.outcome or options.moved_to or options.note):
        raise InvalidError(
            "--force: cannot be combined with --also, --outcome, --moved-to or --note; use --reason TEXT"
        )
    if options.reason is not None and not options.force:
        raise InvalidError("--reason: needs --force; use --note TEXT for the next holder")
    if options.force and options.resource is None:
        if options.agent is None:
            raise InvalidError("--force: name a RESOURCE, or with --agent NAME the agent whose claims you take")
        return _take_all(engine, options)
    options.agent = options.agent or user()
    call = engine.requests.claims.release(
        options.resource,
        options.agent,
        options.also,
        outcome=options.outcome,
        moved_to=options.moved_to,
        note=options.reason if options.force else options.note,
        forced=options.force,
        receipt=options.receipt,
    )
    result = engine.write(call, _repeatable(engine, options))
    if options.resource is None and result.body()["status"] == "already_free":
        sessions, held = _sessions_of(engine, options.agent)
        if held:
            _show_sessions(sessions)
            return result.model_copy(update={"held_elsewhere": held})
    return result


def _take_all(engine: "Engine", options: argparse.Namespace) -> "Result":
    """Take all claims of the agent that `--agent` names, on behalf of the user of this command."""
    from holdlog.adapters.api.claims.responses import AlreadyFree
    from holdlog.domain.claims.commands import MAX_RESOURCES

    sessions, held = _sessions_of(engine, options.agent)
    if not held:
        return AlreadyFree()
    _show_sessions(sessions)
    released: list[Any] = []
    for start in range(0, len(held), MAX_RESOURCES):
        first, *others = held[start : start + MAX_RESOURCES]
        call = engine.requests.claims.release(
            first, user(), others, note=options.reason, forced=True, holder=options.agent
        )
        released += getattr(result := write(engine, call), "released", None) or ()
    return result.model_copy(update={"released": released}) if released else result


def _sessions_of(engine: "Engine", agent: str) -> tuple[Any, list[str]]:
    """The sessions with exactly this agent name, and the resources that they hold."""
    found = engine.read(engine.requests.claims.agents(engine.liveness.processes(), agent))
    held = list(dict.fromkeys(it.resource for it in found.claims if it.held_by == agent))
    rows = [it for it in found.agents if it.agent == agent and it.claims]
    return found.model_copy(update={"agents": rows}), held


def _show_sessions(sessions: Any) -> None:
    """Show the holders, their processes and last calls, before anything is taken."""
    from holdlog.adapters.cli.board_texts import describe_agents
    from holdlog.adapters.cli.texts import printable

    print(printable(f"sessions with claims under this name:\n{describe_agents(sessions)}"), file=sys.stderr)


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


def add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("namespace", metavar="NAMESPACE", help="the group of keys")
    parser.add_argument("key", metavar="KEY", help="the name of the value")


def _version(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--version", type=int, metavar="N", help="the version that you read; 0: there is no value yet")
    which.add_argument("--force", action="store_true", help="write whatever the current version is")
    add_author(parser)


def add_author(parser: argparse.ArgumentParser) -> None:
    """Add the options of all writes."""
    parser.add_argument(
        "--by", default=user(), metavar="NAME", help="the author (default: HOLDLOG_AGENT, or else your user name)"
    )
    parser.add_argument(
        "--guard",
        action="append",
        default=[],
        metavar="RESOURCE@VERSION",
        help="write only while you hold this version of a claim; repeatable (default: none)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why, for the history (default: none)")
