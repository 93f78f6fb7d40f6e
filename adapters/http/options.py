"""The options of `serve --transport http`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class HttpOptions:
    """Options of the HTTP server. `path`: of MCP. `allowed_hosts`: names besides loopback that a Host header may have;
    `allowed_origins`: of web pages that may call and read responses (CORS). `trusted_proxies`: addresses whose
    X-Forwarded-For is trusted. `open_tokens`: whether POST /token gives everybody a token with a new space. `drain`:
    seconds between `/readyz` reporting not ready and the end of listening.

    Limits of one principal or, without authentication, one address: `max_in_flight` concurrent requests, waits and
    streams included; `max_requests` and `max_upload` (bytes of bodies) per minute; 0: no limit. Of a store: `max_keys`,
    soft. Of the server: `max_connections`, and `max_spaces` open at once (0: as many as suit the store).
    """

    host: str = "127.0.0.1"
    port: int = 8420
    path: str = "/mcp"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    open_tokens: bool = False
    drain: float = 0.0
    access_log: Literal["off", "text", "json"] = "off"
    max_body_bytes: int = 1024 * 1024
    max_connections: int = 4096
    max_in_flight: int = 256
    max_requests: int = 6_000
    max_upload: int = 64 * 1024 * 1024
    max_keys: int = 1_000_000
    max_spaces: int = 0
