"""Random histories of claims against the oracle of tests/support/claim_rule.py, through the library alone."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.doors import old
from tests.support.claim_histories import World, live, seeds
from tests.support.claim_rule import Rules

RULES = Rules(resumes=old.OLD)


def run(place, sessions, history):
    async def go():
        world = World(place, sessions, RULES)
        try:
            await live(world, history, endings=sessions == 3)
        finally:
            await world.close()

    asyncio.run(go())


MANY = [
    pytest.param(1, 8, id="one session"),
    pytest.param(2, 8, id="two sessions"),
    pytest.param(3, 60, marks=pytest.mark.rest, id="sessions that end"),
    pytest.param(3, 2_000, marks=pytest.mark.slow, id="many"),
]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("sessions", "histories"), MANY)
def test_random_claims_follow_the_rule(sessions, histories):
    """The many are different ones each time."""

    @settings(
        deadline=None, max_examples=histories, derandomize=histories < 100, suppress_health_check=list(HealthCheck)
    )
    @given(seeds)
    def follow(history):
        with tempfile.TemporaryDirectory() as folder:
            run(":memory:" if sessions == 1 else Path(folder, "state.db"), sessions, history)

    follow()
