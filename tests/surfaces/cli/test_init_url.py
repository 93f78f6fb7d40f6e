"""`holdlog init --url`: hosts use a server over HTTP, and their hooks call it."""

import json
import os
import re
import shlex
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.cli.setup.hosts import RemoteServer
from tests.support.command_line import run_command
from tests.support.http import http_server
from tests.support.set_up import names, set_up
from tests.support.slow import check, slow
from tests.surfaces.cli.test_init import HOSTS_PAGE, SETTINGS, files
from tests.unit.operating_system.test_workspaces import git, worktree

URL = "http://127.0.0.1:8420"
SECRET = "s3cr3t-" + "x" * 32


@pytest.fixture
def token(project: Path) -> Path:
    path = project.parent / "it's a token"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def handler(project: Path, event: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / SETTINGS).read_text())["hooks"][event][0]["hooks"][0]
    return found


def test_hosts_use_the_server_and_no_file_has_the_token(project: Path, token: Path) -> None:
    set_up(
        "claude-code", "codex", "cursor", "opencode", "vscode", "windsurf", server=RemoteServer(URL, True, str(token))
    )
    assert handler(project, "PreToolUse") == {
        "type": "http",
        "url": f"{URL}/hook",
        "headers": {"Authorization": "Bearer $HOLDLOG_TOKEN"},
        "allowedEnvVars": ["HOLDLOG_TOKEN"],
        "timeout": 5,
    }
    command = handler(project, "SessionStart")["command"]  # Claude Code skips hooks of type http there
    assert shlex.split(command) == ["holdlog", "hook", "--url", URL, "--token-file", str(token)]
    hooks = json.loads((project / ".cursor" / "hooks.json").read_text())["hooks"]
    assert [it["command"] for it in hooks["preToolUse"]] == [command]
    assert f'["hook", "--url", "{URL}", "--token-file", ' in (project / ".opencode/plugins/holdlog.js").read_text()
    assert SECRET not in "".join(it.decode() for it in files(project).values())


def test_page_of_hosts_shows_the_servers_that_init_writes(project: Path) -> None:
    page = HOSTS_PAGE.read_text()
    shown = [json.loads(it) for it in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    shown += [tomllib.loads(it) for it in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    set_up("claude-code", "codex", "cursor", "opencode", "vscode", "windsurf", server=RemoteServer(URL, True))
    home = project.parent / "home"
    written = [project / it for it in (".mcp.json", ".cursor/mcp.json", "opencode.json", ".vscode/mcp.json")]
    written += [home / ".codeium" / "windsurf" / "mcp_config.json"]
    found = [json.loads(it.read_text()) for it in written] + [tomllib.loads((home / ".codex/config.toml").read_text())]
    assert [it for it in found if it not in shown] == []


@pytest.mark.parametrize("client", ["claude-code", "codex", *check("cursor", "opencode"), *slow("vscode", "windsurf")])
def test_address_is_changed_kept_and_removed(client: str, project: Path) -> None:
    set_up(client)
    stdio = files(project)
    set_up(client, server=RemoteServer(URL))
    assert "8420" in str(files(project))
    set_up(client, server=RemoteServer("https://holdlog.example", True))
    assert "8420" not in str(files(project))
    changed = files(project)
    assert set_up(client) == []
    assert names(worktree(project, "../new")) == names(project)
    set_up(client, undo=True)
    assert files(project) == {}
    assert changed.keys() == stdio.keys()
    set_up(client)
    assert files(project) == stdio


def test_server_and_hooks_that_a_person_wrote_are_kept(project: Path) -> None:
    mine = {"holdlog": {"type": "http", "url": "http://mine:1/mcp", "headers": {"Authorization": "Bearer mine"}}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": mine}))
    settings = {"hooks": {"PreToolUse": [{"hooks": [{"type": "http", "url": "http://mine:1/audit"}]}]}}
    (project / ".claude").mkdir()
    (project / SETTINGS).write_text(json.dumps(settings))
    set_up("claude-code", server=RemoteServer(URL, True))
    set_up("claude-code", undo=True)
    assert json.loads((project / ".mcp.json").read_text()) == {"mcpServers": mine}
    assert json.loads((project / SETTINGS).read_text()) == settings


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        (it, "--url: must be the address of a server")
        for it in ("x", "ftp://x", "http://", "http://u:p@x", "http://x:y")
    ],
)
def test_wrong_address_is_refused(url: str, refusal: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "init", "--client", "cursor", "--yes", "--url", url)
    assert (code, err.count("\n"), refusal in err) == (2, 1, True)


def test_token_file_must_be_private(project: Path, token: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init = ["init", "--client", "cursor", "--yes", "--url", URL, "--token-file"]
    token.chmod(0o644)
    code, _, err = run_command(capsys, *init, str(token))
    assert (code, err) == (2, f"holdlog: --token-file: {token} can be read by other users; run: chmod 600 {token}\n")
    tracked = project / "token"
    tracked.write_text(SECRET)
    tracked.chmod(0o600)
    git(project, "add", "token")
    assert "git tracks" in run_command(capsys, *init, str(tracked))[2]
    assert "cannot be read" in run_command(capsys, *init, str(project / "missing"))[2]
    assert "--token-file: only works with --url" in run_command(capsys, "init", "--yes", "--token-file", str(token))[2]
    assert names(project) == ["token"]


@pytest.mark.parametrize("variable", [{}, {"HOLDLOG_TOKEN": "wrong"}])
def test_hook_of_a_server_that_does_not_respond_allows_the_edit(variable: dict[str, str], project: Path) -> None:
    command = ["holdlog", "hook", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(command, input="{}", env=os.environ | variable, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("holdlog hook: the server at http://127.0.0.1:1 cannot be reached (")
    assert done.stderr.endswith("); the edit is not guarded\n")


def test_agent_whose_session_starts_without_its_server_is_warned(project: Path) -> None:
    call = {"session_id": "s-1", "hook_event_name": "SessionStart", "cwd": str(project)}
    command = ["holdlog", "hook", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(command, input=json.dumps(call), capture_output=True, text=True)
    context = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert context.startswith("holdlog: your edits are not guarded")
    assert "http://127.0.0.1:1 cannot be reached" in context


def test_init_warns_that_a_store_in_a_database_has_no_hooks(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDLOG_DB", "postgresql://db.example/holdlog")
    code, _, err = run_command(capsys, "init", "--client", "cursor", "--print")
    assert (code, err.count("\n")) == (0, 1)
    assert "hooks guard nothing; start holdlog serve --transport http and run holdlog init --url" in err


@pytest.fixture
def server(project: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Path]]:
    """A server for the project, and the file with its token."""
    token = project.parent / "ci-token"
    command = ("token", "create", "--name", "ci", "--allow", "claim:*", "--allow", "read:*", "--out", str(token))
    assert run_command(capsys, *command)[0] == 0
    with http_server(project / ".git" / "holdlog" / "state.db") as started:
        yield started.url, token


@pytest.mark.check
def test_server_denies_an_edit_as_the_written_hooks_post_it(
    project: Path, server: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    url, token = server
    (project / "a.py").write_text("x = 1\n")
    init = ["init", "--yes", "--client", "claude-code", "--client", "cursor", "--url", url, "--token-file", str(token)]
    code, out, err = run_command(capsys, *init)
    assert (code, err) == (0, "")
    assert f"Claude Code: the server at {url} guards {project}" in out
    assert "Cursor: has no hooks of type http" in out
    assert run_command(capsys, "claim", "a.py", "--agent", "ann", "--session", "ann-1")[0] == 0
    edit = {"tool_name": "Write", "tool_input": {"file_path": str(project / "a.py"), "content": "x"}}
    call = {"session_id": "s-1", "cwd": str(project), "hook_event_name": "PreToolUse", **edit}
    hook = handler(project, "PreToolUse")
    headers = {name: it.replace("$HOLDLOG_TOKEN", token.read_text().strip()) for name, it in hook["headers"].items()}
    headers["Content-Type"] = "application/json"
    with urllib.request.urlopen(urllib.request.Request(hook["url"], json.dumps(call).encode(), headers)) as response:
        output = json.load(response)["hookSpecificOutput"]
    assert (output["permissionDecision"], "held by ann" in output["permissionDecisionReason"]) == ("deny", True)
    command = json.loads((project / ".cursor" / "hooks.json").read_text())["hooks"]["preToolUse"][0]["command"]
    call = {"conversation_id": "c-1", "workspace_roots": [str(project)], "hook_event_name": "preToolUse", **edit}
    done = subprocess.run(["sh", "-c", command], input=json.dumps(call), capture_output=True, text=True)
    assert json.loads(done.stdout)["permission"] == "deny"
    code, out, _ = run_command(capsys, "doctor", "--client", "claude-code")
    assert (code, f"the server at {url} guards {project}" in out) == (0, True)
    assert run_command(capsys, "init", "--undo", "--yes")[0] == 0
    assert names(project) == ["a.py"]


@pytest.mark.check
def test_server_of_another_project_or_with_another_token_guards_nothing(
    project: Path, server: tuple[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token = server
    (project.parent / "elsewhere").mkdir()
    monkeypatch.chdir(project.parent / "elsewhere")
    init = ["init", "--yes", "--client", "cursor", "--url", url]
    code, out, _ = run_command(capsys, *init, "--token-file", str(token))
    assert (code, f"the server at {url} does not guard " in out) == (1, True)
    monkeypatch.chdir(project)
    code, out, _ = run_command(capsys, *init)
    assert (code, "responds with status 401: is the token right?" in out) == (1, True)


def test_undo_removes_a_host_that_the_server_left_out(project: Path) -> None:
    set_up("claude-desktop", "cursor")
    set_up("claude-desktop", "cursor", server=RemoteServer(URL))
    set_up("claude-desktop", "cursor", undo=True)
    assert files(project) == {}
