"""Who is the same agent: names, sessions and servers that come and go."""

from typing import Any

import pytest

from tests.processes.conftest import EVERY_STORE, EVERY_STORE_IN_TIME, Serve
from tests.support.processes.claimants import leases, steady
from tests.support.processes.soundness import Place, require_sound
from tests.support.processes.workers import until
from tests.support.slow import slow

AT = {"namespace": "n", "key": "k"}


def seconds_left(place: Place, resource: str = "a.md") -> float:
    """Of the only lease that the resource has."""
    ((_, _, deadline, *_),) = leases(place, "resource = ?", resource)
    return float(deadline - steady(place)) / 1_000_000


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_agent_name_of_another_live_server_is_busy_until_that_server_ends(place: Place, serve: Serve) -> None:
    first, second = serve(), serve()
    mine = first("claim", resource="a.md", agent="ann")
    busy = second("claim", resource="a.md", agent="ann")
    assert (busy["status"], busy["held_by"], busy["holder_connected"]) == ("busy", "ann", True)
    assert "Another session with this name holds it" in busy["hint"]
    waited = second("claim", resource="a.md", agent="ann", wait_seconds=0.1)
    assert (waited["status"], waited["held_by"]) == ("busy", "ann")
    released = second("release", resource="a.md", agent="ann")
    guard = [{"resource": "a.md", "version": mine["version"]}]
    assert second("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "fenced"
    assert first("status", resource="a.md", version=mine["version"])["current"]
    assert released["status"] in ("not_holder", "released")  # a ticket of its own may stand in line
    first.end()
    back = second("claim", resource="a.md", agent="ann")
    assert (back["status"], back["resumed"], back["version"] > mine["version"]) == ("claimed", True, True)
    assert "previous_session_ended_at" in back
    assert "Work may be half done: look before you edit" in back["hint"]
    again = second("claim", resource="a.md", agent="ann")
    assert (again["status"], again["version"]) == ("already_claimed", back["version"])
    assert second("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "fenced"
    guard = [{"resource": "a.md", "version": back["version"]}]
    assert second("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "ok"
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_agent_name_of_a_killed_server_resumes_only_the_claim_it_names(place: Place, serve: Serve) -> None:
    first, second = serve(), serve()
    mine = first("claim", resource="a.md", agent="ann")
    first("claim", resource="b.md", agent="ann")
    second.open()
    first.kill()
    assert second("claim", resource="c.md", agent="ann")["status"] == "claimed"
    back = second("claim", resource="a.md", agent="ann")
    assert (back["status"], back["resumed"], back["version"] > mine["version"]) == ("claimed", True, True)
    released = {it["resource"] for it in second("release", agent="ann")["released"]}
    assert released == {"a.md", "c.md"}
    assert second("status", resource="b.md")["status"] == "claimed"
    assert second("release", resource="b.md", agent="ann")["status"] == "released"


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_reader_sees_what_a_dead_holder_left_and_shortens_nothing(place: Place, serve: Serve) -> None:
    first, second = serve(), serve("--grace-seconds", 9)
    first("claim", resource="a.md", agent="ann")
    first("claim", resource="chosen.md", agent="ann", lease_seconds=200)
    assert second("status", resource="a.md")["expires_in_seconds"] > 250
    first.kill()
    held, chosen = second("status", resource="a.md"), second("status", resource="chosen.md")
    (listed, _) = second("status")["claims"]
    assert (held["holder_connected"], listed["holder_connected"]) == (False, False)
    assert 8 < held["expires_in_seconds"] <= 9
    assert 8 < listed["expires_in_seconds"] <= 9
    assert chosen["expires_in_seconds"] > 150
    assert seconds_left(place) > 250
    assert second("claim", resource="a.md", agent="ben")["expires_in_seconds"] <= 9
    assert seconds_left(place) <= 9


@pytest.mark.check
@EVERY_STORE_IN_TIME
@pytest.mark.parametrize("call", ["set", "release"])
def test_any_first_call_of_a_returning_agent_finds_its_claim(place: Place, serve: Serve, call: str) -> None:
    """Also after a kill -9 that nobody noticed yet."""
    first, second = serve(), serve()
    version = first("claim", resource="a.md", agent="ann")["version"]
    second.open()
    first.kill()
    if call == "set":
        guard = [{"resource": "a.md", "version": version}]
        assert second("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "ok"
    else:
        assert second("release", resource="a.md", agent="ann")["status"] == "released"
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_client_that_starts_a_server_for_every_call_keeps_its_claims(place: Place, serve: Serve) -> None:
    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        server = serve()
        answer = server(tool, **arguments)
        server.end()
        return answer

    version = call("claim", resource="a.md", agent="ann")["version"]
    assert 250 < seconds_left(place) <= 300
    guard = [{"resource": "a.md", "version": version}]
    assert call("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "ok"
    held = call("status", resource="a.md", version=version)
    assert (held["status"], held["held_by"], held["current"]) == ("claimed", "ann", True)
    assert (held["holder_connected"], held["expires_in_seconds"] > 250) == (False, True)
    assert call("claim", resource="a.md", agent="ben")["status"] == "busy"
    assert call("release", resource="a.md", agent="ann")["status"] == "released"
    require_sound(place)


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_clean_shutdown_cuts_leases_of_a_server_older_than_the_grace_period(place: Place, serve: Serve) -> None:
    old, young, chosen = serve("--grace-seconds", 0.5), serve("--grace-seconds", 60), serve("--grace-seconds", 0.5)
    old("claim", resource="old.md", agent="ann")
    young("claim", resource="young.md", agent="ben")
    chosen("claim", resource="chosen.md", agent="cleo", lease_seconds=200)
    for server in (old, chosen):
        started = steady(place)
        while steady(place) - started < 500_000:  # it lives longer than its grace
            server("status", resource="old.md")
    for server in (old, young, chosen):
        server.end()
    assert seconds_left(place, "old.md") <= 0.5
    assert 250 < seconds_left(place, "young.md") <= 300
    assert 150 < seconds_left(place, "chosen.md") <= 200


@pytest.mark.check
@EVERY_STORE_IN_TIME
@pytest.mark.parametrize("end", ["clean", "kill -9"])
def test_server_restarted_in_a_session_adopts_its_claims(place: Place, serve: Serve, end: str) -> None:
    first = serve("--lease-seconds", 9, "--grace-seconds", 9, session="conversation-1")
    other = serve("--lease-seconds", 9, "--grace-seconds", 9).open()
    version = first("claim", resource="a.md", agent="ann")["version"]
    ((_, _, deadline, server, _),) = leases(place, "resource = 'a.md'")
    if end == "clean":
        first.end()
    else:
        first.kill()
    second = serve("--lease-seconds", 9, "--grace-seconds", 9, session="conversation-1").open()
    renewed = "resource = 'a.md' AND deadline > ? AND server NOT IN (?, '')"
    ((_, _, at_start, *_),) = until(lambda: leases(place, renewed, deadline, server))
    until(lambda: leases(place, renewed, at_start, server))  # by the timer
    busy = other("claim", resource="a.md", agent="ben")
    assert (busy["status"], busy["held_by"], busy["holder_connected"]) == ("busy", "ann", True)
    assert seconds_left(place) > 5
    held = second("status", resource="a.md", version=version)
    assert (held["current"], held["holder_connected"]) == (True, True)
    assert second("claim", resource="a.md", agent="ann")["status"] == "already_claimed"
    guard = [{"resource": "a.md", "version": version}]
    assert second("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "ok"


@pytest.mark.check
@EVERY_STORE
def test_sessions_of_one_server_are_distinct(place: Place, serve: Serve) -> None:
    server = serve()
    one, two = {"holdlog/session": "one"}, {"holdlog/session": "two"}
    version = server("claim", one, resource="a.md", agent="ann")["version"]
    busy = server("claim", two, resource="a.md", agent="ann")
    assert (busy["status"], "Another session with this name" in busy["hint"]) == ("busy", True)
    assert server("claim", two, resource="a.md", agent="ann/sub")["status"] == "busy"
    assert server("release", two, resource="a.md", agent="ann")["status"] == "not_holder"
    guard = [{"resource": "a.md", "version": version}]
    assert server("set", two, **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "fenced"
    assert server("claim", one, resource="a.md", agent="ann")["status"] == "already_claimed"
    assert server("set", one, **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "ok"
    assert server("release", one, resource="a.md", agent="ann")["status"] == "released"


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_sub_agents_work_below_their_parent_and_block_each_other(place: Place, serve: Serve) -> None:
    mine, other = serve(), serve()
    assert mine("claim", resource="src/", agent="claude")["status"] == "claimed"
    tests = mine("claim", resource="src/a.py", agent="claude/tests")
    assert tests["status"] == "claimed"
    sibling = mine("claim", resource="src/a.py", agent="claude/docs")
    assert (sibling["status"], sibling["held_by"]) == ("busy", "claude/tests")
    assert mine("claim", resource="src/b.py", agent="claude/docs")["status"] == "claimed"
    for name in ("ben", "claude/tests", "claude/other"):
        assert other("claim", resource="src/a.py", agent=name)["status"] == "busy"
    guard = [{"resource": "src/", "version": tests["version"]}]
    assert mine("set", **AT, value=1, updated_by="claude/tests", force=True, guard=guard)["status"] == "fenced"
    assert mine("release", agent="claude")["released"] == [{"resource": "src/", "version": 2}]
    assert mine("status", resource="src/a.py")["held_by"] == "claude/tests"


@pytest.mark.check
@EVERY_STORE_IN_TIME
@pytest.mark.parametrize("tool", ["get", "wait", *slow("status", "claim", "list")])
def test_loss_is_reported_once_with_the_next_answer_of_any_kind(place: Place, serve: Serve, tool: str) -> None:
    server, other = serve("--lease-seconds", 1), serve()
    version = server("claim", resource="a.md", agent="ann")["version"]
    server("claim", resource="b.md", agent="ann", lease_seconds=60)
    other.open()
    server.stop()
    assert other("claim", resource="a.md", agent="ben", wait_seconds=20)["status"] == "claimed"
    server.go_on()
    calls: dict[str, dict[str, Any]] = {
        "status": {},
        "get": AT,
        "claim": {"resource": "a.md", "agent": "cleo"},
        "wait": {"resource": "c.md"},
        "list": {},
    }
    told = server(tool, **calls[tool])
    assert told["lost"] == [{"resource": "a.md", "version": version, "why": "expired", "held_by": "ben"}]
    assert "lost" not in server(tool, **calls[tool])
    assert "lost" not in other(tool, **calls[tool])


@pytest.mark.check
@EVERY_STORE_IN_TIME
def test_session_that_returns_in_another_server_learns_what_it_lost(place: Place, serve: Serve) -> None:
    first, other = serve("--lease-seconds", 1, session="conversation-1"), serve("--grace-seconds", 0.1)
    first("claim", resource="a.md", agent="ann")
    other.open()
    first.kill()
    assert other("claim", resource="a.md", agent="ben", wait_seconds=20)["status"] == "claimed"
    second = serve(session="conversation-1")
    assert [it["resource"] for it in second("status")["lost"]] == ["a.md"]
    assert "lost" not in second("status")


@pytest.mark.check
@EVERY_STORE_IN_TIME
@pytest.mark.parametrize("tool", ["claim", *slow("release", "set")])
def test_namesake_in_another_session_consumes_no_loss(place: Place, serve: Serve, tool: str) -> None:
    first, other = serve("--lease-seconds", 1, session="conversation-1"), serve("--grace-seconds", 0.1)
    version = first("claim", resource="a.md", agent="ann")["version"]
    other.open()
    first.kill()
    assert other("wait", resource="a.md", timeout_seconds=20)["status"] == "available"
    calls: dict[str, dict[str, Any]] = {
        "claim": {"resource": "b.md", "agent": "ann"},
        "release": {"agent": "ann"},
        "set": {**AT, "value": 1, "updated_by": "ann", "force": True},
    }
    second = serve()
    assert "lost" not in second(tool, **calls[tool])
    claimed = second("claim", resource="a.md", agent="ann")
    assert "lost" not in claimed
    assert claimed["former_session_lost"] == [{"resource": "a.md", "version": version, "why": "expired"}]
    returned = serve(session="conversation-1")
    assert [it["resource"] for it in returned("status")["lost"]] == ["a.md"]


@EVERY_STORE_IN_TIME
@pytest.mark.slow
def test_namesake_consumes_no_loss_of_a_lease_that_expired_unnoticed(place: Place, serve: Serve) -> None:
    first, other = serve("--lease-seconds", 1, session="conversation-1"), serve().open()
    first("claim", resource="a.md", agent="ann")
    first.stop()
    until(lambda: seconds_left(place) <= 0)
    assert other("claim", resource="a.md", agent="ben")["status"] == "claimed"
    second = serve()
    assert "lost" not in second("claim", resource="b.md", agent="ann")
    first.kill()
    assert "lost" not in second("claim", resource="b.md", agent="ann")
    lost = serve(session="conversation-1")("status")["lost"]
    assert [(it["resource"], it["held_by"]) for it in lost] == [("a.md", "ben")]
