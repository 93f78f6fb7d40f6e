"""The options of `holdlog serve --transport http`, and its start."""

import argparse
import gc
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.auth.options import AuthOptions, JwtOptions
from holdlog.adapters.cli.proof import AnchorOptions, start_anchoring
from holdlog.adapters.cli.settings import add_options, given_options, read_options
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.operating_system.location import shown, without_password
from holdlog.adapters.operating_system.options import declared
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.http.authentication import TokenVerifier
    from holdlog.adapters.nats.options import NatsOptions
    from holdlog.adapters.runtime.engine import Engine

_PATH: Final = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+/?")
_HOST: Final = re.compile(r"\*|(\*\.)?[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+/?")
_TAKEN: Final = ("/kv", "/claims", "/events", "/hook", "/token", "/metrics", "/healthz", "/readyz", "/openapi.json")


def add_http_options(serve: argparse.ArgumentParser) -> None:
    http = serve.add_argument_group("over HTTP", "docs/http.md describes these options.")
    for model in (HttpOptions, AuthOptions, JwtOptions, AnchorOptions):
        add_options(http, model)


def serve_http(
    options: argparse.Namespace,
    location: Path | str,
    settings: "Settings",
    groups: Sequence[str],
    tool_prefix: str,
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

    http, auth = http_options_of(options), read_options(AuthOptions, options)
    mcp = build_server(None, groups, tool_prefix)
    bound = bound_socket(http.host, http.port)
    engine = background = anchoring = None
    try:
        engine = open_holdlog(location, settings, what="http", report=print_note)
        prepare(engine)
        verifier = _verifier_of(auth, _jwt_of(options), http.open_tokens, engine, print_note)
        if verifier is None and not auth.insecure:
            _require_safe(http, bound.getsockname()[0])
        background = publish_to_nats(engine, location, nats) if nats is not None else None
        anchoring = start_anchoring(engine.store, read_options(AnchorOptions, options))
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
        if anchoring is not None:
            anchoring.stop()
        if background is not None:
            background.stop()
        if engine is not None:
            engine.close()
    return 0


def _freeze_objects() -> None:
    """Exempt imported objects from garbage collection: each scan of them would block all calls for 0.1 s."""
    gc.collect()
    gc.freeze()


def http_options_of(options: argparse.Namespace) -> HttpOptions:
    """The options of the HTTP server. Raises InvalidError."""
    http = read_options(HttpOptions, options)
    if not _PATH.fullmatch(http.path) or f"/{http.path.split('/')[1]}" in _TAKEN:
        raise InvalidError("--path: must look like /mcp, and must not be a path that holdlog uses already")
    if wrong := [name for name in http.allowed_hosts if not _HOST.fullmatch(name)]:
        raise InvalidError(f"--allowed-host: {shown(wrong[0])} must look like holdlog.example, *.example or *")
    if wrong := [origin for origin in http.allowed_origins if origin != "*" and not _ORIGIN.fullmatch(origin)]:
        raise InvalidError(f"--allowed-origin: {shown(wrong[0])} must look like https://app.example")
    if wrong := [proxy for proxy in http.trusted_proxies if not _is_network(proxy)]:
        raise InvalidError(f"--trusted-proxy: {shown(wrong[0])} must look like 10.0.0.7 or 10.0.0.0/8")
    return replace(http, path=http.path.rstrip("/"))


def _verifier_of(
    auth: AuthOptions, jwt: JwtOptions | None, open_tokens: bool, engine: "Engine", report: Callable[[str], None]
) -> "TokenVerifier | None":
    """The verifier of tokens; None: no token is required. Raises InvalidError if a token is required but no valid one
    can exist."""
    from holdlog.adapters.runtime.verifier import build_verifier

    verifier = build_verifier(engine, os.environ, auth.auth_token_file, jwt, report)
    if auth.auth and not open_tokens and not verifier.offers_any():
        raise InvalidError(
            "--auth: there is no token; create one with holdlog token create --name me --allow 'admin:*',"
            " or name a file with --auth-token-file"
        )
    return verifier if auth.auth or open_tokens or verifier.is_requested() else None


def _jwt_of(options: argparse.Namespace) -> JwtOptions | None:
    given = given_options(JwtOptions, options)
    required = [option for option in declared(JwtOptions) if option.default is None]
    if missing := [option.flag for option in required if not given.get(option.field)]:
        if len(missing) < len(required):
            raise InvalidError(f"{' and '.join(missing)}: required with the other --jwt options")
        return None
    return JwtOptions(**given)


def _require_safe(http: HttpOptions, address: str) -> None:
    """Check that the options of a server that requires no token are safe together. Raises InvalidError."""
    if not ip_address(address.partition("%")[0]).is_loopback:
        raise InvalidError(
            f"--host: other machines can reach {http.host} and no token is required; create one with holdlog token"
            " create, or name a file with --auth-token-file (--insecure serves without tokens)"
        )
    if "*" in http.allowed_origins:
        raise InvalidError(
            "--allowed-origin: * would let every web page call, because no token is required; name the origins"
        )
    if "*" in http.allowed_hosts:  # a page may point its own name here (DNS rebinding)
        raise InvalidError(
            "--allowed-host: * would let every web page call, because no token is required; name the hosts"
        )


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True
