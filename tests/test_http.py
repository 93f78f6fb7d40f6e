"""HTTP beyond the doors: what a script does, clients that vanish, spaces, names in pages, OpenAPI."""

import json
import re
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest

from holdlog.adapters.auth.access import Access, DeniedError, respond
from holdlog.adapters.compose import open_engine
from holdlog.adapters.http.openapi import describe_api
from holdlog.adapters.http.routes import list_operations
from holdlog.adapters.operations.base import OPERATIONS
from holdlog.adapters.operations.surface import Surface
from holdlog.adapters.operations.values import List, SetValue, Transact
from holdlog.domain.moment import Caller
from tests.support.library import in_thread
from tests.support.mcp import LEGACY, MODERN
from tests.support.programs import HttpServer, run
from tests.support.waiting import until
from tests.support.wire import Connection, EventStream, waiters

pytestmark = pytest.mark.xdist_group("test_http")
SECRET = "a-secret-of-another-space"


class Guarded(NamedTuple):
    server: HttpServer
    db: Path

    def create(self, name: str, *allow: str, space: str | None = None) -> str:
        words = [word for grant in allow for word in ("--allow", grant)]
        words += ["--space", space] if space else []
        done = run("token", "create", "--name", name, *words, "--db", self.db)
        assert done.code == 0, done
        return done.out.strip()

    def ask(self, token: str, method: str, path: str, **options: Any) -> Any:
        headers = {"authorization": f"Bearer {token}"} | options.pop("headers", {})
        return self.server.request(method, path, headers=headers, **options)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    assert run("token", "create", "--name", "first", "--allow", "admin:*", "--db", folder / "state.db").code == 0
    server = HttpServer(folder / "state.db", "--open-tokens", "3", "--space-bytes", "1000", cwd=folder)
    yield Guarded(server, folder / "state.db")
    server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """Without tokens. Tests share it: each uses names of its own."""
    folder = tmp_path_factory.mktemp("server")
    server = HttpServer(folder / "state.db", cwd=folder)
    yield server
    server.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[HttpServer]:
    """Without tokens, for one test."""
    server = HttpServer(tmp_path / "state.db", cwd=tmp_path)
    yield server
    server.close()


# --- a script


def curl(server: HttpServer, method: str, path: str, *options: str) -> Any:
    command = ["curl", "-sS", "-X", method, f"{server.url}{path}", *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_script_claims_waits_and_releases_with_the_receipt_it_was_given(server: HttpServer) -> None:
    path = "/v1/claims/src%2Fscript.py"
    claimed = curl(server, "POST", path, "-d", '{"agent": "ann"}')
    assert claimed["status"] == "claimed"
    waiting = in_thread(curl, server, "GET", "/v1/waits/src%2Fscript.py?timeout_seconds=45")
    until(lambda: waiters(server.url) == 1)
    assert curl(server, "POST", path, "-d", '{"agent": "ann"}')["same_name"] is True
    receipt = json.dumps({"agent": "ann", "receipt": claimed["receipt"]})
    assert curl(server, "POST", path, "-d", receipt)["status"] == "already_claimed"
    assert curl(server, "DELETE", f"{path}?agent=ann&receipt={claimed['receipt']}")["status"] == "released"
    assert waiting.result()["status"] == "available"


def test_calls_with_one_session_header_are_one_holder(server: HttpServer) -> None:
    session = ("-H", "Holdlog-Session: build-7")
    assert "receipt" not in curl(server, "POST", "/v1/claims/custom://session", "-d", '{"agent": "ann"}', *session)
    assert curl(server, "POST", "/v1/claims/custom://session", "-d", '{"agent": "ann"}')["status"] == "busy"
    assert curl(server, "DELETE", "/v1/claims/custom://session?agent=ann", *session)["status"] == "released"


def test_waiter_that_vanishes_leaves_the_queue(server: HttpServer) -> None:
    server.request("POST", "/v1/claims/custom://vanish", json={"agent": "ann"})
    body = json.dumps({"agent": "gone", "wait_seconds": 45}).encode()
    waiting = Connection(server.url).send("POST", "/v1/claims/custom://vanish", body)
    until(lambda: waiters(server.url) == 1)
    until(lambda: server.request("GET", "/v1/claims").json()["queues"])
    waiting.reset()

    def count_present() -> int:
        queues = server.request("GET", "/v1/claims").json()["queues"]
        return sum(waiter["present"] for queue in queues for waiter in queue["line"])

    until(lambda: count_present() == 0, within=20)
    assert waiters(server.url) == 0


BOTH = {"accept": "application/json, text/event-stream", "content_type": "application/json"}
HALVES = {
    "/v1/values/n/k": {},
    "/kv/n/k": {},
    "/hook": {},
    "/mcp": BOTH | {"mcp_protocol_version": LEGACY},
    "/mcp ": BOTH | {"mcp_protocol_version": MODERN, "mcp_method": "tools/list"},
}


def test_clients_that_vanish_while_they_send_leave_no_line_in_the_log(fresh: HttpServer) -> None:
    for path, headers in HALVES.items():
        method = "PUT" if path.startswith("/v1") else "POST"
        half = Connection(fresh.url).send(
            method, path.strip(), expect="100-continue", **headers | {"content_length": "9"}
        )
        assert half.status() == 100  # the server reads the body now
        half.reset()
    assert fresh.close() == 0  # after what it did for the clients
    assert fresh.log[1:] == []


def test_wait_is_capped_and_says_so(tmp_path: Path) -> None:
    server = HttpServer(tmp_path / "state.db", "--max-wait", "0.01", cwd=tmp_path)
    watched = server.request("GET", "/v1/watches/n/k", params={"since_version": 0, "timeout_seconds": 40}).json()
    assert (watched["status"], watched["capped_at_seconds"]) == ("timeout", 0.01)
    server.close()


def test_call_that_waits_and_a_stream_end_when_the_server_ends(tmp_path: Path) -> None:
    server = HttpServer(tmp_path / "state.db", cwd=tmp_path)
    server.request("POST", "/v1/claims/custom://x", json={"agent": "ann"})
    claim = {"agent": "bob", "wait_seconds": 45}
    calls = [in_thread(server.request, "POST", "/v1/claims/custom://x", json=claim)]
    calls += [in_thread(server.request, "GET", "/v1/watches/n/k?since_version=0&timeout_seconds=45")]
    calls += [in_thread(server.request, "GET", "/v1/events?namespace=n&wait_seconds=45")]
    stream = server.request("GET", "/v1/events?namespace=n", headers={"accept": "text/event-stream"}, stream=True)
    until(lambda: waiters(server.url) == 3)
    assert server.close() == 0
    assert [call.result().json()["status"] for call in calls] == ["busy", "timeout", "ok"]
    assert [sent.data for sent in EventStream(stream) if "kind" in sent.data] == []
    assert server.log[1:] == []


def test_conflict_of_a_plain_value_leads_to_its_header(server: HttpServer) -> None:
    server.request("POST", "/kv/n/plain", data="one")
    response = server.request("POST", "/kv/n/plain", data="two", headers={"if-match": '"7"'})
    hint = 'Merge your change into actual_value and send it with If-Match: "1".'
    body = response.json()
    assert (response.status_code, body["actual_version"], body["hint"]) == (412, 1, hint)
    assert "expected_version" not in body


@pytest.mark.rest
def test_provider_that_hangs_stops_only_those_who_need_it(tmp_path: Path) -> None:
    run("token", "create", "--name", "t", "--allow", "read:*", "--db", tmp_path / "state.db")
    provider = socket.create_server(("127.0.0.1", 0))
    options = {"issuer": "i", "audience": "a", "jwks-url": f"http://127.0.0.1:{provider.getsockname()[1]}"}
    words = [word for name, text in options.items() for word in (f"--jwt-{name}", text)]
    guarded = Guarded(HttpServer(tmp_path / "state.db", *words, cwd=tmp_path), tmp_path / "state.db")
    token, strange = guarded.create("u", "read:*"), jwt.encode({}, "k" * 32, headers={"kid": "unknown"})
    calls = [in_thread(guarded.ask, strange, "GET", "/v1/values") for _ in range(12)]
    connection, _ = provider.accept()  # and it never sends the keys
    assert guarded.ask(token, "GET", "/v1/values").status_code == 200
    assert all(call.is_running for call in calls)
    provider.close()
    connection.close()
    assert {call.result().status_code for call in calls} == {503}
    guarded.server.close()


# --- spaces


def arguments_of(name: str, namespace: str) -> dict[str, Any]:
    """Arguments with which an operation would read or write a namespace, or what belongs to no namespace."""
    step = {"op": "check", "namespace": namespace, "key": "k", "expected_version": 1}
    message = {"type": "text", "role": "user", "content": "x"}
    plausible = {
        "namespace": namespace, "key": "k", "value": 1, "updated_by": "x", "deleted_by": "x", "agent": "x",
        "reverted_by": "x", "resource": "custom://theirs", "moment": "now", "end": "now",
        "session": "theirs", "start": "1", "since_version": 0, "timeout_seconds": 0, "thread_id": "theirs",
        "operations": [step], "merge": {}, "force": True, "messages": [message],
    }  # fmt: skip
    kind = OPERATIONS[name]
    fields = {field.alias or name for name, field in kind.model_fields.items()} | (
        {"force"} if kind.overwrites else set()
    )
    return {argument: value for argument, value in plausible.items() if argument in fields}


@pytest.mark.parametrize("namespace", ["n", "theirs/n", "../theirs/n", "theirs", "/theirs/n", "mine/../theirs/n"])
def test_no_route_shows_a_token_of_a_space_what_is_elsewhere(guarded: Guarded, namespace: str) -> None:
    mine, theirs = (
        guarded.create(f"{space}-{abs(hash(namespace))}", "admin:*", space=space) for space in ("mine", "theirs")
    )
    for token in (theirs, guarded.create(f"main-{abs(hash(namespace))}", "admin:*")):
        guarded.ask(token, "POST", "/kv/n/k", data=SECRET)
    guarded.ask(token, "POST", "/v1/claims/custom://theirs", json={"agent": "ann", "note": SECRET})
    thread = {"agent": "ann", "messages": [{"type": "text", "role": "user", "content": SECRET}]}
    assert guarded.ask(token, "POST", "/v1/threads/theirs", json=thread).status_code == 200
    routes = [
        (method, path, kind)
        for path, kinds in (list_operations() | {"/events": {"GET": OPERATIONS["events"]}}).items()
        for method, kind in kinds.items()
    ]
    for method, path, kind in routes:
        arguments = arguments_of(kind.name, namespace)
        for name in re.findall(r"\{(\w+)\}", path):
            path = path.replace(f"{{{name}}}", arguments.pop(name).replace("/", "%2F"))
        options = {"params": arguments} if method == "GET" else {"json": arguments}
        response = guarded.ask(mine, method, f"/v1{path}", **options)
        assert SECRET not in response.text, (method, path)
        assert "theirs/" not in response.text.replace(namespace, ""), (method, path, response.text)
        if not kind.has_spaces:
            assert response.status_code in (400, 403), (method, path, response.text)
    assert guarded.ask(theirs, "GET", "/kv/n/k").text == SECRET
    assert (
        guarded.ask(mine, "POST", "/hook", json={"session_id": "s", "hook_event_name": "SessionStart"}).status_code
        == 403
    )
    assert guarded.ask(mine, "GET", "/metrics").status_code == 403


def test_space_has_its_own_request_ids_and_namespaces(guarded: Guarded) -> None:
    token = guarded.create("labels", "admin:*", space="labels")
    for number in range(2):
        write = {"value": 1, "updated_by": "x", "expected_version": 0}
        written = guarded.ask(token, "PUT", "/v1/values/n/k", json=write, headers={"idempotency-key": "one"})
        assert (number, written.json()["namespace"], written.json()["version"]) == (number, "n", 1)
    step = {"op": "set", "namespace": "b", "key": "k", "value": 1}
    guarded.ask(token, "POST", "/v1/transactions", json={"operations": [step], "updated_by": "x"})
    first = guarded.ask(token, "GET", "/v1/values?limit=1").json()
    assert ([row["namespace"] for row in first["namespaces"]], first["next_after"]) == (["b"], "b")
    rest = guarded.ask(token, "GET", "/v1/values", params={"after_key": "b"}).json()
    assert [row["namespace"] for row in rest["namespaces"]] == ["n"]
    (record,) = guarded.ask(token, "GET", "/v1/values/n").json()["records"]
    assert (record["namespace"], record["key"]) == ("n", "k")
    assert guarded.ask(token, "DELETE", "/v1/values/n", params={"deleted_by": "x"}).json()["deleted_keys"] == ["k"]


def test_refusals_in_a_space_have_the_namespace_of_the_call(guarded: Guarded) -> None:
    token = guarded.create("refusals", "write:*", space="refusals")
    value = {"value": 1, "updated_by": "x", "expected_version": 7}
    steps = {
        "operations": [{"op": "set", "namespace": "n", "key": "k", "value": 1, "expected_version": 7}],
        "updated_by": "x",
    }
    refused = [
        guarded.ask(token, "GET", "/v1/values/n/k"),
        guarded.ask(token, "PUT", "/v1/values/n/k", json=value),
        guarded.ask(token, "POST", "/v1/transactions", json=steps),
    ]
    assert [(it.json()["status"], it.json()["namespace"]) for it in refused] == [
        ("not_found", "n"),
        ("conflict", "n"),
        ("conflict", "n"),
    ]


def test_listed_values_of_a_space_have_the_namespace_of_the_call(guarded: Guarded) -> None:
    token = guarded.create("rows", "write:*", space="rows")
    for key in ("kept", "deleted"):
        guarded.ask(token, "POST", f"/kv/n/{key}", data="x")
    guarded.ask(token, "DELETE", "/kv/n/deleted")
    for path in ("/v1/values/n", "/v1/values/n?deleted=true"):
        assert [row["namespace"] for row in guarded.ask(token, "GET", path).json()["records"]] == ["n"]


def test_many_writes_at_once_do_not_exceed_the_bytes_of_a_space(guarded: Guarded) -> None:
    token = guarded.server.request("POST", "/token", data={"token": "new"}).text
    writes = [in_thread(guarded.ask, token, "POST", f"/kv/g/{number}", data="x" * 300) for number in range(12)]
    assert sorted(write.result().status_code for write in writes) == [200] * 3 + [400] * 9
    assert guarded.ask(token, "DELETE", "/v1/values/g", params={"deleted_by": "x"}).status_code == 200
    assert guarded.ask(token, "POST", "/kv/g/k", data="x" * 300).status_code == 200


# --- what a token may do


def test_page_does_not_end_with_a_name_that_its_reader_may_not_know(guarded: Guarded) -> None:
    admin, reader = guarded.create("pages", "admin:*"), guarded.create("reader", "read:page-c")
    for name in "abcd":
        guarded.ask(admin, "POST", f"/kv/page-{name}/k", data="x")
        guarded.ask(admin, "POST", f"/v1/claims/custom:%2F%2Fpage-{name}", json={"agent": "ann"})
    page = guarded.ask(reader, "GET", "/v1/values?limit=1").json()
    assert [row["namespace"] for row in page["namespaces"]] == ["page-c"]
    assert page.get("next_after") in (None, "page-c"), "a page behind many hidden names is long, and may reach the end"
    assert "page-" not in guarded.ask(reader, "GET", "/v1/values", params={"limit": 1, "after_key": "page-c"}).text
    assert "page-" not in guarded.ask(reader, "GET", "/v1/claims").text


def test_guard_of_a_write_shows_a_reader_only_resources_that_it_may_read(guarded: Guarded) -> None:
    admin, reader = guarded.create("guards", "admin:*"), guarded.create("guest", "read:guards", "read:custom://open")
    session, condition = {"holdlog-session": "s"}, []
    for resource in ("custom://hidden", "custom://open"):
        claimed = guarded.ask(admin, "POST", f"/v1/claims/{resource}", json={"agent": "ann"}, headers=session).json()
        condition.append({"resource": resource, "version": claimed["version"]})
    write = {"value": 1, "updated_by": "ann", "expected_version": 0, "guard": condition}
    assert guarded.ask(admin, "PUT", "/v1/values/guards/k", json=write, headers=session).status_code == 200
    for path in ("/v1/blame?namespace=guards&key=k", "/v1/events?namespace=guards", "/v1/log?namespace=guards"):
        shown = guarded.ask(reader, "GET", path).text
        assert ("custom://open" in shown, "hidden" in shown) == (True, False), shown
        assert "hidden" in guarded.ask(admin, "GET", path).text


def test_page_that_begins_behind_many_hidden_names_takes_few_reads() -> None:
    """Anybody could keep a server busy otherwise, who may read next to nothing."""
    engine, access = open_engine(":memory:"), Access("token:x", ("read:zz",))
    steps = [{"op": "set", "namespace": f"n{number:03}", "key": "k", "value": 1} for number in range(300)]
    engine.run(Transact.parse({"operations": steps, "updated_by": "ann"}), Caller())
    engine.run(SetValue.parse({"namespace": "zz", "key": "k", "value": 1, "updated_by": "ann"}), Caller())
    reads = respond(access, List.parse({"limit": 1}), Caller(), Surface(engine, None, None, str))
    count, step = 0, next(reads)
    with pytest.raises(StopIteration) as end:
        while True:
            count, step = count + 1, reads.send(engine.query(step))
    engine.close()
    assert [row["namespace"] for row in end.value.value["namespaces"]] == ["zz"]
    assert count < 15


def test_denied_call_names_the_grant_that_it_needs(guarded: Guarded) -> None:
    token = guarded.create("narrow", "claim:src/*", "write:build-*")
    denied = guarded.ask(token, "PUT", "/v1/values/other/k", json={"value": 1, "updated_by": "x", "force": True})
    assert (denied.status_code, denied.json()["needed"]) == (403, "write:other")
    claim = {"agent": "ann", "also": ["doc/a.md"]}
    assert guarded.ask(token, "POST", "/v1/claims/src%2Fa.py", json=claim).json()["needed"] == "claim:doc/a.md"
    guard = [{"resource": "doc/a.md", "version": 1}]
    write = {"value": 1, "updated_by": "x", "force": True, "guard": guard}
    assert guarded.ask(token, "PUT", "/v1/values/build-1/k", json=write).json()["needed"] == "claim:doc/a.md"
    assert (
        guarded.ask(token, "POST", "/v1/reverts", json={"session": "s", "reverted_by": "x"}).json()["needed"]
        == "write:*"
    )


def test_admin_reverts_what_another_token_wrote(guarded: Guarded) -> None:
    admin, robot = guarded.create("undoer", "admin:*"), guarded.create("robot", "write:*")
    write = {"value": 1, "updated_by": "robot", "force": True}
    headers = {"holdlog-session": "robots-run"}
    assert guarded.ask(robot, "PUT", "/v1/values/reverted/k", json=write, headers=headers).status_code == 200
    run = {"session": "robots-run", "agent": "robot", "reverted_by": "ann"}
    reverted = guarded.ask(admin, "POST", "/v1/reverts", json=run).json()
    assert (reverted["status"], [row["key"] for row in reverted["reverted"]]) == ("ok", ["k"])


@pytest.mark.parametrize(
    ("grant", "scope", "name", "is_allowed"),
    [
        ("read:a*c", "read", "abc", True),
        ("read:a*c", "read", "abcd", False),
        ("read:*a*b*", "read", "xbxaxbx", True),
        ("read:a.c", "read", "abc", False),
        ("write:a", "claim", "a", False),
        ("admin:a*", "claim", "ab", True),
        ("read:" + "*a" * 200, "read", "a" * 199 + "b", False),
    ],
)
def test_star_of_a_grant_stands_for_any_text(grant: str, scope: str, name: str, is_allowed: bool) -> None:
    access = Access("token:t", (grant,))
    assert access.allows(scope, name) is is_allowed
    if not is_allowed:
        with pytest.raises(DeniedError):
            access.require(scope, name)


# --- the rest


def test_metrics_show_claims_waiters_denials_and_events(fresh: HttpServer) -> None:
    fresh.request("POST", "/v1/claims/custom://x", json={"agent": "ann"})
    fresh.request("POST", "/v1/claims/custom://x", json={"agent": "bob"})
    text = fresh.request("GET", "/metrics").text
    for line in (
        "holdlog_claims_held 1.0",
        "holdlog_waiters 0.0",
        'holdlog_requests_total{kind="claim",status="busy"} 1.0',
        'holdlog_events_total{kind="ClaimGranted"} 1.0',
    ):
        assert line in text.splitlines(), text
    (age,) = re.findall(r"^holdlog_oldest_hold_seconds (\S+)$", text, re.MULTILINE)
    assert 0 < float(age) < 60
    assert "holdlog_position 1.0" in text.splitlines()
    assert "_created" not in text


def test_token_of_prometheus_reads_metrics_and_nothing_else(guarded: Guarded) -> None:
    token = guarded.create("prometheus", "metrics:*")
    codes = [guarded.ask(token, "GET", path).status_code for path in ("/metrics", "/v1/values/n/k", "/v1/claims/x")]
    assert codes == [200, 403, 403]
    assert guarded.ask(token, "GET", "/v1/values").json()["namespaces"] == []


def test_start_says_which_store_is_served_and_whether_tokens_are_required(server: HttpServer, guarded: Guarded) -> None:
    for it, rest in ((server, "anybody who reaches it may call it"), (guarded.server, "tokens are required")):
        assert re.fullmatch(rf"holdlog: serving at {it.url}, the store \S+/state\.db; {rest}", it.log[0]), it.log


def test_script_that_forgets_its_session_learns_that_another_one_holds_it(server: HttpServer) -> None:
    headers = {"holdlog-session": "ann-1"}
    assert server.request("POST", "/v1/claims/custom://forgotten", json={"agent": "ann"}, headers=headers).ok
    for name, hint in (("ann", "Another session with this name"), ("bob", "You do not hold this")):
        refused = server.request("DELETE", f"/v1/claims/custom://forgotten?agent={name}")
        assert (refused.status_code, hint in refused.text) == (409, True), refused.text


def test_error_in_a_thread_names_fields_as_the_page_does(server: HttpServer) -> None:
    refused = server.request("POST", "/v1/threads/t", json={"agent": "ann", "results": [{"output": []}]})
    assert refused.json()["message"] == "results.0.agent_name: is required"


@pytest.mark.rest
def test_events_are_counted_once_when_several_programs_ask_for_metrics_at_once(fresh: HttpServer) -> None:
    rounds, size = 20, 200
    for number in range(rounds):
        steps = [{"op": "set", "namespace": "n", "key": f"{number}/{it}", "value": 1} for it in range(size)]
        fresh.request("POST", "/v1/transactions", json={"operations": steps, "updated_by": "ann"})
        for call in [in_thread(fresh.request, "GET", "/metrics") for _ in range(8)]:
            call.result()
    text = fresh.request("GET", "/metrics").text
    assert f'holdlog_events_total{{kind="ValueWritten"}} {float(rounds * size)}' in text.splitlines()


@pytest.mark.parametrize("path", ["/kv/n/k", "/v1/transactions", "/hook", "/mcp"])
@pytest.mark.parametrize("is_announced", [True, False])
def test_body_that_is_too_large_is_refused_as_json(server: HttpServer, path: str, is_announced: bool) -> None:
    body: Any = b"x" * 9_000_000 if is_announced else (b"x" * 1_000_000 for _ in range(9))
    headers = {"content-type": "application/json", "accept": BOTH["accept"]}
    refused = server.request("POST", path, data=body, headers=headers)
    assert (refused.status_code, refused.headers["connection"]) == (413, "close")
    assert refused.json()["status"] == "error"


@pytest.mark.parametrize("path", ["/v1/values/n/k", "/kv/n/k"])
def test_call_that_nobody_foresaw_to_fail_is_an_error_of_the_server(
    fresh: HttpServer, tmp_path: Path, path: str
) -> None:
    write = {"value": "secret", "updated_by": "ann", "expected_version": 0}
    assert fresh.request("PUT", "/v1/values/n/k", json=write).status_code == 200
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
        connection.execute("UPDATE events SET meta = '{'")
    failed = fresh.request("GET", path)
    assert (failed.status_code, failed.json()["status"], "secret" in failed.text) == (500, "error", False)
    until(lambda: any("Traceback" in line for line in fresh.log))


def test_description_of_the_api_has_every_operation_and_no_reference() -> None:
    document = describe_api()
    assert "$ref" not in json.dumps(document)
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    routes = [kind.route.partition(" ") for kind in OPERATIONS.values() if kind.route]
    assert {(method.lower(), f"/v1{path}") for method, _, path in routes} <= described
    written = document["paths"]["/v1/values/{namespace}/{key}"]["put"]
    assert written["requestBody"]["content"]["application/json"]["schema"]["required"] == ["value", "updated_by"]
    assert "conflict" in written["responses"]["409"]["description"]
    names = [route["operationId"] for methods in document["paths"].values() for route in methods.values()]
    assert len(set(names)) == len(names)
    assert written["operationId"] == "set"
    assert "401" in written["responses"]


def test_argument_of_a_path_is_not_given_twice(server: HttpServer) -> None:
    write = {"value": 1, "updated_by": "x", "force": True, "key": "other"}
    assert "key" in server.request("PUT", "/v1/values/n/k", json=write).json()["message"]
    assert server.request("GET", "/v1/values/n/k", params={"key": "other"}).status_code == 400
    events = server.request("GET", "/v1/events?kinds=claim&kinds=thread&namespace=nowhere&limit=1")
    assert (events.status_code, events.json()["events"]) == (200, [])


def test_posted_hook_takes_paths_below_the_root_of_its_worktree(server: HttpServer) -> None:
    call = {"session_id": "one", "cwd": "/home/ann/project/src", "hook_event_name": "PreToolUse", "tool_name": "Edit"}
    call |= {"tool_use_id": "t", "tool_input": {"file_path": "/home/ann/project/src/a.py"}}
    assert server.request("POST", "/hook?root=/home/ann/project", json=call).json() == {}
    assert server.request("GET", "/v1/claims/src%2Fa.py").json()["status"] == "claimed"
    elsewhere = call | {"session_id": "two", "cwd": "/srv/ben", "tool_input": {"file_path": "/srv/ben/src/a.py"}}
    assert "deny" in server.request("POST", "/hook?root=/srv/ben", json=elsewhere).text
    for session, text in (("one", "{}"), ("two", "deny")):
        dotted = call | {"session_id": session, "tool_input": {"file_path": "/home/ann/project/..a.py"}}
        assert text in server.request("POST", "/hook?root=/home/ann/project", json=dotted).text
    outside = call | {"session_id": "two", "tool_input": {"file_path": "/etc/hosts"}}
    assert server.request("POST", "/hook?root=/home/ann/project", json=outside).json() == {}


@pytest.mark.rest
def test_posted_hook_tells_what_its_agent_has_lost(fresh: HttpServer, tmp_path: Path) -> None:
    call = {"session_id": "one", "cwd": "/srv/ann", "hook_event_name": "PreToolUse", "tool_name": "Edit"}
    edits = [call | {"tool_use_id": it, "tool_input": {"file_path": f"/srv/ann/{it}.py"}} for it in ("a", "b")]
    assert fresh.request("POST", "/hook?root=/srv/ann", json=edits[0]).json() == {}
    release = ("release", "a.py", "--force", "--reason", "urgent", "--agent", "eve", "--db", tmp_path / "state.db")
    assert run(*release, cwd=tmp_path).out.startswith("released")
    assert "a person took a.py" in fresh.request("POST", "/hook?root=/srv/ann", json=edits[1]).text
