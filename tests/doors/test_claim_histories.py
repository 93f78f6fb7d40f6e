"""Random histories of claims against the oracle of tests/support/claim_rule.py, through the library alone."""

import asyncio
import itertools
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings

from tests.doors.conftest import in_postgres
from tests.support.claim_histories import live, seeds
from tests.support.faults import SHIM
from tests.support.programs import environment

_numbers = itertools.count()

SAMPLES = [
    pytest.param("file", 1, 12, id="one session"),
    pytest.param("file", 3, 12, id="sessions that end"),
    pytest.param("file", 2, 80, marks=pytest.mark.rest, id="two sessions"),
    pytest.param("postgres", 3, 25, marks=in_postgres.marks, id="postgres"),
    *(pytest.param("file", 3, 1_500, marks=pytest.mark.slow, id=f"many {part}") for part in range(10)),
    *(pytest.param("postgres", 3, 500, marks=pytest.mark.slow, id=f"many on postgres {part}") for part in range(10)),
]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("kind", "sessions", "histories"), SAMPLES)
def test_random_claims_follow_the_rule(kind, sessions, histories, request, tmp_path):
    """The many are different ones each time."""
    place = request.getfixturevalue("postgres") if kind == "postgres" else tmp_path

    @settings(
        deadline=None, max_examples=histories, derandomize=histories < 100, suppress_health_check=list(HealthCheck)
    )
    @given(seeds)
    def follow(history):
        number = next(_numbers)
        asyncio.run(live(f"{place}_{number}" if kind == "postgres" else place / f"{number}.db", sessions, history))

    follow()


PROGRAM = """
import asyncio, random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.claim_histories import live
from tests.support.faults import Clock
for number in range(int(sys.argv[3]), int(sys.argv[3]) + int(sys.argv[4])):
    dice = random.Random(number)
    history = [dice.randrange(2**32) for _ in range(40)]
    asyncio.run(live(Path(sys.argv[2], f"{number}.db"), 3, history, Clock()))
"""


@SHIM
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("first", "histories"),
    [(0, 10), pytest.param(100, 60, marks=pytest.mark.rest), pytest.param(1_000, 5_000, marks=pytest.mark.slow)],
)
def test_claims_that_expire_follow_the_rule_and_each_loss_is_reported_once(
    first, histories, faults, tmp_path, pytestconfig
):
    """Time passes by the clock of the process."""
    words = [sys.executable, "-c", PROGRAM, str(pytestconfig.rootpath), str(tmp_path), str(first), str(histories)]
    subprocess.run(words, env=environment(faults.env), check=True)
