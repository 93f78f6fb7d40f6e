"""Two clocks that tests move by hand."""

SECOND = 1_000_000


class Clock:
    """Called, it tells microseconds UTC, as the stores take it; `steady` is the clock of leases."""

    def __init__(self, now: int = 1_000_000_000, steady: int = 5_000 * SECOND) -> None:
        self.now = now
        self._steady = steady

    def __call__(self) -> int:
        return self.now

    def steady(self) -> int:
        return self._steady

    def move(self, seconds: float) -> None:
        """Somebody sets the wall clock: forward, or back when negative."""
        self.now += round(seconds * SECOND)

    def pass_by(self, seconds: float) -> None:
        """Time passes, on both clocks."""
        self.move(seconds)
        self._steady += round(seconds * SECOND)
