"""`holdlog.toml` over HTTP: GET /policy shows its rules, and hooks that are posted obey them."""

from pathlib import Path

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.verifier import Verifier
from tests.surfaces.http.test_hook import SESSION, held, hook, issue, serving, store
from tests.surfaces.mcp.test_resources_over_http import serving as listening

__all__ = ["store"]

RULES = '[paths]\n"docs/**" = "warn"\n"LICENSE" = ["human", "across-worktrees"]\n'


async def test_rules_are_shown_as_they_are_in_force(store: Engine, tmp_path: Path) -> None:
    async with serving(store) as client:
        assert (await client.get("/policy")).json() == {"status": "ok", "rules": []}
        (tmp_path / "holdlog.toml").write_text(RULES)
        warn = {"glob": "docs/**", "mode": "warn", "across_worktrees": False, "line": 2}
        human = {"glob": "LICENSE", "mode": "human", "across_worktrees": True, "line": 3}
        assert (await client.get("/policy")).json() == {"status": "ok", "rules": [warn, human]}
        (tmp_path / "holdlog.toml").write_text(f"{RULES}secret\n")
        assert (await client.get("/policy")).json() == {
            "status": "ok",
            "rules": [],
            "problem": "holdlog.toml:4 is not in force, so the defaults apply",
        }


async def test_token_shows_only_the_rules_of_files_whose_claims_it_shows(store: Engine, tmp_path: Path) -> None:
    (tmp_path / "holdlog.toml").write_text(RULES)
    token = issue(store, "ci", "read-claims:docs/**")
    async with serving(store, Verifier(store)) as client:
        found = await client.get("/policy", headers={"x-token": token})
        assert [it["glob"] for it in found.json()["rules"]] == ["docs/**"]
        assert (await client.get("/policy")).status_code == 401


async def test_tool_claim_obeys_the_rules_over_http(store: Engine, tmp_path: Path) -> None:
    (tmp_path / "holdlog.toml").write_text(RULES)
    token = issue(store, "ann", "claim:*")
    async with (
        listening(store, Verifier(store)) as url,  # type: ignore[arg-type]
        Client(StreamableHttpTransport(url, auth=token)) as tools,
    ):
        given = {"resource": str(tmp_path / "LICENSE"), "agent": "ann"}
        refused = await tools.call_tool("holdlog_claim", given, raise_on_error=False)
        assert refused.is_error
        assert "resource: only a person may change this file (holdlog.toml:3)" in str(refused.content)
        assert held(store) == {}
        await tools.call_tool("holdlog_claim", given | {"resource": "docs/a.md"})
        assert held(store) == {"docs/a.md": "ann"}


async def test_posted_hooks_obey_the_rules(store: Engine, tmp_path: Path) -> None:
    (tmp_path / "holdlog.toml").write_text(RULES)
    async with serving(store) as client:
        given = SESSION | {"cwd": str(tmp_path)}
        denied = await hook(client, "pre-edit", given | {"paths": ["a.py", "LICENSE"]})
        assert denied["reason"].startswith("holdlog: only a person may change LICENSE (holdlog.toml:3).")
        assert held(store) == {}
        assert await hook(client, "pre-edit", given | {"paths": ["docs/a.md"]}) == {}
        other = await hook(client, "pre-edit", {**given, "session_id": "s-2", "paths": ["docs/a.md"]})
        assert "holdlog.toml:2 only warns" in other["warning"]
