"""How many claims and tickets there may be, on every store, and what a claim costs beside many others."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.claims.acquire import MAX_TICKETS
from holdlog.domain.claims.board_storage import load_board
from holdlog.domain.claims.claim import Claim, ClaimGranted, ClaimQueued
from holdlog.domain.claims.commands import MAX_OF_PRINCIPAL, AcquireClaim, Queued, ReleaseClaim, ReleaseOutcome
from holdlog.domain.claims.lease import SECOND, Lease
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.refusals import BusyError, InvalidError, UnavailableError
from tests.contracts.conftest import STORE_IN_A_FILE_IN_TIME
from tests.support.claim_calls import HOUR, by, claim, refused
from tests.support.clock import Clock
from tests.support.commands import PATIENCE, append, run
from tests.support.counted import calls_of


def test_number_of_claims_per_session_is_limited(store: Store) -> None:
    for number in range(3):
        claim(store, f"r{number}", most=3)
    assert claim(store, "r0", most=3).already
    with pytest.raises(InvalidError, match=r"^agent: this session would hold 4 claims; the limit is 3"):
        claim(store, "r3", most=3)
    claim(store, "r3", agent="bob", caller=by("s2"), most=3)
    with pytest.raises(InvalidError):
        claim(store, "r4", agent="bob", most=3)  # another name of the same session
    run(store, ReleaseClaim(resource="r0", agent="ann"), by())
    with pytest.raises(InvalidError):
        claim(store, "r4", most=3, also=("r5",))
    claim(store, "r4", most=3)


def test_number_of_queue_tickets_per_session_is_limited(store: Store) -> None:
    claim(store, "r0", most=2)
    for resource in ("r1", "r2", "r3"):
        claim(store, resource, agent="bob", caller=by("s2"))
    run(store, AcquireClaim(resource="r1", agent="ann", alternatives=("r2",), wait=SECOND, most=2), by())
    for take in (
        AcquireClaim(resource="r3", agent="ann", wait=SECOND, most=2),
        AcquireClaim(resource="r4", agent="ann", most=2),
    ):
        assert "would hold 3 claims, counting those it waits for; the limit is 2" in str(refused(store, take))
    again = run(store, AcquireClaim(resource="r1", agent="ann", alternatives=("r2",), wait=SECOND, most=2), by())
    assert isinstance(again, Queued)  # its own place counts once


def test_a_principal_may_hold_1024_claims_in_all_its_sessions(store: Store) -> None:
    fill(store, [f"r{number}" for number in range(MAX_OF_PRINCIPAL - 1)], principal=None)
    claim(store, "last")
    with pytest.raises(InvalidError, match=r"^agent: this user or token would hold 1025 claims; the limit is 1024"):
        claim(store, "one more", caller=by("s2"))
    claim(store, "one more", caller=Caller(principal="token:ci", session="s2", server="v2"))


def test_one_call_names_a_hundred_resources_at_most() -> None:
    AcquireClaim(resource="a", agent="ann", also=tuple(f"r{number}" for number in range(99)))
    for field in ("also", "alternatives"):
        with pytest.raises(ValueError, match=field):
            AcquireClaim.model_validate(
                {"resource": "a", "agent": "ann", field: [f"r{number}" for number in range(100)]}
            )


@pytest.mark.check
@STORE_IN_A_FILE_IN_TIME
def test_full_queue_refuses_further_waiters(store: Store) -> None:
    claim(store)
    queue_up(store, MAX_TICKETS)
    with pytest.raises(UnavailableError) as full:
        run(store, AcquireClaim(resource="a", agent="late", wait=SECOND), by())
    assert full.value.retry_after == 5.0
    assert isinstance(refused(store, AcquireClaim(resource="a", agent="late")), BusyError)
    assert claim(store, "b", agent="late").version == 1
    again = run(store, AcquireClaim(resource="a", agent="w7", wait=SECOND), by("w7"))
    assert isinstance(again, Queued)
    assert again.position == 7  # a waiter keeps its place


# --- what a claim costs


def fill(store: Store, resources: list[str], principal: str | None = "token:filler") -> None:
    """Live claims, without the commands that would make them."""
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        for resource in resources:
            append(transaction, Claim(resource), ClaimGranted(agent="filler"), caller=by())
        end = transaction.steady + HOUR * SECOND
        transaction.leases.put(
            Lease(resource, 1, "held", "filler", principal, "s0", "v0", end, HOUR * SECOND) for resource in resources
        )


@pytest.mark.check
def test_claim_among_ten_thousand_loads_only_related_claims(store: Store, clock: Clock) -> None:
    fill(store, [f"src/{number // 100}/{number}.py" for number in range(10_000)])
    with store.reader() as reader:
        boards = {
            it: load_board(reader, [it], clock.steady(), clock()) for it in ("src/new.py", "src/7/700.py", "src/7/")
        }
    assert {it: (len(board.claims), len(board.leases)) for it, board in boards.items()} == {
        "src/new.py": (0, 0),
        "src/7/700.py": (1, 1),
        "src/7/": (100, 100),
    }


@pytest.mark.check
def test_claim_among_ten_thousand_costs_the_database_no_more_than_alone(tmp_path: Path) -> None:
    clock = Clock()
    steps = {}
    for number in (0, 10_000):
        store = open_sqlite(tmp_path / f"{number}.db", clock, clock.steady)
        fill(store, [f"src/{it}.py" for it in range(number)])
        claim(store, "warm")
        steps[number] = _steps_of(store, lambda engine=store: claim(engine, "src/new.py"))
        store.close()
    assert 0 < steps[10_000] <= 2 * steps[0]


def _steps_of(store: SqliteStore, work: Callable[[], object]) -> int:
    """How many instructions of its own machine SQLite runs for the writes."""
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    assert store._writing is not None
    store._writing.connection.set_progress_handler(count, 1)
    work()
    store._writing.connection.set_progress_handler(None, 0)
    return counted[0]


def queue_up(store: Store, waiters: int) -> None:
    """Waiters for `a`, without the commands that would queue them."""
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        end = transaction.steady + HOUR * SECOND
        for turn in range(1, waiters + 1):
            before = transaction.claim("a")
            agent = f"w{turn}"
            append(transaction, before, ClaimQueued(agent=agent, turn=turn), caller=by())
            lease = Lease("a", before.version + 1, "waits", agent, None, agent, "v1", end, SECOND, waiting_until=end)
            transaction.leases.put([lease])


def wait_for_a(store: Store, agent: str) -> None:
    outcome = run(store, AcquireClaim(resource="a", agent=agent, wait=SECOND), by(agent))
    assert isinstance(outcome, Queued)


def let_next_in(store: Store) -> None:
    released = run(store, ReleaseClaim(resource="a", agent="ann"), by())
    assert isinstance(released, ReleaseOutcome)
    assert released.granted_to == "w1"


CALLS_PER_WAITER = 14
"""Functions that a call may use for each waiter in its queue: 5 ms at 900 waiters."""
WITH_A_QUEUE: dict[str, Callable[[Store], object]] = {
    "queues": lambda store: wait_for_a(store, "new"),
    "calls again": lambda store: wait_for_a(store, "w7"),
    "is refused": lambda store: refused(store, AcquireClaim(resource="a", agent="new")),
    "releases": let_next_in,
}


@pytest.mark.check
@pytest.mark.parametrize("call", WITH_A_QUEUE)
def test_call_uses_few_functions_for_each_waiter_in_its_queue(tmp_path: Path, call: str) -> None:
    used = {}
    for waiters in (100, 300):
        with in_a_file(tmp_path / f"{waiters}.db") as store:
            claim(store)
            queue_up(store, waiters)
            used[waiters] = calls_of(lambda engine=store: WITH_A_QUEUE[call](engine))
    assert 0 < used[300] - used[100] <= 200 * CALLS_PER_WAITER


@pytest.mark.check
def test_queueing_behind_many_writes_what_queueing_behind_few_does(tmp_path: Path) -> None:
    written = {}
    for waiters in (10, 300):
        path = tmp_path / f"{waiters}.db"
        with in_a_file(path) as store:
            claim(store)
            queue_up(store, waiters)
            assert store._writing is not None
            connection = store._writing.connection
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            rows = connection.total_changes
            wait_for_a(store, "new")
            written[waiters] = connection.total_changes - rows, path.with_name(f"{path.name}-wal").stat().st_size
    rows_of_few, bytes_of_few = written[10]
    rows_of_many, bytes_of_many = written[300]
    assert rows_of_many == rows_of_few
    assert 0 < bytes_of_many <= 2 * bytes_of_few  # a deeper tree has a page more


@pytest.mark.check
def test_claim_elsewhere_uses_no_functions_for_waiters(tmp_path: Path) -> None:
    used = {}
    for waiters in (1, 400):
        with in_a_file(tmp_path / f"{waiters}.db") as store:
            claim(store)
            queue_up(store, waiters)
            claim(store, "warm")
            used[waiters] = calls_of(lambda engine=store, name=f"b{waiters}": claim(engine, name))
    assert 0 < used[400] == used[1]


@contextmanager
def in_a_file(path: Path) -> Iterator[SqliteStore]:
    clock = Clock()
    with closing(open_sqlite(path, clock, clock.steady)) as store:
        yield store


def test_claim_loads_nothing_of_queues_elsewhere(store: Store, clock: Clock) -> None:
    claim(store, "busy")
    for number in range(5):
        run(store, AcquireClaim(resource="busy", agent=f"w{number}", wait=SECOND), by(f"s{number}"))
    with store.reader() as reader:
        assert load_board(reader, ["free"], clock.steady(), clock()).claims == {}


def test_board_has_what_holders_and_waiters_wait_for_elsewhere(store: Store, clock: Clock) -> None:
    claim(store, "a")
    claim(store, "b", agent="bob", caller=by("s2"))
    claim(store, "c", agent="cleo", caller=by("s3"))
    claim(store, "d", agent="dan", caller=by("s4"))
    run(store, AcquireClaim(resource="b", agent="ann", wait=SECOND), by())
    run(store, AcquireClaim(resource="x", agent="bob", also=("c",), wait=SECOND), by("s2"))
    with store.reader() as reader:
        boards = {it: set(load_board(reader, [it], clock.steady(), clock()).claims) for it in "acdx"}
    assert boards == {"a": {"a", "b", "x", "c"}, "c": {"c", "x"}, "d": {"d"}, "x": {"x", "c"}}


def test_board_has_tickets_for_several_resources_that_overlap_it(store: Store, clock: Clock) -> None:
    for resource in ("a", "lib/"):
        claim(store, resource)
    run(store, AcquireClaim(resource="a", agent="bob", also=("src/tea.py",), wait=SECOND), by("s2"))
    run(store, AcquireClaim(resource="a", agent="cleo", alternatives=("lib/",), wait=SECOND), by("s3"))
    with store.reader() as reader:
        boards = {it: set(load_board(reader, [it], clock.steady(), clock()).claims) for it in ("src/", "lib/x", "bin/")}
    assert boards == {"src/": {"a", "lib/"}, "lib/x": {"a", "lib/"}, "bin/": set()}
