"""A correlation id joins the events of one task, whichever surface it comes through."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from holdlog import AsyncStateStore, InvalidError, StateStore
from holdlog.adapters.cli.main import main
from holdlog.adapters.mcp.server import build_server
from tests.support.agent import ALL, ERAS, connected, engine
from tests.support.curl import Curl

TASK = "task-7"
TOO_LONG = "x" * 200


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("HOLDLOG_CORRELATION", raising=False)
    return str(tmp_path / "state.db")


def recorded(place: str) -> list[object]:
    with StateStore(place) as store:
        return [event.model_dump().get("correlation_id") for event in store.events().events]


def test_library_records_the_correlation_id_of_the_store_object(place: str) -> None:
    with StateStore(place, correlation_id=TASK) as store:
        store.set("n", "k", 1, updated_by="ann", reason="because")
        store.claim("a.py", agent="ann")
    with StateStore(place) as store:
        store.set("n", "k", 2, updated_by="ann")
    assert recorded(place) == [TASK, TASK, None]


async def test_library_for_coroutines_records_it_too(place: str) -> None:
    async with AsyncStateStore(place, correlation_id=TASK) as store:
        await store.set("n", "k", 1, updated_by="ann")
    assert recorded(place) == [TASK]


def test_library_refuses_a_correlation_id_that_is_too_long(place: str) -> None:
    with pytest.raises(InvalidError, match="correlation_id"):
        StateStore(place, correlation_id=TOO_LONG)


def test_command_line_takes_it_from_an_option_or_the_environment(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stdout(StringIO()):
        assert main(["set", "n", "k", "1", "--version", "0", "--correlation", TASK, "--db", place]) == 0
        monkeypatch.setenv("HOLDLOG_CORRELATION", "task-8")
        assert main(["claim", "custom://a", "--agent", "ann", "--db", place]) == 0
        assert main(["release", "custom://a", "--agent", "ann", "--db", place]) == 0
    assert recorded(place) == [TASK, "task-8", "task-8"]


def test_command_line_names_the_option_of_a_bad_correlation_id(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["set", "n", "k", "1", "--version", "0", "--correlation", TOO_LONG, "--db", place]) == 2
    assert "--correlation" in capsys.readouterr().err
    assert recorded(place) == []


async def test_http_takes_it_from_a_header(curl: Curl) -> None:
    await curl.put("/kv/n/k", content="1", headers={"holdlog-correlation": TASK})
    (event,) = (await curl.get("/events", params={"after": 0})).json()["events"]
    assert event["correlation_id"] == TASK
    refused = await curl.put("/kv/n/k", content="2", headers={"holdlog-correlation": TOO_LONG})
    assert refused.status_code == 400
    assert "Holdlog-Correlation" in refused.json()["message"]


@pytest.mark.parametrize("mode", ERAS)
async def test_mcp_takes_it_from_the_metadata_of_a_call(mode: str) -> None:
    body = {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann"}
    with engine() as store:
        async with connected(build_server(store, ALL), mode=mode) as agent:
            await agent("set", {"holdlog/correlation_id": TASK}, **body, expected_version=0)
            refused = await agent.error("set", {"holdlog/correlation_id": 5}, **body, expected_version=1)
        (event,) = store.read(store.requests.events.page(store.requests.events.choice())).events
    assert event.model_dump()["correlation_id"] == TASK
    assert "holdlog/correlation_id" in refused
