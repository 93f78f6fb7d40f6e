"""That this server is about to end."""

from collections.abc import Callable


class Shutdown:
    """`began`: from then on it takes no new work, and whoever spreads requests should choose another server.

    `last`: what brings calls and streams to their ends, called in the loop when nothing new is accepted any more."""

    def __init__(self) -> None:
        self.began = False
        self.last: list[Callable[[], None]] = []

    def finish(self) -> None:
        for call in self.last:
            call()
