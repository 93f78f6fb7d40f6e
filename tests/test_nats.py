"""Events over NATS: what a stream says of a store, who may write to it, and how a subscriber goes on."""

import asyncio
import base64
import json
import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import nkeys
import pytest
from nats.js.api import DiscardPolicy
from nats.js.errors import NotFoundError

import holdlog
from holdlog.adapters.nats.messages import Row, check_pattern, describe_event, encode_event, matches, name_subject
from holdlog.domain.refusals import HoldlogError, InvalidError
from tests.support.programs import HOLDLOG, Done, environment, run
from tests.support.servers import Nats
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.xdist_group("nats")


def write(db: Any, *values: Any, key: str = "k") -> None:
    with holdlog.StateStore(db) as store:
        for value in values:
            store.set("n", key, value, updated_by="ann")


def publish(db: Any, server: Nats) -> Done:
    return run("relay", "--db", db, "--nats", server.url, "--once")


def on_server(server: Nats, work: Any) -> Any:
    """What `work` returns for the connection and its JetStream."""

    async def look() -> Any:
        connection = await nats.connect(server.url, connect_timeout=PATIENCE)
        try:
            return await work(connection, connection.jetstream())
        finally:
            await connection.close()

    return asyncio.run(look())


def find_stream(db: Any) -> str:
    with holdlog.StateStore(db) as store:
        return f"holdlog_{store._engine.store.read('SELECT value FROM meta WHERE name = ' + repr('id'), {})[0][0]}"


def count_messages(db: Any, server: Nats) -> int:
    async def look(_: Any, js: Any) -> Any:
        with suppress(NotFoundError):
            return (await js.stream_info(find_stream(db))).state.messages
        return 0

    return int(on_server(server, look))


def receive(server: Nats, count: int, store: Any = None, **options: Any) -> list[Any]:
    """The next events, as the library has them. Without the store, the stream must be the only one or be named."""

    async def read() -> list[Any]:
        events = []
        async with asyncio.timeout(PATIENCE), holdlog.subscribe(server.url, store, **options) as subscription:
            while len(events) < count:
                events.append(await anext(subscription))
        return events

    return asyncio.run(read())


def elsewhere(db: Any) -> dict[str, Any]:
    """Arguments of a subscriber that cannot reach the store."""
    return {"store_id": find_stream(db).removeprefix("holdlog_")}


# --- subjects and messages


@pytest.mark.parametrize(
    ("stream", "subject"),
    [
        ("record:campaign/budget", "record.campaign.budget"),
        ("record:a%2Fb/c.d *>", "record.a%2Fb.c%2Ed%20%2A%3E"),
        ("claim:src/a.py", "claim.path.src%2Fa%2Epy"),
        ("claim:file://tree/a~", "claim.file.tree%2Fa%7E"),
        ("claim:custom://deploy", "claim.custom.deploy"),
        ("thread:run 7", "thread._.run%207"),
        ("token:ci", "token._.ci"),
        ("foreign:/1", "foreign"),
    ],
)
def test_subject_has_kind_namespace_and_key(stream: str, subject: str) -> None:
    assert name_subject(stream) == subject


def test_long_names_with_one_beginning_have_subjects_of_their_own() -> None:
    one, other = (name_subject(f"record:n/{'ü' * 500}{end}") for end in "ab")
    assert one != other
    assert len(one) < 200
    assert len(one.split(".")) == 3


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("claim.>", "claim.custom.deploy", True),
        ("claim.custom.*", "claim.custom.deploy", True),
        ("*.custom.deploy", "claim.custom.deploy", True),
        (">", "claim.custom.deploy", True),
        ("record.>", "claim.custom.deploy", False),
        ("claim.custom.deploy", "claim.custom.deploy2", False),
    ],
)
def test_patterns_match_as_those_of_nats(pattern: str, subject: str, fits: bool) -> None:
    assert matches([check_pattern(pattern)], subject) is fits


@pytest.mark.parametrize(
    "pattern", ["", "claims.>", "record.n", "record.>.k", "record.n.k.x", "record.n.a b", "claim."]
)
def test_pattern_that_no_event_can_match_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidError, match="subject: matches no event"):
        check_pattern(pattern)


def make_row(topic: str, stream: str, payload: str | None, **meta: Any) -> Row:
    return Row(7, stream, 2, topic, 1_700_000_000_000_000, json.dumps(meta), payload, bytes(32))


def test_message_has_no_session_of_a_holder() -> None:
    row = make_row("ClaimGranted", "claim:a.py", "{}", by="ann", session="s-1", of_session="s-1", mode="shared")
    assert describe_event(row, "id")["data"] == {"by": "ann", "mode": "shared", "resource": "a.py", "agent": "ann"}


def test_message_too_large_for_nats_has_names_and_no_value() -> None:
    row = make_row("ValueWritten", "record:n/k", json.dumps({"value": "x" * 10_000}), by="ann", based_on=1)
    event = json.loads(encode_event(row, "id", 8_000))
    assert (event["omitted"], event["data"]) == (True, {"namespace": "n", "key": "k", "by": "ann"})
    assert "omitted" not in json.loads(encode_event(row, "id", 20_000))


def test_message_of_a_redacted_event_says_so() -> None:
    event = describe_event(make_row("ValueWritten", "record:n/k", None, by="ann"), "id")
    assert event["redacted"] is True
    assert "value" not in event["data"]


def test_message_of_an_event_of_another_application_has_no_content() -> None:
    row = make_row("foreign:Opened", "foreign:/4711", '{"state":"c2VjcmV0"}', by="ann")
    assert not {"c2VjcmV0", "4711", "ann"} & set(json.dumps(describe_event(row, "id")).replace("/", '"').split('"'))


# --- the relay


def test_relay_stops_behind_a_message_of_another_program(db: Path, nats_server: Nats) -> None:
    """The relay runs and knows the end of the stream from before: only the fence keeps it from publishing."""
    write(db, 1, 2)
    process = subprocess.Popen(
        [HOLDLOG, "relay", "--db", str(db), "--nats", nats_server.url], stderr=subprocess.PIPE, env=environment()
    )
    try:
        stream = find_stream(db)
        until(lambda: count_messages(db, nats_server) == 2)

        async def intrude(connection: Any, js: Any) -> None:
            await js.publish(f"{stream.replace('_', '.', 1)}.record.n.k", b"{}")

        on_server(nats_server, intrude)
        write(db, 3)
        errors = process.communicate(timeout=PATIENCE)[1].decode()
    finally:
        process.kill()
    assert (process.returncode, count_messages(db, nats_server)) == (2, 3)
    assert len(errors.splitlines()) == 1
    assert "a message of another program" in errors


def test_relay_of_a_log_with_another_last_event_stops(db: Path, nats_server: Nats) -> None:
    write(db, 1)
    backup = db.with_name("backup.db")
    with holdlog.StateStore(db) as store:
        os.rename(store.backup(str(db.parent)).path, backup)
    write(db, 2)
    assert publish(db, nats_server).code == 0
    write(backup, "other", "more")
    done = publish(backup, nats_server)
    assert (done.code, count_messages(db, nats_server)) == (2, 2)
    assert "backup that was copied back" in done.err


@pytest.mark.rest
def test_text_that_was_redacted_first_is_never_published(db: Path, nats_server: Nats) -> None:
    secret = "sk-0987654321"
    write(db, secret, 2)
    with holdlog.StateStore(db) as store:
        store.redact("record:n/k@1", redacted_by="ann", reason="a key")
    assert publish(db, nats_server).code == 0
    files = [path for path in nats_server.folder.rglob("*") if path.is_file()]
    assert not any(secret.encode() in path.read_bytes() for path in files)
    events = receive(nats_server, 3, db, after=0)
    assert [(event["position"], event.get("redacted")) for event in events] == [(1, True), (2, None), (3, None)]


@pytest.mark.rest
def test_relay_publishes_a_log_in_postgres(postgres: str, nats_server: Nats) -> None:
    write(postgres, *range(300))
    assert publish(postgres, nats_server).code == 0
    assert [event["data"]["value"] for event in receive(nats_server, 300, postgres, after=0)] == list(range(300))


# --- subscribers


def test_bookmark_of_another_history_is_refused_without_the_store(db: Path, nats_server: Nats) -> None:
    write(db, 1, 2, 3)
    assert publish(db, nats_server).code == 0
    first, second = receive(nats_server, 2, after=0, **elsewhere(db))
    assert receive(nats_server, 1, after=first["bookmark"], **elsewhere(db)) == [second]
    forged = f"{first['position']}.{second['bookmark'].partition('.')[2]}"
    for store in ({}, {"store": db}):
        with pytest.raises(HoldlogError, match="another history"):
            receive(nats_server, 1, after=forged, **elsewhere(db) | store)


def test_subscriber_without_the_store_passes_over_redacted_events(db: Path, nats_server: Nats) -> None:
    write(db, 1, "secret", 3)
    assert publish(db, nats_server).code == 0
    with holdlog.StateStore(db) as store:
        store.redact("record:n/k@2", redacted_by="ann", reason="a key")
    assert publish(db, nats_server).code == 0
    assert [event["position"] for event in receive(nats_server, 3, after=0, **elsewhere(db))] == [1, 3, 4]
    events = receive(nats_server, 4, db, after=0)
    assert [(event["position"], event.get("redacted")) for event in events] == [
        (1, None),
        (2, True),
        (3, None),
        (4, None),
    ]


def test_events_that_left_the_stream_are_missed_by_no_subscriber(db: Path, nats_server: Nats) -> None:
    write(db, *range(5))
    assert publish(db, nats_server).code == 0
    on_server(nats_server, lambda _, js: js.purge_stream(find_stream(db), keep=2))
    with pytest.raises(HoldlogError, match="no events 2 to 3 any more"):
        receive(nats_server, 1, after=1, **elsewhere(db))
    assert [event["position"] for event in receive(nats_server, 2, after=3, **elsewhere(db))] == [4, 5]
    assert [event["position"] for event in receive(nats_server, 4, db, after=1)] == [2, 3, 4, 5]


@pytest.mark.rest
def test_durable_subscriber_goes_on_behind_its_last_event(db: Path, nats_server: Nats) -> None:
    write(db, *range(6))
    assert publish(db, nats_server).code == 0
    parts = [receive(nats_server, 2, db, after=0, durable="robot") for _ in range(3)]
    assert [event["position"] for part in parts for event in part] == [1, 2, 3, 4, 5, 6]
    assert receive(nats_server, 1, db, after=0, durable="other")[0]["position"] == 1


@pytest.mark.rest
@pytest.mark.parametrize("has_store", [True, False])
def test_durable_subscriber_that_ended_before_its_first_event_misses_none(
    db: Path, nats_server: Nats, has_store: bool
) -> None:
    write(db, 1)
    assert publish(db, nats_server).code == 0
    place: dict[str, Any] = {"store": db} if has_store else elsewhere(db)

    async def begin() -> None:
        async with holdlog.subscribe(nats_server.url, **place, durable="robot") as events:
            reading = asyncio.ensure_future(anext(events))
            while not await asyncio.to_thread(on_server, nats_server, find_bookmark):
                pass
            reading.cancel()
            await asyncio.wait([reading])

    async def find_bookmark(_: Any, js: Any) -> bytes:
        with suppress(NotFoundError):
            return (await (await js.key_value(f"{find_stream(db)}_bookmarks")).get("robot")).value or b""
        return b""

    asyncio.run(asyncio.wait_for(begin(), PATIENCE))
    write(db, 2, 3)
    assert publish(db, nats_server).code == 0
    assert [event["position"] for event in receive(nats_server, 2, **place, durable="robot")] == [2, 3]


@pytest.mark.rest
def test_subscriber_follows_a_stream_that_was_deleted_and_filled_again(db: Path, nats_server: Nats) -> None:
    write(db, 1, 2)
    assert publish(db, nats_server).code == 0

    async def read() -> list[Any]:
        async with asyncio.timeout(PATIENCE), holdlog.subscribe(nats_server.url, after=0, **elsewhere(db)) as events:
            seen = [await anext(events), await anext(events)]
            await asyncio.to_thread(on_server, nats_server, lambda _, js: js.delete_stream(find_stream(db)))
            await asyncio.to_thread(write, db, 3)
            assert (await asyncio.to_thread(publish, db, nats_server)).code == 0
            return [*seen, await anext(events)]

    assert [event["position"] for event in asyncio.run(read())] == [1, 2, 3]


@pytest.mark.rest
@pytest.mark.parametrize("word", ["relay", "subscribe"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_command_that_waits_for_a_server(word: str, number: int, db: Path, tmp_path: Path) -> None:
    write(db, 1)
    words = [HOLDLOG, word, "--db", str(db), "--nats", Nats(tmp_path / "never started").url]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=environment(), text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
        assert (line.endswith("trying again\n"), process.stderr.read()) == (True, "")


@pytest.mark.rest
def test_relay_says_once_that_its_stream_is_full_and_goes_on_when_it_is_not(db: Path, nats_server: Nats) -> None:
    def limit(count: int) -> None:
        async def change(_: Any, js: Any) -> None:
            config = (await js.stream_info(find_stream(db))).config
            config.max_msgs, config.discard = count, DiscardPolicy.NEW
            await js.update_stream(config)

        on_server(nats_server, change)

    write(db, 1, 2)
    assert publish(db, nats_server).code == 0
    limit(3)
    write(db, 3, 4)
    words = [HOLDLOG, "relay", "--db", str(db), "--nats", nats_server.url]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=environment(), text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        seen = time.monotonic()
        until(lambda: time.monotonic() > seen + 2)  # in which it tries again several times
        limit(-1)
        until(lambda: count_messages(db, nats_server) == 4)
        process.terminate()
        assert "maximum messages exceeded; trying again" in line
        assert process.stderr.read().count("\n") <= 1  # that it is available again


# --- other servers


class Guarded(Nats):
    """A server with a configuration file."""

    def __init__(self, folder: Path, config: str) -> None:
        super().__init__(folder)
        self.config = config

    def prepare(self) -> list[str]:
        words = super().prepare()
        (self.folder / "nats.conf").write_text(self.config)
        return [*words, "-c", str(self.folder / "nats.conf")]


@pytest.mark.rest
def test_event_that_nats_refuses_as_too_large_is_read_from_the_log(db: Path, tmp_path: Path) -> None:
    write(db, "x" * 100_000)
    server = Guarded(tmp_path / "nats", "max_payload: 65536")
    server.start()
    try:
        assert publish(db, server).code == 0
        assert len(receive(server, 1, db, after=0)[0]["data"]["value"]) == 100_000
        assert receive(server, 1, after=0)[0]["omitted"] is True
    finally:
        server.stop()


@pytest.mark.rest
def test_credentials_are_in_the_url(db: Path, tmp_path: Path) -> None:
    write(db, 1)
    server = Guarded(tmp_path / "nats", 'authorization { user: "ann", password: "p@ss" }')
    server.start()
    try:
        good, bad = (server.url.replace("//", f"//ann:{word}@") for word in ("p%40ss", "wrong"))
        assert run("relay", "--db", db, "--nats", good, "--once").code == 0
        for word in ("relay", "subscribe"):
            done = run(word, "--db", db, "--nats", bad)
            assert (done.code, len(done.err.splitlines()), "wrong" in done.err) == (2, 1, False)
            assert "refuses the credentials" in done.err
    finally:
        server.stop()


def sign(claims: dict[str, Any], signer: bytes) -> str:
    """A JWT as NATS has it."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    pair = nkeys.from_seed(bytearray(signer))
    claims = {"jti": secrets.token_hex(8), "iat": int(time.time()), "iss": pair.public_key.decode()} | claims
    body = ".".join(encode(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
    return f"{body}.{encode(pair.sign(body.encode()))}"


@pytest.mark.rest
def test_credentials_may_be_a_file(db: Path, tmp_path: Path) -> None:
    kinds = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER, nkeys.PREFIX_BYTE_ACCOUNT)
    operator, account, user, system = (nkeys.encode_seed(os.urandom(32), kind) for kind in kinds)
    names = [nkeys.from_seed(bytearray(seed)).public_key.decode() for seed in (operator, account, user, system)]
    unlimited = ("subs", "conn", "leaf", "imports", "exports", "data", "payload", "mem_storage", "disk_storage")
    limits = dict.fromkeys((*unlimited, "streams", "consumer"), -1) | {"wildcards": True}
    rights = {"subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}}
    texts = [
        sign({"sub": name, "name": name, "nats": {"type": kind, "version": 2} | more}, signer)
        for name, kind, more, signer in zip(
            names,
            ("operator", "account", "user", "account"),
            ({}, {"limits": limits}, rights, {}),
            (operator, operator, account, operator),
            strict=True,
        )
    ]
    server = Guarded(
        tmp_path / "nats",
        f"operator: {texts[0]}\nresolver: MEMORY\nsystem_account: {names[3]}\n"
        f"resolver_preload: {{ {names[1]}: {texts[1]}, {names[3]}: {texts[3]} }}",
    )
    file, broken = tmp_path / "user.creds", tmp_path / "broken.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{texts[2]}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.decode()}\n------END USER NKEY SEED------\n"
    )
    broken.write_text(file.read_text().replace("SU", "XX"))
    write(db, 1)
    server.start()
    try:
        words = ("relay", "--db", db, "--nats", server.url, "--once")
        assert run(*words, env={"HOLDLOG_NATS_CREDS": str(file)}).code == 0
        for wrong in (broken, tmp_path / "missing"):
            done = run(*words, env={"HOLDLOG_NATS_CREDS": str(wrong)})
            assert (done.code, len(done.err.splitlines())) == (2, 1)
    finally:
        server.stop()
