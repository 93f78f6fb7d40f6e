"""Handlers besides tools, and the capabilities announced for them: exactly those served, in both protocol eras."""

from collections.abc import Sequence
from typing import Any

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    DiscoverResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdlog.adapters.mcp.calling import context_of
from holdlog.adapters.mcp.resources.addresses import templates
from holdlog.adapters.mcp.resources.completions import Completions
from holdlog.adapters.mcp.resources.reading import Context, Resources
from holdlog.adapters.mcp.resources.subscriptions import Subscriptions
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.refusals import InvalidError


def serve_resources(
    server: Server[Any], local: Engine | None, groups: Sequence[str], prefix: str
) -> Subscriptions | None:
    """Serve the requests about resources; None if no group has any. `local`: as for `build_server`."""
    server.notification_options = NotificationOptions()  # type: ignore[attr-defined]  # FastMCP's: all lists change
    server.add_request_handler("server/discover", RequestParams, _Discovery(server))
    if not templates(groups):
        return None

    def context_or_error(ctx: Context) -> RequestContext:
        try:
            return context_of(ctx, local)
        except InvalidError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None

    resources = Resources(context_or_error, groups, prefix)
    subscriptions = Subscriptions(context_or_error, groups, prefix)
    completions = Completions(context_or_error, groups, prefix)
    server.add_request_handler("resources/list", PaginatedRequestParams, resources.listed)
    server.add_request_handler("resources/templates/list", PaginatedRequestParams, resources.templates)
    server.add_request_handler("resources/read", ReadResourceRequestParams, resources.read)
    server.add_request_handler("completion/complete", CompleteRequestParams, completions.complete)
    server.add_request_handler("resources/subscribe", SubscribeRequestParams, subscriptions.subscribe)
    server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, subscriptions.unsubscribe)
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, subscriptions.listen)
    return subscriptions


class _Discovery:
    """`server/discover` as in the SDK, without its claim that lists change wherever clients can listen."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def __call__(self, ctx: Context, params: RequestParams) -> DiscoverResult:
        found = self._server.get_capabilities(protocol_version=ctx.protocol_version)
        fixed = {
            name: part.model_copy(update={"list_changed": False})
            for name in ("tools", "prompts", "resources")
            if (part := getattr(found, name)) is not None
        }
        return DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=found.model_copy(update=fixed),
            instructions=self._server.instructions,
        )
