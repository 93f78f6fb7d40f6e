"""Short ways to claim, and to look at what is held."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.programs import environment

LONG = 50.0
"""Seconds that no wait of a test lasts."""
file_alone = pytest.mark.parametrize("kind", ["file"], indirect=True)


def take(store: Any, resource: str, agent: str = "ann", **options: Any) -> Any:
    """Claim what must be granted."""
    claimed = store.claim(resource, agent=agent, **options)
    assert claimed.status == "claimed", claimed
    return claimed


def statuses(store: Any, resource: str, *agents: str, **options: Any) -> list[str]:
    return [store.claim(resource, agent=agent, **options).status for agent in agents]


def holders(store: Any) -> dict[str, list[str]]:
    """Of all that is held now. The board has a row for each holder."""
    claims = store.status().claims
    return {it.resource: [row.held_by for row in claims if row.resource == it.resource] for it in claims}


def line(store: Any, resource: str = "a") -> list[str]:
    """Who waits for it, first come first."""
    return [it.agent for queue in store.status().queues if queue.resource == resource for it in queue.line]


def log(store: Any) -> list[tuple[int, str]]:
    """What has happened, to see that nothing did."""
    return [(it.position, it.kind) for it in store.events(limit=1000).events]


@contextmanager
def process(text: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python program, until the block ends or the program does."""
    pipe = subprocess.PIPE
    program = subprocess.Popen([sys.executable, "-c", text], env=environment(), stdin=pipe, stdout=pipe, text=True)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()
