"""A model that says what a script tells it to: it stands where the package of this name would, on a program's path.

`SCRIPTED_CALLS`: JSON, the calls of tools that it makes, as `[["read_state", {"group": "import", "key": "status"}]]`.
"""

import json
import os
from types import SimpleNamespace
from typing import Any

from jsonschema import validate


class Anthropic:
    """The part of the client that the document uses."""

    def __init__(self) -> None:
        self.messages = self

    def create(
        self, *, model: str, max_tokens: int, tools: list[dict[str, Any]], messages: list[dict[str, Any]]
    ) -> SimpleNamespace:
        """A text, then the calls; each of a tool that it was given, with arguments that fit."""
        assert messages[0]["role"] == "user"
        schemas = {tool["name"]: tool["input_schema"] for tool in tools}
        blocks = [SimpleNamespace(type="text", text="I will use the tools.")]
        for name, arguments in json.loads(os.environ["SCRIPTED_CALLS"]):
            validate(arguments, schemas[name])
            blocks.append(SimpleNamespace(type="tool_use", id="1", name=name, input=arguments))
        return SimpleNamespace(content=blocks, stop_reason="tool_use")
