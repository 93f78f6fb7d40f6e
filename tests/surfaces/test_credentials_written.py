"""A value that looks like a credential is written, and every surface that writes values warns about it."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdlog import AsyncStateStore, StateStore
from holdlog.adapters.cli.main import main
from tests.support.agent import ERAS, served
from tests.support.curl import AS_JSON, Curl

TOKEN = "ghp_" + "aB3" * 12
"""Not a real one, and not in one piece, so that scanners of repositories do not report it."""
ADVICE = "the history keeps it; if it is real, revoke it where it was issued, and ask a person to run holdlog redact"
WARNING = f"the value looks like a GitHub token: {ADVICE}"
OF_OPERATION = f"the value of operation 1 looks like a GitHub token: {ADVICE}"
OPERATIONS: list[dict[str, Any]] = [
    {"op": "set", "namespace": "n", "key": "a", "value": 1},
    {"op": "append", "namespace": "n", "key": "b", "value": {"use": TOKEN}},
]


def test_library_returns_warnings_with_the_result(tmp_path: Path) -> None:
    with StateStore(tmp_path / "state.db") as store:
        assert store.set("n", "k", 1, updated_by="ann").warnings is None
        assert store.set("n", "k", {"t": TOKEN}, updated_by="ann").warnings == [WARNING]
        assert store.update("n", "k", merge={"u": TOKEN}, updated_by="ann").warnings == [WARNING]
        assert store.update("n", "k", lambda value: TOKEN, updated_by="ann").warnings == [WARNING]
        assert store.transact(OPERATIONS, updated_by="ann").warnings == [OF_OPERATION]
        assert store.get("n", "k").value == TOKEN


async def test_repeated_request_has_the_same_warnings(tmp_path: Path) -> None:
    async with AsyncStateStore(tmp_path / "state.db") as store:
        first = await store.set("n", "k", TOKEN, updated_by="ann", request_id="r")
        assert first.warnings == [WARNING]
        assert await store.set("n", "k", TOKEN, updated_by="ann", request_id="r") == first


@pytest.mark.parametrize("era", ERAS)
async def test_agent_sees_warnings_in_the_response(era: str) -> None:
    async with served(era) as agent:
        body = {"namespace": "n", "key": "k", "updated_by": "ann"}
        assert "warnings" not in await agent("set", **body, value=1, expected_version=0)
        assert (await agent("set", **body, value=TOKEN, expected_version=1))["warnings"] == [WARNING]
        assert (await agent("update", **body, patch=[{"op": "add", "path": "", "value": TOKEN}]))["warnings"] == [
            WARNING
        ]
        assert (await agent("transact", operations=OPERATIONS, updated_by="ann"))["warnings"] == [OF_OPERATION]


async def test_http_response_in_json_has_warnings(curl: Curl) -> None:
    assert (await curl.put("/kv/n/k", content=TOKEN, headers=AS_JSON)).json()["warnings"] == [WARNING]
    done = await curl.post("/transactions", json={"operations": OPERATIONS})
    assert done.json()["warnings"] == [OF_OPERATION]


def test_command_line_warns_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_stdout(StringIO()) as out:
        assert main(["set", "n", "k", TOKEN, "--version", "0", "--db", str(tmp_path / "state.db")]) == 0
    assert out.getvalue() == "version 1\n"
    assert capsys.readouterr().err == f"holdlog: warning: {WARNING}\n"
