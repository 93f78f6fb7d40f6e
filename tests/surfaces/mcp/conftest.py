"""A real `holdlog serve` over raw lines in each era, shared by the tests of what clients should never send."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.wire import Wire, text_of


@pytest.fixture(scope="session")
def input_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("input") / "state.db"


@pytest.fixture(scope="session")
def legacy_server(input_store: Path) -> Iterator[Wire]:
    with _server(input_store, modern=False) as wire:
        yield wire


@pytest.fixture(scope="session")
def modern_server(input_store: Path) -> Iterator[Wire]:
    with _server(input_store, modern=True) as wire:
        yield wire


@contextmanager
def _server(store: Path, modern: bool) -> Iterator[Wire]:
    settings = ("--db", store, "--tools", "all", "--log-level", "debug")
    with store.with_name(f"stderr-{modern}").open("wb+") as stderr:
        wire = Wire("-m", "holdlog", *settings, modern=modern, stderr=stderr).open()
        yield wire
        wire.send(wire.call("holdlog_claim", "last", resource="last.md", agent="ann"))
        assert json.loads(text_of(wire.answer()))["status"] in ("claimed", "already_claimed")  # alive to the end
        assert wire.process.stdin is not None
        wire.process.stdin.close()
        assert wire.ended() == (0, [], [])
        wire.close()
        stderr.seek(0)
        log = stderr.read()
        assert b"DEBUG" in log
        assert b"SECRET" not in log  # what agents write belongs in no log
