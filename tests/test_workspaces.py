"""Where a path is: its repository and worktree, its store, and its name as a resource."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdlog.adapters.operating_system.location import find_store
from holdlog.adapters.operating_system.workspaces import Workspaces, find_workspaces
from holdlog.domain.refusals import InvalidError
from tests.support.hosts import git, repository, write

Find = Callable[..., Workspaces]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}

    def search(folder: Path, *named: str) -> Workspaces:
        return find_workspaces(environment, str(folder), find_store(None, environment, str(folder)), named)

    return search


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    return tmp_path / "tree"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", has_store=False)


def test_worktrees_share_a_store_and_not_their_names(root, tree, find):
    assert find_store(None, {}, str(tree)) == find_store(None, {}, str(root / "src")) == f"{root}/.git/holdlog/state.db"
    assert find(root).resolve("src/a.py") == find(root / "src").resolve("a.py") == "src/a.py"
    assert find(tree).resolve("src/a.py") == find(root).resolve(f"{tree}/src/a.py") == "file://tree/src/a.py"
    assert find(tree).resolve("file://main/src/a.py") == "src/a.py"
    assert find(root).list_elsewhere("src/a.py") == [("tree", "file://tree/src/a.py")]
    assert find(tree).list_elsewhere("file://tree/src/a.py") == [("main", "src/a.py")]
    assert (find(tree).format_name("src/a.py"), find(root).format_name("src/a.py")) == (
        "file://main/src/a.py",
        "src/a.py",
    )


def test_file_of_a_removed_worktree_keeps_its_name_and_cannot_be_claimed(root, tree, find):
    git(root, "worktree", "remove", "--force", str(tree))
    assert find(root).resolve("file://tree/src/a.py") == "file://tree/src/a.py"
    with pytest.raises(ValueError, match="known workspace"):
        find(root).resolve("file://tree/src/a.py", is_new=True)


def test_submodule_is_a_repository_of_its_own(root, tmp_path, find):
    origin = repository(tmp_path / "origin", has_store=False)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "lib")
    assert find_store(None, {}, str(root / "lib")) == f"{root}/.git/modules/lib/holdlog/state.db"
    assert find(root / "lib").resolve("src/a.py") == "src/a.py"


def test_link_is_followed_as_long_as_it_stays_in_a_workspace(root, tmp_path, find):
    write(tmp_path / "outside" / "x.py", "")
    os.symlink("a.py", root / "src/same.py")
    os.symlink(tmp_path / "outside", root / "src/out")
    assert find(root).resolve("src/same.py") == "src/a.py"
    assert find(root).resolve("src/out/x.py") == "src/out/x.py"
    with pytest.raises(ValueError, match="inside a workspace"):
        find(root).resolve(str(tmp_path / "outside/x.py"))


@pytest.mark.parametrize("name", ["a\nb.py", " blank ", "a*.py", "docs/\u26a0\ufe0f notes.md"])
def test_every_file_has_a_name_that_can_be_claimed(root, name, find):
    write(root / name, "")
    resource = find(root).name_file(f"{root}/{name}")
    assert resource == find(root).resolve(name)
    assert find(root).resolve(resource, is_new=True) == resource


@pytest.mark.parametrize(
    ("name", "instead"),
    [("src/a.py, src/b.py", "also"), ("src/a.py:10-20", "whole file"), ("./", "inside"), ("src/*.py", "src/")],
)
def test_name_that_protects_nothing_is_refused(root, name, instead, find):
    with pytest.raises(ValueError, match=instead):
        find(root).resolve(name, is_new=True)


def test_folders_without_a_project_share_no_names(tmp_path, find):
    (tmp_path / "a").mkdir()
    assert find(tmp_path / "a").resolve("x.py") == f"{tmp_path}/a/x.py"
    (tmp_path / "a/.holdlog").mkdir()
    assert find(tmp_path / "a").resolve("x.py") == "x.py"


def test_named_workspaces_are_added(root, tmp_path, find):
    (tmp_path / "web").mkdir()
    assert find(root, f"web={tmp_path}/web").resolve(f"{tmp_path}/web/x.py") == "file://web/x.py"
    for wrong in ("web", f"main={tmp_path}/web", f"we b={tmp_path}/web", "web=/nowhere", "web=/"):
        with pytest.raises(InvalidError, match="--workspace"):
            find(root, wrong)
