"""What is read of shell commands is what a real bash does: a fixed list, each in a folder of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdlog.adapters.hooks.shell import read_shell

COMMANDS = (
    *("echo x > a", "echo x >> b/c", "> a", ": > a; echo > d", "cat a > b/c 2> d", "echo x >| a", "echo x &> a"),
    *(
        "{ echo x; echo y; } > a",
        "(cd b && echo x > c)",
        "cd b && echo x > c",
        "cd b; echo x > c",
        "pushd b; rm c; popd",
    ),
    *(
        "rm a",
        "rm -rf b",
        "rm 'with blank' a",
        "rm b/*",
        "rm [ad]",
        "mv a z",
        "mv a b",
        "mv a 'with blank' b",
        "mv -t b a",
    ),
    *(
        "mv b z",
        "cp d a",
        "cp a b",
        "cp -r b z",
        "cp -r b y",
        "cp -t b d",
        "install -m 644 d z",
        "ln -sf a z",
        "ln -f a d",
    ),
    *("tee a b/c < d > list", "sed -i s/x/z/ a", "sed -i.bak s/x/z/ a b/c", "sed -n 1p a", "sed 's/x/z/w log' a"),
    *("truncate -s 0 a", "dd if=d of=a", "sort -o a d", "mkdir -p z/y && echo x > z/y/w", "touch z", "rm {a,d}"),
    *("F=a; rm $F", "F='with blank'; rm \"$F\"", "F='a d'; rm $F", "for f in a d; do rm $f; done", "rm $NOTHING a"),
    *('for f in b/*; do echo z > "$f"; done', "for d in b y; do (cd $d && echo z > c); done", "f() { rm a; }; f"),
    *("[ -f nothing ] || rm a", 'while read -r f; do rm "$f"; done < list', "xargs rm < list", "echo 'rm a' | bash"),
    *("cat > a <<'E'\nit's $x\nE\nrm d", "cat > a <<E\n$(rm d)\nE", "cat <<A > a; cat <<'B' > d\nrm b\nA\nB\nB"),
    *("bash <<'E'\ncd b\nrm c\nE", "bash -c 'rm \"$1\"' _ a", "eval 'rm a'; echo x > d", "echo `rm a`", "x=$(rm a)"),
    *(
        "diff <(rm a; echo) d",
        "trap 'rm a' EXIT",
        "env F=1 rm a",
        "command rm a",
        "timeout 5 rm a",
        "exec rm a",
        "! rm a",
    ),
    *(
        "echo 'rm a' 'echo > d'",
        "cat a | grep x; wc -c d",
        "rm $'a'",
        "r\\m \\a",
        "perl -pi -e 's/x/z/' a",
        "cat < a > d",
    ),
    "i=0; while [ $i -lt 2 ]; do echo z > f$i; i=$((i + 1)); done",
)
FILES = {"a": "x 1\n", "d": "y 2\n", "with blank": "x 3\n", "b/c": "x 4\n", "y/c": "v 5\n", "list": "a\n"}
NOBODY = 65534


@pytest.fixture
def folders() -> Iterator[Sequence[Path]]:
    """A folder for each command, with files that nobody may change. Root runs no shell commands of a test."""
    with tempfile.TemporaryDirectory() as root:
        names = [Path(root, f"{number:03}") for number in range(len(COMMANDS))]
        for command, folder in zip(COMMANDS, names, strict=True):
            for name, content in FILES.items():
                (folder / name).parent.mkdir(exist_ok=True, parents=True)
                (folder / name).write_text(content)
            folder.with_suffix(".sh").write_text(command)
        if os.getuid() == 0:
            for path in (Path(root), *Path(root).rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield names


def contents(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {str(path): f"-> {path.readlink()}" if path.is_symlink() else path.read_text() for path in paths}


@pytest.mark.check
def test_files_that_a_real_bash_changes_are_named_or_reported(folders: Sequence[Path]) -> None:
    befores = [contents(folder) for folder in folders]
    readings = [read_shell(command, str(folder)) for command, folder in zip(COMMANDS, folders, strict=True)]
    lines = [f"(cd '{it}' && exec timeout 5 bash '{it}.sh') > /dev/null 2>&1 < /dev/null\n" for it in map(str, folders)]
    bash = ["bash", "-c", "".join(lines) + "true"]
    if os.getuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("setpriv is missing: root runs no shell commands here")
        bash = [setpriv, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *bash]
    subprocess.run(bash, check=True)
    wrong = {}
    for command, folder, before, reading in zip(COMMANDS, folders, befores, readings, strict=True):
        after = contents(folder)
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        named = {it: f"{it.rstrip('/')}/" for it in reading.paths}
        missed = {path for path in changed if not any(f"{path}/".startswith(it) for it in named.values())}
        idle = {it for it, start in named.items() if not any(f"{path}/".startswith(start) for path in changed)}
        if (missed and not reading.reports) or idle or reading.problem:
            wrong[command] = (missed, idle, reading)
    assert wrong == {}
    assert sum(not reading.reports for reading in readings) > 60  # most are certain
