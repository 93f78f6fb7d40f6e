"""Messages of agents, and the result of one agent's turn, as in AgentKit."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from holdlog.domain.names import Agent, AllowedAgent
from holdlog.domain.threads.commands import NewMessage, NewResult
from holdlog.domain.value import Json


def _json(value: Any) -> Any:
    """Copy a JSON value. Raises ValueError for what JSON cannot represent."""
    return Json.of(value).value


USER: Final = "user"
"""The agent of a user's message that is stored as a result."""

AnyJson = Annotated[Any, AfterValidator(_json)]


class _Item(BaseModel):
    """A model whose fields may also be spelled as in AgentKit: `stopReason`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=False,
    )

    def exported(self) -> dict[str, Any]:
        """The JSON form, without fields that are None, except `content`: a tool may return null."""
        fields = self.model_dump(warnings=False)
        return {name: part for name, part in fields.items() if part is not None or name == "content"}


class TextContent(_Item):
    type: Literal["text"] = "text"
    text: str


class TextMessage(_Item):
    type: Literal["text"] = "text"
    role: Literal["system", "user", "assistant"]
    content: str | list[TextContent]
    stop_reason: Literal["tool", "stop"] | None = None


class ToolCall(_Item):
    type: Literal["tool"] = "tool"
    id: str
    name: str
    input: Annotated[dict[str, Any], AfterValidator(_json)] = Field(default_factory=dict)


class ToolCallMessage(_Item):
    type: Literal["tool_call"] = "tool_call"
    role: Literal["user", "assistant"] = "assistant"
    tools: list[ToolCall]
    stop_reason: Literal["tool"] = "tool"


class ToolResultMessage(_Item):
    type: Literal["tool_result"] = "tool_result"
    role: Literal["tool_result"] = "tool_result"
    tool: ToolCall
    content: AnyJson
    stop_reason: Literal["tool"] = "tool"


Message = TextMessage | ToolCallMessage | ToolResultMessage
AnyMessage = Annotated[Message, Field(discriminator="type")]

MESSAGE: Final[TypeAdapter[Message]] = TypeAdapter(AnyMessage, config=ConfigDict(hide_input_in_errors=True))


class AgentResult(_Item):
    """The result of one agent's turn. `prompt`, `history`, `raw` and `id` are for tracing and are not stored
    (AgentKit's `export` drops them, too), except the `id` of a result of the agent `user`. `created_at` without a time
    zone is UTC."""

    agent_name: Agent
    output: list[AnyMessage] = Field(default_factory=list)
    tool_calls: list[ToolResultMessage] = Field(default_factory=list)
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    prompt: list[AnyMessage] | None = Field(default=None, repr=False)
    history: list[AnyMessage] | None = Field(default=None, repr=False)
    raw: str | None = Field(default=None, repr=False)
    id: str | None = None

    @property
    def checksum(self) -> str:
        """Identifies the result: 32 hexadecimal digits over agent, output, tool calls and time; for a user's message
        with an id, over that id."""
        checksum: str = self.export()["checksum"]
        return checksum

    def export(self) -> dict[str, Any]:
        """The stored form, as JSON."""
        output, tool_calls, at = _joined_texts(self.output), _joined_texts(self.tool_calls), _moment(self.created_at)
        named = [self.id] if self._is_a_users else [[*output, *tool_calls], at]
        return {
            "agent_name": self.agent_name,
            "output": output,
            "tool_calls": tool_calls,
            "created_at": at,
            "checksum": _digest([self.agent_name, *named]),
            **({"id": self.id} if self._is_a_users else {}),
        }

    @property
    def _is_a_users(self) -> bool:
        return self.agent_name == USER and self.id is not None


class _Author(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    agent_name: AllowedAgent


InferenceResult = AgentResult
"""Former name of AgentResult."""


class UserMessage(_Item):
    """A message from a client, as in AgentKit. `client_timestamp`: when the client sent it, by its clock."""

    id: str
    content: str
    role: Literal["user"] = "user"
    state: Annotated[dict[str, Any], AfterValidator(_json)] | None = None
    client_timestamp: datetime | None = None
    system_prompt: str | None = None

    def result(self) -> AgentResult:
        """The form that a thread stores, once per id."""
        message = TextMessage(role="user", content=self.content)
        at = self.client_timestamp or datetime.now(UTC)
        return AgentResult(agent_name=USER, output=[message], created_at=at, id=self.id)


def new_message(message: Message) -> NewMessage:
    return NewMessage(value=Json.of(message.exported()))


def new_result(result: AgentResult) -> NewResult:
    return kept_result(result.export())


def kept_result(exported: dict[str, Any]) -> NewResult:
    """Convert the output of `AgentResult.export`. Raises ValidationError for an agent name that only stored results may
    have."""
    _Author.model_validate({"agent_name": exported["agent_name"]})
    return NewResult(value=Json.of(exported), agent=exported["agent_name"], checksum=exported["checksum"])


def message_of(value: Json) -> Message:
    """Parse a stored message. Raises ValidationError."""
    return MESSAGE.validate_python(value.value)


def result_of(value: Json) -> AgentResult:
    """Parse a stored result. Raises ValidationError."""
    kept = value.value
    if isinstance(kept, dict):
        kept.pop("checksum", None)
    return AgentResult.model_validate(kept)


def default_format(result: AgentResult) -> Sequence[Message]:
    """The messages that the next agent gets for a result: its output, then the results of its tools."""
    return [*result.output, *result.tool_calls]


def _digest(content: Any) -> str:
    return hashlib.blake2b(to_json(content), digest_size=16).hexdigest()


def _joined_texts(messages: Iterable[_Item]) -> list[dict[str, Any]]:
    return [message.exported() for message in messages]


def _moment(time: datetime) -> str:
    """RFC 3339, UTC, with microseconds."""
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat(timespec="microseconds")
