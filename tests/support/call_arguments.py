"""Arguments of calls and fields of responses, at any depth."""

import json
from typing import Any

Arguments = dict[str, Any]


def is_author(argument: str) -> bool:
    """Whether an argument is the name of the agent that calls."""
    return argument == "agent" or argument.endswith("_by")


def literal(text: str) -> Any:
    """A value in a text: JSON, or else a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def values(response: Any, name: str) -> list[Any]:
    """The values of a field, at any depth, in order."""
    if isinstance(response, list):
        return [found for it in response for found in values(it, name)]
    if not isinstance(response, dict):
        return []
    here = [response[name]] if name in response else []
    return here + [found for it in response.values() for found in values(it, name)]


def replaced(given: Any, name: str, old: str, new: str) -> Any:
    """Arguments in which fields of this name have a new value instead of the old one."""
    if isinstance(given, list):
        return [replaced(it, name, old, new) for it in given]
    if isinstance(given, dict):
        return {key: new if (key, it) == (name, old) else replaced(it, name, old, new) for key, it in given.items()}
    return given


def place(filled: Arguments, name: str, value: Any, inside: str | None, response: Arguments) -> None:
    """Set an argument, or a member of the objects in the argument `inside`: of that with the index in the response, or
    of those about the same thing."""
    if inside is None and name not in filled:
        inside = next((it for it, at in response.items() if type(at) is int and f"{it}s" in filled), None)
    container = filled.get(inside or "", filled.get(f"{inside}s"))
    if not isinstance(container, list):
        filled[name] = value
    elif type(index := response.get(str(inside))) is int:
        container[index][name] = value
    else:
        for entry in container:
            if all(response.get(key) == it for key, it in entry.items() if isinstance(it, str) and key in response):
                entry[name] = value
