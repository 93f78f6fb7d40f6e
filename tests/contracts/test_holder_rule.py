"""Who holds a claim while sessions live, end and return, against a second rule (tests/support/holder_rule.py)."""

import itertools
from typing import Final, NamedTuple

import pytest

from holdlog.domain.claims.commands import (
    AcquireClaim,
    ClaimAcquired,
    EndSession,
    Queued,
    ReleaseClaim,
    ReleaseOutcome,
    Sweep,
)
from holdlog.domain.claims.lease import BY_CALLS, SECOND, SESSION_ENDS
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import FencingCondition
from holdlog.domain.refusals import BusyError, FencedError, NotHolderError
from tests.support import holder_rule
from tests.support.claim_calls import HOUR, claim, writes
from tests.support.clock import Clock
from tests.support.commands import run
from tests.support.slow import check, slow

LEASE: Final = HOUR * SECOND
MANY: Final = 1_000
SERVERS: Final = {"process": "v1", "header": BY_CALLS, "mcp": BY_CALLS, None: ""}
ENDS: Final = {
    "process": (None, "its process"),
    "header": (None, "idle"),
    "mcp": (None, "idle", "DELETE"),
    None: (None,),
}
ACTIONS: Final = ("claim", "release", "guard", "nest", "queue")


class One(NamedTuple):
    """A holder or caller. `source`: of its session; None: it has none."""

    source: str | None
    text: str = ""
    token: str | None = None
    receipt: str | None = None
    agent: str = "ann"

    @property
    def rule(self) -> holder_rule.Caller:
        named = {self.source: self.text} if self.source is not None else {}
        return holder_rule.Caller(self.agent, self.token, receipt=self.receipt, **named)  # type: ignore[arg-type]

    @property
    def caller(self) -> Caller:
        session = None if self.source is None else f"{self.source}-{self.text}"
        return Caller(session=session, principal=self.token, server=SERVERS[self.source])


def callers(receipt: str) -> list[One]:
    texts = [(source, text) for source in ("process", "header", "mcp") for text in ("one", "other")]
    tokens = (None, "token:ci")
    known = [One(source, text, token) for (source, text), token in itertools.product(texts, tokens)]
    shown = (None, receipt, "made up")
    return known + [One(None, "", token, text) for token, text in itertools.product(tokens, shown)]


@pytest.mark.check
@pytest.mark.parametrize("source", ["mcp", *check(*(it for it in SERVERS if it != "mcp"))])
@pytest.mark.parametrize("token", [None, *slow("token:ci")])
def test_claim_belongs_to_its_holder_alone_after_any_session_end(
    store: Store, clock: Clock, source: str | None, token: str | None
) -> None:
    for number, end in enumerate(ENDS[source]):
        receipt = f"r{number}"
        holder = One(source, "one", token, receipt if source is None else None)
        facts = holder_rule.holder_of(holder.rule, receipt if source is None else None, has_ended=end is not None)
        mine = list(itertools.product(callers(receipt), ACTIONS))
        mine.sort(key=lambda it: it[0].rule.session == holder.rule.session)  # its session returns at the end
        versions = {}
        for index, (_, action) in enumerate(mine):
            resource = f"{number}-{index}"
            if action == "queue":
                claim(store, resource, "peer", lease=LEASE, most=MANY)
            take = AcquireClaim(
                resource=resource,
                agent="ann",
                lease=LEASE,
                most=MANY,
                wait=SECOND if action == "queue" else 0,
                new_receipt=receipt,
            )
            outcome = run(store, take, holder.caller)
            versions[index] = outcome.ticket if isinstance(outcome, Queued) else outcome.version  # type: ignore[union-attr]
        finish(store, clock, holder, end)
        for index, (one, action) in enumerate(mine):
            expected = rule(facts, one, action)
            found = act(store, one, action, f"{number}-{index}", versions[index])
            assert found == expected, f"{facts}, {one}: {action}"


def finish(store: Store, clock: Clock, holder: One, end: str | None) -> None:
    """The waiters' calls end, and maybe the holder's session."""
    match end:
        case "its process":
            run(store, Sweep(ended=("v1",), cut=False))
        case "DELETE":
            run(store, EndSession(session=holder.caller.session or ""), holder.caller)
        case "idle":
            clock.pass_by(SESSION_ENDS / SECOND)
    if end != "idle":  # that is noticed by whoever calls next
        clock.pass_by(1)
        run(store, Sweep())


def rule(holder: holder_rule.Holder, one: One, action: str) -> object:
    caller = one.rule
    match action:
        case "claim":
            return holder_rule.claims(holder, caller)
        case "release":
            return holder_rule.releases(holder, caller)
        case "guard":
            return holder_rule.guards(holder, caller)
        case "nest":
            return "claimed" if holder_rule.nests(holder, caller._replace(agent="ann/task")) else "busy"
        case _:
            return holder_rule.keeps_place(holder, caller)


def act(store: Store, one: One, action: str, resource: str, version: int) -> object:
    shown = {"receipt": one.receipt, "new_receipt": "fresh"}
    try:
        match action:
            case "claim":
                taken = run(store, AcquireClaim(resource=resource, agent="ann", most=MANY, **shown), one.caller)
                assert isinstance(taken, ClaimAcquired)
                return (
                    "already_claimed" if taken.already else "resumed" if taken.previous_session_ended_at else "claimed"
                )
            case "release":
                let = run(store, ReleaseClaim(resource=resource, agent="ann", receipt=one.receipt), one.caller)
                assert isinstance(let, ReleaseOutcome)
                return "released" if let.released else "already_free"
            case "guard":
                run(
                    store,
                    writes(guard=(FencingCondition(resource=resource, version=version, receipt=one.receipt),)),
                    one.caller,
                )
                return "ok"
            case "nest":
                run(store, AcquireClaim(resource=resource, agent="ann/task", most=MANY, **shown), one.caller)
                return "claimed"
            case _:
                queued = run(
                    store, AcquireClaim(resource=resource, agent="ann", wait=SECOND, most=MANY, **shown), one.caller
                )
                assert isinstance(queued, Queued)
                return queued.ticket == version
    except BusyError:
        return "busy"
    except NotHolderError:
        return "not_holder"
    except FencedError:
        return "fenced"
