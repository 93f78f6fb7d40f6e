"""What a call of a host's tool does to files, as far as its arguments show it. Quick to import."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from holdlog.adapters.operating_system.files import show

MAX_PATHS: Final = 1_000
"""Files that one call may change."""
READS: Final = ("Read", "NotebookRead", "read_file", "read")
"""Tools that read a file."""
MAX_TOOL: Final = 60
"""Characters of a tool's name in a message."""
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
"""Tools of MCP servers that change files which their arguments name, such as mcp__filesystem__write_file."""
_SHELLS: Final = (
    *("bash", "shell", "localshell", "execcommand", "runterminalcmd", "terminal", "runinterminal", "runshellcommand"),
)
_READERS: Final = r"read|view|list|search|find|grep|glob|get|fetch|query|look|show|todo|task|claim|release"
_PATHS: Final = (
    *("file_path", "filePath", "notebook_path", "notebookPath", "target_notebook", "target_file", "targetFile", "path"),
    *("TargetFile", "relative_workspace_path", "relative_path", "pathInProject", "absolute_path", "filepath", "uri"),
)
_MOVES: Final = ("source", "destination", "old_path", "new_path", "oldPath", "newPath")
_LISTS: Final = ("edits", "replacements", "files", "paths", "file_paths", "filePaths")
_PATCHES: Final = ("patch", "patchText", "diff", "input", "command", "cmd")
_CONTENTS: Final = frozenset(
    [*("content", "contents", "file_text", "new_string", "newString", "new_str", "code", "text"), "destination", "repl"]
)
_REMOTE: Final = frozenset(["owner", "repo", "repository", "url", "bucket", "host", "branch"])
"""Arguments of tools whose paths are on another machine."""
_FOLDERS: Final = ("workdir", "working_directory", "workingDirectory", "cwd")
_MARKED: Final = r"\*\*\* (Add File|Update File|Delete File|Move to):(.*)"
_DIFFED: Final = r"(?m)^--- (.+)\n\+\+\+ (.+)$|^rename (?:from|to) (.+)$"


class GitCommand(NamedTuple):
    """A git command. `words`: after `git`; None: one that only a shell knows. `folder`: where it runs, absolute."""

    words: tuple[str | None, ...]
    folder: str


class Targets(NamedTuple):
    """`paths`: what certainly changes, in order, absolute; a folder that the command makes ends with a slash. `git`:
    its git commands, but for those that only read. `reports`: it may change files that nobody can name beforehand, so
    they are compared afterwards. `problem`: why it could not be read, in one line.
    `own`: its commands of holdlog: agent and conversation in variables that the command sets, and the words after
    `holdlog`."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""
    own: tuple[tuple[str | None, ...], ...] = ()


def list_patched(patch: str, has_padded_context: bool = False) -> list[str]:
    """The files that a patch adds, updates, deletes or moves: one in the form of `apply_patch`, or a unified diff.
    `has_padded_context`: OpenCode takes padded marker lines of a file that is open as context; Codex takes each marker
    line."""
    marked, is_open = list[str](), False
    for line in patch.split("\n"):
        marker = re.match(_MARKED, line.strip())
        if marker and not (has_padded_context and is_open and line[:1].isspace()):
            marked.append(marker[2].strip())
            is_open = marker[1] != "Delete File"
    if not marked:
        headers = re.finditer(_DIFFED, patch.replace("\r", ""))
        marked = [path for header in headers for path in _list_of_diff(header.groups())]
    return list(dict.fromkeys(filter(None, marked)))


def _list_of_diff(headers: Sequence[str | None]) -> list[str]:
    """The paths in the headers of one file of a unified diff, or of one line of a rename, without git's prefixes."""
    paths = [_unquote(header.partition("\t")[0].rstrip()) for header in headers if header is not None]
    is_prefixed = len(paths) == 2 and all(path == "/dev/null" or path[:2] in ("a/", "b/") for path in paths)
    return [path[2:] if is_prefixed else path for path in paths if path != "/dev/null"]


def _unquote(path: str) -> str:
    """A path that git has quoted as C quotes a text, such as "na\\303\\257ve.py" (git-config(1), core.quotePath)."""
    if re.fullmatch(r'"(?:[^"\\]|\\.)*"', path):
        with suppress(UnicodeError):  # git did not write it, or its name is not UTF-8, which no store keeps
            return path[1:-1].encode().decode("unicode_escape").encode("latin-1").decode()
    return path


def find_targets(tool: str, arguments: Mapping[str, Any], folder: str) -> Targets:
    """What a call of a tool changes. `folder`: where the agent works."""
    letters = _take_letters(tool)
    name = _take_letters(re.split(r"__|[:./]", tool)[-1])
    folder = os.path.join(folder, *(make_local(arguments[it]) for it in _FOLDERS if _is_text(arguments.get(it))))
    if name in _SHELLS:
        return _read_shell(tool, arguments, folder)
    is_edit = name in _EDITS and not tool.lower().startswith("mcp")
    is_edit = (is_edit or re.search(_MCP_EDITS, letters) is not None) and _REMOTE.isdisjoint(arguments)
    is_patch = name in ("applypatch", "patch", "diff")
    if is_edit and (arguments.get("dryRun") is True or arguments.get("command") == "view"):
        return Targets()
    if is_edit or is_patch:
        paths = [*_list_named(arguments), *_list_of_patches(arguments)]
        if paths or name != "diff":
            return _require(tool, paths, folder)
    return Targets(problem=_explain_unguarded(tool, letters, arguments))


def find_named(arguments: Mapping[str, Any]) -> list[str]:
    """The path that the arguments of a tool name, if they name one."""
    return [make_local(arguments[name]) for name in _PATHS if _is_text(arguments.get(name))][:1]


def make_local(text: str) -> str:
    """A path as hosts spell it, also `file://…` and `~/…`."""
    if text[:7].lower() == "file://":
        path = "/" + text[7:].partition("/")[2]
        octets = re.sub(rb"%([0-9A-Fa-f]{2})", lambda it: bytes([int(it[1], 16)]), path.encode(errors="surrogatepass"))
        return octets.decode(errors="surrogateescape")
    return os.path.expanduser(text) if text == "~" or text.startswith("~/") else text


def _require(tool: str, paths: Sequence[str], folder: str) -> Targets:
    """The paths of an editing tool."""
    if not paths:
        return Targets(problem=f"{show(tool)[:MAX_TOOL]} names no file in a form that holdlog knows")
    trimmed = [path.strip().strip("\ufeff") or path for path in paths]  # as Claude Code does
    exist = [path for path in paths if path not in trimmed and os.path.lexists(os.path.join(folder, path))]
    return Targets(tuple(dict.fromkeys(os.path.join(folder, path) for path in (*trimmed, *exist))))


def _read_shell(tool: str, arguments: Mapping[str, Any], folder: str) -> Targets:
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        if len(command) == 2 and command[0] in ("apply_patch", "applypatch"):  # Codex runs it itself
            return _require(tool, list_patched(command[1]), folder)
        command = command[-1] if len(command) == 3 and command[1] in ("-c", "-lc") else shlex.join(command)
    if isinstance(command, str):
        from holdlog.adapters.hooks.shell import read_shell  # slow to import

        targets = read_shell(command, os.path.abspath(folder))
        return targets._replace(reports=targets.reports or targets.paths != ())  # a shell may read it otherwise
    return Targets() if command is None else Targets(problem=f"the command of {show(tool)[:MAX_TOOL]} cannot be read")


def _list_named(arguments: Mapping[str, Any]) -> list[str]:
    """The files that the arguments name: one, both ends of a move, and those of a list of edits."""
    paths = [*find_named(arguments), *(make_local(arguments[it]) for it in _MOVES if _is_text(arguments.get(it)))]
    for name in _LISTS:
        items = arguments.get(name)
        for item in items if isinstance(items, list) else ():
            paths += [make_local(item)] if _is_text(item) else _list_named(item) if isinstance(item, dict) else []
    return paths


def _list_of_patches(arguments: Mapping[str, Any]) -> list[str]:
    """The files of the patch in the arguments: a text, or words of which the last one is the text."""
    texts = {name: arguments.get(name) for name in _PATCHES}
    texts = {name: it[-1] if isinstance(it, list) and it else it for name, it in texts.items()}
    return [it for name, text in texts.items() if _is_text(text) for it in list_patched(str(text), name == "patchText")]


def _explain_unguarded(tool: str, letters: str, arguments: Mapping[str, Any]) -> str:
    """Why a call of an unknown tool is not guarded; empty unless it seems to write a file here."""
    items = [it for name in _LISTS if isinstance(parts := arguments.get(name), list) for it in parts]
    parts = [arguments, *(it for it in items if isinstance(it, dict))]
    writes = any(not _CONTENTS.isdisjoint(it) for it in parts) and _list_named(arguments)
    if not writes or not _REMOTE.isdisjoint(arguments) or "holdlog" in letters or re.search(_READERS, letters):
        return ""
    return f"{show(tool)[:MAX_TOOL]} seems to write a file, but holdlog does not know this tool"


def _take_letters(tool: str) -> str:
    return "".join(it for it in tool.lower() if "a" <= it <= "z")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
