"""The changes that `holdlog init` plans to files of others, and how it writes them."""

import difflib
import os
import re
import stat
import subprocess
import tomllib
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdlog.adapters.cli.setup.block import add_block, remove_block
from holdlog.adapters.cli.setup.hosts import HostFile
from holdlog.adapters.cli.setup.json_edit import add, remove
from holdlog.adapters.cli.setup.records import Records, WrittenFile
from holdlog.adapters.operating_system.private import make_private_folder, new_private_file

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file that is edited."""
NEW_MODE: Final = 0o644
_OF_A_GIT_HOOK: Final = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
)
_WORD: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\w+')
_OMITTED: Final = re.compile(r'…[^"\w\n]*…')


class FileEdit(NamedTuple):
    """A file to write. `before`: its text, None if it does not exist. `after`: None removes it. `record`: what
    to note of it for `--undo`; None once nothing of init is left in it."""

    path: Path
    what: str
    before: str | None
    after: str | None
    mode: int = NEW_MODE
    record: WrittenFile | None = None

    def diff(self) -> str:
        """The lines that are removed and added. In a changed line, `…` replaces what stays: it may be a secret."""
        before, after = ((it or "").splitlines() for it in (self.before, self.after))
        shown: list[str] = []
        for _, start, end, new_start, new_end in _changed(before, after):
            old, new = "\n".join(before[start:end]), "\n".join(after[new_start:new_end])
            kept = {*_WORD.findall(old)} & {*_WORD.findall(new)}
            for sign, text in (("-", old), ("+", new)):
                shown += [f"{sign}{line}" for line in _without(kept, text).splitlines()]
        return "\n".join(shown)


class Skipped(NamedTuple):
    """A file that is not written, and why, with what to do instead. One line."""

    path: Path
    why: str


def change_of(file: HostFile, records: Records, undo: bool, tracked: bool) -> FileEdit | Skipped | None:
    """What to do with a file of a host; None if nothing. `tracked`: also change a file that git tracks."""
    try:
        before = read_text(file.path)
        without = _without_ours(file, before or "", records.before(file.path))
        after = None if undo else _with_ours(file, before or "")
    except (OSError, ValueError) as error:
        return Skipped(file.path, f"is left as it is: {_why(error)}; {_by_hand(file, undo)}")
    change = edit_of(records, file.path, file.what, before, without, after)
    if change is not None and not tracked and is_tracked(file.path):
        return Skipped(
            file.path, f"is tracked by git, so it is left as it is: use --tracked, or {_by_hand(file, undo)}"
        )
    return change


def edit_of(
    records: Records,
    path: Path,
    what: str,
    before: str | None,
    without: str,
    after: str | None,
    mode: int = NEW_MODE,
) -> FileEdit | None:
    """The change of a file; None if it stays as it is. `without`: its text without what init adds; `after`: with it,
    None to undo it."""
    if after is None:
        if without == (before or ""):
            return None
        return FileEdit(path, what, before, records.restored(path, before, without))
    if after == (before or ""):
        return None
    return FileEdit(path, what, before, after, mode, WrittenFile(records.original(path, before, without), after))


def read_text(path: Path) -> str | None:
    """The text of a file; None if it does not exist. Raises OSError and ValueError."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    if len(text) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST // 1024 // 1024} MB")
    return text


def toml_server(text: str) -> Any:
    """What a TOML file of a host has for our server; None if nothing. Raises ValueError."""
    servers = tomllib.loads(text.removeprefix("\ufeff")).get("mcp_servers")
    return servers.get("holdlog") if isinstance(servers, dict) else None


def write(change: FileEdit, backups: Path) -> None:
    """Write a file at once, or remove it, and keep its former text in `backups`. Links are followed; the mode stays.
    Raises OSError."""
    path = Path(os.path.realpath(change.path))
    if read_text(path) != change.before:
        raise OSError("it changed meanwhile; run the command again")
    if change.before is not None:
        _keep(path, change.before, backups)
    if change.after is None:
        path.unlink(missing_ok=True)
        return
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else change.mode
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_private_file(path, replaces=True) as file:
        file.write(change.after.encode())
        os.chmod(file.name, mode)


def is_tracked(path: Path) -> bool:
    """Whether git tracks the file, or the one to which it leads."""
    path = Path(os.path.realpath(path))
    folder = next(it for it in path.parents if it.is_dir())
    return git_output(folder, "ls-files", "--error-unmatch", "--", str(path.relative_to(folder))) is not None


def git_output(folder: Path, *words: str) -> str | None:
    """The output of a git command, without its last line break; None if it fails. The folder decides which repository
    it concerns, also inside a git hook."""
    env = {name: value for name, value in os.environ.items() if name not in _OF_A_GIT_HOOK}
    try:
        done = subprocess.run(["git", *words], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    except OSError:
        return None
    return os.fsdecode(done.stdout).removesuffix("\n") if done.returncode == 0 else None


def exclude_lines(root: Path, paths: list[Path]) -> Iterator[str]:
    """Lines for git's exclude file, for those of the files in `root` that git would list as new."""
    for path in paths:
        if git_output(root, "check-ignore", "--quiet", "--", str(path)) is None:
            yield f"/{path.relative_to(root).as_posix()}"


def _changed(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    opcodes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return (it for it in opcodes if it[0] != "equal")


def _without(kept: Set[str], text: str) -> str:
    """The text with `…` for the words that are kept, and for what is between them."""
    text = _WORD.sub(lambda word: "…" if word[0] in kept else word[0], text)
    while (shorter := _OMITTED.sub("…", text)) != text:
        text = shorter
    return text


def _without_ours(file: HostFile, text: str, original: str | None) -> str:
    if file.entries:
        return remove(text, file.entries, original) if text.strip("\ufeff \t\r\n") else text
    return remove_block(text, file.comment, original)


def _with_ours(file: HostFile, text: str) -> str:
    if file.entries:
        return add(text, file.entries)
    is_toml = file.path.suffix == ".toml"
    if is_toml and toml_server(remove_block(text, file.comment)) is not None:
        return text  # a person wrote it
    edited = add_block(text, file.block, file.comment)
    if is_toml:
        tomllib.loads(edited.removeprefix("\ufeff"))
    return edited


def _by_hand(file: HostFile, undo: bool) -> str:
    if undo:
        return "remove holdlog from it by hand"
    if file.entries:
        return f"add by hand: {'; '.join('.'.join(it.path) for it in file.entries)}"
    return "add to it by hand what holdlog init --print shows for an empty file"


def _keep(path: Path, text: str, backups: Path) -> None:
    make_private_folder(backups)
    for number in range(1000):
        try:
            with new_private_file(backups / f"{path.name}.{number}") as file:
                file.write(text.encode())
        except FileExistsError:
            continue
        return


def _why(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
