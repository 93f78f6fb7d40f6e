"""One spelling for a file, from wherever it is named: over real folders, links and repositories of git itself."""

import os
import re
import subprocess
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdlog.adapters.operating_system.paths import folds_case
from holdlog.adapters.operating_system.workspaces import Workspaces, find_workspaces
from holdlog.domain.claims import resource
from holdlog.domain.refusals import InvalidError

OUTSIDE = "must be inside a workspace"
ROOT_ITSELF = "must name a file or a folder inside the workspace, such as src/main.py or src/"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return folder(tmp_path / "home" / "ann")


@pytest.fixture
def repo(home: Path) -> Path:
    return repository(home / "repo")


def folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def link(path: Path, target: str | Path) -> Path:
    folder(path.parent)
    path.symlink_to(target)
    return path


def git(where: Path, *arguments: str) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = ["-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *settings, *arguments], cwd=where, env=plain, check=True, capture_output=True)


def repository(path: Path) -> Path:
    git(folder(path), "init", "--quiet", "--initial-branch", "trunk")
    git(path, "commit", "--quiet", "--allow-empty", "--message", "first")
    return path


def worktree(repo: Path, path: str) -> Path:
    git(repo, "worktree", "add", "--quiet", "--detach", path)
    return Path(os.path.normpath(repo / path))


def bare(home: Path, path: str = "bare.git") -> Path:
    git(home, "clone", "--quiet", "--bare", str(repository(home / "origin")), path)
    return home / path


def spaces(start: Path, *named: str, across: bool = False, folds: bool = False, **environ: str) -> Workspaces:
    environ = {"HOME": "/nobody", **environ}
    return find_workspaces(environ, start, named, across, lambda root: folds)


def canonical(start: Path, text: str | Path) -> str:
    return spaces(start).canonical(str(text))


def refusal(known: Workspaces, text: str) -> str:
    with pytest.raises(ValueError, match="must") as refused:
        known.canonical(text)
    assert str(refused.value).isprintable()
    return str(refused.value)


def refusal_to_claim(known: Workspaces, text: str) -> str:
    with pytest.raises(ValueError, match="must") as refused:
        known.claimable(text)
    assert str(refused.value).isprintable()
    return str(refused.value)


def test_path_is_named_from_the_root_of_the_workspace(repo: Path):
    for text in ("src/main.py", "./src//main.py", "src\\main.py", repo / "src/main.py", f"file://{repo}/src/main.py"):
        assert canonical(repo, text) == "src/main.py"


def test_path_is_read_from_the_working_folder_of_the_agent(repo: Path):
    backend = folder(repo / "backend")
    assert canonical(backend, "x.py") == "backend/x.py"
    assert canonical(backend, "api/") == "backend/api/"
    assert canonical(backend, repo / "x.py") == "x.py"
    assert canonical(backend, "file://main/x.py") == "x.py"


def test_project_folder_of_the_host_overrides_the_working_folder_for_paths(repo: Path, home: Path):
    assert spaces(home, CLAUDE_PROJECT_DIR=str(folder(repo / "web"))).canonical("x.py") == "web/x.py"


def test_trailing_slash_of_a_path_is_kept(repo: Path):
    folder(repo / "src")
    link(repo / "alias", "src")
    for text in ("src/", "src\\", repo.as_posix() + "/src/", "file://main/src/", "alias/"):
        assert canonical(repo, text) == "src/"


def test_names_that_are_not_paths_are_left_alone(repo: Path):
    for text in ("custom://deploy", "custom://a//../b", "custom://src/main.py"):
        assert canonical(folder(repo / "src"), text) == text


def test_every_worktree_is_a_workspace(repo: Path):
    tree = worktree(repo, "../feature")
    for start in (repo, tree, folder(tree / "deep")):
        assert canonical(start, tree / "x.py") == "file://feature/x.py"
        assert canonical(start, "file://feature/./x.py") == "file://feature/x.py"
        assert canonical(start, repo / "x.py") == "x.py"
        assert canonical(start, "file://main/x.py") == "x.py"
    assert canonical(tree, "x.py") == "file://feature/x.py"
    assert canonical(tree / "deep", "x.py") == "file://feature/deep/x.py"


def test_worktree_inside_the_main_worktree_has_separate_files(repo: Path):
    tree = worktree(repo, ".worktrees/feature")
    for text in (".worktrees/feature/x.py", tree / "x.py", "file://main/.worktrees/feature/x.py"):
        assert canonical(repo, text) == "file://feature/x.py"
    assert canonical(repo, ".worktrees/other.py") == ".worktrees/other.py"
    assert canonical(repo, ".worktrees/feature2/x.py") == ".worktrees/feature2/x.py"


def test_name_of_a_worktree_is_that_of_its_git_folder(repo: Path, home: Path):
    folder(home / "elsewhere")
    worktree(repo, "../one/tree")
    worktree(repo, "../two/tree")
    assert canonical(repo, home / "two/tree/x.py") == "file://tree1/x.py"


@pytest.mark.parametrize(
    ("kept_as", "spoken"), [("a b", "a%20b"), ("50%", "50%25"), ("caf\u00e9", "caf%C3%A9"), ("a#b?", "a%23b%3F")]
)
def test_name_that_no_uri_can_contain_is_percent_encoded(repo: Path, home: Path, kept_as: str, spoken: str):
    tree = worktree(repo, "../tree")
    entry = (repo / ".git/worktrees/tree").rename(repo / ".git/worktrees" / kept_as)
    (tree / ".git").write_text(f"gitdir: {entry}\n")
    assert canonical(repo, home / "tree/x.py") == f"file://{spoken}/x.py"
    assert canonical(repo, f"file://{spoken}/x.py") == f"file://{spoken}/x.py"


def test_linked_worktree_cannot_take_the_name_of_the_default(repo: Path, home: Path):
    tree = worktree(repo, "../main")
    assert canonical(repo, tree / "x.py") == "file://worktrees%2Fmain/x.py"
    assert canonical(tree, "x.py") == "file://worktrees%2Fmain/x.py"
    assert canonical(tree, "file://worktrees%2Fmain/x.py") == "file://worktrees%2Fmain/x.py"
    assert canonical(tree, "file://main/x.py") == "x.py"


def test_percent_encoding_of_paths_is_not_decoded(repo: Path):
    assert canonical(repo, "file://main/a%20b%2Fc") == "a%20b%2Fc"
    assert canonical(repo, "100%.md") == "100%.md"


def test_bare_repository_has_no_default_workspace(home: Path):
    trunk, side = worktree(bare(home), "../trunk"), worktree(home / "bare.git", "../main")
    assert canonical(trunk, "x.py") == "file://trunk/x.py"
    assert canonical(trunk, side / "x.py") == "file://main/x.py"
    assert spaces(trunk).elsewhere("x.py") == []
    assert spaces(trunk).elsewhere("file://trunk/x.py") == [("main", "file://main/x.py")]


def test_folder_around_a_bare_repository_is_not_a_workspace(home: Path):
    project = folder(home / "project")
    bare(home, "project/.git")
    tree = worktree(project, "trunk")
    assert canonical(project, "trunk/x.py") == canonical(tree, "x.py") == "file://trunk/x.py"
    assert OUTSIDE in refusal(spaces(project), "notes.md")


def test_main_worktree_with_a_separate_git_folder_is_the_default(home: Path, repo: Path):
    git(folder(home / "work"), "init", "--quiet", "--separate-git-dir", "../elsewhere")
    assert canonical(home / "work", "x.py") == "x.py"
    git(repo, "submodule", "--quiet", "add", str(repository(home / "part")), "sub")
    tree = worktree(repo / "sub", "../../tree")
    assert canonical(repo / "sub", "x.py") == canonical(tree, repo / "sub/x.py") == "x.py"
    assert canonical(repo, "sub/x.py") == "sub/x.py"


@pytest.mark.parametrize("damage", ["missing root", "no gitdir", "rubbish", "another repository"])
def test_broken_worktree_is_skipped(repo: Path, home: Path, damage: str):
    tree, whole = worktree(repo, "../tree"), worktree(repo, "../whole")
    entry = repo / ".git/worktrees/tree"
    match damage:
        case "missing root":
            tree.rename(home / "away")
        case "no gitdir":
            (entry / "gitdir").unlink()
        case "rubbish":
            (entry / "gitdir").write_bytes(b"\0\xff")
        case _:
            tree.rename(home / "away")
            repository(tree)
    assert "known workspace" in refusal_to_claim(spaces(repo), "file://tree/x.py")
    assert canonical(repo, whole / "x.py") == "file://whole/x.py"


def test_worktree_moved_by_hand_still_identifies_itself(repo: Path, home: Path):
    moved = worktree(repo, "../tree").rename(home / "moved")
    assert canonical(moved, "x.py") == "file://tree/x.py"


def test_broken_repository_does_not_count(home: Path):
    (folder(home / "work") / ".git").write_text("gitdir: /gone\n")
    assert canonical(home / "work", "./x.py") == "x.py"


def test_worktree_added_later_is_noticed(repo: Path, home: Path):
    known = spaces(repo)
    assert known.canonical(".trees/one/x.py") == ".trees/one/x.py"
    for name in ("one", "two"):
        worktree(repo, f".trees/{name}")
        assert known.canonical(f".trees/{name}/x.py") == f"file://{name}/x.py"
    assert known.elsewhere("x.py") == [("one", "file://one/x.py"), ("two", "file://two/x.py")]
    git(repo, "worktree", "remove", ".trees/one")
    assert known.elsewhere("x.py") == [("two", "file://two/x.py")]
    git(repo, "worktree", "move", ".trees/two", str(home / "three"))
    assert known.canonical(str(home / "three/x.py")) == "file://two/x.py"


def test_worktree_that_git_is_still_creating_is_noticed_when_complete(repo: Path):
    tree = worktree(repo, "sub/tree")
    entry = repo / ".git/worktrees/tree"
    backlink = (entry / "gitdir").rename(repo / ".git/later")
    known = spaces(repo)
    assert known.canonical("sub/tree/x.py") == "sub/tree/x.py"
    backlink.rename(entry / "gitdir")
    assert known.canonical(str(tree / "x.py")) == known.canonical("sub/tree/x.py") == "file://tree/x.py"


def test_claim_response_names_the_same_path_elsewhere(repo: Path):
    worktree(repo, "../one")
    worktree(repo, "../two")
    known = spaces(repo)
    assert known.elsewhere("src/") == [("one", "file://one/src/"), ("two", "file://two/src/")]
    assert known.elsewhere("file://one/x.py") == [("main", "x.py"), ("two", "file://two/x.py")]
    assert known.elsewhere("custom://deploy") == known.elsewhere("file://gone/x.py") == known.elsewhere("/x.py") == []


def test_path_too_long_for_another_workspace_is_not_looked_up_there(repo: Path):
    worktree(repo, "../one")
    assert spaces(repo).elsewhere("x" * 512) == []


def test_existing_folder_is_recognised_by_its_name(repo: Path):
    tree = worktree(repo, "../one")
    folder(repo / "src")
    folder(tree / "lib")
    (repo / "x.py").touch()
    known = spaces(repo)
    assert known.is_folder("src")
    assert known.is_folder("file://one/lib")
    for none in ("src/", "x.py", "lib", "file://one/src", "file://gone/src", "custom://src", "/etc", str(repo / "src")):
        assert not known.is_folder(none)
    assert not spaces(folder(repo.parent / "plain")).is_folder("src")


def test_single_workspace_has_no_elsewhere(repo: Path):
    assert spaces(repo).elsewhere("x.py") == []


def test_claims_across_worktrees_share_bare_names(repo: Path, home: Path):
    tree = worktree(repo, "../feature")
    for start in (repo, tree):
        known = spaces(start, f"docs={folder(home / 'docs')}", across=True)
        texts = ("x.py", str(tree / "x.py"), str(repo / "x.py"), "file://feature/x.py", "file://main/x.py")
        assert {known.canonical(text) for text in texts} == {"x.py"}
        assert known.elsewhere("x.py") == [("docs", "file://docs/x.py")]


def test_worktrees_of_a_bare_repository_can_share_names_too(home: Path):
    one, two = worktree(bare(home), "../one"), worktree(home / "bare.git", "../two")
    known = spaces(one, across=True)
    assert known.canonical("x.py") == known.canonical(str(two / "x.py")) == "x.py"


def test_folder_that_contains_the_holdlog_folder_is_the_workspace_without_git(home: Path):
    folder(home / "project/.holdlog")
    deep = folder(home / "project/part")
    assert canonical(deep, "x.py") == canonical(home, home / "project/part/x.py").removeprefix(f"{home}/project/")
    assert canonical(deep, "x.py") == "part/x.py"
    assert OUTSIDE in refusal(spaces(deep), str(home / "x.py"))


def test_paths_stay_unchanged_without_a_workspace(home: Path):
    link(home / "plain/link.py", "real.py")
    for text in ("./src//x.py", "link.py", "/etc/hosts", "C:\\x", "src/", "custom://x"):
        assert canonical(home / "plain", text) == resource.canonical(text)
    assert canonical(home / "plain", "file:///etc/hosts") == "/etc/hosts"
    assert canonical(Path("/"), "x.py") == "x.py"
    assert "a known workspace (none here);" in refusal_to_claim(spaces(home / "plain"), "file://web/x.py")
    assert spaces(home / "plain").elsewhere("x.py") == []


def test_home_folder_is_not_a_workspace(home: Path):
    repository(home)
    folder(home / ".holdlog")
    tree = worktree(home, "../tree")
    assert spaces(home, HOME=str(home)).canonical(str(home / "x.py")) == f"{home}/x.py"
    known = spaces(tree, HOME=str(home))
    assert known.canonical("x.py") == "file://tree/x.py"
    assert OUTSIDE in refusal(known, str(home / "x.py"))


def test_named_folder_is_a_workspace(repo: Path, home: Path):
    docs = folder(home / "docs")
    for option in (f"docs={docs}", "docs=../docs", "docs=~/docs"):
        known = spaces(repo, option, HOME=str(home))
        assert known.canonical(str(docs / "x.md")) == known.canonical("file://docs/x.md") == "file://docs/x.md"
        assert known.elsewhere("x.md") == [("docs", "file://docs/x.md")]
    assert spaces(docs, f"docs={docs}").canonical("x.md") == "file://docs/x.md"


def test_named_folder_inside_a_workspace_is_a_separate_one(repo: Path):
    folder(repo / "web")
    assert spaces(repo, "web=web").canonical("web/x.ts") == "file://web/x.ts"


def test_naming_a_workspace_renames_it(repo: Path):
    tree = worktree(repo, "../feature")
    known = spaces(repo, f"core={repo}", f"tree={tree}")
    assert known.canonical("file://core/x.py") == "x.py"
    assert known.canonical(str(tree / "x.py")) == "file://tree/x.py"
    assert known.elsewhere("file://tree/x.py") == [("core", "x.py")]
    assert "a known workspace (core, tree);" in refusal_to_claim(known, "file://feature/x.py")


def test_given_name_overrides_that_of_a_worktree(repo: Path, home: Path):
    tree = worktree(repo, "../feature")
    known = spaces(repo, f"feature={folder(home / 'other')}")
    assert known.canonical("file://feature/x") == known.canonical(str(home / "other/x")) == "file://feature/x"
    assert known.canonical(str(tree / "x")) == "file://worktrees%2Ffeature/x"


NO_NAMES = ["", "=.", "a/b=.", "a b=.", "a%20b=.", ".=.", "..=.", "\ud800=.", "caf\u00e9=.", "a\0=.", "main=web"]
NO_FOLDERS = [
    "=",
    "web",
    "web=",
    "web= ",
    "web=gone",
    "web=file.txt",
    "web=a\0b",
    "web=\ud800",
    "web=~nobody-here/x",
    "web=/",
]


@pytest.mark.parametrize("option", [*NO_NAMES, *NO_FOLDERS])
def test_impossible_workspace_is_refused_in_one_line(repo: Path, option: str):
    folder(repo / "web")
    (repo / "file.txt").touch()
    with pytest.raises(InvalidError, match="--workspace: ") as refused:
        spaces(repo, option)
    assert str(refused.value).isprintable()


def test_workspace_names_are_unique_and_exclude_home(repo: Path, home: Path):
    for named, environ in ((["a=.", "a=.."], {}), (["a=~"], {"HOME": str(home)})):
        with pytest.raises(InvalidError, match="--workspace: must not"):
            spaces(repo, *named, **environ)


def test_path_outside_every_workspace_is_refused_with_a_remedy(repo: Path, home: Path):
    for text in ("/etc/hosts", str(home / "x"), f"{repo}2/x", "C:\\Users\\ann\\x.py", "c:/x", "\\\\server\\share\\x"):
        assert "custom://<name>" in refusal(spaces(repo), text)
    for text in (
        "file:///etc/hosts",
        "file:///C:/x",
        "file://main/C:/x",
        "file:////etc",
        f"{repo}/C:/x",
        f"{repo}/C:/",
    ):
        assert OUTSIDE in refusal(spaces(repo), text)


def test_claim_in_an_unknown_workspace_is_refused_with_the_known_names(repo: Path):
    for text in ("file://web/x.py", "file://Main/x.py", "file://web", "file://localhost/etc/hosts"):
        message = refusal_to_claim(spaces(repo), text)
        assert "a known workspace (main);" in message
        assert "web" not in message


def test_climbing_out_of_a_workspace_is_refused(repo: Path):
    for text in ("..", "a/../b", "a\\..\\b", "file://main/../x", "file://../x", f"{repo}/../repo/x", "file:///a/../b"):
        assert "custom://" in refusal(spaces(repo), text)


def test_workspace_itself_is_not_a_resource(repo: Path):
    link(repo / "self", ".")
    for text in (".", "./", "/", str(repo), f"{repo}/", "file://main", "file://main/", f"file://{repo}", "self/"):
        assert refusal(spaces(repo), text) in (ROOT_ITSELF, OUTSIDE)
    assert canonical(repo, "self/self/x.py") == "x.py"


def test_links_resolve_to_the_file_they_mean(repo: Path):
    (folder(repo / "src") / "real.py").touch()
    link(repo / "link.py", "src/real.py")
    link(repo / "second.py", "link.py")
    link(repo / "absolute.py", repo / "src/real.py")
    link(repo / "deep/up", "../src")
    for text in ("link.py", "second.py", "absolute.py", "deep/up/real.py", repo / "link.py", "file://main/link.py"):
        assert canonical(repo, text) == "src/real.py"
    assert canonical(folder(repo / "deep"), "up/") == "src/"


def test_links_are_followed_for_files_that_do_not_exist_yet(repo: Path):
    link(repo / "alias", "src")
    link(repo / "later.py", "src/not/there.py")
    assert canonical(repo, "alias/new/x.py") == "src/new/x.py"
    assert canonical(repo, "later.py") == "src/not/there.py"


def test_link_that_leads_outside_keeps_its_name(repo: Path, home: Path):
    link(folder(repo / "src") / "out", folder(home / "outside"))
    link(repo / "alias", "src")
    link(repo / "dangling", "/gone/for/good")
    link(repo / "root", "/")
    for text in ("src/out/x.py", "alias/out/x.py", repo / "src/out/x.py", "file://main/alias/out/x.py"):
        assert canonical(repo, text) == "src/out/x.py"
    assert canonical(repo, "src/out") == "src/out"
    assert canonical(repo, "dangling") == "dangling"
    assert canonical(repo, "root/etc/hosts") == "root/etc/hosts"
    assert canonical(repo, f"root{repo}/alias/out/x.py") == "src/out/x.py"


def test_link_into_another_workspace_belongs_to_that_one(repo: Path):
    tree = worktree(repo, "../feature")
    link(repo / "shared", tree / "lib")
    link(tree / "back.py", repo / "x.py")
    assert canonical(repo, "shared/x.py") == "file://feature/lib/x.py"
    assert canonical(tree, "back.py") == "x.py"


def test_workspace_root_may_be_reached_through_a_link(repo: Path, home: Path):
    alias = link(home / "alias", repo)
    link(repo / "out", "/etc")
    for start in (repo, alias):
        assert canonical(start, alias / "x.py") == canonical(start, repo / "x.py") == "x.py"
        assert canonical(start, alias / "out/hosts") == "out/hosts"
        assert canonical(start, f"file://{alias}/x/") == "x/"
        assert refusal(spaces(start), str(alias)) == ROOT_ITSELF


def test_loop_of_links_in_a_path_keeps_its_name(repo: Path):
    link(repo / "a", "b")
    link(repo / "b", "a")
    link(repo / "own", "own/x")
    for text in ("a", "b/x.py", "own/y/"):
        assert canonical(repo, text) == text


def test_case_is_folded_where_the_file_system_folds_it(repo: Path):
    tree = worktree(repo, "../Feature")
    known = spaces(folder(repo / "Back"), folds=True)
    assert known.canonical("README.md") == "back/readme.md"
    assert known.canonical("Stra\u00dfe/") == "back/strasse/"
    assert known.canonical(str(repo).upper() + "/X.py") == "x.py"
    assert known.canonical(str(tree / "X.py")) == "file://Feature/x.py"
    assert known.canonical("custom://Deploy") == "custom://Deploy"
    assert known.elsewhere("x.py") == [("Feature", "file://Feature/x.py")]
    assert canonical(repo, "README.md") == "README.md"


def test_folding_case_twice_equals_folding_it_once(repo: Path):
    known = spaces(repo, folds=True)
    for start in range(0x20, 0x30000, 0x40):
        text = "".join(chr(code) for code in range(start, start + 0x40) if chr(code).isalpha())
        for accent in ("", "\u0301", "\u0345"):
            if text:
                once = known.canonical(f"a{text}{accent}")
                assert known.canonical(once) == once


def test_case_folding_is_detected_without_writing(repo: Path, home: Path):
    empty = folder(home / "empty")
    before = sorted(repo.iterdir())
    sensitive = not Path(str(home).swapcase()).exists() and not (repo / ".GIT").exists()
    assert [folds_case(str(place)) for place in (repo, empty, home / "gone")] == [not sensitive] * 3
    assert (sorted(repo.iterdir()), list(empty.iterdir())) == (before, [])
    (empty / "a").touch()
    if sensitive:
        os.link(empty / "a", empty / "A")
        assert not folds_case(str(empty))


def test_one_name_in_two_normal_forms_is_one_resource(home: Path):
    start = folder(repository(home / unicodedata.normalize("NFD", "caf\u00e9")) / "e\u0301")
    assert canonical(start, "e\u0301.md") == canonical(start, "\u00e9.md") == "\u00e9/\u00e9.md"
    assert canonical(start, unicodedata.normalize("NFC", str(home / "caf\u00e9/x"))) == "x"


NO_NAME = ["", " ", "a\0b", "a\nb", "\ud800", " a", "a ", "./ a", "a\u202eb", "file://main/\0", "file://main/\udcff"]
NO_PATH = ["file://", "file:///", "http://x", "custom://", "://"]
TOO_LONG = ["x" * 513, "a/" * 10_000, "/a" * 10_000, "file://main" + "/a" * 10_000, "\u00e9" * 100_000]


@pytest.mark.parametrize("text", [*NO_NAME, *NO_PATH, *TOO_LONG], ids=lambda text: ascii(text[:20]))
def test_hostile_paths_are_refused_in_one_line(repo: Path, text: str):
    refusal(spaces(repo), text)


def test_long_and_unusual_names_are_accepted(repo: Path):
    for text in ("a/" * 256, "x" * 512, "my file.py", "a%b", "\u540d\u524d/\U0001f600.md", "-x", "a:b", "...", "a..b"):
        assert canonical(repo, text) == text
    assert "512" in refusal(spaces(folder(repo / "deep")), "x" * 508)


def test_link_to_an_unnameable_file_is_refused(repo: Path):
    link(repo / "raw", os.fsdecode(b"\xff"))
    link(repo / "line", "a\nb")
    assert "surrogate" in refusal(spaces(repo), "raw")
    assert "control" in refusal(spaces(repo), "line/x")


@pytest.fixture(scope="module")
def crooked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with links of every kind and a worktree inside."""
    repo = repository(tmp_path_factory.mktemp("crooked") / "repo")
    worktree(repo, "a/tree")
    for name, target in [
        ("link", "a"),
        ("b", "link/x"),
        ("out", "/etc"),
        ("up", ".."),
        ("loop", "loop"),
        ("self", "."),
    ]:
        link(repo / name, target)
        link(repo / "a/tree" / name, target)
    link(repo / "back", repo / "a/tree/link")
    return repo


folders = ["a", "b", "x", "tree", "link", "out", "up", "loop", "self", "back", "repo", "etc", ".", ".."]
others = ["file://", "main", "custom://", "C:", " ", "%2F", "\u00e9", "e\u0301", "\u00df", "\ud800", "\0"]
pieces = st.sampled_from([*folders, *others, "/", "/", "/", "\\"])
places = st.sampled_from(["", "{root}/", "{root}/../", "file://main/", "file://tree/", "file://{root}/", "/"])


@settings(max_examples=400, deadline=None)
@given(place=places, path=st.lists(pieces, max_size=9).map("".join) | st.lists(pieces, max_size=5).map("/".join))
def test_canonical_path_name_is_stable(crooked: Path, place: str, path: str):
    known = spaces(crooked)
    try:
        once = known.canonical(place.replace("{root}", str(crooked)) + path)
    except ValueError:
        return
    assert known.canonical(once) == once == resource.canonical(once)


# --- names that protect nothing


@pytest.fixture
def files(repo: Path) -> Path:
    """A repository with a.py, src/parser.py and the folder app/[id]/."""
    for name in ("a.py", "src/parser.py", "app/[id]/page.tsx"):
        folder((repo / name).parent)
        (repo / name).touch()
    return repo


@pytest.mark.parametrize(
    "text",
    [
        *("a.py, b.py", "a.py,b.py", "a.py; b.py", "./a.py, ./b.py", "src/parser.py, a.py", "src/, app/"),
        *("a.py:10, b.py", "file://main/a.py, b.py"),
    ],
)
def test_list_of_paths_is_refused_where_its_first_part_exists(files: Path, text: str):
    with pytest.raises(ValueError, match=r"^must be one file; .* also$"):
        spaces(files).claimable(text)
    with pytest.raises(ValueError, match="also"):
        spaces(files).claimable(f"{files}/{text}" if "://" not in text else text)


@pytest.mark.parametrize("lines", [":10-20", ":10", "#L10", "#L10-L20", "#L10-20", ":10:5", ":L10-L20", "#L1C2-L3C4"])
def test_line_range_is_refused_where_its_file_exists(files: Path, lines: str):
    for known, name in (
        (spaces(files), "src/parser.py"),
        (spaces(files), f"{files}/src/parser.py"),
        (spaces(files / "src"), "parser.py"),
        (spaces(files), "file://main/src/parser.py"),
    ):
        with pytest.raises(ValueError, match=r"^must be a whole file"):
            known.claimable(name + lines)
        assert known.claimable(name) == "src/parser.py"


@pytest.mark.parametrize("text", ["new.py, b.py", "new.py:10", "new.py#L10", "#L10", "app/[id]/page.tsx", "a.py, b.py"])
def test_existing_path_that_resembles_a_list_or_line_range_is_accepted(files: Path, text: str):
    (files / "a.py, b.py").touch()
    assert spaces(files).claimable(text) == text


def test_list_or_line_range_is_looked_up_in_its_worktree(files: Path):
    tree = worktree(files, "../one")
    known = spaces(files)
    assert known.claimable("file://one/a.py, b.py") == "file://one/a.py, b.py"
    (tree / "a.py").touch()
    with pytest.raises(ValueError, match="also"):
        known.claimable("file://one/a.py, b.py")
    with pytest.raises(ValueError, match="also"):
        spaces(tree).claimable("a.py, b.py")


def test_no_file_is_looked_up_without_a_workspace(home: Path):
    (plain := folder(home / "plain")).joinpath("a.py").touch()
    assert spaces(plain).claimable("a.py, b.py") == "a.py, b.py"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("src/*.py", "trailing slash"),
        ("custom:merge", "custom://merge"),
        ("custom//deploy", "custom://merge"),
        ("custom:/x", "custom://merge"),
        ("a\u3164.py", "U+3164 HANGUL FILLER"),
        ("a\u200b.py", "U+200B ZERO WIDTH SPACE"),
        ("./", "a file or a folder"),
    ],
)
def test_name_that_protects_nothing_is_refused_in_a_workspace(files: Path, text: str, reason: str):
    with pytest.raises(ValueError, match=re.escape(reason)):
        spaces(files).claimable(text)


def test_folders_above_a_workspace_may_have_any_name(home: Path):
    root = repository(home / "what? ❤\ufe0f")
    known = spaces(root)
    assert known.claimable(f"{root}/src/a.py") == known.claimable("src/a.py") == "src/a.py"
    with pytest.raises(ValueError, match="VARIATION SELECTOR-16"):
        known.claimable("❤\ufe0f.py")


def test_existing_claims_keep_their_names_in_a_workspace(files: Path):
    for name in ("src/*.py", "custom:merge", "a.py, b.py", "src/parser.py:10-20", "a\u3164.py"):
        assert spaces(files).canonical(name) == name


@pytest.mark.parametrize("text", ["merge", "./merge", "feature/login", "gone/deep/", "gone/a.py", "file://main/merge"])
def test_path_is_missing_where_its_folder_is_or_where_it_is_a_bare_word(files: Path, text: str):
    known = spaces(files)
    assert known.is_missing(known.canonical(text), text)


@pytest.mark.parametrize(
    "text",
    [
        "src",
        "src/",
        "src/new.py",
        "new.py",
        ".env",
        "a.py",
        "new/",
        "custom://merge",
        "app/[id]/new.tsx",
        "src/parser.py",
    ],
)
def test_existing_or_planned_path_is_not_missing(files: Path, text: str):
    known = spaces(files)
    assert not known.is_missing(known.canonical(text), text)


def test_bare_word_is_missing_wherever_it_is_read_from(files: Path):
    known = spaces(files / "src")
    assert known.canonical("merge") == "src/merge"
    assert known.is_missing("src/merge", "merge")
    assert not known.is_missing("src/merge", "src/merge")
    assert not known.is_missing("src/parser.py", "parser.py")


def test_no_path_is_missing_without_or_outside_a_workspace(home: Path, files: Path):
    assert not spaces(folder(home / "plain")).is_missing("merge", "merge")
    assert not spaces(files).is_missing("file://gone/merge", "merge")
    assert not spaces(files).is_missing("/etc/merge", "/etc/merge")


def test_path_in_one_of_the_worktrees_that_share_names_is_not_missing(files: Path):
    tree = worktree(files, "../one")
    folder(tree / "feature")
    known = spaces(files, across=True)
    assert not known.is_missing("feature/login", "feature/login")
    assert known.is_missing("gone/login", "gone/login")


# --- files whose names cannot be claimed, and names whose folder is gone

ODD = [
    "\u26a0\ufe0f notes.md",
    "Screenshot 9.41\u202fAM.png",
    "a\nb.py",
    os.fsdecode(b"caf\xe9.py"),
    "a\\b.py",
    " a ",
    "*",
]


@pytest.mark.parametrize("name", ODD, ids=ascii)
@pytest.mark.parametrize("folds", [False, True])
def test_file_has_one_name_from_wherever_it_is_named(repo: Path, name: str, folds: bool):
    path = folder(repo / "docs") / name
    path.touch()
    known = spaces(repo, folds=folds)
    resource = known.file(str(path))
    assert resource is not None
    assert resource.startswith("docs/")
    assert resource == spaces(repo).file(str(path)).casefold() if folds else resource
    for spelled in (resource, known.shown(resource), spaces(repo / "docs").shown(resource)):
        assert known.canonical(spelled) == known.claimable(spelled) == resource
    if "\\" not in name:  # which separates folders in what agents write
        assert known.canonical(f"docs/{name}") == resource
        assert spaces(repo / "docs", folds=folds).canonical(name) == resource
    if name in ODD[:4]:
        with pytest.raises(ValueError, match="must"):
            known.claimable(f"docs/{name}")


def test_file_is_named_like_what_an_agent_claims_wherever_that_is_allowed(files: Path):
    worktree(files, "../tree")
    link(files / "self", ".")
    known = spaces(files)
    for text in ("a.py", "self/src/parser.py", "app/[id]/page.tsx", "new/a%20b.md", "x" * 250, "e\u0301.md", "src/"):
        for root in (files, files.parent / "tree"):
            assert known.file(f"{root}/{text}") == known.claimable(f"{root}/{text}")
    assert known.file(str(files.parent / "elsewhere")) is None
    with pytest.raises(ValueError, match="must name a file"):
        known.file(f"{files}/")


def test_rules_apply_to_files_that_cannot_be_claimed_as_they_are_called(repo: Path):
    for name in (*ODD, "p" * 200 + "/" + "q" * 200 + "/" + "r" * 200):
        located = spaces(repo).located(f"{repo}/docs/{name}")
        assert located is not None
        assert located[1] == f"docs/{name}"


def test_name_in_a_removed_worktree_can_be_looked_up_and_not_claimed(repo: Path):
    worktree(repo, "../tree")
    known = spaces(repo)
    assert not known.is_gone("file://tree/a.py")
    git(repo, "worktree", "remove", "../tree")
    for name in ("file://tree/a.py", "file://tree/src/", "file://tree/caf%e9.py"):
        assert known.canonical(name) == name
        assert known.is_gone(name)
    assert "a known workspace (main)" in refusal_to_claim(known, "file://tree/a.py")
    docs = spaces(repo, f"docs={folder(repo.parent / 'docs')}").canonical(str(repo.parent / "docs" / "a.md"))
    assert known.canonical(docs) == docs == "file://docs/a.md"
    assert not any(map(known.is_gone, ("a.py", "file://main/a.py", "custom://x", "file://tree", "file:///tree/a.py")))


@pytest.mark.parametrize("entry", ["bare folder", "broken pointer", "rubbish", "without a store"])
def test_folder_that_is_no_repository_with_a_store_is_a_part_of_the_one_around_it(repo: Path, entry: str):
    nested = folder(repo / "lib")
    match entry:
        case "bare folder":
            folder(nested / ".git")
        case "broken pointer":
            (nested / ".git").write_text("gitdir: ../gone\n")
        case "rubbish":
            (nested / ".git").write_bytes(b"\0\xff")
        case _:
            repository(nested)
    assert not spaces(repo).is_nested("lib/a.py")
    assert canonical(repo, "lib/a.py") == "lib/a.py"


def test_file_of_a_repository_with_a_store_inside_another_is_recognised(repo: Path):
    (folder(repository(repo / "lib") / ".git/holdlog") / "state.db").touch()
    assert all(map(spaces(repo).is_nested, ("lib/a.py", "lib/src/", "lib/src/a.py")))
    assert not any(map(spaces(repo).is_nested, ("lib", "lib.py", "src/a.py", "custom://lib/a")))
