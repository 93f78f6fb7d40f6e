"""A model that makes the calls of a script. It takes the place of the package of this name on a program's path.

`SCRIPTED_CALLS`: JSON, the calls of tools, as `[["read_state", {"group": "import", "key": "status"}]]`.
"""

import json
import os
from types import SimpleNamespace
from typing import Any


class Anthropic:
    """The part of the client that echoValue's document uses."""

    def __init__(self) -> None:
        self.messages = self

    def create(self, *, tools: list[dict[str, Any]], **_: Any) -> SimpleNamespace:
        """A text, then the calls, each of a tool that it was given."""
        blocks = [SimpleNamespace(type="text", text="I will use the tools.")]
        for name, arguments in json.loads(os.environ["SCRIPTED_CALLS"]):
            (tool,) = [it for it in tools if it["name"] == name]
            assert {*tool["input_schema"]["required"]} <= {*arguments} <= {*tool["input_schema"]["properties"]}
            blocks.append(SimpleNamespace(type="tool_use", id="1", name=name, input=arguments))
        return SimpleNamespace(content=blocks, stop_reason="tool_use")
