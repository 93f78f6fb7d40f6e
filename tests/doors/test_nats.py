"""Events over NATS: the relay publishes each once, in order; subscribers miss none; nothing waits for NATS."""

import asyncio
import json
import shutil
import signal
import subprocess
import threading
import time

import nats
import pytest

import holdlog
from tests.support.library import in_thread
from tests.support.programs import HOLDLOG, environment
from tests.support.servers import Nats
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.xdist_group("nats")


def write(db, *values, namespace="n", key="k"):
    with holdlog.StateStore(str(db)) as store:
        for value in values:
            store.set(namespace, key, value, updated_by="ann")


def streams(url, work=None):
    """The names of the server's streams of events; or what `work` returns for its JetStream."""

    async def look():
        connection = await nats.connect(url, connect_timeout=PATIENCE)
        try:
            js = connection.jetstream()
            found = [it.config.name for it in await js.streams_info()]
            return [it for it in found if not it.startswith("KV_")] if work is None else await work(js)
        finally:
            await connection.close()

    return asyncio.run(look())


def messages(url, stream):
    """All messages of a stream, in its order."""

    async def read(js):
        state = (await js.stream_info(stream)).state
        pull = await js.pull_subscribe(">", stream=stream)
        found = []
        while len(found) < state.messages:
            found += await pull.fetch(500, timeout=PATIENCE)
        return found

    return streams(url, read)


def events(url, stream):
    return [json.loads(it.data) for it in messages(url, stream)]


def positions(url, stream):
    return [it["position"] for it in events(url, stream)]


def lose(url, stream, *sequences):
    """Delete messages, as a limit of the stream does."""

    async def delete(js):
        for sequence in sequences:
            await js.delete_msg(stream, sequence)

    streams(url, delete)


@pytest.fixture
def publish(command, nats_server):
    """Publish all that the test's store has now; returns its stream."""
    before = set(streams(nats_server.url))

    def once():
        done = command("relay", "--nats", nats_server.url, "--once")
        assert done.code == 0, done.err
        (mine,) = set(streams(nats_server.url)) - before
        return mine

    return once


@pytest.fixture
def subscribe(command, nats_server):
    """The next `count` events after a position, as the command prints them."""

    def read(count, after=0, *options):
        words = ("--nats", nats_server.url, "--after", str(after), "--limit", str(count), *options)
        done = command("subscribe", *words)
        assert done.code == 0, done.err
        return done.lines

    return read


# --- publishing


def test_each_event_is_published_once_in_order_and_read_without_gaps(publish, subscribe, command, db, nats_server):
    write(db, 1, {"a": [None]}, "🦊")
    write(db, 4, namespace="name space", key="a.b *>")
    with holdlog.StateStore(str(db)) as store:
        store.claim("custom://deploy", agent="ann")
    stream = publish()
    write(db, *range(6, 26))  # more than a page of the relay
    assert publish() == stream
    published, exported = messages(nats_server.url, stream), command("export").lines
    logged = {it["position"]: it["digest"] for it in exported if "digest" in it and "position" in it}
    told = [json.loads(it.data) for it in published]
    assert [(it["position"], it["digest"]) for it in told] == [(number, logged[number]) for number in range(1, 26)]
    kinds = ["ValueWritten"] * 4 + ["ClaimGranted"] + ["ValueWritten"] * 20
    assert [it["type"].rpartition(".")[2] for it in told] == kinds
    assert [it["data"].get("value") for it in told] == [1, {"a": [None]}, "🦊", 4, None, *range(6, 26)]
    (store_id,) = {it.headers["Nats-Msg-Id"].rpartition(":")[0] for it in published}
    assert [it.headers["Nats-Msg-Id"] for it in published] == [f"{store_id}:{number}" for number in range(1, 26)]
    assert store_id in told[0]["source"]
    assert published[0].subject.endswith(".record.n.k")
    assert published[3].subject.endswith(".record.name%20space.a%2Eb%20%2A%3E")
    assert published[4].subject.endswith(".claim.custom.deploy")
    lose(nats_server.url, stream, 3, 5)
    assert positions(nats_server.url, stream) == [1, 2, 4, *range(6, 26)]
    assert subscribe(25) == told  # the rest is read from the log


@pytest.mark.rest
def test_message_of_a_redacted_event_is_deleted(publish, command, db, nats_server):
    secret = "sk-1234567890"
    write(db, 1, secret, 3)
    stream = publish()
    assert positions(nats_server.url, stream) == [1, 2, 3]
    assert command("redact", "record:n/k@2", "--reason", "a key").code == 0
    assert publish() == stream
    assert positions(nats_server.url, stream) == [1, 3, 4]
    assert not any(secret in it.data.decode() for it in messages(nats_server.url, stream))
    files = [it for it in nats_server.folder.rglob("*") if it.is_file()]
    assert not any(secret.encode() in it.read_bytes() for it in files)


@pytest.mark.rest
def test_subscriber_starts_after_a_position_and_selects_subjects(publish, subscribe, db, nats_server):
    write(db, *range(10))
    with holdlog.StateStore(str(db)) as store:
        store.claim("custom://deploy", agent="ann")
    stream = publish()
    lose(nats_server.url, stream, 3, 4, 10)
    assert [it["position"] for it in subscribe(9, 1)] == list(range(2, 11))
    assert [it["position"] for it in subscribe(1, 3, "--subject", "claim.>")] == [11]
    streams(nats_server.url, lambda js: js.purge_stream(stream))
    assert [it["data"]["value"] for it in subscribe(8, 2)] == list(range(2, 10))


@pytest.mark.rest
def test_deleted_stream_is_filled_again(publish, db, nats_server):
    write(db, 1, 2)
    stream = publish()
    streams(nats_server.url, lambda js: js.delete_stream(stream))
    write(db, 3)
    assert publish() == stream
    assert positions(nats_server.url, stream) == [1, 2, 3]


@pytest.mark.rest
def test_copied_back_backup_stops_its_relay_in_one_line(command, publish, db, nats_server):
    write(db, 1, 2)
    shutil.copy(db, db.with_name("backup.db"))
    write(db, 3, 4)
    stream = publish()
    for file in db.parent.glob("state.db*"):
        file.unlink() if file.is_file() else None
    shutil.copy(db.with_name("backup.db"), db)
    for values in ([], ["other", "other", "more"]):
        write(db, *values)
        done = command("relay", "--nats", nats_server.url, "--once")
        assert done.code != 0
        assert [it for it in done.err.splitlines() if "connecting" not in it][1:] == []
        assert "Traceback" not in done.err
    assert [it["data"]["value"] for it in events(nats_server.url, stream)] == [1, 2, 3, 4]


@pytest.mark.rest
def test_bookmark_of_another_history_is_refused(command, publish, db, nats_server):
    write(db, 1, 2)
    publish()
    with holdlog.StateStore(":memory:") as other:
        other.set("n", "k", 1, updated_by="ann")
        bookmark = other.events().bookmark
    done = command("subscribe", "--nats", nats_server.url, "--after", str(bookmark), "--limit", "1")
    assert (done.code, len(done.err.splitlines())) == (2, 1)


@pytest.mark.rest
@pytest.mark.parametrize("word", ["relay", "subscribe"])
def test_bad_url_is_refused_in_one_line_without_its_password(command, db, word):
    write(db, 1)
    done = command(word, "--nats", "nats://ann:s3cr3t@host:notaport")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "s3cr3t" not in done.err


# --- without NATS


@pytest.mark.rest
def test_server_works_without_nats_and_publishes_later(stdio, tmp_path):
    server = Nats(tmp_path / "own")
    agent = stdio("--tools", "all", "--nats", server.url)
    write = {"namespace": "n", "key": "k", "updated_by": "ann"}
    for number in range(3):
        assert agent.call("set", **write, value=number, expected_version=number)["version"] == number + 1
    assert agent.call("claim", resource="custom://x", agent="ann")["status"] == "claimed"
    server.start()
    try:
        until(lambda: streams(server.url))
        (stream,) = streams(server.url)
        until(lambda: positions(server.url, stream) == [1, 2, 3, 4])
        server.kill()
        assert agent.call("set", **write, value=3, expected_version=3)["version"] == 4
        assert agent.call("release", resource="custom://x", agent="ann")["status"] == "released"
        server.start()
        until(lambda: positions(server.url, stream) == [1, 2, 3, 4, 5, 6])
        code, errors = agent.close()
        assert code == 0
        assert "Traceback" not in errors
        assert len(errors.splitlines()) <= 6
    finally:
        server.stop()


# --- processes that die


class Process:
    """`holdlog relay` or `subscribe` until it is killed. `lines`: what it printed."""

    def __init__(self, *words):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [HOLDLOG, *map(str, words)], stdout=pipe, stderr=pipe, env=environment(), text=True
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def end(self, number=signal.SIGKILL):
        """Its exit code, and what it said on stderr."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code, self.process.stderr.read()


@pytest.fixture
def start(db):
    started = []

    def begin(word, server, *options):
        started.append(Process(word, "--db", db, "--nats", server.url, *options))
        return started[-1]

    yield begin
    for it in started:
        it.process.kill()
        it.process.communicate()


@pytest.mark.rest
def test_every_event_arrives_once_in_order_whatever_is_killed(start, db, tmp_path):
    """Three relays under load; two of them and the server of NATS are killed."""
    count = 600
    server = Nats(tmp_path / "own").start()
    try:
        write(db, 0)
        relays = [start("relay", server) for _ in range(3)]
        subscriber = start("subscribe", server, "--after", "0", "--limit", count)
        until(lambda: streams(server.url))
        (stream,) = streams(server.url)
        until(lambda: subscriber.lines)
        for part in range(3):
            loading = in_thread(write, db, *range(part * 200 + (not part), part * 200 + 200))
            if part < 2:
                relays[part].end()
                relays.append(start("relay", server))
            if part == 1:
                server.kill()
                loading.result()
                server.start()
            loading.result()
        assert subscriber.process.wait(PATIENCE) == 0
        until(lambda: len(subscriber.lines) == count)
        told = [json.loads(it) for it in subscriber.lines]
        assert [(it["position"], it["data"]["value"]) for it in told] == [(it + 1, it) for it in range(count)]
        assert events(server.url, stream) == told
        assert [it.metadata.sequence.stream for it in messages(server.url, stream)] == list(range(1, count + 1))
        assert relays[2].end(signal.SIGTERM)[0] == 0
    finally:
        server.stop()


@pytest.mark.rest
def test_killed_durable_subscriber_is_told_only_the_latest_events_again(start, db, name, nats_server):
    words = ("subscribe", nats_server, "--after", "0", "--durable", name)
    killed = start(*words)
    start("relay", nats_server)

    def tell(subscriber):
        before = len(subscriber.lines)
        write(db, 0, 0)
        until(lambda: len(subscriber.lines) >= before + 2)
        return time.monotonic()

    second = tell(killed) + 1
    until(lambda: tell(killed) > second)
    tell(killed)  # by now it has saved a position
    killed.end()
    again = start(*words)
    tell(again)
    assert 1 < json.loads(again.lines[0])["position"] <= len(killed.lines) + 1


@pytest.mark.rest
def test_stream_that_lost_its_newest_messages_is_filled_again(command, db, tmp_path):
    """JetStream syncs every two minutes: a crash of its machine may lose what it acknowledged."""
    server = Nats(tmp_path / "own").start()
    try:
        write(db, 1, 2)
        assert command("relay", "--nats", server.url, "--once").code == 0
        (stream,) = streams(server.url)
        server.stop()
        kept = shutil.copytree(server.folder / "data", tmp_path / "kept")
        server.start()
        write(db, 3, 4)
        assert command("relay", "--nats", server.url, "--once").code == 0
        server.kill()
        shutil.rmtree(server.folder / "data")
        shutil.copytree(kept, server.folder / "data")
        server.start()
        assert positions(server.url, stream) == [1, 2]
        write(db, 5)
        assert command("relay", "--nats", server.url, "--once").code == 0
        assert [it["data"]["value"] for it in events(server.url, stream)] == [1, 2, 3, 4, 5]
    finally:
        server.stop()
