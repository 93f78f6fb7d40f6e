"""At every position and time of random histories, what was is read as an independent replay of the log tells it."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from holdlog.adapters.api.past.requests import point_in_time
from holdlog.adapters.runtime.command_handler import expire_values
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.commands import AcquireClaim, RecordFileChange, ReleaseClaim, Sweep
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.claims.resource import overlap
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Store
from holdlog.domain.refusals import HoldlogError, NotFoundError
from holdlog.domain.threads.commands import Append, ChangeData, NewMessage, NewResult, ReplaceResults, StartThread
from holdlog.domain.value import Json
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, drop, put, run, transact
from tests.support.past import Body, Past, Replay, end_of
from tests.support.postgres import emptied

KEYS = ("a", "b")
NAMESPACES = ("n", "m")
RESOURCES = ("src/a", "src/", "x")
AGENTS = ("ann", "ben", "ben", "ann/sub")
THREAD = "t"


class Step:
    """A command of a session, or a move of the clocks."""

    def __init__(self, what: Any, session: str = "s") -> None:
        self.what, self.session = what, session

    def __repr__(self) -> str:
        return f"{self.what!r} by {self.session}"


def commands() -> dict[str, st.SearchStrategy[Any]]:
    namespaces, keys, agents = st.sampled_from(NAMESPACES), st.sampled_from(KEYS), st.sampled_from(AGENTS)
    resources, values = st.sampled_from(RESOURCES), st.integers(0, 9)
    ttl = st.sampled_from([None, 2, 5])
    written = st.builds(lambda n, k, v, t: transact(put(k, v, namespace=n, ttl=t)), namespaces, keys, values, ttl)
    deleted = st.builds(lambda n, k: transact(drop(k, namespace=n)), namespaces, keys)
    claimed = st.builds(
        AcquireClaim,
        resource=resources,
        agent=agents,
        mode=st.sampled_from(["exclusive", "exclusive", "shared"]),
        lease=st.sampled_from([2 * SECOND, 2 * SECOND, 300 * SECOND]),
        wait=st.sampled_from([0, 4 * SECOND, 4 * SECOND]),
        also=st.sampled_from([(), (), ("y",)]),
    )
    released = st.builds(ReleaseClaim, resource=resources, agent=agents, outcome=st.sampled_from([None, "modified"]))
    forced = st.builds(ReleaseClaim, resource=resources, agent=st.just("boss"), forced=st.just(True))
    changed = st.builds(RecordFileChange, resource=resources, agent=agents, sha256=st.sampled_from(["ab" * 32, None]))
    messages = st.builds(
        lambda v: Append(thread=THREAD, items=(NewMessage(value=Json.of(v)),), by="ann", request_digest=None), values
    )
    results = st.builds(
        lambda v: Append(
            thread=THREAD,
            items=(NewResult(value=Json.of(v), agent="ann", checksum=f"{v:032x}"),),
            by="ann",
            request_digest=None,
        ),
        values,
    )
    data = st.builds(
        lambda k, v, gone: ChangeData(
            thread=THREAD, written={k: Json.of(v)}, deleted=tuple({gone} - {k}), expected_data_version=None, by="ann"
        ),
        keys,
        values,
        keys,
    )
    threads = st.one_of(
        st.just(StartThread(thread=THREAD, by="ann")),
        messages,
        results,
        st.just(ReplaceResults(thread=THREAD, results=(), by="ben")),
        data,
    )
    return {
        "values": st.one_of(written, written, deleted),
        "claims": st.one_of(claimed, claimed, claimed, claimed, released, forced, changed),
        "threads": threads,
    }


MOVES = st.sampled_from([("pass", 1.0), ("pass", 3.0), ("set", 4.0), ("set", -5.0), ("sweep", 0.0)])


def steps(*subjects: str) -> st.SearchStrategy[list[Step]]:
    given = commands()
    chosen = st.one_of(*(given[name] for name in subjects), *(given[name] for name in subjects), MOVES)
    return st.lists(st.builds(Step, chosen, st.sampled_from(["s", "s2"])), min_size=30, max_size=60)


STEPS = st.one_of(steps("values", "claims", "threads"), steps("claims"), steps("values", "claims"), steps("threads"))


@contextmanager
def opened(kind: str, clock: Clock, url: str | None) -> Iterator[Store]:
    if kind == "postgres":
        assert url is not None
        with emptied(url, clock, clock.steady) as database:
            yield database
    elif kind == "memory":
        with closing(open_memory(clock, clock.steady)) as memory:
            yield memory
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(open_sqlite(Path(folder) / "state.db", clock, clock.steady)) as file,
        ):
            yield file


def history(store: Store, clock: Clock, steps: list[Step]) -> None:
    for step in steps:
        if isinstance(step.what, tuple):
            kind, seconds = step.what
            if kind == "sweep":
                run(store, Sweep(), NOBODY)
                with store.transaction(monotonic() + PATIENCE) as transaction:
                    expire_values(transaction, 100)
            elif kind == "pass":
                clock.pass_by(seconds)
            else:
                clock.move(seconds)
            continue
        with suppress(HoldlogError):
            command: AnyCommand = step.what
            run(store, command, Caller(session=step.session, server=f"server of {step.session}"))


def require_the_same(past: Past, replay: Replay, later: list[Body], by: dict[str, Any], position: int) -> None:
    """Compare all reads at a moment with the state of the replay then. `later`: the events after it."""
    point, requests = point_in_time(by.get("position"), by.get("time")), past.requests
    time: datetime | None = by.get("time")
    live = {it: value for it, value in replay.values.items() if time is None or value[3] is None or value[3] > time}
    for namespace in NAMESPACES:
        found = past.read(requests.past.of(requests.values.records(namespace, limit=1), point))
        rows = past.read(requests.past.all_of(requests.values.all_records(namespace), point))
        expected = {key: value[:3] for (named, key), value in sorted(live.items()) if named == namespace}
        assert {it.key: (it.version, it.value, it.updated_by) for it in rows} == expected
        assert [it.key for it in found.records] == list(expected)[:1]
        assert (found.next_after is not None) == (len(expected) > 1)
        assert (found.position, found.as_of.position) == (position, position)
        for key in KEYS:
            query = requests.past.of(requests.values.get(namespace, key), point)
            if (namespace, key) in live:
                assert past.read(query).value == live[namespace, key][1]
                continue
            with pytest.raises(NotFoundError) as missing:
                past.read(query)
            assert missing.value.facts["as_of"].position == position
    named, as_of = past.read(requests.past.plain(requests.values.all_namespaces(), point))
    assert (named, as_of.position) == (sorted({it[0] for it in live}), position)
    require_the_same_claims(past, replay, later, point, time)
    require_the_same_thread(past, replay, point)


def require_the_same_claims(past: Past, replay: Replay, later: list[Body], point: Any, time: datetime | None) -> None:
    requests = past.requests
    ends = {key: end_of(hold, later) for key, hold in replay.holds.items()}

    def has_lapsed(key: tuple[str, int]) -> bool:
        end = ends[key]
        return time is not None and end is not None and "due" in end and datetime.fromisoformat(end["due"]) <= time

    holds = {key: hold for key, hold in replay.holds.items() if not has_lapsed(key)}
    board = past.read(requests.past.board(point, limit=1000))
    shown = {(it.resource, it.version): it for it in board.claims}
    assert {key: (it.held_by, it.mode, it.claimed_at, it.session) for key, it in shown.items()} == {
        key: (hold["agent"], hold.get("mode", "exclusive"), datetime.fromisoformat(hold["at"]), hold.get("session"))
        for key, hold in holds.items()
    }
    for key, it in shown.items():
        end = ends[key]
        if end is None:
            assert it.ended_at is None
        else:
            assert it.ended_at == datetime.fromisoformat(end.get("due", end["at"]))
            assert it.noticed_at == datetime.fromisoformat(end["at"])
            assert (it.outcome == "expired") == (end["kind"] == "ClaimExpired")
    queues: dict[str, list[str]] = {}
    for (resource, _), ticket in sorted(replay.tickets.items(), key=lambda it: it[1]["turn"]):
        queues.setdefault(resource, []).append(ticket["agent"])
    assert {it.resource: [waiter.agent for waiter in it.line] for it in board.queues} == queues
    for resource in RESOURCES:
        status = past.read(requests.past.status(resource, point))
        blocking = {hold["agent"] for (name, _), hold in holds.items() if overlap(name, resource)}
        assert (status.held_by in blocking) if blocking else status.status == "available"
        if not blocking and resource in replay.ended and not any(name == resource for name, _ in replay.holds):
            assert (status.previous_holder, status.previous_outcome) == replay.ended[resource]


def require_the_same_thread(past: Past, replay: Replay, point: Any) -> None:
    requests = past.requests
    if THREAD not in replay.versions:
        with pytest.raises(NotFoundError):
            past.read(requests.past.of(requests.threads.facts(THREAD), point))
        return
    facts = past.read(requests.past.of(requests.threads.facts(THREAD), point))
    items = replay.items[THREAD]
    assert (facts.version, facts.messages, facts.results) == (
        replay.versions[THREAD],
        sum(1 for it in items if it[1] == "message"),
        sum(1 for it in items if it[1] == "result"),
    )
    page = past.read(requests.past.of(requests.threads.page(THREAD, limit=1000), point))
    assert [(it.version, it.kind, it.message if it.kind == "message" else it.result) for it in page.items] == items
    data = past.read(requests.past.of(requests.thread_data.page(THREAD), point))
    assert data.data == replay.data[THREAD]
    (listed,) = past.read(requests.past.of(requests.threads.listed(), point)).threads
    assert listed.version == replay.versions[THREAD]


def require_every_moment(kind: str, steps: list[Step], url: str | None = None) -> None:
    clock = Clock()
    with opened(kind, clock, url) as store:
        history(store, clock, steps)
        clock.move(1000)  # the end of the log is in no future
        past = Past(store, clock)
        events = past.events()
        replay = Replay()
        for number, event in enumerate(events, 1):
            replay.add(event)
            later = events[number:]
            require_the_same(past, replay, later, {"position": number}, number)
            at = datetime.fromisoformat(event["at"])
            following = datetime.fromisoformat(later[0]["at"]) if later else at + timedelta(seconds=90)
            if following > at:
                for time in {at, at + (following - at) / 2, following - timedelta(microseconds=1)}:
                    require_the_same(past, replay, later, {"time": time}, number)


often = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(often, max_examples=40)
@given(STEPS)
def test_every_moment_is_read_as_a_replay_of_the_log(steps: list[Step]) -> None:
    require_every_moment("memory", steps)


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the board every few positions."""
    monkeypatch.setattr("holdlog.adapters.stores.sql.transaction.SNAPSHOT_EVERY", 4)


@settings(often, max_examples=40)
@given(STEPS)
def test_every_moment_is_read_alike_from_snapshots(snapshots: None, steps: list[Step]) -> None:
    require_every_moment("sqlite", steps)


@pytest.mark.check
@settings(often, max_examples=15)
@given(STEPS)
def test_every_moment_is_read_alike_from_postgres(snapshots: None, shared_postgres: str, steps: list[Step]) -> None:
    require_every_moment("postgres", steps, shared_postgres)


@pytest.mark.slow
@settings(often, max_examples=1_000)
@given(STEPS)
def test_every_moment_of_a_thousand_histories_is_read_as_a_replay(snapshots: None, steps: list[Step]) -> None:
    require_every_moment("memory", steps)
