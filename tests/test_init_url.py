"""`holdlog init --url`: hosts with clones of one repository, whose hooks ask a server what the others hold."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.hosts import Json, Session, git, held, is_denied, repository, run_hook
from tests.support.programs import Done, HttpServer, environment, run

pytestmark = [pytest.mark.rest, pytest.mark.xdist_group("test_init_url")]
CLIENTS = ("claude-code", "cursor", "codex", "opencode")
SERVER_FILES = (".mcp.json", ".cursor/mcp.json", "opencode.json")


class Shared(NamedTuple):
    """A server with tokens, for all tests of the module."""

    server: HttpServer
    token: str
    clones: Path
    """Two of a repository, to copy."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    words = ("token", "create", "--name", "team", "--allow", "claim:*", "--allow", "read:*")
    token = run(*words, "--db", folder / "state.db").out.strip()
    first = repository(folder / "clones" / "first")
    git(first.parent, "clone", "-q", str(first), "second")
    server = HttpServer(folder / "state.db", cwd=folder)
    for root in (first, first.parent / "second"):
        words = ("init", "--yes", "--client", "cursor", "--url", server.url)
        assert run(*words, cwd=root, env={"HOLDLOG_TOKEN": token}).code == 0
    yield Shared(server, token, first.parent)
    server.close()


class Team:
    """Two clones of a repository, whose hosts share a server."""

    def __init__(self, folder: Path, shared: Shared) -> None:
        self.folder, self.server, self.token = folder, shared.server, shared.token
        self.first, self.second = folder / "first", folder / "second"
        shutil.copytree(shared.clones, folder, dirs_exist_ok=True)

    def init(self, *words: str, token: str | None = None) -> Done:
        """Set up all hosts in the first clone."""
        clients = [word for name in CLIENTS for word in ("--client", name)]
        env = {"HOME": str(self.folder / "home"), "HOLDLOG_TOKEN": token or self.token}
        (self.folder / "home").mkdir(exist_ok=True)
        return run("init", "--yes", *clients, *words, cwd=self.first, env=env)

    def ask(self, method: str, path: str, **options: Any) -> Json:
        headers = {"authorization": f"Bearer {self.token}"}
        response: Json = self.server.request(method, path, headers=headers, **options).json()
        return response

    def held(self) -> dict[str, str]:
        """Who holds what on the server."""
        return {it["resource"]: it["held_by"] for it in self.ask("GET", "/v1/claims")["claims"]}


@pytest.fixture
def team(tmp_path: Path, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    monkeypatch.setenv("HOLDLOG_TOKEN", shared.token)
    team = Team(tmp_path, shared)
    yield team
    for name in ("ann", "ben", "bob"):
        team.ask("POST", "/hook?event=session-end", json={"session_id": name})
    assert team.held() == {}


class Member(Session):
    """A conversation whose host has the token in its environment."""

    def run(self, event: str, **given: Any) -> Done:
        env = {"HOLDLOG_TOKEN": os.environ["HOLDLOG_TOKEN"]}
        return run_hook({**self.facts, "hook_event_name": event, **given}, cwd=self.folder, env=env)

    def agent(self, name: str) -> "Member":
        return Member(self.folder, self.facts["session_id"], agent_id=name)


def test_edit_of_a_file_that_an_agent_on_another_host_holds_is_denied(team: Team) -> None:
    ann, bob = Member(team.first, "ann"), Member(team.second, "bob")
    ann.change("src/a.py", "x = 2\n")
    (name,) = held(team.first).values()
    assert team.held() == {"src/a.py": name}
    denial = bob.edit("src/a.py")
    assert f"src/a.py is held by {name} since" in denial
    assert re.search(r'call claim\(resource="src/a.py", agent="claude-\w+", wait_seconds=50, receipt="bob"\)', denial)
    assert held(team.second) == {}, "a denied call claims nothing on its own host"
    assert bob.edit("src/b.py") == ""


def test_denial_of_a_file_with_a_long_name_denies(team: Team) -> None:
    path = "/".join(["🦊" * 60] * 8)
    assert Member(team.first, "ann").edit(path) == ""
    assert "is held by" in Member(team.second, "bob").edit(path)


def test_agent_learns_that_a_person_took_its_claim_on_the_server(team: Team, shared: Shared) -> None:
    ann = Member(team.first, "ann")
    assert ann.edit("src/a.py") == ""
    words = ("--force", "--reason", "urgent", "--db", shared.clones.parent / "state.db")
    done = run("release", "src/a.py", *words, cwd=team.first)
    assert done.code == 0, done
    assert "a person took src/a.py" in ann.pre("src/b.py").get("additionalContext", "")


def test_denial_by_the_server_takes_back_all_that_the_call_claimed(team: Team) -> None:
    assert Member(team.first, "ann").edit("src/a.py") == ""
    patch = (
        "*** Begin Patch\n*** Update File: own.py\n@@\n-x = 1\n+x = 2\n*** Update File: src/a.py\n@@\n-x = 1\n+x = 2\n"
    )
    bob = Member(team.second, "bob")
    output = bob.hook("PreToolUse", tool_name="apply_patch", tool_input={"input": f"{patch}*** End Patch\n"})
    assert is_denied(output)
    assert (list(team.held()), held(team.second)) == (["src/a.py"], {})


def test_end_of_a_turn_releases_what_was_not_changed_and_a_commit_the_rest(team: Team) -> None:
    ann = Member(team.first, "ann")
    ann.change("src/a.py", "x = 2\n")
    assert ann.edit("src/b.py") == ""
    ann.hook("Stop")
    assert list(team.held()) == ["src/a.py"]
    git(team.first, "commit", "-qam", "second")
    ann.hook("Stop")
    assert team.held() == {}
    assert Member(team.second, "bob").edit("src/a.py") == ""


@pytest.mark.parametrize("reason", ["other", "clear"])
def test_end_of_a_conversation_releases_all_that_it_holds_on_the_server(team: Team, reason: str) -> None:
    ann = Member(team.first, "ann")
    ann.change("src/a.py", "x = 2\n")
    assert ann.agent("task").edit("src/b.py") == ""
    assert len(team.held()) == 2
    ann.hook("SessionEnd", reason=reason)
    assert team.held() == {}


def test_end_of_a_subagent_releases_only_what_it_holds(team: Team) -> None:
    ann = Member(team.first, "ann")
    assert ann.edit("src/a.py") == ""
    assert ann.agent("task").edit("src/b.py") == ""
    ann.agent("task").hook("SubagentStop")
    assert list(team.held()) == ["src/a.py"]


def test_end_of_a_subagent_under_the_name_of_its_agent_releases_nothing_on_the_server(team: Team) -> None:
    ann = Member(team.first, "ann")
    assert ann.edit("src/a.py") == ""
    named = {"resource": "custom://x", "agent": team.held()["src/a.py"]}
    ann.agent("task").hook("PreToolUse", tool_name="mcp__holdlog__claim", tool_input=named)
    ann.agent("task").hook("SubagentStop")
    assert list(team.held()) == ["src/a.py"]


def test_agent_with_its_receipt_holds_the_same_claims_over_mcp_and_hooks(team: Team) -> None:
    ann = Member(team.first, "ann")
    assert "your receipt ann" in ann.hook("SessionStart", source="startup")["additionalContext"]
    assert ann.edit("src/a.py") == ""
    name = team.held()["src/a.py"]
    again = team.ask("POST", "/v1/claims/src%2Fa.py", json={"agent": name, "receipt": "ann"})
    assert again["status"] == "already_claimed"
    claimed = team.ask("POST", "/v1/claims/own.py", json={"agent": name, "receipt": "ann"})
    assert claimed["status"] == "claimed"
    assert ann.edit("own.py") == ""
    assert "own.py is held by" in Member(team.second, "bob").edit("own.py")


def test_agent_that_calls_itself_by_another_name_is_not_kept_out_by_its_former_one(team: Team) -> None:
    ann = Member(team.first, "ann")
    ann.change("src/a.py", "x = 2\n")
    ann.hook("PreToolUse", tool_name="mcp__holdlog__status", tool_input={"resource": "x", "agent": "ann"})
    ann.hook("PreToolUse", tool_name="mcp__holdlog__claim", tool_input={"resource": "custom://x", "agent": "ann"})
    assert ann.edit("src/a.py") == ""
    assert team.held() == {"src/a.py": "ann"}


def test_file_of_a_linked_worktree_is_a_copy_that_the_server_does_not_know(team: Team) -> None:
    git(team.first, "worktree", "add", "-q", str(team.folder / "linked"))
    assert Member(team.folder / "linked", "ann").edit("src/a.py") == ""
    assert team.held() == {}
    assert Member(team.second, "bob").edit("src/a.py") == ""
    assert list(team.held()) == ["src/a.py"]


def test_git_commands_are_judged_by_the_store_of_their_own_host(team: Team) -> None:
    ann, ben, bob = (Member(root, name) for root, name in zip(
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
    db = team.folder / "own" / "state.db"
    db.parent.mkdir()
    server = HttpServer(db, cwd=db.parent)
    for root in (team.first, team.second):
        (root / ".git/holdlog/server").write_text(f"{server.url}\n")
    ann, bob = Member(team.first, "ann"), Member(team.second, "bob")
    assert ann.edit("src/a.py") == ""
    server.process.kill()
    server.process.wait()
    for event in ("PreToolUse", "SessionStart"):
        output, problem = warn(bob, event)
        assert "not guarded against agents on other hosts" in output["additionalContext"]
        assert f"{server.url} cannot be reached (Connection refused)" in output["additionalContext"]
        assert problem.count("\n") == 1
    assert list(held(team.second)) == ["src/a.py"]
    assert "src/a.py is held by" in Member(team.second, "ben").edit("src/a.py"), "the store of the host guards on"
    server = HttpServer(db, "--port", server.url.rpartition(":")[2], cwd=db.parent)
    assert "src/a.py is held by" in bob.edit("src/a.py")
    server.close()


@pytest.mark.parametrize(
    ("token", "why"),
    [("", "status 401; HOLDLOG_TOKEN has no valid token; this call"), ("wrong", "status 401"), ("a\tb\rc", "reached")],
)
def test_agent_is_warned_of_a_token_that_is_missing_or_refused(team: Team, token: str, why: str) -> None:
    output, problem = warn(Member(team.first, "ann"), HOLDLOG_TOKEN=token)
    assert why in output["additionalContext"]
    assert not token or token[:3] not in output["additionalContext"].replace("reached", "") + problem


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (None, "cannot be reached (TimeoutError)"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "responded with status 503"),
        (
            b"HTTP/1.1 307 Moved\r\nlocation: /\r\ncontent-length: 0\r\n\r\n",
            "responded with status 307",
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "is not a server of holdlog"),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"status":"ok"}', "is not a server of holdlog"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached"),
    ],
)
def test_agent_is_warned_of_a_server_that_fails_or_is_slow(team: Team, response: bytes | None, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
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
    done = team.init("--url", f"{team.server.url}/mcp/")
    assert (done.code, f"Codex: the server at {team.server.url} responds" in done.out) == (0, True)
    variables = ("${HOLDLOG_TOKEN}", "${env:HOLDLOG_TOKEN}", "{env:HOLDLOG_TOKEN}")
    for name, variable in zip(SERVER_FILES, variables, strict=True):
        servers = json.loads((team.first / name).read_text())
        entry = servers.get("mcpServers", servers.get("mcp"))["holdlog"]
        assert (entry["url"], entry["headers"]) == (f"{team.server.url}/mcp", {"Authorization": f"Bearer {variable}"})
    codex = (team.folder / "home/.codex/config.toml").read_text()
    assert f'url = "{team.server.url}/mcp"\nbearer_token_env_var = "HOLDLOG_TOKEN"\n' in codex
    files = [it for it in team.folder.rglob("*") if it.is_file()]
    assert not any(team.token in it.read_text(errors="replace") for it in files)
    assert git(team.first, "status", "--porcelain") == ""


def test_address_replaces_a_started_server_is_kept_and_is_undone(team: Team) -> None:
    team.first = repository(team.folder / "new")
    files = [team.first / name for name in (*SERVER_FILES, ".git/holdlog/server")]
    team.init()
    assert json.loads(files[0].read_text())["mcpServers"]["holdlog"]["args"] == []
    for words in (["--url", "http://127.0.0.1:1"], ["--url", team.server.url], []):
        team.init(*words)
        assert [(words or [team.server.url])[-1] in file.read_text() for file in files] == [True] * 4
    team.init("--undo")
    assert not any(map(Path.exists, files))


def test_token_file_must_be_private_and_serves_hooks_without_the_variable(team: Team) -> None:
    file = team.folder / "token"
    words = ("--url", team.server.url, "--token-file", str(file))
    assert "No such file" in team.init(*words).err
    file.write_text(f"{team.token}\n")
    file.chmod(0o644)
    assert f"other users can read it; run: chmod 600 {file}" in team.init(*words).err
    file.chmod(0o600)
    assert team.init(*words).code == 0
    assert Session(team.first, "ann").edit("src/a.py") == ""
    assert list(team.held()) == ["src/a.py"]
    file.unlink()
    assert "HOLDLOG_TOKEN_FILE: cannot be read" in warn(Session(team.first, "ann"))[0]["additionalContext"]


def test_init_without_a_known_host_names_the_address_of_the_server(tmp_path: Path) -> None:
    root = repository(tmp_path / "root")
    done = run("init", "--yes", "--url", "https://h.example/", cwd=root, env={"HOME": str(tmp_path)})
    assert (done.code, done.err.endswith(" name this server of MCP in its configuration: https://h.example/mcp\n")) == (
        2,
        True,
    )


def test_doctor_names_the_server_that_hooks_ask_and_says_whether_it_responds(team: Team) -> None:
    for token, code, text in ((team.token, 0, "responds\n"), ("wrong", 1, "responded with status 401; ")):
        done = run("doctor", cwd=team.first, env={"HOLDLOG_TOKEN": token, "HOME": str(team.folder)})
        assert (done.code, f"the server at {team.server.url} {text}" in done.out) == (code, True), done


def test_server_that_does_not_take_the_token_is_reported_by_init(team: Team) -> None:
    done = team.init("--url", team.server.url, token="wrong")
    assert (done.code, "responded with status 401" in done.out) == (1, True)


def test_init_says_what_a_token_lacks(team: Team, shared: Shared) -> None:
    words = ("token", "create", "--name", "reader", "--allow", "read:*", "--db", shared.clones.parent / "state.db")
    done = team.init("--url", team.server.url, token=run(*words).out.strip())
    assert (done.code, "status 403; the token in HOLDLOG_TOKEN needs claim:* and no space" in done.out) == (1, True), (
        done
    )


@pytest.mark.parametrize("url", ["x", "ftp://x", "http://", "http://u:p@x", "http://x:y", "http://x/?a", 'http://x"'])
def test_wrong_address_is_refused(team: Team, url: str) -> None:
    done = team.init("--url", url)
    assert (done.code, done.err.count("\n"), "--url: must be the address" in done.err) == (2, 1, True)


def test_agent_must_not_change_which_server_guards_it(team: Team) -> None:
    assert "only a person" in Member(team.first, "ann").denied("holdlog init --url http://elsewhere --yes")
