"""What cannot be right between a store in PostgreSQL and NATS ends in one line; odd names get there whole."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from nats.js.api import StreamConfig

from holdlog import StateStore
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.nats.stream import STORE
from holdlog.adapters.nats.subjects import subject_in
from holdlog.adapters.python.subscriber import Subscription
from holdlog.domain.names import record_stream
from tests.support.servers import NatsServer, nats_server
from tests.support.streams import client, messages
from tests.surfaces.nats.conftest import publish_all, store_id
from tests.surfaces.nats.test_connecting import holdlog
from tests.surfaces.nats.test_subscriber import some

SECRET = "s3cret"
SUBJECT = re.compile(r"[A-Za-z0-9_%~-]+(\.[A-Za-z0-9_%~-]+)*")
ODD = [
    "a.b", "a b", "*", ">", "a.*.>", "$JS.API", "_INBOX", "%2E", "a%2Eb", "~", "é", "🦊", "\U0010ffff", "x" * 512,
    "🦊" * 512, "\\", "'", '"', "a\u00a0b", "n/k", "-", "_", "A", "a",
]  # fmt: skip
VALUES = [
    "\0",
    "a\0b",
    "\x7f\x80",
    "🦊",
    {"\0": ["\0"]},
    10**40,
    -0.0,
    1e308,
    5e-324,
    None,
    "'; DROP TABLE current; --",
]


async def test_unusual_names_and_values_pass_through_nats_unchanged(postgres: str, options: NatsOptions) -> None:
    with StateStore(postgres) as store:
        for number, odd in enumerate(ODD):
            store.set(odd, odd, VALUES[number % len(VALUES)], updated_by="ann 🦊")
        assert [it.key for odd in ODD for it in store.list_keys(odd)] == ODD
    engine = open_holdlog(postgres)
    await publish_all(engine, postgres, options)
    root = options.root(store_id(engine))
    subjects = [message.subject.removeprefix(f"{root}.") for message in await messages(options, engine)]
    assert subjects == [subject_in(record_stream(odd, odd)) for odd in ODD]
    assert all(SUBJECT.fullmatch(subject) for subject in subjects)
    assert len(set(subjects)) == len(ODD)
    engine.close()
    async with Subscription(options, after=0, opened=open_holdlog(postgres)) as events:
        found = await some(events, len(ODD))
    assert [(it.data["namespace"], it.data["key"]) for it in found] == [(odd, odd) for odd in ODD]
    assert [it.data["value"] for it in found] == [VALUES[number % len(VALUES)] for number in range(len(ODD))]
    for number, subject in enumerate(subjects):
        pattern = f"{root}.{subject}"
        async with Subscription(replace(options, name=root.rpartition(".")[2]), [pattern], after=0) as events:
            (event,) = await some(events, 1)
        assert event.position == number + 1


@asynccontextmanager
async def stream(options: NatsOptions, name: str, config: StreamConfig) -> AsyncIterator[None]:
    async with client(options) as connection:
        await connection.jetstream().add_stream(config, name=name)
        try:
            yield
        finally:
            await connection.jetstream().delete_stream(name)


@pytest.mark.check
@pytest.mark.parametrize(
    ("metadata", "subjects", "says"),
    [
        (None, "holdlog.taken.>", "was not created by holdlog; choose another name with --nats-name"),
        ("another", "holdlog.taken.>", "belongs to another store (another); choose another name with --nats-name"),
        ("mine", "elsewhere.>", "has other subjects: elsewhere.>"),
        ("", "holdlog.taken.>", "another stream has subjects below"),
    ],
)
async def test_stream_of_another_store_ends_a_relay_with_one_line(
    postgres: str,
    shared_server: NatsServer,
    options: NatsOptions,
    metadata: str | None,
    subjects: str,
    says: str,
) -> None:
    engine = open_holdlog(postgres)
    owner = store_id(engine) if metadata == "mine" else metadata
    engine.close()
    name = "other" if metadata == "" else replace(options, name="taken").stream("")
    config = StreamConfig(subjects=[subjects], metadata={STORE: owner} if owner else None)
    async with stream(options, name, config):
        await require_one_line(says, "--db", postgres, "--nats", shared_server.url, "--nats-name", "taken")


async def require_one_line(says: str, *options: str) -> None:
    """`holdlog relay --once` ends with 2, and says this last."""
    done = await asyncio.to_thread(holdlog, "relay", "--once", *options)
    *before, last = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert says in last, done.stderr
    assert all("connecting to" in line for line in before), done.stderr
    assert SECRET not in done.stderr


@pytest.mark.check
async def test_wrong_credentials_and_prefixes_end_a_relay_with_one_line(postgres: str, tmp_path: Path) -> None:
    StateStore(postgres).close()
    (tmp_path / "c.conf").write_text('authorization: {user: ann, password: "right"}')
    with nats_server(tmp_path / "nats", "-c", str(tmp_path / "c.conf")) as server:
        url = server.url.replace("//", f"//ann:{SECRET}@")
        await require_one_line("refuses the credentials", "--db", postgres, "--nats", url)
    for prefix in ("a..b", ">"):
        words = ["--db", postgres, "--nats", server.url, f"--nats-prefix={prefix}"]
        await require_one_line("must have", *words)
