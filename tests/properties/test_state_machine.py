"""The same commands on every store and on a plain dictionary: equal answers, and views that equal the log."""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdlog.adapters.runtime.command_handler import expire_values
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.commands import ClaimAcquired, ReleaseOutcome
from holdlog.domain.commands import AnyCommand, RecordsChanged
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.record import seen
from holdlog.domain.refusals import (
    BusyError,
    ConflictError,
    DataConflictError,
    HoldlogError,
    InvalidError,
    NotFoundError,
    NotHolderError,
)
from holdlog.domain.threads.commands import ThreadChanged
from holdlog.domain.threads.past import data_at, items_at
from tests.support.clock import Clock
from tests.support.commands import (
    HERE,
    PATIENCE,
    check,
    clear,
    drop,
    holder_of,
    put,
    release,
    require_chained,
    require_views_equal_the_log,
    rows,
    run,
    take,
    transact,
)
from tests.support.postgres import empty
from tests.support.slow import slow
from tests.support.thread_model import Changed as ChangedSince
from tests.support.thread_model import Missing, Threads, Told, TooNew
from tests.support.thread_model import Taken as Occupied
from tests.support.threads import append, change_data, checksum, fork, item, message, replace, result, start

namespaces = st.sampled_from(["n", "n/m", "é"])
keys = st.sampled_from(["a", "a%", "b", "\U0010ffff"])
values = st.none() | st.integers(-2, 2) | st.text("a\0é", max_size=2) | st.lists(st.floats(0, 1), max_size=2)
threads = st.sampled_from(["t", "u", "é/x"])
data = st.dictionaries(st.sampled_from(["a", "b", "é"]), values, max_size=2)
agents = st.sampled_from(["ann", "bob", "cleo"])
resources = st.sampled_from(["lib/", "src/a.py", "custom://b"])


class Kept(NamedTuple):
    """What the dictionary knows of a key. `version` counts on over deletions. `end`: microseconds."""

    version: int = 0
    live: bool = False
    value: Any = None
    by: str = ""
    end: int | None = None

    def at(self, now: int) -> "Kept":
        """A due value has ended, noticed or not."""
        if not self.live or self.end is None or self.end > now:
            return self
        return Kept(self.version + 1, False, None, self.by)


class Held(NamedTuple):
    version: int = 0
    holder: str | None = None
    granted: int = 0


class Refused(Exception):
    def __init__(self, *said: Any) -> None:
        self.said = said


class Model:
    """The contract, as a dictionary would have it: nothing of the product is in here."""

    def __init__(self, clock: Clock) -> None:
        self.records: dict[tuple[str, str], Kept] = {}
        self.claims: dict[str, Held] = {}
        self.events = 0
        self.threads = Threads()
        self.clock = clock
        self.newest = 0

    def now(self) -> int:
        return max(self.clock(), self.newest)

    def append(self, events: int) -> None:
        if events:
            self.newest = self.now()
            self.events += events

    def change(self, operations: list[tuple[str, str, str, Any, int | None, float | None]], by: str) -> tuple[Any, ...]:
        records, results, events, now = dict(self.records), [], 0, self.now()
        for index, (kind, namespace, key, value, expected, ttl) in enumerate(operations):
            before = records.get((namespace, key), Kept())
            kept = before.at(now)
            actual = kept.version if kept.live else 0
            if kind == "drop" and not kept.live:
                raise Refused(NotFoundError, kept.version)
            if expected is not None and expected != actual:
                raise Refused(ConflictError, index, actual, kept.value if kept.live else None)
            after = before
            if kind == "put":
                end = None if ttl is None else now + round(ttl * 1_000_000)
                after = Kept(kept.version + 1, True, value, by, end)
            elif kind == "drop":
                after = Kept(kept.version + 1, False, None, by)
            events += after.version - before.version
            records[namespace, key] = after
            results.append((namespace, key, after.version, kept.version if kept.live else None, None))
        self.records = records
        self.append(events)
        return (*results, self.events)

    def notice(self, limit: int) -> None:
        now = self.now()
        due = sorted((kept.end, place) for place, kept in self.records.items() if kept.at(now) is not kept and kept.end)
        for _, place in due[:limit]:
            self.records[place] = self.records[place].at(now)
        self.append(len(due[:limit]))

    def clear(self, namespace: str, by: str) -> tuple[Any, ...]:
        now = self.now()
        live = sorted(key for (name, key), kept in self.records.items() if name == namespace and kept.at(now).live)
        return self.change([("drop", namespace, key, None, None, None) for key in live], by)

    def take(self, resource: str, agent: str) -> tuple[Any, ...]:
        held = self.claims.get(resource, Held())
        if held.holder == agent:
            return held.granted, True
        if held.holder is not None:
            raise Refused(BusyError, held.holder, held.granted)
        self.append(1)
        self.claims[resource] = Held(held.version + 1, agent, held.version + 1)
        return held.version + 1, False

    def release(self, resource: str, agent: str) -> tuple[Any, ...]:
        held = self.claims.get(resource, Held())
        if held.version == 0:
            raise Refused(NotFoundError, 0)
        if held.holder is None:
            return 0, True
        if held.holder != agent:
            raise Refused(NotHolderError, held.holder)
        self.append(1)
        self.claims[resource] = held._replace(version=held.version + 1, holder=None)
        return held.version + 1, False

    def thread(self, call: Callable[[Threads], Told]) -> tuple[Any, ...]:
        try:
            told = call(self.threads)
        except Missing:
            raise Refused(NotFoundError, 0) from None
        except Occupied:
            raise Refused(InvalidError, "thread_id: this thread already exists; fork to another thread_id") from None
        except TooNew as refusal:
            raise Refused(
                InvalidError, f"parent_version: the parent ends at version {refusal.args[0]}; pass that or less"
            ) from None
        except ChangedSince as refusal:
            raise Refused(DataConflictError, *refusal.args) from None
        self.append(told.events)
        return told._replace(events=self.events, checksums=tuple(map(checksum, told.checksums)))


def answer(store: Store, command: AnyCommand, caller: Caller) -> tuple[Any, ...]:
    """What a store says, in the terms of the model."""
    try:
        outcome = run(store, command, caller)
    except HoldlogError as refusal:
        return (type(refusal), *_facts(refusal))
    match outcome:
        case RecordsChanged(results=results, position=position):
            return (*map(tuple, results), position)
        case ClaimAcquired(version=version, already=already):
            return version, already
        case ReleaseOutcome(released=released, already=already):
            return sum(version for _, version in released), already
        case ThreadChanged():
            return outcome[1:]


def _facts(refusal: HoldlogError) -> tuple[Any, ...]:
    match refusal:
        case ConflictError(detail=detail, operation=operation):
            return operation, detail.actual_version, detail.actual_value
        case DataConflictError(detail=data):
            return data.actual_data_version, data.changed_keys
        case NotFoundError(facts=facts):
            return (facts.get("version", 0),)
        case BusyError(hold=hold):
            return hold.held_by, hold.version
        case NotHolderError(held_by=holder):
            return (holder,)
        case _:
            return (str(refusal),)


class Stores(RuleBasedStateMachine):
    """`url`: of a store in PostgreSQL that is asked, too."""

    def __init__(self, url: str | None = None) -> None:
        super().__init__()
        self.url = url
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state.db"
        self.clock = Clock()
        self.model = Model(self.clock)
        self.memory = open_memory(self.clock, self.clock.steady)
        if url is not None:
            open_postgres(url).close()
            empty(url)
        self.kept: list[Store] = []
        self.open()
        self.requests = 0

    def open(self) -> None:
        """What outlives its process."""
        self.kept = [open_sqlite(self.path, self.clock, self.clock.steady)]
        if self.url is not None:
            self.kept.append(open_postgres(self.url, self.clock, self.clock.steady))

    @property
    def stores(self) -> list[Store]:
        return [self.memory, *self.kept]

    def agree(self, command: AnyCommand, expected: Any, *arguments: Any) -> None:
        """All say the same, now and when the same request is repeated."""
        self.requests += 1
        caller = HERE.model_copy(update={"request_id": f"r{self.requests}", "reason": "test"})
        try:
            said: tuple[Any, ...] = expected(*arguments)
            repeated = said
        except Refused as refused:
            said, repeated = refused.said, refused.said
        for store in self.stores:
            assert answer(store, command, caller) == said
            assert answer(store, command, caller) == repeated

    def expected(self, pick: int | None, namespace: str, key: str) -> int | None:
        """None, the version that stands (-1), or any number: among them those from before a deletion."""
        if pick == -1:
            kept = self.model.records.get((namespace, key), Kept()).at(self.model.now())
            return kept.version if kept.live else 0
        return pick

    picks = st.none() | st.just(-1) | st.just(-1) | st.integers(0, 6)

    ttls = st.none() | st.sampled_from([0.000_001, 0.5, 60, 3600])

    @rule(namespace=namespaces, key=keys, value=values, by=agents, pick=picks, ttl=ttls)
    def set(self, namespace: str, key: str, value: Any, by: str, pick: int | None, ttl: float | None) -> None:
        expected = self.expected(pick, namespace, key)
        command = transact(put(key, value, expected, namespace, ttl), by=by)
        self.agree(command, self.model.change, [("put", namespace, key, value, expected, ttl)], by)

    @rule(namespace=namespaces, key=keys, by=agents, pick=picks)
    def delete(self, namespace: str, key: str, by: str, pick: int | None) -> None:
        expected = self.expected(pick, namespace, key)
        command = transact(drop(key, expected, namespace), by=by)
        self.agree(command, self.model.change, [("drop", namespace, key, None, expected, None)], by)

    @rule(
        steps=st.lists(
            st.tuples(st.sampled_from(["put", "drop", "check"]), namespaces, keys, values, picks, ttls),
            min_size=1,
            max_size=4,
        ),
        by=agents,
    )
    def several(self, steps: list[tuple[str, str, str, Any, int | None, float | None]], by: str) -> None:
        steps = [
            (kind, name, key, value, self.expected(pick, name, key), ttl) for kind, name, key, value, pick, ttl in steps
        ]
        operations = [
            put(key, value, expected, name, ttl)
            if kind == "put"
            else drop(key, expected, name)
            if kind == "drop"
            else check(key, expected, name)
            for kind, name, key, value, expected, ttl in steps
        ]
        self.agree(transact(*operations, by=by), self.model.change, steps, by)

    @rule(namespace=namespaces, by=agents)
    def clear(self, namespace: str, by: str) -> None:
        self.agree(clear(namespace, by), self.model.clear, namespace, by)

    @rule(resource=resources, agent=agents)
    def claim(self, resource: str, agent: str) -> None:
        self.agree(take(resource, agent), self.model.take, resource, agent)

    @rule(resource=resources, agent=agents)
    def release(self, resource: str, agent: str) -> None:
        self.agree(release(resource, agent), self.model.release, resource, agent)

    @rule(thread=threads, data=data)
    def thread_start(self, thread: str, data: dict[str, Any]) -> None:
        self.agree(start(thread, **data), self.model.thread, lambda it: it.start(thread, data))

    @rule(
        thread=threads, items=st.lists(st.tuples(st.sampled_from("mr"), st.sampled_from("abc")), min_size=1, max_size=4)
    )
    def thread_append(self, thread: str, items: list[tuple[str, str]]) -> None:
        new = [message(text) if kind == "m" else result(text) for kind, text in items]
        self.agree(append(*new, thread=thread), self.model.thread, lambda it: it.append(thread, items))

    @rule(thread=threads, letters=st.sampled_from(["", "a", "ab", "abc", "ba", "aab"]))
    def thread_replace(self, thread: str, letters: str) -> None:
        command = replace(*map(result, letters), thread=thread)
        self.agree(command, self.model.thread, lambda it: it.replace(thread, letters))

    @rule(thread=threads, pick=picks, data=data, deleted=st.lists(st.sampled_from(["a", "b", "é"]), max_size=2))
    def thread_change(self, thread: str, pick: int | None, data: dict[str, Any], deleted: list[str]) -> None:
        if pick == -1:
            pick = self.model.threads.data_version(thread) if thread in self.model.threads.steps else 0
        gone = tuple(key for key in deleted if key not in data)
        command = change_data(pick, *gone, thread=thread, **data)
        self.agree(command, self.model.thread, lambda it: it.change(thread, pick, data, gone))

    @rule(thread=threads, parent=threads, version=st.none() | st.integers(1, 9))
    def thread_fork(self, thread: str, parent: str, version: int | None) -> None:
        self.agree(fork(thread, parent, version), self.model.thread, lambda it: it.fork(thread, parent, version))

    @rule(limit=st.sampled_from([1, 2, 100]))
    def ends_are_noticed(self, limit: int) -> None:
        self.model.notice(limit)
        for store in self.stores:
            with store.transaction(time.monotonic() + PATIENCE) as transaction:
                expire_values(transaction, limit)

    @rule(seconds=st.sampled_from([-3600, -1, 0.5, 60]))
    def time_passes(self, seconds: float) -> None:
        self.clock.move(seconds)

    @rule()
    def the_process_starts_again(self) -> None:
        for store in self.kept:
            store.close()
        self.open()

    @invariant()
    def lists_equal_the_model(self) -> None:
        for store in self.stores:
            with store.snapshot() as reader:
                assert reader.position() == self.model.events
                now = self.model.now()
                ends = [kept.end for kept in self.model.records.values() if kept.live and kept.end is not None]
                assert reader.next_value_end() == min(ends, default=None)
                for name in ("n", "n/m", "é"):
                    found = {
                        it.key: (it.version, it.live, it.value.value, it.updated_by)
                        for it in (seen(record, reader.at) for record in _all(reader, name))
                    }
                    assert found == {
                        key: tuple(kept.at(now))[:4]
                        for (namespace, key), kept in self.model.records.items()
                        if namespace == name and kept.version
                    }
                    count = sum(live for _, live, _, _ in found.values())
                    assert dict(reader.namespaces(None, -1)).get(name, 0) == count
                    assert len(reader.records(name, "", None, -1, deleted=False)) == count
                assert [it.thread for it in reader.threads(None, -1)] == sorted(self.model.threads.steps)
                for name, steps in self.model.threads.steps.items():
                    items = items_at(reader, name, len(steps))
                    data = data_at(reader, reader.thread(name), len(steps))
                    texts = [f"{kind}:{text}" for kind, text in self.model.threads.held(name)[1]]
                    assert [item(it.event) for it in items] == texts
                    assert {key: it.value for key, it in data.items()} == self.model.threads.held(name)[0]
                held = [(it.resource, holder_of(it), it.grants[0].version) for it in reader.claims(None, -1)]
                assert held == sorted(
                    (name, it.holder, it.granted) for name, it in self.model.claims.items() if it.holder
                )

    def teardown(self) -> None:
        try:
            for store in self.stores:
                require_chained(store)
                require_views_equal_the_log(store)
            logs = [rows(store) for store in self.stores]
            for log in logs:
                times = [row[5] for row in log]
                assert times == sorted(times)
                assert [(*row[:5], *row[6:10]) for row in log] == [(*row[:5], *row[6:10]) for row in logs[0]]
        finally:
            for store in self.kept:
                store.close()
            self.folder.cleanup()


def _all(reader: Any, namespace: str) -> list[Any]:
    return [it for deleted in (False, True) for it in reader.records(namespace, "", None, -1, deleted)]


MACHINE = settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_stores_in_memory_and_in_a_file_match_a_dictionary() -> None:
    run_state_machine_as_test(Stores, settings=MACHINE)  # type: ignore[no-untyped-call]


@pytest.mark.check
@pytest.mark.parametrize("examples", [6, *slow(400)])
def test_store_in_postgres_matches_a_dictionary(postgres: str, examples: int) -> None:
    more = settings(MACHINE, max_examples=examples)
    run_state_machine_as_test(partial(Stores, postgres), settings=more)  # type: ignore[no-untyped-call]
