"""Connections to NATS that end with the first error. Callers then open a new one, because a client that reconnects by
itself still delivers messages that its caller has given up."""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError
from nats.js.errors import Error as StreamError

from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.nats.options import NatsOptions

CONNECT_WITHIN: Final = 5.0
"""Seconds for a server to respond."""
PING_EVERY: Final = 5
"""Seconds between pings; two unanswered ones end a connection."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts; each doubles the previous one."""

FAILURES = (nats.errors.Error, OSError, TimeoutError, asyncio.InvalidStateError)
"""Errors that any call of NATS may raise; `StreamError` is one of the first."""

_REFUSED: Final = ("authorization", "authentication", "credentials", "nonce", "user jwt", "permissions violation")

_TOO_LATE: Final = "authentication timeout"
"""The server's error when a slow network delivered our credentials too late."""

logging.getLogger("nats").setLevel(logging.CRITICAL)  # we report failures ourselves, and once


@asynccontextmanager
async def connect(options: NatsOptions, what: str, lost: Callable[[], None] = lambda: None) -> AsyncIterator[Client]:
    """A connection for the length of a block. `what` names it on the server; `lost` is called when it ends.

    Raises NatsError when the server rejects our credentials, one of `FAILURES` when it cannot be reached.
    """
    client = Client()
    errors: list[Exception] = []

    async def failed(error: Exception) -> None:
        errors.append(error)

    async def closed() -> None:
        lost()

    try:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                await client.connect(
                    list(options.servers),
                    name=f"holdlog {what}",
                    error_cb=failed,
                    closed_cb=closed,
                    allow_reconnect=False,
                    connect_timeout=3,
                    reconnect_time_wait=0,
                    max_reconnect_attempts=1,
                    ping_interval=PING_EVERY,
                    **options.arguments(),
                )
        except FAILURES as error:
            if any(isinstance(it, ssl.SSLCertVerificationError) for it in (*errors, error)):
                raise NatsError(f"the certificate of {options.address} is not trusted; see --nats-ca") from None
            seen = [str(it).lower() for it in (*errors, error)]
            if any(word in text for text in seen if _TOO_LATE not in text for word in _REFUSED):
                raise NatsError(f"{options.address} refuses the credentials") from None
            raise (errors[-1] if errors else error) from None
        except Exception as error:  # invalid seed or credentials file: the library raises errors of any type
            if options.nkey or options.credentials:
                raise NatsError(f"the NKEY or credentials file cannot be used: {type(error).__name__}") from None
            raise
        yield client
    finally:
        with suppress(Exception):
            async with asyncio.timeout(1.0):
                await client.close()


def reason(error: BaseException, options: NatsOptions) -> str:
    """One line for people about a failure."""
    match error:
        case ServiceUnavailableError() | NoStreamResponseError():
            return f"JetStream does not respond at {options.address}"
        case APIError(description=str(description)):
            return f"{options.address}: {description}"
        case StreamError() | nats.errors.Error():
            message = str(error).removeprefix("nats: ") or type(error).__name__
            return f"{options.address}: {message}"
        case TimeoutError():
            return f"{options.address} does not respond"
        case ConnectionRefusedError():
            return f"{options.address} cannot be reached: no server listens there"
        case OSError(strerror=str(text)):
            return f"{options.address} cannot be reached: {text}"
        case _:
            return f"{options.address}: {str(error) or type(error).__name__}"


class Pause:
    """Waits that double up to a limit, randomised so that clients do not all reconnect at the same time."""

    def __init__(self, shortest: float = SHORTEST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._shortest = shortest
        self._longest = longest
        self._next = shortest

    def reset(self) -> None:
        self._next = self._shortest

    def length(self) -> float:
        """Seconds to wait now; the next wait is longer."""
        now, self._next = self._next, min(self._next * 2, self._longest)
        return now * random.uniform(0.5, 1.0)
