"""What `read_shell` calls certain is what a real bash changes, over random commands."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.hooks.shell import ShellReading, read_shell

FILES = ["a.txt", "b.txt", "two words.txt", "src/a.txt", "src/b.txt", "src/deep/c.txt", "out/a.txt"]
FOLDERS = [".", "src", "src/deep", "out"]


class Commands:
    """Random commands over a small tree."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bodies: list[str] = []

    def script(self) -> str:
        lines = []
        for _ in range(self.random.randint(1, 3)):
            line = self.statement(self.random.randint(0, 3))
            lines.append("\n".join([line, *self.bodies]))
            self.bodies = []
        return "\n".join(lines)

    def quote(self, name: str) -> str:
        forms = [f"'{name}'", f'"{name}"', name.replace(" ", "\\ ")]
        if " " not in name:
            forms += [name, f"./{name}", f"{name[:1]}'{name[1:]}'", f"$PWD/{name}", f"$'{name}'", f"src/../{name}"]
        return self.random.choice(forms)

    def file(self) -> str:
        name = self.random.choice(FILES)
        return self.quote(
            name if self.random.random() < 0.7 else self.random.choice([os.path.basename(name), "new.txt"])
        )

    def files(self) -> str:
        choice = self.random.random()
        if choice < 0.15:
            return self.random.choice(
                ["*.txt", "src/*.txt", "?.txt", "[ab].txt", "{a,b}.txt", "src/{a,b}.txt", "$V", '"$V"']
            )
        return " ".join(self.file() for _ in range(1 if choice < 0.7 else 2))

    def folder(self) -> str:
        return self.quote(self.random.choice(FOLDERS))

    def body(self, start: str) -> str:
        self.bodies += ["it's a 'text' > a.txt", "END"]
        return f"{start} <<'END'"

    def simple(self) -> str:
        forms = [
            lambda: f"rm {self.files()}",
            lambda: f"rm -rf {self.files()} {self.folder()}/deep",
            lambda: f"mv {self.file()} {self.file()}",
            lambda: f"mv {self.files()} {self.folder()}",
            lambda: f"cp {self.file()} {self.file()}",
            lambda: f"cp -t {self.folder()} {self.files()}",
            lambda: f"cp -r {self.folder()} {self.folder()}",
            lambda: f"sed -i s/x/y/ {self.files()}",
            lambda: f"sed -i.bak -e 's/(x)/y/' {self.file()}",
            lambda: f"sed s/x/y/ {self.files()}",
            lambda: f"perl -pi -e 's/x/$1/' {self.files()}",
            lambda: f"echo x > {self.file()}",
            lambda: f"printf 'a > b' >> {self.file()}",
            lambda: f"> {self.file()} echo x 2>&1",
            lambda: f"head -c 9 {self.file()} 2>/dev/null | tee {self.file()} >/dev/null",
            lambda: self.body(f"cat > {self.file()}"),
            lambda: self.body("cat") + f" > {self.file()}",
            lambda: self.body(f"tee {self.file()}"),
            lambda: self.body("cat") + f" | tee {self.files()}",
            lambda: f"tee {self.file()} <<< 'x'",
            lambda: f"truncate -s 0 {self.files()}",
            lambda: f"touch {self.file()}",
            lambda: f"install {self.file()} {self.file()}",
            lambda: f"cat {self.files()}",
            lambda: f"cd {self.folder()}",
            lambda: f"pushd {self.folder()} >/dev/null",
            lambda: "popd",
            lambda: f"mkdir -p {self.folder()}/made",
            lambda: f"V={self.file()}",
            lambda: "find . -name 'a*' -exec rm {} +",
            lambda: f"ls src | xargs -I{{}} cp {{}} {self.folder()}",
            lambda: f"dd if=/dev/null of={self.file()} 2>/dev/null",
            lambda: f"sort -o {self.file()} {self.file()}",
        ]
        return self.random.choice(forms)()

    def statement(self, depth: int) -> str:
        if depth == 0:
            return self.simple()
        one, two = (lambda: self.statement(depth - 1)), (lambda: self.statement(depth - 1))
        forms = [
            lambda: f"{one()} && {two()}",
            lambda: f"{one()} || {two()}",
            lambda: f"{one()}; {two()}",
            lambda: f"({one()}); {two()}",
            lambda: f"{{ {one()}; }} > {self.file()}",
            lambda: f"cd {self.folder()} && {one()}",
            lambda: f"cd {self.folder()} || exit 1; {one()}",
            lambda: f"(cd {self.folder()}; {one()}); {two()}",
            lambda: f"cd {self.folder()} & {one()}",
            lambda: f"if {one()}; then {two()}; else {one()}; fi",
            lambda: f"if ! {self.simple()}; then {two()}; fi",
            lambda: f'for f in {self.files()}; do rm "$f"; {one()}; done',
            lambda: f"for d in src out; do cd $d; {one()}; cd ..; done",
            lambda: f'ls *.txt | while read f; do cp "$f" out; {one()}; done',
            lambda: f"case x in y) {one()};; *) {two()};; esac",
            lambda: f"f() {{ {one()}; }}; {two()}; f",
            lambda: f"f() {{ local V=$1; rm $V; }}; f {self.file()}; {two()}",
            lambda: f"{one()} | {two()}",
            lambda: f"time {one()}",
            lambda: f"X=1 {self.simple()}",
            lambda: f"env X=1 {self.simple()}" if depth else "",
            lambda: f'echo "$({one()})"',
            lambda: f"diff <({self.simple()}) {self.file()}",
            lambda: f"exit 0; {one()}",
            lambda: f"V={self.file()}; {one()}",
            lambda: f"eval '{self.plain()}'; {two()}",
            lambda: f"bash -c '{self.plain()}'; {two()}",
        ]
        return self.random.choice(forms)()

    def plain(self) -> str:
        """A command that single quotes may enclose."""
        while True:
            count = len(self.bodies)
            text = self.simple()
            del self.bodies[count:]
            if "'" not in text and "<<" not in text:
                return text


def state(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def make_tree(root: Path) -> None:
    for name in FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"x {name}\n")


def run(script: str, root: Path) -> tuple[ShellReading, set[str]]:
    """What is read, and what bash changes."""
    make_tree(root)
    reading, before = read_shell(script, str(root)), state(root)
    subprocess.run(["bash", "-c", script], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
    after = state(root)
    return reading, {path for path in {*before, *after} if before.get(path) != after.get(path)}


def is_covered(path: str, reading: ShellReading) -> bool:
    return any(path == certain or path.startswith(f"{certain}/") for certain in reading.paths)


@pytest.mark.check
@pytest.mark.parametrize("seed", range(20))
def test_every_file_that_a_script_changes_is_read_or_reported(seed: int, tmp_path: Path) -> None:
    for number in range(20):
        script = Commands(seed * 1000 + number).script()
        reading, changed = run(script, tmp_path / str(number))
        missing = [path for path in changed if not is_covered(path, reading)]
        assert reading.reports or not missing, script
