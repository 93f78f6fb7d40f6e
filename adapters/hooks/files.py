"""The files that a tool call is about to change, as far as its input shows them with certainty.

Standard library only and quick to import: the hook's fast path uses it. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdlog.adapters.hooks.git import GitCommand

_PATCHED: Final = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.*\S)", re.MULTILINE)
_DIFFED: Final = re.compile(r"^--- (.+)\n\+\+\+ (.+)$", re.MULTILINE)
_PATHS: Final = ("file_path", "notebook_path", "path", "target_file", "filePath")
_PATCHES: Final = ("patch", "patchText", "input")
_EDITS: Final = frozenset(
    {"edit", "write", "multiedit", "notebookedit", "strreplace", "searchreplace", "delete", "editnotebook", "editfile"}
)
_SHELLS: Final = frozenset({"bash", "shell", "localshell", "execcommand", "runterminalcmd", "terminal"})


class Targets(NamedTuple):
    """What a tool call does to files. `paths`: that it certainly changes, in their order. `git`, `reports`, `problem`:
    as in ShellReading. `problem` is also set if an editing tool names no file."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""


def targets(tool: str, given: Mapping[str, Any], folder: str) -> Targets:
    """What the call changes. `given`: the input of the tool; `folder`: where it runs."""
    kind = re.sub(r"[^a-z]", "", tool.lower())
    command = given.get("command")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        import shlex

        command = command[-1] if len(command) == 3 and command[1] in ("-c", "-lc") else shlex.join(command)
    if kind == "applypatch":
        patch = command if isinstance(command, str) else next((given[name] for name in _PATCHES if name in given), None)
        return Targets(tuple(patched(patch))) if isinstance(patch, str) else Targets()
    if kind in _SHELLS:
        from holdlog.adapters.hooks.shell import read_shell

        return Targets(*read_shell(command, folder)) if isinstance(command, str) else Targets()
    if kind not in _EDITS:
        return Targets()
    return Targets(tuple(named_path(given)))


def patched(patch: str) -> list[str]:
    """The files that a patch adds, updates, deletes or moves: one in the form of `apply_patch`, or a unified diff."""
    diffed = [path.partition("\t")[0] for pair in _DIFFED.findall(patch) for path in pair]
    is_prefixed = all(path == "/dev/null" or path[:2] in ("a/", "b/") for path in diffed)
    names = [path[2:] if is_prefixed else path for path in diffed if path != "/dev/null"]
    return _unique(_PATCHED.findall(patch) or names)


def named_path(given: Mapping[str, Any]) -> list[str]:
    """The path that the input of a tool names, if it names one."""
    return [given[name] for name in _PATHS if isinstance(given.get(name), str) and given[name]][:1]


def _unique(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(paths))
