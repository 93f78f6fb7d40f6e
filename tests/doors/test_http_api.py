"""HTTP without MCP: /kv with versions, routes below /v1, events as pages and as a stream, hooks, probes, limits."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlencode

import pytest

import holdlog
from tests.support.library import in_thread
from tests.support.mcp import OverHttp
from tests.support.waiting import until
from tests.support.wire import Connection, EventStream, waiters

pytestmark = pytest.mark.xdist_group("http")


@pytest.fixture
def ask(open_server):
    return open_server.request


@pytest.fixture
def kv(ask, name):
    """Requests for the value of one key that no other test uses."""

    def request(method, data=None, key="k", **headers):
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        return ask(method, f"/kv/{name}/{key}", data=data, headers=headers)

    return request


@pytest.fixture
def agent(open_server):
    return OverHttp(open_server.url + "/mcp")


# --- /kv


def test_etag_of_a_value_is_its_version(kv):
    assert [kv("POST", text).headers["etag"] for text in ("a", "b")] == ['"1"', '"2"']
    read = kv("GET")
    assert (read.text, read.headers["etag"]) == ("b", '"2"')
    assert kv("DELETE", if_match='"1"').status_code == 412
    assert kv("DELETE", if_match='"2"').text == "OK"
    assert kv("DELETE", if_match="*").status_code == 404
    assert kv("POST", "c").headers["etag"] == '"4"'


@pytest.mark.parametrize(
    ("exists", "headers", "status"),
    [
        (True, {"if_match": '"2"'}, 200),
        (True, {"if_match": '"1", "2"'}, 200),
        (True, {"if_match": "*"}, 200),
        (True, {"if_match": '"1"'}, 412),
        (True, {"if_match": 'W/"2"'}, 412),
        (True, {"if_match": '"9999999999999999999"'}, 412),
        (True, {"if_none_match": "*"}, 412),
        (True, {"if_none_match": '"1"'}, 200),
        (True, {"if_match": "2"}, 400),
        (True, {"if_none_match": '"2'}, 400),
        (False, {"if_match": "*"}, 412),
        (False, {"if_match": '"2"'}, 412),
        (False, {"if_none_match": "*"}, 200),
    ],
)
def test_value_is_written_only_under_its_condition(kv, exists, headers, status):
    if exists:
        kv("POST", "a")
        kv("POST", "b")
    response = kv("POST", "c", **headers)
    assert response.status_code == status, response.text
    if status == 412:
        conflict = response.json()
        assert (conflict["status"], conflict["actual_version"]) == ("conflict", 2 if exists else 0)
        assert conflict["actual_value"] == ("b" if exists else None)
    assert kv("GET").text == ("c" if status == 200 else "b" if exists else "Key Not Found")


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"if_none_match": '"1"'}, 304), ({"if_none_match": '"2"'}, 200), ({"if_match": '"2"'}, 412)],
)
def test_value_is_read_only_under_its_condition(kv, headers, status):
    kv("POST", "a")
    response = kv("GET", **headers)
    assert response.status_code == status
    assert status != 304 or (response.text, response.headers["etag"]) == ("", '"1"')
    assert kv("GET", key="none", **headers).status_code == 404


def test_one_of_several_writers_with_the_same_version_wins(kv):
    kv("POST", "a")
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda number: kv("POST", str(number), if_match='"1"').status_code, range(16)))
    assert sorted(codes) == [200] + [412] * 15


def test_repeated_request_is_done_once(kv):
    first = kv("POST", "a", idempotency_key=kv("GET").url)
    kv("POST", "b")
    again = kv("POST", "a", idempotency_key=kv("GET").url)
    assert (again.status_code, again.text, again.headers["etag"]) == (200, first.text, '"1"')
    assert kv("GET").text == "b"
    assert kv("POST", "c", idempotency_key=kv("GET").url).status_code == 422


def test_values_are_the_same_over_mcp_and_kv(kv, agent, name):
    kv("POST", "text")
    assert agent.call("get", namespace=name, key="k")["value"] == "text"
    agent.call("set", namespace=name, key="k", value={"a": [1, None]}, updated_by="ann", expected_version=1)
    read = kv("GET")
    assert (read.json(), read.headers["content-type"]) == ({"a": [1, None]}, "application/json")
    assert kv("POST", "[1]", content_type="application/json").text == "OK"
    assert agent.call("get", namespace=name, key="k")["value"] == [1]


def test_text_of_a_value_runs_in_no_browser(kv):
    kv("POST", "<script>alert(1)</script>", content_type="text/html")
    headers = kv("GET").headers
    assert headers["content-type"].startswith("text/plain")
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff", {}, 400),
        (b"x", {"content_encoding": "gzip"}, 415),
        (b"{", {"content_type": "application/json"}, 400),
        (b"NaN", {"content_type": "application/json"}, 400),
        (b"[" * 100_000, {"content_type": "application/json"}, 400),
        (b"x" * 262_145, {}, 413),
    ],
)
def test_body_that_is_no_value_is_refused_and_not_stored(kv, body, headers, status):
    refused = kv("POST", body, **headers)
    assert (refused.status_code, refused.json()["status"]) == (status, "error")
    assert kv("GET").status_code == 404


def test_encoded_slash_does_not_split_a_name(ask, name):
    ask("POST", f"/kv/{name}%2Fb/c", data="1")
    ask("POST", f"/kv/{name}/b%2Fc", data="2")
    assert [ask("GET", f"/kv/{name}{it}").text for it in ("%2Fb/c", "/b%2fc")] == ["1", "2"]
    assert ask("GET", f"/kv/{name}/b/c").status_code == 404
    ask("POST", f"/kv/{name}/%2525", data="3")
    assert [it["key"] for it in ask("GET", f"/v1/values/{name}").json()["records"]] == ["%25", "b/c"]


@pytest.mark.parametrize("path", ["/", "/%zz", "/%ff", "/%00", "/%0A", "/..", "/%2e%2E", "/" + "x" * 513])
def test_bad_name_in_a_path_is_refused(open_server, name, path):
    for method in ("GET", "POST", "DELETE"):
        status = Connection(open_server.url).send(method, f"/kv/{name}{path}", b"x").status()
        assert 400 <= status < 500


@pytest.mark.parametrize(("method", "query"), [("GET", "token=x"), ("POST", "tll=1"), ("POST", "ttl=1&ttl=2")])
def test_unknown_and_doubled_arguments_are_refused_by_name(ask, name, method, query):
    refused = ask(method, f"/kv/{name}/k?{query}", data="x")
    assert refused.status_code == 400
    assert query.partition("=")[0] in refused.json()["message"]
    assert ask("GET", f"/kv/{name}/k").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "fields", "problem"),
    [
        ("PUT", "/v1/values/{}/k", {"vaule": 1, "updated_by": "ann"}, "value: is required; vaule: unknown argument"),
        ("POST", "/v1/claims/custom://{}", {"agnet": "ann"}, "agent: is required; agnet: unknown argument"),
    ],
)
def test_misspelt_field_is_named_next_to_the_one_that_is_missing(ask, name, method, path, fields, problem):
    assert ask(method, path.format(name), json=fields).json()["message"] == problem


def test_server_without_open_tokens_gives_none(open_server):
    refused = open_server.request("POST", "/token", data="token=new")
    assert (refused.status_code, "--open-tokens" in refused.json()["message"]) == (403, True)


# --- routes


def test_values_and_histories_are_listed_in_pages(kv, ask, name):
    for key in ("b", "a", "a"):
        kv("POST", key.upper(), key=key)
    page = ask("GET", f"/v1/values/{name}", params={"limit": 1}).json()
    assert (page["status"], page["namespace"], page["count"], page["next_after"]) == ("ok", name, 1, "a")
    assert [(it["key"], it["value"], it["version"]) for it in page["records"]] == [("a", "A", 2)]
    rest = ask("GET", f"/v1/values/{name}", params={"after_key": "a"}).json()
    assert [it["key"] for it in rest["records"]] == ["b"]
    past = ask("GET", f"/v1/history/{name}/a", params={"limit": 1}).json()
    assert ([it["version"] for it in past["history"]], past["next_before"]) == ([2], 2)
    older = ask("GET", f"/v1/history/{name}/a", params={"before_version": 2}).json()
    assert [(it["version"], it["event_type"]) for it in older["history"]] == [(1, "write")]


def test_transaction_does_all_or_nothing_and_names_the_operation(ask, name):
    def transact(*operations, **more):
        steps = [{"namespace": name} | it for it in operations]
        return ask("POST", "/v1/transactions", json={"operations": steps, "updated_by": "ann"} | more)

    put, count = {"op": "set", "key": "a", "value": 1}, {"op": "increment", "key": "n", "by": 2}
    done = transact(put, count)
    assert done.status_code == 200
    assert [(it["key"], it["version"], it.get("value")) for it in done.json()["results"]] == [
        ("a", 1, None),
        ("n", 1, 2),
    ]
    for steps, status, code in (
        ([count, put | {"expected_version": 9}], 409, "conflict"),
        ([count, {"op": "delete", "key": "none"}], 404, "not_found"),
        ([count, {"op": "increment", "key": "a", "by": "x"}], 400, "error"),
    ):
        refused = transact(*steps)
        assert (refused.status_code, refused.json()["status"], refused.json()["operation"]) == (status, code, 1)
    assert ask("GET", f"/kv/{name}/n").text == "2"
    fenced = transact(put, guard=[{"resource": f"custom://{name}", "version": 1}])
    assert (fenced.status_code, fenced.json()["status"]) == (409, "fenced")


def test_claims_are_shown_by_any_spelling_of_a_resource(ask, agent, name):
    for path in (f"custom%3A%2F%2F{name}", f"custom://{name}"):
        assert ask("GET", f"/v1/claims/{path}").json() == {"status": "available", "resource": f"custom://{name}"}
    agent.call("claim", resource=f"custom://{name}", agent=name)
    held = ask("GET", f"/v1/claims/custom%3A%2F%2F{name}", params={"version": 1}).json()
    assert (held["status"], held["held_by"], held["current"]) == ("claimed", name, True)
    board = ask("GET", "/v1/claims", params={"agent": name}).json()
    assert [(it["resource"], it["held_by"]) for it in board["claims"]] == [(f"custom://{name}", name)]
    assert ask("GET", "/v1/claims/custom%3A%2F%2F").status_code == 400
    assert ask("GET", "/v1/claims/a%2F..%2F..%2Fb").status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing/here", 404),
        ("PATCH", "/healthz", 405),
        ("DELETE", "/v1/claims", 405),
        ("GET", "/v1/events?limit=0", 400),
        ("GET", "/v1/events?nonsense=1", 400),
        ("GET", "/v1/claims?limit=1001", 400),
    ],
)
def test_errors_are_json_of_one_line(ask, method, path, status):
    refused = ask(method, path)
    assert refused.status_code == status
    assert refused.json()["status"] == "error"
    assert "\n" not in refused.json()["message"]
    assert status != 405 or refused.headers["allow"]


def test_openapi_describes_the_routes(ask):
    document = ask("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert {"/kv/{group}/{key}", "/token", "/hook", "/healthz"} <= set(document["paths"])
    assert any(path.endswith("/events") for path in document["paths"])


def test_page_loads_nothing_from_elsewhere(ask):
    page = ask("GET", "/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page.text)


# --- events


def write(kv, *values, key="k"):
    for value in values:
        assert kv("POST", str(value), key=key).status_code == 200


def test_events_come_in_pages(ask, kv, name):
    write(kv, 1, 2, 3)
    page = ask("GET", "/v1/events", params={"namespace": name, "limit": 2}).json()
    assert page["status"] == "ok"
    assert [(it["kind"], it["key"], it["value"]) for it in page["events"]] == [
        ("ValueWritten", "k", "1"),
        ("ValueWritten", "k", "2"),
    ]
    rest = ask("GET", "/v1/events", params={"namespace": name, "after": page["next_position"]}).json()
    assert [(it["value"], it["version"]) for it in rest["events"]] == [("3", 3)]
    assert {"position", "id", "stream", "at", "by"} <= set(rest["events"][0])


def test_bookmark_of_another_history_is_refused(ask, kv, name):
    write(kv, 1, 2)
    bookmark = ask("GET", "/v1/events", params={"namespace": name, "limit": 1}).json()["bookmark"]
    assert ask("GET", "/v1/events", params={"after": bookmark}).status_code == 200
    with holdlog.StateStore(":memory:") as other:
        other.set("n", "k", 1, updated_by="ann")
        bookmark = other.events().bookmark
    refused = ask("GET", "/v1/events", params={"after": bookmark})
    assert (refused.status_code, refused.json()["status"]) == (400, "error")


def test_events_are_waited_for(open_server, ask, kv, name):
    before = waiters(open_server.url)
    waiting = in_thread(ask, "GET", "/v1/events", params={"namespace": name, "wait_seconds": 200, "after": newest(ask)})
    until(lambda: waiters(open_server.url) == before + 1)
    write(kv, 7)
    assert [it["value"] for it in waiting.result().json()["events"]] == ["7"]
    params = {"namespace": name, "wait_seconds": 200, "after": newest(ask)}
    vanishing = Connection(open_server.url).send("GET", f"/v1/events?{urlencode(params)}")
    until(lambda: waiters(open_server.url) == before + 1)
    vanishing.reset()
    until(lambda: waiters(open_server.url) == before)


def newest(ask):
    return ask("GET", "/v1/values/none").json()["position"]


@pytest.fixture
def stream(ask):
    """Opens streams of events."""
    opened = []

    def start(last=None, **params):
        headers = {"accept": "text/event-stream"} | ({"last-event-id": last} if last else {})
        opened.append(EventStream(ask("GET", "/v1/events", params=params, headers=headers, stream=True)))
        return opened[-1]

    yield start
    for it in opened:
        it.close()


def test_stream_has_past_events_then_new_ones(stream, kv, name):
    write(kv, 'line\n<script>"')
    events = stream(after=0, namespace=name)
    assert [it["value"] for it in events.events(1)] == ['line\n<script>"']
    write(kv, 2, 3)
    assert [(it["kind"], it["value"]) for it in events.events(2)] == [("ValueWritten", "2"), ("ValueWritten", "3")]


def test_stream_without_a_position_starts_now(stream, kv, name):
    write(kv, 1)
    first = in_thread(stream(namespace=name).events, 1)
    until(lambda: write(kv, 2) or not first.is_running)
    assert [it["value"] for it in first.result()] == ["2"]


def test_client_that_reconnects_gets_every_event_once(stream, kv, name):
    write(kv, *range(5))
    found, last = [], None
    while len(found) < 20:
        events = stream(last, after=0, namespace=name)
        found += [int(it["value"]) for it in events.events(3 if len(found) < 18 else 2)]
        last = events.last
        events.close()
        write(kv, len(found) + 2, len(found) + 3, len(found) + 4) if len(found) < 18 else None
    assert found == list(range(20))


def test_bad_place_to_resume_is_refused(ask):
    for last in ("x", "-1", "99999999999999999999"):
        headers = {"accept": "text/event-stream", "last-event-id": last}
        assert ask("GET", "/v1/events", headers=headers).status_code == 400


# --- hooks


@pytest.fixture
def hook(ask, name):
    """Posts what Claude Code passes to its hooks; sessions are the test's own."""

    def post(session, event, tool=None, **arguments):
        call = {"session_id": f"session-{name}-{session}", "cwd": ".", "hook_event_name": event}
        call |= {"tool_name": tool, "tool_input": arguments, "tool_use_id": f"{session}{event}"} if tool else {}
        done = ask("POST", "/hook", json=call)
        assert done.status_code == 200, done.text
        return done.json()

    return post


def test_posted_hooks_claim_deny_and_release(hook, ask, name):
    file = f"{name}.py"
    assert hook("one", "PreToolUse", "Edit", file_path=file) == {}
    assert ask("GET", f"/v1/claims/{file}").json()["status"] == "claimed"
    denied = hook("two", "PreToolUse", "Edit", file_path=file)["hookSpecificOutput"]
    assert denied["permissionDecision"] == "deny"
    assert file in denied["permissionDecisionReason"]
    hook("one", "SessionEnd")
    assert hook("two", "PreToolUse", "Edit", file_path=file) == {}


def test_first_context_of_a_hook_has_name_and_receipt(hook, agent, name):
    context = json.dumps(hook("one", "SessionStart", source="startup"))
    receipt = re.search(r"receipt\W+([0-9a-zA-Z-]{8,})", context)[1]
    own_name = re.search(r"claude-[0-9a-f]{4,}", context)[0]
    hook("one", "PreToolUse", "Edit", file_path=f"{name}.py")
    again = agent.call("claim", resource=f"{name}.py", agent=own_name, receipt=receipt)
    assert again["status"] == "already_claimed"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000])
def test_body_that_is_no_hook_call_is_refused(ask, body):
    refused = ask("POST", "/hook", data=body, headers={"content-type": "application/json"})
    assert (refused.status_code, refused.json()["status"]) == (400, "error")
    assert "\n" not in refused.json()["message"]


# --- probes and limits


def test_probes_and_metrics(ask, kv, name):
    for path in ("/healthz", "/readyz"):
        assert (ask("GET", path).status_code, ask("GET", path).json()) == (200, {"status": "ok"})
    write(kv, "a-secret")
    metrics = ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert re.search(r'^holdlog_\w+\{.*kind="set".*\} ', metrics.text, re.MULTILINE)
    assert not re.search(f"{name}|a-secret", metrics.text)


def test_fifty_megabytes_are_refused_before_they_are_sent(open_server, name):
    for path in (f"/kv/{name}/k", "/mcp"):
        connection = Connection(open_server.url)
        connection.send("POST", path, b"x", content_length="52428800", content_type="application/json")
        assert connection.status() == 413
    chunked = Connection(open_server.url)
    chunked.send("POST", f"/kv/{name}/k", content_length="", transfer_encoding="chunked")
    with pytest.raises(OSError):
        for _ in range(800):
            chunked.socket.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def test_headers_without_end_are_refused(open_server, ask):
    for header in ({"x": "y" * 200_000}, {f"x{number}": "y" * 1000 for number in range(200)}):
        with suppress(ConnectionError, IndexError):  # closed while the client still sent
            assert 400 <= Connection(open_server.url).send("GET", "/healthz", **header).status() < 500
    assert ask("GET", "/healthz").status_code == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"HELLO\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",
        b"POST /hook HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /hook HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_refused(open_server, request_):
    connection = Connection(open_server.url)
    connection.socket.sendall(request_)
    assert connection.status() == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "localhost"}, 200),
        ({}, 200),
    ],
)
def test_pages_of_other_sites_reach_nothing(ask, agent, headers, status):
    """Also through a host name that points to loopback (DNS rebinding)."""
    assert ask("GET", "/v1/claims", headers=headers).status_code == status
    response = agent.post(agent.message("tools/list"), **headers)
    assert response.status_code == status
    assert "access-control-allow-origin" not in response.headers
