"""Schemas of PostgreSQL whose names need quotes: every command takes them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from holdlog import StateStore
from holdlog.adapters.cli.main import main

NAMES = ["Bad-Name", "my-project", 'o"dd', "50% of it", "%s", "a.b"]


class Odd(NamedTuple):
    """`url`: of a store with one value, in a schema of such a name."""

    url: str
    server: str
    schema: str

    def drop(self, *table: str) -> None:
        """A table, or all."""
        what = "TABLE IF EXISTS {}" if table else "SCHEMA IF EXISTS {} CASCADE"
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.SQL(f"DROP {what}").format(sql.Identifier(self.schema, *table)))


@pytest.fixture(params=NAMES)
def odd(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[Odd]:
    schema = f"{request.param}_{os.getpid()}"  # others test on the same server now
    odd = Odd(f"{postgres_server}&schema={quote(schema, safe='')}", postgres_server, schema)
    odd.drop()
    try:
        with StateStore(odd.url) as store:
            store.set("n", "k", 1, updated_by="ann")
        yield odd
    finally:
        odd.drop()


Terminal = pytest.CaptureFixture[str]


def test_doctor_accepts_a_sound_store_in_a_quoted_schema(odd: Odd, capsys: Terminal) -> None:
    require_sound(odd.url, capsys)


@pytest.mark.check
def test_damaged_view_in_a_quoted_schema_is_rebuilt(odd: Odd, capsys: Terminal) -> None:
    odd.drop("current")
    assert main(["doctor", "--db", odd.url]) == 1
    assert main(["rebuild", "--db", odd.url]) == 0, capsys.readouterr()
    require_sound(odd.url, capsys)


@pytest.mark.check
@pytest.mark.parametrize("seal", [[], ["--seal"]])
def test_store_is_copied_from_and_to_a_quoted_schema(
    odd: Odd, seal: list[str], tmp_path: Path, capsys: Terminal
) -> None:
    file = str(tmp_path / "copy.db")
    assert main(["copy", *seal, odd.url, file]) == 0, capsys.readouterr()
    require_sound(file, capsys)
    require_sound(odd.url, capsys)
    odd.drop()
    assert main(["copy", *seal, file, odd.url]) == 0, capsys.readouterr()
    require_sound(odd.url, capsys)


def require_sound(place: str, capsys: Terminal) -> None:
    assert main(["doctor", "--db", place]) == 0, capsys.readouterr().out
