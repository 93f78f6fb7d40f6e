"""What `holdlog.toml` says, checked by hand: each error is one line with its place and what is allowed."""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast, get_args
from urllib.parse import quote

from holdlog.adapters.operating_system.options import LEASE_SECONDS, WAIT_SECONDS, Rule
from holdlog.adapters.policy.globs import MAX_GLOB, is_match

FILE: Final = "holdlog.toml"
MAX_BYTES: Final = 256 * 1024
MAX_RULES: Final = 1_000
MAX_LINE: Final = 2_000
"""Characters: for a dotted key, tomllib needs time that grows with the square of its parts."""

Mode = Literal["block", "warn", "human"]
StaleReads = Literal["warn", "deny", "off"]
GitMode = Literal["deny", "warn", "off"]
MODES: Final = get_args(Mode)
ACROSS: Final = "across-worktrees"
STALE_READS: Final = get_args(StaleReads)
GIT_MODES: Final = get_args(GitMode)
GROUPS: Final = ("claims", "state", "power", "kv", "threads", "admin", "standard", "advanced", "all")
"""Groups of tools and their other names; a test compares them with those of the MCP server."""

_SECONDS: Final[Mapping[str, tuple[str, Rule]]] = {
    "seconds": ("lease", LEASE_SECONDS),
    "grace-seconds": ("grace", WAIT_SECONDS),
    "idle-limit": ("idle_limit", LEASE_SECONDS),
}
"""Keys of `[lease]`: the field of Settings, and what the value must be."""

_HEADER: Final = re.compile(r"\s*\[\s*[\"']?([\w-]+)")
_KEY: Final = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)\s*[.=]""")


class PolicyError(ValueError):
    """The file is wrong. The message is one line: file, line, key, what is wrong and what is allowed."""


class PathRule(NamedTuple):
    """What applies to a path. `glob`: the one that matches, at `line` of the file; None: a default."""

    mode: Mode
    across_worktrees: bool = False
    glob: str | None = None
    line: int | None = None

    @property
    def source(self) -> str:
        """Where the rule is written."""
        return FILE if self.line is None else f"{FILE}:{self.line}"


DEFAULT_RULE: Final = PathRule("block")
OWN_RULE: Final = PathRule("human")
"""That of `holdlog.toml` itself: an agent must not relax its guard."""


@dataclass(frozen=True)
class Policy:
    """What a `holdlog.toml` says. `settings`: fields of Settings. `tools`: None: not named. `workspaces`: paths from
    the folder of the file, by name. `git`: what happens to a git command that would take others' work away or in."""

    rules: tuple[PathRule, ...] = ()
    stale_reads: StaleReads = "warn"
    git: GitMode = "deny"
    tools: tuple[str, ...] | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    workspaces: Mapping[str, str] = field(default_factory=dict)

    def rule(self, path: str, folds: bool = False) -> PathRule:
        """The rule of a path from the root of the worktree: that of the last glob that matches. Never raises."""
        found = next((it for it in reversed(self.rules) if it.glob and is_match(it.glob, path, folds)), None)
        if found is not None:
            return found
        return OWN_RULE if (path.casefold() if folds else path) == FILE else DEFAULT_RULE


def parse_policy(content: bytes) -> Policy:
    """Read a `holdlog.toml`. Raises PolicyError."""
    if len(content) > MAX_BYTES:
        raise PolicyError(f"{FILE}:1: is larger than {MAX_BYTES // 1024} KB")
    for number, row in enumerate(content.split(b"\n"), 1):
        if len(row.decode(errors="replace")) > MAX_LINE:
            raise PolicyError(f"{FILE}:{number}: has more than {MAX_LINE} characters in one line")
    try:
        text = content.decode()
        given = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{FILE}:{line}: is not UTF-8") from None
    except ValueError as error:
        raise PolicyError(_syntax(str(error), text)) from None
    except RecursionError:
        raise PolicyError(f"{FILE}:1: is nested too deeply") from None
    return _PolicyReader(text).read(given)


def _syntax(error: str, text: str) -> str:
    found = re.search(r"\s*\(at line (\d+), column \d+\)", error)
    line = int(found[1]) if found else text.count("\n") + 1
    what = "".join(it if it.isprintable() else "?" for it in error.partition(" (at ")[0])
    return f"{FILE}:{line}: is not TOML: {what[:1].lower()}{what[1:]}"


class _PolicyReader:
    """Checks a parsed file; `text` shows the lines of its keys."""

    def __init__(self, text: str) -> None:
        self._lines = _lines_of_keys(text)

    def read(self, given: Mapping[str, Any]) -> Policy:
        readers: Mapping[str, Callable[[Any], Any]] = {
            "paths": self._paths,
            "stale-reads": self._stale_reads,
            "git": self._git,
            "tools": self._tools,
            "lease": self._lease,
            "workspaces": self._workspaces,
        }
        for key in given:
            self._require_known((key,), readers)
        found = {key: read(given[key]) for key, read in readers.items() if key in given}
        names = {"paths": "rules", "stale-reads": "stale_reads", "lease": "settings"}
        return Policy(**{names.get(key, key): value for key, value in found.items()})

    def _paths(self, given: Any) -> tuple[PathRule, ...]:
        table = self._table("paths", given, '"GLOB" = "warn"')
        if len(table) > MAX_RULES:
            raise self._error(("paths",), f"must have at most {MAX_RULES} globs")
        return tuple(self._rule(glob, value) for glob, value in table.items())

    def _rule(self, glob: str, value: Any) -> PathRule:
        key = ("paths", glob)
        if not glob.strip("/") or len(glob) > MAX_GLOB or not glob.isprintable() or "\\" in glob:
            raise self._error(key, f"must be a glob such as docs/** or *.lock, of at most {MAX_GLOB} characters")
        if {".", ".."} & {*glob.split("/")}:
            raise self._error(key, "must be relative to the root of the repository, without . and ..")
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not words or not all(it in (*MODES, ACROSS) for it in map(str, words)):
            raise self._error(key, f"must be one of {', '.join(MODES)}, {ACROSS}, or a list of them")
        modes = [it for it in words if it != ACROSS]
        if len(modes) > 1:
            raise self._error(key, f"must have at most one of {', '.join(MODES)}")
        mode = cast("Mode", modes[0]) if modes else "block"
        return PathRule(mode, ACROSS in words, glob, self._line(key))

    def _stale_reads(self, given: Any) -> str:
        if given not in STALE_READS:
            raise self._error(("stale-reads",), f"must be one of {', '.join(STALE_READS)}")
        return str(given)

    def _git(self, given: Any) -> str:
        if given not in GIT_MODES:
            raise self._error(("git",), f"must be one of {', '.join(GIT_MODES)}")
        return str(given)

    def _tools(self, given: Any) -> tuple[str, ...]:
        if not isinstance(given, list) or not given or not all(it in GROUPS for it in map(str, given)):
            raise self._error(("tools",), f"must be a list of {', '.join(GROUPS)}")
        return tuple(given)

    def _lease(self, given: Any) -> dict[str, float]:
        found = {}
        for name, value in self._table("lease", given, "seconds = 600").items():
            self._require_known(("lease", name), _SECONDS)
            field_name, rule = _SECONDS[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not rule.is_good(value):
                raise self._error(("lease", name), f"must be {rule.text}")
            found[field_name] = float(value)
        return found

    def _workspaces(self, given: Any) -> dict[str, str]:
        for name, path in self._table("workspaces", given, 'docs = "../docs"').items():
            key = ("workspaces", name)
            if quote(name, safe="") != name or name in ("", ".", "..", "main"):
                raise self._error(key, "must have only letters a to z, digits, '-', '_' and '.', and not be main")
            if not isinstance(path, str) or not path.strip() or not path.isprintable():
                raise self._error(key, "must be the path of a folder, such as ../docs")
        return dict(given)

    def _table(self, key: str, given: Any, example: str) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise self._error((key,), f"must be a table: [{key}], and below it such as {example}")
        return given

    def _require_known(self, key: tuple[str, ...], known: Mapping[str, Any]) -> None:
        if key[-1] not in known:
            close = difflib.get_close_matches(key[-1], known, 1)
            raise self._error(key, f"is not a key; {f'did you mean {close[0]}? ' if close else ''}{_allowed(known)}")

    def _error(self, key: Sequence[str], problem: str) -> PolicyError:
        name = ".".join("".join(it if it.isprintable() else "?" for it in part)[:80] for part in key)
        return PolicyError(f"{FILE}:{self._line(key)}: {name}: {problem}")

    def _line(self, key: Sequence[str]) -> int:
        """The line of a key, else that of its table."""
        return self._lines.get(tuple(key)) or self._lines.get((key[0],)) or 1


def _lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """The first line of each key and table: tomllib does not return them."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            table = (header[1],)
            found.setdefault(table, number)
        elif (key := _key_of(line)) is not None:
            found.setdefault((*table, key), number)
    return found


def _key_of(line: str) -> str | None:
    """The first part of the key that a line assigns."""
    match = _KEY.match(line)
    if match is None:
        return None
    try:
        return next(iter(tomllib.loads(f"{match[1]} = 0")))
    except tomllib.TOMLDecodeError:
        return None


def _allowed(known: Mapping[str, Any]) -> str:
    return f"the keys are {', '.join(known)}"
