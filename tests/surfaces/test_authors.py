"""A name is what its caller says: every surface shows the principal that was authenticated next to it."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.api.authors import author
from holdlog.adapters.cli.main import main
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import Caller
from holdlog.domain.refusals import BusyError, ConflictError, DeadlockError, FencedError, NotHolderError
from tests.support.commands import until
from tests.support.curl import AS_JSON, Curl

CI = Caller(principal="token:ci", session="s1", server="calls")
ANN = Caller(principal="jwt:ann@example.org", session="s2", server="calls")
SAID = {"type": "text", "role": "user", "content": "hello"}


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HOLDLOG")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "state.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


@pytest.fixture
def engine(place: str) -> Iterator[Engine]:
    holdlog = open_holdlog(place if "://" in place else Path(place))
    yield holdlog
    holdlog.close()


def cli(place: str, *arguments: str, code: int = 0) -> str:
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            ended = main([*arguments, "--db", place])
        except SystemExit as error:
            ended = int(error.code or 0)
    assert ended == code, err.getvalue()
    return out.getvalue()


def refused(engine: Engine, call: Any, caller: Caller, kind: type[Exception]) -> dict[str, Any]:
    """The answer to the refusal."""
    run: Any = engine.claim if hasattr(call, "again") else engine.write
    with pytest.raises(kind) as caught:
        run(call, caller)
    return engine.requests.refused(caught.value).body()  # type: ignore[arg-type]


def test_author_is_shown_with_the_principal_where_it_differs() -> None:
    assert author("root", "token:ci") == "root (token ci)"
    assert author("root", "jwt:ann@example.org") == "root (jwt ann@example.org)"
    assert author("root", "static") == "root (static token)"
    assert author("root", None) == "root"
    assert author("token:ci", "token:ci") == "token:ci"


@pytest.mark.parametrize(
    "name",
    [
        "root (token ci)",
        "root (TOKEN ci)",
        "root ( token ci)",
        "root (static  token)",
        "root (jwt:ann)",
        "root （token ci）",
    ],
)
def test_name_that_imitates_an_authenticated_one_is_quoted(name: str) -> None:
    assert author(name, None) == f'"{name}"'
    assert author(name, "token:ci") == f'"{name}" (token ci)'


def test_log_quotes_every_name_that_imitates_an_authenticated_one(place: str) -> None:
    with closing(open_holdlog(place if "://" in place else Path(place))) as engine:
        engine.claim(engine.requests.claims.claim("a", "ann"), engine.caller)
        engine.write(engine.requests.claims.release("a", "x (jwt y)", note="x", forced=True), engine.caller)
    listed = cli(place, "log")
    assert 'ann lost a, taken by "x (jwt y)": x' in listed
    assert listed.count("x (jwt y)") == listed.count('"x (jwt y)"')


def test_answers_about_values_name_the_principal(engine: Engine) -> None:
    calls = engine.requests
    engine.write(calls.values.set("n", "k", 1, "root", None), CI)
    engine.write(calls.values.set("n", "own", 1, "root", None), Caller())
    assert engine.read(calls.values.get("n", "k")).body()["principal"] == "token:ci"
    assert "principal" not in engine.read(calls.values.get("n", "own")).body()
    listed = engine.read(calls.values.records("n")).body()["records"]
    assert [it.get("principal") for it in listed] == ["token:ci", None]
    assert ["principal" in it for it in listed] == [True, False]
    conflict = refused(engine, calls.values.set("n", "k", 2, "ann", 7), Caller(), ConflictError)
    assert (conflict["actual_updated_by"], conflict["actual_principal"]) == ("root", "token:ci")
    assert engine.wait(calls.values.watch("n", "k", 0, 0)).body()["principal"] == "token:ci"
    engine.write(calls.values.delete("n", "k", "root", None), ANN)
    assert [it["principal"] for it in engine.read(calls.values.history("n", "k")).body()["history"]] == [
        "jwt:ann@example.org",
        "token:ci",
    ]
    exported = engine.read(calls.values.export("n", include_deleted=True)).body()["records"]
    assert exported[0]["principal"] == "jwt:ann@example.org"
    assert [it["principal"] for it in exported[0]["history"]] == ["jwt:ann@example.org", "token:ci"]
    assert engine.wait(calls.values.watch("n", "k", 1, 0)).body()["principal"] == "jwt:ann@example.org"
    with pytest.raises(LookupError) as missing:
        engine.read(calls.values.get("n", "k"))
    assert calls.refused(missing.value).body()["principal"] == "jwt:ann@example.org"  # type: ignore[arg-type]


def test_value_that_expired_keeps_the_principal_of_its_writer(engine: Engine) -> None:
    calls = engine.requests
    engine.write(calls.values.set("n", "k", 1, "root", None, ttl_seconds=0.01), CI)
    until(lambda: not engine.read(calls.values.record("n", "k")).live)
    engine.write(calls.values.set("n", "k", 2, "ann", None), Caller())
    history = engine.read(calls.values.history("n", "k")).body()["history"]
    assert [(it["event_type"], it["updated_by"], it.get("principal")) for it in history] == [
        ("write", "ann", None),
        ("expire", "root", "token:ci"),
        ("write", "root", "token:ci"),
    ]
    events = engine.read(calls.events.page(calls.events.choice(namespace="n"))).events
    assert [it.model_dump().get("principal") for it in events] == ["token:ci", "token:ci", None]


def test_answers_about_claims_name_the_principals_of_holders_and_waiters(engine: Engine) -> None:
    calls = engine.requests
    engine.claim(calls.claims.claim("a", "root"), CI)
    busy = refused(engine, calls.claims.claim("a", "ann"), ANN, BusyError)
    assert (busy["held_by"], busy["held_by_principal"]) == ("root", "token:ci")
    assert engine.read(calls.claims.status("a")).body()["held_by_principal"] == "token:ci"
    assert engine.wait(calls.claims.wait("a", 0)).body()["held_by_principal"] == "token:ci"
    not_holder = refused(engine, calls.claims.release("a", "ann"), ANN, NotHolderError)
    assert not_holder["held_by_principal"] == "token:ci"
    fenced = refused(
        engine, calls.values.set("n", "k", 1, "ann", None, guard=[{"resource": "a", "version": 1}]), ANN, FencedError
    )
    assert fenced["held_by_principal"] == "token:ci"
    engine.claim(calls.claims.claim("s", "root", mode="shared"), CI)
    engine.claim(calls.claims.claim("s", "root", mode="shared"), ANN)
    shared = engine.read(calls.claims.status("s")).body()
    assert (shared["holders"], shared["holder_principals"]) == (["root", "root"], ["token:ci", "jwt:ann@example.org"])
    busy = refused(engine, calls.claims.claim("s", "ben"), Caller(session="s3", server="calls"), BusyError)
    assert busy["holder_principals"] == ["token:ci", "jwt:ann@example.org"]
    released = engine.write(calls.claims.release("a", "root", outcome="modified"), CI).body()
    assert "granted_to_principal" not in released
    again = engine.claim(calls.claims.claim("a", "ann"), ANN).body()
    assert (again["previous_holder"], again["previous_holder_principal"]) == ("root", "token:ci")


def test_board_shows_namesakes_of_two_principals_separately(engine: Engine) -> None:
    calls = engine.requests
    engine.claim(calls.claims.claim("a", "root"), CI)
    engine.claim(calls.claims.claim("b", "root"), ANN)
    engine.write(calls.claims.register("root", name="Root", model="gpt"), CI)
    board = engine.read(calls.claims.board()).body()
    assert [(it["held_by"], it["held_by_principal"]) for it in board["claims"]] == [
        ("root", "token:ci"),
        ("root", "jwt:ann@example.org"),
    ]
    agents = [(it["agent"], it["principal"], it["claims"], it.get("name")) for it in board["agents"]]
    assert agents == [("root", "jwt:ann@example.org", 1, None), ("root", "token:ci", 1, "Root")]
    assert engine.read(calls.claims.status("a")).body()["agent_name"] == "Root"
    assert "agent_name" not in engine.read(calls.claims.status("b")).body()


def test_agents_have_one_row_per_session(place: str) -> None:
    where = place if "://" in place else Path(place)
    with closing(open_holdlog(where, what="first")) as one, closing(open_holdlog(where, what="second")) as two:
        one.claim(one.requests.claims.claim("a", "ann"), one.caller)
        one.claim(one.requests.claims.claim("b", "ann"), one.caller)
        two.claim(two.requests.claims.claim("c", "ann"), two.caller)
        two.claim(two.requests.claims.claim("d", "root"), CI)
        from holdlog.domain.claims.commands import AcquireClaim
        from holdlog.domain.claims.lease import SECOND

        two.writer.run(AcquireClaim(resource="a", agent="ann", wait=30 * SECOND), two.caller)
        rows = json.loads(cli(place, "agents", "--json"))["agents"]
        listed = cli(place, "agents")
    anns = sorted((it["claims"], it["waits"], it["process"], it["program"]) for it in rows if it["agent"] == "ann")
    assert anns == [(1, 1, os.getpid(), "second"), (2, 0, os.getpid(), "first")]
    assert all(it["folder"].endswith(os.getcwd()[-10:]) for it in rows if it["agent"] == "ann")
    assert [(it["principal"], it["claims"]) for it in rows if it["agent"] == "root"] == [("token:ci", 1)]
    assert "1 claim, waits for 1" in listed
    assert f"process {os.getpid()}, second" in listed


def test_row_of_a_session_marks_a_name_that_mixes_scripts(place: str) -> None:
    with closing(open_holdlog(place if "://" in place else Path(place))) as engine:
        engine.claim(engine.requests.claims.claim("a", "\u0430nn"), engine.caller)
        engine.claim(engine.requests.claims.claim("b", "анна"), engine.caller)
        rows = json.loads(cli(place, "agents", "--json"))["agents"]
    assert {it["agent"]: it.get("mixed_scripts") for it in rows} == {"\u0430nn": True, "анна": None}


def test_deadlocks_and_grants_from_the_queue_name_principals(engine: Engine) -> None:
    from holdlog.domain.claims.commands import AcquireClaim, Queued, ReleaseClaim
    from holdlog.domain.claims.lease import SECOND

    calls, run = engine.requests, engine.writer.run
    engine.claim(calls.claims.claim("a", "root"), CI)
    engine.claim(calls.claims.claim("b", "root"), ANN)
    assert isinstance(run(AcquireClaim(resource="b", agent="root", wait=30 * SECOND), CI), Queued)
    ring = refused(engine, calls.claims.claim("a", "root", wait_seconds=1), ANN, DeadlockError)
    assert sorted(it["principal"] for it in ring["cycle"]) == ["jwt:ann@example.org", "token:ci"]
    queue = engine.read(calls.claims.board()).body()["queues"][0]
    assert [(it["agent"], it["principal"]) for it in queue["line"]] == [("root", "token:ci")]
    released = engine.write(calls.claims.release("b", "root"), ANN).body()
    assert (released["granted_to"], released["granted_to_principal"]) == ("root", "token:ci")
    events = engine.read(calls.events.page(calls.events.choice(resource="b"))).events
    assert [(it.kind, it.model_dump()["principal"]) for it in events] == [
        ("ClaimGranted", "jwt:ann@example.org"),
        ("ClaimQueued", "token:ci"),
        ("ClaimReleased", "jwt:ann@example.org"),
        ("ClaimGranted", "token:ci"),
    ]
    run(ReleaseClaim(resource="b", agent="boss", forced=True, note="why"), Caller())
    (taken,) = engine.read(calls.events.page(calls.events.choice(resource="b"), after=events[-1].position)).events
    assert (taken.by, "principal" in taken.model_dump(), taken.model_dump()["holder_principal"]) == (
        "boss",
        False,
        "token:ci",
    )


def test_principal_with_slashes_can_claim(engine: Engine) -> None:
    caller = Caller(principal="jwt:spiffe://cluster//agent/", session="s1", server="calls")
    engine.claim(engine.requests.claims.claim("a", "ann"), caller)
    assert engine.read(engine.requests.claims.status("a")).body()["held_by_principal"] == caller.principal


def test_answers_about_threads_name_the_principals(engine: Engine) -> None:
    calls = engine.requests
    engine.write(calls.threads.start("root", "t"), CI)
    engine.write(calls.threads.append("t", "root", [SAID]), ANN)
    (item,) = engine.read(calls.threads.page("t")).body()["items"]
    assert (item["by"], item["principal"]) == ("root", "jwt:ann@example.org")
    facts = engine.read(calls.threads.facts("t")).body()
    assert (facts["started_by_principal"], facts["updated_by_principal"]) == ("token:ci", "jwt:ann@example.org")
    listed = engine.read(calls.threads.listed()).body()["threads"]
    assert listed[0]["updated_by_principal"] == "jwt:ann@example.org"


def test_command_line_shows_the_principal_next_to_every_name(place: str) -> None:
    with closing(open_holdlog(place if "://" in place else Path(place))) as engine:
        calls = engine.requests
        engine.write(calls.values.set("n", "k", {"long": "x" * 100}, "root", None), CI)
        engine.claim(calls.claims.claim("a", "root"), CI)
        engine.write(calls.threads.start("root", "t", {"plan": 1}), CI)
        engine.write(calls.threads.append("t", "root", [SAID]), CI)
    shown = "root (token ci)"
    assert shown in cli(place, "history", "n", "k")
    assert shown in cli(place, "list", "n")
    assert shown in cli(place, "claims")
    assert shown in cli(place, "agents")
    assert shown in cli(place, "status", "a")
    assert shown in cli(place, "thread", "list")
    assert shown in cli(place, "thread", "read", "t")
    assert shown in cli(place, "thread", "history", "t", "plan")
    log = cli(place, "log").splitlines()
    assert len(log) == 5
    assert all(shown in line for line in log)
    assert not any("principal=" in line for line in log)
    assert json.loads(cli(place, "log", "--limit", "1", "--json"))["principal"] == "token:ci"
    assert json.loads(cli(place, "history", "n", "k", "--json"))["history"][0]["principal"] == "token:ci"


async def test_http_responses_name_the_principal_in_headers_and_bodies(curl: Curl) -> None:
    calls = curl.store.requests
    curl.store.write(calls.values.set("n", "k", "v", "root", None), CI)
    curl.store.write(calls.values.set("n", "own", "v", "root", None), Caller())
    curl.store.write(calls.values.set("n", "jwt", "v", "root", None), Caller(principal="jwt:bös"))
    head = (await curl.head("/kv/n/k")).headers
    assert (head["holdlog-updated-by"], head["holdlog-principal"]) == ("root", "token:ci")
    assert "holdlog-principal" not in (await curl.get("/kv/n/own")).headers
    assert (await curl.get("/kv/n/jwt")).headers["holdlog-principal"] == "jwt:b%C3%B6s"
    conflict = await curl.put("/kv/n/k", content="w", headers=AS_JSON | {"if-match": '"7"'})
    assert (conflict.status_code, conflict.json()["actual_principal"]) == (412, "token:ci")
    assert (await curl.get("/kv/n/k?history=1")).json()["history"][0]["principal"] == "token:ci"
    events = (await curl.get("/events", headers=AS_JSON)).json()["events"]
    assert [it.get("principal") for it in events] == ["token:ci", None, "jwt:bös"]
