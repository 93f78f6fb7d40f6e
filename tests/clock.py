"""A clock that tests move by hand."""


class Clock:
    """Microseconds UTC, as the stores take it."""

    def __init__(self, now: int = 1_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def move(self, seconds: float) -> None:
        """Forward, or back when negative."""
        self.now += round(seconds * 1_000_000)
