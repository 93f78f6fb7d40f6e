"""The options of `serve --transport http`."""

from dataclasses import dataclass
from typing import Literal

from holdlog.adapters.operating_system.options import LARGEST_VALUE, PORT, SWITCH, one_of, option, text, whole_from


@dataclass(frozen=True)
class HttpOptions:
    """Options of the HTTP server. `max_requests`, `max_in_flight` and `max_upload` limit one principal or, without
    authentication, one address; `max_keys` limits a store, softly."""

    host: str = option("the address to listen on", text("ADDRESS"), default="127.0.0.1")
    port: int = option("the port; 0: any free port, which is printed at start", PORT, default=8420)
    path: str = option("the path of MCP in URLs", text("PATH"), default="/mcp")
    allowed_hosts: tuple[str, ...] = option(
        "accept this host name in URLs, for example holdlog.example (with a port: only that port), *.example, or *"
        " for any if tokens are required; loopback is always accepted",
        text("NAME"),
        name="allowed_host",
        is_list=True,
        default=(),
    )
    allowed_origins: tuple[str, ...] = option(
        "web pages that may call and read responses (CORS), for example https://app.example",
        text("ORIGIN"),
        name="allowed_origin",
        is_list=True,
        default=(),
    )
    trusted_proxies: tuple[str, ...] = option(
        "the address or network of a proxy whose X-Forwarded-For is the client's address",
        text("ADDRESS"),
        name="trusted_proxy",
        is_list=True,
        default=(),
    )
    open_tokens: bool = option(
        "anybody can create a token with a new space by POST /token, 60 per hour and address",
        SWITCH,
        unset="nobody",
        default=False,
    )
    max_requests: int = option("requests per minute and principal; 0: no limit", whole_from(0, 10**9), default=6_000)
    max_in_flight: int = option(
        "concurrent requests per principal, waits and streams included; 0: no limit", whole_from(0, 10**6), default=256
    )
    max_upload: int = option(
        "bytes of request bodies per minute and principal; 0: no limit",
        whole_from(0, 10**12, "BYTES"),
        default=64 * 1024 * 1024,
    )
    max_keys: int = option(
        "keys and threads in one store, counted every 10 s at most; 0: no limit",
        whole_from(0, 10**12),
        default=1_000_000,
    )
    max_body_bytes: int = option(
        "bytes of one request body", whole_from(1024, 2 * LARGEST_VALUE), default=5 * 1024 * 1024
    )
    max_spaces: int = option("spaces open at once; 0: 256 in files, 24 in a database", whole_from(0, 10**5), default=0)
    max_connections: int = option("connections open at once", whole_from(1, 10**6), default=4096)
    access_log: Literal["off", "text", "json"] = option(
        "log each request on stderr, without secrets: off, text or json",
        one_of("FORMAT", "off", "text", "json"),
        default="off",
    )
    drain: float = option(
        "time between /readyz reporting not ready and closing the port",
        whole_from(0, 600, "SECONDS"),
        name="drain_seconds",
        default=0.0,
    )
