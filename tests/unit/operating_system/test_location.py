"""Where the store is, over real folders and repositories that git itself made."""

import os
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.operating_system.location import (
    LocationError,
    find_store,
    prepare_folder,
    require_local,
    without_password,
)
from holdlog.adapters.stores.postgres.target import database_target


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return folder(tmp_path / "home" / "ann")


def folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def git(where: Path, *arguments: str) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = ["-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *settings, *arguments], cwd=where, env=plain, check=True, capture_output=True)


def repository(path: Path) -> Path:
    git(folder(path), "init", "--quiet")
    git(path, "commit", "--quiet", "--allow-empty", "--message", "first")
    return path


def found(cwd: Path, home: Path, db: str | None = None, **environ: str) -> Path:
    return find_store(db, {"HOME": str(home), **environ}, cwd)


def refusal(cwd: Path, home: Path, db: str | None = None, **environ: str) -> str:
    with pytest.raises(LocationError) as refused:
        found(cwd, home, db, **environ)
    return one_line(refused.value)


def one_line(error: LocationError) -> str:
    assert str(error).isprintable()
    return str(error)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_option_overrides_the_environment_and_both_override_the_repository(home: Path):
    repo = repository(home / "repo")
    assert found(repo, home, "a.db", HOLDLOG_DB="b.db") == repo / "a.db"
    assert found(repo, home, HOLDLOG_DB="b.db") == repo / "b.db"
    assert found(repo, home, HOLDLOG_DB="") == repo / ".git/holdlog/state.db"


def test_named_store_file_may_start_at_the_home_folder(home: Path):
    assert found(home.parent, home, "~/deep/state.db") == home / "deep/state.db"
    assert "is not the home of a known user" in refusal(home, home, "~nobody-of-this-name/state.db")


def test_links_to_one_store_file_give_one_path(home: Path):
    (home / "alias").symlink_to(folder(home / "real"))
    assert found(home, home, "alias/../alias/state.db") == home / "real/state.db"


def test_folder_in_place_of_a_store_is_refused_with_the_file_to_name(home: Path):
    assert refusal(home, home, str(home)) == f"--db {home} is a folder; pass a file in it: {home}/state.db"
    assert "is a folder" in refusal(home, home, "not/there/yet/")
    assert refusal(home, home, HOLDLOG_DB=".").startswith("HOLDLOG_DB ")


@pytest.mark.parametrize("text", ["", "  ", "a\0b", "a\nb", "a\x1bb", "x" * 5000, "/dev/null"])
def test_impossible_store_location_is_refused_in_one_line(home: Path, text: str):
    assert "pass a" in refusal(home, home, text)


def test_loop_of_links_to_a_store_is_refused(home: Path):
    (home / "loop").symlink_to(home / "loop")
    assert "--db" in refusal(home, home, "loop")


def test_every_folder_of_a_repository_finds_its_one_store(home: Path):
    repo = repository(home / "repo")
    store = repo / ".git/holdlog/state.db"
    assert found(repo, home) == store
    assert found(folder(repo / "src/deep"), home) == store
    assert found(repo / ".git/hooks", home) == store
    assert not store.parent.exists()


def test_repository_without_a_commit_counts(home: Path):
    git(folder(home / "new"), "init", "--quiet")
    assert found(home / "new", home) == home / "new/.git/holdlog/state.db"


def test_worktrees_share_the_store_of_their_repository(home: Path):
    repo = repository(home / "repo")
    git(repo, "worktree", "add", "--quiet", "../tree")
    assert found(home / "tree", home) == repo / ".git/holdlog/state.db"


def test_worktrees_of_a_bare_repository_share_its_store(home: Path):
    repo = repository(home / "repo")
    git(home, "clone", "--quiet", "--bare", "repo", "bare.git")
    git(home / "bare.git", "worktree", "add", "--quiet", "../tree")
    assert found(home / "tree", home) == home / "bare.git/holdlog/state.db"
    assert found(repo, home) == repo / ".git/holdlog/state.db"


def test_repository_with_a_separate_git_folder_is_found(home: Path):
    git(folder(home / "work"), "init", "--quiet", "--separate-git-dir", "../elsewhere")
    assert found(home / "work", home) == home / "elsewhere/holdlog/state.db"


def test_submodule_has_a_separate_store(home: Path):
    repo, part = repository(home / "repo"), repository(home / "part")
    git(repo, "submodule", "--quiet", "add", str(part), "sub")
    assert found(repo / "sub", home) == repo / ".git/modules/sub/holdlog/state.db"


def test_git_hook_finds_the_store_of_its_repository(home: Path):
    repo, other = repository(home / "repo"), repository(home / "other")
    assert found(repo, home, GIT_DIR=str(other / ".git"), GIT_COMMON_DIR=str(other / ".git")) == (
        repo / ".git/holdlog/state.db"
    )


def test_git_folder_that_is_not_a_repository_is_skipped(home: Path):
    repo = repository(home / "repo")
    inner = folder(repo / "inner")
    folder(inner / ".git")
    assert found(inner, home) == repo / ".git/holdlog/state.db"


def test_repository_reached_through_a_link_is_the_same(home: Path):
    repo = repository(home / "repo")
    (home / "alias").symlink_to(folder(repo / "src"))
    assert found(home / "alias", home) == repo / ".git/holdlog/state.db"


@pytest.mark.parametrize(
    "content", [b"gitdir: /gone/nowhere\n", b"gitdir: \n", b"rubbish\n", b"", b"gitdir: a\0b", b"x" * 99_999]
)
def test_broken_git_file_is_named_and_its_content_not_quoted(home: Path, content: bytes):
    entry = folder(home / "work") / ".git"
    entry.write_bytes(content)
    message = refusal(home / "work", home)
    assert message.startswith(f"{entry} ")
    assert "--db" in message
    assert "nowhere" not in message


def test_worktree_that_git_has_forgotten_is_refused(home: Path):
    repo = repository(home / "repo")
    git(repo, "worktree", "add", "--quiet", "../tree")
    (repo / ".git/worktrees/tree/commondir").write_text("../../gone\n")
    assert "does not lead to a git repository" in refusal(home / "tree", home)


def test_project_folder_of_the_host_overrides_the_working_folder(home: Path):
    repo, other = repository(home / "repo"), repository(home / "other")
    assert found(other, home, CLAUDE_PROJECT_DIR=str(repo)) == repo / ".git/holdlog/state.db"


@pytest.mark.parametrize("project", ["", "/of/another/machine", "a\0b"])
def test_missing_project_folder_falls_back_to_the_working_folder(home: Path, project: str):
    repo = repository(home / "repo")
    assert found(repo, home, CLAUDE_PROJECT_DIR=project) == repo / ".git/holdlog/state.db"


def test_nearest_holdlog_folder_is_used_without_git(home: Path):
    folder(home / "project/.holdlog")
    folder(home / "project/part/.holdlog")
    assert found(folder(home / "project/part/deep"), home) == home / "project/part/.holdlog/state.db"
    assert found(home / "project", home) == home / "project/.holdlog/state.db"


def test_repository_overrides_a_nearer_holdlog_folder(home: Path):
    repo = repository(home / "repo")
    folder(repo / "part/.holdlog")
    assert found(repo / "part", home) == repo / ".git/holdlog/state.db"


def test_file_named_like_the_holdlog_folder_is_skipped(home: Path):
    (folder(home / "project") / ".holdlog").write_text("")
    assert found(home / "project", home) == home / ".local/state/holdlog/state.db"


def test_store_outside_projects_is_in_the_state_folder_of_the_user(home: Path, tmp_path: Path):
    plain = folder(home / "plain")
    assert found(plain, home) == home / ".local/state/holdlog/state.db"
    assert found(plain, home, XDG_STATE_HOME=str(tmp_path / "xdg")) == tmp_path / "xdg/holdlog/state.db"
    assert found(plain, home, XDG_STATE_HOME="relative") == home / ".local/state/holdlog/state.db"


def test_home_folder_and_root_are_not_projects(home: Path):
    repository(home)
    folder(home / ".holdlog")
    state = home / ".local/state/holdlog/state.db"
    assert found(home, home) == state
    assert found(folder(home / "plain"), home) == state
    assert found(Path("/"), home) == state


def test_repository_above_the_home_folder_counts(home: Path):
    repository(home.parent)
    assert found(folder(home / "plain"), home) == home.parent / ".git/holdlog/state.db"


def test_home_folder_that_is_a_bare_repository_is_skipped(home: Path):
    git(home, "init", "--quiet", "--bare")
    (folder(home / "plain") / ".git").write_text("gitdir: ..\n")
    assert found(home / "plain", home) == home / ".local/state/holdlog/state.db"


def test_holdlog_folder_in_a_repository_is_private(home: Path):
    store = found(repository(home / "repo"), home)
    prepare_folder(store)
    prepare_folder(store)
    assert mode(store.parent) == 0o700
    assert list(store.parent.iterdir()) == []


def test_state_folder_is_created_with_its_parents(home: Path):
    environ = {"HOME": str(home)}
    store = find_store(None, environ, folder(home / "plain"))
    prepare_folder(store, environ)
    assert [mode(home / part) for part in (".local", ".local/state", ".local/state/holdlog")] == [0o700] * 3


def test_holdlog_folder_keeps_its_gitignore_and_mode(home: Path):
    ours = folder(home / "project/.holdlog")
    ours.chmod(0o755)
    prepare_folder(ours / "state.db")
    assert (ours / ".gitignore").read_text() == "*\n"
    assert mode(ours) == 0o755
    (ours / ".gitignore").write_text("!notes\n")
    prepare_folder(ours / "state.db")
    assert (ours / ".gitignore").read_text() == "!notes\n"


def test_only_the_last_folder_of_a_named_file_is_created(home: Path):
    prepare_folder(home / "new/state.db")
    assert mode(home / "new") == 0o700
    with pytest.raises(LocationError) as refused:
        prepare_folder(home / "one/two/state.db")
    assert one_line(refused.value).startswith(f"folder {home}/one does not exist")
    assert not (home / "one").exists()


def test_file_in_place_of_the_store_folder_is_refused(home: Path):
    (home / "file").write_text("")
    with pytest.raises(LocationError, match="is not a folder"):
        prepare_folder(home / "file/state.db")


def test_store_folder_that_cannot_be_created_is_refused():
    with pytest.raises(LocationError, match="cannot be prepared"):
        prepare_folder(Path("/proc/holdlog/state.db"))


def test_network_file_system_is_refused_with_a_remedy(home: Path):
    with pytest.raises(LocationError) as refused:
        require_local(home / "state.db", "nfs4")
    assert one_line(refused.value) == (
        f"{home}/state.db is on a network file system (nfs4), where SQLite's WAL corrupts; "
        "use --db with a path on a local disk, or PostgreSQL"
    )


def test_local_disk_is_accepted(home: Path):
    for kind in ("ext4", ""):
        require_local(home / "state.db", kind)  # raises for others
        assert not (home / "state.db").exists()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("postgresql://ann:SECRET@host:5432/db?schema=x", "postgresql://ann@host:5432/db?schema=x"),
        ("postgresql://ann:S%40:E@host/db", "postgresql://ann@host/db"),
        ("postgresql://:SECRET@host/db", "postgresql://@host/db"),
        ("postgresql:///db?host=/tmp&password=SECRET&user=ann", "postgresql:///db?host=/tmp&password=&user=ann"),
        ("postgresql://ann:SE@CR/E?T#@host/db", "postgresql://ann@host/db"),
        ("postgresql://host/db?sslpassword=SECRET", "postgresql://host/db?sslpassword="),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://host:5432/db?schema=x", "postgresql://host:5432/db?schema=x"),
        (Path("/a:b@c/state.db"), "/a:b@c/state.db"),
    ],
)
def test_store_is_displayed_without_its_password(place: Path | str, told: str) -> None:
    assert without_password(place) == told


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("options=-c%20work_mem%3D8MB", "options=-c%20work_mem%3D8MB"),
        ("schema=s&application_name=a+b", "application_name=a%2Bb"),
        ("host=/run/x&schema=s", "host=%2Frun%2Fx"),
    ],
)
def test_options_of_a_database_url_reach_libpq_unchanged(given: str, kept: str) -> None:
    assert database_target(f"postgresql://ann@h/d?{given}").url == f"postgresql://ann@h/d?{kept}"
