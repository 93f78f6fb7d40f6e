"""Which worktrees of a repository are guarded, and the lines of git's own hooks: to check commits, to set up worktrees.

Pure, standard library only: functions over what git lists, and over what files of hosts contain.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

GUARD_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": (".claude/settings.local.json", ".claude/settings.json", "~/.claude/settings.json"),
    "cursor": (".cursor/hooks.json", "~/.cursor/hooks.json"),
    "codex": (".codex/hooks.json", "~/.codex/hooks.json"),
    "opencode": (
        *(".opencode/plugins/holdlog.js", ".opencode/plugin/holdlog.js"),
        *("~/.config/opencode/plugins/holdlog.js", "~/.config/opencode/plugin/holdlog.js"),
    ),
}
"""By host: the files from which it reads hooks, below a worktree or the home folder. `init` writes the first."""
NEW_WORKTREE: Final = "init --new-worktree"  # what the post-checkout hook runs

_GUARDED: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("Edit", "Write", "Bash"),
    "codex": ("apply_patch", "Bash"),
    "cursor": ("preToolUse", "beforeShellExecution"),
    "opencode": ("edits",),
}
"""Tools, or events, before which a hook must run."""
_OWN: Final = re.compile(r"(?:^|[\s/'\"])holdlog['\"]?\s+hook\b")
_PLUGIN_COMMAND: Final = re.compile(r'COMMAND\w*\s*=\s*("(?:[^"\\\n]|\\.)*")')
_COMMIT_MARK: Final = "# holdlog: files that other sessions hold"
_CHECKOUT_MARK: Final = "# holdlog: sets up new worktrees"
_OWN_LINES: Final = re.compile(rf"^.*(?:{_COMMIT_MARK}|{_CHECKOUT_MARK})\r?\n?", re.MULTILINE)


class Worktree(NamedTuple):
    """A worktree as git lists it. `problem`: why it has no files that can be set up; empty if git knows none."""

    path: str
    problem: str = ""


class Guard(NamedTuple):
    """Whether a host runs hooks before its agents change files. `missing`: the tools, or events, for which it does not;
    empty: it is guarded. `programs`: what its hooks start."""

    missing: tuple[str, ...]
    programs: tuple[str, ...] = ()


def parse_worktrees(listing: str) -> list[Worktree]:
    """The worktrees in the output of `git worktree list --porcelain`, with or without `-z`; the main one first."""
    end = "\0" if "\0" in listing else "\n"
    found = []
    for block in listing.split(end * 2):
        facts = dict(line.partition(" ")[::2] for line in block.strip(end).split(end))
        if path := facts.get("worktree"):
            bare = "is a bare repository, which has no files to set up" if "bare" in facts else ""
            gone = "is missing, so it is not set up; if it is not to return: git worktree prune"
            found.append(Worktree(path, bare or (gone if "prunable" in facts else "")))
    return found


def guard(host: str, contents: Sequence[Any]) -> Guard:
    """What the hooks in the files of a host guard. `contents`: of its files, as values of JSON, or texts."""
    tools = _GUARDED.get(host, ())
    started = {tool: command for content in contents for tool in tools for command in _commands(host, content, tool)}
    programs = {program for command in started.values() if (program := _program(command))}
    return Guard(tuple(tool for tool in tools if tool not in started), tuple(sorted(programs)))


def commit_line(command: str) -> str:
    """The line of a pre-commit hook that checks claims. `command`: the path of holdlog, or its name where the file is
    shared. If it is missing or does not start, the line warns, and the commit passes."""
    check = '{ command -v "$holdlog" >/dev/null && "$holdlog" check --staged; }'
    warning = 'echo "holdlog: $holdlog is missing or does not start, so holdlog check is skipped" >&2'
    fails = f'{{ "$holdlog" --version >/dev/null 2>&1 && exit 1 || {warning}; }}'
    return f"holdlog={shlex.quote(command)}; {check} || {fails}  {_COMMIT_MARK}"


def checkout_line(command: str) -> str:
    """The line of a post-checkout hook that sets up a new worktree: its former HEAD is the null id (githooks(5)). It
    never fails the checkout."""
    run = f"{shlex.quote(command)} {NEW_WORKTREE} </dev/null >/dev/null 2>&1"
    warning = 'echo "holdlog: this worktree has no hooks of holdlog; run in it: holdlog init" >&2'
    return f'case "$1" in *[!0]*) ;; *) {run} || {warning} ;; esac  {_CHECKOUT_MARK}'


def without_own_lines(script: str) -> str:
    """A git hook without the lines of holdlog, whatever path they name."""
    return _OWN_LINES.sub("", script)


def _commands(host: str, content: Any, tool: str) -> Iterator[str]:
    """What hooks of ours start before a tool, or at an event."""
    if host == "opencode":
        if isinstance(content, str) and "holdlog" in content and "hook" in content:
            found = _PLUGIN_COMMAND.search(content)
            yield f"{shlex.quote(json.loads(found[1]))} hook" if found else "holdlog hook"
        return
    hooks = content.get("hooks") if isinstance(content, dict) else None
    groups = hooks.get(tool if host == "cursor" else "PreToolUse") if isinstance(hooks, dict) else None
    for group in _items(groups):
        if _matches(group.get("matcher"), tool, host):
            handlers = [group] if host == "cursor" else _items(group.get("hooks"))
            yield from filter(None, map(_started_by, handlers))


def _items(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none in what is not a list."""
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


def _matches(matcher: Any, tool: str, host: str) -> bool:
    """Whether a group of hooks is for a tool. Matchers of Cursor name its own tools."""
    if host == "cursor" or matcher in (None, "", "*"):
        return True
    try:
        return re.fullmatch(str(matcher), tool) is not None
    except re.error:
        return False


def _started_by(handler: Mapping[str, Any]) -> str:
    """The command of a hook of ours, or the URL that it calls; empty for hooks of others."""
    url = handler.get("url")
    if handler.get("type") == "http" and isinstance(url, str):
        return url if url.rstrip("/").endswith("/hook") else ""
    arguments = handler.get("args")
    command = " ".join(map(str, (handler.get("command"), *(arguments if isinstance(arguments, list) else ()))))
    return command if _OWN.search(command) else ""


def _program(command: str) -> str:
    """The program that a shell starts for a command; empty if it is not known, and for a URL."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    words = [it for it in words if not re.match(r"\w+=", it)]
    return words[0] if words and "://" not in words[0] else ""
