"""Updates and transactions of many processes: each is complete or absent, and none is lost, even under kill -9."""

import random
import time
from typing import Any

import pytest

from holdlog import StateStore
from tests.processes.conftest import EVERY_STORE, Start
from tests.support.processes.soundness import Place, require_sound
from tests.support.processes.workers import Worker
from tests.support.slow import check, slow

TOGETHER = 8
ACCOUNTS = 10
EACH = 1_000


@pytest.mark.check
@EVERY_STORE
def test_eight_processes_increment_one_number_without_a_retry(place: Place, start: Start) -> None:
    workers = [start("increment", place, "counter", 50) for _ in range(TOGETHER)]
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.tell()
    values = [value for worker in workers for value in worker.hear()["values"]]
    assert sorted(values) == list(range(1, 50 * TOGETHER + 1))
    with StateStore(place) as store:
        assert store.get("n", "counter").value == 50 * TOGETHER
        assert store.get("n", "counter").version == 50 * TOGETHER
    require_sound(place)


@EVERY_STORE
@pytest.mark.parametrize("seconds", [*check(3), *slow(30)])
def test_transfers_keep_their_sum_while_processes_are_killed(place: Place, start: Start, seconds: int) -> None:
    dice = random.Random()
    with StateStore(place) as store:
        for account in range(ACCOUNTS):
            store.set("bank", f"account/{account}", EACH, updated_by="bank")
    workers = [start("transfer", place, ACCOUNTS, number) for number in range(TOGETHER)]
    ended: list[Worker] = []
    for worker in workers:
        worker.hear()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        index = dice.randrange(TOGETHER)
        for _ in range(dice.randrange(1, 40)):
            workers[index].hear()
        workers[index].kill()
        ended.append(workers[index])
        workers[index] = start("transfer", place, ACCOUNTS, TOGETHER + len(ended))
        with StateStore(place) as store:
            require_balanced(store)
    for worker in workers:
        worker.hear()  # the store goes on
        worker.kill()
    with StateStore(place) as store:
        books = require_balanced(store)
        for worker in [*ended, *workers]:
            worker.rest()
            name, said = worker.process.args[-1], worker.said  # type: ignore[index]
            assert len(books.get(name, [])) - (said[-1]["entries"] if said else 0) in (0, 1), name
    require_sound(place)


def require_balanced(store: StateStore) -> dict[str, list[Any]]:
    """The entries of all books explain every balance, in one snapshot. Returns the books."""
    values = {it.key: it.value for it in store.list_keys("bank")}
    books = {key.removeprefix("book/"): value for key, value in values.items() if key.startswith("book/")}
    expected = [EACH] * ACCOUNTS
    for source, target, amount in (entry for book in books.values() for entry in book):
        expected[source] -= amount
        expected[target] += amount
    assert [values[f"account/{account}"] for account in range(ACCOUNTS)] == expected
    assert sum(expected) == ACCOUNTS * EACH
    return books
