"""Connections to NATS. Each ends with its first error, and the next attempt opens another: a client that reconnects by
itself still delivers what its user has given up."""

import asyncio
import logging
import os
import random
import signal
from argparse import Namespace
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import nats.errors
from nats.aio.client import Client
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.operating_system.location import read_variable
from holdlog.domain.refusals import HoldlogError, InvalidError, UnavailableError

CONNECT_SECONDS: Final = 5.0
RESPONSE_SECONDS: Final = 5.0
"""How long a call of JetStream waits for its response."""
PING_SECONDS: Final = 5
"""Between pings; two without a response end a connection."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to connect; each pause is twice as long as the one before."""
FAILURES: Final = (nats.errors.Error, OSError, TimeoutError, asyncio.InvalidStateError)
"""What any call of NATS may raise; another attempt may succeed."""
_DENIED: Final = ("authorization violation", "permissions violation", "nonce", "user jwt")

logging.getLogger("nats").setLevel(logging.CRITICAL)  # failures are reported here, and once


class NatsError(HoldlogError):
    """NATS cannot be used like this; the message is one line with what to do."""

    code: ClassVar[str] = "nats"


class Server:
    """Where NATS is: one server, or several of a cluster. `name`: without user and password. `report` gets a line about
    each problem, once, however often it occurs, and about its end."""

    def __init__(self, url: str, report: Callable[[str], None]) -> None:
        """Raises InvalidError unless it is a URL of NATS; the message never contains the URL."""
        try:
            parts = [urlsplit(each.strip()) for each in url.split(",")]
            is_good = all(each.scheme in ("nats", "tls") and each.hostname and each.port != 0 for each in parts)
        except ValueError:
            is_good = False
        if not is_good:
            raise InvalidError("the URL of NATS must be nats://host:4222 or tls://host:4222; commas separate several")
        self._urls = [f"{each.scheme}://{each.netloc.rpartition('@')[2]}" for each in parts]
        self._user, self._password = (unquote(text or "") for text in (parts[0].username, parts[0].password))
        self.name = ",".join(self._urls)
        self._report = report
        self._problem = ""
        self._pause = SHORTEST_PAUSE

    @asynccontextmanager
    async def connect(self, what: str, closed: Callable[[], Awaitable[None]]) -> AsyncIterator[Client]:
        """A connection as long as a block runs. `what` is its name on the server; `closed` is called when it is lost.

        Raises NatsError if the server refuses the credentials, and one of FAILURES if it cannot be reached.
        """
        client = Client()
        credentials = self._list_credentials()
        errors: deque[Exception] = deque(maxlen=4)

        async def note(error: Exception) -> None:
            errors.append(error)

        try:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await client.connect(
                        self._urls,
                        name=f"holdlog {what}",
                        error_cb=note,
                        closed_cb=closed,
                        allow_reconnect=False,
                        reconnect_time_wait=0,
                        max_reconnect_attempts=1,
                        ping_interval=PING_SECONDS,
                        **credentials,
                    )
            except FAILURES as error:
                if any(word in str(each).lower() for word in _DENIED for each in (*errors, error)):
                    raise NatsError(f"{self.name} refuses the credentials; put them into the URL") from None
                raise (errors[-1] if errors else error) from None
            except Exception as error:  # the library raises errors of any type for a file that it cannot use
                if "user_credentials" in credentials:
                    raise NatsError(f"HOLDLOG_NATS_CREDS cannot be used: {type(error).__name__}") from None
                raise
            yield client
        finally:
            with suppress(Exception):
                async with asyncio.timeout(1):
                    await client.close()

    def _list_credentials(self) -> dict[str, Any]:
        """A user with a password, a token, or a file with a JWT and its key. Raises InvalidError."""
        if self._user:
            return {"user": self._user, "password": self._password} if self._password else {"token": self._user}
        if (file := os.environ.get("HOLDLOG_NATS_CREDS")) and not os.access(file, os.R_OK):
            raise InvalidError("HOLDLOG_NATS_CREDS: cannot be read")
        return {"user_credentials": file} if file else {}

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """What a block does may fail and is then done again: this reports the problem and pauses."""
        try:
            yield
        except UnavailableError as error:
            await self._wait(str(error))
        except FAILURES as error:
            await self._wait(self._explain(error))

    def succeed(self) -> None:
        """The attempt works."""
        if self._problem:
            self._report(f"{self.name} is available again")
        self._problem, self._pause = "", SHORTEST_PAUSE

    async def _wait(self, problem: str) -> None:
        """Pause for a random time, so that clients do not return at the same moment."""
        if problem != self._problem:
            self._problem = problem
            self._report(f"{problem}; trying again")
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        await asyncio.sleep(pause * random.uniform(0.5, 1))

    def _explain(self, error: BaseException) -> str:
        """A failure in one line, for people."""
        match error:
            case NotFoundError():
                return f"{self.name} has no events of this store yet; add --store for another one"
            case APIError(description=str(description)):
                return f"{self.name}: {description}"
            case ServiceUnavailableError() | NoStreamResponseError():
                return f"{self.name}: JetStream does not respond (nats-server -js)"
            case TimeoutError():
                return f"{self.name} does not respond"
            case OSError(strerror=str(text)):
                return f"{self.name} cannot be reached: {text}"
            case _:
                return f"{self.name}: {str(error).removeprefix('nats: ') or type(error).__name__}"


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
