"""The parsers of all commands: one-line errors with a suggestion, and a help text that groups the commands."""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

BAD_ARGUMENTS: Final = 2
"""Exit code."""
_NAME_WIDTH: Final = 12
"""Characters for the names of commands in the help text."""
_SAME_MEANING: Final = {"--agent": "--by", "--by": "--agent"}
"""Options of some commands, and what the others call them."""
LONGEST_DAYS: Final = 3_650
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhdw])")


class Parser(argparse.ArgumentParser):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Disable abbreviated options: an option added later could make an abbreviation ambiguous. Descriptions and
        examples keep their lines."""
        fixed = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(*arguments, **options | fixed)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Let the command report unknown arguments: its help lists the known ones."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = [name for action in self._actions for name in action.option_strings]
            first = next((it.partition("=")[0] for it in unknown if it.startswith("-")), "")
            guess = did_you_mean(_SAME_MEANING[first] if _SAME_MEANING.get(first) in known else first, known)
            self.error(f"unknown argument {' '.join(unknown)}{guess}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not one of the choices, with the same message on every Python version."""
        if action.choices is not None and value not in action.choices:
            choices = [str(it) for it in action.choices]
            wrong = f"{value!r} is not one of {', '.join(choices)}{did_you_mean(str(value), choices)}"
            raise argparse.ArgumentError(action, wrong)

    def error(self, message: str) -> NoReturn:
        """Report an error in one line, whatever the arguments contain; `--help` shows the usage."""
        from holdlog.adapters.cli.texts import printable

        self.exit(BAD_ARGUMENTS, f"{self.prog}: {printable(message, kept='')} (see {self.prog} --help)\n")


class Commands:
    """Adds commands as `add_subparsers` does, and lists them in groups."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._subparsers = parser.add_subparsers(
            dest="command", metavar="COMMAND", required=True, prog=parser.prog, help=argparse.SUPPRESS
        )
        self._help: dict[str, str] = {}
        self._aliases: set[str] = set()

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        """Add a command. `options`: the arguments of its parser; `help`: its text in the list of commands, which leaves
        out `aliases`."""
        self._help[name] = options["help"]
        self._aliases.update(options.get("aliases", ()))
        parser: argparse.ArgumentParser = self._subparsers.add_parser(name, **options)
        return parser

    @property
    def choices(self) -> frozenset[str]:
        return frozenset(self._aliases.union(self._help))

    def listed(self, groups: Mapping[str, Sequence[str]]) -> str:
        """The commands with their help, below the titles of their groups."""
        return "\n\n".join(
            "\n".join([f"{title}:", *(f"  {name:<{_NAME_WIDTH}}{self._help[name]}" for name in names)])
            for title, names in groups.items()
        )


def add_action(
    actions: Any, store: argparse.ArgumentParser, name: str, help_text: str, epilog: str
) -> argparse.ArgumentParser:
    """Add an action of a command, such as `thread read`, that knows `--db`. `actions`: from `add_subparsers`."""
    description = help_text[0].upper() + help_text[1:] + "."
    action: argparse.ArgumentParser = actions.add_parser(
        name, parents=[store], help=help_text, description=description, epilog=epilog
    )
    return action


def as_option(error: str, names: Mapping[str, str]) -> str:
    """Replace the argument name that begins an error with its name on the command line. `names`: the arguments that are
    not options of the same name."""
    found = re.match(r"([a-z_]+)(\[\d+\])?: ", error)
    if found is None:
        return error
    here = names.get(found[1], f"--{found[1].replace('_', '-')}")
    return error if not here else f"{here}: {error[found.end() :]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to append to an error about an unknown word; empty if no known word is similar."""
    from holdlog.domain.names import closest

    names = {name.lstrip("-"): name for name in known}  # the dashes of two options make them no more similar
    similar = closest(word.lstrip("-"), names)
    return f"; did you mean {names[similar]}?" if similar else ""


def duration_of(text: str, least: int = 0) -> float:
    """The seconds of a duration such as 12h, of at least `least` seconds. For argparse."""
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else -1
    if not least <= seconds <= LONGEST_DAYS * _UNITS["d"]:
        raise argparse.ArgumentTypeError(
            f"must be a number with s, m, h, d or w, for example 12h, up to {LONGEST_DAYS}d"
        )
    return float(seconds)
