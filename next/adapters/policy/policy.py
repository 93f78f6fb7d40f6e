"""What `holdlog.toml` says, checked by hand: each error is one line with its place and what is allowed."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdlog.adapters.operating_system.files import show
from holdlog.adapters.policy.globs import MAX_GLOB
from holdlog.adapters.policy.in_force import FILE, MAX_BYTES, PathRule, Policy

MAX_RULES: Final = 1_000
MAX_LINE: Final = 2_000
"""Characters: for a dotted key, tomllib needs time that grows with the square of its parts."""
MAX_SECONDS: Final = 86_400
MODES: Final = ("block", "warn", "human")
ACROSS: Final = "across-worktrees"
GROUPS: Final = ("claims", "state", "power", "kv", "threads", "standard", "advanced", "all")
"""Groups of tools and their other names."""
_CHOICES: Final = {"stale-reads": ("warn", "deny", "off"), "git": ("deny", "warn", "off")}
_KEYS: Final = ("paths", *_CHOICES, "tools", "lease", "workspaces")
_LEASES: Final = {"seconds": "lease_seconds", "idle-limit": "idle_limit"}
"""Keys of `[lease]`, and the settings that they are."""
_HEADER: Final = r"\s*\[\s*[\"']?([\w-]+)"
_KEY: Final = r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)\s*[.=]"""


class PolicyError(ValueError):
    """The file is wrong. The message is one line: file, line, key, what is wrong and what is allowed."""


def parse_policy(content: bytes) -> Policy:
    """Read a `holdlog.toml`. Raises PolicyError."""
    if len(content) > MAX_BYTES:
        raise PolicyError(f"{FILE}:1: is larger than {MAX_BYTES // 1024} KB")
    for number, row in enumerate(content.split(b"\n"), 1):
        if len(row.decode(errors="replace")) > MAX_LINE:
            raise PolicyError(f"{FILE}:{number}: has more than {MAX_LINE} characters in one line")
    try:
        text = content.decode()
        tables = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{FILE}:{line}: is not UTF-8") from None
    except ValueError as error:
        raise PolicyError(_describe_syntax(str(error), text)) from None
    except RecursionError:
        raise PolicyError(f"{FILE}:1: is nested too deeply") from None
    return _Parser(text).parse(tables)


def _describe_syntax(error: str, text: str) -> str:
    place = re.search(r"\s*\(at line (\d+), column \d+\)", error)
    line = int(place[1]) if place else text.count("\n") + 1
    what = show(error.partition(" (at ")[0])
    return f"{FILE}:{line}: is not TOML: {what[:1].lower()}{what[1:]}"


class _Parser:
    """Checks the tables of a file; its text shows the lines of its keys."""

    def __init__(self, text: str) -> None:
        self._lines = _find_lines(text)

    def parse(self, tables: Mapping[str, Any]) -> Policy:
        for key in tables:
            self._require_known((key,), _KEYS)
        for key, choices in _CHOICES.items():
            self._require((key,), tables.get(key, choices[0]) in choices, f"be one of {', '.join(choices)}")
        tools = tables.get("tools")
        if tools is not None:
            are_groups = isinstance(tools, list) and tools and all(name in GROUPS for name in map(str, tools))
            self._require(("tools",), are_groups, f"be a list of {', '.join(GROUPS)}")
        paths = self._take_table(tables, "paths", '"GLOB" = "warn"')
        self._require(("paths",), len(paths) <= MAX_RULES, f"have at most {MAX_RULES} globs")
        return Policy(
            tuple(self._parse_rule(glob, value) for glob, value in paths.items()),
            tables.get("stale-reads", "warn"),
            tables.get("git", "deny"),
            tools and tuple(tools),
            self._parse_lease(self._take_table(tables, "lease", "seconds = 600")),
            self._parse_workspaces(self._take_table(tables, "workspaces", 'docs = "../docs"')),
        )

    def _parse_rule(self, glob: str, value: Any) -> PathRule:
        key = ("paths", glob)
        is_glob = glob.strip("/") and len(glob) <= MAX_GLOB and glob.isprintable() and "\\" not in glob
        self._require(key, is_glob, f"be a glob such as docs/** or *.lock, of at most {MAX_GLOB} characters")
        is_inside = {".", ".."}.isdisjoint(glob.split("/"))
        self._require(key, is_inside, "be relative to the root of the repository, without . and ..")
        words = [value] if isinstance(value, str) else value
        are_known = isinstance(words, list) and words and all(word in (*MODES, ACROSS) for word in map(str, words))
        self._require(key, are_known, f"be one of {', '.join(MODES)}, {ACROSS}, or a list of them")
        modes = [word for word in words if word != ACROSS]
        self._require(key, len(modes) <= 1, f"have at most one of {', '.join(MODES)}")
        return PathRule(modes[0] if modes else "block", ACROSS in words, glob, self._find_line(key))

    def _parse_lease(self, table: dict[str, Any]) -> dict[str, float]:
        for name, value in table.items():
            self._require_known(("lease", name), _LEASES)
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MAX_SECONDS
            self._require(("lease", name), is_number, f"be from 1 to {MAX_SECONDS} seconds")
        return {_LEASES[name]: float(value) for name, value in table.items()}

    def _parse_workspaces(self, table: dict[str, Any]) -> dict[str, str]:
        for name, path in table.items():
            is_name = re.fullmatch(r"[\w.-]+", name, re.ASCII) and name not in (".", "..", "main")
            rule = "have only letters a to z, digits, '-', '_' and '.', and not be main"
            self._require(("workspaces", name), is_name, rule)
            is_path = isinstance(path, str) and path.strip() and path.isprintable()
            self._require(("workspaces", name), is_path, "be the path of a folder, such as ../docs")
        return table

    def _take_table(self, tables: Mapping[str, Any], key: str, example: str) -> dict[str, Any]:
        table: dict[str, Any] = tables.get(key, {})
        self._require((key,), isinstance(table, dict), f"be a table: [{key}], and below it such as {example}")
        return table

    def _require_known(self, key: tuple[str, ...], known: Sequence[str] | Mapping[str, Any]) -> None:
        if key[-1] not in known:
            from difflib import get_close_matches  # only an error needs it

            close = get_close_matches(key[-1], known, 1)
            advice = f"did you mean {close[0]}? " if close else ""
            raise self._refuse(key, f"is not a key; {advice}the keys are {', '.join(known)}")

    def _require(self, key: Sequence[str], condition: Any, rule: str) -> None:
        if not condition:
            raise self._refuse(key, f"must {rule}")

    def _refuse(self, key: Sequence[str], problem: str) -> PolicyError:
        name = ".".join(show(part)[:80] for part in key)
        return PolicyError(f"{FILE}:{self._find_line(key)}: {name}: {problem}")

    def _find_line(self, key: Sequence[str]) -> int:
        """The line of a key, else that of its table."""
        return self._lines.get(tuple(key)) or self._lines.get((key[0],)) or 1


def _find_lines(text: str) -> dict[tuple[str, ...], int]:
    """The first line of each key and table: tomllib does not return them."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(_HEADER, line):
            table = (header[1],)
            lines.setdefault(table, number)
        elif key := re.match(_KEY, line):
            try:
                lines.setdefault((*table, *tomllib.loads(f"{key[1]} = 0")), number)
            except tomllib.TOMLDecodeError:
                continue
    return lines
