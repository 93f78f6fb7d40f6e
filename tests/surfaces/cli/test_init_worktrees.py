"""`holdlog init` and `holdlog doctor` in a repository with several worktrees, made by real git."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.cli.init import chosen_hosts, project_folder
from holdlog.adapters.cli.setup.doctor import project_findings, worktree_findings
from holdlog.adapters.cli.setup.plan import Choices, plan
from holdlog.adapters.cli.setup.worktrees import worktrees_of
from holdlog.domain.refusals import InvalidError
from tests.support.command_line import run_command
from tests.support.set_up import here, names, set_up
from tests.unit.operating_system.test_workspaces import bare, git, repository, worktree

SETTINGS = ".claude/settings.local.json"
POST_CHECKOUT = ".git/hooks/post-checkout"


@pytest.mark.check
def test_init_sets_up_every_worktree_and_undo_removes_all(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, nested = worktree(project, "../linked"), worktree(project, ".worktrees/nested")
    (project / ".claude").mkdir()
    (linked / "sub").mkdir()
    monkeypatch.chdir(linked / "sub")
    code, out, err = run_command(capsys, "init", "--yes")
    assert (code, err) == (0, "")
    assert f"  runs hooks only from the folder in which it starts: start it in {linked}, or " in out
    assert f"in the worktree {nested}: create .mcp.json, create {SETTINGS}\n" in out
    for root in (project, linked, nested):
        assert json.loads((root / SETTINGS).read_text())["hooks"]["PreToolUse"]
        assert subprocess.check_output(["git", "status", "--porcelain", "--", ".claude", ".mcp.json"], cwd=root) == b""
    assert set_up("claude-code") == []
    later = worktree(project, "../later")
    assert names(later) == names(linked) == [SETTINGS, ".mcp.json"]
    (nested / "sub").mkdir()
    monkeypatch.chdir(nested / "sub")
    assert run_command(capsys, "init", "--undo", "--yes")[0] == 0
    assert [names(root) for root in (linked, nested, later)] == [[], [], []]
    assert [it for it in project.iterdir() if it.name not in (".git", ".worktrees")] == [project / ".claude"]
    assert not (linked / ".claude").exists()
    assert not (project / POST_CHECKOUT).exists()


def test_hook_sets_up_a_new_worktree_as_the_others_are(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worktree(project, "../linked")
    set_up("claude-code", "cursor")
    monkeypatch.setenv("GIT_INDEX_FILE", "index")  # as within a hook of git
    new = worktree(project, "../new one")
    assert names(new) == [SETTINGS, ".cursor/hooks.json", ".cursor/mcp.json", ".mcp.json"]
    set_up("claude-code", "cursor", undo=True)
    assert [it.name for it in new.iterdir()] == [".git"]


def test_missing_holdlog_never_fails_a_checkout(project: Path) -> None:
    set_up("claude-code")
    hook = project / POST_CHECKOUT
    command = shutil.which("holdlog") or ""
    hook.write_text(hook.read_text().replace(command, shlex.quote("/gone with blanks/holdlog")))
    done = subprocess.run(["git", "worktree", "add", "-q", "../new"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "holdlog: this worktree has no hooks of holdlog; run in it: holdlog init\n"
    assert names(project.parent / "new") == []
    assert [it.path for it in set_up("claude-code")][-1] == hook
    assert command in hook.read_text()


def test_host_is_found_in_the_main_worktree(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = worktree(project, "../linked")
    (project / ".cursor").mkdir()
    monkeypatch.chdir(linked)
    assert chosen_hosts(None, here(), False, worktrees_of(linked)[0][1:]) == ["cursor"]
    with pytest.raises(InvalidError, match="no host was found"):
        chosen_hosts(None, here(), False)


def test_worktrees_that_cannot_be_set_up_get_one_line_each(project: Path) -> None:
    locked, missing, pruned, foreign = (
        worktree(project, f"../{it}") for it in ("locked", "missing", "pruned", "foreign")
    )
    git(project, "worktree", "lock", "../locked")
    git(project, "worktree", "lock", "../missing")
    shutil.rmtree(missing)
    shutil.rmtree(pruned)
    shutil.rmtree(foreign)
    repository(foreign)
    found, others = worktrees_of(project)
    assert found == [project, locked]
    assert sorted(it.path for it in others) == [foreign, missing, pruned]
    assert all("\n" not in it.why for it in others)
    set_up("claude-code")
    assert (names(locked), names(foreign)) == ([SETTINGS, ".mcp.json"], [])


def test_worktrees_of_a_bare_repository_are_set_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = bare(project.parent)
    one, two = worktree(repo, "../one"), worktree(repo, "../two")
    monkeypatch.chdir(one)
    found, [about] = worktrees_of(one)
    assert (found, about.path, about.why.partition(",")[0]) == ([one, two], repo, "is a bare repository")
    set_up("cursor")
    assert names(one) == names(two) == [".cursor/hooks.json", ".cursor/mcp.json"]
    assert (repo / "hooks" / "post-checkout").exists()


def test_submodule_is_a_separate_repository_and_named_in_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project, "submodule", "--quiet", "add", str(repository(project.parent / "library")), "vendor/library")
    found, [about] = worktrees_of(project)
    assert (found, about.path) == ([project], project / "vendor" / "library")
    assert "run holdlog init there" in about.why
    monkeypatch.chdir(project / "vendor" / "library")
    assert worktrees_of(project_folder()) == ([project / "vendor" / "library"], [])
    linked = worktree(project / "vendor" / "library", "../../../linked")
    assert worktrees_of(linked)[0] == [linked, project / "vendor" / "library"]
    set_up("cursor")
    assert names(linked) == [".cursor/hooks.json", ".cursor/mcp.json"]
    assert names(project) == [".gitmodules", "vendor/library/.cursor/hooks.json", "vendor/library/.cursor/mcp.json"]


@pytest.mark.parametrize(
    ("owner", "text", "expected"),
    [
        (".husky/pre-commit", "", ".husky/post-checkout"),
        ("lefthook.yml", "pre-commit:\n", "lefthook.yml"),
        (".lefthook.yaml", "", ".lefthook.yaml"),
        (POST_CHECKOUT, '#!/bin/sh\ngit lfs post-checkout "$@"\n', POST_CHECKOUT),
    ],
)
def test_hooks_of_others_are_left_as_they_are_and_the_line_is_shown(
    owner: str, text: str, expected: str, project: Path
) -> None:
    path = project / owner
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    [remark] = plan(here(), Choices(["claude-code"])).remarks
    assert remark.path == project / expected
    assert "holdlog init --new-worktree" in remark.why
    assert "~/.claude/settings.json" in remark.why
    set_up("claude-code")
    assert path.read_text() == text
    remark.path.write_text(remark.why)
    assert plan(here(), Choices(["claude-code"])).remarks == []


def test_hooks_path_of_the_user_is_left_as_it_is(project: Path) -> None:
    git(project, "config", "core.hooksPath", str(project.parent / "hooks"))
    [remark] = plan(here(), Choices(["claude-code"])).remarks
    assert remark.path == project.parent / "hooks" / "post-checkout"
    line = remark.why.partition("add to it: ")[2].partition(" -- ")[0]
    remark.path.parent.mkdir()
    remark.path.write_text(f"#!/bin/sh\n{line}\n")
    remark.path.chmod(0o755)
    set_up("claude-code")
    assert names(worktree(project, "../new")) == [SETTINGS, ".mcp.json"]


def test_git_hooks_name_the_full_path_which_a_second_init_refreshes(project: Path) -> None:
    hook = project / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        "#!/bin/sh\nholdlog check --staged || exit 1  # holdlog: files that other sessions hold\nmake lint\n"
    )
    before = set_up("claude-code")
    assert hook in [it.path for it in before]
    assert f"holdlog={shutil.which('holdlog')}; " in hook.read_text()
    assert hook.read_text().endswith("\nmake lint\n")
    assert hook.read_text().count("check --staged") == 1
    assert set_up("claude-code") == []


@pytest.mark.check
def test_commit_passes_with_one_line_once_holdlog_is_uninstalled(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = project.parent / "it's a venv" / "bin"
    environment.mkdir(parents=True)
    (environment / "holdlog").symlink_to(shutil.which("holdlog") or "")
    monkeypatch.setenv("PATH", os.pathsep.join((str(environment), os.environ["PATH"])))
    (project / "a.py").write_text("x = 1\n")
    git(project, "add", "a.py")
    assert run_command(capsys, "init", "--client", "vscode", "--yes", "--git-hook")[0] == 0
    assert run_command(capsys, "claim", "a.py", "--agent", "ann", "--session", "ann-1")[0] == 0
    commit = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-qm", "x"]
    env = os.environ | {"HOLDLOG_AGENT": "ben", "PATH": os.defpath}
    done = subprocess.run(commit, env=env, capture_output=True, text=True)
    assert (done.returncode, "a.py: held by ann" in done.stderr) == (1, True)
    shutil.rmtree(environment)
    done = subprocess.run(commit, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "holdlog is missing or does not start, so holdlog check is skipped" in done.stderr


def test_doctor_lists_each_worktree_as_guarded_or_not(project: Path) -> None:
    assert project_findings() == []
    linked = worktree(project, "../linked")
    assert project_findings() == []
    set_up("claude-code")
    assert [(it.level, it.text) for it in project_findings()] == [
        ("ok", f"{project}: guarded: Claude Code"),
        ("ok", f"{linked}: guarded: Claude Code"),
    ]
    (project / SETTINGS).write_text((project / SETTINGS).read_text().replace("holdlog hook", "/gone/holdlog hook"))
    later = project.parent / "later"
    git(project, "worktree", "add", "--quiet", "--no-checkout", str(later))
    shutil.rmtree(later / ".claude", ignore_errors=True)
    found = project_findings()
    assert [it.level for it in found] == ["ok", "warn", "warn"]
    assert "its hooks start /gone/holdlog, which is missing; run in it: holdlog init" in found[1].text
    assert f"{later}: not guarded: Claude Code: there are no hooks" in found[2].text
    assert [it.level for it in worktree_findings(["claude-code"], here(), "bad")] == ["ok", "bad", "bad"]
    settings = linked / ".claude" / "settings.json"
    settings.write_text('{"disableAllHooks": true}')
    off = f"{linked}: not guarded: Claude Code: {settings} has disableAllHooks"
    assert [it.level for it in project_findings() if it.text.startswith(off)] == ["warn"]
    settings.unlink()
    wide = project.parent / "home" / ".claude" / "settings.json"
    wide.parent.mkdir()
    shutil.copy(linked / SETTINGS, wide)
    assert f"{later}: guarded: Claude Code" in [it.text for it in project_findings()]


def test_doctor_names_the_event_that_no_hook_guards(project: Path) -> None:
    set_up("cursor")
    assert project_findings() == []
    path = project / ".cursor" / "hooks.json"
    content = json.loads(path.read_text())
    del content["hooks"]["beforeShellExecution"]
    path.write_text(json.dumps(content))
    [found] = project_findings()
    assert found.level == "warn"
    assert "Cursor: no hook runs before beforeShellExecution (.cursor/hooks.json); run: holdlog init" in found.text


@pytest.mark.check
def test_doctor_never_ends_with_ok_where_files_are_missing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from holdlog.adapters.hooks.notes import HookFiles
    from holdlog.adapters.hooks.observed import note_observation

    linked = worktree(project, "../linked")
    set_up("claude-code")
    note_observation(HookFiles(project / ".git" / "holdlog" / "state.db"), "claude 2.1.319", obeyed=True)
    code, out, _ = run_command(capsys, "doctor", "--client", "claude-code")
    assert (code, out.splitlines()[-1][:1]) == (0, "✓")
    shutil.rmtree(linked / ".claude")
    code, out, _ = run_command(capsys, "doctor", "--client", "claude-code")
    assert (code, out.splitlines()[-1][:1]) == (1, "!")
    code, out, _ = run_command(capsys, "doctor")
    assert (code, out.splitlines()[-1][:1]) == (0, "!")


@pytest.mark.parametrize("name", ["holdlog", "a holdlog that is gone"])
def test_hook_of_the_page_about_git_checks_or_lets_the_commit_pass(name: str, project: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "git.md").read_text()
    script = page.partition("**By hand.**")[2].partition("```sh\n")[2].partition("```")[0]
    subprocess.run(["sh", "-ec", script], check=True)
    hook = project / ".git" / "hooks" / "pre-commit"
    assert plan(here(), Choices(["cursor"])).git_hook == []
    hook.write_text(hook.read_text().replace(f"{shutil.which('holdlog')}", f"{project.parent}/{name}"))
    (project.parent / "holdlog").write_text("#!/bin/sh\necho held >&2\nexit 1\n")
    (project.parent / "holdlog").chmod(0o755)
    commit = ["git", "-c", "user.name=n", "-c", "user.email=n@x", "commit", "-q", "--allow-empty", "-m", "x"]
    done = subprocess.run(commit, capture_output=True, text=True)
    shown = (
        "held\n" if name == "holdlog" else f"holdlog: {project.parent}/{name} is missing, so claims are not checked\n"
    )
    assert (done.returncode, done.stderr) == (1 if name == "holdlog" else 0, shown)


def test_worktree_with_a_name_that_is_not_utf_8_is_set_up(project: Path) -> None:
    name = os.fsdecode(b"../\xe9t\xe9\n ")
    linked = worktree(project, name)
    found, others = worktrees_of(project)
    assert (found, others) == ([project, linked], [])
    set_up("claude-code")
    assert names(linked) == [SETTINGS, ".mcp.json"]
    set_up("claude-code", undo=True)
    assert names(linked) == []


def test_tracked_file_whose_folder_was_removed_is_left_as_it_is(project: Path) -> None:
    (project / ".claude").mkdir()
    (project / SETTINGS).write_text("{}")
    git(project, "add", SETTINGS)
    git(project, "commit", "--quiet", "--message", "settings")
    linked = worktree(project, "../linked")
    shutil.rmtree(linked / ".claude")
    found = plan(here(), Choices(["claude-code"], worktrees=[linked]))
    assert [it.path for it in found.skipped] == [project / SETTINGS, linked / SETTINGS]
    assert linked / ".mcp.json" in [it.path for it in found.hosts]


def test_claude_code_that_starts_in_a_subfolder_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up("claude-code", "codex")
    folder = project / "packages" / "app"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    [found] = project_findings()
    assert (found.name, found.level) == ("folder", "warn")
    assert f"start it in {project}, or put the hooks into ~/.claude/settings.json" in found.text
    shutil.copytree(project / ".claude", folder / ".claude")
    assert project_findings() == []
