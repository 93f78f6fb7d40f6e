"""Connections to NATS. Each ends with its first error, and its user opens another: a client that reconnects by itself
still delivers what its user has given up."""

import asyncio
import logging
import random
import signal
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import nats.errors
from nats.aio.client import Client
from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.operating_system.location import read_variable
from holdlog.domain.refusals import HoldlogError, InvalidError

CONNECT_SECONDS: Final = 5.0
RESPONSE_SECONDS: Final = 5.0
"""How long a call of JetStream waits for its response."""
PING_SECONDS: Final = 5
"""Between pings; two without a response end a connection."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to connect; each pause is twice as long as the one before."""
FAILURES: Final = (nats.errors.Error, OSError, TimeoutError, asyncio.InvalidStateError)
"""What any call of NATS may raise; another attempt may succeed."""
_URL: Final = "must be nats://host:4222 or tls://host:4222; separate several with commas"
_DENIED: Final = ("authorization violation", "permissions violation", "nonce", "user jwt")

logging.getLogger("nats").setLevel(logging.CRITICAL)  # failures are reported here, and once


class NatsError(HoldlogError):
    """NATS cannot be used like this; the message is one line with what to do."""

    code: ClassVar[str] = "nats"


class Address:
    """Where NATS is. `name`: the same without user and password."""

    def __init__(self, url: str) -> None:
        """Raises InvalidError for what is no URL of NATS; the message never contains the URL."""
        try:
            parts = [urlsplit(each.strip()) for each in url.split(",")]
            hosts = [
                f"{each.scheme}://{each.netloc.rpartition('@')[2]}" for each in parts if each.port or each.hostname
            ]
        except ValueError:
            hosts = []
        if not hosts or len(hosts) < len(parts) or any(each.scheme not in ("nats", "tls") for each in parts):
            raise InvalidError(f"the URL of NATS {_URL}")
        self.hosts = hosts
        self.name = ",".join(hosts)
        self._user, self._password = (unquote(text or "") for text in (parts[0].username, parts[0].password))

    def list_options(self) -> dict[str, Any]:
        """How the client shows who it is: a user with a password, a token, or a file with a JWT and its key."""
        if self._user and self._password:
            return {"user": self._user, "password": self._password}
        options = {"token": self._user, "user_credentials": read_variable("nats_creds")}
        return {name: text for name, text in options.items() if text}


def add_nats(parser: Parser) -> None:
    help_text = "nats://user:password@host:4222 or tls://host:4222, several with commas (default: HOLDLOG_NATS)"
    parser.add_argument("--nats", metavar="URL", help=help_text)


def find_url(options: Namespace) -> str:
    """What --nats or HOLDLOG_NATS says. Raises InvalidError."""
    if url := options.nats or read_variable("nats"):
        return str(url)
    raise InvalidError("--nats: is required, for example nats://127.0.0.1:4222")


def run_until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Run the work of a command until it ends, or an interrupt or SIGTERM comes. Returns the exit code."""

    async def run() -> None:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await task

    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(run())
    return 0


@asynccontextmanager
async def connect(address: Address, what: str, closed: Callable[[], Awaitable[None]]) -> AsyncIterator[Client]:
    """A connection as long as a block runs. `what` is its name on the server; `closed` is called when it is lost.

    Raises NatsError if the server refuses the credentials, and one of FAILURES if it cannot be reached.
    """
    client = Client()
    errors: list[Exception] = []

    async def note(error: Exception) -> None:
        errors.append(error)

    try:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(
                    address.hosts,
                    name=f"holdlog {what}",
                    error_cb=note,
                    closed_cb=closed,
                    allow_reconnect=False,
                    reconnect_time_wait=0,
                    max_reconnect_attempts=1,
                    ping_interval=PING_SECONDS,
                    **address.list_options(),
                )
        except FAILURES as error:
            if any(word in str(each).lower() for word in _DENIED for each in (*errors, error)):
                raise NatsError(f"{address.name} refuses the credentials; put them into the URL of --nats") from None
            raise (errors[-1] if errors else error) from None
        yield client
    finally:
        with suppress(Exception):
            async with asyncio.timeout(1):
                await client.close()


def explain(error: BaseException, address: Address) -> str:
    """A failure in one line, for people."""
    match error:
        case ServiceUnavailableError() | NoStreamResponseError():
            return f"{address.name}: JetStream does not respond (nats-server -js)"
        case APIError(description=str(description)):
            return f"{address.name}: {description}"
        case TimeoutError() | nats.errors.TimeoutError():
            return f"{address.name} does not respond"
        case OSError(strerror=str(text)):
            return f"{address.name} cannot be reached: {text}"
        case _:
            return f"{address.name}: {str(error).removeprefix('nats: ') or type(error).__name__}"


class Attempts:
    """Pauses between attempts, and what is reported about them: each problem once, however often it occurs."""

    def __init__(self, address: Address, report: Callable[[str], None]) -> None:
        self._address = address
        self._report = report
        self._problem = ""
        self._pause = SHORTEST_PAUSE

    def succeed(self) -> None:
        if self._problem:
            self._report(f"{self._address.name} is available again")
        self._problem, self._pause = "", SHORTEST_PAUSE

    async def wait(self, problem: str) -> None:
        """Pause after a problem, of random length, so that clients do not return at the same time."""
        if problem != self._problem:
            self._problem = problem
            self._report(f"{problem}; trying again")
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        await asyncio.sleep(pause * random.uniform(0.5, 1))
