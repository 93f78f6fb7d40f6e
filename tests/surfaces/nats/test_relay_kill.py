"""Relay processes and the server die by kill -9 under load; the stream equals the log all the same."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.nats.options import nats_options
from holdlog.domain.message import NOBODY
from tests.processes.conftest import EVERY_STORE
from tests.support.commands import put, transact
from tests.support.processes.soundness import Place
from tests.support.processes.workers import until
from tests.support.servers import NatsServer, free_port
from tests.support.slow import slow
from tests.support.streams import messages

Start = Callable[..., "RelayProcess"]
Subscribed = Callable[[int], "subprocess.Popen[bytes]"]


class RelayProcess:
    """A `holdlog relay --json` of its own."""

    def __init__(self, place: Place, url: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdlog", "relay", "--db", str(place), "--nats", url, "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def state(self) -> str:
        return self.said[-1]["state"] if self.said else ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, number: int) -> tuple[int, str]:
        """The exit code after a signal, and what it said on stderr."""
        self.process.send_signal(number)
        self._reader.join(20)
        assert self.process.stderr is not None
        return self.process.wait(20), self.process.stderr.read()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[RelayProcess] = []

    def begin(place: Place, url: str, *options: str) -> RelayProcess:
        started.append(RelayProcess(place, url, *options))
        return started[-1]

    yield begin
    for relay in started:
        with suppress(OSError):
            relay.kill()


@pytest.fixture
def subscribed(place: Place, tmp_path: Path, server: NatsServer) -> Iterator[Subscribed]:
    """Start a `holdlog subscribe` that ends after so many events; they go to the file `seen`."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(count: int) -> "subprocess.Popen[bytes]":
        words = ["subscribe", "--db", str(place), "--nats", server.url, "--after", "0", "--limit", str(count)]
        with (tmp_path / "seen").open("wb") as seen:
            started.append(subprocess.Popen([sys.executable, "-m", "holdlog", *words], stdout=seen))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


class Load(threading.Thread):
    """Writes events, each on top of the last, until it has written all."""

    def __init__(self, place: Place, count: int) -> None:
        super().__init__(daemon=True)
        self.place = place
        self.count = count
        self.written = 0
        self.start()

    def run(self) -> None:
        engine = open_holdlog(self.place)
        for number in range(self.count):
            engine.writer.run(transact(put(f"k{number % 11}", number, namespace=f"n.{number % 3}")), NOBODY)
            self.written = number + 1
        engine.close()


async def kill_under_load(
    place: Place, server: NatsServer, start: Start, subscriber: "subprocess.Popen[bytes]", count: int
) -> list[dict[str, Any]]:
    """The leading relay dies twice, the server once; all events arrive once, in order, also at a subscriber."""
    relays = [start(place, server.url) for _ in range(3)]
    until(lambda: all(relay.state in ("current", "waiting") for relay in relays))
    load = Load(place, count)
    for part in (1, 3):
        until(lambda part=part: load.written > count * part // 5)  # type: ignore[misc]
        leading = [relay for relay in relays if relay.process.poll() is None and relay.state != "waiting"]
        leading[0].kill()
        if part == 1:
            server.kill()
            until(lambda: load.written > count * 2 // 5)
            server.start()
        relays.append(start(place, server.url))
    load.join(120)
    assert load.written == count
    until(lambda: any(relay.said and relay.said[-1]["position"] == count for relay in relays), 60)
    engine = open_holdlog(place)
    found = await messages(nats_options(server.url), engine)
    with engine.store.reader() as reader:
        log = reader.log(0, -1)
    engine.close()
    told = [json.loads(message.data) for message in found]
    assert [event["position"] for event in told] == list(range(1, count + 1))
    assert [event["digest"] for event in told] == [recorded.envelope.digest.hex() for recorded in log]
    assert [message.metadata.sequence.stream for message in found] == list(range(1, count + 1))
    assert subscriber.wait(60) == 0
    return told


@pytest.mark.check
@EVERY_STORE
@pytest.mark.parametrize("count", [1_000, *slow(10_000)])
async def test_relay_publishes_every_event_once_in_order_whatever_is_killed(
    place: Place, tmp_path: Path, server: NatsServer, start: Start, subscribed: Subscribed, count: int
) -> None:
    open_holdlog(place).close()
    told = await kill_under_load(place, server, start, subscribed(count), count)
    lines = (tmp_path / "seen").read_text().splitlines()
    assert [json.loads(line) for line in lines] == told


@pytest.mark.check
async def test_relay_takes_over_from_a_killed_one(path: Path, server: NatsServer, start: Start) -> None:
    engine = open_holdlog(path)
    one = start(path, server.url)
    until(lambda: one.state == "current")
    other = start(path, server.url)
    until(lambda: other.state == "waiting")
    one.kill()
    engine.writer.run(transact(put("k", 1)), NOBODY)
    until(lambda: other.said[-1]["position"] == 1)
    engine.close()


@pytest.mark.check
def test_relay_reports_an_outage_once(path: Path, tmp_path: Path, start: Start) -> None:
    open_holdlog(path).close()
    server = NatsServer(tmp_path / "nats", port=free_port())
    relay = start(path, server.url)
    until(lambda: relay.state == "failed")
    time.sleep(1)  # several attempts
    try:
        server.start()
        until(lambda: relay.state == "current")
        assert [told["state"] for told in relay.said] == ["connecting", "failed", "publishing", "current"]
    finally:
        server.stop()


@pytest.mark.check
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 0)])
def test_signal_ends_a_relay_without_output(
    number: int, code: int, path: Path, server: NatsServer, start: Start
) -> None:
    open_holdlog(path).close()
    relay = start(path, server.url)
    until(lambda: relay.state == "current")
    assert relay.end(number) == (code, "")


def test_relay_once_ends_when_everything_is_published(path: Path, server: NatsServer, start: Start) -> None:
    engine = open_holdlog(path)
    engine.writer.run(transact(put("k", 1)), NOBODY)
    engine.close()
    relay = start(path, server.url, "--once")
    assert relay.process.wait(30) == 0
    until(lambda: relay.state == "current")
    assert relay.said[-1]["position"] == 1


@pytest.mark.check
def test_relay_once_ends_while_another_process_leads(path: Path, server: NatsServer, start: Start) -> None:
    engine = open_holdlog(path)
    engine.writer.run(transact(put("k", 1)), NOBODY)
    engine.close()
    leading = start(path, server.url)
    until(lambda: leading.state == "current")
    relay = start(path, server.url, "--once")
    assert relay.process.wait(30) == 0
    until(lambda: relay.state == "current")
    assert [line["state"] for line in relay.said] == ["waiting", "current"]
    assert leading.process.poll() is None


@pytest.mark.check
def test_relay_once_reports_in_one_line_that_another_relay_publishes(
    path: Path, server: NatsServer, start: Start
) -> None:
    open_holdlog(path).close()
    leading = start(path, server.url)
    until(lambda: leading.state == "current")
    words = ["relay", "--db", str(path), "--nats", server.url, "--once"]
    done = subprocess.run(
        [sys.executable, "-m", "holdlog", *words], capture_output=True, text=True, timeout=60, check=True
    )
    assert "another relay is publishing; this one stops once the stream has all events that exist now" in done.stderr
