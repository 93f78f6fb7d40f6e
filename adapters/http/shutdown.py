"""The shutdown flag of this server."""

from collections.abc import Callable


class Shutdown:
    """The state of a shutdown. `began`: from then on the server accepts no new work, and load balancers should choose
    another one.

    `last`: called in the loop once the server accepts nothing new; it ends calls and streams.
    """

    def __init__(self) -> None:
        self.began = False
        self.last: list[Callable[[], None]] = []

    def finish(self) -> None:
        for call in self.last:
            call()
