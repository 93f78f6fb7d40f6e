"""Parse JSON objects from callers into stored items. Errors name the place of a problem, never its value."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from holdlog.adapters.api.threads.conversation import MESSAGE, AgentResult, new_message, new_result
from holdlog.adapters.api.validation import what_is_wrong
from holdlog.domain.refusals import InvalidError, TooLargeError
from holdlog.domain.threads.commands import MAX_APPENDED, NewMessage, NewResult
from holdlog.domain.times import utc

_TIMES: Final = frozenset({"created_at", "createdAt"})
_TYPES: Final = ("text", "tool_call", "tool_result")
_LISTS: Final = frozenset({"output", "prompt", "history"})
"""Fields of a result that are lists of messages of any type."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


class ParsedItems(NamedTuple):
    """Parsed messages and results. `made_up`: a result had no time and got the current one."""

    items: tuple[NewMessage | NewResult, ...]
    made_up: bool


def parse_items(messages: object, results: object, now: int, limit: int) -> ParsedItems:
    """Parse messages and results. `now`: the time (microseconds UTC) of results that have none. `limit`: bytes of each,
    as JSON. Raises InvalidError."""
    given, found = _objects(messages, "messages"), _objects(results, "results")
    if not 1 <= len(given) + len(found) <= MAX_APPENDED:
        raise InvalidError(f"messages and results: must have 1 to {MAX_APPENDED} entries together")
    untimed = [_TIMES.isdisjoint(result) for result in found]
    items: list[NewMessage | NewResult] = [
        _small(_message(message, argument), argument, limit) for argument, message in _placed(given, "messages")
    ]
    items += [_small(_result(result, argument, now), argument, limit) for argument, result in _placed(found, "results")]
    return ParsedItems(tuple(items), any(untimed))


def digest_of(*parts: Any) -> str:
    """Digest of JSON arguments: equal for equal arguments."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _objects(given: object, argument: str) -> Sequence[Mapping[str, Any]]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidError(f"{argument}: must be a list")
    for name, item in _placed(given, argument):
        if not isinstance(item, dict):
            raise InvalidError(f"{name}: must be an object")
    return given


def _placed(items: Sequence[Any], argument: str) -> list[tuple[str, Any]]:
    return [(f"{argument}[{number}]", item) for number, item in enumerate(items)]


def _message(message: dict[str, Any], argument: str) -> NewMessage:
    try:
        return new_message(MESSAGE.validate_python(message))
    except ValidationError as error:
        raise InvalidError(finding_at(error, argument, tagged=True)) from None
    except ValueError as error:
        raise InvalidError(f"{argument}: {_why(error)}") from None


def _result(result: dict[str, Any], argument: str, now: int) -> NewResult:
    """Parse a result. A checksum in it, as in a result that was read before, is ignored and computed again."""
    fields = {name: part for name, part in result.items() if name != "checksum"}
    if _TIMES.isdisjoint(fields):
        fields["created_at"] = utc(now)
    try:
        return new_result(AgentResult.model_validate(fields))
    except ValidationError as error:
        raise InvalidError(finding_at(error, argument, tagged=False)) from None
    except OverflowError:
        raise InvalidError(f"{argument}.created_at: must be in the years 1 to 9999, also in UTC") from None
    except ValueError as error:
        raise InvalidError(f"{argument}: {_why(error)}") from None


def _small(item: NewMessage | NewResult, argument: str, limit: int) -> NewMessage | NewResult:
    if item.value.is_above(limit):
        raise TooLargeError(limit, argument)
    return item


def finding_at(error: ValidationError, argument: str, tagged: bool) -> str:
    """Describe an error: `messages[2].content[0].text: must be a string`. `tagged`: the top level is a union of
    messages."""
    found = error.errors(include_url=False, include_input=False)
    finding = max(found, key=lambda it: len(it["loc"]))  # of the alternatives, the one that matched furthest
    unknown = finding["loc"][-1] if finding["type"] == "extra_forbidden" else None  # reported as the caller spelled it
    path, after_list = "", tagged
    for part in finding["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        if after_list and part in _TYPES:
            after_list = False
            continue  # names a member of the union, not a field
        after_list = part in _LISTS
        if part == "str" or part.startswith("list["):
            continue
        name = part if part == unknown else _CAPITAL.sub("_", part).lower()
        path += "." + (name if _NAME.fullmatch(part) else "?")
    if finding["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return f"{argument}{path}.type: must be {', '.join(_TYPES[:-1])} or {_TYPES[-1]}"
    message = what_is_wrong(finding) if unknown is None else "unknown field"
    return f"{argument}{path}: {message}"


def _why(error: ValueError) -> str:
    """Describe invalid JSON. An error of the encoder may contain the value, so its text is not shown."""
    message = str(error)
    return message if type(error) is ValueError else "contains what JSON cannot represent"
