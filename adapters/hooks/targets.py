"""The files that a tool call is about to change, as far as its input shows them with certainty."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

MAX_COMMAND: Final = 20_000
"""Characters of a shell command that is read; longer ones are scripts."""

_PATCHED: Final = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.*\S)", re.MULTILINE)
_PATHS: Final = ("file_path", "notebook_path", "path", "target_file", "filePath")
_PATCHES: Final = ("patch", "patchText", "input")
_EDITS: Final = frozenset(
    {"edit", "write", "multiedit", "notebookedit", "strreplace", "searchreplace", "delete", "editnotebook", "editfile"}
)
_SHELLS: Final = frozenset({"bash", "shell", "localshell", "execcommand", "runterminalcmd", "terminal"})
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


def targets(tool: str, given: Mapping[str, Any], folder: str) -> list[str]:
    """The paths that the call changes, in their order. `given`: the input of the tool; `folder`: where it runs."""
    kind = re.sub(r"[^a-z]", "", tool.lower())
    command = given.get("command")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        import shlex

        command = command[-1] if len(command) == 3 and command[1] in ("-c", "-lc") else shlex.join(command)
    if kind == "applypatch":
        patch = command if isinstance(command, str) else next((given[name] for name in _PATCHES if name in given), None)
        return _unique(_PATCHED.findall(patch)) if isinstance(patch, str) else []
    if kind in _SHELLS:
        return shell_targets(command, folder) if isinstance(command, str) else []
    if kind not in _EDITS:
        return []
    return named_path(given)


def named_path(given: Mapping[str, Any]) -> list[str]:
    """The path that the input of a tool names, if it names one."""
    return [given[name] for name in _PATHS if isinstance(given.get(name), str) and given[name]][:1]


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
