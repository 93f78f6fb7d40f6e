"""Tokens: created once, stored as hashes, limited by scope and time, revoked for ever."""

import re

import pytest

import holdlog
from tests.support.library import in_thread
from tests.support.mcp import OverHttp
from tests.support.tampering import files_with
from tests.support.waiting import until

TEXT = re.compile(r"holdlog_[a-z0-9-]+_[A-Za-z0-9_-]{43}")


@pytest.fixture
def create(command):
    def call(name, *allow, expires="1h", **more):
        grants = [word for it in allow for word in ("--allow", it)]
        done = command("token", "create", "--name", name, *grants, "--expires", expires, **more)
        assert done.code == 0, done
        return done

    return call


def test_new_token_is_all_of_standard_output_and_stored_as_a_hash(command, create, db):
    token = create("ci", "read:*").out.removesuffix("\n")
    assert TEXT.fullmatch(token)
    secret = token.rpartition("_")[2] if token.count("_") == 2 else token[-43:]
    assert files_with(db.parent, secret) == []
    listed = command("token", "list", "--json")
    assert [(it["name"], it["state"], it["allow"]) for it in listed.json["tokens"]] == [("ci", "active", ["read:*"])]
    assert 3000 < listed.json["tokens"][0]["expires_in_seconds"] <= 3600
    with holdlog.StateStore(db) as store:
        events = repr(store.events().events)
    for shown in (listed.out, events):
        assert secret not in shown
        assert not re.search(r"[0-9a-f]{64}", shown)


def test_effect_of_the_first_token_on_servers_is_noted_once(create):
    notes = [create(name, "read:*").err for name in ("first", "second")]
    assert ("asks for none until it is restarted" in notes[0], notes[1]) == (True, "")


@pytest.mark.rest
def test_token_is_limited_by_scope_time_and_revocation(command, create, http, db):
    writer = create("writer", "write:build-*").out.strip()
    reader = create("reader", "read:build-*").out.strip()
    brief = create("brief", "read:*", expires="1s").out.strip()
    server = http("--tools", "state")

    def read(token, namespace="build-1"):
        """The status code."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return server.request("GET", "/v1/events", params={"namespace": namespace}, headers=headers).status_code

    fields = {"key": "k", "value": 1, "updated_by": "ann", "expected_version": 0}
    ours, theirs = (OverHttp(server.url + "/mcp", token=it) for it in (writer, reader))
    assert ours.call("set", namespace="build-1", **fields)["version"] == 1
    for client, namespace in ((ours, "other"), (theirs, "build-1")):
        response = client.exchange(client.calling("set", fields | {"namespace": namespace}))
        assert "previous_version" not in str(response), response
    assert [read(writer), read(reader), read(reader, "other")] == [200, 200, 403]
    assert [read(None), read(reader[:-1] + "!")] == [401, 401]
    until(lambda: read(brief) == 401)
    assert command("token", "revoke", "reader").code == 0
    until(lambda: read(reader) == 401)
    assert read(writer) == 200
    states = {it["name"]: it["state"] for it in command("token", "list", "--json").json["tokens"]}
    assert states == {"writer": "active", "reader": "revoked", "brief": "expired"}
    with holdlog.StateStore(db) as store:
        (event,) = store.events(kinds=["record"]).events
    assert (event.by, event.principal) == ("ann", "token:writer")


@pytest.mark.rest
def test_log_names_the_principal_of_a_holder_not_of_the_call_that_ended_its_claim(command, create, http):
    tokens = [create(name, "claim:*", "read:*").out.strip() for name in ("ann", "bob")]
    server = http()
    ann, bob = (OverHttp(f"{server.url}/mcp", token=it) for it in tokens)
    ann.call("claim", resource="custom://a", agent="ann")
    ann.call("claim", resource="custom://b", agent="ann", lease_seconds=1)
    waiting = in_thread(bob.call, "claim", resource="custom://a", agent="bob", wait_seconds=30)
    until(lambda: ann.call("status", resource="custom://a")["queue_length"] == 1)
    ann.call("release", resource="custom://a", agent="ann")
    assert waiting.result()["status"] == "claimed"
    until(lambda: bob.call("claim", resource="custom://b", agent="bob")["status"] == "claimed")
    log = command("log", "--kinds", "claim").out
    assert "  bob (token bob) got custom://a\n" in log
    assert "  ann lost custom://b: the claim expired\n" in log


@pytest.mark.rest
def test_bad_token_is_refused_in_one_line(command, create):
    create("ci", "read:*")
    for code, *words in (
        (2, "create", "--name", "CI", "--allow", "read:*"),
        (2, "create", "--name", "x", "--allow", "see:*"),
        (2, "create", "--name", "x"),
        (2, "create", "--name", "x", "--allow", "read:*", "--expires", "soon"),
        (1, "create", "--name", "ci", "--allow", "read:*"),
        (1, "revoke", "other"),
    ):
        done = command("token", *words)
        assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1), done
    assert len(command("token", "list", "--json").json["tokens"]) == 1
