"""Holders that are stopped or killed, waiters that disappear, and clocks and machines that change under them."""

import json
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

import holdlog
from tests.support.faults import SHIM, pass_time
from tests.support.library import in_thread
from tests.support.mcp import OverHttp
from tests.support.soundness import require_sound
from tests.support.waiting import until

pytestmark = SHIM
HOUR = 3600
SHARED = "custom://a"
"""A resource that servers in a worktree and the library have one name for."""


def in_queue(path, resource="a.md"):
    with holdlog.StateStore(path) as store:
        status = store.status(resource)
        return status.queue_length if status.status == "claimed" else 0


# --- the holder is stopped or dead


@pytest.mark.parametrize(
    "seconds",
    [320, pytest.param(80, marks=pytest.mark.rest)],
)
def test_stopped_holder_loses_its_claim_and_is_fenced_when_it_goes_on(path, serve, faults, seconds):
    holder, other = serve(), serve()
    version = holder.call("claim", "a.md", agent="ann")["version"]
    guard = [{"resource": "a.md", "version": version}]
    assert holder.call("set", "n", "k", 1, updated_by="ann", guard=guard)["version"] == 1
    holder.stop()
    pass_time(faults, other, 40)
    assert other.call("claim", "a.md", agent="ben")["status"] == "busy"
    pass_time(faults, other, seconds - 40)
    granted = other.call("claim", "a.md", agent="ben")
    assert (granted["status"], granted["previous_outcome"], granted["previous_holder"]) == ("claimed", "expired", "ann")
    holder.go_on()
    assert holder.call("set", "n", "k", 2, updated_by="ann", guard=guard)["error"] == "FencedError"
    assert holder.call("release", "a.md", agent="ann")["status"] in ("expired", "not_holder")
    assert holder.call("get", "n", "k")["value"] == 1
    assert other.call("status", "a.md")["version"] == granted["version"]
    require_sound(path)


@pytest.mark.rest
def test_stopped_holder_does_not_revive_what_nobody_claimed_meanwhile(path, serve, faults):
    holder, other = serve(), serve()
    version = holder.call("claim", "a.md", agent="ann")["version"]
    holder.stop()
    pass_time(faults, other, 320)
    assert other.call("status", "a.md")["status"] == "available"
    holder.go_on()
    assert holder.call("claim", "b.md", agent="ann")["status"] == "claimed"
    guard = [{"resource": "a.md", "version": version}]
    assert holder.call("set", "n", "k", 2, updated_by="ann", guard=guard)["error"] == "FencedError"
    assert other.call("claim", "a.md", agent="ben")["status"] == "claimed"


@pytest.mark.rest
@pytest.mark.parametrize("seconds", [120, 65])
def test_claim_of_a_killed_process_is_free_after_its_time(path, serve, faults, seconds):
    holder, other = serve(), serve()
    holder.call("claim", "a.md", agent="ann")
    holder.kill()
    pass_time(faults, other, 35)
    assert other.call("claim", "a.md", agent="ben")["status"] == "busy"
    pass_time(faults, other, seconds - 35)
    assert other.call("claim", "a.md", agent="ben")["status"] == "claimed"


@pytest.mark.rest
@pytest.mark.parametrize("door", ["command", "http"])
def test_holder_without_a_process_is_free_300_seconds_after_its_last_call(path, serve, faults, command, http, door):
    other = serve()
    if door == "command":
        assert command("claim", SHARED, "--agent", "ann", "--db", path, env=faults.env).code == 0
    else:
        client = OverHttp(http(db=path, env=faults.env).url + "/mcp")
        assert client.call("claim", resource=SHARED, agent="ann")["status"] == "claimed"
    pass_time(faults, other, 295)
    assert other.call("claim", SHARED, agent="ben")["status"] == "busy"
    pass_time(faults, other, 10)
    assert other.call("claim", SHARED, agent="ben")["status"] == "claimed"


# --- the waiter is gone


@pytest.mark.rest
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_hand_over_to_a_waiter_that_is_gone_moves_on(path, serve, faults, how):
    holder, gone, last = serve(), serve(), serve()
    holder.call("claim", "a.md", agent="ann")
    gone.begin("claim", "a.md", agent="gone", wait_seconds=50)
    until(lambda: in_queue(path) == 1)
    last.begin("claim", "a.md", agent="last", wait_seconds=50)
    until(lambda: in_queue(path) == 2)
    gone.kill() if how == "killed" else gone.stop()
    assert holder.call("release", "a.md", agent="ann")["granted_to"] in ("gone", "last")
    pass_time(faults, holder, 35)
    granted = last.hear()
    if granted["status"] == "busy":  # its wait ended by the clock that was moved
        granted = last.call("claim", "a.md", agent="last")
    assert granted["status"] in ("claimed", "already_claimed")
    assert holder.call("status", "a.md")["held_by"] == "last"
    require_sound(path)


@pytest.mark.rest
@pytest.mark.parametrize("door", ["http", "stdio"])
def test_waiter_whose_client_disappears_keeps_nobody_from_the_claim(db, http, stdio, door):
    with holdlog.StateStore(db) as store:
        store.claim(SHARED, agent="ann")
        if door == "http":
            client = OverHttp(http().url + "/mcp")
            connection = HTTPConnection(urlsplit(client.url).netloc, timeout=60)
            message = client.calling("claim", {"resource": SHARED, "agent": "gone", "wait_seconds": 50})
            headers = {**client.http.headers, "content-type": "application/json"}
            connection.request("POST", "/mcp", json.dumps(message), headers)
            until(lambda: in_queue(db, SHARED) == 1)
            connection.close()
        else:
            client = stdio()
            client.start("claim", resource=SHARED, agent="gone", wait_seconds=50)
            until(lambda: in_queue(db, SHARED) == 1)
            assert client.close()[0] == 0
        waiting = in_thread(store.claim, SHARED, agent="last", wait_seconds=50)
        board = store.status
        until(lambda: [it.agent for queue in board().queues for it in queue.line if it.present] == ["last"])
        store.release(SHARED, agent="ann")
        assert waiting.result().status == "claimed"


# --- clocks


def test_wall_clock_that_jumps_by_an_hour_ends_and_revives_no_claim(path, serve, faults):
    holder, other = serve(), serve()
    live = holder.call("claim", "live.md", agent="ann")["version"]
    until_then = holder.call("claim", "until.md", agent="ann", lease_seconds=600)["version"]
    dead = other.call("claim", "dead.md", agent="ben", lease_seconds=1)["version"]
    until(lambda: other.call("status", "dead.md")["status"] == "available")
    other.begin("claim", "live.md", agent="cleo", wait_seconds=45)
    until(lambda: in_queue(path, "live.md") == 1)
    third = serve()
    first = third.call("set", "n", "r", 1, updated_by="ann", request_id="r-1")
    for number, hours in enumerate((1, -1, 0, -1, 1, 23)):
        faults.turn_wall_clock(hours * HOUR)
        for process in (holder, third):
            for resource, version in (("live.md", live), ("until.md", until_then)):
                held = process.call("status", resource, version)
                assert (held["status"], held["held_by"], held["version"]) == ("claimed", "ann", version)
            assert process.call("status", "dead.md")["status"] == "available"
        assert third.call("claim", "live.md", agent="dora")["status"] == "busy"
        assert third.call("set", "n", "r", 1, updated_by="ann", request_id="r-1") == first
        guard = [{"resource": "live.md", "version": live}]
        assert holder.call("set", "n", "k", number, updated_by="ann", guard=guard)["status"] == "ok"
        guard = [{"resource": "dead.md", "version": dead}]
        assert third.call("set", "n", "k", 0, updated_by="ben", guard=guard)["error"] == "FencedError"
    assert holder.call("release", "live.md", agent="ann")["granted_to"] == "cleo"
    assert other.hear()["status"] == "claimed"
    require_sound(path)


@pytest.mark.rest
def test_suspended_machine_ends_no_claim(path, serve, faults):
    holder, other = serve(), serve()
    version = holder.call("claim", "a.md", agent="ann")["version"]
    until_then = holder.call("claim", "b.md", agent="ann", lease_seconds=20)["version"]
    faults.fall_asleep()
    faults.wake_up(HOUR)
    for resource, granted in (("a.md", version), ("b.md", until_then)):
        assert other.call("claim", resource, agent="ben")["status"] == "busy"
        guard = [{"resource": resource, "version": granted}]
        assert holder.call("set", "n", "k", 1, updated_by="ann", guard=guard)["status"] == "ok"
    holder.kill()  # and the clock goes on: what nobody keeps alive ends
    pass_time(faults, other, 320)
    assert other.call("claim", "a.md", agent="ben")["status"] == "claimed"


# --- restarted machines, and two at once


@pytest.mark.rest
@pytest.mark.parametrize("shift", [-0.5, 10.0])
def test_every_claim_has_a_full_life_after_a_reboot(path, worker, faults, shift):
    """The new clock is behind the old one, or far ahead of it. No call that waited does so still."""
    before, waiting = (worker("serve", path, env=faults.boot("first")) for _ in range(2))
    before.hear(), waiting.hear()
    leases = {"a.md": None, "b.md": None, "c.md": 35}
    versions = {it: before.call("claim", it, agent="ann", lease_seconds=leases[it])["version"] for it in leases}
    waiting.begin("claim", "c.md", agent="gone", wait_seconds=500)
    until(lambda: in_queue(path, "c.md") == 1)
    before.kill(), waiting.kill()
    faults.pass_time(int(time.monotonic() * shift))
    after = worker("serve", path, env=faults.boot("second"))
    after.hear()
    for resource, version in versions.items():
        busy = after.call("claim", resource, agent="ben")
        assert (busy["status"], busy["held_by"], busy["version"]) == ("busy", "ann", version)
    pass_time(faults, after, 40)
    assert [after.call("claim", it, agent="ben")["status"] for it in ("a.md", "c.md")] == ["busy", "claimed"]
    pass_time(faults, after, 40)
    assert after.call("claim", "a.md", agent="ben")["status"] == "claimed"
    require_sound(path)


@pytest.mark.rest
def test_two_kernels_on_one_file_are_refused_in_one_line(path, worker, faults):
    processes = [worker("serve", path, env=faults.boot(name)) for name in ("first", "second")]
    for process, key in zip(processes, "ab", strict=True):
        process.hear()
        assert process.call("set", "n", key, 1, updated_by="ann")["version"] == 1
    refused = processes[0].call("set", "n", "a", 2, updated_by="ann")
    assert refused.get("error") in ("StoreError", "UnavailableError")
    assert "\n" not in refused["message"]
    assert "holdlog serve --transport http" in refused["message"]
    assert processes[1].call("get", "n", "a")["version"] == 1
