"""Threads over NATS: published below subjects of their own, chosen by them, and whole also where values are large."""

import ast
import asyncio
import re
from dataclasses import replace
from pathlib import Path

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.nats.options import NatsOptions, nats_options
from holdlog.adapters.nats.payload import read
from holdlog.adapters.python.subscriber import Subscription
from holdlog.adapters.runtime.engine import Engine
from tests.support.servers import NatsServer, nats_server
from tests.support.streams import client, messages, until
from tests.support.thread_story import KINDS, append, change_data, result, said, start, story
from tests.surfaces.nats.conftest import publish_all, store_id
from tests.surfaces.nats.test_subscriber import some

DOCUMENT = (Path(__file__).parents[3] / "docs/nats.md").read_text()


async def test_threads_are_published_under_their_ids(engine: Engine, path: Path, options: NatsOptions) -> None:
    story(engine, "run 7")
    story(engine, "run")
    await publish_all(engine, path, options)
    root = options.root(store_id(engine))
    found = await messages(options, engine)
    assert [it.subject for it in found] == [f"{root}.thread._.run%207"] * 7 + [f"{root}.thread._.run"] * 7
    assert [it.headers["Topic"] for it in found] == KINDS * 2
    async with client(options) as connection:
        chosen = await connection.jetstream().pull_subscribe(
            f"{root}.thread._.run", stream=options.stream(store_id(engine))
        )
        assert [read(it.data.decode()).data["thread"] for it in await chosen.fetch(7, timeout=5)] == ["run"] * 7


async def test_subscriber_selects_one_thread_or_all(engine: Engine, path: Path, options: NatsOptions) -> None:
    story(engine, "run 7")
    engine.claim(engine.requests.claims.claim("thread/7", "ann"), engine.caller)
    story(engine, "run")
    await publish_all(engine, path, options)
    options = replace(options, name=store_id(engine))
    for pattern, places in (("thread._.run", range(9, 16)), ("thread.>", [*range(1, 8), *range(9, 16)])):
        async with Subscription(options, [pattern], after=0) as events:
            assert [event.position for event in await some(events, len(places))] == list(places)


async def test_thread_event_too_large_for_nats_is_omitted_and_read_from_the_log(path: Path, tmp_path: Path) -> None:
    """Even the names of the keys may be: a relay that cannot publish an event would stand still for ever."""
    config = tmp_path / "small.conf"
    config.write_text("max_payload: 8192")
    data = {f"{number:03} {'k' * 100}": number for number in range(200)}
    engine = open_holdlog(path)
    with nats_server(tmp_path / "nats", "-c", str(config)) as server:
        options = nats_options(server.url)
        start(engine)
        append(engine, said("x" * 20_000), result("y" * 20_000))
        change_data(engine, data)
        change_data(engine, {"small": 1})
        await publish_all(engine, path, options)
        _, message, found, keys, small = [read(it.data.decode()).data for it in await messages(options, engine)]
        async with Subscription(options, after=0, opened=open_holdlog(path)) as events:
            whole = [event.data["value"] for event in (await some(events, 5))[1:]]
    engine.close()
    assert message == {"thread": "run-7", "by": "ann", "value": None}
    assert (found["agent"], found["value"]) == ("writer", None)
    assert keys == {"thread": "run-7", "by": "ann", "value": None}
    assert small["value"] == {"small": 1}
    assert (whole[0]["content"], whole[2], whole[3]) == ("x" * 20_000, data, {"small": 1})


async def test_documented_subscriber_receives_events_of_its_thread(
    engine: Engine, path: Path, shared_server: NatsServer, options: NatsOptions
) -> None:
    example = next(it for it in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL) if "thread._." in it)
    example = example.replace("nats://127.0.0.1:4222", shared_server.url).replace("state.db", str(path))
    story(engine)
    story(engine, "run")
    await publish_all(engine, path, options)
    code = compile(f"import holdlog\n{example}", "nats.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    said: list[str] = []
    hears = asyncio.ensure_future(eval(code, {"print": lambda *words: said.append(" ".join(map(str, words)))}))
    await until(lambda: len(said) == 4 or hears.done())
    hears.cancel()
    assert said == [
        "ann plans search",
        "writer [{'type': 'text', 'role': 'assistant', 'content': 'a.py'}]",
        "ann plans write",
        "writer [{'type': 'text', 'role': 'assistant', 'content': 'b.py'}]",
    ]
