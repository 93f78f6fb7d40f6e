"""In which conversation a process acts that has none of its own: a stdio server, or a command in a shell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import SHELL, Adopt, Conversation, find_conversation, name_call
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.stores.sql import END_CONVERSATION, PUT_CONVERSATION
from holdlog.domain.claims.commands import Acquire
from holdlog.domain.claims.results import AlreadyClaimed
from holdlog.domain.moment import IDLE_LIMIT, Caller
from tests.conftest import both_stores

HOST = "boot/1/7/100"


@pytest.fixture
def engine(kind: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    opened = open_engine(request.getfixturevalue("postgres" if kind == "postgres" else "db"))
    yield opened
    opened.close()


def note(engine: Engine, session: str, agent: str = "", call: str = "", **facts: Any) -> None:
    calls = {"call-1": call} if call else {}
    row = Conversation(session, agent, f"claude-{session}{agent}", HOST, engine.store.steady(), calls, False, ())
    with engine.write_alone():
        engine.store.execute(PUT_CONVERSATION, row._replace(**facts).encode())


def find(engine: Engine, call: str = SHELL, host: str | None = HOST, **environ: str) -> str | None:
    found = find_conversation(engine.store, host, call, environ)
    return None if found is None else found.name


@both_stores
def test_only_live_conversation_of_the_host_is_the_one(engine):
    assert find(engine) is None
    note(engine, "s-1")
    assert (find(engine), find(engine, host="boot/1/8/100"), find(engine, host=None)) == ("claude-s-1", None, None)
    note(engine, "s-2")
    assert find(engine) is None
    note(engine, "s-2", has_ended=True)
    note(engine, "s-3", seen_at=engine.store.steady() - IDLE_LIMIT)
    assert find(engine) == "claude-s-1"
    with engine.write_alone():
        engine.store.execute(END_CONVERSATION, {"session": "s-1"})
    assert find(engine) is None


@both_stores
def test_announced_call_names_the_conversation_and_the_agent(engine):
    note(engine, "s-1")
    note(engine, "s-2")
    note(engine, "s-2", "7", SHELL)
    assert (find(engine), find(engine, name_call("alice"))) == ("claude-s-27", None)
    note(engine, "s-1", call=name_call("alice"))
    assert (find(engine), find(engine, name_call("alice"))) == ("claude-s-27", "claude-s-1")
    note(engine, "s-1", call=SHELL)
    assert find(engine) is None
    assert find(engine, CLAUDE_CODE_SESSION_ID="s-1") == "claude-s-1"
    assert find(engine, CLAUDE_CODE_SESSION_ID="s-9") is None


@both_stores
def test_conversation_that_goes_on_under_another_id_keeps_what_it_holds(engine):
    before, after = Caller("s-1", host=HOST), Caller("s-2", host=HOST)
    for agent, name in (("alice", "src/a.py"), ("alice/tests", "src/b.py")):
        assert engine.run(Acquire(name, agent), before)
    engine.run(Adopt(("s-1",)), after)
    for agent, name in (("alice", "src/a.py"), ("alice/tests", "src/b.py")):
        assert isinstance(engine.run(Acquire(name, agent), after), AlreadyClaimed)
    assert not engine.run(Acquire("src/a.py", "alice"), before)


def test_conversations_are_forgotten_with_their_store(tmp_path: Path):
    engine = open_engine(tmp_path / "state.db")
    note(engine, "s-1")
    engine.close()
    engine = open_engine(tmp_path / "state.db")
    assert find(engine) == "claude-s-1"
    engine.close()
