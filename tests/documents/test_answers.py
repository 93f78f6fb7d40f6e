"""docs/answers.md names what the models and signatures hold, and nothing else."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.past import responses as past
from holdlog.adapters.api.threads import responses as threads
from holdlog.adapters.api.values import responses
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.mcp.tools import TOOLS
from holdlog.adapters.mcp.tools.group import ToolKind

DOCUMENT = (Path(__file__).parents[2] / "docs" / "answers.md").read_text()
SECTIONS = {
    title.splitlines()[0]: title.split("\n", 1)[1] for title in re.split(r"^##+ ", DOCUMENT, flags=re.MULTILINE)[1:]
}
KINDS = [kind for group in TOOLS.values() for kind in group.kinds()]
ROWS = {
    "claims": claims.Held,
    "also` and `released": claims.Version,
    "waiting` and `line": claims.Waiter,
    "queues": claims.Queue,
    "agents": claims.AgentPart,
    "cycle": claims.Step,
    "also_claimed_in": claims.Elsewhere,
    "lost": responses.Lost,
    "records` of list": responses.ListedRecord,
    "records` of export": responses.ExportedRecord,
    "namespaces": responses.ListedNamespace,
    "history": responses.Past,
    "guard": responses.FencingConditionView,
    "results": responses.TransactionPart,
    "events": responses.EventView,
    "items": threads.Item,
    "claims` of past": past.PastHeld,
    "agents` of past": past.PastAgent,
    "as_of": responses.AsOf,
}


def items(section: str) -> list[tuple[str, list[str]]]:
    """The bullets: what they name first, and what stands after the colon."""
    bullets = re.findall(r"^\* `(.+?):((?:.|\n  )+)", SECTIONS[section], flags=re.MULTILINE)
    named = re.compile(r"`([a-z_]+\??)`")
    return [
        (first, sorted(name for name in named.findall(re.sub(r"\(.*?\)", "", rest)) if name != "status"))
        for first, rest in bullets
    ]


def fields(model: type[BaseModel]) -> list[str]:
    """Without those that every answer has."""
    return sorted(
        name if field.is_required() or field.default is not None else f"{name}?"
        for name, field in model.model_fields.items()
        if name not in ("status", "lost", "as_of")
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_answers_document_lists_every_answer_with_its_fields(kind: ToolKind) -> None:
    told = [(first.split("`")[0], listed) for first, listed in items(kind.name)]
    assert told == [(model.model_fields["status"].default, fields(model)) for model in kind.answers]


async def test_answers_document_lists_every_argument() -> None:
    tools = await build_server(open_holdlog(":memory:"), tuple(TOOLS)).list_tools()
    assert len(tools) > 20
    for tool in tools:
        told = SECTIONS[tool.name.removeprefix("holdlog_")].strip().split("\n\n")[0]
        required = tool.parameters.get("required", [])
        arguments = [name if name in required else f"{name}?" for name in tool.parameters["properties"]]
        assert re.findall(r"`([a-z_]+\??)`", told) == arguments
        defaults = {
            name: str(argument["default"]).lower()
            for name, argument in tool.parameters["properties"].items()
            if argument.get("default") not in (None, "") and name != "force"
        }
        assert dict(re.findall(r"`([a-z_]+)\?` \((\w+)\)", told)) == defaults


def test_answers_document_lists_every_row_of_a_list() -> None:
    told = {first.rstrip("`"): listed for first, listed in items("Lists in responses")}
    assert told == {name: fields(model) for name, model in ROWS.items()}
    answers = {answer for kind in KINDS for answer in kind.answers}
    assert {part for answer in answers for part in parts(answer)} == set(ROWS.values())


def parts(model: type[BaseModel]) -> set[type[BaseModel]]:
    """The models of the rows of all lists in a model, and in its rows."""
    kinds = [kind for field in model.model_fields.values() for kind in _inside(field.annotation)]
    found = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)}
    return found.union(*map(parts, found))


def _inside(annotation: Any) -> list[Any]:
    return [inner for kind in get_args(annotation) for inner in (kind, *_inside(kind))]


def test_answers_document_lists_every_status_of_a_tool() -> None:
    assert items("Every tool") == [
        ("unavailable`", fields(responses.Unavailable)),
        ("denied`", fields(responses.Denied)),
        ("error`", fields(responses.Failed)),
    ]


def test_answers_document_explains_exactly_the_existing_fields() -> None:
    rows = [line.split("|")[1] for line in SECTIONS["What the fields mean"].splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)]
    models = [
        *(answer for kind in KINDS for answer in kind.answers),
        *ROWS.values(),
        responses.Unavailable,
        responses.Denied,
    ]
    assert len(told) == len(set(told))
    assert set(told) == {name for model in models for name in model.model_fields}
