"""How long holders live: processes that end, die, stop or wait, and times in which nobody can write.

Processes beat by the clock that the test moves: `beat` lets them.
"""

import errno
import fcntl
import gc
import itertools
import signal
import sys

import pytest

import holdlog
from tests.support.faults import SHIM, STEP, WRITE, pass_time
from tests.support.soundness import log_of, require_sound
from tests.support.waiting import until

pytestmark = SHIM
LIFE = 60
SUB_IDLE, IDLE = 300, 1800


def life(process, resource):
    """How long its holder lives, if nothing comes; 0: nobody holds it."""
    return process.call("status", resource).get("expires_in_seconds", 0)


def beat(faults, other, seconds, *resources):
    """Let time pass in which processes beat that hold these, and wait in no call: a step could end its commit."""
    for _ in range(seconds // STEP):
        pass_time(faults, other, STEP)
        for resource in resources:
            until(lambda: life(other, resource) > LIFE - STEP / 2)  # noqa: B023


# --- processes that end


def test_caller_of_a_process_per_call_keeps_claim_note_and_guard_and_releases_all(path, serve):
    first = serve()
    version = first.call("claim", "a.md", agent="ann", note="half done")["version"]
    assert first.call("claim", "b.md", agent="ann")["status"] == "claimed"
    first.call("close")
    second, namesake = serve(), serve()
    assert second.call("claim", "a.md", agent="ben")["status"] == "busy"
    assert second.call("claim", "a.md", agent="ann") | {"expires_in_seconds": 0} == {
        "status": "already_claimed", "version": version, "expires_in_seconds": 0,
    }  # fmt: skip
    assert second.call("status", "a.md")["holder_note"] == "half done"
    guard = [{"resource": "a.md", "version": version}]
    assert second.call("set", "n", "k", 1, updated_by="ann", guard=guard)["version"] == 1
    assert second.call("claim", "c.md", agent="ann")["status"] == "claimed"
    busy = namesake.call("claim", "c.md", agent="ann")  # while the process of a holder lives, nobody else is it
    assert (busy["status"], busy["same_name"]) == ("busy", True)
    second.call("close")
    assert namesake.call("release", agent="ann")["status"] == "released"
    with holdlog.StateStore(path) as store:
        assert store.status().claims == []


@pytest.mark.rest
def test_holder_that_ended_lives_300_seconds_from_its_last_call(serve, faults):
    first, other = serve(), serve()
    first.call("claim", "a.md", agent="ann")
    first.call("close")
    pass_time(faults, other, 280)
    assert other.call("claim", "a.md", agent="ben")["status"] == "busy"
    pass_time(faults, other, 2 * STEP)
    assert other.call("claim", "a.md", agent="ben")["status"] == "claimed"


def test_session_goes_on_in_its_next_process_when_the_old_one_is_closed(serve, faults):
    before, after, other = serve("app"), serve("app"), serve()
    version = before.call("claim", "a.md", agent="ann")["version"]
    assert after.call("claim", "a.md", agent="ann")["status"] == "already_claimed"
    before.call("close")
    beat(faults, other, 100, "a.md")
    assert other.call("claim", "a.md", agent="ben")["status"] == "busy"
    guard = [{"resource": "a.md", "version": version}]
    assert after.call("set", "n", "k", 1, updated_by="ann", guard=guard)["version"] == 1


def test_interrupted_call_gives_up_its_turn(serve):
    holder, gone, last = serve(), serve(), serve()
    holder.call("claim", "a.md", agent="ann")
    gone.begin("claim", "a.md", agent="gone", wait_seconds=50)
    until(lambda: holder.call("status", "a.md", 1).get("queue_length") == 1)
    gone.process.send_signal(signal.SIGINT)
    assert gone.hear()["error"] == "KeyboardInterrupt"
    last.begin("claim", "a.md", agent="last", wait_seconds=50)
    until(lambda: holder.call("status", "a.md", 1).get("queue_length") == 2)
    assert holder.call("release", "a.md", agent="ann")["granted_to"] == "last"
    assert last.hear()["status"] == "claimed"


@pytest.mark.rest
def test_store_that_is_collected_within_a_call_of_another_is_closed(db):
    """The garbage collector may run at any point of a call, which has locks."""

    def collect(frame, event, _):
        if event == "call" and next(steps) == 0:
            gc.collect()

    with holdlog.StateStore(db) as other:
        other.set("n", "k", None, updated_by="ben")
        for number in range(30):
            unused = [holdlog.StateStore(db)]
            unused[0].claim(f"{number}.md", agent="ann")
            unused.append(unused)
            del unused
            steps = itertools.count(-number)
            sys.setprofile(collect)
            other.set("n", "k", number, updated_by="ben")
            sys.setprofile(None)
            until(lambda: other.status(f"{number}.md").holder_connected is False, within=20)  # noqa: B023


# --- processes that die or stop


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_claim_of_the_only_agent_is_free_60_seconds_after_its_last_beat_if_its_process_is_dead(serve, faults, how):
    """Nobody wrote meanwhile. A process that is stopped might still beat."""
    holder, other = serve(), serve()
    holder.call("claim", "a.md", agent="ann")
    holder.kill() if how == "killed" else holder.stop()
    faults.pass_time(LIFE + 1)
    granted = other.call("claim", "a.md", agent="ben")
    assert granted["status"] == ("claimed" if how == "killed" else "busy")
    if how == "stopped":
        pass_time(faults, other, 2 * STEP)
        granted = other.call("claim", "a.md", agent="ben")
    assert (granted["previous_outcome"], granted["previous_holder"]) == ("expired", "ann")


def test_stopped_holder_ends_although_others_write_less_than_every_30_seconds(serve, faults):
    """One silence prolongs its life, and not each."""
    holder, other = serve(), serve()
    holder.call("claim", "a.md", agent="ann")
    holder.stop()
    statuses = []
    for _ in range(5):
        faults.pass_time(2 * STEP)
        statuses.append(other.call("claim", "a.md", agent="ben")["status"])
    assert statuses[-1] == "already_claimed"


def test_parent_takes_over_what_a_sub_agent_left_60_seconds_ago_or_whose_process_ended(serve, faults):
    family, ended, other = serve("app"), serve("app"), serve()
    assert ended.call("claim", "b.md", agent="ann/sub-2")["status"] == "claimed"
    assert family.call("claim", "b.md", agent="ann")["status"] == "busy"
    ended.call("close")
    assert family.call("claim", "b.md", agent="ann")["status"] == "claimed"
    family.call("claim", "a.md", agent="ann/sub", note="half done")
    beat(faults, other, 40, "a.md")
    assert family.call("claim", "a.md", agent="ann")["status"] == "busy"
    beat(faults, other, 20, "a.md")
    assert other.call("claim", "a.md", agent="ben")["status"] == "busy"
    taken = family.call("claim", "a.md", agent="ann")
    assert (taken["status"], taken["previous_holder"]) == ("claimed", "ann/sub")


@pytest.mark.rest
def test_many_claims_of_a_dead_holder_all_end_once_and_none_is_revived(path, serve, faults):
    holder, other = serve("app"), serve()
    for folder in range(16):
        names = [f"{folder}/{number}" for number in range(100)]
        assert holder.call("claim", names[0], also=names[1:], agent="ann")["status"] == "claimed"
    holder.kill()
    pass_time(faults, other, LIFE + STEP)
    successor = serve("app")
    again = successor.call("claim", "new.md", agent="ann")
    lost = again["lost"]
    while again.get("lost"):
        again = successor.call("claim", "new.md", agent="ann")
        lost += again.get("lost", [])
    assert len({it[0] for it in lost}) == len(lost) == 1600
    assert [life(other, f"{folder}/{folder}") for folder in range(16)] == [0] * 16
    other.call("claim", "other.md", agent="ben")
    beat(faults, other, 4 * STEP, "new.md", "other.md")
    with holdlog.StateStore(path) as store:
        ends = [it for it in log_of(store) if it.kind == "ClaimExpired"]
    assert len({it.stream for it in ends}) == len(ends) == 1600
    times = [it.at for it in ends]
    assert max(times.count(at) for at in {*times}) <= 500
    require_sound(path)


# --- nobody can write


@pytest.mark.parametrize("cause", ["full disk", pytest.param("stuck lock", marks=pytest.mark.rest)])
def test_holder_that_beats_again_keeps_its_claims_when_nobody_could_write(path, serve, faults, cause):
    """For three minutes, far longer than a life. A stopped one has half a minute more, a killed one none."""
    alive, stopped, killed, other = serve(), serve(), serve(), serve()
    for process, resource in ((alive, "a.md"), (stopped, "b.md"), (killed, "c.md")):
        process.call("claim", resource, agent="ann")
    stopped.stop()
    killed.kill()
    with path.with_name("state.db.lock").open("r+b") as lock:
        if cause == "stuck lock":
            fcntl.flock(lock, fcntl.LOCK_EX)
        else:
            faults.arm(WRITE, errno.ENOSPC)
        faults.pass_time(3 * LIFE)
        other.begin("set", "n", "k", 1, updated_by="ben")
        faults.pass_time(6)
        assert other.hear()["error"] == "UnavailableError"
        faults.disarm()
    assert other.call("release", agent="ben")["status"] == "already_free"
    assert [other.call("claim", it, agent="ben")["status"] for it in ("a.md", "b.md", "c.md")] == [
        *("busy", "busy", "claimed"),
    ]
    beat(faults, other, 40, "a.md")
    assert [other.call("claim", it, agent="ben")["status"] for it in ("a.md", "b.md")] == ["busy", "claimed"]
    stopped.go_on()
    (lost,) = stopped.call("claim", "d.md", agent="ann")["lost"]
    assert lost[:3] == ["b.md", "expired", "ben"]
    assert "lost" not in stopped.call("claim", "d.md", agent="ann")


# --- processes that live while their agents do nothing


@pytest.mark.rest
def test_live_process_keeps_the_claims_of_agents_that_were_heard_or_are_in_a_call(serve, faults):
    idle, in_block, other = serve(), serve(), serve()
    idle.call("claim", "a.md", agent="ann")
    idle.call("claim", "sub.md", agent="ann/sub")
    in_block.call("claim", "parent.md", agent="cleo")
    in_block.call("claimed", "block.md", agent="cleo/sub")
    kept = ("parent.md", "block.md")
    beat(faults, other, SUB_IDLE - 100, "sub.md", "a.md", *kept)
    beat(faults, other, 240, "a.md", *kept)
    assert life(other, "sub.md") == 0
    beat(faults, other, IDLE - SUB_IDLE - 460, "a.md", *kept)
    beat(faults, other, 480, *kept)
    assert life(other, "a.md") == 0
    lost = idle.call("claim", "b.md", agent="ann")["lost"]
    assert [it[0] for it in lost] == ["a.md", "sub.md"]


def test_claim_of_a_receipt_is_kept_by_the_process_that_passes_it(serve, faults):
    holder, other = serve(), serve()
    version = holder.call("claim", "a.md", agent="ann", receipt="r-1", request_id="q-1")["version"]
    beat(faults, other, 100, "a.md")
    again = other.call("claim", "a.md", agent="ann", receipt="r-1")
    assert (again["status"], again["version"]) == ("already_claimed", version)
