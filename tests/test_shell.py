"""What a shell command does to files: what is certain, what is compared afterwards, and what is neither."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdlog.adapters.hooks.shell import MAX_COMMAND, TOO_COMPLEX, TOO_LONG, UNPARSED, read_shell
from holdlog.adapters.hooks.tools import GitCommand

TABLE = Path(__file__).parent / "support" / "shell.txt"
"""Classes and commands."""
CHARACTERS = "(){}[]'\"`$<>|&;#!*?~=\\ \n\té日\x01"
WORDS = re.findall(
    r"\S+", "<< EOF rm a if then fi do done for in case $( $(( (( [[ ]] ${ cd git sed -i <<< <> >& bash eval"
)
GIT_NAMING = ("mv", "rm", "checkout", "restore")
"""Git commands of the tables that name what they change."""


def rows() -> list[tuple[str, str]]:
    lines = [line.split("\t", 1) for line in TABLE.read_text().split("\n") if line[:1] not in ("", "#")]
    return [(kind, text.replace("\\n", "\n").replace("\\t", "\t").replace("\\r\n", "\r\n")) for kind, text in lines]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    for name in ("src/parser.py", "other.py", "fix.diff", "lib/parser.py", "x/parser.py"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x\n")
    (folder / ".git").mkdir()
    return folder


def classify(command: str, root: Path) -> str:
    """As the tables name it, for src/parser.py."""
    held = str(root / "src/parser.py")
    reading = read_shell(command.replace("ROOT", str(root)), str(root))
    assert reading.problem == ""
    named = [str(Path(it.folder, word or "")) for it in reading.git if it.words[0] in GIT_NAMING for word in it.words]
    for path in (*reading.paths, *named):
        if held == path or (held.startswith(f"{path}/") and path != str(root)) or path.startswith(f"{held}/"):
            return "deny"
    return "report" if reading.reports else "none"


@pytest.mark.parametrize("kind", ["deny", "report", "none"])
def test_shell_commands_are_classified_as_in_the_table(kind: str, root: Path) -> None:
    commands = [command for expected, command in rows() if expected == kind]
    assert len(commands) >= 20
    assert {command: found for command in commands if (found := classify(command, root)) != kind} == {}


@pytest.mark.parametrize(
    ("command", "commands"),
    [
        ("git add -A && git commit -m 'a b'", [("add", "-A"), ("commit", "-m", "a b")]),
        ("cd src; git -C .. stash", [("-C", "..", "stash")]),
        ('git commit -m "$(date)"', [("commit", "-m", None)]),
        ("git checkout $BRANCH", [("checkout", None)]),
        ("sudo git clean -fdx; (git reset --hard)", [("clean", "-fdx"), ("reset", "--hard")]),
        ("bash -c 'git reset --hard'", [("reset", "--hard")]),
        (
            "GIT_DIR=a/.git GIT_WORK_TREE=a git reset --hard",
            [("--git-dir", "a/.git", "--work-tree", "a", "reset", "--hard")],
        ),
        ("for b in x y; do git branch -D $b; done", [("branch", "-D", "x"), ("branch", "-D", "y")]),
        ("git ls-files | xargs git add", [("add", None)]),
        ("if git stash; then git pull; git stash pop; fi", [("stash",), ("pull",), ("stash", "pop")]),
        ("git commit -F - <<'EOF'\ngit reset --hard\nEOF", [("commit", "-F", "-")]),
        ("echo git reset --hard; git status", []),
        ('cd "$X" && git reset --hard', [("reset", "--hard")]),
        (
            "git stash pop stash@{0} && git reset --hard HEAD~1",
            [("stash", "pop", "stash@{0}"), ("reset", "--hard", "HEAD~1")],
        ),
        ("export GIT_DIR=.git; git -c a=b stash", [("--git-dir", ".git", "-c", "a=b", "stash")]),
        ("git checkout -- src/*.py 'src/*.py'", [("checkout", "--", "src/parser.py", "src/*.py")]),
        ("find . -exec git checkout -- {} +", [("checkout", "--", None, None)]),
    ],
)
def test_git_commands_are_returned_with_their_words(
    command: str, commands: list[tuple[str | None, ...]], root: Path
) -> None:
    assert [it.words for it in read_shell(command, str(root)).git] == commands


@pytest.mark.parametrize(
    "command",
    [
        *(
            "/usr/bin/git stash",
            "\\git stash",
            "G=git; $G stash",
            'g="git stash"; $g',
            "eval git stash",
            "$(git stash)",
        ),
        *(
            "echo `git stash`",
            'echo "$(git stash)"',
            "X=$(git stash)",
            "diff <(git stash) a",
            "cat <<A\n$(git stash)\nA",
        ),
        *("bash -ec 'git stash'", "bash <<A\ngit stash\nA", "cat <<A | sh\ngit stash\nA", "f() { git stash; }; f"),
        *("env A=b git stash", "sudo -u a git stash", "timeout 5 git stash", "time { git stash; }", "yes | git stash"),
        *("holdlog run --claim a -- git stash", 'env PATH="$X:$PATH" git stash', 'sudo A="$B" git stash'),
        *("if a; then git stash; fi", "case a in b) git stash;; esac", "while a; do git stash; done", "! git stash &"),
        *("trap 'git stash' EXIT", "git stash > log 2>&1", "[[ -n $(git stash) ]]", "if true; then git stash"),
    ],
)
def test_git_command_is_found_wherever_a_shell_runs_it(command: str, root: Path) -> None:
    assert read_shell(command, str(root)).git == (GitCommand(("stash",), str(root)),)


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("git stash", "."),
        ("cd src && git stash", "src"),
        ("(cd src; ls); git stash", "."),
        ('cd src && cd "$(git rev-parse --show-toplevel)" && git stash', "."),
        ('cd "$X" && git stash', "."),
        ("cd nowhere; git stash", "."),
        ("cd x || git status; git stash", "x"),
        ("pushd src; popd; git stash", "."),
        ("cd $(mktemp -d)\ngit stash", "/dev/fd/temporary"),
        ("bash -c 'cd src'; git stash", "."),
        ("env -C src git stash", "src"),
        ("mkdir new; cd new; git stash", "new"),
        ("cd src || exit; git stash", "src"),
        ("for d in src; do (cd $d && git stash); done", "src"),
    ],
)
def test_git_command_runs_in_the_folder_of_the_shell(command: str, folder: str, root: Path) -> None:
    assert read_shell(command, str(root)).git == (GitCommand(("stash",), str(root / folder)),)


@pytest.mark.parametrize("made", ["git worktree add ../new", "git clone http://h/new.git ../new", "mkdir -p ../new"])
def test_folder_that_the_command_itself_makes_is_entered(made: str, root: Path) -> None:
    folder = str(root.parent / "new")
    assert GitCommand(("add", "-A"), folder) in read_shell(f"{made}\ncd ../new; git add -A", str(root)).git


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("mv a b", ["a", "b"]),
        ("mv a b src", ["a", "src/a", "b", "src/b"]),
        ("cp a b src", ["src/a", "src/b"]),
        ("mkdir -p new/deep; mv a new/deep", ["a", "new/deep/a"]),
        ("sed -i.bak s/x/y/ a", ["a", "a.bak"]),
        ("make > log 2>&1 && rm a 2>&-", ["log", "a"]),
        ("rm a 2>&1| cat; mv b c >&2", ["a", "b", "c"]),
        ("rm 'a b' \"c d\" e\\ f g'h'i $'j k'", ["a b", "c d", "e f", "ghi", "j k"]),
        ("rm '*' no*match \"$(ls)\"", ["*"]),
        ("V='a  b'; rm $V \"$V\" '$V'", ["a", "b", "a  b", "$V"]),
        ("rm ~/a", [str(Path.home() / "a")]),
        ("echo a >b c 2>d", ["b", "d"]),
        ("echo x > /dev/null > /dev/tty > /proc/self/x > /dev/shm/a", ["/dev/shm/a"]),
        ("rm src/../a ./b c//d /tmp/../e", ["a", "b", "c/d", "/e"]),
        ("V='a  b'; W=$V; rm \"$W\" x$V", ["a  b", "xa", "b"]),
        ("F='a*'; rm \"$F\" 'b[c]' d\\?", ["a*", "b[c]", "d?"]),
        ("curl -o a http://h/b; dd if=a of=b; sort -o c d", ["a", "b", "c"]),
        ("cat <<A > a; cat <<'B' > b\nrm c\nA\nB\nB\nrm d", ["a", "b", "d"]),
    ],
)
def test_certain_paths_are_absolute_and_in_their_order(command: str, paths: list[str], root: Path) -> None:
    assert list(read_shell(command, str(root)).paths) == [str(root / path) for path in paths]


def test_parent_behind_a_symbolic_link_is_that_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "deep/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/inner")
    assert read_shell("rm link/../a; cd link; cd ..; rm b", str(tmp_path)).paths == (
        str(tmp_path / "deep/a"),
        str(tmp_path / "b"),
    )


def test_commands_that_only_read_do_not_load_the_parser() -> None:
    commands = ["ls", "cat x", "cd src && pytest -q 2>&1 | tail -5", "git status; git diff 'a b'", "grep 'a > b' x"]
    program = f"""import sys
from holdlog.adapters.hooks.shell import read_shell
assert all(read_shell(command, "/")[:4] == ((), (), False, "") for command in {commands})
print("tree_sitter" in sys.modules)
read_shell("rm x", "/")
print("tree_sitter" in sys.modules)"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "True"]


@pytest.mark.parametrize("missing", ["tree_sitter", "tree_sitter_bash"])
def test_missing_parser_is_a_problem_and_the_command_is_reported(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert read_shell("rm x", "/")[:4] == ((), (), True, UNPARSED)
    assert read_shell("ls", "/")[:4] == ((), (), False, "")


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("rm " + "a" * MAX_COMMAND, TOO_LONG),
        ("rm " + "a " * 20_000, TOO_COMPLEX),
        ("(" * 50_000 + "rm a", TOO_COMPLEX),
        ("{ " * 2_000 + "rm a" + "; }" * 2_000, TOO_COMPLEX),
        ("(" * 9_000 + "rm a" + ")" * 9_000, TOO_COMPLEX),
        ("while a; do " * 25 + "rm b" + "; done" * 25, TOO_COMPLEX),
        ("".join(f"v{number}=1 || a;" for number in range(1_500)), TOO_COMPLEX),
        ("(" * 200 + "rm a" + ")" * 200, ""),
        ("echo " + "$(" * 3_000 + "rm a" + ")" * 3_000, TOO_COMPLEX),
        ("eval " * 300 + "rm a", TOO_COMPLEX),
        ("for a in 1 2 3 4 5 6 7 8 9; do " * 5 + "rm a" + "; done" * 5, TOO_COMPLEX),
        ("rm a\0b", TOO_COMPLEX),
        ("$CMD \ud800", ""),
    ],
    ids=range(13),
)
def test_command_that_is_too_much_is_reported_with_its_problem(command: str, problem: str) -> None:
    reading = read_shell(command, "/")
    assert (reading.reports, reading.problem) == (True, problem)


@pytest.mark.parametrize(
    "command",
    [
        "A=a; " + "A=$A$A; " * 22 + "rm $A",
        "A=a; " + 'A="${A}$A"; ' * 22 + "rm $A",
    ],
)
def test_value_that_doubles_again_and_again_is_unclear(command: str) -> None:
    assert read_shell(command, "/work")[:4] == ((), (), True, "")


def test_here_documents_are_not_parsed() -> None:
    command = "cat > a <<'EOF'\n" + "it's \"x $(y\n" * 75_000 + "EOF\nrm b"
    assert read_shell(command, "/")[:4] == (("/a", "/b"), (), False, "")


@pytest.mark.parametrize(
    "command",
    [
        "cat <<A\n" * 100_000,
        "cat <<A\nA\n" * 90_000,
        "a=b;" * 4_000,
        "rm * ;" * 3_000,
        "a|" * 4_500,
        "a|" * 9_000,
        "rm " + "{" * 19_000,
    ],
    ids=range(7),
)
def test_command_is_read_in_linear_time(command: str, tmp_path: Path) -> None:
    started = time.process_time()
    read_shell(command, str(tmp_path))
    assert time.process_time() - started < 2.5  # 0.8 s at most


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        (f"git commit -m '{'word ' * 3_000}' && rm a", ("/a",)),
        (f'echo "{"word " * 3_000}" > a', ("/a",)),
        (f"python3 -c '{'print(1); ' * 1_500}'; rm a", ("/a",)),
        ("".join(f"echo 'line {number} of the file' >> a\n" for number in range(450)), ("/a",)),
        ("cat > a <<'E'\n" + "x | y\n" * 20_000 + "E", ("/a",)),
    ],
    ids=range(5),
)
def test_long_texts_in_quotes_and_here_documents_are_read(command: str, paths: tuple[str, ...]) -> None:
    reading = read_shell(command, "/")
    assert (reading.paths, reading.problem) == (paths, "")


def test_files_beyond_a_limit_are_reported(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number}.txt").touch()
    assert read_shell("rm *.txt a", str(tmp_path))[:4] == ((str(tmp_path / "a"),), (), True, "")
    assert len(read_shell("for f in 1*.txt 2*.txt; do rm $f; done", str(tmp_path)).paths) == 222


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(
        st.sampled_from([*CHARACTERS, *WORDS]),
        max_size=40,
    )
)
def test_whatever_a_command_contains_it_is_read_without_an_error(parts: list[str]) -> None:
    for command in ("".join(parts), " ".join(parts)):
        assert all(path.startswith("/") for path in read_shell(command, "/nowhere").paths)
