"""The commands about claims: `holdlog claims`, `claim`, `release` … for people and scripts."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.commands import AGENT_HELP, Add, act_as_agent, agent_with_hooks, user, write

if TYPE_CHECKING:
    from holdlog.adapters.api.values.responses import Result
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.domain.message import Caller

OUTCOMES: Final = ("released", "modified", "created", "deleted", "moved")


def add_claims(add: Add) -> None:
    claims = add("claims", "list claims and queues", _board)
    claims.add_argument(
        "--dirty",
        action="store_true",
        help="list the files of this git worktree that have uncommitted changes, and whose they are (default: claims)",
    )
    agents = add("agents", "list agents with claims, and connected processes", _agents)
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
    release.add_argument("--outcome", choices=OUTCOMES, help="what you did to it (default: released)")
    release.add_argument("--moved-to", metavar="RESOURCE", help="its new name, with --outcome moved")
    release.add_argument("--note", metavar="TEXT", help="what the next holder should know (default: none)")
    release.add_argument(
        "--force", action="store_true", help="take RESOURCE from its holder, or all claims of --agent; needs --reason"
    )
    release.add_argument("--reason", metavar="TEXT", help="why you take it; the holder reads it")
    claim.add_argument("--agent", metavar="NAME", help=AGENT_HELP)
    release.add_argument(
        "--agent",
        metavar="NAME",
        help=f"{AGENT_HELP}; with --force RESOURCE, who takes it from whatever agent holds it",
    )

    wait = add("wait", "wait until a resource is free", _wait)
    wait.add_argument("--timeout", type=float, default=50.0, metavar="SECONDS", help="wait this long (default: 50)")
    wait.add_argument("resource", metavar="RESOURCE", help="what to wait for")


def _board(engine: "Engine", options: argparse.Namespace) -> "Result":
    if getattr(options, "dirty", False):
        return _dirty(engine, options)
    from holdlog.adapters.cli.board_texts import board_with_sessions
    from holdlog.adapters.cli.terminals import terminals_of

    return engine.read(board_with_sessions(engine.requests, options.agent, options.after, terminals_of(engine)))


def _dirty(engine: "Engine", options: argparse.Namespace) -> "Result":
    from holdlog.adapters.cli.dirty import worktree_files
    from holdlog.domain.refusals import InvalidError

    for name in ("agent", "after"):
        if getattr(options, name) is not None:
            raise InvalidError(f"--dirty: cannot be combined with --{name}")
    return worktree_files(engine)


def _agents(engine: "Engine", options: argparse.Namespace) -> "Result":
    from holdlog.adapters.cli.board_texts import AgentsWithTerminals
    from holdlog.adapters.cli.terminals import terminals_of

    found = engine.read(engine.requests.claims.agents(engine.liveness.processes(), options.agent))
    return AgentsWithTerminals(**found.__dict__, terminals=terminals_of(engine))


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
    options.agent = act_as_agent(engine, options.agent, options.session)
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


def _wait(engine: "Engine", options: argparse.Namespace) -> "Result":
    from holdlog.adapters.api.claims.responses import Available

    result = engine.wait(engine.requests.claims.wait(options.resource, options.timeout))
    if not isinstance(result, Available) or result.resource.startswith("custom://"):
        return result
    if agent_with_hooks(engine, os.environ.get("HOLDLOG_AGENT") or None) is None:
        return result
    hint = " ".join(filter(None, (result.hint, "Hooks claim it for you when you edit it.")))
    return result.model_copy(update={"hint": hint})


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
    if options.force and options.resource is None and options.agent is None:
        raise InvalidError("--force: name a RESOURCE, or with --agent NAME the agent whose claims you take")
    if options.force:
        return _take_all(engine, options) if options.resource is None else _take(engine, options)
    options.agent = act_as_agent(engine, options.agent, options.session)
    call = engine.requests.claims.release(
        options.resource,
        options.agent,
        options.also,
        outcome=options.outcome,
        moved_to=options.moved_to,
        note=options.note,
        receipt=options.receipt,
    )
    result = engine.write(call, _repeatable(engine, options))
    if options.resource is None and result.body()["status"] == "already_free":
        sessions, held = _sessions_of(engine, options.agent)
        if held:
            _show_sessions(sessions)
            return result.model_copy(update={"held_elsewhere": held})
    return result


def _take(engine: "Engine", options: argparse.Namespace) -> "Result":
    """Take a resource from its holder, whatever its name. `--agent` is who takes it."""
    from holdlog.adapters.api.claims.responses import Held, Released
    from holdlog.adapters.cli.texts import print_note

    agent = user() if options.agent is None else act_as_agent(engine, options.agent, options.session)
    before = engine.read(engine.requests.claims.status(options.resource))
    call = engine.requests.claims.release(
        options.resource, agent, note=options.reason, forced=True, receipt=options.receipt
    )
    result = engine.write(call, _repeatable(engine, options))
    if isinstance(result, Released) and isinstance(before, Held):
        print_note(f"{agent} took it from {', '.join(before.holders or [before.held_by])}")
    return result


def _take_all(engine: "Engine", options: argparse.Namespace) -> "Result":
    """Take all claims of the agent that `--agent` names, on behalf of the user of this command."""
    from holdlog.adapters.api.claims.responses import AlreadyFree
    from holdlog.adapters.cli.texts import print_note
    from holdlog.domain.claims.commands import MAX_RESOURCES

    sessions, held = _sessions_of(engine, options.agent)
    if not held:
        print_note(f"no agent of this name holds anything: {options.agent}; to list agents: holdlog agents")
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
