"""The calls on the command line: `holdlog get`, `set`, `claims` … for people and scripts.

Exit code 0: done; 1: refused, missing, or timed out; 2: bad arguments. `--json` prints the response as in MCP.
"""

import argparse
import getpass
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from holdlog.adapters.api.values.responses import Result
from holdlog.adapters.cli.settings import named_place, place_of, workspaces_of

_READ_ONLY: Final = frozenset({"get", "list", "history", "claims", "agents", "status"})
"""Commands that do not create a missing store."""
_LISTS: Final = frozenset({"list", "claims", "agents"})
"""Commands with an empty list in a new repository, where the store does not exist yet."""

_OF_HOLDERS: Final = frozenset({"claim", "release", "wait", "set", "delete"})
_OF_RESOURCES: Final = frozenset({"claims", "agents", "claim", "release", "status", "wait", "set", "delete"})
"""Commands that name resources, which may be paths."""

Parsers = Any
"""The result type of `add_subparsers`, which argparse does not export."""

_EXAMPLES: Final = {
    "get": "get campaign budget",
    "set": "set campaign budget 2000 --version 1 --reason 'ads for May'",
    "delete": "delete campaign budget --version 2",
    "list": "list campaign --prefix bud",
    "history": "history campaign budget --limit 5",
    "watch": "watch campaign budget --since 2 --timeout 30",
    "claims": "claims --json",
    "agents": "agents",
    "claim": "claim src/parser.py --agent ann --wait 30",
    "release": "release src/parser.py --agent ann --outcome modified --note 'renamed parse()'",
    "status": "status src/parser.py",
    "wait": "wait src/parser.py --timeout 30",
}

LONGEST_WAIT: Final = 24 * 60 * 60.0
"""Seconds; there is no host here that would cut a call."""

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
    "updated_by": "--by",
    "deleted_by": "--by",
    "expected_version": "--version",
    "since_version": "--since",
    "after_key": "--after",
}
"""Arguments of calls with another name here; every other one is an option with its name."""

_OUTCOMES: Final = ("released", "modified", "created", "deleted", "moved")
_GOOD: Final = frozenset({"ok", "claimed", "already_claimed", "released", "already_free", "available", "deleted"})


def add_calls(commands: Parsers, store: argparse.ArgumentParser, places: argparse.ArgumentParser) -> None:
    """Add one parser per call."""

    def add(name: str, help_text: str, run: Callable[[Any, argparse.Namespace], Result]) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(
            name,
            parents=[store, places] if name in _OF_RESOURCES else [store],
            help=help_text,
            description=help_text,
            epilog=f"example:\n  holdlog {_EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--json", action="store_true", help="print the whole answer as JSON")
        if name in _OF_HOLDERS:
            parser.add_argument(
                "--session",
                metavar="ID",
                help="commands with the same ID are one holder until their leases end (default: the session ends with"
                " the command, and the next command of that name may resume its claims)",
            )
        if name in ("claim", "release"):
            parser.add_argument("--receipt", metavar="TEXT", help="the one returned for a claim without a session")
        parser.set_defaults(run=lambda options: _run(run, options))
        return parser

    _add_state(add)
    _add_claims(add)


Add = Callable[[str, str, Callable[[Any, argparse.Namespace], Result]], argparse.ArgumentParser]


def _add_state(add: Add) -> None:
    get = add("get", "print a value", lambda it, o: it.read(it.requests.get(o.namespace, o.key)))
    _place(get)

    put = add("set", "write a value: JSON, or else text; - reads it from standard input", _set)
    _place(put)
    put.add_argument("value", metavar="VALUE", type=_value, help="JSON or text; - reads it from standard input")
    _version(put)
    put.add_argument("--ttl", type=float, metavar="SECONDS", help="how long the value lives (default: no end)")

    delete = add("delete", "delete a value; its history stays", _delete)
    _place(delete)
    _version(delete)

    listing = add("list", "list the values of a namespace, or the namespaces", _list)
    listing.add_argument("namespace", nargs="?", metavar="NAMESPACE")
    listing.add_argument("--prefix", default="", metavar="TEXT", help="only keys that start so")
    listing.add_argument("--after", metavar="KEY", help="only keys behind this one (the next page)")

    history = add("history", "what happened to a key, newest first", _history)
    _place(history)
    history.add_argument("--limit", type=int, default=100, metavar="N", help="newest entries shown (default: 100)")

    watch = add("watch", "wait until a key changes after a version", _watch)
    _place(watch)
    watch.add_argument("--since", type=int, default=0, metavar="VERSION", help="the version you know (0: not there)")
    watch.add_argument("--timeout", type=float, default=50.0, metavar="SECONDS", help="give up after (default: 50)")


def _add_claims(add: Add) -> None:
    claims = add("claims", "everything that is held or waited for now", _board)
    agents = add("agents", "who holds or waits for something, and who is connected", _agents)
    claims.add_argument("--after", metavar="RESOURCE", help="only resources behind this one (the next page)")
    for parser in (claims, agents):
        parser.add_argument("--agent", metavar="NAME", help="one agent, sub-agents included (default: all)")

    claim = add("claim", "claim a resource", _claim)
    claim.add_argument("resource", metavar="RESOURCE")
    others = claim.add_mutually_exclusive_group()
    others.add_argument(
        "--also", action="append", default=[], metavar="RESOURCE", help="one more, all or nothing; repeatable"
    )
    others.add_argument(
        "--or",
        action="append",
        default=[],
        dest="alternatives",
        metavar="RESOURCE",
        help="claim this one if it is not free; repeatable",
    )
    claim.add_argument("--shared", action="store_true", help="beside others who share it")
    claim.add_argument("--lease", type=float, metavar="SECONDS", help="how long it lasts (default: 300)")
    claim.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="stand in line so long (default: 0)")
    claim.add_argument("--note", metavar="TEXT", help="told to others")

    release = add("release", "release a claim; without RESOURCE all that the agent holds or waits for", _release)
    release.add_argument("resource", nargs="?", metavar="RESOURCE")
    release.add_argument("--also", action="append", default=[], metavar="RESOURCE", help="one more; repeatable")
    release.add_argument("--outcome", choices=_OUTCOMES, help="what was done")
    release.add_argument("--moved-to", metavar="RESOURCE", help="where it is now")
    release.add_argument("--note", metavar="TEXT", help="told to the next holder")
    release.add_argument(
        "--force", action="store_true", help="take it from its holder, or all claims of --agent; needs --reason"
    )
    release.add_argument("--reason", metavar="TEXT", help="why it is taken; the holder sees it")
    claim.add_argument("--agent", default=user(), metavar="NAME", help="who (default: your user name)")
    release.add_argument("--agent", metavar="NAME", help="who (default: your user name)")

    status = add("status", "who holds a resource", lambda it, o: it.read(it.requests.status(o.resource, o.version)))
    status.add_argument("--version", type=int, metavar="N", help="tell whether this version of a claim is current")
    wait = add("wait", "wait until a resource is free", lambda it, o: it.wait(it.requests.wait(o.resource, o.timeout)))
    wait.add_argument("--timeout", type=float, default=50.0, metavar="SECONDS", help="give up after (default: 50)")
    for parser in (status, wait):
        parser.add_argument("resource", metavar="RESOURCE")


def _run(call: Callable[[Any, argparse.Namespace], Result], options: argparse.Namespace) -> int:
    from holdlog.adapters.api.request import Settings
    from holdlog.adapters.auth.identity import SessionId
    from holdlog.adapters.cli import texts
    from holdlog.adapters.compose import named_session, open_holdlog, process_session, store_exists
    from holdlog.domain.refusals import HoldlogError, InvalidError

    place = place_of(options.db)
    if options.command in _READ_ONLY and not store_exists(place):
        may_be_new = options.command in _LISTS and named_place(options.db) is None
        if not (may_be_new and options.json):
            return texts.no_store(place, expected=not may_be_new)
        place = ":memory:"  # an empty list, in the usual shape
    known = workspaces_of(options) if options.command in _OF_RESOURCES else None
    settings = Settings(workspaces=known, max_wait=LONGEST_WAIT)
    session = named_session(getattr(options, "session", None)) or SessionId("shell", process_session())
    engine = open_holdlog(place, settings, session, f"holdlog {options.command}", texts.print_note)
    engine.lives_by_leases = session.source == "option"
    try:
        result = call(engine, options)
        if getattr(options, "session", None) is not None and (lost := engine.lost()):
            result = result.model_copy(update={"lost": lost})
    except InvalidError as error:
        raise InvalidError(_by_the_names_here(str(error), options)) from None
    except HoldlogError as refusal:
        result = engine.requests.refused(refusal)
    finally:
        engine.close()
    good = result.body()["status"] in _GOOD and not getattr(result, "held_elsewhere", None)
    if options.json:
        print(texts.printable(json.dumps(_as_an_agent_sees_it(result), ensure_ascii=False)))
    else:
        print(texts.printable(texts.text(result, place, options.command)), file=sys.stdout if good else sys.stderr)
        remark = texts.remark(result)
        if remark and sys.stdout.isatty():  # for people; programs get only the value
            print(remark, file=sys.stderr)
    return 0 if good else 1


def _by_the_names_here(message: str, options: argparse.Namespace) -> str:
    """An error that begins with an argument of a call, with its name on the command line."""
    found = re.match(r"([a-z_]+)(\[\d+\])?: ", message)
    if found is None:
        return message
    name = "reason" if found[1] == "note" and getattr(options, "force", False) else found[1]
    here = _NAMES_HERE.get(name) or f"--{name.replace('_', '-')}"
    return f"{here}: {message[found.end() :]}"


def _as_an_agent_sees_it(result: Result) -> dict[str, Any]:
    from holdlog.adapters.api.values.presenter import named

    body = result.body()
    if "hint" in body:
        body["hint"] = named(body["hint"], os.environ.get("HOLDLOG_TOOL_PREFIX", "holdlog_"))
    return body


def _set(engine: Any, options: argparse.Namespace) -> Result:
    call = engine.requests.set(
        options.namespace,
        options.key,
        options.value,
        options.by,
        _expected(options),
        _guards(options),
        ttl_seconds=options.ttl,
    )
    return _write(engine, call, options)


def _delete(engine: Any, options: argparse.Namespace) -> Result:
    call = engine.requests.delete(options.namespace, options.key, options.by, _expected(options), _guards(options))
    return _write(engine, call, options)


def _guards(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The fencing conditions from `RESOURCE@VERSION`. Raises InvalidError."""
    from holdlog.domain.refusals import InvalidError

    found = []
    for text in options.guard:
        resource, _, version = text.rpartition("@")
        if not resource or not re.fullmatch("[0-9]{1,18}", version):
            raise InvalidError("--guard: must be RESOURCE@VERSION, such as src/parser.py@3")
        found.append({"resource": resource, "version": int(version)})
    return found


def _write(engine: Any, call: Any, options: argparse.Namespace | None = None) -> Result:
    from holdlog.adapters.api.validation import caller

    facts = {} if options is None else {"reason": options.reason, "request_id": options.request_id}
    result: Result = engine.write(call, caller(engine.caller, **facts))
    return result


def _board(engine: Any, options: argparse.Namespace) -> Any:
    after = getattr(options, "after", None)
    return engine.read(engine.requests.board(options.agent, 1000, after))


def _agents(engine: Any, options: argparse.Namespace) -> Result:
    """A row for each session, and for each connected process that holds nothing."""
    found: Result = engine.read(engine.requests.agents(engine.liveness.processes(), options.agent))
    return found


def _claim(engine: Any, options: argparse.Namespace) -> Result:
    call = engine.requests.claim(
        options.resource,
        options.agent,
        options.also,
        options.alternatives,
        options.lease,
        options.wait,
        "shared" if options.shared else "exclusive",
        options.note,
        options.receipt,
    )
    result: Result = engine.claim(call, engine.caller)
    return result


def _release(engine: Any, options: argparse.Namespace) -> Result:
    from holdlog.domain.refusals import InvalidError

    if options.force and options.reason is None:
        raise InvalidError("--force: needs a --reason, which the holder sees")
    if options.force and (options.also or options.outcome or options.moved_to or options.note):
        raise InvalidError("--force: takes one RESOURCE or all claims of --agent, with --reason")
    if options.reason is not None and not options.force:
        raise InvalidError("--reason: goes only with --force; --note tells the next holder")
    if options.force and options.resource is None:
        if options.agent is None:
            raise InvalidError("--force: name a RESOURCE, or the agent whose claims you take with --agent")
        return _take_all(engine, options)
    options.agent = options.agent or user()
    call = engine.requests.release(
        options.resource,
        options.agent,
        options.also,
        outcome=options.outcome,
        moved_to=options.moved_to,
        note=options.reason if options.force else options.note,
        forced=options.force,
        receipt=options.receipt,
    )
    result = _write(engine, call)
    if options.resource is None and result.body()["status"] == "already_free":
        sessions, held = _sessions_of(engine, options.agent)
        if held:
            _show_sessions(sessions)
            return result.model_copy(update={"held_elsewhere": held})
    return result


def _take_all(engine: Any, options: argparse.Namespace) -> Result:
    """Take all claims of the agent that `--agent` names, in the name of the user of this command."""
    from holdlog.adapters.api.claims.responses import AlreadyFree
    from holdlog.domain.claims.commands import MAX_RESOURCES

    sessions, held = _sessions_of(engine, options.agent)
    if not held:
        return AlreadyFree()
    _show_sessions(sessions)
    released: list[Any] = []
    for start in range(0, len(held), MAX_RESOURCES):
        first, *others = held[start : start + MAX_RESOURCES]
        call = engine.requests.release(first, user(), others, note=options.reason, forced=True, holder=options.agent)
        released += getattr(result := _write(engine, call), "released", None) or ()
    return result.model_copy(update={"released": released}) if released else result


def _sessions_of(engine: Any, agent: str) -> tuple[Any, list[str]]:
    """The sessions with exactly this agent name, and the resources that they hold."""
    found = engine.read(engine.requests.agents(engine.liveness.processes(), agent))
    held = list(dict.fromkeys(it.resource for it in found.claims if it.held_by == agent))
    rows = [it for it in found.agents if it.agent == agent and it.claims]
    return found.model_copy(update={"agents": rows}), held


def _show_sessions(sessions: Any) -> None:
    """Show the holders, their processes and last calls, before anything is taken."""
    from holdlog.adapters.cli import texts

    print(texts.printable(texts.text(sessions, "", "agents")), file=sys.stderr)


def _list(engine: Any, options: argparse.Namespace) -> Result:
    if options.namespace is None:
        listed: Result = engine.read(engine.requests.list_namespaces(after=options.after))
    else:
        listed = engine.read(engine.requests.list_records(options.namespace, options.prefix, after=options.after))
    return listed


def _history(engine: Any, options: argparse.Namespace) -> Result:
    result: Result = engine.read(engine.requests.history(options.namespace, options.key, options.limit))
    return result


def _watch(engine: Any, options: argparse.Namespace) -> Result:
    call = engine.requests.watch(options.namespace, options.key, options.since, options.timeout)
    result: Result = engine.wait(call)
    return result


def _expected(options: argparse.Namespace) -> int | None:
    return None if options.force else int(options.version)


def _value(given: str) -> Any:
    """The value as JSON if it is JSON, else as text. Broken JSON is a bad argument."""
    text = sys.stdin.read() if given == "-" else given
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] in ("{", "[", '"'):
            message = "VALUE looks like JSON but is not; quote it as a JSON string to store it as text"
            raise argparse.ArgumentTypeError(message) from None
        return text


def user() -> str:
    try:
        return os.environ.get("HOLDLOG_AGENT") or getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("namespace", metavar="NAMESPACE")
    parser.add_argument("key", metavar="KEY")


def _version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", default=user(), metavar="NAME", help="who (default: your user name)")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--version", type=int, metavar="N", help="the version you read; 0: it must not exist")
    which.add_argument("--force", action="store_true", help="whatever the version is")
    parser.add_argument(
        "--guard",
        action="append",
        default=[],
        metavar="RESOURCE@VERSION",
        help="a claim of yours that the write relies on; repeatable",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why, for the history")
    parser.add_argument("--request-id", metavar="ID", help="makes the call repeatable for 24 hours")
