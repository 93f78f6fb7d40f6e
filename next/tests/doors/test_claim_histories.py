"""Random histories of claims against the oracle of tests/support/claim_rule.py, through the library alone."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.doors import old
from tests.support.claim_histories import World, live, steps
from tests.support.claim_rule import Rules

RULES = Rules(resumes=old.OLD)
few = settings(deadline=None, max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))


def run(place, sessions, history):
    async def go():
        world = World(place, sessions, RULES)
        try:
            await live(world, history)
        finally:
            await world.close()

    asyncio.run(go())


def run_in_a_file(sessions, history):
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder, "state.db"), sessions, history)


@few
@given(steps(endings=False))
def test_claims_of_one_session_follow_the_rule(history):
    run(":memory:", 1, history)


@few
@given(steps(endings=False))
def test_claims_of_two_sessions_follow_the_rule(history):
    run_in_a_file(2, history)


@pytest.mark.rest
@settings(few, max_examples=60)
@given(steps(endings=True))
def test_claims_of_sessions_that_end_follow_the_rule(history):
    run_in_a_file(3, history)


@pytest.mark.slow
@settings(few, max_examples=2_000, derandomize=False)
@given(steps(endings=True))
def test_two_thousand_histories_follow_the_rule(history):
    run_in_a_file(3, history)
