"""Messages of agents, and the result of one agent's turn, as in AgentKit. Their fields may also be spelled as there:
`stopReason`."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from holdlog.adapters.operations.base import Agent, encode_value
from holdlog.domain.values import Json


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        defer_build=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        loc_by_alias=False,
    )

    def show(self) -> dict[str, Any]:
        """As JSON, without what is None; the content of a tool's result may be null."""
        fields = self.model_dump(by_alias=False, warnings=False)
        return {name: part for name, part in fields.items() if part is not None or name == "content"}


class TextContent(_Part):
    type: Literal["text"] = "text"
    text: str


class TextMessage(_Part):
    type: Literal["text"] = "text"
    role: Literal["system", "user", "assistant"]
    content: str | list[TextContent]
    stop_reason: Literal["tool", "stop"] | None = None


class ToolCall(_Part):
    type: Literal["tool"] = "tool"
    id: str
    name: str
    input: dict[str, Any] = {}


class ToolCallMessage(_Part):
    type: Literal["tool_call"] = "tool_call"
    role: Literal["user", "assistant"] = "assistant"
    tools: list[ToolCall]
    stop_reason: Literal["tool"] = "tool"


class ToolResultMessage(_Part):
    type: Literal["tool_result"] = "tool_result"
    role: Literal["tool_result"] = "tool_result"
    tool: ToolCall
    content: Any
    stop_reason: Literal["tool"] = "tool"


Message = Annotated[TextMessage | ToolCallMessage | ToolResultMessage, Field(discriminator="type")]


class AgentResult(_Part):
    """`prompt`, `history`, `raw` and `id` are for tracing and not stored, as in AgentKit; a checksum is computed."""

    agent_name: Agent
    output: list[Message] = []
    tool_calls: list[ToolResultMessage] = []
    created_at: datetime | None = None
    prompt: Any = None
    history: Any = None
    raw: Any = None
    id: Any = None
    checksum: Any = None

    def export(self) -> dict[str, Any]:
        """The stored form. `checksum`: 32 hexadecimal digits over agent, output, tool calls and time."""
        output, tool_calls = [part.show() for part in self.output], [part.show() for part in self.tool_calls]
        result = {"agent_name": self.agent_name, "output": output, "tool_calls": tool_calls}
        if self.created_at is None:
            return result
        zoned = self.created_at if self.created_at.tzinfo is not None else self.created_at.replace(tzinfo=UTC)
        result["created_at"] = zoned.astimezone(UTC).isoformat(timespec="microseconds")
        return result | {"checksum": sha256(to_json(list(result.values()))).hexdigest()[:32]}


def encode_message(message: _Part) -> Json:
    """Raises ValueError for what JSON cannot carry."""
    return encode_value(message.show())


def encode_result(result: AgentResult) -> tuple[Json, str | None]:
    """The stored text and its checksum. Raises ValueError."""
    try:
        exported = result.export()
    except OverflowError:
        raise ValueError("created_at: must be in the years 1 to 9999, in UTC") from None
    return encode_value(exported), exported.get("checksum")


_PLAIN: Final = WithJsonSchema({"type": "object"})
"""The whole schema is longer than those of all other tools together; the arguments' descriptions say enough."""
NewMessage = Annotated[Message, AfterValidator(encode_message), _PLAIN]
NewResult = Annotated[AgentResult, AfterValidator(encode_result), _PLAIN]
