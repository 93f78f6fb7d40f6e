"""Options of programs, each declared once: as the annotation of the field that holds its value.

The command line, the environment and the tables in the documents are made from these declarations.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdlog.adapters.operating_system.secrets import secret

LARGEST_VALUE: Final = 16 * 1024 * 1024
"""Bytes; every reader of a key gets the whole value."""


class Rule(NamedTuple):
    """What the text of an option must be. `metavar`: its name in help. `text` completes the sentence "must be …"."""

    metavar: str
    text: str
    read: Callable[[str], Any]
    is_good: Callable[[Any], bool]

    def parse(self, text: str) -> Any:
        """Raises ValueError, whose message is for the user."""
        with suppress(ValueError):
            if self.is_good(given := self.read(text)):
                return given
        raise ValueError(f"must be {self.text}")


def text(metavar: str) -> Rule:
    return Rule(metavar, "text", str, lambda it: True)


def whole_from(least: int, most: int, metavar: str = "N") -> Rule:
    unit = " of bytes" if metavar == "BYTES" else ""
    return Rule(metavar, f"a whole number{unit} from {least} to {most}", int, lambda it: least <= it <= most)


def one_of(metavar: str, *words: str) -> Rule:
    return Rule(metavar, f"one of {', '.join(words)}", str.lower, words.__contains__)


_SWITCHES: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)

SWITCH: Final = Rule(
    "",
    "on or off (also 1, true, yes, 0, false, no)",
    lambda it: _SWITCHES.get(it.strip().lower()),
    {True, False}.__contains__,
)
"""A flag without a value; in the environment, one of these words."""
FILE: Final = Rule("FILE", "a path", Path, lambda it: True)
PORT: Final = Rule("PORT", "a port from 0 to 65535", int, range(65_536).__contains__)
WAIT_SECONDS: Final = Rule("SECONDS", "more than 0 and at most 3600 seconds", float, lambda it: 0 < it <= 3600)
"""Hosts cancel a call long before that."""
LEASE_SECONDS: Final = Rule("SECONDS", "from 1 to 86400 seconds", float, lambda it: 1 <= it <= 86_400)
ANY_SECONDS: Final = Rule("SECONDS", "more than 0", float, lambda it: it > 0)
ONE_OR_MORE: Final = Rule("N", "a whole number, 1 or more", lambda it: min(sys.maxsize, int(it)), lambda it: it > 0)
"""At most `sys.maxsize`, which itertools and deque accept: more is as good as no limit."""


class Option(NamedTuple):
    """An option of the command line, `--name`, and of the environment, `HOLDLOG_NAME`.

    `help`: what it does, without its default. `unset`: what happens without it if its field has no default value.
    `is_list`: the flag can be repeated, and commas separate the items in the environment. `has_flag`: it is also a
    flag. `is_secret`: the variable with the suffix `_FILE` names a file that contains the value. `may_be_empty`: an
    empty variable is a value. `declared` fills in `field`, `default` and, unless they are given, `name` and `variable`.
    """

    help: str
    rule: Rule
    name: str = ""
    variable: str = ""
    unset: str = "none"
    choices: tuple[str, ...] = ()
    is_list: bool = False
    has_flag: bool = True
    is_secret: bool = False
    may_be_empty: bool = False
    field: str = ""
    default: Any = None

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def shown_default(self) -> str:
        """The default, for the user."""
        if self.default in (None, ()) or self.default is False:
            return self.unset
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def option(help_text: str, rule: Rule, *, default: Any = None, **more: Any) -> Any:
    """Declare a field of a dataclass as an option. `default`: its value, or `dataclasses.MISSING`; the other arguments
    are those of `Option`."""
    return field(default=default, metadata={"option": Option(help_text, rule, **more)})


def declared(model: type) -> Iterator[Option]:
    """The options that the fields of a dataclass declare."""
    for each in fields(model):
        found: Option | None = each.metadata.get("option")
        if found is not None:
            name = found.name or each.name
            yield found._replace(
                name=name,
                variable=found.variable or f"HOLDLOG_{name.upper()}",
                field=each.name,
                default=None if each.default is MISSING else each.default,
            )


def secrets_of(model: type, environ: Mapping[str, str]) -> dict[str, str | None]:
    """The values of the fields that hold secrets. Raises InvalidError."""
    return {each.field: secret(environ, each.variable) for each in declared(model) if each.is_secret}
