"""A store in a file and one in a database, to be looked at and damaged in the same words."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from holdlog.adapters.compose import examine, open_shadow_tables
from holdlog.adapters.stores.event_log.findings import Finding
from holdlog.adapters.stores.event_log.rebuild import RebuildReport, rebuild
from holdlog.domain.progress import Progress
from holdlog.projections import fold

Rows = list[tuple[Any, ...]]


class Kind:
    """`place`: what the store is opened by; `position`: the log's column of that."""

    position: str

    def __init__(self, place: str | Path) -> None:
        self.place = place

    def run(self, statement: str) -> tuple[int, Rows]:
        """The rows that a statement changed, and those that it gave."""
        raise NotImplementedError

    def all_tables(self) -> set[str]:
        raise NotImplementedError

    def blob(self, text: str) -> str:
        """An expression for these bytes."""
        raise NotImplementedError

    def bytes_of(self, data: bytes) -> str:
        """As `blob`, for any bytes."""
        raise NotImplementedError

    def ask(self, question: str) -> Rows:
        return self.run(question)[1]

    def doctored(self, *statements: str) -> None:
        """`POSITION` stands for the column, `BYTES('…')` for what is stored as bytes."""
        for statement in statements:
            written = re.sub(r"BYTES\('(.*?)'\)", lambda found: self.blob(found[1]), statement)
            assert self.run(written.replace("POSITION", self.position))[0] != 0, "the damage hit nothing"

    def views(self) -> dict[str, Rows]:
        return {view.name: sorted(self.ask(f'SELECT * FROM "{view.name}"'), key=repr) for view in fold.VIEWS}

    def tables(self) -> set[str]:
        left = self.ask(
            "SELECT name FROM meta WHERE name NOT IN ('store_id', 'boot_id', 'major', 'minor', 'session_salt')"
        )
        assert left == []
        return self.all_tables()

    def rebuilt(self, progress: Progress = lambda done, total: None) -> RebuildReport:
        engine = open_shadow_tables(self.place, lambda line: None)
        assert engine is not None
        store, shadow = engine
        try:
            return rebuild(shadow, progress)
        finally:
            store.close()

    def look(self, progress: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Finding]:
        found = {finding.name: finding for finding in examine(self.place, progress)}
        assert all(len(finding.text.splitlines()) == 1 for finding in found.values())
        return found

    def bad(self) -> dict[str, str]:
        return {name: finding.text for name, finding in self.look().items() if finding.level == "bad"}

    def unsound(self) -> list[str]:
        return [f"{it.name}: {it.text}" for it in self.look().values() if it.level == "bad" or it.name == "rebuild"]


class InFile(Kind):
    position = "rowid"

    def run(self, statement: str) -> tuple[int, Rows]:
        with closing(sqlite3.connect(self.place, isolation_level=None)) as connection:
            cursor = connection.execute(statement)
            return cursor.rowcount, cursor.fetchall()

    def all_tables(self) -> set[str]:
        return {name for (name,) in self.ask("SELECT name FROM sqlite_schema")}

    def blob(self, text: str) -> str:
        return f"CAST('{text}' AS BLOB)"

    def bytes_of(self, data: bytes) -> str:
        return f"X'{data.hex()}'"


class InDatabase(Kind):
    position = "notification_id"

    @property
    def url(self) -> str:
        """As libpq takes it."""
        return re.sub(r"&schema=\w+", "", str(self.place))

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        connection = psycopg.connect(self.url, autocommit=True)
        schema = parse_qs(urlsplit(str(self.place)).query)["schema"][0]
        connection.execute(f'SET search_path TO "{schema}"')
        return connection

    def run(self, statement: str) -> tuple[int, Rows]:
        with self.connect() as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.rowcount, cursor.fetchall() if cursor.description else []

    def all_tables(self) -> set[str]:
        select = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        return {name for (name,) in self.ask(select)}

    def blob(self, text: str) -> str:
        return f"'{text}'::bytea"

    def bytes_of(self, data: bytes) -> str:
        return f"'\\x{data.hex()}'::bytea"
