"""Claims while the clock of the database is set, or another server takes over, whose clock differs."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

import holdlog
from tests.support.faults import SHIM, Faults
from tests.support.servers import Postgres
from tests.support.soundness import require_sound_log
from tests.support.waiting import until

pytestmark = [SHIM, pytest.mark.rest, pytest.mark.xdist_group("clock")]
LONG = 50
STEP = 20


class Database:
    """A server whose clock the test sets: `shift` is in seconds."""

    def __init__(self, folder):
        self.server = Postgres(folder / "server")
        self.faults = Faults(folder / "unused", folder / "faults")
        self.server.env = self.faults.env
        self.server.start()
        self.shift = 0

    def set(self, shift):
        self.faults.turn_wall_clock(shift)
        self.shift = shift

    def pass_time(self, store, seconds):
        """With a commit now and then: no silence."""
        end = self.shift + seconds
        while self.shift < end:
            self.set(min(end, self.shift + STEP))
            store.set("n", "tick", self.shift, updated_by="tick")

    def restart(self, shift):
        self.server.kill()
        self.set(shift)
        self.server.restart()


@pytest.fixture(scope="module")
def database():
    with tempfile.TemporaryDirectory(prefix="holdlog-doors-") as folder:
        Path(folder).chmod(0o755)
        opened = Database(Path(folder))
        yield opened
        opened.server.stop()


@pytest.fixture
def url(database, request):
    database.set(0)
    return f"{database.server.url}?schema=c{os.getpid()}_{abs(hash(request.node.name))}"


@pytest.fixture
def serve(worker, url):
    def start(**options):
        process = worker("serve", url, **options)
        process.hear()
        return process

    return start


def test_clock_set_forward_gives_live_holders_time_and_dead_ones_none(database, url, serve, faults):
    live, dead, elsewhere = serve(), serve(), serve(env=faults.boot("elsewhere"))
    version = live.call("claim", "live.md", agent="ann")["version"]
    with holdlog.StateStore(url) as store:
        for process, name in ((dead, "dead.md"), (elsewhere, "elsewhere.md")):
            process.call("claim", name, agent="ann")
            process.kill()
        database.set(120)
        assert store.claim("dead.md", agent="ben").status == "claimed"
        for name in ("live.md", "elsewhere.md"):
            busy = store.claim(name, agent="ben")
            assert (busy.status, 20 < busy.expires_in_seconds <= 30) == ("busy", True)
        guard = [{"resource": "live.md", "version": version}]
        assert live.call("set", "n", "k", 1, updated_by="ann", guard=guard)["status"] == "ok"
        database.pass_time(store, 40)
        assert [store.claim(name, agent="ben").status for name in ("elsewhere.md", "live.md")] == ["claimed", "busy"]
        require_sound_log(store)


def test_holder_beats_after_the_clock_was_set_forward(database, url, serve):
    holder = serve()
    holder.call("claim", "a.md", agent="ann")
    with holdlog.StateStore(url) as store:
        database.set(120)
        assert store.claim("a.md", agent="ben").expires_in_seconds <= 30
        until(lambda: store.status("a.md").expires_in_seconds > 30, within=28)


def test_clock_set_back_shortens_no_life_and_prolongs_none_by_more(database, url, serve):
    holder, waiter, gone = serve(), serve(), serve()
    with holdlog.StateStore(url) as store, holdlog.StateStore(url) as other:
        version = holder.call("claim", "a.md", agent="ann")["version"]
        store.claim("short.md", agent="ben", lease_seconds=30)
        gone.begin("claim", "short.md", agent="gone", wait_seconds=LONG)
        until(lambda: store.status("short.md").queue_length == 1)
        gone.kill()
        database.set(-120)
        held = store.status("a.md")
        assert (held.status, held.version) == ("claimed", version)
        assert min(held.holder_idle_seconds, held.held_for_seconds) >= 0
        guard = [{"resource": "a.md", "version": version}]
        assert holder.call("set", "n", "k", 1, updated_by="ann", guard=guard)["status"] == "ok"
        waiter.begin("claim", "a.md", agent="cleo", wait_seconds=LONG)
        until(lambda: store.status("a.md").queue_length == 1)
        assert holder.call("release", "a.md", agent="ann")["granted_to"] == "cleo"
        assert waiter.hear()["status"] == "claimed"
        database.pass_time(store, 120 + 31)  # the lease ends; the waiter that is gone gets it, and does not collect it
        database.pass_time(store, 31)
        assert other.claim("short.md", agent="dora").status == "claimed"
        require_sound_log(store)


def test_silence_after_the_clock_was_set_back_is_one(database, url, serve, faults):
    holder, elsewhere = serve(), serve(env=faults.boot("elsewhere"))
    with holdlog.StateStore(url) as store:
        store.set("n", "k", 1, updated_by="ben")
        database.set(-1000)
        store.set("n", "k", 2, updated_by="ben")
        holder.call("claim", "a.md", agent="ann")
        elsewhere.call("claim", "b.md", agent="ann")
        elsewhere.kill()
        database.pass_time(store, 80)
        assert store.claim("b.md", agent="ben").status == "claimed"
        assert holder.call("claim", "c.md", agent="ann")["status"] == "claimed"
        database.set(database.shift + 100)
        assert store.claim("c.md", agent="ben").status == "busy"


def test_reads_of_a_process_that_does_not_write_follow_the_clock_of_the_database(database, url):
    with holdlog.StateStore(url) as store, holdlog.StateStore(url) as reader:
        store.claim("a.md", agent="ann", lease_seconds=200)
        store.set("n", "k", 1, updated_by="ann", ttl_seconds=200)
        assert (reader.status("a.md").status, reader.get("n", "k").value) == ("claimed", 1)
        database.set(300)

        def is_gone():
            with suppress(holdlog.NotFoundError):
                return reader.get("n", "k") is None
            return True

        until(is_gone, within=5)
        database.set(0)
        assert reader.status("a.md").status == "claimed"
        assert [it.key for it in reader.list_keys("n")] == ["k"]
        database.set(300)
        assert reader.status("a.md").status == reader.wait("a.md", 0).status == "available"
        assert (reader.status().claims, reader.list_keys("n")) == ([], [])


def test_value_expires_while_the_machine_is_suspended(database, serve, faults):
    process = serve(env=faults.env)
    process.call("set", "n", "k", 1, updated_by="ann", ttl_seconds=60)
    assert process.call("get", "n", "k")["value"] == 1
    faults.fall_asleep()
    faults.wake_up(120)
    database.set(120)
    assert process.call("get", "n", "k")["error"] == "NotFoundError"


@pytest.mark.parametrize("shift", [120, -120])
def test_another_server_takes_over_whose_clock_differs(database, url, serve, shift):
    holder, waiter = serve(), serve()
    version = holder.call("claim", "a.md", agent="ann")["version"]
    with holdlog.StateStore(url) as store:
        waiter.begin("claim", "a.md", agent="cleo", wait_seconds=LONG)
        until(lambda: store.status("a.md").queue_length == 1)
        database.restart(shift)
        busy = store.claim("a.md", agent="ben")
        assert (busy.status, busy.held_by, busy.version) == ("busy", "ann", version)
        guard = [{"resource": "a.md", "version": version}]
        assert holder.call("set", "n", "k", 1, updated_by="ann", guard=guard)["status"] == "ok"
        assert holder.call("release", "a.md", agent="ann")["status"] == "released"
        until(lambda: store.status("a.md").status == "claimed", within=20)
        assert waiter.hear()["status"] == "claimed"
        require_sound_log(store)
