"""POST /hook: the hooks of hosts, without a process for each."""

import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from holdlog.adapters.api.settings import LEASE_OVER_HTTP, Settings
from holdlog.adapters.auth.identity import SessionId
from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.compose import MEMORY, open_holdlog
from holdlog.adapters.hooks.calls import EVENTS
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.hooks import SECONDS
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.operating_system.workspaces import find_workspaces
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.verifier import Verifier
from holdlog.domain.claims.lease import BY_LEASE
from holdlog.domain.message import NOBODY
from holdlog.domain.token import IssueToken
from tests.unit.operating_system.test_workspaces import repository

FIXTURES = Path(__file__).parents[2] / "support" / "fixtures" / "hooks"
SESSION = {"session_id": "s-1"}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A server's store for the workspace `tmp_path`."""
    (tmp_path / ".holdlog").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state" / "of" / "the user"))
    settings = Settings(lease=LEASE_OVER_HTTP, keeps=False, workspaces=find_workspaces({}, tmp_path))
    is_file = request.param == "sqlite"
    engine = open_holdlog(
        tmp_path / ".holdlog" / "state.db" if is_file else request.getfixturevalue("postgres"), settings
    )
    yield engine
    engine.close()


@asynccontextmanager
async def serving(store: Engine, verifier: Verifier | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    spaces = Tenants(MEMORY, store, store.settings)
    app = build_app(build_server(None, ("claims",)), spaces, verifier, HttpOptions(max_requests=0), Shutdown())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420") as client:
        yield client
    await spaces.close()


def issue(store: Engine, name: str, *allow: str) -> str:
    made = fresh(name)
    store.change_token(IssueToken(name=name, hash=made.hash, allow=allow, by="ann"), NOBODY)
    return made.text


async def hook(client: httpx2.AsyncClient, event: str | None, given: Any, token: str | None = None) -> Any:
    """The output of a hook, which must not fail."""
    done = await client.post(
        f"/hook?event={event}" if event else "/hook", json=given, headers={"x-token": token} if token else {}
    )
    assert done.status_code == 200
    return done.json()


def held(store: Engine) -> dict[str, str]:
    return {it.resource: it.held_by for it in store.read(store.requests.claims.board()).claims}


def below(folder: Path, pattern: str) -> list[Path]:
    return list(folder.rglob(pattern))


def normal(output: Any) -> Any:
    """Without what differs between two runs, and between a hook with our tools and one without."""
    text = re.sub(r"\d\d:\d\d:\d\d UTC \(\d+ s\)", "TIME", json.dumps(output or {}))
    text = re.sub(r"(run: holdlog claim|call claim\().*?, then try again\.", "REMEDY", text)
    return json.loads(re.sub(r"(cursor|codex)-[0-9a-f]{6}", r"\1-NAME", text))


@pytest.mark.parametrize("client", ["claude", "codex", "cursor", "agent"])
async def test_host_gets_the_output_that_a_command_would_print(client: str, store: Engine, tmp_path: Path) -> None:
    ann = open_holdlog(store.location, store.settings, SessionId("option", "ann"))
    own = ann.caller.model_copy(update={"server": BY_LEASE})
    claim = ann.requests.claims.claim("held.py", "ann", lease_seconds=300)
    ann.claim(claim, own)
    text = (FIXTURES / f"{client}.json").read_text().replace("FOLDER", str(tmp_path))
    async with serving(store) as server:
        for number, case in enumerate(json.loads(text)):
            found = await hook(server, case.get("event"), case["stdin"])
            assert normal(found) == normal(case["stdout"]), number
            if "holds" in case:
                assert [it for it in held(store) if it != "held.py"] == case["holds"], number
    ann.close()


async def test_claim_of_a_hook_ends_soon_although_leases_over_http_are_long(store: Engine, tmp_path: Path) -> None:
    async with serving(store) as server:
        assert await hook(server, "pre-edit", SESSION | {"cwd": str(tmp_path), "paths": ["a.py"]}) == {}
    (lease,) = store.read_now(lambda reader: reader.leases.of(["a.py"]))
    assert (lease.duration, lease.server) == (300_000_000, BY_LEASE)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((it, "body") for it in (b"", b"{", b"[" * 100_000, b"\xff")),
        *((it, "the input must be a JSON object") for it in (b"[]", b"null")),
        *((it, "hook_event_name") for it in (b"{}", b'{"session_id": 1}')),
        (b'{"hook_event_name": "Stop"}', "session_id"),
        (b'{"session_id": "s-1", "hook_event_name": ""}', "hook_event_name"),
    ],
)
async def test_body_that_is_not_a_hook_call_gets_400_and_is_reported_once(
    content: bytes, reason: str, store: Engine, tmp_path: Path
) -> None:
    async with serving(store) as server:
        done = await server.post("/hook", content=content, headers={"content-type": "application/json"})
        message = done.json()["message"]
        assert (done.status_code, message.partition(":")[0]) == (400, reason)
        assert "\n" not in message
        start = SESSION | {"cwd": str(tmp_path)}
        assert "1 hook call failed" in (await hook(server, "start", start))["context"]
        assert "failed" not in (await hook(server, "start", start))["context"]


@pytest.mark.parametrize("value", [None, 10**40, "a\0b", "\ud800", "x" * 100_000, [], ["a", 1], {"a": {}}])
async def test_field_of_a_wrong_type_never_fails_the_server(value: object, store: Engine, tmp_path: Path) -> None:
    edit = {"session_id": "s-1", "cwd": str(tmp_path), "hook_event_name": "PreToolUse", "tool_name": "Edit"}
    (tmp_path / "loop").symlink_to("loop")
    is_json = value != "\ud800"  # UTF-8 has no such character
    async with serving(store) as server:
        for field in ("session_id", "agent_id", "cwd", "tool_name", "tool_input", "hook_event_name", "cursor_version"):
            for event in ("PreToolUse", "PostToolUse", "Stop"):
                call = {**edit, "tool_input": {"file_path": "a.py"}, "hook_event_name": event, field: value}
                content = json.dumps(call).encode()
                done = await server.post("/hook", content=content, headers={"content-type": "application/json"})
                needed = field in ("session_id", "hook_event_name") and not isinstance(value, str)
                assert done.status_code == (400 if needed or not is_json else 200)
                assert isinstance(done.json(), dict)
        for path in (value, "loop", "/dev/zero", "../" * 9_000, "pipe/\n"):
            content = json.dumps({**edit, "tool_input": {"file_path": path}}).encode()
            done = await server.post("/hook", content=content, headers={"content-type": "application/json"})
            assert done.status_code == (200 if is_json or path != value else 400)
            assert not is_json or done.json() == {}


async def test_hook_requests_that_are_no_hooks_are_refused_by_type(store: Engine) -> None:
    headers = {"content-type": "application/json"}
    async with serving(store) as server:
        large = await server.post("/hook", content=b"[" + b" " * 40_000_000, headers=headers)
        refused = [
            (await server.get("/hook"), 405),
            (await server.post("/hook", content=b"{}", headers={"content-type": "text/html"}), 415),
            (large, 413),
        ]
        assert [(done.status_code, "error" in done.text or "code" in done.text) for done, _ in refused] == [
            (status, True) for _, status in refused
        ]


async def test_pipe_in_place_of_the_notes_blocks_no_later_hook(store: Engine, tmp_path: Path) -> None:
    edit = SESSION | {"cwd": str(tmp_path), "paths": ["a.py"]}
    async with serving(store) as server:
        await hook(server, "pre-edit", edit)
        (notes,) = below(tmp_path, "hook-*.json")
        notes.unlink()
        os.mkfifo(notes)
        started = time.monotonic()
        for event in EVENTS:
            await hook(server, event, edit)
        assert time.monotonic() - started < SECONDS


async def test_files_outside_of_the_workspaces_of_the_server_are_not_opened(
    store: Engine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("x")
    (tmp_path / "link").symlink_to(outside)
    async with serving(store) as server:
        for event in EVENTS:
            assert await hook(server, event, SESSION | {"cwd": str(outside), "paths": ["secret"]}) == {}
            paths = [str(outside / "secret"), "link/secret", "../outside/secret"]
            await hook(server, event, SESSION | {"cwd": str(tmp_path), "paths": paths})
    assert held(store) == {}
    noted = [path.read_text() for path in below(tmp_path, "*.reads")]
    assert not [text for text in noted if "secret" in text]


async def test_git_command_is_guarded_or_reported_as_unguarded(store: Engine, tmp_path: Path) -> None:
    repository(tmp_path)
    (tmp_path / "a.py").write_text("x")
    bash = {"session_id": "s-2", "cwd": str(tmp_path), "hook_event_name": "PreToolUse", "tool_name": "Bash"}

    def run(command: str) -> dict[str, Any]:
        return bash | {"tool_input": {"command": command}}

    async with serving(store) as server:
        assert await hook(server, "pre-edit", SESSION | {"cwd": str(tmp_path), "paths": ["a.py"]}) == {}
        for command in ("git stash -u", "git --no-pager -C . stash -u"):
            output = await hook(server, None, run(command))
            assert output["hookSpecificOutput"]["permissionDecision"] == "deny"
        output = await hook(server, None, run("git --git-dir=.git --work-tree=. stash -u"))
        assert output["hookSpecificOutput"]["additionalContext"].endswith("so this call is not guarded.")


async def test_hook_needs_a_token_with_grants_for_the_files(store: Engine, tmp_path: Path) -> None:
    reader, writer = issue(store, "viewer", "read:*"), issue(store, "ci", "claim:src/*")
    edit = SESSION | {"cwd": str(tmp_path)}
    async with serving(store, Verifier(store)) as server:
        assert (await server.post("/hook?event=pre-edit", json=edit | {"paths": ["src/a.py"]})).status_code == 401
        assert await hook(server, "pre-edit", edit | {"paths": ["src/a.py"]}, reader) == {}
        assert await hook(server, "pre-edit", edit | {"paths": ["b.py"]}, writer) == {}
        assert held(store) == {}
        assert "1 hook call failed" in (await hook(server, "start", edit, reader))["context"]
        assert await hook(server, "pre-edit", edit | {"paths": ["src/a.py"]}, writer) == {}
        assert list(held(store)) == ["src/a.py"]


async def test_callers_with_other_tokens_are_others_although_their_session_ids_are_equal(
    store: Engine, tmp_path: Path
) -> None:
    one, two = issue(store, "one", "claim:*"), issue(store, "two", "claim:*")
    edit = SESSION | {"cwd": str(tmp_path), "paths": ["a.py"]}
    async with serving(store, Verifier(store)) as server:
        assert await hook(server, "pre-edit", edit, one) == {}
        assert (await hook(server, "pre-edit", edit, two))["decision"] == "deny"
        await hook(server, "session-end", edit, two)
        assert list(held(store)) == ["a.py"]
        assert (await hook(server, "prompt", edit, one))["context"] == "holdlog: you hold a.py."
        await hook(server, "session-end", edit, one)
    assert held(store) == {}


async def test_agent_cannot_act_under_the_name_of_another_token(store: Engine, tmp_path: Path) -> None:
    one, _ = issue(store, "one", "claim:*"), issue(store, "two", "claim:*")
    base = SESSION | {"cwd": str(tmp_path)}
    named = base | {"tool_name": "mcp__holdlog__holdlog_claim", "tool_input": {"resource": "a.py", "agent": "two"}}
    async with serving(store, Verifier(store)) as server:
        await hook(server, "pre-edit", named, one)
        (tmp_path / "a.py").write_text("x")
        await hook(server, "pre-edit", base | {"paths": ["a.py"]}, one)
        await hook(server, "post-edit", base | {"paths": ["a.py"]}, one)
    assert held(store) == {}
    events = store.read(store.requests.events.page(store.requests.events.choice())).body()["events"]
    assert events
    assert not [it for it in events if "two" in (it.get("agent"), it.get("by"))]


async def test_hook_of_another_site_or_host_is_refused(store: Engine) -> None:
    async with serving(store) as server:
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            assert (await server.post("/hook", json=SESSION, headers=headers)).status_code in (403, 421)
        assert (await server.post("/hook", content="{}", headers={"content-type": "text/plain"})).status_code == 415


async def test_notes_of_hooks_are_private(store: Engine, tmp_path: Path) -> None:
    token = issue(store, "one", "claim:*")
    async with serving(store, Verifier(store)) as server:
        await hook(server, "pre-edit", SESSION | {"cwd": str(tmp_path), "paths": ["a.py"]}, token)
    folders = below(tmp_path, "*.hooks")
    assert len(folders) == 1
    modes = {path.stat().st_mode & 0o077 for path in (folders[0], *below(folders[0], "*"))}
    assert modes == {0}
    HookFiles(folders[0].with_suffix("")).remove_old()
    assert below(folders[0], "*.json")


async def test_agent_with_hooks_and_tools_over_http_is_never_denied_by_itself(store: Engine, tmp_path: Path) -> None:
    from tests.surfaces.mcp.test_resources_over_http import serving as listening

    edit = {"session_id": "s-1", "cwd": str(tmp_path), "hook_event_name": "PreToolUse"}
    a_file = edit | {"tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
    given = {"resource": "a.py", "agent": "alice"}
    token = issue(store, "one", "claim:*")
    async with (
        listening(store, Verifier(store)) as url,  # type: ignore[arg-type]
        Client(StreamableHttpTransport(url, auth=token)) as tools,
        httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as server,
    ):
        assert await hook(server, None, a_file, token) == {}
        own_tool = edit | {"tool_name": "mcp__holdlog__holdlog_claim", "tool_input": given}
        assert await hook(server, None, own_tool, token) == {}
        claimed = await tools.call_tool("holdlog_claim", given)
        assert claimed.structured_content is not None
        assert claimed.structured_content["status"] == "claimed"
        assert await hook(server, None, a_file, token) == {}
        denied = await hook(server, None, a_file | {"session_id": "s-2"}, token)
        reason = denied["hookSpecificOutput"]["permissionDecisionReason"]
        assert reason.startswith("holdlog: a.py is held by alice since ")
        assert 'call claim(resource="a.py", agent="claude-' in reason
    assert held(store) == {"a.py": "alice"}
