"""Errors between holdlog and NATS."""

from typing import ClassVar

from holdlog.domain.refusals import HoldlogError


class NatsError(HoldlogError):
    """NATS cannot be used as configured; the message is one line with what to do. Never contains a secret."""

    code: ClassVar[str] = "nats"


class EventsLostError(HoldlogError):
    """Events above position `after`, up to `until`, left the stream before this subscriber read them."""

    code: ClassVar[str] = "events_lost"

    def __init__(self, after: int, until: int) -> None:
        super().__init__(
            f"the stream no longer has the events after position {after} up to {until}; pass the store to read them "
            f"from its log, or continue without them, after position {until}"
        )
        self.after = after
        self.until = until
