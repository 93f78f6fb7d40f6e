"""The page as the server sends it; tests/surfaces/browser/ has what a browser makes of it."""

from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.hooks.calls import parse
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.opening import perform_alone
from holdlog.adapters.runtime.verifier import Verifier
from tests.support.curl import Curl
from tests.support.page_policy import require_page_headers
from tests.surfaces.http.test_hook import issue, serving


async def test_page_is_sent_with_a_policy_that_loads_nothing_from_elsewhere(curl: Curl) -> None:
    answered = await curl.get("/")
    assert answered.status_code == 200
    require_page_headers(answered.headers)
    assert "innerHTML" not in answered.text  # names and values become text nodes


def let_agent_work(folder: Path) -> Path:
    """An agent with hooks gets a prompt and claims a file. Returns the store."""
    store = folder / ".holdlog" / "state.db"
    store.parent.mkdir(0o700)
    for event, more in (("start", {"prompt": "fix the queue"}), ("pre-edit", {"paths": ["a.py"]})):
        call = parse({"session_id": "s-1", "cwd": str(folder), **more}, event)
        assert call is not None
        perform_alone(call, store, HookFiles(store), None)
    return store


async def test_only_the_page_shows_where_an_agent_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_holdlog(let_agent_work(tmp_path))
    async with serving(store) as client:
        (found,) = (await client.get("/?terminals")).json()["terminals"]
        assert (found["terminal"], found["prompt"]) == (f"in {tmp_path}", "fix the queue")
        for path in ("/claims", "/claims/a.py", "/events", "/openapi.json", "/"):
            assert "fix the queue" not in (await client.get(path)).text
    store.close()


@pytest.mark.parametrize(("allow", "sees"), [("read:*", False), ("claim:*", False), ("admin:*", True)])
async def test_prompts_are_shown_only_with_a_token_of_an_administrator(
    allow: str, sees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_holdlog(let_agent_work(tmp_path))
    token = issue(store, "viewer", allow)
    async with serving(store, Verifier(store)) as client:
        assert (await client.get("/?terminals")).status_code == 401
        found = await client.get("/?terminals", headers={"x-token": token})
        assert (found.status_code, bool(found.json()["terminals"])) == (200, sees)
    store.close()
