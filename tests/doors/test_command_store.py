"""Where the store is, whose it is, what commands do with one that they cannot read or write; `init` and `doctor`."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

import holdlog
from tests.support.hosts import Json, Session, git, held, repository, run_hook, store_of, write
from tests.support.programs import HOLDLOG, Done, environment, run

rest = pytest.mark.rest
ANN = ("--agent", "ann", "--session", "ann-1", "--lease-seconds", "600")
STRANGER = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, in whose environment commands find holdlog by its name."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(HOLDLOG).parent), os.defpath)))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


def claim(folder: Path, name: str = "a.py") -> Json:
    done = run("claim", name, "--json", *ANN, cwd=folder)
    assert done.code == 0, done
    result: Json = done.json
    return result


# --- where it is


@pytest.mark.usefixtures("home")
def test_worktrees_and_folders_of_a_repository_share_its_store(tmp_path):
    root = repository(tmp_path / "repo", has_store=False)
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    claim(root / "src")
    assert store_of(root).exists()
    assert [it["held_by"] for it in claim(tmp_path / "tree", "src/a.py")["also_claimed_in"]] == ["ann"]
    assert {*held(root)} == {"src/a.py", "file://tree/src/a.py"}
    assert git(root, "status", "--porcelain") == ""


@rest
@pytest.mark.usefixtures("home")
def test_folder_without_git_uses_the_nearest_holdlog_folder_or_the_state_home(tmp_path):
    project, plain = tmp_path / "project", tmp_path / "plain"
    for folder in (project / ".holdlog", project / "deep/er", plain):
        folder.mkdir(parents=True)
    claim(project / "deep/er")
    assert (project / ".holdlog/state.db").exists()
    assert (project / ".holdlog/.gitignore").read_text().split() == ["*"]
    claim(plain)
    assert list(plain.iterdir()) == []
    assert list((tmp_path / "state-home").rglob("*.db"))


@rest
def test_two_folders_without_a_repository_share_no_names(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        assert claim(tmp_path / name)["status"] == "claimed"


@rest
def test_no_store_is_created_in_the_home_or_the_root_folder(home):
    for folder in (home, Path("/")):
        run("claim", "a.py", *ANN, cwd=folder)
        assert not [it for it in (".holdlog", "state.db", ".git") if (folder / it).exists()]


@rest
@pytest.mark.usefixtures("home")
def test_option_comes_before_the_variable_and_both_before_the_repository(tmp_path):
    root = repository(tmp_path / "repo")
    one, two = str(tmp_path / "one.db"), str(tmp_path / "two.db")
    write_one = ("set", "n", "k", "1", "--expected-version", "0", "--updated-by", "ann")
    assert run(*write_one, cwd=root, env={"HOLDLOG_DB": one}).code == 0
    assert run(*write_one, "--db", two, cwd=root, env={"HOLDLOG_DB": one}).code == 0
    assert run("--db", two, "get", "n", "k", cwd=root).out == "1\n"
    with holdlog.StateStore(store_of(root)) as store:
        assert store.list_namespaces() == []


READS = ["get n k", "list", "history n k", "claims", "status", "status a.py", "log", "verify", "export", "blame n k"]


@pytest.mark.parametrize("lines", [READS[:1], pytest.param(READS[1:], marks=rest)], ids=["one", "others"])
def test_reading_creates_no_store_and_names_the_next_step(lines, command, db):
    for line in lines:
        done = command(*line.split())
        text = done.out + done.err
        assert (done.code, text.count("\n"), "no store" in text, "holdlog claim" in text) == (1, 1, True, True), line
        assert not db.exists()


@rest
@pytest.mark.usefixtures("home")
def test_new_repository_has_no_claims_and_learns_the_next_step(tmp_path):
    root = repository(tmp_path / "repo", has_store=False)
    for line in ("claims", "list", "log", "status"):
        done = run(*line.split(), cwd=root)
        assert (done.code, "holdlog claim" in done.out + done.err) == (0, True), line
        assert not store_of(root).parent.exists()


# --- whose it is


@rest
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_of_a_store_are_private_under_any_umask(tmp_path, umask):
    folder = tmp_path / "holdlog"
    folder.mkdir(0o700)
    command = [HOLDLOG, "claim", "custom://a", *ANN, "--db", str(folder / "state.db")]
    subprocess.run(command, env=environment(), cwd=tmp_path, umask=umask, check=True, capture_output=True)
    modes = {it.name: stat.S_IMODE(it.stat().st_mode) for it in folder.rglob("*")}
    assert modes["state.db"] == 0o600
    assert {*modes.values()} <= {0o600, 0o700}


def test_store_that_others_may_read_is_refused_with_the_commands_that_repair_it(command, db):
    holdlog.StateStore(db).close()
    db.chmod(0o644)
    done = command("set", "n", "k", "1", "--expected-version", "0", "--updated-by", "ann")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    repair = re.search(r"run: (.+)", done.err)
    assert repair is not None
    subprocess.run(repair[1], shell=True, check=True)
    assert command("set", "n", "k", "1", "--expected-version", "0", "--updated-by", "ann").code == 0


@rest
def test_link_next_to_a_store_and_writable_folder_are_refused(command, db, tmp_path):
    (tmp_path / "target").write_text("precious")
    write_one = ("set", "n", "k", "1", "--expected-version", "0", "--updated-by", "ann")
    db.symlink_to(tmp_path / "target")
    refused = command(*write_one)
    assert (refused.code, refused.err.count("\n"), (tmp_path / "target").read_text()) == (2, 1, "precious")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    refused = command(*write_one, "--db", tmp_path / "shared/state.db")
    assert (refused.code, "every user" in refused.err, list((tmp_path / "shared").iterdir())) == (2, True, [])


@rest
@pytest.mark.parametrize(
    "content", [b"dear diary\n" * 100, b"SQLite format 3\0" + b"x" * 5_000, None], ids=["text", "damaged", "folder"]
)
def test_file_that_is_no_store_is_refused_in_one_line_and_not_changed(command, db, content):
    if content is None:
        db.mkdir()
    else:
        db.write_bytes(content)
        db.chmod(0o600)
    for words in (("get", "n", "k"), ("claim", "custom://a", *ANN), ("serve",)):
        done = command(*words)
        assert (done.code in (1, 2), done.out, done.err.count("\n"), "Traceback" in done.err) == (True, "", 1, False), (
            done
        )
    assert content is None or db.read_bytes() == content


@as_root
@rest
@pytest.mark.usefixtures("home")
def test_store_that_cannot_be_read_is_never_taken_for_no_store(tmp_path):
    """Field case 28: a container that runs as root made the store."""
    root = repository(tmp_path / "repo", has_store=False)
    claim(root, "src/b.py")
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "other").mkdir()
    os.chown(tmp_path / "other", STRANGER, STRANGER)

    def as_stranger(*words: str, stdin: str = "") -> Done:
        who = ["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups"]
        env = environment({"HOME": str(tmp_path / "other"), "XDG_STATE_HOME": str(tmp_path / "other/state")})
        git_safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        done = subprocess.run(
            [*who, HOLDLOG, *words],
            input=stdin,
            env=env | git_safe,
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    if as_stranger("--version").code != 0:
        pytest.skip("another user cannot run holdlog here")
    for line in ("claims", "doctor", "check src/b.py --agent bob", "get n k", "wait src/b.py"):
        done = as_stranger(*line.split())
        assert done.code != 0 or "nothing was checked" in done.err, line
        assert not re.search("no store|--db|Traceback", done.out + done.err), done
    edit = {"session_id": "s", "cwd": str(root), "hook_event_name": "PreToolUse", "tool_name": "Write"}
    hook = as_stranger("hook", stdin=json.dumps({**edit, "tool_input": {"file_path": "src/b.py"}}))
    assert (hook.code, "deny" in hook.out, hook.err.endswith("; the edit is not guarded\n")) == (0, False, True)


SANDBOX = """\
mount --bind .git .git && mount -o remount,ro,bind .git || exit 99
touch .git/probe 2> /dev/null && exit 99
while read -r line; do
  eval "$HOLDLOG $line" > out 2> err < /dev/null
  printf '%s\\t%s\\t%s\\n' "$?" "$(tr '\\n' ' ' < out)" "$(tr '\\n' ' ' < err)"
done
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Any:
    """Runs commands in a repository whose .git is read-only, as Codex does."""
    root = repository(tmp_path / "repo", has_store=False)
    claim(root, "src/b.py")
    assert run("set", "n", "k", "1", "--expected-version", "0", "--updated-by", "ann", cwd=root).code == 0

    def call(*lines: str) -> list[list[str]]:
        for options in (["-m"], ["-rm"]):
            done = subprocess.run(
                ["unshare", *options, "bash", "-c", SANDBOX], input="\n".join(lines) + "\n", cwd=root,
                env=environment({"HOLDLOG": HOLDLOG}), capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                return [line.split("\t") for line in done.stdout.splitlines()]
        pytest.skip("needs the right to make a mount namespace")

    return call


@rest
def test_commands_that_read_work_in_a_store_that_cannot_be_written(sandbox):
    """Field case 17."""
    reads = ["claims", "status src/b.py", "get n k", "list n", "log", "history n k", "wait src/a.py --timeout 1"]
    writes = ["set n k 2 --version 1 --by ann", "claim src/a.py --agent bob", "check src/b.py --agent bob"]
    results = sandbox(*reads, *writes)
    for line, (code, _, error) in zip(reads, results, strict=False):
        assert (code, error) == ("0", ""), line
    assert "ann" in results[0][1]
    for code, out, error in results[-3:-1]:
        assert (code, out, "Read-only file system" in error, "--db" in error) == ("1", "", True, False)
    assert (results[-1][0], "held by ann" in results[-1][2]) == ("1", True)


# --- init and doctor


def init(root: Path, *words: str) -> Done:
    """It tries the server, which may be slow to answer on a busy machine."""
    done = run("init", "--yes", *words, cwd=root)
    assert (done.code == 0 or "did not respond within" in done.out, done.err) == (True, ""), done
    return done


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(it.relative_to(folder)): it.read_bytes()
        for it in folder.rglob("*")
        if it.is_file() and ".git" not in it.relative_to(folder).parts
    }


@rest
def test_init_sets_up_a_host_and_undo_removes_it(tmp_path, home):
    root = repository(tmp_path / "repo", has_store=False)
    words = ("--client", "claude-code")
    before, excluded = files(root), (root / ".git/info/exclude").read_bytes()
    assert "Claude Code: the server " in init(root, *words).out
    assert json.loads((root / ".mcp.json").read_text())["mcpServers"]["holdlog"] == {"command": "holdlog", "args": []}
    settings = json.loads((root / ".claude/settings.local.json").read_text())
    assert {*settings["hooks"]} >= {"PreToolUse", "PostToolUse", "SessionStart", "Stop", "SessionEnd", "SubagentStop"}
    assert store_of(root).exists()
    assert git(root, "status", "--porcelain") == ""
    assert init(root, *words).out.startswith("everything is set up already")
    init(root, *words, "--undo")
    assert (files(root), (root / ".git/info/exclude").read_bytes()) == (before, excluded)


@rest
@pytest.mark.usefixtures("home")
def test_hooks_that_init_writes_guard_the_project(tmp_path):
    root = repository(tmp_path / "repo", has_store=False)
    init(root, "--client", "claude-code")
    hooks = json.loads((root / ".claude/settings.local.json").read_text())["hooks"]["PreToolUse"]
    (handler,) = [it for group in hooks if "Edit" in group["matcher"] for it in group["hooks"]]
    words = [handler["command"], *handler.get("args", [])]
    edit = {
        "cwd": str(root),
        "hook_event_name": "PreToolUse",
        "tool_name": "Edit",
        "tool_input": {"file_path": "src/a.py"},
    }
    outputs = []
    for session in ("s-1", "s-2"):
        done = subprocess.run(
            " ".join(words), shell=True, input=json.dumps({**edit, "session_id": session}), cwd=root,
            env=environment(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        outputs.append(done.stdout)
    assert outputs[0] == ""
    assert "deny" in outputs[1]


CLIENTS = ("claude-code", "cursor", "codex", "opencode")


@pytest.mark.usefixtures("home")
def test_init_outside_of_a_repository_names_the_store_and_the_folder_that_shares_it(tmp_path):
    text = f"without a git repository, all that is below {tmp_path} shares one store,"
    assert text not in run("init", "--client", "cursor", "--print", cwd=repository(tmp_path / "repo")).out
    assert f"{text} {tmp_path}/.holdlog/state.db\n" in run("init", "--client", "cursor", "--print", cwd=tmp_path).out


@rest
@pytest.mark.parametrize("client", CLIENTS)
def test_undo_restores_what_was_there(client, tmp_path, home):
    root = repository(tmp_path / "repo", has_store=False)
    write(root / ".mcp.json", '{\n\t// mine\n\t"note": 1\n}\n')
    write(home / ".codex/config.toml", "# mine\nmodel = 'x'\n")
    before = files(tmp_path)
    init(root, "--client", client, "--git-hook")
    assert files(tmp_path) != before
    assert (root / ".git/hooks/pre-commit").exists()
    assert run("init", "--client", client, "--undo", "--yes", cwd=root).code == 0
    assert files(tmp_path) == before
    assert not (root / ".git/hooks/pre-commit").exists()
    assert run("init", "--client", client, "--undo", "--yes", cwd=root).out == "nothing that init added is left here\n"


def test_undo_in_a_folder_above_the_home_folder_keeps_what_is_user_wide(tmp_path, home):
    init(repository(home / "repo", has_store=False), "--client", "codex")
    entry = (home / ".codex/config.toml").read_text()
    init(tmp_path, "--client", "cursor")
    assert "Codex" not in run("doctor", cwd=tmp_path).out  # it is not set up in this folder
    init(tmp_path, "--undo")
    assert ((home / ".codex/config.toml").read_text(), (tmp_path / ".cursor").exists()) == (entry, False)


@rest
@pytest.mark.usefixtures("home")
def test_undo_keeps_empty_containers_and_what_a_person_added_since(tmp_path):
    """Field case 18."""
    root = repository(tmp_path / "repo", has_store=False)
    mine = {"Stop": [], "Notification": [{"hooks": [{"type": "command", "command": "beep"}]}]}
    mcp, settings = root / ".mcp.json", root / ".claude/settings.local.json"
    write(mcp, '{"mcpServers": {}, "note": 1}\n')
    write(settings, json.dumps({"hooks": mine}, indent=2))
    init(root, "--client", "claude-code")
    for path, change in ((mcp, {"note": 2}), (settings, {"env": {"A": "1"}})):
        content = json.loads(path.read_text())
        assert "holdlog" in json.dumps(content)
        path.write_text(json.dumps(content | change, indent=2))
    assert run("init", "--undo", "--yes", "--client", "claude-code", cwd=root).code == 0
    assert json.loads(mcp.read_text()) == {"mcpServers": {}, "note": 2}
    assert json.loads(settings.read_text()) == {"hooks": mine, "env": {"A": "1"}}


@rest
@pytest.mark.usefixtures("home")
def test_init_changes_nothing_that_it_may_not(tmp_path):
    root = repository(tmp_path / "repo", has_store=False)
    before = files(root)
    missing = run("init", "--client", "claude-code", cwd=root)
    assert (missing.code, missing.err.count("\n"), "--yes" in missing.err) == (2, 1, True)
    none = run("init", "--yes", cwd=root)
    assert (none.code, none.err.count("\n"), "holdlog init --client" in none.err) == (2, 1, True)
    assert files(root) == before
    write(root / ".mcp.json", '{"mcpServers": [')
    broken = run("init", "--client", "claude-code", "--yes", cwd=root)
    assert (broken.code, (root / ".mcp.json").read_text()) == (1, '{"mcpServers": [')
    assert broken.err.startswith("holdlog: .mcp.json is left as it is: ")
    write(root / ".mcp.json", "{}\n")
    git(root, "add", ".mcp.json")
    tracked = run("init", "--client", "claude-code", "--yes", cwd=root)
    assert (tracked.code, "tracked by git" in tracked.err, (root / ".mcp.json").read_text()) == (1, True, "{}\n")


@rest
@pytest.mark.usefixtures("home")
def test_doctor_reports_the_store_and_missing_hooks(tmp_path):
    root = repository(tmp_path / "repo")
    sound = run("doctor", cwd=root)
    assert (sound.code, str(store_of(root)) in sound.out) == (0, True)
    assert run("doctor", "--json", cwd=root).json
    init(root, "--client", "claude-code")
    assert run("doctor", cwd=root).code == 0
    write(root / ".claude/settings.local.json", "{}")
    missing = run("doctor", "--client", "claude-code", cwd=root)
    assert (missing.code, "holdlog init --client claude-code" in missing.out) == (1, True)
    store_of(root).chmod(0o644)
    open_to_others = run("doctor", cwd=root)
    assert (open_to_others.code != 0, "chmod" in open_to_others.out + open_to_others.err) == (True, True)


@rest
@pytest.mark.usefixtures("home")
def test_worktree_that_git_adds_after_init_is_guarded(tmp_path):
    root = repository(tmp_path / "repo", has_store=False)
    init(root, "--client", "claude-code")
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert "PreToolUse" in (tmp_path / "tree/.claude/settings.local.json").read_text()
    assert git(tmp_path / "tree", "status", "--porcelain") == ""
    assert Session(tmp_path / "tree", "s-1").edit("src/a.py") == ""
    assert run_hook(
        {"session_id": "s-2", "cwd": str(tmp_path / "tree"), "paths": ["src/a.py"]}, "pre-edit", cwd=root
    ).out
