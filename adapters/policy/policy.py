"""What `holdlog.toml` says, checked by hand: each error is one line with its key and what is allowed."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdlog.adapters.operating_system.files import show
from holdlog.adapters.policy.in_force import FILE, MAX_BYTES, PathRule, Policy

MAX_RULES: Final = 1_000
MAX_GLOB: Final = 1_000
"""Characters."""
MAX_FOLDERS: Final = 2
"""Times `**` in a glob: the time to match grows with a power of a path's length."""
MAX_LINE: Final = 2_000
"""Bytes: for a dotted key, tomllib needs time that grows with the square of its parts."""
MODES: Final = ("block", "warn", "human")
ACROSS: Final = "across-worktrees"
_CHOICES: Final = {"stale-reads": ("warn", "deny", "off"), "git": ("deny", "warn", "off")}
_KEYS: Final = ("paths", *_CHOICES)


class PolicyError(ValueError):
    """The file is wrong. The message is one line: file, key, what is wrong and what is allowed."""


def parse_policy(content: bytes) -> Policy:
    """Read a `holdlog.toml`. Raises PolicyError."""
    if len(content) > MAX_BYTES:
        raise PolicyError(f"{FILE}: is larger than {MAX_BYTES // 1024} KB")
    if any(len(row) > MAX_LINE for row in content.split(b"\n")):
        raise PolicyError(f"{FILE}: has more than {MAX_LINE} bytes in one line")
    try:
        tables = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise PolicyError(f"{FILE}: is not UTF-8") from None
    except ValueError as error:
        raise PolicyError(f"{FILE}: is not TOML: {show(str(error))}") from None
    except RecursionError:
        raise PolicyError(f"{FILE}: is nested too deeply") from None
    return _parse(tables)


def _parse(tables: Mapping[str, Any]) -> Policy:
    for key in tables:
        _require((key,), key in _KEYS, f"be one of {', '.join(_KEYS)}")
    for key, choices in _CHOICES.items():
        _require((key,), tables.get(key, choices[0]) in choices, f"be one of {', '.join(choices)}")
    paths = tables.get("paths", {})
    _require(("paths",), isinstance(paths, dict), 'be a table: [paths], and below it such as "GLOB" = "warn"')
    _require(("paths",), len(paths) <= MAX_RULES, f"have at most {MAX_RULES} globs")
    rules = tuple(_parse_rule(glob, value) for glob, value in paths.items())
    return Policy(rules, tables.get("stale-reads", "warn"), tables.get("git", "deny"))


def _parse_rule(glob: str, value: Any) -> PathRule:
    key = ("paths", glob)
    is_glob = glob.strip("/") and len(glob) <= MAX_GLOB and glob.isprintable() and "\\" not in glob
    _require(key, is_glob, f"be a glob such as docs/** or *.lock, of at most {MAX_GLOB} characters")
    _require(key, glob.count("**") <= MAX_FOLDERS, f"have ** at most {MAX_FOLDERS} times")
    is_inside = {".", ".."}.isdisjoint(glob.split("/"))
    _require(key, is_inside, "be relative to the root of the repository, without . and ..")
    words = [value] if isinstance(value, str) else value
    are_known = isinstance(words, list) and words and all(word in (*MODES, ACROSS) for word in map(str, words))
    _require(key, are_known, f"be one of {', '.join(MODES)}, {ACROSS}, or a list of them")
    modes = [word for word in words if word != ACROSS]
    _require(key, len(modes) <= 1, f"have at most one of {', '.join(MODES)}")
    return PathRule(modes[0] if modes else "block", ACROSS in words, glob)


def _require(key: Sequence[str], condition: Any, rule: str) -> None:
    if not condition:
        raise PolicyError(f"{FILE}: {'.'.join(show(part)[:80] for part in key)}: must {rule}")
