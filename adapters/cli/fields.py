"""Makes the parser of a command from the fields of an operation, and the arguments of a call from parsed options."""

import argparse
import json
import re
import sys
from types import UnionType
from typing import Any, Final, Literal, NoReturn, Union, get_args, get_origin

from pydantic import WithJsonSchema
from pydantic.fields import FieldInfo

from holdlog.adapters.cli.parser import Parser, read_duration
from holdlog.adapters.operations.base import Operation
from holdlog.domain.names import AUTHORS
from holdlog.domain.refusals import InvalidError

_ALIASES: Final = {"expected_version": "version", "correlation_id": "correlation", "start": "from", "end": "to"}
_ENDING: Final = re.compile("_(seconds|version|key)$")
"""What a person need not type: `--wait` is `--wait-seconds`."""
_METAVAR_OF_NAME: Final = {"start": "FROM", "end": "TO", "operations": "FILE", "checkpoint": "FILE"}
_HELP: Final = {
    "operations": "a JSON list of steps; - is standard input",
    "checkpoint": "a file whose last line checkpoint printed: the log must contain it; - is standard input",
    **dict.fromkeys(("moment", "start", "end"), 'a position, or a time: 14:03 (local), "14:03 UTC", "10 minutes ago"'),
    "since_version": "the version that you know (default: 0, which returns the current value at once if there is one)",
}
"""Help of options, where it differs from the description of the field."""
_PLAIN_HELP: Final = {
    "agent": "only of this agent and its sub-agents",
    "also": "one more; repeat the option for several",
    "dry_run": "show what would change, and change nothing",
    "expected_version": "the version that you read",
    "guard": "a claim that you hold: if it has ended, nothing is written",
    "reason": "a text for the history",
    "receipt": "the one returned with the claim, if any",
    "refusals": "also list refused commands",
    "resource": "a file, a folder (src/) or custom://name",
    "value": "JSON, or a plain text; - is standard input",
}
"""Help of arguments whose field has no description."""
_OPTION_OF_NAME: Final = {"older_than_seconds": (read_duration, "AGE")}
_METAVAR_OF_TYPE: Final[dict[Any, str]] = {int: "N", float: "SECONDS"}
_CONDITION: Final = re.compile(r"(.+)@([0-9]{1,18})", re.DOTALL)
_ITEM: Final = re.compile(r"\.\d+")
_ARGUMENT: Final = re.compile(r"([a-z_]+)((?:\.\w+)*): ")


def add_fields(
    parser: Parser,
    kind: type[Operation],
    positional: tuple[str, ...],
    without: tuple[str, ...] = (),
    optional: str = "",
) -> None:
    """Add a positional argument for each of `positional`, and an option for each other field, except those in
    `without`. From `optional` on, positional arguments may be left out. What the user leaves out has no attribute."""
    required = [at for at, name in enumerate(positional) if kind.model_fields[name].is_required()]
    for at, name in enumerate(positional):
        field = kind.model_fields[name]
        parser.add_argument(
            name,
            metavar=name_metavar(name),
            nargs="?" if at > max(required, default=-1) or optional in positional[: at + 1] else None,
            type=_find_reader(name, field),
            default=argparse.SUPPRESS,
            help=_HELP.get(name, field.description or _PLAIN_HELP.get(name)),
        )
    for name, field in kind.model_fields.items():
        if name not in (*positional, *without):
            parser.add_argument(*list_names(kind, name), **_make_option(kind, name, field))


def name_metavar(name: str) -> str:
    """How help and errors show a positional argument."""
    return _METAVAR_OF_NAME.get(name, name.upper())


def list_names(kind: type[Operation], name: str) -> list[str]:
    """The names of an option: the name of the field, and its alias if it has one."""
    field = kind.model_fields[name]
    full = field.alias or name
    short = "by" if name in AUTHORS and field.is_required() else _ALIASES.get(name) or _ENDING.sub("", full)
    names = [full] if short in kind.model_fields else [full, short]
    return [f"--{it.replace('_', '-')}" for it in dict.fromkeys(names)]


def collect(kind: type[Operation], options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that the user gave, by the names that the operation takes."""
    values = vars(options)
    return {field.alias or name: values[name] for name, field in kind.model_fields.items() if name in values}


def rename_argument(error: InvalidError, kind: type[Operation], positional: tuple[str, ...]) -> InvalidError:
    """Replace the name of the argument with which a message begins by its name on the command line."""
    text = str(error)
    match = _ARGUMENT.match(text)
    names = {field.alias or name: name for name, field in kind.model_fields.items()}
    if match is None or match[1] not in names:
        return InvalidError(text)
    name = names[match[1]]
    shown = name_metavar(name) if name in positional else list_names(kind, name)[-1]
    part = _ITEM.sub("", match[2])  # an option is repeated for each item
    return InvalidError(f"{shown}{part}: {text[match.end() :]}")


def read_value(text: str) -> Any:
    """Parse a text as JSON; a text that does not look like JSON is returned as it is. `-` reads standard input. Raises
    ArgumentTypeError for broken JSON."""
    text = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] in ("{", "[", '"'):
            message = "starts like JSON but is not valid JSON; to store it as text, make it a JSON string: '\"…\"'"
            raise argparse.ArgumentTypeError(message) from None
        return text


def read_condition(text: str) -> dict[str, Any]:
    """Parse a fencing condition, RESOURCE@VERSION. Raises ArgumentTypeError."""
    if (parts := _CONDITION.fullmatch(text)) is None:
        raise argparse.ArgumentTypeError("must be RESOURCE@VERSION, for example src/parser.py@3")
    return {"resource": parts[1], "version": int(parts[2])}


def read_steps(path: str) -> Any:
    """The steps of a transaction, in a file; `-` is standard input. Raises ArgumentTypeError."""
    try:
        if path == "-":
            return json.load(sys.stdin)
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError("must be a list of operations, as JSON") from None


def read_last_line(path: str) -> str:
    """The last line of a file; `-` is standard input. Raises ArgumentTypeError."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8") as file:
            return file.read().rstrip("\n").rpartition("\n")[2]
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from None


_READERS: Final = {"guard": read_condition, "operations": read_steps, "checkpoint": read_last_line}


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _find_reader(name: str, field: FieldInfo) -> Any:
    """The function that parses the text of a field. Operations parse numbers themselves."""
    if name in _READERS:
        return _READERS[name]
    schemas = [part.json_schema for part in field.metadata if isinstance(part, WithJsonSchema)]
    return read_value if {} in schemas or {"type": "number"} in schemas else str


def _unwrap(kind: Any) -> Any:
    """The type without None or annotations."""
    if get_origin(kind) in (Union, UnionType):
        return next(argument for argument in get_args(kind) if argument is not type(None))
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


def _make_option(kind: type[Operation], name: str, field: FieldInfo) -> dict[str, Any]:
    """The keyword arguments with which argparse adds an option for a field."""
    annotation = _unwrap(_unwrap(field.annotation))
    choices = ", ".join(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ""
    text = _HELP.get(name, field.description or _PLAIN_HELP.get(name, choices))
    if name in AUTHORS and field.is_required():
        text = "who calls (default: HOLDLOG_AGENT, or else your user name)"
    elif field.default not in (None, "", False) and not field.is_required():
        text = f"{text} (default: {field.default})".lstrip()
    options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text or None}
    if annotation is bool:
        return options | {"action": "store_true"}
    if name in _OPTION_OF_NAME:
        return options | {"type": _OPTION_OF_NAME[name][0], "metavar": _OPTION_OF_NAME[name][1]}
    if get_origin(annotation) is Literal:
        return options | {"choices": get_args(annotation), "metavar": name.upper()}
    last = name.removesuffix("_id").rpartition("_")[2].upper()
    metavar = "NAME" if name in AUTHORS else _METAVAR_OF_NAME.get(name) or _METAVAR_OF_TYPE.get(annotation, last)
    options |= {"metavar": metavar, "type": _find_reader(name, field)}
    if get_origin(annotation) is list:
        return options | {"action": "append", "metavar": "RESOURCE@VERSION" if name == "guard" else metavar}
    return options
