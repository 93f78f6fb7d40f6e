"""Notifies clients which resources changed: `resources/subscribe` in protocol versions up to 2025-11-25,
`subscriptions/listen` in later ones."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY, ResourceUpdated, event_to_notification
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from holdlog.adapters.mcp.errors import translated
from holdlog.adapters.mcp.resources.addresses import CLAIMS, Address, OfClaim, OfValue, address_of
from holdlog.adapters.mcp.resources.feeds import ALL_CLAIMS, ALL_RECORDS, Feed, Follow, Subscriber
from holdlog.adapters.mcp.resources.reading import Context, ContextOf, reading
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.names import claim_stream, name, record_stream
from holdlog.domain.refusals import DeniedError, InvalidError

MOST_OF_ONE: Final = 256
"""The most resources of one client: a connection, or a stream of `subscriptions/listen`."""
MOST_CLIENTS: Final = 1024
MOST_IN_ALL: Final = 16 * 1024
"""Resources that all clients together may follow."""
SHARE: Final = 4
"""One principal may use one part in SHARE of MOST_CLIENTS and MOST_IN_ALL, so that it cannot shut out the others."""

GIVE_UP: Final = "holdlog/give-up"
"""Key in the state of a connection: called when its updates stop, as when its store was closed."""

_STATE: Final = "holdlog/subscriber"
_log = logging.getLogger("holdlog")


class Subscriptions:
    """The subscription requests. A client that is gone is dropped automatically."""

    def __init__(self, context_of: ContextOf, groups: Sequence[str], prefix: str) -> None:
        self._context_of = context_of
        self._groups = groups
        self._prefix = prefix
        self._feeds: dict[Engine, Feed] = {}
        self._clients: set[Subscriber] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Subscribe until `unsubscribe` or the end of the connection. The resource may be missing."""
        context = self._context(ctx)
        with translated(ctx, params.uri, context.requests, self._prefix):
            await self._follow(self._connected(ctx, context), params.uri, context)
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Unsubscribe; the resource need not be subscribed to."""
        subscriber: Subscriber | None = ctx.session._connection.state.get(_STATE)
        if subscriber is not None:
            subscriber.unfollow(params.uri)
        return EmptyResult()

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Acknowledge what the client may read of its request, and no list changes: our lists never change.

        Returns when the client disconnects or `close` is called.
        """
        if ctx.request_id is None:
            raise MCPError(INVALID_REQUEST, "subscriptions/listen: requires a request id")
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}

        async def send(uri: str) -> None:
            update = event_to_notification(ResourceUpdated(uri), meta)
            await ctx.session.send_notification(update, related_request_id=ctx.request_id)

        context = self._context(ctx)
        subscriber = self._client(Subscriber(send, context.caller.principal))
        try:
            for uri in dict.fromkeys(params.notifications.resource_subscriptions or ()):
                with translated(ctx, uri, context.requests, self._prefix), suppress(InvalidError, DeniedError):
                    await self._follow(subscriber, uri, context)
            honored = SubscriptionFilter(resource_subscriptions=list(subscriber.follows) or None)
            acknowledged = SubscriptionsAcknowledgedNotification(
                params=SubscriptionsAcknowledgedNotificationParams(notifications=honored, meta=meta)
            )
            await ctx.session.send_notification(acknowledged, related_request_id=ctx.request_id)
            await subscriber.run()
        finally:
            self._unsubscribe(subscriber)
        return SubscriptionsListenResult(meta=meta)

    def close(self) -> None:
        """End every listening stream cleanly, after sending its pending updates."""
        for subscriber in self._clients:
            subscriber.end()

    def _context(self, ctx: Context) -> RequestContext:
        context = self._context_of(ctx)
        context.engine.lease_maintenance.record_call(context.caller.session)
        return context

    def _connected(self, ctx: Context, context: RequestContext) -> Subscriber:
        """The subscriber of a connection, from its first subscription to its end."""
        connection = ctx.session._connection
        found: Subscriber | None = connection.state.get(_STATE)
        if found is not None and not found.ended:
            return found
        session = ctx.session

        async def send(uri: str) -> None:
            await session.send_resource_updated(uri)

        connection.state[_STATE] = subscriber = self._client(Subscriber(send, context.caller.principal))
        give_up = connection.state.get(GIVE_UP, lambda: None)
        serving = asyncio.create_task(self._forward(subscriber, give_up), name="holdlog-subscriber")
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        connection.exit_stack.callback(serving.cancel)
        return subscriber

    async def _forward(self, subscriber: Subscriber, give_up: Callable[[], None]) -> None:
        try:
            await subscriber.run()
        except Exception as error:
            _log.debug("a subscriber disconnected: %s", type(error).__name__)
        finally:
            subscriber.ended = True
            self._unsubscribe(subscriber)
            give_up()

    def _client(self, subscriber: Subscriber) -> Subscriber:
        for clients, most in self._shares(subscriber, MOST_CLIENTS):
            if len(clients) >= most:
                raise MCPError(
                    INTERNAL_ERROR,
                    f"{most} clients already subscribe to resources, which is the limit; try again later",
                )
        self._clients.add(subscriber)
        return subscriber

    def _shares(self, subscriber: Subscriber, most: int) -> Iterator[tuple[Collection[Subscriber], int]]:
        """The clients that share a bound with this one, and the bound: all, and those of its principal."""
        yield self._clients, most
        if subscriber.principal is not None:
            yield [it for it in self._clients if it.principal == subscriber.principal], most // SHARE

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        self._clients.discard(subscriber)
        for uri in list(subscriber.follows):
            subscriber.unfollow(uri)

    async def _follow(self, subscriber: Subscriber, uri: str, context: RequestContext) -> None:
        """Follow a resource. Raises refusals, including DeniedError if the caller may not read it."""
        address = address_of(uri, self._groups)
        reading(address, context.requests)
        if uri in subscriber.follows:
            return
        if len(subscriber.follows) >= MOST_OF_ONE:
            raise MCPError(
                INVALID_PARAMS,
                f"a client may subscribe to at most {MOST_OF_ONE} resources; unsubscribe from some first",
                {"uri": uri},
            )
        for clients, most in self._shares(subscriber, MOST_IN_ALL):
            if sum(len(client.follows) for client in clients) >= most:
                raise MCPError(
                    INTERNAL_ERROR, f"{most} resources already have subscribers, which is the limit; try again later"
                )
        engine = context.engine
        if engine not in self._feeds:
            self._feeds[engine] = Feed(engine, self._idle)
        feed = self._feeds[engine]
        await feed.add(subscriber, uri, Follow(feed, _streams(address, engine), context.grants.sees))

    def _idle(self, feed: Feed) -> None:
        if self._feeds.get(feed.engine) is feed:
            del self._feeds[feed.engine]


def _streams(address: Address, engine: Engine) -> tuple[str, ...]:
    match address:
        case OfValue(namespace=namespace, key=key):
            return (record_stream(name(namespace), name(key)),)
        case OfClaim(resource=resource):
            return tuple(map(claim_stream, engine.requests.claims.spellings(resource)))
        case _:
            return (ALL_CLAIMS if address.uri == CLAIMS else ALL_RECORDS,)
