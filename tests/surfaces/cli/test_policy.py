"""`holdlog.toml` in real repositories: hooks, the git guard, names of resources, servers and doctor obey HEAD."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.hooks.calls import parse
from holdlog.adapters.hooks.guarding import with_named
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.opening import perform_alone
from holdlog.adapters.policy import in_force
from holdlog.adapters.policy.in_force import policy_at
from tests.support.command_line import run_command
from tests.unit.operating_system.test_workspaces import git, repository, worktree

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"
POLICY = '[paths]\n"*.md" = "warn"\n"LICENSE" = "human"\n"*.lock" = "across-worktrees"\n'


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a policy and some files, in which the commands run."""
    for name in [it for it in os.environ if it.startswith(("GIT_", "HOLDLOG_", "CLAUDE_"))]:
        monkeypatch.delenv(name)
    path = repository(tmp_path / "repo")
    for name in ("a.py", "notes.md", "LICENSE", "uv.lock"):
        (path / name).write_text(f"{name}\n")
    commit_policy(path, POLICY)
    (path / ".git" / "holdlog").mkdir(0o700)
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def other(repo: Path) -> Iterator[StateStore]:
    """A live session of another agent on the repository's store."""
    with StateStore(repo / ".git" / "holdlog" / "state.db") as store:
        yield store


def commit_policy(repo: Path, text: str | None) -> None:
    if text is None:
        (repo / "holdlog.toml").unlink()
    else:
        (repo / "holdlog.toml").write_text(text)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "policy")


def hook(folder: Path, event: str, **given: Any) -> dict[str, Any]:
    """The output of a hook of a session without a server, in the plain form."""
    call = parse({"session_id": "s-1", "cwd": str(folder), **given}, event)
    assert call is not None
    call = with_named(call)
    store = folder / ".git" / "holdlog" / "state.db"
    in_force._known.clear()  # each hook is a process
    return perform_alone(call, store, HookFiles(store), None)


def edit(folder: Path, *paths: str) -> dict[str, Any]:
    return hook(folder, "pre-edit", paths=list(paths))


def test_hook_blocks_warns_or_leaves_it_to_a_person(repo: Path, other: StateStore) -> None:
    for name in ("a.py", "notes.md"):
        other.claim(name, agent="ann")
    assert edit(repo, "a.py")["decision"] == "deny"
    warned = edit(repo, "notes.md")
    assert warned.keys() == {"warning"}
    assert re.match(r"holdlog: notes\.md is held by ann .* holdlog\.toml:2 only warns", warned["warning"])
    denied = edit(repo, "LICENSE")
    assert denied["decision"] == "deny"
    assert denied["reason"].startswith("holdlog: only a person may change LICENSE (holdlog.toml:3).")
    assert edit(repo, "uv.lock") == {}
    assert {it.resource: it.held_by for it in other.board().claims}.keys() == {"a.py", "notes.md", "uv.lock"}


def test_hook_releases_what_it_claimed_before_a_human_file(repo: Path, other: StateStore) -> None:
    assert edit(repo, "a.py", "LICENSE")["decision"] == "deny"
    assert other.board().claims == []


def test_folder_with_a_human_file_is_neither_removed_nor_moved(repo: Path, other: StateStore) -> None:
    for folder in ("docs", "legal/old"):
        (repo / folder).mkdir(parents=True)
        (repo / folder / "a.md").write_text("")
    (repo / "legal" / "old" / "LICENSE").write_text("")
    for command in ("rm -rf docs legal", "mv legal/ new", "git mv legal docs/legal"):
        denied = hook(repo, "pre-edit", tool_name="Bash", tool_input={"command": command})
        assert denied["reason"].startswith("holdlog: only a person may change legal/old/LICENSE (holdlog.toml:3).")
    assert other.board().claims == []
    assert edit(repo, "docs") == {}
    assert [it.resource for it in other.board().claims] == ["docs/"]


def test_empty_folder_that_only_a_person_may_change_stays_in_its_folder(repo: Path) -> None:
    commit_policy(repo, '[paths]\n"/legal/old/" = "human"\n')
    (repo / "legal" / "old").mkdir(parents=True)
    assert edit(repo, "legal")["reason"].startswith("holdlog: only a person may change legal/old/ (holdlog.toml:2).")


@pytest.mark.parametrize("limit", ["MAX_EXAMINED", "EXAMINE_SECONDS"])
def test_folder_that_is_too_large_to_examine_is_allowed_with_a_warning(
    repo: Path, limit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repo / "docs").mkdir()
    (repo / "docs" / "a.md").write_text("")
    monkeypatch.setattr(in_force, limit, 0)
    warned = edit(repo, "docs")
    assert warned == {"warning": "holdlog: docs has too many files to look for those that only a person may change."}
    assert "not every file was examined" in run_command(capsys, "doctor", "docs")[1]
    commit_policy(repo, None)
    assert edit(repo, "docs") == {}


def test_folder_with_a_file_of_another_session_is_neither_removed_nor_moved(repo: Path, other: StateStore) -> None:
    (repo / "src" / "lib").mkdir(parents=True)
    other.claim("src/lib/a.py", agent="ann")
    denied = edit(repo, "a.py", "src")
    assert denied["decision"] == "deny"
    assert denied["reason"].startswith("holdlog: src/lib/a.py is held by ann since ")
    assert [it.resource for it in other.board().claims] == ["src/lib/a.py"]
    other.release("src/lib/a.py", agent="ann")
    assert edit(repo, "src") == {}
    assert other.claim("src/lib/a.py", agent="ann").status == "busy"


def test_agent_cannot_relax_its_guard_by_an_edit(repo: Path) -> None:
    assert edit(repo, "holdlog.toml")["reason"].startswith("holdlog: only a person may change holdlog.toml")
    (repo / "holdlog.toml").write_text("")
    assert edit(repo, "LICENSE")["decision"] == "deny"
    (repo / "holdlog.toml").unlink()
    assert edit(repo, "LICENSE")["decision"] == "deny"
    commit_policy_again = "[paths]\n"
    commit_policy(repo, commit_policy_again)
    assert edit(repo, "LICENSE") == {}


def test_policy_that_is_not_committed_is_not_in_force(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit_policy(repo, None)
    (repo / "holdlog.toml").write_text(POLICY)
    assert policy_at(repo).policy.rule("LICENSE").mode == "block"
    _, out, _ = run_command(capsys, "doctor", "LICENSE")
    assert "holdlog.toml is not committed, so it is not in force" in out


@pytest.mark.parametrize("kind", ["files", "packed", "detached"])
def test_commit_is_noticed_at_the_next_call(repo: Path, kind: str) -> None:
    assert policy_at(repo).policy.rule("a.py").mode == "block"
    if kind == "detached":
        git(repo, "checkout", "--quiet", "--detach")
    for mode in ("warn", "human"):
        commit_policy(repo, f'[paths]\n"a.py" = "{mode}"\n')
        if kind == "packed":
            git(repo, "pack-refs", "--all")
        assert policy_at(repo).policy.rule("a.py").mode == mode
    git(repo, "checkout", "--quiet", "HEAD~1")
    assert policy_at(repo).policy.rule("a.py").mode == "warn"


def test_git_is_asked_once_for_a_commit(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy_at(repo).policy.rule("LICENSE").mode == "human"
    monkeypatch.setenv("PATH", "")
    assert policy_at(repo).policy.rule("LICENSE").mode == "human"


def test_without_git_the_program_the_edit_is_allowed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert policy_at(repo).problem == "holdlog.toml: is not in force: git failed"
    assert edit(repo, "LICENSE") == {}


def test_missing_git_is_no_problem_where_there_is_no_policy(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_policy(repo, None)
    monkeypatch.setenv("PATH", "")
    assert policy_at(repo).problem is None


def test_slow_git_is_not_waited_for(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent))
    monkeypatch.setattr(in_force, "GIT_SECONDS", 0.2)
    assert policy_at(repo).problem == "holdlog.toml: is not in force: git took too long"


def test_variables_of_git_do_not_name_another_repository(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = repository(tmp_path / "empty")
    monkeypatch.setenv("GIT_DIR", str(empty / ".git"))
    assert policy_at(repo).policy.rule("LICENSE").mode == "human"


def test_folder_without_git_obeys_its_file(tmp_path: Path) -> None:
    assert policy_at(tmp_path).content is None
    (tmp_path / "holdlog.toml").write_text(POLICY)
    assert policy_at(tmp_path).policy.rule("LICENSE").mode == "human"


def test_wrong_policy_leaves_the_defaults_and_is_reported(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_policy(repo, '[paths]\n"LICENSE" = "humans"\n')
    problem = "holdlog.toml:2: paths.LICENSE: must be one of block, warn, human, across-worktrees"
    assert edit(repo, "LICENSE") == {}
    assert "holdlog.toml:2 is not in force, so the defaults apply" in hook(repo, "start")["context"]
    code, _, err = run_command(capsys, "check", "a.py")
    assert (code, f"warning: {problem}" in err) == (0, True)
    code, out, _ = run_command(capsys, "doctor", "LICENSE")
    assert (code, problem in out) == (1, True)
    _, out, _ = run_command(capsys, "doctor")
    assert problem in out
    other.claim("a.py", agent="ann")
    assert edit(repo, "a.py")["decision"] == "deny"


WRONG = '[paths]\n"LICENSE" = "humans"\n'
PROBLEM = "holdlog.toml:2: paths.LICENSE: must be one of block, warn, human, across-worktrees, or a list of them"


@pytest.mark.parametrize(
    ("committed", "edited", "code", "line"),
    [
        (POLICY, WRONG, 1, f"at commit COMMIT is in force; the uncommitted file is wrong: {PROBLEM}"),
        (None, WRONG, 1, f"is not committed, so it is not in force; the uncommitted file is wrong: {PROBLEM}"),
        (WRONG, POLICY, 1, f"{PROBLEM}; the defaults apply; the uncommitted change is valid: commit it"),
        (WRONG, "x", 1, f"{PROBLEM}; the defaults apply; the uncommitted file is wrong: holdlog.toml:1: is not TOML"),
        (WRONG, WRONG, 1, f"{PROBLEM}; the defaults apply\n"),
        (POLICY, "", 0, "is in force; changes that are not committed are not in force"),
    ],
)
def test_wrong_policy_is_reported_before_it_is_committed(
    repo: Path, capsys: pytest.CaptureFixture[str], committed: str | None, edited: str, code: int, line: str
) -> None:
    if committed != POLICY:
        commit_policy(repo, committed)
    (repo / "holdlog.toml").write_text(edited)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    found = run_command(capsys, "doctor", "LICENSE")
    assert (found[0], line in found[1].replace(commit, "COMMIT")) == (code, True), found
    _, out, _ = run_command(capsys, "doctor")
    assert line in out.replace(commit, "COMMIT")
    _, out, _ = run_command(capsys, "doctor", "LICENSE", "--json")
    problem = json.loads(out)["policy"]["uncommitted_problem"]
    if "uncommitted file is wrong" in line:
        assert problem in found[1]
    else:
        assert problem is None


def test_check_warns_of_a_wrong_policy_before_it_is_committed(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repo / "holdlog.toml").write_text(WRONG)
    code, _, err = run_command(capsys, "check", "a.py")
    assert (code, f"warning: {PROBLEM}; fix it before you commit it" in err) == (0, True)


def test_doctor_reports_in_one_line_what_is_not_a_file_of_a_workspace(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    not_a_file = "holdlog: PATH: custom://merge is not a file; rules of holdlog.toml apply to files only\n"
    assert run_command(capsys, "doctor", "custom://merge") == (2, "", not_a_file)
    for path in ("../handbook/x", str(repo.parent / "handbook")):
        code, out, err = run_command(capsys, "doctor", path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"holdlog: PATH: {path} is in no workspace here, so no rule of holdlog.toml applies; run")
    for words in (["notes.md"], ["--client", "codex"]):
        assert run_command(capsys, "doctor", "--db", "x.db", *words)[2].startswith("holdlog: --db: cannot be combined")
    _, out, _ = run_command(capsys, "doctor", "file://main/notes.md", "--json")
    assert json.loads(out)["path"] == "notes.md"


def test_check_blocks_agents_and_lets_people_change_human_files(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "LICENSE").write_text("changed\n")
    (repo / "notes.md").write_text("changed\n")
    git(repo, "add", "--all")
    other.claim("notes.md", agent="bob")
    code, _, err = run_command(capsys, "check", "--staged", "--agent", "claude-1")
    assert code == 1
    remedy = "describe the change that you need to your user, and leave it out: git restore --staged LICENSE"
    assert f"LICENSE: only a person may change it (holdlog.toml:3); {remedy}\n" in err
    assert "warning: notes.md: held by bob" in err
    remedy = (
        "if you are a person, set HOLDLOG_AGENT to your user name; if not, leave it out: git restore --staged LICENSE"
    )
    code, _, err = run_command(capsys, "check", "--staged")
    assert (code, f"warning: LICENSE: only a person may change it (holdlog.toml:3); {remedy}\n" in err) == (0, True)
    code, _, err = run_command(capsys, "check", "--staged", "--strict")
    assert (code, f"holdlog: LICENSE: only a person may change it (holdlog.toml:3); {remedy}\n" in err) == (1, True)
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    code, _, err = run_command(capsys, "check", "--staged", "--agent", "ann")
    assert (code, "LICENSE" in err) == (0, False)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")
    assert run_command(capsys, "check", "--staged", "--agent", "ann")[0] == 1


def test_check_needs_no_store_to_protect_human_files(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "check", "LICENSE", "--agent", "claude-1", "--json")
    found = json.loads(out)
    assert (code, found["status"]) == (1, "human")
    assert found["human"] == [{"path": "LICENSE", "blocks": True, "caller": "agent", "rule": "holdlog.toml:3"}]
    _, _, err = run_command(capsys, "check", "LICENSE", "--agent", "claude-1")
    assert "(holdlog.toml:3); describe the change that you need to your user\n" in err


def test_worktrees_share_the_claims_of_a_lock_file(
    repo: Path, other: StateStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = worktree(repo, "../linked")
    for name in ("uv.lock", "a.py"):
        assert run_command(capsys, "claim", name, "--agent", "ann", "--session", "s-9")[0] == 0
    monkeypatch.chdir(linked)
    assert run_command(capsys, "claim", "a.py", "--agent", "bob")[0] == 0
    code, _, err = run_command(capsys, "claim", "uv.lock", "--agent", "bob")
    assert (code, "ann" in err) == (1, True)
    call = parse({"session_id": "s-2", "cwd": str(linked), "paths": ["uv.lock"]}, "pre-edit")
    assert call is not None
    store = repo / ".git" / "holdlog" / "state.db"
    assert perform_alone(call, store, HookFiles(store), None)["decision"] == "deny"
    code, out, _ = run_command(capsys, "check", "uv.lock", "--agent", "bob", "--json")
    assert (code, [it["resource"] for it in json.loads(out)["files"]]) == (1, ["file://main/uv.lock"])
    _, out, _ = run_command(capsys, "doctor", "uv.lock", "--json")
    facts = json.loads(out)
    assert (facts["workspace"], facts["resource"]) == ("linked", "file://main/uv.lock")
    assert facts["across_worktrees"] is True


def test_each_worktree_obeys_its_own_commit(repo: Path) -> None:
    linked = worktree(repo, "../linked")
    commit_policy(linked, '[paths]\n"a.py" = "human"\n')
    assert policy_at(linked).policy.rule("a.py").mode == "human"
    assert policy_at(repo).policy.rule("a.py").mode == "block"


def test_doctor_shows_rule_line_commit_and_what_is_not_committed(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run_command(capsys, "doctor", "notes.md")
    assert 'rule       warn: an edit is allowed, with a warning while another session holds it ("*.md" in' in out
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    assert f"holdlog.toml at commit {commit} is in force\n" in out
    (repo / "holdlog.toml").write_text("")
    _, out, _ = run_command(capsys, "doctor", "notes.md", "--json")
    assert json.loads(out) == {
        "rule": "warn",
        "across_worktrees": False,
        "glob": "*.md",
        "line": 2,
        "because_of": None,
        "path": "notes.md",
        "workspace": "main",
        "resource": "notes.md",
        "policy": {
            "file": "holdlog.toml",
            "commit": commit,
            "exists": True,
            "uncommitted": True,
            "problem": None,
            "uncommitted_problem": None,
        },
    }


def test_doctor_names_the_file_for_which_a_folder_is_kept(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit_policy(repo, '[paths]\n"legal/**" = "across-worktrees"\n"LICENSE" = "human"\n')
    (repo / "legal").mkdir()
    (repo / "legal" / "LICENSE").write_text("")
    _, out, _ = run_command(capsys, "doctor", "legal")
    assert 'rule       human: only a person may change legal/LICENSE ("LICENSE" in holdlog.toml:3)' in out
    assert "worktrees  all worktrees share one claim" in out
    _, out, _ = run_command(capsys, "doctor", "legal", "--json")
    facts = json.loads(out)
    assert [facts[it] for it in ("rule", "line", "because_of", "path")] == ["human", 3, "legal/LICENSE", "legal/"]


def test_doctor_examines_the_root_and_the_folder_in_which_it_runs(
    repo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_policy(repo, '[paths]\n"LICENSE" = "human"\n')
    (repo / "legal").mkdir()
    code, out, _ = run_command(capsys, "doctor", ".")
    assert (code, out.splitlines()[0]) == (0, "path       . in workspace main, its root, which cannot be claimed")
    assert "rule       human: only a person may change " in out
    facts = json.loads(run_command(capsys, "doctor", str(repo), "--json")[1])
    assert [facts[it] for it in ("rule", "path", "resource")] == ["human", ".", None]
    assert facts["because_of"] in ("holdlog.toml", "LICENSE")
    monkeypatch.chdir(repo / "legal")
    for path, name in ((".", "legal/"), ("a.py", "legal/a.py")):
        out = run_command(capsys, "doctor", path)[1]
        assert out.startswith(f"path       {name} in workspace main; resource file://main/{name}\n")
    assert run_command(capsys, "doctor", "..")[1].startswith("path       . in workspace main, its root")


def test_lease_of_the_policy_holds_unless_an_option_is_given(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit_policy(repo, "[lease]\nseconds = 1200\n")
    _, out, _ = run_command(capsys, "claim", "a.py", "--agent", "ann", "--json")
    assert json.loads(out)["expires_in_seconds"] == pytest.approx(1200, abs=60)
    _, out, _ = run_command(capsys, "claim", "b.md", "--agent", "ann", "--lease", "60", "--json")
    assert json.loads(out)["expires_in_seconds"] <= 60


def serve(repo: Path, *options: str) -> tuple[set[str], str]:
    """The tools of a server over stdio, and what it wrote to standard error."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    sent = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **it}) + "\n" for it in sent)
    command = [sys.executable, "-m", "holdlog", "serve", *options]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=repo, timeout=60, check=True)
    listed = next(it for it in map(json.loads, done.stdout.splitlines()) if it.get("id") == 2)
    return {tool["name"] for tool in listed["result"]["tools"]}, done.stderr


@pytest.mark.check
def test_server_offers_the_tools_of_the_policy_unless_an_option_is_given(repo: Path) -> None:
    assert "holdlog_set" not in serve(repo)[0]
    commit_policy(repo, 'tools = ["claims", "state"]\n')
    assert {"holdlog_set", "holdlog_claim"} <= serve(repo)[0]
    assert "holdlog_set" not in serve(repo, "--tools", "claims")[0]
    commit_policy(repo, 'tools = ["claim"]\n')
    tools, errors = serve(repo)
    assert "holdlog_claim" in tools
    lines = [line for line in errors.splitlines() if "holdlog.toml" in line]
    assert len(lines) == 1
    assert "holdlog.toml:1: tools: must be a list of claims, state, " in lines[0]


def test_workspaces_of_the_policy_are_those_whose_folders_exist(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "handbook").mkdir()
    commit_policy(repo, '[workspaces]\nhandbook = "../handbook"\nmissing = "../missing"\n')
    _, out, _ = run_command(capsys, "claim", str(tmp_path / "handbook" / "a.md"), "--agent", "ann", "--json")
    assert json.loads(out)["resource"] == "file://handbook/a.md"


@pytest.mark.parametrize(
    ("mode", "expected"), [("off", set()), ("warn", {"warning"}), ("deny", {"decision", "reason"})]
)
def test_stale_reads_follow_the_policy(repo: Path, mode: str, expected: set[str]) -> None:
    commit_policy(repo, f'stale-reads = "{mode}"\n')
    store = repo / ".git" / "holdlog" / "state.db"

    def act(session: str, event: str) -> dict[str, Any]:
        call = parse({"session_id": session, "cwd": str(repo), "paths": ["a.py"]}, event)
        assert call is not None
        return perform_alone(call, store, HookFiles(store), None)

    act("s-1", "pre-edit")
    act("s-1", "post-edit")
    act("s-1", "session-end")
    assert act("s-2", "pre-edit") == {}
    (repo / "a.py").write_text("changed\n")
    act("s-2", "post-edit")
    act("s-2", "session-end")
    assert act("s-1", "pre-edit").keys() == expected
    assert act("s-1", "pre-edit") == {}


def test_example_of_the_page_works_as_described() -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    policy = in_force.parse_policy(example[1].encode())
    modes = {path: policy.rule(path).mode for path in ("docs/a.md", "LICENSE", ".github/workflows/ci.yml", "src/a.py")}
    assert modes == {"docs/a.md": "warn", "LICENSE": "human", ".github/workflows/ci.yml": "human", "src/a.py": "block"}
    assert [
        it for it in ("uv.lock", "web/package.json", "migrations/1.sql", "migrations/") if not policy.rule(it)[1]
    ] == []
    assert policy.stale_reads == "deny"
    assert policy.tools == ("claims", "state")
    assert policy.settings == {"lease": 600.0}
    assert policy.workspaces == {"handbook": "../handbook"}
