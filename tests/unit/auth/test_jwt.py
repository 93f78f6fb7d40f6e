"""JWT: keys made here, a provider's key set served over real HTTP, and everything that a stranger may try."""

import asyncio
import base64
import gc
import hmac
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jwk, jwt

from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.auth.jwt import JwtBearers
from holdlog.adapters.auth.options import JwtOptions
from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.verifier import Verifier, build_verifier
from holdlog.domain.refusals import InvalidError, UnavailableError

ISSUER, AUDIENCE = "https://login.example", "holdlog"
MINE = jwk.RSAKey.import_key(rsa.generate_private_key(65537, 2048), {"kid": "one"})
STRANGERS = jwk.RSAKey.import_key(rsa.generate_private_key(65537, 2048), {"kid": "one"})
CURVE = jwk.ECKey.import_key(ec.generate_private_key(ec.SECP256R1()), {"kid": "curve"})


class Provider(http.server.ThreadingHTTPServer):
    """Serves `body` with `status`, and counts how often it was asked. One that `drips` never comes to an end."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.body = json.dumps({"keys": [MINE.as_dict(private=False), CURVE.as_dict(private=False), {"kty": "odd"}]})
        self.asked = 0
        self.drips = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/keys"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.status)
        self.end_headers()
        with suppress(OSError):  # the client has gone
            while self.server.drips:
                self.wfile.write(b" ")
                time.sleep(0.01)
        self.wfile.write(self.server.body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    holdlog = open_holdlog(MEMORY)
    yield holdlog
    holdlog.close()


@pytest.fixture
def verifier(provider: Provider, engine: Engine) -> Verifier:
    options = JwtOptions(ISSUER, AUDIENCE, provider.url)
    return build_verifier(engine, {}, None, options, lambda line: None)


def signed(key: Any = MINE, algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A claim that is None is left out."""
    now = int(time.time())
    told = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 60} | claims
    body = {name: value for name, value in told.items() if value is not None}
    top = {"alg": algorithm, "kid": key.kid} | (header or {})
    return jwt.encode(top, body, key, algorithms=[algorithm])


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def unsigned(algorithm: str) -> str:
    now = int(time.time())
    claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 60}
    return f"{encoded({'alg': algorithm, 'kid': 'one'})}.{encoded(claims)}."


def signed_with_the_public_key_as_a_secret() -> str:
    head = unsigned("HS256").rstrip(".")
    tag = hmac.new(MINE.as_pem(private=False), head.encode(), sha256).digest()
    return f"{head}.{base64.urlsafe_b64encode(tag).rstrip(b'=').decode()}"


async def test_jwt_subject_is_the_principal_with_the_grants_of_its_scopes(verifier: Verifier) -> None:
    text = signed(scope="openid holdlog:read:* holdlog:write:build-* profile", sub="auth0|ann", exp=2_000_000_000)
    principal = await verifier.verify(text)
    assert principal is not None
    assert (principal.name, principal.space) == ("jwt:auth0|ann", None)
    assert principal.grants == Grants.parse(["read:*", "write:build-*"])
    assert principal.expires_at == 2_000_000_000_000_000


async def test_grants_may_come_from_a_configured_jwt_claim(verifier: Verifier) -> None:
    for claim in (["read:a b", "claim:src/*"], "read:a claim:src/*"):
        principal = await verifier.verify(signed(holdlog=claim, scp=["holdlog:read:x", "other"]))
        assert principal is not None
        first = "read:a b" if isinstance(claim, list) else "read:a"
        assert principal.grants == Grants.parse(["read:x", first, "claim:src/*"])


async def test_invalid_grants_of_a_jwt_allow_nothing(verifier: Verifier) -> None:
    for claims in ({}, {"scope": "read:* holdlog: holdlog:see:*"}, {"holdlog": {"read": "*"}}, {"holdlog": [7, "x"]}):
        principal = await verifier.verify(signed(**claims))
        assert principal is not None
        assert not any(principal.grants.allows(scope, "n") for scope in ("read", "write", "claim", "admin"))
        assert not principal.grants.sees("agent:ann")


async def test_space_may_come_from_a_jwt_claim(verifier: Verifier) -> None:
    principal = await verifier.verify(signed(holdlog_space="team-1"))
    assert principal is not None
    assert principal.space == "team-1"
    for odd in ("../x", "", 7, ["team-1"]):
        assert await verifier.verify(signed(holdlog_space=odd)) is None


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"iss": None},
        {"iss": [ISSUER]},
        {"aud": "other"},
        {"aud": None},
        {"aud": ["other", "more"]},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": "ann "},
        {"sub": "jose\u0301"},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "x" * 125},
        {"exp": None},
        {"exp": 1_700_000_000},
        {"exp": "never"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": 10**400},
        {"nbf": 4_000_000_000},
        {"nbf": "soon"},
    ],
    ids=repr,
)
async def test_jwt_with_wrong_claims_is_rejected(verifier: Verifier, claims: dict[str, Any]) -> None:
    assert await verifier.verify(signed(**claims)) is None


async def test_one_of_several_jwt_audiences_may_match(verifier: Verifier) -> None:
    assert await verifier.verify(signed(aud=["other", AUDIENCE])) is not None


async def test_jwt_not_signed_by_the_provider_is_rejected(verifier: Verifier) -> None:
    whole = signed()
    head, body, tag = whole.split(".")
    tampered = f"{head}.{encoded({'sub': 'root', 'iss': ISSUER, 'aud': AUDIENCE, 'exp': 2_000_000_000})}.{tag}"
    for text in (
        signed(STRANGERS),
        signed(CURVE, "ES256"),
        signed(algorithm="RS512"),
        unsigned("none"),
        unsigned("RS256"),
        signed_with_the_public_key_as_a_secret(),
        tampered,
        f"{head}.{body}.",
        "a.b.c",
        "..",
        f"{encoded({'alg': 'RS256', 'kid': ['one']})}.{body}.{tag}",
        f"{encoded([])}.{body}.{tag}",
        f"{encoded({'alg': 'RS256', 'crit': ['x']})}.{body}.{tag}",
    ):
        assert await verifier.verify(text) is None, text
    assert await verifier.verify(whole) is not None


async def test_unknown_key_does_not_cause_repeated_key_requests(verifier: Verifier, provider: Provider) -> None:
    assert await verifier.verify(signed()) is not None
    for number in range(20):
        assert await verifier.verify(signed(header={"kid": f"other-{number}"})) is None
    assert provider.asked <= 2


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collection: at the recursion limit, no finalizer of an earlier test could run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, "{}"),
        (200, "no JSON"),
        (200, "[]"),
        (404, ""),
        pytest.param(200, "[" * 100_000, id="200-deep"),
        (200, '{"keys": 1}'),
    ],
)
async def test_failing_provider_means_unavailable_and_not_a_wrong_token(
    verifier: Verifier, provider: Provider, status: int, body: str
) -> None:
    provider.status, provider.body = status, body
    for _ in range(3):
        with pytest.raises(UnavailableError, match="keys cannot be fetched"):
            await verifier.verify(signed())
    assert provider.asked == 1


async def test_slow_provider_is_waited_for_within_the_time_limit(
    verifier: Verifier, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.auth.jwt.FETCH_SECONDS", 0.2)
    provider.drips = True
    async with asyncio.timeout(20):
        with pytest.raises(UnavailableError, match="keys cannot be fetched"):
            await verifier.verify(signed())
    provider.drips = False


async def test_recovered_provider_is_asked_again(
    provider: Provider, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.auth.jwt.REFRESH_SECONDS", 0.0)
    verifier = Verifier(engine, jwt=JwtBearers(JwtOptions(ISSUER, AUDIENCE, provider.url)))
    provider.status = 500
    with pytest.raises(UnavailableError):
        await verifier.verify(signed())
    provider.status = 200
    assert await verifier.verify(signed()) is not None


async def test_cached_jwt_expires_at_its_exact_time(verifier: Verifier) -> None:
    text = signed(exp=time.time() + 1)
    assert await verifier.verify(text) is not None
    deadline = time.monotonic() + 30
    while await verifier.verify(text) is not None:
        assert time.monotonic() < deadline
    assert await verifier.verify(text) is None


async def test_jwt_is_rejected_without_jwt_options(engine: Engine, provider: Provider) -> None:
    assert await Verifier(engine).verify(signed()) is None
    assert provider.asked == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (JwtOptions("", AUDIENCE, "https://x/keys"), "--jwt-issuer"),
        (JwtOptions(ISSUER, " ", "https://x/keys"), "--jwt-audience"),
        (JwtOptions(ISSUER, AUDIENCE, ""), "--jwt-jwks-url"),
        (JwtOptions(ISSUER, AUDIENCE, "http://login.example/keys"), "--jwt-jwks-url"),
        (JwtOptions(ISSUER, AUDIENCE, "http://localhost.evil.example/keys"), "--jwt-jwks-url"),
        (JwtOptions(ISSUER, AUDIENCE, "file:///etc/keys"), "--jwt-jwks-url"),
        (JwtOptions(ISSUER, AUDIENCE, "https://"), "--jwt-jwks-url"),
        (JwtOptions(ISSUER, AUDIENCE, "https://x/keys", "HS256"), "--jwt-algorithm"),
        (JwtOptions(ISSUER, AUDIENCE, "https://x/keys", "none"), "--jwt-algorithm"),
    ],
)
def test_invalid_jwt_options_are_reported_in_one_line(options: JwtOptions, named: str) -> None:
    with pytest.raises(InvalidError) as refused:
        JwtBearers(options)
    assert str(refused.value).startswith(f"{named}: ")
    assert len(str(refused.value).splitlines()) == 1
