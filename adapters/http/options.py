"""What `serve --transport http` was told."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HttpOptions:
    """`path`: of MCP. `allowed_hosts`: names besides loopback that a Host header may have; `allowed_origins`: web
    pages of other origins that may read answers (CORS). `open_tokens`: whether anybody gets a token with a space of
    its own by POST /token. Limits are per principal: see limits.py.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    path: str = "/mcp"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    insecure: bool = False
    open_tokens: bool = False
    max_body_bytes: int = 1024 * 1024
    max_in_flight: int = 256
    max_requests_per_minute: int = 6000
