"""The options of `holdlog serve --transport http`, and how it starts."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdlog.adapters.cli.settings import environment, port

if TYPE_CHECKING:
    from holdlog.adapters.call import Settings
    from holdlog.adapters.nats.options import NatsOptions


def add_http_options(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--transport",
        default=environment("TRANSPORT", "stdio"),
        choices=("stdio", "http"),
        help="stdio: one client, on standard input and output; http: many (default: stdio)",
    )
    http = serve.add_argument_group("over HTTP (docs/http.md)")
    http.add_argument("--host", default=environment("HOST", "127.0.0.1"), help="address to bind (default: 127.0.0.1)")
    http.add_argument("--port", default=environment("PORT", "8420"), type=port, help="0: any free one (default: 8420)")
    http.add_argument("--path", default=environment("PATH", "/mcp"), help="path of MCP (default: /mcp)")


def serve_http(
    options: argparse.Namespace,
    place: Path | str,
    settings: "Settings",
    groups: Sequence[str],
    nats: "NatsOptions | None",
) -> int:
    from holdlog.adapters.cli.texts import tell
    from holdlog.adapters.compose import open_holdlog, tell_nats
    from holdlog.adapters.http.app import build_app
    from holdlog.adapters.http.options import HttpOptions
    from holdlog.adapters.http.running import run_http
    from holdlog.adapters.mcp.server import build_server
    from holdlog.adapters.spaces import Spaces

    http = HttpOptions(host=options.host, port=options.port, path=options.path)
    opened = open_holdlog(place, settings, what="http", tell=tell)
    opened.keeps = False
    beside = tell_nats(opened, place, nats) if nats is not None else None
    try:
        spaces = Spaces(place, opened, settings)
        run_http(build_app(build_server(None, groups, options.tool_prefix), spaces, None, http), http)
    finally:
        if beside is not None:
            beside.stop()
        opened.close()
    return 0
