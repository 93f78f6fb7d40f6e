"""A rate limit."""

import math


class Bucket:
    """A token bucket: allows a burst of `most`, then refills `most` per `seconds`. 0: no limit."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, most: int, seconds: float, now: float) -> None:
        self._most = most
        self._per_second = most / seconds
        self._left = float(most)
        self._at = now

    def has(self, now: float) -> bool:
        """Whether a token is available."""
        self._left = min(float(self._most), self._left + (now - self._at) * self._per_second)
        self._at = now
        return self._left >= 1 or not self._most

    def take(self, number: int = 1) -> None:
        self._left -= number

    def seconds(self) -> int:
        """Seconds until a token is available."""
        return max(1, math.ceil((1 - self._left) / self._per_second))
