"""Write docs/reference.md from the operations, their results and the settings: `make reference`."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from write_library import show

from holdlog.adapters.cli.commands import DERIVED, OF_RESOURCE
from holdlog.adapters.cli.fields import list_names, name_metavar
from holdlog.adapters.cli.main import BY_HAND
from holdlog.adapters.cli.settings import RULES, Settings, name_option
from holdlog.adapters.mcp.schemas import describe_arguments
from holdlog.adapters.mcp.tools import list_kinds
from holdlog.adapters.operations import admin, tokens, transfer  # noqa: F401  # OPERATIONS; the others are tools
from holdlog.adapters.operations.base import OPERATIONS, Operation
from holdlog.domain import refusals

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
GROUPS = {
    "claims": "Claims",
    "state": "Values",
    "power": "Computing, log and past",
    "threads": "Threads",
    "kv": "Texts, as in echoValue",
    "": "The past, for people and programs",
    "audit": "Audit and copies",
    "tokens": "Tokens",
}
INTERNAL = ("HoldlogError", "LostError")
HEAD = """\
# Reference

For people and agents who look up one call. `make reference` writes this page from the classes of the operations.

* **Tools** are listed with their default prefix. `--tools` chooses groups; `claims` is the default.
* **Commands** take the words in capitals by position and every other argument as an option: `--` and its name with
  dashes, or the shorter name after it. All take `--db` and `--json`.
* **Routes** are below `/v1`. What is neither in the path nor the query is in a JSON body.
* **Methods** are those of `StateStore`, and awaitable those of `AsyncStateStore`. A file may be open, in binary mode.
* **Results** are described in the second part; a field `name?` is left out where it does not apply. Most refusals also
  have a `hint`. Any call may also return `unavailable`, with `retry_after` in seconds and `in_doubt` (it may have been
  done), or `error` with a `message`. The library raises both, and each status that has an exception in the third part.
"""


def name_type(schema: dict[str, Any]) -> str:
    """A type for a reader, from the JSON schema of an argument."""
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if options := schema.get("anyOf"):
        return "any JSON" if len(options) > 2 else " or ".join(map(name_type, options))
    if schema["type"] == "array":
        return f"list of {name_type(schema['items'])}"
    if "properties" in schema:
        return f"object ({', '.join(f'`{name}`' for name in schema['properties'])})"
    bounds = f", {schema['minimum']} to {schema['maximum']}" if "maximum" in schema else ""
    return str(schema["type"]) + bounds


def write_table(head: str, rows: Iterable[Iterable[str]]) -> str:
    lines = [head, " | ".join("---" for _ in head.split(" | ")), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines) if len(lines) > 2 else ""


def write_doc(kind: Any) -> str:
    """The docstring as one paragraph; that of a NamedTuple without one lists its fields again."""
    text = " ".join((kind.__doc__ or "").split())
    return "" if text.startswith(f"{kind.__name__}(") else text


def list_surfaces(kind: type[Operation]) -> Iterator[str]:
    """How each surface calls an operation."""
    if list_kinds().get(kind.tool) is kind:
        yield f"tool `holdlog_{kind.tool}` (group `{kind.group}`)"
    for name, command in DERIVED.items():
        if command.operation == kind.name:
            words = kind.positional if command.positional is None else command.positional
            yield f"command `{' '.join(['holdlog', name, *map(name_metavar, words)])}`"
    yield from (f"command `holdlog {name} RESOURCE`" for name, it in OF_RESOURCE.items() if it[1] == kind.name)
    if kind.route:
        yield f"route `{kind.route}`"
    if OPERATIONS.get(kind.name) is kind:
        first = kind.name.strip("_").partition("_")[0]
        if first in BY_HAND:
            yield f"command `holdlog {kind.name.replace('_', ' ') if first in ('thread', 'token') else first}`"
        words = [kind.model_fields[it].alias or it for it in kind.positional]
        yield f"method `{kind.name}({', '.join(words if len(words) == len(kind.model_fields) else [*words, '…'])})`"
    yield f"scope `{kind.scope}` of a token"


def write_operation(kind: type[Operation]) -> str:
    schema, fields = describe_arguments(kind), {it.alias or name: name for name, it in kind.model_fields.items()}
    rows = []
    for name, part in schema["properties"].items():
        names = [name, *(list_names(kind, fields[name])[1:] if name in fields else [])]
        notes = ["Required."] if name in schema.get("required", ()) else []
        notes += [f"Default: {part['default']}."] if "default" in part else []
        notes += [f"{part['description'].rstrip('.')}."] if "description" in part else []
        rows.append((", ".join(f"`{it}`" for it in names), name_type(part), " ".join(notes)))
    surfaces = "\n".join(f"* {line}" for line in list_surfaces(kind))
    results = ", ".join(f"`{read_status(it)}` ([{it.__name__}](#{it.__name__.lower()}))" for it in kind.results)
    parts = [f"### {kind.name}", write_doc(kind), surfaces, write_table("argument | type | meaning", rows)]
    return "\n\n".join(filter(None, [*parts, f"Results: {results}\n"]))


def read_status(kind: Any) -> str:
    return str(kind._field_defaults.get("status", ""))


def list_results(hints: Iterable[Any]) -> Iterator[Any]:
    """The results, and what their fields contain."""
    for hint in hints:
        yield from list_results(get_args(hint))
        if hasattr(hint, "_fields"):
            yield hint
            yield from list_results(hint.__annotations__.values())


def write_result(kind: Any) -> str:
    fields = []
    for name in kind._fields[:-1] if read_status(kind) else kind._fields:  # `status` is the last one
        text, mark = show(kind.__annotations__[name]).replace("Sequence[", "list["), ""
        if name in kind._field_defaults:
            text, mark = text.removesuffix(" | None"), "?"
        fields.append(f"`{name}{mark}: {text}`")
    text = " ".join(filter(None, [f"`{read_status(kind)}`." if read_status(kind) else "", write_doc(kind)]))
    return f"### {kind.__name__}\n\n{text}\n\n{', '.join(fields) or 'No fields'}.\n"


def write_reference() -> str:
    kinds = [*list_kinds().values(), *(kind for _, kind in sorted(OPERATIONS.items()))]
    parts = [HEAD]
    for group, title in GROUPS.items():
        parts += [f"## {title}\n", *(write_operation(kind) for kind in dict.fromkeys(kinds) if kind.group == group)]
    results = {it.__name__: it for it in list_results(result for kind in kinds for result in kind.results)}
    parts += ["## Results\n", *(write_result(results[name]) for name in sorted(results))]
    errors = [(name, kind) for name, kind in vars(refusals).items() if name.endswith("Error") and name not in INTERNAL]
    rows = [(f"`{name}`", f"`{kind.code}`", write_doc(kind)) for name, kind in errors]
    parts += ["## Exceptions\n", write_table("class | status | meaning", rows)]
    rows = [(f"`{name}`", text) for name, (_, text) in BY_HAND.items() if text]
    parts += ["## Commands by hand\n", write_table("command | what it does", rows)]
    defaults = {name: f"{value or ''}".strip("(),'") for name, value in Settings._field_defaults.items()}
    rows = [(f"`{name_option(it)}`", f"`HOLDLOG_{it.upper()}`", rule.help, defaults[it]) for it, rule in RULES.items()]
    parts += ["## Settings of serve\n", write_table("option | variable | meaning | default", rows)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


if __name__ == "__main__":
    PAGE.write_text(write_reference())
