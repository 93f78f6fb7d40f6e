"""Who holds a claim, by every way to call and every kind of session, against tests/support/holder_rule.py.

One store and its servers are shared by all cases; each case has a resource of its own.
"""

import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest

from tests.support import holder_rule
from tests.support.holder_rule import Caller, Holder
from tests.support.processes.holders import NAME, TOKENS, Client, World
from tests.support.slow import slow

pytestmark = [
    pytest.mark.xdist_group("holders"),
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]

CALLERS: Final = (
    *("stdio", "stdio env", "stdio meta"),
    *("http25", "http25 mcp", "http25 header", "http25 meta"),
    *("http26", "http26 header", "http26 meta"),
    *("library", "library option"),
    *("cli", "cli option"),
)
"""A transport, and where the session comes from, if it is known: `env` is CLAUDE_CODE_SESSION_ID."""
ACTIONS: Final = ("claim", "release", "guard", "nest", "queue", "wait", "release all")
FEW: Final = ("claim", "release")
"""What is tried on the command line, with a process for each call, outside of `make slow`."""
SOURCES: Final = ("env", "meta", "header", "option")
"""Where callers write the text of their session themselves."""
ONE, OTHER = "one", "other"
WAIT: Final = 0.01
BATCH: Final = 60
"""Claims of one holder at a time: a session may hold 64, with what it waits for."""

_numbers = itertools.count()


class Case(NamedTuple):
    """A caller and what it does with what another holds. `text`: of its session; `shows`: which receipt."""

    kind: str
    text: str
    token: str | None
    shows: str
    action: str
    is_itself: bool = False


class Held(NamedTuple):
    resource: str
    version: int
    holder: Holder


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("holders") / "state.db", stack)


@pytest.fixture(scope="module")
def postgres_world(postgres_server: str) -> Iterator[World]:
    from tests.conftest import fresh_schema

    with fresh_schema(postgres_server) as url, ExitStack() as stack:
        yield World(url, stack)


def cases(kind: str, end: str | None, token: str | None, every: bool) -> list[Case]:
    """Of one holder. `every`: by all kinds of callers, else by its own transport and the same source of sessions."""
    found = []
    for caller in CALLERS:
        transport, _, source = caller.partition(" ")
        shares_source = source and source == kind.partition(" ")[2] and transport != "cli"
        is_near = transport == kind.split()[0] or shares_source
        if not (every or is_near):
            continue
        texts = (ONE, OTHER) if source in SOURCES else (OTHER,)
        tokens = (None, *TOKENS) if transport.startswith("http") else (None,)
        if not every:
            tokens = tuple({token if token in tokens else None: None, tokens[-1]: None})
        actions = FEW if "cli" in (transport, kind.split()[0]) and not every else ACTIONS
        for text, as_whom, action in itertools.product(texts, tokens, actions):
            receipts = ("none",)
            if not source and transport.startswith("http") and action not in ("nest", "wait"):
                receipts = ("none", "another's", "the holder's", "a made-up one")
            found += [Case(caller, text, as_whom, shows, action) for shows in receipts]
    source = kind.partition(" ")[2]
    found = [it for it in found if not (it.kind == kind and it.text == ONE and source)]  # that is the holder itself
    found.sort(key=lambda it: it.text == ONE and it.kind.partition(" ")[2] == source)  # what wakes its session is last
    if end is None or source in SOURCES:
        shows = "the holder's" if kind in ("http25", "http26") else "none"
        found += [
            Case(kind, ONE, token, shows, action, is_itself=True) for action in ACTIONS if action != "release all"
        ]
    return found


LIVE: Final = tuple((kind, None, None) for kind in CALLERS if kind != "cli")
WITH_TOKEN: Final = tuple(
    (kind, None, "ci")
    for kind in ("http25 mcp", "http26", "http25", "http25 header", "http25 meta", "http26 header", "http26 meta")
)
ENDED: Final = (
    ("stdio", "kill", None),
    ("stdio env", "end", None),
    ("http25 mcp", "end", None),
    ("http25 mcp", "end", "ci"),
    ("library", "end", None),
    ("library option", "kill", None),
    ("cli", "end", None),
)
MORE: Final = (
    ("stdio", "end", None),
    ("stdio env", "kill", None),
    ("stdio meta", "end", None),
    ("stdio meta", "kill", None),
    ("library", "kill", None),
    ("library option", "end", None),
)


@pytest.mark.check
@pytest.mark.parametrize(("kind", "end", "token"), [*LIVE, *WITH_TOKEN[:2], *ENDED, *slow(*WITH_TOKEN[2:], *MORE)])
def test_claim_belongs_to_its_holder_alone(world: World, kind: str, end: str | None, token: str | None) -> None:
    prove(world, kind, end, token, every=False)


@pytest.mark.check
@pytest.mark.parametrize(("kind", "end", "token"), slow(*LIVE, *WITH_TOKEN, *ENDED, *MORE))
def test_claim_belongs_to_its_holder_alone_for_every_caller(
    world: World, kind: str, end: str | None, token: str | None
) -> None:
    prove(world, kind, end, token, every=True)


@pytest.mark.check
@pytest.mark.parametrize(
    ("kind", "end", "token"),
    [
        ("library option", "kill", None),
        *slow(*LIVE, *WITH_TOKEN, *(it for it in (*ENDED, *MORE) if it != ("library option", "kill", None))),
    ],
)
def test_claim_in_postgres_belongs_to_its_holder_alone(
    postgres_world: World, kind: str, end: str | None, token: str | None
) -> None:
    prove(postgres_world, kind, end, token, every=False)


def prove(world: World, kind: str, end: str | None, token: str | None, every: bool) -> None:
    found = cases(kind, end, token, every)
    for start in range(0, len(found), BATCH):
        prove_each(world, kind, end, token, found[start : start + BATCH])


def prove_each(world: World, kind: str, end: str | None, token: str | None, found: list[Case]) -> None:
    number = next(_numbers)
    text = ONE if end is None else f"{ONE}{number}"
    mine = [it._replace(text=text) if it.text == ONE else it for it in found]
    holder = world.client(kind, text, token, own=end is not None)
    places = {case: f"custom://h{number}-{index}" for index, case in enumerate(mine)}
    held = claim_all(world, holder, places, has_ended=end is not None)
    if end == "kill":
        holder.kill()
    elif end == "end" and kind != "cli":
        holder.end()
    try:
        amiss = [finding for case in mine if (finding := judge(world, holder, held[case], case)) is not None]
        assert not amiss, "\n".join(amiss)
        require_losses(world, holder, kind, end, [held[case] for case in mine])
    finally:
        leave(world, holder, end, [held[case] for case in mine])


def claim_all(world: World, holder: Client, places: dict[Case, str], has_ended: bool) -> dict[Case, Held]:
    """The holder claims what the cases are about, and queues for what it is to wait for."""
    versions: dict[str, int] = {}
    receipt: str | None = None
    claimed = [name for case, name in places.items() if case.action != "queue"]
    if claimed:
        answer = holder("claim", resource=claimed[0], also=claimed[1:])
        assert answer["status"] == "claimed", answer
        receipt = answer.get("receipt")
        versions[claimed[0]] = answer["version"]
        versions |= {it["resource"]: it["version"] for it in answer.get("also", ())}
    for name in (name for case, name in places.items() if case.action == "queue"):
        assert world.peer.claim(name, agent="peer").status == "claimed"
        shown = {"receipt": receipt} if receipt else {}
        answer = holder("claim", resource=name, wait_seconds=WAIT, **shown)
        assert answer["status"] == "busy", answer
        versions[name] = answer["ticket"]
    facts = holder_rule.holder_of(holder.caller, receipt, has_ended)
    return {case: Held(name, versions[name], facts) for case, name in places.items()}


def judge(world: World, holder: Client, held: Held, case: Case) -> str | None:
    """What is amiss, in a line."""
    client = client_of(world, holder, held, case)
    caller = client.caller
    if caller.session is None:
        caller = caller._replace(receipt=receipt_of(world, held, case))
    if case.action == "release all" and holder_rule.is_holder(held.holder, caller):
        return None  # it would end those of other cases
    expected, found = act(world, client, caller, held, case)
    if not holder_rule.is_holder(held.holder, caller) and ends(case, held.holder, caller):
        loser = (held.holder.token, held.holder.session or ("receipt", held.holder.receipt))
        world.ledger.taken.setdefault(loser, set()).add(held.resource.rpartition("/")[2])
    return None if expected == found else f"{held.holder}\n  {case}\n  expected {expected}, found {found}"


def client_of(world: World, holder: Client, held: Held, case: Case) -> Client:
    if not case.is_itself:
        return world.client(case.kind, case.text, case.token)
    return world.again(holder) if held.holder.has_ended else holder


def ends(case: Case, holder: Holder, caller: Caller) -> bool:
    """Whether the rule ends the grant for its holder."""
    by_claim = case.action == "claim" and holder_rule.claims(holder, caller) == "resumed"
    return by_claim or (case.action == "release" and holder_rule.releases(holder, caller) == "released")


def receipt_of(world: World, held: Held, case: Case) -> str | None:
    if case.shows == "the holder's":
        return held.holder.receipt
    if case.shows == "another's":
        return bait(world, case.token)
    return "made-up" if case.shows == "a made-up one" else None


_baits: dict[tuple[int, str | None], str] = {}


def bait(world: World, token: str | None) -> str:
    """A receipt of a namesake, for something else."""
    if (id(world), token) not in _baits:
        namesake = world.client("http26", OTHER, token)
        _baits[id(world), token] = namesake("claim", resource=f"custom://bait-{token}")["receipt"]
    return _baits[id(world), token]


def act(world: World, client: Client, caller: Caller, held: Held, case: Case) -> tuple[object, object]:
    """What the rule says, and what came of it."""
    resource, version, holder = held
    shown = {"receipt": caller.receipt} if caller.receipt else {}
    match case.action:
        case "claim":
            rule = holder_rule.claims(holder, caller)
            answer = client("claim", resource=resource, **shown)
            found = "resumed" if answer.get("resumed") else answer["status"]
            named = answer.get("same_name", False) is (answer["status"] == "busy" and caller.token == holder.token)
            if answer["status"] in ("claimed", "already_claimed"):
                mine = {"receipt": answer["receipt"]} if "receipt" in answer else {}
                assert client("release", resource=resource, **mine)["status"] == "released"
            return (rule, True), (found, named)
        case "release":
            rule = holder_rule.releases(holder, caller)
            found = client("release", resource=resource, **shown)["status"]
            return (rule, rule != "released"), (found, world.is_current(resource, version))
        case "guard":
            return holder_rule.guards(holder, caller), client.guarded(resource, version, caller.receipt)
        case "nest":
            sub = caller._replace(agent=f"{NAME}/task")
            answer = client("claim", resource=resource, agent=sub.agent)
            if answer["status"] == "claimed":
                client("release", resource=resource, agent=sub.agent)
            return ("claimed" if holder_rule.nests(holder, sub) else "busy"), answer["status"]
        case "queue":
            answer = client("claim", resource=resource, wait_seconds=WAIT, **shown)
            mine = {"receipt": answer["receipt"]} if "receipt" in answer else {}
            kept = answer.get("ticket") == version
            client("release", resource=resource, **mine)
            return (True, holder_rule.keeps_place(holder, caller)), ("ticket" in answer, kept)
        case "wait":
            answer = client("wait", resource=resource, timeout_seconds=WAIT)
            return ("timeout", NAME), (answer["status"], answer.get("held_by"))
        case _:
            answer = client("release", **shown)
            if caller.session is None and caller.receipt is None:
                return ("error", True), (answer["status"], world.is_current(resource, version))
            if case.shows == "another's":
                _baits.pop((id(world), case.token), None)  # it was released
            return True, world.is_current(resource, version)


def require_losses(world: World, holder: Client, kind: str, end: str | None, held: list[Held]) -> None:
    """A holder that can still call learns each loss once."""
    facts = held[0].holder
    if not holder.is_told_losses or (end is not None and kind.partition(" ")[2] not in SOURCES):
        return
    client = holder if end is None else world.again(holder)
    shown = {"receipt": facts.receipt} if facts.receipt else {}
    for _ in range(2):
        client("release", resource=held[0].resource, **shown)
    who = (facts.token, facts.session or ("receipt", facts.receipt))
    lost = {resource: count for (loser, resource), count in world.ledger.lost.items() if loser == who}
    assert set(lost.values()) <= {1}
    taken = world.ledger.taken.pop(who, set())
    assert taken <= set(lost), f"{taken - set(lost)} were lost and nobody learnt it"


def leave(world: World, holder: Client, end: str | None, held: list[Held]) -> None:
    """Nothing of the cases is left, for there are only so many claims of a principal, and tickets at all."""
    facts = held[0].holder
    client = holder if end is None else holder.returned
    if client is not None:
        client("release", **({"receipt": facts.receipt} if facts.receipt else {}))
        if end is not None:
            client.end()
    else:
        heir = world.client("http26 header", "heir", facts.token) if facts.token else None
        for it in held:
            if heir is not None:
                heir("release", resource=it.resource)
            else:
                world.peer.release(it.resource, agent=NAME)
    world.peer.release(agent="peer")
