"""Makes the parser of a command from the fields of an operation, and the arguments of a call from its words."""

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

_ALIASES: Final = {
    "expected_version": "--version",
    "since_version": "--since",
    "lease_seconds": "--lease",
    "wait_seconds": "--wait",
    "timeout_seconds": "--timeout",
    "ttl_seconds": "--ttl",
    "correlation_id": "--correlation",
    "after_key": "--after",
    "before_version": "--before",
    "start": "--from",
    "end": "--to",
}
_WORDS: Final = {"start": "FROM", "end": "TO", "operations": "FILE", "checkpoint": "FILE"}
_HELP: Final = {
    "operations": "a JSON list of steps; - is standard input",
    "checkpoint": "a file whose last line checkpoint printed: the log must contain it; - is standard input",
    "since_version": "the version that you know (default: 0, which returns the current value at once if there is one)",
}
"""Where the help of an option differs from that of its argument."""
_SPECIAL: Final = {"older_than_seconds": ("--older-than", read_duration, "AGE")}
_METAVARS: Final[dict[Any, str]] = {int: "N", float: "SECONDS"}
_CONDITION: Final = re.compile(r"(.+)@([0-9]{1,18})", re.DOTALL)
_ITEM: Final = re.compile(r"\.\d+")
_ARGUMENT: Final = re.compile(r"([a-z_]+)((?:\.\w+)*): ")


def add_fields(
    parser: Parser,
    kind: type[Operation],
    words: tuple[str, ...],
    without: tuple[str, ...] = (),
    optional: str = "",
) -> None:
    """Add a word for each of `words`, which may be left out from `optional` on, and an option for each other field.
    What is not given has no attribute."""
    is_optional = False
    for name in words:
        field = kind.model_fields[name]
        is_optional = is_optional or not field.is_required() or name == optional
        parser.add_argument(
            name,
            metavar=name_word(name),
            nargs="?" if is_optional else None,
            type=_find_reader(name, field),
            default=argparse.SUPPRESS,
            help=_HELP.get(name, field.description),
        )
    for name, field in kind.model_fields.items():
        if name not in (*words, *without):
            parser.add_argument(*list_names(kind, name), **_describe(kind, name, field))


def name_word(name: str) -> str:
    return _WORDS.get(name, name.upper())


def list_names(kind: type[Operation], name: str) -> list[str]:
    """The names of an option: that of the field, and its alias."""
    field = kind.model_fields[name]
    names = [f"--{(field.alias or name).replace('_', '-')}"]
    alias = _ALIASES.get(name) if name != "after_key" or "after" not in kind.model_fields else None
    if name in AUTHORS and field.is_required():
        alias = "--by"
    if name in _SPECIAL:
        alias = _SPECIAL[name][0]
    return [*names, alias] if alias is not None else names


def collect(kind: type[Operation], options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that were given, by the names that the operation takes."""
    values = vars(options)
    return {field.alias or name: values[name] for name, field in kind.model_fields.items() if name in values}


def name_argument(error: InvalidError, kind: type[Operation], words: tuple[str, ...]) -> InvalidError:
    """Replace the argument that begins a message with its name on the command line."""
    text = str(error)
    place = _ARGUMENT.match(text)
    names = {field.alias or name: name for name, field in kind.model_fields.items()}
    if place is None or place[1] not in names:
        return InvalidError(text)
    name = names[place[1]]
    here = name_word(name) if name in words else list_names(kind, name)[-1]
    part = _ITEM.sub("", place[2])  # an option is repeated for each item
    return InvalidError(f"{here}{part}: {text[place.end() :]}")


def read_value(text: str) -> Any:
    """JSON if it is JSON, else a text; `-` reads it from standard input. Raises ArgumentTypeError for broken JSON."""
    text = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] in ("{", "[", '"'):
            message = "starts like JSON but is not valid JSON; to store it as text, make it a JSON string: '\"…\"'"
            raise argparse.ArgumentTypeError(message) from None
        return text


def read_condition(text: str) -> dict[str, Any]:
    """A guard. Raises ArgumentTypeError."""
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


def read_line(path: str) -> str:
    """The last line of a file; `-` is standard input. Raises ArgumentTypeError."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8") as file:
            return file.read().rstrip("\n").rpartition("\n")[2]
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from None


_READERS: Final = {"guard": read_condition, "operations": read_steps, "checkpoint": read_line}


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _find_reader(name: str, field: FieldInfo) -> Any:
    """What reads the text of a field. Operations read numbers themselves."""
    if name in _READERS:
        return _READERS[name]
    schemas = [part.json_schema for part in field.metadata if isinstance(part, WithJsonSchema)]
    return read_value if {} in schemas or {"type": "number"} in schemas else str


def _unwrap(kind: Any) -> Any:
    """The type that is not None."""
    if get_origin(kind) in (Union, UnionType):
        return next(argument for argument in get_args(kind) if argument is not type(None))
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


def _describe(kind: type[Operation], name: str, field: FieldInfo) -> dict[str, Any]:
    """How argparse takes an option."""
    annotation = _unwrap(_unwrap(field.annotation))
    text = _HELP.get(name, field.description or "")
    if name in AUTHORS and field.is_required():
        text = "who calls (default: HOLDLOG_AGENT, or else your user name)"
    elif field.default not in (None, "", False) and not field.is_required():
        text = f"{text} (default: {field.default})".lstrip()
    options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text or None}
    if annotation is bool:
        return options | {"action": "store_true"}
    if name in _SPECIAL:
        return options | {"type": _SPECIAL[name][1], "metavar": _SPECIAL[name][2]}
    if get_origin(annotation) is Literal:
        return options | {"choices": get_args(annotation), "metavar": name.upper()}
    last = name.removesuffix("_id").rpartition("_")[2].upper()
    metavar = "NAME" if name in AUTHORS else _WORDS.get(name) or _METAVARS.get(annotation, last)
    options |= {"metavar": metavar, "type": _find_reader(name, field)}
    if get_origin(annotation) is list:
        return options | {"action": "append", "metavar": "RESOURCE@VERSION" if name == "guard" else metavar}
    return options
