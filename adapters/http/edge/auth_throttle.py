"""Throttle of invalid tokens by address: slows down guessing, without reading the store."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from holdlog.adapters.http.edge.buckets import Bucket

WRONG_PER_MINUTE: Final = 60
MOST_ADDRESSES: Final = 10_000
MOST_TOKENS: Final = 10_000


class AuthThrottle:
    """Failed attempts by address. An address with too many must pause; recently valid tokens still work from it,
    because clients behind one proxy share an address. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, Bucket] = OrderedDict()
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    def pause(self, address: str, token: str) -> int:
        """Seconds before this token may be tried; 0: now."""
        bucket = self._wrong.get(address)
        if bucket is None or bucket.has(self._clock()) or _short(token) in self._valid:
            return 0
        return bucket.seconds()

    def record(self, address: str, token: str, is_valid: bool) -> None:
        """Record the result of a check."""
        if is_valid:
            if (short := _short(token)) not in self._valid:
                self._valid[short] = None
                if len(self._valid) > MOST_TOKENS:
                    self._valid.popitem(last=False)
            return
        self._valid.pop(_short(token), None)
        if address not in self._wrong:
            self._wrong[address] = Bucket(WRONG_PER_MINUTE, 60.0, self._clock())
            if len(self._wrong) > MOST_ADDRESSES:
                self._wrong.popitem(last=False)
        self._wrong[address].take()


def _short(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
