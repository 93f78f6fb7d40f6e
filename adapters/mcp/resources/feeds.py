"""Subscribers of resources, and the updates they are still owed.

An update says "read it again" and nothing else. Many changes reach a slow client as one update, so that its backlog is
bounded by what it follows, and nobody waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote

from holdlog.adapters.mcp.resources.following import Changes
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.resource import covering
from holdlog.domain.names import claim_stream

ALL_RECORDS: Final = "record:"
ALL_CLAIMS: Final = "claim:"


class Follow(NamedTuple):
    """What a subscription follows. `streams`: names of streams, or one of the constants above for all streams of a
    kind; only streams that the client `sees` are reported."""

    feed: "Feed"
    streams: tuple[str, ...]
    sees: Callable[[str], bool]


class Subscriber:
    """One client: what it follows, by URI as the client spells it. `send`: sends one update, with no time limit.
    `principal`: the authenticated principal, if any."""

    def __init__(self, send: Callable[[str], Awaitable[None]], principal: str | None = None) -> None:
        self.principal = principal
        self.follows: dict[str, Follow] = {}
        self.ended = False
        self._send = send
        self._owed: dict[str, None] = {}
        self._news = asyncio.Event()

    def owe(self, uri: str) -> None:
        self._owed[uri] = None
        self._news.set()

    def end(self) -> None:
        """End; `run` returns when all pending updates are sent."""
        self.ended = True
        self._news.set()

    async def run(self) -> None:
        """Send pending updates until the end."""
        while True:
            while self._owed:
                uri = next(iter(self._owed))
                del self._owed[uri]
                if uri in self.follows:
                    await self._send(uri)
            if self.ended:
                return
            await self._news.wait()
            self._news.clear()

    def unfollow(self, uri: str) -> None:
        """Stop following a URI; it need not be followed."""
        if (follow := self.follows.pop(uri, None)) is not None:
            follow.feed.remove(self, uri, follow.streams)


class Feed:
    """The feed of one store, for all its subscribers. `idle`: called when the last subscriber has left, or when the
    feed cannot serve any."""

    def __init__(self, engine: Engine, idle: Callable[["Feed"], None]) -> None:
        self.engine = engine
        self._idle = idle
        self._followed: dict[str, set[tuple[Subscriber, str]]] = {}
        self._changes = Changes(engine, self._touched, self._ended)
        self._starting = asyncio.ensure_future(self._changes.start())

    async def add(self, subscriber: Subscriber, uri: str, follow: Follow) -> None:
        """Add a subscriber. From the return on, every later event is reported. Raises refusals; then nothing is
        reported."""
        subscriber.follows[uri] = follow
        for stream in follow.streams:
            self._followed.setdefault(stream, set()).add((subscriber, uri))
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            subscriber.unfollow(uri)
            raise

    def remove(self, subscriber: Subscriber, uri: str, streams: tuple[str, ...]) -> None:
        for stream in streams:
            self._followed[stream].discard((subscriber, uri))
            if not self._followed[stream]:
                del self._followed[stream]
        if not self._followed:
            self._starting.cancel()
            self._changes.stop()
            self._idle(self)

    def _ended(self) -> None:
        """Send the subscribers their pending updates; those who subscribe again see the error."""
        self._idle(self)
        for subscriber in {it for found in self._followed.values() for it, _ in found}:
            subscriber.end()

    def _touched(self, streams: frozenset[str]) -> None:
        for stream in streams:
            for subscriber, uri in self._followed.get(stream.partition(":")[0] + ":", ()):
                if subscriber.follows[uri].sees(stream):
                    subscriber.owe(uri)
        for followed in {followed for stream in streams for followed in self._followed_by(stream)}:
            for subscriber, uri in self._followed.get(followed, ()):
                subscriber.owe(uri)

    def _followed_by(self, stream: str) -> Iterator[str]:
        """The places that show a change of a stream: a claim also shows in all that overlaps it."""
        kind, _, rest = stream.partition(":")
        yield stream
        if kind == "claim":
            yield from map(claim_stream, covering(unquote(rest)))
            if rest.endswith("/"):
                yield from (followed for followed in self._followed if followed.startswith(stream))
