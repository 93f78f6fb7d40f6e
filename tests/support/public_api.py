"""What programs, agents and people may rely on: names, signatures, tools, answers, commands, paths, events.

`python -m tests.support.public_api` writes fixtures/public_api.json; run it after a change of the public API.
"""

import argparse
import asyncio
import enum
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

import holdlog
from holdlog.adapters.cli.main import build_parser
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.mcp.tools import TOOLS
from holdlog.projections.fold import EVENTS
from tests.support.curl import openapi_document

FILE: Final = Path(__file__).parent / "fixtures" / "public_api.json"
_WORDING: Final = frozenset({"title", "description", "summary", "info", "examples", "example"})
"""Texts and class names of schemas. Programs do not rely on them."""


def public_api() -> dict[str, Any]:
    return {
        "library": {name: _described(getattr(holdlog, name)) for name in holdlog.__all__ if name != "__version__"},
        "tools": asyncio.run(_tools()),
        "responses": {
            kind.name: [_shape(it) for it in kind.answers] for group in TOOLS.values() for kind in group.kinds()
        },
        "commands": _commands(build_parser()[0]),
        "http": _http(),
        "events": {topic: list(event.model_fields) for topic, event in sorted(EVENTS.items())},
    }


def _described(it: Any) -> Any:
    if not inspect.isclass(it):
        return _signature(it)
    if issubclass(it, enum.Enum):
        return [member.value for member in it]
    bases = sorted(base.__name__ for base in it.__mro__[1:] if base.__name__ in (*holdlog.__all__, "Exception"))
    if issubclass(it, BaseModel):
        it.model_rebuild()  # deferred until its first use, which another test may have made
    return {"bases": bases, "signature": _signature(it), "members": dict(_members(it))}


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Of the class and of its bases that are ours."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("holdlog.")]
    names = {name for base in ours for name in (*vars(base), *inspect.get_annotations(base))}
    for name in sorted(names):
        if name.startswith("_") and not (name.startswith("__") and callable(vars(kind).get(name))):
            continue
        member = inspect.getattr_static(kind, name, None)
        yield name, _signature(getattr(kind, name)) if inspect.isroutine(member) else "attribute"


def _signature(it: Any) -> Any:
    """Names, kinds and plain defaults of the parameters."""
    try:
        parameters = inspect.signature(it).parameters.values()
    except (TypeError, ValueError):
        return "attribute"
    return [f"{it.kind.name.lower()} {it.name}{_default(it.default)}" for it in parameters]


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f" = {value!r}" if isinstance(value, str | int | float | tuple | None) else " = …"


async def _tools() -> dict[str, Any]:
    tools = await build_server(open_holdlog(":memory:"), tuple(TOOLS)).list_tools()
    return {tool.name: _without_wording(tool.parameters) for tool in tools}


def _shape(model: type[BaseModel]) -> dict[str, Any]:
    """The fields, with their types as JSON Schema shows them, without names of classes."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    fields = _resolved(schema.get("properties", {}), schema.get("$defs", {}))
    return {name if name in required else f"{name}?": _without_wording(it) for name, it in fields.items()}


def _resolved(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_resolved(it, definitions) for it in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        fields = definitions[schema["$ref"].rpartition("/")[2]].get("properties", {})
        return {"fields": sorted(fields)}
    return {name: _resolved(it, definitions) for name, it in schema.items()}


def _without_wording(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_wording(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: it for name, it in schema.items() if not (name in _WORDING and isinstance(it, str | list))}
    return {name: _without_wording(it) for name, it in kept.items()}


def _http() -> dict[str, Any]:
    described = openapi_document()
    return {
        f"{method} {path}": {
            "parameters": sorted(_parameter(it, described) for it in operation.get("parameters", ())),
            "responses": sorted(operation["responses"]),
        }
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
        if method != "parameters"
    }


def _parameter(it: dict[str, Any], described: dict[str, Any]) -> str:
    if "$ref" in it:
        it = described["components"]["parameters"][it["$ref"].rpartition("/")[2]]
    return f"{it['in']} {it['name']}"


def _commands(parser: argparse.ArgumentParser) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {f"{name} …": _commands(it) for name, it in sorted(action.choices.items())}
        else:
            choices = f" {sorted(map(str, action.choices))}" if action.choices else ""
            name = " ".join(action.option_strings) or action.dest
            found[name] = f"{action.nargs}{choices}{' required' if action.required else ''}"
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(public_api(), indent=1, ensure_ascii=False, sort_keys=True) + "\n")
