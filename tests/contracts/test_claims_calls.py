"""How many functions a claim and its release run, which is the same on any machine."""

import sys
from pathlib import Path
from types import FrameType
from typing import Final

from holdlog import StateStore
from holdlog.adapters.stores.sqlite.opening import open_sqlite
from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.claims.lease import SECOND
from tests.support.claim_calls import HOUR, by, claim
from tests.support.commands import run

MOST: Final = 555
"""Calls of Python functions, of libraries too; not those of functions in C."""


def test_claim_runs_no_more_functions_while_others_wait_elsewhere(tmp_path: Path) -> None:
    with StateStore(tmp_path / "state.db") as store:
        for _ in range(3):
            claim_and_release(store)
        alone = calls_of_one(store)
        queue_up(tmp_path / "state.db", 100)
        claim_and_release(store)
        assert calls_of_one(store) <= alone + 100


def queue_up(path: Path, waiters: int) -> None:
    store = open_sqlite(path)
    claim(store, "busy")
    for number in range(waiters):
        run(store, AcquireClaim(resource="busy", agent=f"w{number}", wait=HOUR * SECOND), by(f"s{number}"))
    store.close()


def test_claim_and_release_of_a_free_resource_run_few_functions(tmp_path: Path) -> None:
    with StateStore(tmp_path / "state.db") as store:
        for _ in range(3):
            claim_and_release(store)
        assert calls_of_one(store) <= MOST


def claim_and_release(store: StateStore) -> None:
    store.claim("custom://tea", agent="ann")
    store.release("custom://tea", agent="ann")


def calls_of_one(store: StateStore) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        claim_and_release(store)
    finally:
        sys.setprofile(before)
    return calls
