"""What a git command does to uncommitted work, and what an agent is shown about it. test_git_commands.py compares with
real git."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from holdlog.adapters.hooks.dirty import list_stash, parse_config
from holdlog.adapters.hooks.git import GitAction, concerns, read_git
from holdlog.adapters.hooks.guard import OthersWork, judge
from holdlog.adapters.hooks.tools import GitCommand

KINDS = {"staged": "s", "changed": "c", "untracked": "u", "ignored": "i"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A worktree with src/a.py, src/app/[id]/page.py and lib/b.py."""
    root = tmp_path / "r"
    for path in ("src/a.py", "src/app/[id]/page.py", "lib/b.py", ".git/HEAD"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x\n")
    return root


def read(text: str, folder: Path, config: Mapping[str, str] = {}) -> list[GitAction]:
    """`?` in the text is a word that only a shell knows."""
    words = (None if word == "?" else word for word in shlex.split(text)[1:])
    return list(read_git(GitCommand(tuple(words), str(folder)), lambda name: config.get(name, "")))


def brief(action: GitAction) -> str:
    """Effect, kinds, limits and what is named, as one line."""
    if action.is_unknown:
        return "unknown"
    kinds = "".join(sorted(KINDS[kind] for kind in action.kinds))
    named = [Path(name).name for name in action.names]
    parts = [action.effect, kinds, *action.pathspecs, *(f"={name}" for name in named)]
    parts += [action.stash, f"worktree:{action.worktree}" * bool(action.worktree)]
    return " ".join(filter(None, parts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git", []),
        ("git status", []),
        ("git -C src", []),
        ("git --version", []),
        ("git log -p -- src/a.py", []),
        ("git stash", ["discards cs"]),
        ("git stash -u", ["discards csu"]),
        ("git stash push -m x -- src/a.py", ["discards cs src/a.py"]),
        ("git stash push -k", ["discards c"]),
        ("git stash -S", ["discards s"]),
        ("git stash list", []),
        ("git stash drop", ["discards stash@{0}"]),
        ("git stash drop 2", ["discards stash@{2}"]),
        ("git stash pop refs/stash@{1}", ["discards stash@{1}", "unknown"]),
        ("git stash branch b stash@{3}", ["discards stash@{3}", "unknown"]),
        ("git stash drop stash@{yesterday}", ["unknown"]),
        ("git stash clear", ["discards *"]),
        ("git update-ref -d refs/stash", ["discards *"]),
        ("git reflog delete stash@{1} HEAD@{2}", ["discards *"]),
        ("git reflog expire --expire=now --all", ["discards *"]),
        ("git reflog expire -n --all", []),
        ("git reflog", []),
        ("git reflog show stash", []),
        ("git reset --hard", ["discards cs"]),
        ("git reset --hard HEAD~1", ["discards cs"]),
        ("git reset --merge", ["discards s"]),
        ("git reset --keep HEAD~1", ["discards s", "moves csu"]),
        ("git reset", ["moves s"]),
        ("git reset src", ["moves s src"]),
        ("git reset HEAD~1", ["moves csu"]),
        ("git checkout src/a.py", ["discards c src/a.py =a.py"]),
        ("git checkout src", ["discards c src"]),
        ("git checkout -- src/gone.py", ["discards c src/gone.py =gone.py"]),
        ("git checkout HEAD~2 src/a.py", ["discards cs HEAD~2 src/a.py =a.py"]),
        ("git checkout 'src/app/[id]/page.py'", ["discards c src/app/[id]/page.py =page.py"]),
        ("git checkout 'src/*.py'", ["discards c src/*.py"]),
        ("git checkout main", ["moves csu", "discards c main"]),
        ("git checkout -b new", []),
        ("git checkout -f main", ["discards cs"]),
        ("git checkout", []),
        ("git switch main", ["moves csu"]),
        ("git switch --disc main", ["discards cs"]),
        ("git restore src/a.py", ["discards c src/a.py =a.py"]),
        ("git restore --staged src/a.py", ["moves s src/a.py"]),
        ("git restore --staged --worktree src/a.py", ["discards cs src/a.py =a.py"]),
        ("git restore -s HEAD~1 src", ["discards cs src"]),
        ("git clean -fd", ["discards u"]),
        ("git clean -n", []),
        ("git clean -d", []),
        ("git clean -fdX", ["discards i"]),
        ("git clean -fdx -e .env", ["discards iu :(exclude,top,glob)**/.env :(exclude,top,glob)**/.env/**"]),
        ("git rm -f src/a.py", ["discards cs src/a.py =a.py"]),
        ("git rm -r src", ["discards src =src"]),
        ("git rm --cached src/a.py", ["includes cs src/a.py"]),
        ("git mv src/a.py b.py", ["discards cs src/a.py b.py =a.py =b.py"]),
        ("git mv src/a.py lib", ["discards cs src/a.py lib/a.py =a.py =a.py"]),
        (
            "git mv src/a.py 'src/app/[id]/page.py'",
            ["discards cs src/a.py src/app/[id]/page.py =a.py =page.py"],
        ),
        ("git mv src s", ["discards cisu src s/ =src =s"]),
        ("git add -A", ["includes cu"]),
        ("git add src/a.py", ["includes cu src/a.py"]),
        ("git add -n .", []),
        ("git stage -u", ["includes c"]),
        ("git commit -m x", ["includes s"]),
        ("git commit -am x", ["includes cs"]),
        ("git commit -m -a", ["includes s"]),
        ("git commit --only -m x -- src/a.py", ["includes cs src/a.py"]),
        ("git commit -im x src/a.py", ["includes s", "includes c src/a.py"]),
        ("git commit --dry-run -a", []),
        ("git merge main", ["moves csu"]),
        ("git merge --abort", ["discards s"]),
        ("git rebase --abort", ["discards cs"]),
        ("git rebase --continue", ["includes s"]),
        ("git rebase --quit", []),
        ("git rebase -x 'make test' main", ["moves csu", "unknown"]),
        ("git pull --autostash", ["discards cs"]),
        ("git -c rebase.autoStash=true pull -r", ["discards cs"]),
        ("git -c rebase.autostash pull", ["moves csu"]),
        ("git worktree remove ../w", ["discards worktree:../w"]),
        ("git worktree list", []),
        ("git branch -D a b", []),
        ("git commit --pathspec-from-file=list -m x", ["includes cs"]),
    ],
)
def test_effects_of_a_git_command_are_read_off_its_words(text: str, expected: list[str], folder: Path) -> None:
    assert [brief(action) for action in read(text, folder)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git ?", ["unknown"]),
        ("git -C ? stash", ["unknown"]),
        ("git add ?", ["unknown"]),
        ("git add src ?", ["includes cu src", "unknown"]),
        ("git add ':!src' ?", ["unknown"]),
        ("git commit -m ?", ["includes s"]),
        ("git commit -am ?", ["includes cs"]),
        ("git commit -m x ?", ["unknown"]),
        ("git stash push -m ?", ["discards cs"]),
        ("git stash save ?", ["discards cs"]),
        ("git stash drop ?", ["unknown"]),
        ("git reset --hard ?", ["discards cs"]),
        ("git reset ?", ["unknown"]),
        ("git checkout ?", ["unknown"]),
        ("git checkout -- ?", ["unknown"]),
        ("git checkout ? -- src/a.py", ["discards cs src/a.py =a.py"]),
        ("git checkout -b ?", ["unknown"]),
        ("git restore ? src/a.py", ["discards c src/a.py =a.py", "unknown"]),
        ("git clean ?", ["unknown"]),
        ("git clean -fd ?", ["unknown"]),
        ("git rm -f ?", ["unknown"]),
        ("git mv src/a.py ?", ["discards =a.py", "unknown"]),
        ("git worktree remove ?", ["unknown"]),
        ("git submodule update --force ?", ["unknown"]),
        ("git log ?", []),
    ],
)
def test_words_that_only_a_shell_knows_are_reported_and_never_denied(
    text: str, expected: list[str], folder: Path
) -> None:
    assert [brief(action) for action in read(text, folder)] == expected


@pytest.mark.parametrize(
    ("alias", "text", "expected"),
    [
        ("checkout -f", "git co main", ["discards cs"]),
        ("!git reset --hard", "git co", ["unknown"]),
        ("'unclosed", "git co", ["unknown"]),
        ("co", "git co", ["unknown"]),
        ("status", "git CO", []),
    ],
)
def test_aliases_are_what_they_stand_for(alias: str, text: str, expected: list[str], folder: Path) -> None:
    assert [brief(action) for action in read(text, folder, {"alias.co": alias})] == expected


def test_settings_of_the_repository_count_unless_the_command_has_others(folder: Path) -> None:
    config = {"rebase.autostash": "true", "pull.rebase": "true", "clean.requireforce": "false"}
    assert [brief(action) for action in read("git pull", folder, config)] == ["discards cs"]
    assert [brief(action) for action in read("git -c rebase.autostash=no pull", folder, config)] == ["moves csu"]
    assert [brief(action) for action in read("git pull --no-rebase", folder, config)] == ["moves csu"]
    assert [brief(action) for action in read("git clean -d", folder, config)] == ["discards u"]


def test_global_options_select_folder_and_repository(folder: Path) -> None:
    (action,) = read("git -P -C src -C app --git-dir=../../.git --work-tree ../.. -c a.b=c add -A", folder)
    assert action.folder == str(folder / "src/app")
    assert action.options == ("--git-dir=../../.git", "--work-tree=../..")
    (action,) = read("git -c core.worktree=/w --literal-pathspecs -C /x add -A", folder)
    assert (action.folder, action.options) == ("/x", ("-c", "core.worktree=/w", "--literal-pathspecs"))


def test_named_paths_are_absolute(folder: Path) -> None:
    (action,) = read("git -C src checkout -- a.py ../lib/b.py", folder)
    assert action.names == (str(folder / "src/a.py"), str(folder / "lib/b.py"))


def test_worktree_that_exists_is_an_absolute_path(folder: Path) -> None:
    (action,) = read("git -C src worktree remove --force ../lib", folder)
    assert action.worktree == str(folder / "lib")


@pytest.mark.parametrize(
    "text",
    [
        *("git undo", "git stash apply", "git stash x", "git diff --output=src/a.py", "git log --outp src/a.py"),
        *("git archive -o src/a.py HEAD", "git merge-file src/a.py lib/b.py lib/b.py", "git sparse-checkout set src"),
        *("git read-tree -u --reset HEAD", "git checkout-index -fa", "git update-index --add src/a.py"),
        *("git symbolic-ref HEAD refs/heads/b", "git filter-branch -f", "git bisect start HEAD HEAD~1"),
        *("git bisect run make -n", "git update-ref -d refs/heads/b"),
        *("git submodule update", "git submodule deinit lib", "git submodule foreach git reset --hard"),
        *("git reflog expire --expire=now HEAD", "git svn rebase"),
    ],
)
def test_rare_commands_are_compared_afterwards(text: str, folder: Path) -> None:
    assert [brief(action) for action in read(text, folder)] == ["unknown"]


@pytest.mark.parametrize(
    "text",
    [
        *("git worktree add ../w", "git bisect log", "git submodule status", "git submodule", "git -C src reflog -3"),
        *("git branch new", "git stash list", "git switch", "git rm -n src/a.py", "git am --show-current-patch"),
    ],
)
def test_commands_that_only_look_or_add_are_silent(text: str, folder: Path) -> None:
    assert read(text, folder) == []


@pytest.mark.parametrize(
    ("text", "is_compared"),
    [
        ("git reset --hard --recurse-submodules", True),
        ("git -c submodule.recurse=true checkout -f main", True),
        ("git switch -f --recurse-submodules main", True),
        ("git restore --recurse-submodules .", True),
        ("git checkout --recurse-submodules -- .", True),
        ("git submodule update --force --depth 1 lib", True),
        ("git submodule deinit -f --all", True),
        ("git clean -ffd", True),
        ("git -c submodule.recurse=true reset --hard --no-recurse-submodules", False),
        ("git -c submodule.recurse=true stash", False),
        ("git restore .", False),
        ("git clean -fd", False),
    ],
)
def test_what_commands_do_to_the_repositories_inside_is_compared_afterwards(
    text: str, is_compared: bool, folder: Path
) -> None:
    assert any(action.is_unknown for action in read(text, folder)) is is_compared


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        ("M ", "git commit -m x", True),
        (" M", "git commit -m x", False),
        ("MM", "git commit -m x", True),
        ("UU", "git checkout .", True),
        ("AA", "git stash", True),
        ("AA", "git checkout HEAD .", True),
        ("A ", "git checkout HEAD .", True),
        ("??", "git stash", False),
        ("??", "git add .", True),
        ("!!", "git clean -fd", False),
        ("!!", "git clean -fdx", True),
    ],
)
def test_letters_of_git_status_show_whether_a_command_concerns_a_file(
    status: str, text: str, expected: bool, folder: Path
) -> None:
    assert concerns(read(text, folder)[0], status) == expected


def work(path: str, agent: str = "ann", seconds: float = 250, is_live: bool = True) -> OthersWork:
    return OthersWork(path, agent, seconds, is_live)


def shown(text: str, works: Sequence[OthersWork], own: Sequence[str], folder: Path) -> tuple[bool, str]:
    judgement = judge(read(text, folder)[0], works, own)
    assert judgement is not None
    return judgement


@pytest.mark.parametrize("text", ["git stash", "git add -A", "git switch main", "git commit -m x"])
def test_command_that_concerns_no_other_session_runs_silently(text: str, folder: Path) -> None:
    assert judge(read(text, folder)[0], [], ["a.py"]) is None


def test_denial_names_files_owners_durations_and_what_the_agent_may_take(folder: Path) -> None:
    works = [work(str(folder / "src/a.py")), work("b.py", "bob", 7), work("c.py", "bob", 9000), work("d.py", "eve")]
    denies, text = shown("git -C src stash", works, [str(folder / "own/x y.py")], folder)
    assert denies
    assert text == (
        "holdlog: git stash would take away work of another session: a.py (ann, for 4 min), b.py (bob, for 7 s),"
        " c.py (bob, for 2.5 h) and 1 more. Name only your own files: ../own/x y.py (holdlog claims --dirty lists all)."
        " A person can run this in a terminal."
    )


def test_denied_commit_names_the_command_that_commits_the_files_of_the_agent(folder: Path) -> None:
    denies, text = shown("git commit -am x", [work("a.py")], ["b.py", "it's.py"], folder)
    assert denies
    assert "Run `holdlog commit -m …` instead" in text


def test_of_many_files_of_the_agent_a_few_are_named(folder: Path) -> None:
    own = [f"own/{number}.py" for number in range(100)]
    for command in ("git add -A", "git clean -fd"):
        text = shown(command, [work("a.py")], own, folder)[1]
        assert "Name only your own files: own/0.py, own/1.py, own/2.py and 97 more (holdlog claims --dirty" in text
    assert "Restore only your own files: own/0.py" in shown("git reset --hard", [work("a.py")], own, folder)[1]


def test_denied_command_over_an_entry_of_the_stash_leaves_it_to_its_session(folder: Path) -> None:
    assert " Leave it to that session. " in shown("git stash drop", [work("stash@{0}")], [], folder)[1]


def test_denial_without_own_changes_recommends_no_command(folder: Path) -> None:
    text = shown("git checkout -- .", [work("a.py")], [], folder)[1]
    assert text.endswith(" It concerns no change of yours. A person can run this in a terminal.")


def test_denied_change_of_branch_recommends_a_worktree(folder: Path) -> None:
    text = shown("git checkout -f feature/x", [work("a.py")], ["b.py"], folder)[1]
    assert "Work in a folder of your own: git worktree add." in text


def test_move_of_head_below_the_work_of_others_warns(folder: Path) -> None:
    denies, text = shown("git switch main", [work("a.py")], [], folder)
    assert not denies
    assert text == (
        "holdlog: git switch runs below uncommitted work of another session: a.py (ann, for 4 min)."
        " Work in a folder of your own: git worktree add."
    )


def test_files_of_ended_sessions_never_deny(folder: Path) -> None:
    ended = work("a.py", is_live=False)
    assert judge(read("git stash", folder)[0], [ended], ["b.py"]) is None
    assert judge(read("git switch main", folder)[0], [ended], ["b.py"]) is None
    assert shown("git add -A", [ended], ["b.py"], folder) == (
        False,
        "holdlog: git add --all takes in changes of an ended session: a.py (ann, for 4 min).",
    )
    denies, text = shown("git add -A", [ended, work("c.py", "bob")], ["b.py"], folder)
    assert denies
    assert "a.py" not in text


def test_texts_show_names_short_and_printable(folder: Path) -> None:
    works = [work(f"{'x' * 200}\n.py", "\x1b[31m" + "y" * 200, -5)]
    text = shown("git stash", works, ["own.py", "new\nline.py"], folder)[1]
    assert text.isprintable()
    assert f"{'x' * 80}… (?[31m{'y' * 75}…, for 0 s)" in text
    assert "new?line.py" in text or "own.py" not in text


@pytest.mark.parametrize(
    "text", ["git stash", "git commit -am x", "git clean -fdx", "git add -A", "git checkout HEAD ."]
)
def test_denials_are_short(text: str, folder: Path) -> None:
    works = [work(f"src/{'deep/' * 8}{number}.py", f"claude-{number}") for number in range(40)]
    own = [f"own/{'deep/' * 8}{number}.py" for number in range(40)]
    assert len(shown(text, works, own, folder)[1]) <= 400


def test_log_of_the_stash_lists_its_entries_newest_first() -> None:
    log = f"{'0' * 40} {'a' * 40} A <a@b> 1 +0000\tWIP on main: x\n{'a' * 40} {'b' * 40} A <a@b> 2 +0000\tOn main: y\n"
    assert list_stash(log) == [("b" * 40, 2.0), ("a" * 40, 1.0)]
    assert list_stash("") == []


def test_settings_are_known_by_lower_case_names() -> None:
    output = b"core.bare\nfalse\0alias.Co\ncheckout -f\nx\0rebase.autoStash\0core.bare\ntrue\0"
    assert parse_config(output) == {"core.bare": "true", "alias.co": "checkout -f\nx", "rebase.autostash": "true"}
