"""Clocks that jump or stand still under a server, and machines that were started anew: they end nothing."""

import mmap
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.operating_system import platform as host
from holdlog.domain.claims.lease import GRACE, SECOND
from tests.processes.conftest import Serve
from tests.support.processes.claimants import Server, change, leases, require_one_holder_at_a_time, waiting
from tests.support.processes.soundness import require_sound
from tests.support.processes.workers import until

SHIM = pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="clocks.c needs Linux and gcc")
SOURCE = Path(__file__).parents[1] / "support" / "processes" / "clocks.c"
HOUR = 3600
AT = {"namespace": "n", "key": "k"}


class Clocks:
    """The clocks of all processes that were started with this `env`; see clocks.c."""

    def __init__(self, folder: Path) -> None:
        library, told = folder / "clocks.so", folder / "clocks"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
        told.write_bytes(bytes(32))
        with told.open("r+b") as file:
            self._told = mmap.mmap(file.fileno(), 32)
        self.env = {"LD_PRELOAD": str(library), "HOLDLOG_TEST_CLOCKS": str(told)}

    def turn_wall_clock(self, seconds: int) -> None:
        """To so many seconds before or after the true time."""
        self._tell(0, seconds * 1_000_000_000)

    def fall_asleep(self) -> None:
        """The steady clock stands, as in a machine whose lid is closed."""
        self._tell(2, time.monotonic_ns() + self._said(1))

    def wake_up(self, seconds: int) -> None:
        """So many seconds later by all clocks but the steady one, which goes on where it stood."""
        self.turn_wall_clock(seconds)
        self._tell(3, seconds * 1_000_000_000)
        self._tell(1, self._said(2) - time.monotonic_ns())
        self._tell(2, 0)

    def _said(self, number: int) -> int:
        said: int = struct.unpack_from("q", self._told, number * 8)[0]
        return said

    def _tell(self, number: int, nanoseconds: int) -> None:
        struct.pack_into("q", self._told, number * 8, nanoseconds)


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    return Clocks(tmp_path)


def wall_clock_of(server: Server) -> float:
    """Seconds by which it differs from ours, by what it tells of a claim."""
    held = server("status", resource="live.md")
    ends = datetime.fromisoformat(held["expires_at"]).timestamp()
    return float(ends - held["expires_in_seconds"] - time.time())


@pytest.mark.check
@SHIM
def test_wall_clock_that_jumps_by_an_hour_ends_and_revives_no_claim(path: Path, serve: Serve, clocks: Clocks) -> None:
    holder, other, waiter = (serve("--grace-seconds", 5, env=clocks.env) for _ in range(3))
    live = holder("claim", resource="live.md", agent="ann")
    told = holder("claim", resource="told.md", agent="ann", lease_seconds=600)
    with StateStore(path) as store:
        dead: Any = store.claim("dead.md", agent="ben", lease_seconds=1)
        until(lambda: store.status("dead.md").status == "available")
        asked = waiter.ask("claim", resource="live.md", agent="cleo", wait_seconds=40)
        until(lambda: waiting(path) == 1)
        for number, hours in enumerate((1, -1, 0, -1, 1)):
            clocks.turn_wall_clock(hours * HOUR)
            for server in (holder, other):
                assert abs(wall_clock_of(server) - hours * HOUR) < 60
                for grant in (live, told):
                    held = server("status", resource=grant["resource"], version=grant["version"])
                    assert (held["status"], held["current"], held["held_by"]) == ("claimed", True, "ann")
                    assert held["held_for_seconds"] >= 0
                assert server("status", resource="dead.md")["status"] == "available"
            busy = other("claim", resource="live.md", agent="dora")
            assert (busy["status"], busy["held_by"], busy["queue_length"]) == ("busy", "ann", 1)
            guard = [{"resource": "live.md", "version": live["version"]}]
            written = holder("set", **AT, value=number, updated_by="ann", force=True, guard=guard)
            assert written["status"] == "ok"
            guard = [{"resource": "dead.md", "version": dead.version}]
            assert other("set", **AT, value=0, updated_by="ben", force=True, guard=guard)["status"] == "fenced"
        assert waiting(path) == 1
        assert holder("release", resource="live.md", agent="ann")["granted_to"] == "cleo"
        assert waiter.answer(asked)["status"] == "claimed"
    require_one_holder_at_a_time(path)
    require_sound(path)


@pytest.mark.check
@SHIM
def test_suspended_machine_ends_no_claim_of_a_server(path: Path, serve: Serve, clocks: Clocks) -> None:
    settings = ("--lease-seconds", 2, "--grace-seconds", 1)
    holder, other = serve(*settings, env=clocks.env).open(), serve(*settings, env=clocks.env).open()
    version = holder("claim", resource="a.md", agent="ann")["version"]
    clocks.fall_asleep()
    before = other("status", resource="a.md")["expires_in_seconds"]
    slept = time.monotonic()
    while time.monotonic() - slept < 3:
        assert other("claim", resource="a.md", agent="ben")["status"] == "busy"
        assert other("status", resource="a.md")["expires_in_seconds"] == pytest.approx(before, abs=0.001)
    clocks.wake_up(HOUR)
    assert other("claim", resource="a.md", agent="ben")["status"] == "busy"
    guard = [{"resource": "a.md", "version": version}]
    assert holder("set", **AT, value=1, updated_by="ann", force=True, guard=guard)["status"] == "ok"
    assert other("status", resource="a.md", version=version)["current"]
    holder.kill()  # and the clock goes on: what nobody keeps alive ends
    assert other("claim", resource="a.md", agent="ben", wait_seconds=20)["status"] == "claimed"
    require_one_holder_at_a_time(path)


@pytest.mark.check
def test_every_claim_has_the_grace_period_after_a_reboot(path: Path, serve: Serve) -> None:
    before = serve()
    versions = {name: before("claim", resource=name, agent="ann")["version"] for name in ("a.md", "b.md", "c.md")}
    waiter = serve()
    waiter.ask("claim", resource="a.md", agent="ben", wait_seconds=40)
    until(lambda: waiting(path) == 1)
    before.kill()
    waiter.kill()
    # The clock began anew: what was due is not, and what had seconds left has days.
    change(path, "UPDATE leases SET deadline = 1 WHERE resource = 'b.md'")
    change(path, "UPDATE leases SET deadline = deadline + ? WHERE resource = 'c.md'", 10_000_000 * SECOND)
    started_anew(path)
    with StateStore(path) as store:
        now = host.steady()
        for _, _, deadline, server, _ in leases(path, "kind = 'held'"):
            assert now + GRACE - 30 * SECOND < deadline <= now + GRACE
            assert server == ""
        assert waiting(path) == 0
        busy: Any = store.claim("a.md", agent="cleo")
        assert (busy.status, busy.held_by, busy.holder_connected) == ("busy", "ann", False)
        for name, version in versions.items():
            back: Any = store.claim(name, agent="ann")
            assert (back.status, back.resumed, back.version > version) == ("claimed", True, True)
        with StateStore(path) as beside:  # another opener of the same boot cuts nothing
            assert beside.status("a.md").expires_in_seconds > GRACE / SECOND  # type: ignore[union-attr]
            assert beside.status("a.md").holder_connected  # type: ignore[union-attr]
    require_sound(path)


@pytest.mark.check
def test_unclaimed_leases_end_after_the_grace_period_of_a_reboot(path: Path) -> None:
    with StateStore(path) as store:
        store.claim("a.md", agent="ann", lease_seconds=3600)
    started_anew(path)
    with StateStore(path) as store:
        change(path, "UPDATE leases SET deadline = deadline - ?", GRACE)
        got: Any = store.claim("a.md", agent="ben")
        assert (got.status, got.previous_outcome, got.previous_holder) == ("claimed", "expired", "ann")
    require_sound(path)


@pytest.mark.check
def test_reboot_is_noticed_by_one_of_many_openers_and_undoes_no_claim(path: Path) -> None:
    with StateStore(path) as store:
        store.claim("a.md", agent="ann")
    started_anew(path)
    with StateStore(path) as first:
        first.claim("b.md", agent="ben", lease_seconds=600)
        with StateStore(path):
            held: Any = first.status("b.md")
            assert (held.holder_connected, held.expires_in_seconds > 500) == (True, True)


def started_anew(path: Path) -> None:
    """As if the machine had been."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (told,) = connection.execute("SELECT value FROM meta WHERE name = 'boot_id'").fetchone()
        assert told == host.boot_id() != ""
        connection.execute("UPDATE meta SET value = 'another boot' WHERE name = 'boot_id'")
