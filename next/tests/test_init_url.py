"""`holdlog init --url`: hosts with clones of one repository, whose hooks ask a server what the others hold."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import Json, Session, git, held, is_denied, repository, write
from tests.support.programs import Done, HttpServer, environment, run

pytestmark = pytest.mark.xdist_group("test_init_url")
CLIENTS = ("claude-code", "cursor", "codex", "opencode")
SERVER_FILES = (".mcp.json", ".cursor/mcp.json", "opencode.json")


class Team:
    """Two clones of a repository, on hosts that share a server with tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.db = folder, folder / "server" / "state.db"
        self.db.parent.mkdir()
        self.token = folder / "token"
        words = ("token", "create", "--name", "team", "--allow", "claim:*", "--allow", "read:*", "--db", self.db)
        write(self.token, run(*words).out)
        self.token.chmod(0o600)
        self.server = HttpServer(self.db, cwd=self.db.parent)
        self.first = repository(folder / "first" / "project")
        git(folder, "clone", "-q", str(self.first), str(folder / "second" / "clone"))
        self.second = folder / "second" / "clone"
        for root in (self.first, self.second):
            assert self.init(root).code == 0

    def init(self, root: Path, *words: str) -> Done:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        options = words or ("--url", self.server.url, "--token-file", str(self.token))
        clients = [word for name in CLIENTS for word in ("--client", name)]
        return run("init", "--yes", *clients, *options, cwd=root, env={"HOME": str(home)})

    def ask(self, method: str, path: str, **options: Any) -> Json:
        headers = {"authorization": f"Bearer {self.token.read_text().strip()}"}
        response: Json = self.server.request(method, path, headers=headers, **options).json()
        return response

    def held(self) -> dict[str, str]:
        """Who holds what on the server."""
        return {it["resource"]: it["held_by"] for it in self.ask("GET", "/v1/claims")["claims"]}


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    team = Team(tmp_path)
    yield team
    team.server.close()


def test_edit_of_a_file_that_an_agent_on_another_host_holds_is_denied(team: Team) -> None:
    ann, bob = Session(team.first, "ann"), Session(team.second, "bob")
    ann.change("src/a.py", "x = 2\n")
    (name,) = held(team.first).values()
    assert team.held() == {"src/a.py": name}
    denial = bob.edit("src/a.py")
    assert f"src/a.py is held by {name} since" in denial
    assert "call claim(" in denial
    assert held(team.second) == {}, "a denied call claims nothing on its own host"
    assert bob.edit("src/b.py") == ""


def test_denial_by_the_server_takes_back_all_that_the_call_claimed(team: Team) -> None:
    assert Session(team.first, "ann").edit("src/a.py") == ""
    patch = "*** Begin Patch\n*** Update File: own.py\n@@\n-x = 1\n+x = 2\n*** Update File: src/a.py\n@@\n-x = 1\n+x = 2\n"
    bob = Session(team.second, "bob")
    output = bob.hook("PreToolUse", tool_name="apply_patch", tool_input={"input": f"{patch}*** End Patch\n"})
    assert is_denied(output)
    assert (list(team.held()), held(team.second)) == (["src/a.py"], {})


def test_end_of_a_turn_releases_what_was_not_changed_and_a_commit_the_rest(team: Team) -> None:
    ann = Session(team.first, "ann")
    ann.change("src/a.py", "x = 2\n")
    assert ann.edit("src/b.py") == ""
    ann.hook("Stop")
    assert list(team.held()) == ["src/a.py"]
    git(team.first, "commit", "-qam", "second")
    ann.hook("Stop")
    assert team.held() == {}
    assert Session(team.second, "bob").edit("src/a.py") == ""


@pytest.mark.parametrize("reason", ["other", "clear"])
def test_end_of_a_conversation_releases_all_that_it_holds_on_the_server(team: Team, reason: str) -> None:
    ann = Session(team.first, "ann")
    ann.change("src/a.py", "x = 2\n")
    assert ann.agent("task").edit("src/b.py") == ""
    assert len(team.held()) == 2
    ann.hook("SessionEnd", reason=reason)
    assert team.held() == {}


def test_end_of_a_subagent_releases_only_what_it_holds(team: Team) -> None:
    ann = Session(team.first, "ann")
    assert ann.edit("src/a.py") == ""
    assert ann.agent("task").edit("src/b.py") == ""
    ann.agent("task").hook("SubagentStop")
    assert list(team.held()) == ["src/a.py"]


def test_agent_with_its_receipt_holds_the_same_claims_over_mcp_and_hooks(team: Team) -> None:
    ann = Session(team.first, "ann")
    assert "your receipt ann" in ann.hook("SessionStart", source="startup")["additionalContext"]
    assert ann.edit("src/a.py") == ""
    name = team.held()["src/a.py"]
    again = team.ask("POST", "/v1/claims/src%2Fa.py", json={"agent": name, "receipt": "ann"})
    assert again["status"] == "already_claimed"
    claimed = team.ask("POST", "/v1/claims/own.py", json={"agent": name, "receipt": "ann"})
    assert claimed["status"] == "claimed"
    assert ann.edit("own.py") == ""
    assert "own.py is held by" in Session(team.second, "bob").edit("own.py")


def test_agent_that_calls_itself_by_another_name_is_not_kept_out_by_its_former_one(team: Team) -> None:
    ann = Session(team.first, "ann")
    ann.change("src/a.py", "x = 2\n")
    ann.hook("PreToolUse", tool_name="mcp__holdlog__status", tool_input={"resource": "x", "agent": "ann"})
    ann.hook("PreToolUse", tool_name="mcp__holdlog__claim", tool_input={"resource": "custom://x", "agent": "ann"})
    assert ann.edit("src/a.py") == ""
    assert team.held() == {"src/a.py": "ann"}


def test_file_of_a_linked_worktree_is_a_copy_that_the_server_does_not_know(team: Team) -> None:
    git(team.first, "worktree", "add", "-q", str(team.folder / "linked"))
    assert Session(team.folder / "linked", "ann").edit("src/a.py") == ""
    assert team.held() == {}
    assert Session(team.second, "bob").edit("src/a.py") == ""
    assert list(team.held()) == ["src/a.py"]


def test_git_commands_are_judged_by_the_store_of_their_own_host(team: Team) -> None:
    ann, ben, bob = (Session(root, name) for root, name in zip(
        (team.first, team.first, team.second), ("ann", "ben", "bob"), strict=True))  # fmt: skip
    ann.change("src/a.py", "x = 2\n")
    assert "src/a.py" in ben.denied("git checkout .")
    assert bob.denied("git checkout .") == "", "nobody works in that clone"


# --- a server that does not help


def warn(session: Session, event: str = "PreToolUse", path: str = "src/a.py", **env: str) -> tuple[Json, str]:
    """The output of an edit's hook, which must allow the edit, and its standard error."""
    call: Json = {**session.facts, "hook_event_name": event}
    if event == "PreToolUse":
        call |= {"tool_name": "Edit", "tool_input": {"file_path": str(session.folder / path)}}
    done = subprocess.run(
        [shutil.which("holdlog") or "", "hook"], input=json.dumps(call), env=environment(env), cwd=session.folder,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    output: Json = json.loads(done.stdout)["hookSpecificOutput"]
    assert "permissionDecision" not in output
    return output, done.stderr


def test_agent_is_warned_while_the_server_is_away_and_guarded_again_afterwards(team: Team) -> None:
    ann, bob = Session(team.first, "ann"), Session(team.second, "bob")
    assert ann.edit("src/a.py") == ""
    port = team.server.url.rpartition(":")[2]
    team.server.process.kill()
    team.server.process.wait()
    for event, start in (("PreToolUse", "holdlog: the server at "), ("SessionStart", "holdlog: your agent name is ")):
        output, problem = warn(bob, event)
        text = output["additionalContext"]
        assert text.startswith(start)
        assert "not guarded against agents on other hosts" in text
        assert f"{team.server.url} cannot be reached (Connection refused)" in text
        assert problem.count("\n") == 1
    assert list(held(team.second)) == ["src/a.py"], "the store of the host guards on"
    assert "src/a.py is held by" in Session(team.second, "ben").edit("src/a.py")
    team.server = HttpServer(team.db, "--port", port, cwd=team.db.parent)
    assert "src/a.py is held by" in bob.edit("src/a.py")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("wrong", "responded with status 401; is the token right?"),
        ("bröken", "the token file"),
        ("a\nb", "cannot be reached (Invalid header value"),
    ],
)
def test_agent_is_warned_of_a_token_that_the_server_refuses(team: Team, token: str, why: str) -> None:
    team.token.write_text(token)
    output, _ = warn(Session(team.first, "ann"))
    assert why in output["additionalContext"]
    assert token not in output["additionalContext"]


def test_token_in_the_environment_of_the_host_is_used_or_missed_by_name(team: Team) -> None:
    token = team.token.read_text().strip()
    env = {"HOME": str(team.folder / "home"), "HOLDLOG_TOKEN": token}
    words = ("init", "--yes", "--client", "cursor", "--url", team.server.url)
    assert run(*words, cwd=team.first, env=env).code == 0
    ann = Session(team.first, "ann")
    output, _ = warn(ann)
    assert "HOLDLOG_TOKEN is not set" in output["additionalContext"]
    done = subprocess.run(
        [shutil.which("holdlog") or "", "hook", "pre-edit"], input='{"session_id": "ann", "paths": ["src/b.py"]}',
        env=environment(env), cwd=team.first, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr, list(team.held())) == ("", "", ["src/b.py"])


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (None, "cannot be reached (timed out)"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "responded with status 503"),
        (b"HTTP/1.1 307 Moved\r\nlocation: http://localhost/\r\ncontent-length: 0\r\n\r\n", "responded with status 307"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "is no server of holdlog"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached"),
    ],
)
def test_agent_is_warned_of_a_server_that_fails_or_is_slow(team: Team, response: bytes | None, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        team.init(team.first, "--url", team.server.url, "--token-file", str(team.token))
        (team.first / ".git/holdlog/server").write_text(f"{url}\n")
        call = {"session_id": "ann", "paths": ["src/a.py"]}
        hook = subprocess.Popen(
            [shutil.which("holdlog") or "", "hook", "pre-edit"], env=environment(None), cwd=team.first,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert hook.stdin is not None
        hook.stdin.write(json.dumps(call))
        hook.stdin.close()
        connection, _ = listening.accept()
        with connection:
            if response is not None:
                connection.recv(65_536)
                connection.sendall(response)
                connection.shutdown(socket.SHUT_WR)
            assert hook.stdout is not None
            text = json.load(hook.stdout)["warning"]
        assert hook.wait() == 0
    assert why in text
    assert text.endswith("; this call is not guarded against agents on other hosts.")


# --- what init writes


def test_files_of_hosts_name_the_server_and_the_variable_and_no_token(team: Team) -> None:
    secret = team.token.read_text().strip()
    variables = ("${HOLDLOG_TOKEN}", "${env:HOLDLOG_TOKEN}", "{env:HOLDLOG_TOKEN}")
    for name, variable in zip(SERVER_FILES, variables, strict=True):
        servers = json.loads((team.first / name).read_text())
        entry = servers.get("mcpServers", servers.get("mcp"))["holdlog"]
        assert (entry["url"], entry["headers"]) == (f"{team.server.url}/mcp", {"Authorization": f"Bearer {variable}"})
    codex = (team.folder / "home/.codex/config.toml").read_text()
    assert f'url = "{team.server.url}/mcp"\nbearer_token_env_var = "HOLDLOG_TOKEN"\n' in codex
    for root in (team.folder / "home", team.first, team.second):
        assert not any(secret in it.read_text(errors="replace") for it in root.rglob("*") if it.is_file())
    assert git(team.first, "status", "--porcelain") == ""


def test_address_replaces_a_started_server_is_kept_and_is_undone(team: Team) -> None:
    assert team.init(team.first, "--undo").code == 0
    assert not any((team.first / name).exists() for name in (*SERVER_FILES, ".git/holdlog/server"))
    assert team.init(team.first, "--git-hook").code == 0
    assert json.loads((team.first / ".mcp.json").read_text())["mcpServers"]["holdlog"]["args"] == []
    team.init(team.first, "--url", "http://127.0.0.1:1/mcp")
    for url in ("http://127.0.0.1:1", team.server.url):
        if url == team.server.url:
            team.init(team.first, "--url", url, "--token-file", str(team.token))
        for name in (*SERVER_FILES, ".git/holdlog/server"):
            assert url in (team.first / name).read_text()
    done = team.init(team.first, "--git-hook")
    assert (done.code, f"Codex: the server at {team.server.url} responds" in done.out) == (0, True)
    assert team.server.url in (team.first / ".mcp.json").read_text()
    git(team.first, "worktree", "add", "-q", str(team.folder / "linked"))
    assert team.init(team.first, "--undo").code == 0
    assert not any((team.first / name).exists() for name in (*SERVER_FILES, ".git/holdlog/server"))


def test_server_that_does_not_take_the_token_is_reported_by_init(team: Team) -> None:
    team.token.write_text("wrong")
    done = team.init(team.first)
    assert (done.code, "responded with status 401" in done.out) == (1, True)


@pytest.mark.parametrize("url", ["x", "ftp://x", "http://", "http://u:p@x", "http://x:y", "http://x/?a", 'http://x"'])
def test_wrong_address_is_refused(tmp_path: Path, url: str) -> None:
    done = run("init", "--client", "cursor", "--yes", "--url", url, cwd=repository(tmp_path / "r"))
    assert (done.code, done.err.count("\n"), "--url: must be the address" in done.err) == (2, 1, True)


def test_token_file_must_be_private_and_outside_of_what_git_tracks(tmp_path: Path) -> None:
    root = repository(tmp_path / "r")
    words = ("init", "--client", "cursor", "--yes", "--url", "http://127.0.0.1:1", "--token-file")
    assert "cannot be read" in run(*words, "missing", cwd=root).err
    write(root / "token", "secret")
    os.chmod(root / "token", 0o644)
    assert "chmod 600" in run(*words, "token", cwd=root).err
    os.chmod(root / "token", 0o600)
    git(root, "add", "token")
    assert "git tracks" in run(*words, "token", cwd=root).err
    assert not (root / ".cursor").exists()


def test_agent_must_not_change_which_server_guards_it(team: Team) -> None:
    assert "only a person" in Session(team.first, "ann").denied("holdlog init --url http://elsewhere --yes")
