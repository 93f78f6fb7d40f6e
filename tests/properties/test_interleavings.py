"""Handlers in every order that a seed picks, stopped and killed at any step: their history must be linearizable."""

import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from holdlog.adapters.runtime.command_handler import handle
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.store import PostgresStore
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.schema import CREATE_EVENTS
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.commands import ClaimAcquired, ReleaseOutcome
from holdlog.domain.claims.lease import Lease
from holdlog.domain.commands import AnyCommand, RecordsChanged
from holdlog.domain.ports import Reader, Store, Transaction
from holdlog.domain.refusals import BusyError, ConflictError, NotFoundError, NotHolderError, UnavailableError
from tests.support.commands import (
    HERE,
    PATIENCE,
    drop,
    put,
    release,
    require_chained,
    require_views_equal_the_log,
    take,
    transact,
)
from tests.support.postgres import empty
from tests.support.slow import slow

CLIENTS = 4
CALLS = 5
KILL = 0.01
STOP = 0.03
LONGEST_STOP = 60
TRY = 0.05


# --- the history and its check


@dataclass
class Call:
    """`end` and `answer` stay None when the client was killed: it may have happened or not."""

    what: tuple[Any, ...]
    begin: int
    end: int | None = None
    answer: Any = None


State = Hashable
Step = Callable[[Any, tuple[Any, ...]], tuple[Any, Any]]


def linearizable(history: list[Call], initial: State, step: Step) -> bool:
    """Whether some order of the calls, true to real time, explains every answer.

    Wing and Gong's search (1993) with Lowe's memory of what was tried: a set of calls done and the state they left.
    """
    endless = len(history) * 1_000_000
    ends = [endless if call.end is None else call.end for call in history]
    needed = sum(1 << number for number, call in enumerate(history) if call.end is not None)
    tried = {(0, initial)}
    ahead: list[tuple[int, Any]] = [(0, initial)]
    while ahead:
        done, state = ahead.pop()
        if done & needed == needed:
            return True
        left = [number for number in range(len(history)) if not done >> number & 1]
        first_end = min(ends[number] for number in left)
        for number in left:
            call = history[number]
            if call.begin > first_end:
                continue
            after, answer = step(state, call.what)
            if call.end is not None and answer != call.answer:
                continue
            found = (done | 1 << number, after)
            if found not in tried:
                tried.add(found)
                ahead.append(found)
    return False


def register(state: tuple[int, bool, Any], what: tuple[Any, ...]) -> tuple[tuple[int, bool, Any], Any]:
    """A versioned register as the contract has it: (version, live, value)."""
    version, live, value = state
    actual = version if live else 0
    match what:
        case ("read",):
            return state, (actual, value)
        case ("write", new, expected):
            if expected is not None and expected != actual:
                return state, ("conflict", actual)
            return (version + 1, True, new), ("ok", version + 1)
        case ("delete", expected):
            if not live:
                return state, ("not_found",)
            if expected is not None and expected != actual:
                return state, ("conflict", actual)
            return (version + 1, False, None), ("ok", version + 1)
        case _:
            raise AssertionError(what)


def lock(state: tuple[int, str | None, int], what: tuple[Any, ...]) -> tuple[tuple[int, str | None, int], Any]:
    """A claim as the contract has it: (version, holder, version of the grant)."""
    version, holder, granted = state
    match what:
        case ("take", agent):
            if holder == agent:
                return state, ("already", granted)
            if holder is not None:
                return state, ("busy", holder, granted)
            return (version + 1, agent, version + 1), ("claimed", version + 1)
        case ("release", agent):
            if version == 0:
                return state, ("not_found",)
            if holder is None:
                return state, ("free",)
            if holder != agent:
                return state, ("not_holder", holder)
            return (version + 1, None, granted), ("released", version + 1)
        case ("status",):
            return state, holder
        case _:
            raise AssertionError(what)


# --- clients under a scheduler


class Killed(BaseException):
    """The process of a client died."""


class Client(threading.Thread):
    """Runs only when it has its turn, and gives it back at every step."""

    def __init__(self, name: str, scheduler: "Scheduler", script: Callable[["Client"], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.scheduler = scheduler
        self.script = script
        self.turn = threading.Semaphore(0)
        self.killed = False
        self.stopped_until = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.step(begin=True)
            self.script(self)
        except Killed:
            pass
        except BaseException as failure:
            self.failure = failure
        finally:
            self.scheduler.alive.remove(self)
            self.scheduler.back.release()

    def step(self, begin: bool = False) -> None:
        if not begin:
            self.scheduler.back.release()
        assert self.turn.acquire(timeout=PATIENCE)
        if self.killed:
            raise Killed

    def call(self, what: tuple[Any, ...], do: Callable[[], Any]) -> Any:
        """Do it and write down when, what and with what answer."""
        call = Call(what, self.scheduler.now)
        self.scheduler.history.append(call)
        answer = do()
        self.step()
        call.end, call.answer = self.scheduler.now, answer
        return answer


class Scheduler:
    """Gives one client at a time its turn, by the seed; stops some for a while and kills some."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.back = threading.Semaphore(0)
        self.alive: list[Client] = []
        self.history: list[Call] = []
        self.writing: Client | None = None
        self.begun = False

    def run(self, scripts: list[Callable[[Client], None]]) -> None:
        clients = [Client(f"c{number}", self, script) for number, script in enumerate(scripts)]
        self.alive = list(clients)
        for client in clients:
            client.start()
        while self.alive:
            self.now += 1
            client = self.random.choice([it for it in self.alive if it.stopped_until <= self.now] or self.alive)
            chance = self.random.random()
            if chance < KILL:
                client.killed = True
            elif chance < KILL + STOP:
                client.stopped_until = self.now + self.random.randrange(LONGEST_STOP)
                continue
            client.turn.release()
            assert self.back.acquire(timeout=PATIENCE)
        for client in clients:
            client.join(PATIENCE)
            if client.failure is not None:
                raise client.failure


class Stepping:
    """A reader or transaction of which every call is a step."""

    def __init__(self, inner: Reader | Transaction, client: Client) -> None:
        self._inner = inner
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def stepping(*arguments: Any, **named: Any) -> Any:
            self._client.step()
            return found(*arguments, **named)

        return stepping


class SteppingStore:
    """The store as one client sees it; who cannot write yet looks again at its next turn instead of blocking, and in
    a database tries it, now and then."""

    def __init__(self, store: Store, client: Client) -> None:
        self._store = store
        self._client = client

    @contextmanager
    def reader(self) -> Iterator[Any]:
        self._client.step()
        with self._store.reader() as reader:
            yield Stepping(reader, self._client)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        scheduler, client = self._client.scheduler, self._client
        while scheduler.writing is not None:
            if scheduler.begun and isinstance(self._store, PostgresStore) and scheduler.random.random() < TRY:
                self._require_shut()
            client.step()
        scheduler.writing = client
        try:
            client.step()
            with self._store.transaction(time.monotonic() + 5) as transaction:
                scheduler.begun = True
                yield Stepping(transaction, client)
                client.step()
        finally:
            scheduler.writing, scheduler.begun = None, False

    def _require_shut(self) -> None:
        with pytest.raises(UnavailableError), self._store.transaction(time.monotonic() + 0.02):
            raise AssertionError("two write at once")


Handler = Callable[[AnyCommand, SteppingStore], Any]


def careful(command: AnyCommand, store: SteppingStore) -> Any:
    """As the product does it: the decision and what it rests on are in one transaction."""
    with store.transaction() as transaction:
        return handle(command, HERE, transaction)


class Stale:
    """A transaction that answers from a read that was made before it began."""

    def __init__(self, reader: Any) -> None:
        self._found = reader.record("n", "k"), reader.claim("r")
        self._leases = reader.leases.of(["r"])
        self._transaction: Any = None

    def within(self, transaction: Any) -> "Stale":
        self._transaction = transaction
        return self

    def record(self, namespace: str, key: str) -> Any:
        return self._found[0]

    def records_of(self, addresses: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Any]:
        return dict.fromkeys(addresses, self._found[0])

    def overlapping(self, resources: Sequence[str]) -> list[Claim]:
        return [self._found[1]] if self._found[1].version else []

    @property
    def leases(self) -> "StaleLeases":
        return StaleLeases(self._leases, self._transaction.leases)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


class StaleLeases:
    """Reads what was found before, and writes through."""

    def __init__(self, found: list[Lease], leases: Any) -> None:
        self._found = found
        self._leases = leases

    def of(self, resources: Sequence[str]) -> list[Lease]:
        return self._found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leases, name)


def careless(command: AnyCommand, store: SteppingStore) -> Any:
    """The mistake that this test is there to find: decided on what was read before the transaction."""
    with store.reader() as reader:
        stale = Stale(reader)
    with store.transaction() as transaction:
        return handle(command, HERE, stale.within(transaction))


def answer(handler: Handler, command: AnyCommand, store: SteppingStore) -> tuple[Any, ...]:
    try:
        outcome = handler(command, store)
    except ConflictError as conflict:
        return "conflict", conflict.detail.actual_version
    except NotFoundError:
        return ("not_found",)
    except BusyError as busy:
        return "busy", busy.hold.held_by, busy.hold.version
    except NotHolderError as other:
        return "not_holder", other.held_by
    match outcome:
        case RecordsChanged(results=results):
            return "ok", results[0].version
        case ClaimAcquired(version=version, already=already):
            return ("already" if already else "claimed"), version
        case ReleaseOutcome(released=released, already=already):
            return ("free",) if already else ("released", released[0][1])
        case _:
            raise AssertionError(outcome)


def register_script(store: Store, handler: Handler) -> Callable[[Client], None]:
    """Compare-and-set, blind writes, deletions and reads of one key."""

    def script(client: Client) -> None:
        mine, chance = SteppingStore(store, client), client.scheduler.random
        for number in range(CALLS):
            version, _ = client.call(("read",), lambda: _read(mine))
            value = f"{client.name}-{number}"
            expected = chance.choice([version, version, version, None])
            if chance.random() < 0.8:
                command = transact(put("k", value, expected))
                client.call(("write", value, expected), partial(answer, handler, command, mine))
            else:
                command = transact(drop("k", expected))
                client.call(("delete", expected), partial(answer, handler, command, mine))

    return script


def _read(store: SteppingStore) -> tuple[int, Any]:
    with store.reader() as reader:
        record = reader.record("n", "k")
    return (record.version, record.value.value) if record.live else (0, None)


def lock_script(store: Store, handler: Handler) -> Callable[[Client], None]:
    """Claims, releases and looks at one resource, under two names for four clients."""

    def script(client: Client) -> None:
        mine, chance = SteppingStore(store, client), client.scheduler.random
        agent = chance.choice(["ann", "bob", "cleo"])
        for _ in range(CALLS):
            client.call(("take", agent), lambda: answer(handler, take("r", agent), mine))
            if chance.random() < 0.5:
                client.call(("status",), lambda: _holder(mine))
            client.call(("release", agent), lambda: answer(handler, release("r", agent), mine))

    return script


def _holder(store: SteppingStore) -> str | None:
    with store.reader() as reader:
        grants = reader.claim("r").grants
        return grants[-1].agent if grants else None


Script = Callable[[Store, Handler], Callable[[Client], None]]


def history_of(seed: int, script: Script, handler: Handler, stores: Sequence[Store] = ()) -> tuple[list[Call], Store]:
    """`stores`: one for each client, as processes have them; else all have the same, in memory."""
    found = stores or [open_memory()] * CLIENTS
    scheduler = Scheduler(seed)
    scheduler.run([script(store, handler) for store in found])
    return scheduler.history, found[0]


SPECIFICATIONS = [
    pytest.param(register_script, (0, False, None), register, id="register"),
    pytest.param(lock_script, (0, None, 0), lock, id="claim"),
]


@pytest.mark.check
@pytest.mark.parametrize(("script", "initial", "step"), SPECIFICATIONS)
@pytest.mark.parametrize("block", [0, 1, *slow(*range(2, 8))])
def test_every_interleaving_is_linearizable(script: Script, initial: State, step: Step, block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        history, store = history_of(seed, script, careful)
        assert linearizable(history, initial, step), f"seed {seed}: {history}"
        require_chained(store)
        require_views_equal_the_log(store)


@pytest.fixture
def four(postgres: str) -> Iterator[list[Store]]:
    """One database, opened as often as there are clients."""
    stores = [open_postgres(postgres) for _ in range(CLIENTS)]
    yield list(stores)
    for store in stores:
        store.close()


@pytest.mark.check
@pytest.mark.parametrize(("script", "initial", "step"), SPECIFICATIONS)
@pytest.mark.parametrize("seeds", [8, *slow(500)])
def test_every_interleaving_in_postgres_is_linearizable(
    script: Script, initial: State, step: Step, seeds: int, four: list[Store], postgres: str
) -> None:
    for seed in range(seeds):
        empty(postgres)
        history, store = history_of(seed, script, careful, four)
        assert linearizable(history, initial, step), f"seed {seed}: {history}"
        require_chained(store)
        require_views_equal_the_log(store)


def test_key_of_postgres_refuses_a_decision_on_an_outdated_read(four: list[Store], postgres: str) -> None:
    def decide() -> None:
        for seed in range(50):
            empty(postgres)
            history_of(seed, register_script, careless, four)

    with pytest.raises(UnavailableError, match="stored_events_pkey"):
        decide()


def test_key_in_memory_refuses_a_decision_on_an_outdated_read() -> None:
    def decide() -> None:
        for seed in range(50):
            history_of(seed, register_script, careless)

    with pytest.raises(UnavailableError, match="stored_events"):
        decide()


def _without_key() -> Store:
    """A store in memory whose log takes any version."""
    store = open_memory()
    with store.transaction(time.monotonic() + 5) as transaction:
        transaction.connection.execute(f"DROP TABLE {EVENTS_TABLE}")
        key = ",\n    UNIQUE (originator_id, originator_version)"
        assert key in CREATE_EVENTS
        transaction.connection.execute(CREATE_EVENTS.replace(key, ""))
        transaction.wrote = True
    return store


@pytest.mark.check
@pytest.mark.parametrize(("script", "initial", "step"), SPECIFICATIONS)
def test_checker_detects_a_decision_on_an_outdated_read(script: Script, initial: State, step: Step) -> None:
    histories = (history_of(seed, script, careless, [_without_key()] * CLIENTS)[0] for seed in range(50))
    caught = sum(not linearizable(history, initial, step) for history in histories)
    assert caught >= 25


def test_seeds_cover_stopped_and_killed_processes() -> None:
    histories = [history_of(seed, register_script, careful)[0] for seed in range(50)]
    assert sum(any(call.end is None for call in history) for history in histories) >= 25
    assert any(len(history) == 2 * CLIENTS * CALLS for history in histories)


def test_one_seed_reproduces_one_history() -> None:
    first, second = (history_of(7, register_script, careful)[0] for _ in range(2))
    assert first == second


# --- the check itself


def test_checker_accepts_either_order_of_concurrent_calls() -> None:
    write, read = ("write", "x", 0), ("read",)
    for seen in ((0, None), (1, "x")):
        assert linearizable([Call(write, 1, 4, ("ok", 1)), Call(read, 2, 3, seen)], (0, False, None), register)


def test_checker_detects_a_read_that_misses_an_acknowledged_write() -> None:
    history = [Call(("write", "x", 0), 1, 2, ("ok", 1)), Call(("read",), 3, 4, (0, None))]
    assert not linearizable(history, (0, False, None), register)


def test_checker_detects_a_lost_update() -> None:
    history = [Call(("write", "x", 0), 1, 4, ("ok", 1)), Call(("write", "y", 0), 2, 3, ("ok", 1))]
    assert not linearizable(history, (0, False, None), register)


def test_checker_accepts_both_outcomes_of_an_unanswered_call() -> None:
    for seen in ((0, None), (1, "x")):
        history = [Call(("write", "x", 0), 1), Call(("read",), 3, 4, seen)]
        assert linearizable(history, (0, False, None), register)
    both = [Call(("write", "x", 0), 1), Call(("read",), 3, 4, (1, "x")), Call(("read",), 5, 6, (0, None))]
    assert not linearizable(both, (0, False, None), register)
