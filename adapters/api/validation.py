"""Argument checks that all requests share. Each raises InvalidError with one line, without the value."""

import math
from collections.abc import Callable, Collection
from typing import Annotated, Final, TypeVar

from pydantic import TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.names import Agent, AllowedAgent, Beginning, Label, Name, closest
from holdlog.domain.refusals import InvalidError, TooLargeError
from holdlog.domain.value import Json

MAX_VERSION: Final = 2**63 - 1
MAX_SHOWN: Final = 64
"""Characters of an argument's name in an error."""
LONGEST: Final = 1e9
"""Longest wait in seconds that a caller can request; longer ones are capped anyway."""

Answer = TypeVar("Answer")

NAMED: Final = WithJsonSchema({"type": "string", "minLength": 1})
"""The schema of all names. It has neither the characters nor the most of them, which count in NFC: a client that checks
its arguments by a schema must not refuse what is valid."""
NAME: Final = TypeAdapter[str](Annotated[Name, NAMED])
AGENT: Final = TypeAdapter[str](Annotated[AllowedAgent, NAMED])
STORED_AGENT: Final = TypeAdapter[str](Annotated[Agent, NAMED])
"""Accepts any stored agent name, to search for what an agent did."""
BEGINNING: Final = TypeAdapter[str](Beginning)
SESSION: Final = TypeAdapter[str](Annotated[Label, NAMED])


def caller(base: Caller = NOBODY, **facts: str | None) -> Caller:
    """`base` with the facts of one call (reason, request_id …); None adds nothing. Raises InvalidError."""
    given = {fact: value for fact, value in facts.items() if value is not None}
    return checked(lambda: Caller.model_validate(base.model_dump() | given)) if given else base


def checked(make: Callable[[], Answer], by: str = "updated_by") -> Answer:
    """Build a message; a finding of pydantic becomes an InvalidError with one line, without the value.
    `by`: the caller's name for the field `by`.
    """
    try:
        return make()
    except ValidationError as error:
        raise invalid(error, by) from None


def invalid(error: ValidationError, by: str = "updated_by") -> InvalidError:
    """The refusal for a message that pydantic rejected: one line, without the value. `by`: as in `checked`."""
    return InvalidError(first_finding(error, by))


def whole(number: object, argument: str) -> int:
    """Check a version: 0 or more, small enough for every store."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_VERSION:
        raise InvalidError(f"{argument}: must be a whole number from 0 to {MAX_VERSION}")
    return number


def page_size(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidError(f"limit: must be a whole number from 1 to {MAX_PAGE}")
    return limit


def text(given: str, argument: str, rule: TypeAdapter[str]) -> str:
    try:
        found: str = rule.validator.validate_python(given)
    except ValidationError as error:
        raise InvalidError(f"{argument}: {first_finding(error)}") from None
    return found


def json_value(given: object, limit: int, argument: str = "value") -> Json:
    """Convert to JSON of at most `limit` bytes. Also raises TooLargeError."""
    try:
        value = Json.of(given)
    except ValueError as error:
        raise InvalidError(f"{argument}: {error}") from None
    if value.is_above(limit):
        raise TooLargeError(limit, argument)
    return value


def after_argument(given: str | None, argument: str) -> str | None:
    return None if given is None else text(given, argument, BEGINNING)


def number_of_seconds(given: object, argument: str, least: float = 0.0, most: float | None = None) -> float:
    """Check a finite number of seconds within its bounds; it is never clamped, except to `LONGEST`."""
    within = f"from {least:g} to {most:g}" if most is not None else f"{least:g} or more"
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not (isinstance(given, int) or math.isfinite(given))
        or given < least
        or (most is not None and given > most)
    ):
        raise InvalidError(f"{argument}: must be a finite number of seconds, {within}")
    return float(given) if most is not None or given <= LONGEST else LONGEST


def unknown_argument(name: str, known: Collection[str], *, is_name: bool = True) -> str:
    """The error for an unknown argument of a call that has these. `is_name`: False if `name` is a word in place of a
    name that must not be repeated: the word resembles known names only by chance."""
    if not known:
        return f"{name}: unknown argument; this call takes none"
    near = closest(name, known) if is_name else None
    meant = f"did you mean {near}? Known" if near else "known"
    return f"{name}: unknown argument; {meant} arguments: {', '.join(known)}"


def first_finding(error: ValidationError, by: str = "by", known: Collection[str] = ()) -> str:
    """The argument and what is wrong with it; an unknown argument that is too long or unprintable is not repeated.
    Unknown arguments come first: a misspelled argument is also a missing one. `known`: the arguments of the call."""
    findings = error.errors(include_url=False, include_input=False)
    finding = next((it for it in findings if it["type"] in _UNKNOWN), findings[0])
    path = ""
    for part in finding["loc"]:
        path = part if isinstance(part, str) else f"{path}[{part}]" if path else ""
    message = what_is_wrong(finding)
    is_name = 0 < len(path) <= MAX_SHOWN and path.isprintable()
    if not is_name and (path or "" in finding["loc"]):
        path = "arguments"
    if known and len(finding["loc"]) == 1 and finding["type"] in _UNKNOWN:
        return unknown_argument(path, known, is_name=is_name)
    return f"{by if path == 'by' else path}: {message}" if path else message


def what_is_wrong(finding: ErrorDetails) -> str:
    if words := _WORDS.get(finding["type"]):
        return words.format(**finding.get("ctx", {}))
    return finding["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


_WORDS: Final = {
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "too_long": "must have at most {max_length} entries",
    "missing": "is required",
    "missing_argument": "is required",
    "extra_forbidden": "unknown argument",
    "unexpected_keyword_argument": "unknown argument",
}
"""Texts for pydantic's error types."""
_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
