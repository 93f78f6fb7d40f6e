"""Spaces are stores of their own, opened by whoever comes first and closed while nobody is in them."""

import asyncio
import itertools
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.http import tenants as module
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.postgres.target import MAX_SCHEMA, database_target, location_of_space
from holdlog.domain.refusals import InvalidError, StoreError, UnavailableError

Place = Path | str


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    return tmp_path / "state.db" if request.param == "sqlite" else ":memory:"


@asynccontextmanager
async def opened_spaces(place: Place, most_open: int | None = None) -> AsyncIterator[Tenants]:
    main = open_holdlog(place)
    spaces = Tenants(place, main, Settings(), most_open)
    try:
        yield spaces
    finally:
        await spaces.close()
        main.close()


async def add(engine: Engine, key: str = "k") -> int:
    """Write a value; its version."""
    written = await engine.write_async(engine.requests.values.set("n", key, 1, "ann", None), engine.caller)
    return written.version


async def test_spaces_are_isolated_from_each_other_and_from_the_main_store(place: Place) -> None:
    async with opened_spaces(place) as spaces:
        for name in (None, "one", "other"):
            async with spaces.enter(name) as engine:
                assert await add(engine) == 1
        async with spaces.enter("one") as engine:
            assert await add(engine) == 2


async def test_contents_of_a_space_persist_when_it_is_reopened(place: Place) -> None:
    if place == ":memory:":
        pytest.skip("nothing keeps it")
    for version in (1, 2):
        async with opened_spaces(place) as spaces, spaces.enter("one") as engine:
            assert await add(engine) == version


async def test_space_in_use_is_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IDLE", 0)
    numbers = itertools.count()
    async with opened_spaces(tmp_path / "state.db") as spaces:
        async with spaces.enter("s0") as held:
            for _ in range(2):
                async with spaces.enter("s1"):
                    pass  # it is closed, and opened again
            assert await add(held, "held") == 1

        async def come_and_go(name: str) -> None:
            for _ in range(15):
                async with spaces.enter(name) as engine:
                    await asyncio.sleep(0)
                    assert await add(engine, f"{next(numbers)}") == 1

        await asyncio.gather(*(come_and_go(f"s{number % 3}") for number in range(12)))


async def test_entering_a_space_that_is_closing_reopens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IDLE", 0)
    async with opened_spaces(tmp_path / "state.db") as spaces:
        async with spaces.enter("one") as first:
            pass
        async with spaces.enter("one") as second:
            assert second is not first
            assert await add(second) == 1
        with pytest.raises(StoreError, match="closed"):
            await add(first)


async def test_idle_spaces_are_closed_and_recently_used_ones_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_IDLE", 2)
    async with opened_spaces(tmp_path / "state.db") as spaces:
        found = {}
        for name in ("a", "b", "a", "c"):
            async with spaces.enter(name) as engine:
                found[name] = engine
        for name, is_same in (("a", True), ("c", True), ("b", False)):
            async with spaces.enter(name) as engine:
                assert (engine is found[name]) is is_same


async def test_spaces_beyond_the_limit_are_refused_while_all_are_in_use(tmp_path: Path) -> None:
    async with opened_spaces(tmp_path / "state.db", most_open=2) as spaces:
        async with spaces.enter("a"), spaces.enter("b"):
            with pytest.raises(UnavailableError, match="--max-spaces"):
                await spaces.enter("c").__aenter__()
        async with spaces.enter("c") as engine:
            assert await add(engine) == 1


async def test_cancelled_opening_of_a_space_affects_nobody_else(place: Place) -> None:
    async with opened_spaces(place) as spaces:

        async def use() -> int:
            async with spaces.enter("one") as engine:
                return await add(engine, str(id(asyncio.current_task())))

        impatient, patient = asyncio.create_task(use()), asyncio.create_task(use())
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == 1
        assert await use() >= 1


async def test_space_that_failed_to_open_is_retried_by_the_next_caller(tmp_path: Path) -> None:
    folder = tmp_path / "state.db.spaces"
    folder.mkdir(0o700)
    (folder / "one.db").write_bytes(b"no store" * 500)
    async with opened_spaces(tmp_path / "state.db") as spaces:
        for _ in range(2):
            with pytest.raises(StoreError):
                await spaces.enter("one").__aenter__()
        (folder / "one.db").unlink()
        async with spaces.enter("one") as engine:
            assert await add(engine) == 1


async def test_link_in_place_of_the_folder_of_spaces_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    async with opened_spaces(tmp_path / "state.db") as spaces:
        (tmp_path / "state.db.spaces").symlink_to(elsewhere)
        with pytest.raises(StoreError, match="symbolic link"):
            await spaces.enter("one").__aenter__()
    assert not list(elsewhere.iterdir())


async def test_shutdown_answers_current_and_later_waits_in_all_spaces(place: Place) -> None:
    async with opened_spaces(place) as spaces:

        async def wait(name: str | None) -> str:
            async with spaces.enter(name) as engine:
                answer = await engine.wait_async(engine.requests.values.watch("n", "k", 0, 40.0))
                return type(answer).__name__

        async with spaces.enter("one"), spaces.enter(None):
            waits = [asyncio.create_task(wait(name)) for name in (None, "one", "one")]
            await asyncio.sleep(0)
            spaces.finish_waiting()
            assert set(await asyncio.gather(*waits)) == {"WatchTimeout"}
            assert await wait("late") == "WatchTimeout"


async def test_folder_of_spaces_is_private(tmp_path: Path) -> None:
    async with opened_spaces(tmp_path / "state.db") as spaces, spaces.enter("one"):
        assert stat.S_IMODE((tmp_path / "state.db.spaces").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a_b", "-a", "a\n", "a.db", "x" * 49, "\0"])
async def test_invalid_space_name_is_refused(tmp_path: Path, name: str) -> None:
    async with opened_spaces(tmp_path / "state.db") as spaces:
        with pytest.raises(InvalidError):
            await spaces.enter(name).__aenter__()
    assert not (tmp_path / "state.db.spaces").exists()


async def test_each_space_in_postgres_has_a_schema(postgres: str) -> None:
    schema = database_target(postgres).schema
    async with opened_spaces(postgres) as spaces, spaces.enter("one"):
        with psycopg.connect(database_target(postgres).url) as connection:
            found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", (f"{schema}%",))
            assert {name for (name,) in found} == {schema, f"{schema}_space_one"}
            connection.execute(f'DROP SCHEMA "{schema}_space_one" CASCADE')


def test_schema_of_a_space_with_a_long_name_is_short_and_unique() -> None:
    url = "postgresql://ann@db.example/team?connect_timeout=5&schema=project"
    assert database_target(location_of_space(url, "one")) == database_target(
        url.replace("project", "project_space_one")
    )
    long = {location_of_space(url, "x" * number) for number in range(1, 49)}
    assert len(long) == 48
    assert all(len(database_target(it).schema) <= MAX_SCHEMA for it in long)
