"""The files that a tool call is about to change, as far as its input shows them with certainty.

Standard library only and quick to import: the hook's fast path uses it. Pure. Formats: docs/hosts.md, and the corpus in
tests/support/fixtures/hooks/payloads.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

MAX_TOOL: Final = 60  # characters of a tool's name in a problem

_EDITS: Final = (
    *("edit", "write", "multiedit", "notebookedit", "strreplace", "searchreplace", "delete", "editnotebook"),
    *("editfile", "editfiles", "writefile", "writetofile", "create", "createfile", "deletefile", "movefile"),
    *("renamefile", "replace", "replaceinfile", "replacestringinfile", "multireplacestringinfile", "applydiff"),
    *("inserteditintofile", "editnotebookfile", "strreplaceeditor", "strreplacebasededittool"),
)
"""Editing tools of hosts: the letters of their names, in lower case."""
_MCP_EDITS: Final = (
    r"(write|edit|move|delete|rename|create|append)(text|new)?files?$|(delete|move)directory$|(delete|insert)lines$"
    r"|(edit|replace)(block|content|lines|symbolbody|textinfile)$|insert(content|atline|aftersymbol|beforesymbol)$"
)
"""Tools of MCP servers that change files which their input names, such as mcp__filesystem__write_file."""
_SHELLS: Final = ("bash", "shell", "localshell", "execcommand", "runterminalcmd", "terminal", "runinterminal")
_READERS: Final = r"read|view|list|search|find|grep|glob|get|fetch|query|look|show|todo|task|claim|release"

_PATHS: Final = (
    *("file_path", "filePath", "notebook_path", "notebookPath", "target_notebook", "target_file", "targetFile", "path"),
    *("TargetFile", "relative_workspace_path", "relative_path", "pathInProject", "absolute_path", "filepath", "uri"),
)
_MOVES: Final = ("source", "destination", "old_path", "new_path", "oldPath", "newPath")
_LISTS: Final = ("edits", "replacements", "files", "paths", "file_paths", "filePaths")
_PATCHES: Final = ("patch", "patchText", "diff", "input")
_CONTENTS: Final = frozenset(["content", "contents", "file_text", "new_string", "newString", "new_str", "code", "text"])
_REMOTE: Final = frozenset(["owner", "repo", "repository", "url", "bucket", "host", "branch"])
"""Arguments of tools whose paths are on another machine."""
_FOLDERS: Final = ("workdir", "working_directory", "workingDirectory", "cwd")
_COMMANDS: Final = ("command", "cmd")

_MARKED: Final = r"\*\*\* (Add File|Update File|Delete File|Move to):(.*)"
_DIFFED: Final = r"(?m)^--- (.+)\n\+\+\+ (.+)$|^rename (?:from|to) (.+)$"


class GitCommand(NamedTuple):
    """A git command. `words`: after `git`; None: one that only a shell knows. `folder`: where it runs, absolute."""

    words: tuple[str | None, ...]
    folder: str


class Targets(NamedTuple):
    """What a tool call or a shell command does to files. `paths`: that it certainly changes, in their order; those of
    a shell command are absolute, and a folder that it makes ends with a slash. `git`: its git commands, but for those
    that only read, such as `git status`. `reports`: it may change files that nobody can name beforehand, so they are
    compared afterwards. `problem`: why it could not be read, in one line, also if an editing tool names no file."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""


def targets(tool: str, given: Mapping[str, Any], folder: str) -> Targets:
    """What the call changes. `given`: the input of the tool; `folder`: where the agent works."""
    kind = _letters(tool)
    name = _letters(tool.replace("__", "/").replace(":", "/").replace(".", "/").rpartition("/")[2])
    folder = os.path.join(folder, *(local_path(given[it]) for it in _FOLDERS if _is_text(given.get(it))))
    if name in _SHELLS:
        return _shell(tool, given, folder)
    paths = [*_named(given), *_patched_files(given)]
    is_edit = name in _EDITS and not tool.lower().startswith("mcp")
    if name in ("applypatch", "patch") or (name == "diff" and paths):
        return _required(tool, paths, folder)
    if (is_edit or re.search(_MCP_EDITS, kind)) and _REMOTE.isdisjoint(given):
        changes = given.get("dryRun") is not True and given.get("command") != "view"
        return _required(tool, paths, folder) if changes else Targets()
    return Targets(problem=_doubt(tool, kind, given))


def patched(patch: str, has_padded_context: bool = False) -> list[str]:
    """The files that a patch adds, updates, deletes or moves: one in the form of `apply_patch`, or a unified diff.
    `has_padded_context`: OpenCode takes padded marker lines of a file that is open as context; Codex takes each marker
    line."""
    marked, is_open = list[str](), False
    for line in patch.split("\n"):
        found = re.match(_MARKED, line.strip())
        if found and not (has_padded_context and is_open and line[:1].isspace()):
            marked.append(found[2].strip())
            is_open = found[1] != "Delete File"
    if not marked:
        marked = [path for found in re.finditer(_DIFFED, patch.replace("\r", "")) for path in _of_diff(found.groups())]
    return list(dict.fromkeys(filter(None, marked)))


def named_path(given: Mapping[str, Any]) -> list[str]:
    """The path that the input of a tool names, if it names one."""
    return [local_path(given[name]) for name in _PATHS if _is_text(given.get(name))][:1]


def local_path(text: str, windows: bool = os.name == "nt") -> str:
    """A path as hosts spell it, as one of this system: also `file://…`, `~/…`, and `/c:/…` on Windows."""
    if text[:7].lower() == "file://":
        path = "/" + text[7:].partition("/")[2]
        octets = re.sub(rb"%([0-9A-Fa-f]{2})", lambda it: bytes([int(it[1], 16)]), path.encode(errors="surrogatepass"))
        text = octets.decode(errors="surrogateescape")
    elif text == "~" or text.startswith("~/"):
        text = os.path.expanduser(text)
    return text[1:] if windows and re.match(r"/[A-Za-z]:", text) else text


def _required(tool: str, paths: Sequence[str], folder: str) -> Targets:
    """The paths of an editing tool, below `folder` if they are relative."""
    if not paths:
        return Targets(problem=f"{_shown(tool)} names no file in a form that holdlog knows")
    return Targets(tuple(dict.fromkeys(os.path.join(folder, path) for path in paths)))


def _shell(tool: str, given: Mapping[str, Any], folder: str) -> Targets:
    command = next((given[name] for name in _COMMANDS if given.get(name)), None)
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        if len(command) == 2 and command[0] in ("apply_patch", "applypatch"):  # Codex runs it itself
            return _required(tool, patched(command[1]), folder)
        import shlex

        command = command[-1] if len(command) == 3 and command[1] in ("-c", "-lc") else shlex.join(command)
    if isinstance(command, str):
        from holdlog.adapters.hooks.shell import read_shell

        reading = read_shell(command, os.path.abspath(folder))
        return reading._replace(reports=reading.reports or reading.paths != ())  # a shell may read it otherwise
    return Targets() if command is None else Targets(problem=f"the command of {_shown(tool)} cannot be read")


def _named(given: Mapping[str, Any]) -> list[str]:
    """The files that the input names: one, both ends of a move, and those of a list of edits."""
    paths = [*named_path(given), *(local_path(given[it]) for it in _MOVES if _is_text(given.get(it)))]
    for name in _LISTS:
        items = given.get(name)
        for item in items if isinstance(items, list) else ():
            paths += [local_path(item)] if _is_text(item) else _named(item) if isinstance(item, dict) else []
    return paths


def _patched_files(given: Mapping[str, Any]) -> list[str]:
    """The files of the patch in an input: a text, or a command of words whose last one is the text."""
    texts = {name: given.get(name) for name in (*_PATCHES, *_COMMANDS)}
    texts = {name: it[-1] if isinstance(it, list) and it else it for name, it in texts.items()}
    return [path for name, it in texts.items() if isinstance(it, str) for path in patched(it, name == "patchText")]


def _of_diff(headers: Sequence[str | None]) -> list[str]:
    """The paths in the headers of one file of a unified diff, or of one line of a rename, without git's prefixes."""
    paths = [it.partition("\t")[0].rstrip() for it in headers if it is not None]
    is_prefixed = len(paths) == 2 and all(it == "/dev/null" or it[:2] in ("a/", "b/") for it in paths)
    return [it[2:] if is_prefixed else it for it in paths if it != "/dev/null"]


def _doubt(tool: str, kind: str, given: Mapping[str, Any]) -> str:
    """Why a call of an unknown tool is not guarded; empty unless it seems to write a file here."""
    writes = not _CONTENTS.isdisjoint(given) and named_path(given)
    if not writes or not _REMOTE.isdisjoint(given) or "holdlog" in kind or re.search(_READERS, kind):
        return ""
    return f"{_shown(tool)} seems to write a file, but holdlog does not know this tool"


def _letters(tool: str) -> str:
    return "".join(it for it in tool.lower() if "a" <= it <= "z")


def _shown(tool: str) -> str:
    return "".join(it if it.isprintable() else "?" for it in tool)[:MAX_TOOL]


def _is_text(given: object) -> bool:
    return isinstance(given, str) and given != ""
