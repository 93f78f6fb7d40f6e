"""Fixtures that tests of several surfaces share."""

from collections.abc import AsyncIterator

import pytest

from tests.support.agent import engine
from tests.support.clock import Clock
from tests.support.curl import Curl


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def curl(clock: Clock) -> AsyncIterator[Curl]:
    with engine(clock=clock) as store:
        async with Curl(store) as client:
            yield client
