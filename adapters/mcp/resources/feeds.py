"""Who follows which resources, and what they were not told yet.

An update says "read it again" and nothing else. Of many changes a slow client hears once, so that what it is owed is
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
    """`places`: streams, or one of the above for all of a kind; of these those that the client `sees`."""

    feed: "Feed"
    places: tuple[str, ...]
    sees: Callable[[str], bool]


class Subscriber:
    """One client: what it follows, by URI as the client spells it. `send`: one update; may take as long as it likes.
    `principal`: who it is for, where somebody was authenticated."""

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
        """`run` returns when all that is owed was sent."""
        self.ended = True
        self._news.set()

    async def run(self) -> None:
        """Send what is owed until the end."""
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
        """Also what it does not follow."""
        if (follow := self.follows.pop(uri, None)) is not None:
            follow.feed.remove(self, uri, follow.places)


class Feed:
    """Of one store, for all who follow something there. `idle`: called when nobody does any more, or nobody can."""

    def __init__(self, engine: Engine, idle: Callable[["Feed"], None]) -> None:
        self.engine = engine
        self._idle = idle
        self._followed: dict[str, set[tuple[Subscriber, str]]] = {}
        self._changes = Changes(engine, self._touched, self._ended)
        self._starting = asyncio.ensure_future(self._changes.start())

    async def add(self, subscriber: Subscriber, uri: str, follow: Follow) -> None:
        """When this returns, every later event is told. Raises refusals; then nothing is."""
        subscriber.follows[uri] = follow
        for place in follow.places:
            self._followed.setdefault(place, set()).add((subscriber, uri))
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            subscriber.unfollow(uri)
            raise

    def remove(self, subscriber: Subscriber, uri: str, places: tuple[str, ...]) -> None:
        for place in places:
            self._followed[place].discard((subscriber, uri))
            if not self._followed[place]:
                del self._followed[place]
        if not self._followed:
            self._starting.cancel()
            self._changes.stop()
            self._idle(self)

    def _ended(self) -> None:
        """Whoever follows something here is told what it is owed; who subscribes again learns what is wrong."""
        self._idle(self)
        for subscriber in {it for found in self._followed.values() for it, _ in found}:
            subscriber.end()

    def _touched(self, streams: frozenset[str]) -> None:
        for stream in streams:
            for subscriber, uri in self._followed.get(stream.partition(":")[0] + ":", ()):
                if subscriber.follows[uri].sees(stream):
                    subscriber.owe(uri)
        for place in {place for stream in streams for place in self._places(stream)}:
            for subscriber, uri in self._followed.get(place, ()):
                subscriber.owe(uri)

    def _places(self, stream: str) -> Iterator[str]:
        """Where a change of a stream shows: that of a claim also in whatever overlaps it."""
        kind, _, rest = stream.partition(":")
        yield stream
        if kind == "claim":
            yield from map(claim_stream, covering(unquote(rest)))
            if rest.endswith("/"):
                yield from (place for place in self._followed if place.startswith(stream))
