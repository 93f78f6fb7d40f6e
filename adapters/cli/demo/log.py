"""The demo's last scene: the complete log, and the same state from a replay of it."""

from contextlib import closing
from pathlib import Path
from typing import Any

from holdlog.adapters.cli.demo.agents import Agent, require
from holdlog.adapters.cli.demo.budget import spent, usd
from holdlog.adapters.cli.demo.screen import Screen
from holdlog.adapters.compose import open_holdlog
from holdlog.domain.claims.claim import Claim, ClaimGranted, ClaimQueued, ClaimReleased
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.record import Record, ValueDeleted, ValueExpired, ValueWritten
from holdlog.domain.times import utc
from holdlog.projections.rebuild import replay

EVENTS = 10
"""Events of the demo: three writes of each budget, one at the start and one per agent; two grants, a ticket
in the queue and a release."""


async def replayed(screen: Screen, ada: Agent, ben: Agent, db: Path) -> None:
    """Replay the log as a library user would, and compare with the state from the agents' servers. Raises Wrong."""
    screen.title("4  The log: every change, in order")
    with closing(open_holdlog(db)) as engine, engine.store.snapshot() as reader:
        log = reader.log(0, -1)
    heads = ("#", "time (UTC)", "event", "who", "stream and version", "what")
    screen.table(heads, [_row(recorded) for recorded in log], "><<<<<")
    require(len(log) == EVENTS, f"the log has {len(log)} events, not {EVENTS}")
    states = [folded.state for folded in replay(log).values()]
    values = {
        (state.namespace, state.key): (state.value.value, state.version, state.updated_by)
        for state in states
        if isinstance(state, Record) and state.live
    }
    held = {
        state.resource: (state.grants[0].agent, state.grants[0].version)
        for state in states
        if isinstance(state, Claim) and state.grants
    }
    require(values == await _values(ada), "a replay of the log gives other values than list")
    require(held == await _claims(ben), "a replay of the log gives other claims than status")
    screen.outcome(f"replayed {len(log)} events: same state", good=True)
    screen.line(f"   {len(values)} values as list returns them, {len(held)} claim as status returns it.")


async def _values(agent: Agent) -> dict[tuple[str, str], tuple[Any, int, str]]:
    found = {}
    for namespace in [each["namespace"] for each in (await agent.call("list"))["namespaces"]]:
        for record in (await agent.call("list", namespace=namespace))["records"]:
            found[namespace, record["key"]] = (record["value"], record["version"], record["updated_by"])
    return found


async def _claims(agent: Agent) -> dict[str, tuple[str, int]]:
    board = await agent.call("status")
    return {claim["resource"]: (claim["held_by"], claim["version"]) for claim in board["claims"]}


def _row(recorded: Recorded[Event]) -> tuple[str, ...]:
    event, envelope = recorded.event, recorded.envelope
    match event:
        case ValueWritten(value=value, by=who):
            what = f"{usd(spent(value.value))} spent"
        case ValueDeleted(by=who):
            what = "deleted"
        case ValueExpired(by=who):
            what = "expired"
        case ClaimGranted(agent=who):
            what = "held"
        case ClaimQueued(agent=who):
            what = "queued"
        case ClaimReleased(agent=who, outcome=what):
            pass
        case _:
            who, what = "", ""
    time = utc(envelope.at).strftime("%H:%M:%S.%f")[:-3]
    return (str(envelope.position), time, envelope.topic, who, f"{envelope.stream}@{envelope.version}", what)
