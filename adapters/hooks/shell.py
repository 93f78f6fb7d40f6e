"""What a shell command does to files, as far as its text shows it.

Standard library only; tree-sitter is imported in the function that parses. Pure but for globs and folders, which are
looked up in the worktree.
"""

import os
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdlog.adapters.hooks.git import GitCommand

MAX_COMMAND: Final = 20_000
"""Characters of a shell command that is read; longer ones are scripts."""

_UNCERTAIN: Final = re.compile(r"""[$`*?\[\]{}()~\\\n#]|<<|(['"])[^'"<>|&;]*[<>|&;][^'"]*\1""")
"""What a shell would expand, what only a shell can read, and quoted operators."""
_BREAKS: Final = frozenset({"&&", "||", ";", "|", "&"})
_TARGET: Final = ("-t", "--target")
_REWRITING: Final = re.compile(r"-[nErsz]*i|--in-place")
_SCRIPT: Final = re.compile(r"-[nErsz]*[ef]|--expression|--file|$")
"""Options of sed that name the script, and the empty suffix of BSD: its files are then elsewhere."""
_REDIRECTIONS: Final = frozenset({">", ">>", ">|"})
_DUPLICATION: Final = re.compile(r"(?<!\S)\d*[<>]&(?:\d+|-)(?=[\s;|&]|$)")
"""A descriptor that is copied or closed, such as `2>&1`."""
_NO_FILES: Final = ("/dev/", "/proc/")


class ShellReading(NamedTuple):
    """What a shell command does to files. `paths`: that it certainly changes, absolute. `git`: its git commands.
    `reports`: it may change files that nobody can name beforehand, so they are compared afterwards. `problem`: why it
    could not be read, in one line."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""


def read_shell(command: str, folder: str) -> ShellReading:
    """Read a shell command that runs in `folder`, which is absolute."""
    paths = (os.path.abspath(os.path.join(folder, path)) for path in shell_targets(command, folder))
    return ShellReading(tuple(paths))


def shell_targets(command: str, folder: str) -> list[str]:
    """The files that a shell command renames, removes or writes by redirection; none if any part is uncertain."""
    if len(command) > MAX_COMMAND or _UNCERTAIN.search(command):
        return []
    import shlex  # only shell commands need it

    reader = shlex.shlex(_DUPLICATION.sub(" ", command), posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        words = list(reader)
    except ValueError:
        return []
    found: list[str] = []
    for simple in _simple_commands(words):
        if simple[:1] in (["cd"], ["pushd"], ["popd"]):
            return []  # the paths behind it are relative to another folder
        found += _of_simple(simple, folder)
    return _unique([path for path in found if not path.startswith(_NO_FILES)])


def _simple_commands(words: Sequence[str]) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _BREAKS:
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _of_simple(words: list[str], folder: str) -> list[str]:
    """The targets of one command without pipes."""
    written, rest, at = [], list[str](), 0
    while at < len(words):
        if words[at] in _REDIRECTIONS and at + 1 < len(words):
            if rest and rest[-1].isdigit():
                rest.pop()  # the number of a descriptor
            written.append(words[at + 1])
            at += 2
            continue
        rest.append(words[at])
        at += 1
    if any(set(word) & set("<>&|;") for word in [*written, *rest]):
        return []
    if rest[:1] == ["git"]:
        rest = rest[1:]
    operands = [word for word in rest[1:] if not word.startswith("-")]
    match rest[:1]:
        case ["rm" | "tee"]:
            return written + operands
        case ["mv" | "cp" as command] if len(operands) >= 2 and not any(it.startswith(_TARGET) for it in rest):
            *sources, goal = operands
            goals = [goal]
            if os.path.isdir(os.path.join(folder, goal)):
                goals = [os.path.join(goal, os.path.basename(it.rstrip("/"))) for it in sources]
            return [*written, *(sources if command == "mv" else ()), *goals]
        case ["sed"] if any(map(_REWRITING.match, rest)) and not any(map(_SCRIPT.match, rest)):
            return written + operands[1:]  # the first is the script
        case _:
            return written


def _unique(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(paths))
