"""Formats responses about an earlier moment for people. The names in them come from agents, so they are escaped."""

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.past import responses
from holdlog.adapters.api.threads.responses import ThreadData, ThreadItems, ThreadList
from holdlog.adapters.api.values.responses import AsOf, History, NamespaceList, RecordList, Result
from holdlog.adapters.cli import response_texts, thread_texts
from holdlog.adapters.cli.board_texts import board_table, session_start
from holdlog.adapters.cli.texts import marked, moment, printable, table


def describe_moment(as_of: AsOf) -> str:
    """The moment that a response is about, and what it cannot promise."""
    suspect = "; a clock was ahead around then, so times are not exact" if as_of.clock_suspect else ""
    change = "; a later event may still change this" if as_of.may_change else ""
    return f"after event {as_of.position}, {moment(as_of.at)}{suspect}{change}"


def describe(result: Result, coloured: bool) -> str:
    match result:
        case responses.PastClaims():
            more = printable(f"\nthere is more: --after {result.next_after}") if result.next_after else ""
            return describe_board(result) + more or "nothing was claimed"
        case responses.PastHeld():
            return printable(_held(result))
        case responses.PastAvailable(resource=resource):
            return printable(f"{marked(resource)} was free{response_texts.describe_end(result)}")
        case responses.PastAgents(agents=agents):
            return table([_agent(it) for it in agents]) or "there were no agents"
        case responses.PastTokens(tokens=tokens):
            rows = [(it.name, it.state, ", ".join(it.allow), f"issued {moment(it.issued_at)}") for it in tokens]
            return table(rows) or "there were no tokens"
        case ThreadItems():
            return thread_texts.describe("read", result.body(), coloured)
        case ThreadData():
            return thread_texts.describe("data", result.body(), coloured)
        case ThreadList(threads=threads):
            return thread_texts.describe("list", result.body(), coloured) if threads else "there were no threads"
        case RecordList(records=[]) | NamespaceList(namespaces=[]):
            return "there were no values"
        case History(history=[]):
            return "the key had no versions"
        case _:
            return printable(response_texts.describe(result, "", "at"))


def describe_board(board: responses.PastClaims) -> str:
    return board_table(board.claims, board.queues, lambda held: (_ending(held), "", "", session_start(held.session)))


def _held(held: responses.PastHeld) -> str:
    holder = author(marked(held.held_by), held.held_by_principal)
    covered = f" (as part of {marked(held.covered_by)})" if held.covered_by else ""
    shared = ", shared" if held.mode == "shared" else ""
    waiting = f"; {held.queue_length} in the queue" if held.queue_length else ""
    ended = f"; {_ending(held)}" if held.ended_at else "; that hold has not ended"
    return (
        f"{marked(held.resource)} was held by {holder}{covered}{shared} since {moment(held.claimed_at)}{waiting}{ended}"
    )


def _ending(held: responses.PastHeld) -> str:
    """How a hold ended later."""
    if held.ended_at is None:
        return "not ended"
    by = f" by {marked(held.forced_by)}" if held.forced_by else ""
    outcome = "taken" if held.outcome == "forced" else held.outcome
    noticed = held.noticed_at
    later = f", noticed {moment(noticed)}" if noticed is not None and noticed > held.ended_at else ""
    return f"{outcome}{by} {moment(held.ended_at)}{later}"


def _agent(agent: responses.PastAgent) -> tuple[str, ...]:
    held = "1 claim" if agent.claims == 1 else f"{agent.claims} claims"
    return (
        author(marked(agent.agent), agent.principal),
        f"{held}, waits for {agent.waits}" if agent.waits else held,
        ", ".join(filter(None, (agent.name, agent.model, agent.purpose))),
    )
