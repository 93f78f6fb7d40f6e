"""Who may do what over HTTP: tokens of the store, JWT, scopes, spaces, names."""

import json
import threading
import time
from datetime import datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.mcp import MODERN, OverHttp
from tests.support.programs import HttpServer, run
from tests.support.waiting import until
from tests.support.wire import EventStream

pytestmark = pytest.mark.xdist_group("access")
ISSUER, AUDIENCE = "https://login.example", "holdlog"


class Provider(ThreadingHTTPServer):
    """Of identities: serves its public key."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), KeySet)
        self.key, self.strange_key = (rsa.generate_private_key(65537, 2048) for _ in "12")
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        self.body = json.dumps({"keys": [public | {"kid": "one", "alg": "RS256", "use": "sig"}]}).encode()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def token(self, scope="", key=None, algorithm="RS256", **claims):
        now = int(time.time())
        claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 600, "scope": scope} | claims
        claims = {name: it for name, it in claims.items() if it is not None}
        return jwt.encode(claims, key or self.key, algorithm, headers={"kid": "one"})


class KeySet(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def provider():
    with Provider() as provider:
        yield provider
        provider.shutdown()


class Guarded:
    """A server that needs tokens: those of its store, new ones for anybody, and those of the provider."""

    def __init__(self, folder, provider):
        self.db = folder / "state.db"
        self.provider = provider
        options = {"issuer": ISSUER, "audience": AUDIENCE, "jwks-url": f"http://127.0.0.1:{provider.server_port}/keys"}
        words = [word for name, it in options.items() for word in (f"--jwt-{name}", it)]
        opened = ("--open-tokens", "6", "--space-bytes", "100000")
        self.server = HttpServer(self.db, "--tools", "all", *opened, *words, cwd=folder)
        self.create = cache(self.create)

    def create(self, name, *allow, **options):
        """A token of the store."""
        words = [word for it in allow for word in ("--allow", it)]
        words += [word for option, it in options.items() for word in (f"--{option}", it)]
        done = run("token", "create", "--name", name, *words, env={"HOLDLOG_DB": str(self.db)})
        assert done.code == 0, done.err
        return done.out.strip()

    def jwt(self, *scopes, space=None, sub="ann"):
        scope = " ".join(f"holdlog:{it}" for it in scopes)
        return self.provider.token(scope, sub=sub, holdlog_space=space)

    def ask(self, token, method, path, **options):
        headers = {"x-token": token} | options.pop("headers", {})
        return self.server.request(method, path, headers=headers, **options)

    def agent(self, token):
        return OverHttp(self.server.url + "/mcp", MODERN, token=token)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, provider):
    guarded = Guarded(tmp_path_factory.mktemp("guarded"), provider)
    yield guarded
    guarded.server.close()


# --- tokens


def test_call_without_a_valid_token_is_refused(guarded):
    good = guarded.create("good", "read:*")
    wrong = ("", "x", good[:-1] + ("A" if good[-1] != "A" else "B"), good + "x", "a.b.c", "x" * 10_000)
    for path in ("/kv/n/k", "/v1/claims", "/v1/events", "/metrics", "/token"):
        assert {guarded.ask(it, "GET", path).status_code for it in wrong} == {401}, path
    assert guarded.server.request("POST", "/mcp", json={}).status_code == 401
    assert guarded.server.request("POST", "/hook", json={"session_id": "s"}).status_code == 401
    refused = guarded.server.request("GET", f"/kv/n/k?token={good}")
    assert (refused.status_code, refused.headers["www-authenticate"][:6]) == (401, "Bearer")
    assert guarded.server.request("GET", "/healthz").status_code == 200


def test_token_is_sent_in_either_header_and_described(guarded):
    good = guarded.create("good", "read:*")
    for headers in ({"x-token": good}, {"authorization": f"Bearer {good}"}):
        described = guarded.server.request("GET", "/token", headers=headers)
        assert described.json() | {"principal": "token:good", "allow": ["read:*"]} == described.json()
        assert good[-43:] not in described.text
    both = {"x-token": good, "authorization": "Bearer other"}
    assert guarded.server.request("GET", "/token", headers=both).status_code == 400


def test_revoked_token_is_refused_within_a_second_or_so(guarded):
    short = guarded.create("revoked", "read:*")
    stream = guarded.ask(short, "GET", "/v1/events", headers={"accept": "text/event-stream"}, stream=True)
    events = EventStream(stream)
    assert guarded.ask(short, "GET", "/v1/claims").status_code == 200
    assert run("token", "revoke", "revoked", env={"HOLDLOG_DB": str(guarded.db)}).code == 0
    until(lambda: guarded.ask(short, "GET", "/v1/claims").status_code == 401)
    guarded.ask(guarded.jwt("write:*"), "POST", "/kv/revoked/k", data="late")
    assert "late" not in [sent.data.get("value") for sent in events]  # and the stream ends


@pytest.mark.rest
def test_tokens_expire_at_their_time(guarded, provider):
    now = int(time.time())
    short, shorter = guarded.create("short", "read:*", expires="30s"), provider.token("holdlog:read:*", exp=now + 30)
    ends = datetime.fromisoformat(guarded.ask(short, "GET", "/token").json()["expires_at"]).timestamp()
    assert now + 29 < ends < time.time() + 30
    assert guarded.ask(shorter, "GET", "/v1/claims").status_code == 200
    until(lambda: time.time() > ends)
    for token in (short, shorter):
        until(lambda token=token: guarded.ask(token, "GET", "/v1/claims").status_code == 401)


# --- JWT


def test_jwt_is_the_principal_of_its_subject(guarded, provider, name):
    token = guarded.jwt(f"write:{name}", "read:*", sub="auth0|ann")
    assert guarded.ask(token, "POST", f"/kv/{name}/k", data="1").status_code == 200
    (event,) = guarded.ask(token, "GET", "/v1/events", params={"namespace": name}).json()["events"]
    assert event["principal"] == "jwt:auth0|ann"
    assert guarded.ask(provider.token(), "GET", f"/kv/{name}/k").status_code == 403


def test_jwt_of_another_issuer_key_or_time_is_refused(guarded, provider):
    scope, secret = "holdlog:admin:*", "a secret that is long enough for HMAC"
    good = provider.token(scope)
    head, body, tag = good.split(".")
    bad = [
        provider.token(scope, provider.strange_key),
        provider.token(scope, secret, "HS256"),
        jwt.encode(jwt.decode(good, options={"verify_signature": False}), "", "none"),
        f"{head}.{body}.",
        f"{head}.{body}.{tag[:-4]}AAAA",
    ]
    now = int(time.time())
    wrong = ({"iss": "https://evil.example"}, {"aud": "other"}, {"exp": now - 60}, {"nbf": now + 600})
    bad += [provider.token(scope, **claims) for claims in wrong]
    bad += [provider.token(scope, **{missing: None}) for missing in ("iss", "aud", "exp", "sub")]
    assert [guarded.ask(it, "GET", "/v1/claims").status_code for it in bad] == [401] * len(bad)
    assert guarded.ask(good, "GET", "/v1/claims").status_code == 200


# --- scopes


@pytest.mark.parametrize(
    ("allow", "method", "path", "status"),
    [
        ("read:NAME", "GET", "/kv/NAME/none", 404),
        ("read:other", "GET", "/kv/NAME/none", 403),
        ("claim:*", "GET", "/kv/NAME/none", 403),
        ("write:NAME", "POST", "/kv/NAME/k", 200),
        ("write:NAME", "GET", "/kv/NAME/none", 404),
        ("write:NAME", "POST", "/kv/NAME-1/k", 403),
        ("read:*", "POST", "/kv/NAME/k", 403),
        ("read:*", "DELETE", "/kv/NAME/k", 403),
        ("write:NAME-*", "POST", "/kv/NAME-1/k", 200),
        ("write:NAME-*", "POST", "/kv/NAME/k", 403),
        ("write:na?e", "POST", "/kv/name/k", 403),
        ("read:NAME", "GET", "/v1/events?namespace=other", 403),
        ("read:src/*", "GET", "/v1/claims/src%2Fa.py", 200),
        ("read:src/*", "GET", "/v1/claims/doc", 403),
        ("read:src/*", "GET", "/v1/claims/src%2F..%2Fdoc", 400),
        ("read-values:src/*", "GET", "/v1/claims/src%2Fa.py", 403),
        ("read:*", "GET", "/metrics", 403),
        ("admin:*", "GET", "/metrics", 200),
    ],
)
def test_token_may_do_what_its_scopes_allow(guarded, name, allow, method, path, status):
    token = guarded.jwt(allow.replace("NAME", name))
    response = guarded.ask(token, method, path.replace("NAME", name), data="x")
    assert response.status_code == status, response.text
    if status == 403:
        assert response.json()["status"] == "denied"
        assert response.json()["needed"]


def outcome(client, tool, /, **arguments):
    """The status of a call that may be refused as an error."""
    result = client.exchange(client.calling(tool, arguments))["result"]
    return json.loads(result["content"][0]["text"])["status"]


def test_tools_are_denied_like_routes(guarded, name):
    agent = guarded.agent(guarded.jwt(f"claim:{name}/*", f"read:{name}"))
    assert agent.call("claim", resource=f"{name}/a.py", agent="ann")["status"] == "claimed"
    for resource in ("b.py", f"{name}/../b.py", "*"):
        assert outcome(agent, "claim", resource=resource, agent="ann") in ("denied", "error")
    write = {"namespace": name, "key": "k", "value": 1, "updated_by": "ann", "force": True}
    assert agent.call("get", namespace=name, key="k")["status"] == "not_found"
    assert outcome(agent, "set", **write) == "denied"
    step = {"op": "set", "namespace": name, "key": "k", "value": 1}
    assert outcome(agent, "transact", operations=[step], updated_by="ann") == "denied"
    assert outcome(agent, "clear_namespace", namespace=name, deleted_by="ann") == "denied"


def test_lists_board_and_events_show_only_what_may_be_read(guarded, name):
    admin = guarded.agent(guarded.jwt("admin:*"))
    for namespace in (f"{name}-a", f"{name}-b"):
        admin.call("set", namespace=namespace, key="k", value=1, updated_by="ann", force=True)
        admin.call("claim", resource=f"{namespace}/x.py", agent=namespace)
    token = guarded.jwt(f"read:{name}-a*")
    reader = guarded.agent(token)
    assert [it["namespace"] for it in reader.call("list")["namespaces"]] == [f"{name}-a"]
    assert [it["held_by"] for it in reader.call("status")["claims"]] == [f"{name}-a"]
    seen = guarded.ask(token, "GET", "/v1/events", params={"limit": 1000}).json()["events"]
    assert {it.get("namespace", it.get("agent")) for it in seen} == {f"{name}-a"}
    headers = {"accept": "text/event-stream"}
    stream = guarded.ask(token, "GET", "/v1/events", params={"after": 0}, headers=headers, stream=True)
    admin.call("set", namespace=f"{name}-b", key="k", value=2, updated_by="ann", force=True)
    admin.call("set", namespace=f"{name}-a", key="k", value=3, updated_by="ann", force=True)
    assert [it.get("value") for it in EventStream(stream).events(3)] == [1, None, 3]
    stream.close()


# --- principals


def test_same_name_under_two_tokens_is_two_agents(guarded, name):
    ann, other = (guarded.agent(guarded.jwt("admin:*", sub=it)) for it in ("ann", "other"))
    receipt = ann.call("claim", resource=name, agent="claude")["receipt"]
    busy = other.call("claim", resource=name, agent="claude", receipt=receipt)
    assert (busy["status"], busy["held_by"]) == ("busy", "claude")
    assert "jwt:ann" in busy.values()
    assert other.call("release", resource=name, agent="claude", receipt=receipt)["status"] == "not_holder"
    assert ann.call("release", resource=name, agent="claude", receipt=receipt)["status"] == "released"


def test_request_id_belongs_to_its_principal(guarded, name):
    ann, other = (guarded.agent(guarded.jwt("admin:*", sub=it)) for it in ("ann", "other"))
    write = {"namespace": name, "key": "k", "value": 1, "updated_by": "x", "expected_version": 0}
    calls = [it.call("set", _meta={"holdlog/request_id": name}, **write)["status"] for it in (ann, other, ann)]
    assert calls == ["ok", "conflict", "ok"]


def test_name_of_another_token_is_refused(guarded, name):
    guarded.create("good", "read:*")
    agent = guarded.agent(guarded.jwt("admin:*"))
    write = {"namespace": name, "key": "k", "value": 1, "force": True}
    for author in ("good", "GOOD/x", "token:good", "jwt:other"):
        assert "updated_by" in agent.error("set", **write, updated_by=author)
    assert agent.call("set", **write, updated_by="jwt:ann")["status"] == "ok"


# --- spaces


def spaces(guarded, name, *names):
    return [guarded.jwt("admin:*", space=f"{name}{it}", sub=f"of-{it}") for it in names]


def test_token_of_a_space_reaches_nothing_of_another(guarded, name):
    one, other = spaces(guarded, name, "", "-other")
    main = guarded.jwt("admin:*")
    path = f"/kv/{name}/k"
    for number, token in enumerate((one, other, main)):
        assert guarded.ask(token, "GET", path).status_code == 404
        assert guarded.ask(token, "POST", path, data=str(number)).headers["etag"] == '"1"'
    for number, token in enumerate((one, other, main)):
        assert guarded.ask(token, "GET", path).text == str(number)
        agent = guarded.agent(token)
        record = agent.call("get", namespace=name, key="k")
        assert (record["namespace"], record["value"]) == (name, str(number))
        assert [it["value"] for it in agent.call("history", namespace=name, key="k")["history"]] == [str(number)]
    assert guarded.ask(one, "DELETE", path).text == "OK"
    assert [guarded.ask(it, "GET", path).text for it in (other, main)] == ["1", "2"]


def test_no_name_leads_out_of_a_space(guarded, name):
    one, other = spaces(guarded, name, "", "-other")
    guarded.ask(other, "POST", "/kv/n/k", data="theirs")
    agent = guarded.agent(one)
    assert agent.call("list")["namespaces"] == []
    for namespace in (f"{name}-other/n", f"../{name}-other/n", f"{name}-other", "/n", "", "-other/n", "%2e%2e/n"):
        assert outcome(agent, "get", namespace=namespace, key="k") in ("not_found", "error")
    step = {"op": "check", "namespace": f"{name}-other/n", "key": "k", "expected_version": 1}
    assert outcome(agent, "transact", operations=[step], updated_by="x") != "ok"


@pytest.mark.parametrize("space", ["../x", "", "a/b", "A B", "\0"])
def test_bad_name_of_a_space_is_no_token(guarded, space):
    token = guarded.jwt("admin:*", space=space)
    assert guarded.ask(token, "GET", "/kv/n/k").status_code == 401


def test_space_is_the_first_label_of_a_namespace(guarded, name):
    (one,) = spaces(guarded, name, "")
    guarded.ask(one, "POST", "/kv/n/k", data="x")
    assert guarded.ask(guarded.jwt("admin:*"), "GET", f"/kv/{name}%2Fn/k").text == "x"


@pytest.mark.parametrize("path", ["/v1/claims", "/v1/claims/a.py", "/v1/events"])
def test_token_of_a_space_may_only_use_values(guarded, name, path):
    (one,) = spaces(guarded, name, "")
    assert guarded.ask(one, "GET", path).status_code == 403


def test_tools_but_those_of_values_are_denied_to_a_token_of_a_space(guarded, name):
    agent = guarded.agent(spaces(guarded, name, "")[0])
    assert agent.call("set", namespace="n", key="k", value=1, updated_by="x", force=True)["status"] == "ok"
    assert outcome(agent, "claim", resource="custom://x", agent="x") == "denied"
    guard = [{"resource": "custom://x", "version": 1}]
    write = {"namespace": "n", "key": "k", "value": 2, "updated_by": "x", "force": True, "guard": guard}
    assert outcome(agent, "set", **write) in ("denied", "error")


@pytest.mark.rest
def test_threads_is_no_name_of_a_space(guarded):
    done = run("token", "create", "--name", "t", "--allow", "read:*", "--space", "threads", "--db", guarded.db)
    assert done.code == 2


# --- POST /token


def test_malformed_request_gets_no_token(guarded):
    for body in ("", "token=old", "token=new&x=1", '{"token": "new"}'):
        assert guarded.server.request("POST", "/token", data=body).status_code == 400
    assert guarded.server.request("POST", "/token?token=new", data="token=new").status_code == 400


def test_tokens_for_anybody_have_spaces_of_their_own(guarded):
    one, other = (guarded.server.request("POST", "/token", data={"token": "new"}) for _ in "12")
    assert (one.headers["cache-control"], one.headers["content-type"][:10]) == ("no-store", "text/plain")
    guarded.ask(one.text, "POST", "/kv/g/k", data="mine")
    assert guarded.ask(other.text, "GET", "/kv/g/k").status_code == 404
    described = guarded.ask(one.text, "GET", "/token").json()
    assert described["space"] == described["principal"].removeprefix("token:")


def test_number_and_size_of_open_spaces_are_limited(guarded):
    tokens = [guarded.server.request("POST", "/token", data={"token": "new"}) for _ in range(7)]
    assert tokens[-1].status_code in (403, 429)
    assert tokens[-1].json()["status"] == "error"
    one = next(it.text for it in tokens if it.status_code == 200)
    codes = [guarded.ask(one, "POST", f"/kv/g/{number}", data="x" * 30_000).status_code for number in range(5)]
    assert codes[:3] == [200] * 3
    assert codes[4] >= 400
    assert guarded.ask(one, "GET", "/kv/g/4").status_code == 404
