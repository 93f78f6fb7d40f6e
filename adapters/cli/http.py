"""The options of `holdlog serve --transport http`, and its start."""

import argparse
import gc
import os
import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.settings import LARGEST_VALUE, environment, log_format, port, switched, whole_from
from holdlog.adapters.operating_system.location import shown, without_password
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.request import Settings
    from holdlog.adapters.auth.jwt import JwtOptions
    from holdlog.adapters.http.authentication import TokenVerifier
    from holdlog.adapters.http.options import HttpOptions
    from holdlog.adapters.nats.options import NatsOptions
    from holdlog.adapters.runtime.engine import Engine

_PATH: Final = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+/?")
_HOST: Final = re.compile(r"\*|(\*\.)?[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+/?")
_TAKEN: Final = ("/kv", "/claims", "/events", "/token", "/metrics", "/healthz", "/readyz", "/openapi.json")


def add_http_options(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--transport",
        default=environment("TRANSPORT", "stdio"),
        choices=("stdio", "http"),
        help="stdio: one client, on standard input and output; http: many clients (default: stdio)",
    )
    http = serve.add_argument_group("over HTTP", "docs/http.md describes these options.")

    def add(name: str, metavar: str, help_text: str, fallback: str = "", kind: Any = str) -> None:
        given = environment(_variable(name), fallback)
        shown_help = f"{help_text} (default: {fallback or 'none'})"
        http.add_argument(name, metavar=metavar, type=kind, default=given or None, help=shown_help)

    def several(name: str, metavar: str, help_text: str) -> None:
        given = [word.strip() for word in environment(_variable(name), "").split(",") if word.strip()]
        http.add_argument(
            name, metavar=metavar, action="append", default=given, help=f"{help_text}; repeatable (default: none)"
        )

    def switch(name: str, help_text: str) -> None:
        given = environment(_variable(name), "") or False
        http.add_argument(name, action="store_true", default=given, help=help_text).type = switched

    add("--host", "ADDRESS", "the address to listen on", "127.0.0.1")
    add("--port", "PORT", "the port; 0: any free port, which is printed at start", "8420", port)
    add("--path", "PATH", "the path of MCP in URLs", "/mcp")
    several(
        "--allowed-host",
        "NAME",
        "accept this host name in URLs, for example holdlog.example; loopback is always accepted",
    )
    several("--allowed-origin", "ORIGIN", "web pages that may call (CORS), for example https://app.example")
    several("--trusted-proxy", "ADDRESS", "a proxy whose X-Forwarded-For is the client's address")
    switch("--insecure", "require no token even on addresses that other machines can reach (default: refuse to start)")
    switch("--auth", "require tokens, and refuse to start if there is none (default: require them if there is one)")
    http.add_argument(
        "--auth-token-file",
        metavar="FILE",
        help="a file with one token that allows everything; or set HOLDLOG_AUTH_TOKEN (default: none)",
    )
    add("--jwt-issuer", "URL", "accept JWTs of this issuer; needs --jwt-audience and --jwt-jwks-url")
    add("--jwt-audience", "TEXT", "the audience that JWTs must have")
    add("--jwt-jwks-url", "URL", "the public keys of the issuer")
    add("--jwt-algorithm", "NAME", "the signature algorithm of JWTs", "RS256")
    switch("--open-tokens", "anybody can create a token with a new space by POST /token (default: nobody)")
    add("--max-requests", "N", "requests per minute and principal; 0: no limit", "6000", _up_to(10**9))
    add("--max-in-flight", "N", "concurrent requests per principal, waits included; 0: no limit", "256", _up_to(10**6))
    add(
        "--max-upload",
        "BYTES",
        "bytes of request bodies per minute and principal; 0: no limit",
        "67108864",
        _up_to(10**12),
    )
    add("--max-keys", "N", "keys in one store, counted periodically; 0: no limit", "1000000", _up_to(10**12))
    add("--max-body-bytes", "N", "bytes of one request body", "1048576", whole_from(1024, 2 * LARGEST_VALUE))
    add("--max-spaces", "N", "spaces open at once; 0: 256 in files, 24 in a database", "0", _up_to(10**5))
    add("--max-connections", "N", "connections open at once", "4096", whole_from(1, 10**6))
    add("--access-log", "FORMAT", "log each request on stderr, without secrets: off, text or json", "off", log_format)
    add("--drain-seconds", "SECONDS", "time between /readyz reporting not ready and closing the port", "0", _up_to(600))


def serve_http(
    options: argparse.Namespace,
    location: Path | str,
    settings: "Settings",
    groups: Sequence[str],
    nats: "NatsOptions | None",
) -> int:
    """Serve until shutdown. Raises one-line refusals of invalid settings before anything runs."""
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, publish_to_nats
    from holdlog.adapters.http.app import build_app
    from holdlog.adapters.http.edge.key_quota import KeyQuota
    from holdlog.adapters.http.running import bound_socket, server_of, url_of
    from holdlog.adapters.http.shutdown import Shutdown
    from holdlog.adapters.http.tenants import Tenants
    from holdlog.adapters.mcp.server import build_server

    def prepare(store: "Engine") -> None:
        if http.max_keys:
            store.check_quota = KeyQuota(store, http.max_keys).require

    http = http_options_of(options)
    mcp = build_server(None, groups, options.tool_prefix)
    bound = bound_socket(http.host, http.port)
    engine = background = None
    try:
        engine = open_holdlog(location, settings, what="http", report=print_note)
        prepare(engine)
        verifier = _verifier_of(options, engine, print_note)
        _require_safe(options, bound.getsockname()[0], verifier is not None)
        background = publish_to_nats(engine, location, nats) if nats is not None else None
        spaces = Tenants(location, engine, settings, http.max_spaces or None, prepare)
        ending = Shutdown()
        relay = None if background is None else lambda: background.status
        app = build_app(mcp, spaces, verifier, http, ending, relay)
        who = "tokens are required" if verifier is not None else "no token is required"
        ready = f"serving {url_of(bound)} (MCP at {http.path}), store {without_password(location)}; {who}"

        def begin() -> None:
            _freeze_objects()
            print_note(ready)

        server_of(app, http, ending, begin).run(sockets=[bound])
    finally:
        bound.close()
        if background is not None:
            background.stop()
        if engine is not None:
            engine.close()
    return 0


def _freeze_objects() -> None:
    """Exempt imported objects from garbage collection: each scan of them would block all calls for 0.1 s."""
    gc.collect()
    gc.freeze()


def http_options_of(options: argparse.Namespace) -> "HttpOptions":
    """The options of the HTTP server. Raises InvalidError."""
    from holdlog.adapters.http.options import HttpOptions

    if not _PATH.fullmatch(options.path) or f"/{options.path.split('/')[1]}" in _TAKEN:
        raise InvalidError("--path: must look like /mcp, and must not be a path that holdlog uses already")
    if wrong := [name for name in options.allowed_host if not _HOST.fullmatch(name)]:
        raise InvalidError(f"--allowed-host: {shown(wrong[0])} must look like holdlog.example, *.example or *")
    if wrong := [origin for origin in options.allowed_origin if origin != "*" and not _ORIGIN.fullmatch(origin)]:
        raise InvalidError(f"--allowed-origin: {shown(wrong[0])} must look like https://app.example")
    if wrong := [proxy for proxy in options.trusted_proxy if not _is_network(proxy)]:
        raise InvalidError(f"--trusted-proxy: {shown(wrong[0])} must look like 10.0.0.7 or 10.0.0.0/8")
    return HttpOptions(
        host=options.host,
        port=options.port,
        path=options.path.rstrip("/"),
        access_log=options.access_log,
        allowed_hosts=tuple(options.allowed_host),
        allowed_origins=tuple(options.allowed_origin),
        trusted_proxies=tuple(options.trusted_proxy),
        open_tokens=options.open_tokens,
        drain=options.drain_seconds,
        max_body_bytes=options.max_body_bytes,
        max_connections=options.max_connections,
        max_in_flight=options.max_in_flight,
        max_requests=options.max_requests,
        max_upload=options.max_upload,
        max_keys=options.max_keys,
        max_spaces=options.max_spaces,
    )


def _verifier_of(
    options: argparse.Namespace, engine: "Engine", report: Callable[[str], None]
) -> "TokenVerifier | None":
    """The verifier of tokens; None: no token is required. Raises InvalidError if a token is required but no valid one
    can exist."""
    from holdlog.adapters.runtime.verifier import build_verifier

    verifier = build_verifier(engine, os.environ, options.auth_token_file, _jwt_of(options), report)
    if options.auth and not options.open_tokens and not verifier.offers_any():
        raise InvalidError(
            "--auth: there is no token; create one with holdlog token create --name me --allow 'admin:*',"
            " or name a file with --auth-token-file"
        )
    return verifier if options.auth or options.open_tokens or verifier.is_requested() else None


def _jwt_of(options: argparse.Namespace) -> "JwtOptions | None":
    from holdlog.adapters.auth.jwt import JwtOptions

    given = {name: getattr(options, f"jwt_{name}") for name in ("issuer", "audience", "jwks_url")}
    if missing := [f"--jwt-{name.replace('_', '-')}" for name, value in given.items() if not value]:
        if len(missing) < len(given):
            raise InvalidError(f"{' and '.join(missing)}: required with the other --jwt options")
        return None
    return JwtOptions(**given, algorithm=options.jwt_algorithm)


def _require_safe(options: argparse.Namespace, address: str, has_tokens: bool) -> None:
    """Check that the options are safe together. Raises InvalidError."""
    if has_tokens or options.insecure:
        return
    if not ip_address(address.partition("%")[0]).is_loopback:
        raise InvalidError(
            f"--host: other machines can reach {options.host} and no token is required; create one with holdlog token"
            " create, or name a file with --auth-token-file (--insecure serves without tokens)"
        )
    if "*" in options.allowed_origin:
        raise InvalidError(
            "--allowed-origin: * would let every web page call, because no token is required; name the origins"
        )
    if "*" in options.allowed_host:  # a page may point its own name here (DNS rebinding)
        raise InvalidError(
            "--allowed-host: * would let every web page call, because no token is required; name the hosts"
        )


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def _variable(option: str) -> str:
    return option.strip("-").replace("-", "_").upper()


def _up_to(most: int) -> Any:
    return whole_from(0, most)
