"""Parsers of commands. An error is one line that suggests a similar word."""

import argparse
import re
import shutil
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import fill
from typing import Any, Final, NoReturn

from holdlog.adapters.operating_system.files import escape
from holdlog.domain.refusals import InvalidError

BAD_ARGUMENTS: Final = 2
DB_HELP: Final = (
    "the store: a file, or postgresql://user@host/database (default: HOLDLOG_DB, or else the store of the git"
    " repository)"
)
_SAME_MEANING: Final = {"--agent": "--by"}
_NEGATIVE: Final = re.compile(r"-\d+(\.\d*)?([eE][+-]?\d+)?|-\.\d+([eE][+-]?\d+)?")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhdw])")


class Parser(argparse.ArgumentParser):
    """Without abbreviated options: a later option could make an abbreviation ambiguous."""

    def __init__(self, name: str, description: str = "", examples: Iterable[str] = (), has_json: bool = True) -> None:
        lines = [f"  holdlog {example}" for example in examples]
        super().__init__(
            f"holdlog {name}".rstrip(),
            description=description,
            epilog="\n".join([f"example{'s' if len(lines) > 1 else ''}:", *lines]) if lines else None,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._negative_number_matcher = _NEGATIVE
        self.add_argument("--db", metavar="PATH|URL", help=DB_HELP)
        if has_json:
            self.add_argument("--json", action="store_true", help="print the whole result as JSON")

    def format_help(self) -> str:
        self.description = fill(self.description or "", shutil.get_terminal_size().columns - 2)
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = [name for action in self._actions for name in action.option_strings]
            first = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
            guess = suggest(_SAME_MEANING[first] if _SAME_MEANING.get(first) in known else first, known)
            self.error(f"unknown argument {' '.join(unknown)}{guess}")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """The same message on every Python version."""
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            wrong = f"{value!r} is not one of {', '.join(choices)}{suggest(str(value), choices)}"
            raise argparse.ArgumentError(action, wrong)

    def error(self, message: str) -> NoReturn:
        """Report it in one line, whatever the arguments contain."""
        self.exit(BAD_ARGUMENTS, f"{self.prog}: {escape(message, allowed='')} (see {self.prog} --help)\n")


def suggest(word: str, known: Iterable[str]) -> str:
    """A question to append to an error about an unknown word; empty if no known word is similar."""
    names = {name.lstrip("-"): name for name in known}  # dashes make two options no more similar
    similar = get_close_matches(word.lstrip("-"), names, 1)
    return f"; did you mean {names[similar[0]]}?" if similar else ""


def read_duration(text: str) -> float:
    """The seconds of a duration such as 12h. Raises ArgumentTypeError."""
    if (parts := _DURATION.fullmatch(text)) is None or not int(parts[1]):
        raise argparse.ArgumentTypeError("must be a number with s, m, h, d or w, for example 12h")
    return float(int(parts[1]) * _UNITS[parts[2]])


def choose_action(command: str, actions: dict[str, str], words: list[str]) -> tuple[str, list[str]]:
    """The action of a command that has several, such as `thread read`, and the words after it. Raises SystemExit after
    help, InvalidError."""
    indexes = [i for i, word in enumerate(words) if not word.startswith("-") and words[i - 1 : i] != ["--db"]]
    action = words[indexes[0]] if indexes else None
    if action in actions:
        return action, words[: indexes[0]] + words[indexes[0] + 1 :]
    if {"-h", "--help"} & set(words):
        lines = [f"  {name:<9}{text}" for name, text in actions.items()]
        print("\n".join([f"usage: holdlog {command} ACTION …", "", *lines, "", "example:"]))
        print(f"  holdlog {command} {next(iter(actions))} --help")
        sys.exit(0)
    if action is None:
        raise InvalidError(f"{command}: add one of {', '.join(actions)}")
    raise InvalidError(f"{command}: {action!r} is not one of {', '.join(actions)}{suggest(action, actions)}")
