"""Messages and results are AgentKit's: the same fields, under either spelling; what is no message is refused."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdlog import (
    AgentResult,
    InferenceResult,
    TextContent,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
    UserMessage,
)
from holdlog.adapters.api.threads.conversation import (
    MESSAGE,
    default_format,
    message_of,
    new_message,
    new_result,
    result_of,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CALL = ToolCall(id="c1", name="write_files", input={"files": [{"filename": "a.py", "content": "1"}]})

MESSAGES: list[dict[str, Any]] = [
    {"type": "text", "role": "system", "content": "be brief"},
    {"type": "text", "role": "assistant", "content": "hi", "stop_reason": "stop"},
    {"type": "text", "role": "user", "content": [{"type": "text", "text": "hi"}]},
    {
        "type": "tool_call",
        "role": "assistant",
        "tools": [{"type": "tool", "id": "1", "name": "n", "input": {"a": [1]}}],
        "stop_reason": "tool",
    },
    {
        "type": "tool_result",
        "role": "tool_result",
        "tool": {"type": "tool", "id": "1", "name": "n", "input": {}},
        "content": {"data": [1, None]},
        "stop_reason": "tool",
    },
]


def result(**fields: Any) -> AgentResult:
    given: dict[str, Any] = {
        "agent_name": "coder",
        "output": [TextMessage(role="assistant", content="hi")],
        "tool_calls": [ToolResultMessage(tool=CALL, content={"ok": True})],
        "created_at": AT,
    }
    return AgentResult(**given | fields)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda it: it["type"])
def test_message_reads_back_unchanged(message: dict[str, Any]) -> None:
    read = MESSAGE.validate_python(message)
    assert read.exported() == message
    assert message_of(new_message(read).value) == read


def test_message_fields_may_be_spelled_as_in_agentkit() -> None:
    spelled = {"type": "text", "role": "assistant", "content": "x", "stopReason": "tool"}
    assert MESSAGE.validate_python(spelled) == TextMessage(role="assistant", content="x", stop_reason="tool")
    assert AgentResult(agentName="a", toolCalls=[], createdAt=AT) == AgentResult(agent_name="a", created_at=AT)  # type: ignore[call-arg]
    user = UserMessage.model_validate({"id": "1", "content": "x", "clientTimestamp": AT, "systemPrompt": "s"})
    assert (user.client_timestamp, user.system_prompt) == (AT, "s")


@pytest.mark.parametrize(
    "message",
    [
        {"type": "image", "role": "user", "content": "x"},
        {"type": "text", "role": "robot", "content": "x"},
        {"type": "text", "role": "user", "content": 3},
        {"type": "text", "role": "user", "content": "x", "more": 1},
        {"type": "tool_call", "tools": [{"type": "tool", "id": "1"}]},
        {"type": "tool_call", "role": "system", "tools": []},
        {"type": "tool_result", "tool": {"id": "1", "name": "n", "input": {"a": {1}}}, "content": 1},
        {"type": "tool_result", "tool": {"id": "1", "name": "n"}, "content": float("nan")},
        {"type": "tool_result", "tool": {"id": "1", "name": "n"}},
        {"role": "user", "content": "x"},
        "hi",
    ],
)
def test_invalid_message_is_refused(message: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        MESSAGE.validate_python(message)
    assert "input_value" not in str(refused.value)


def test_exported_message_equals_the_stored_one() -> None:
    exported = result(prompt=[], history=[], raw="{}", id="r-1").export()
    assert exported == {
        "agent_name": "coder",
        "output": [{"type": "text", "role": "assistant", "content": "hi"}],
        "tool_calls": [
            {
                "type": "tool_result",
                "role": "tool_result",
                "tool": {
                    "type": "tool",
                    "id": "c1",
                    "name": "write_files",
                    "input": {"files": [{"filename": "a.py", "content": "1"}]},
                },
                "content": {"ok": True},
                "stop_reason": "tool",
            }
        ],
        "created_at": "2026-01-02T03:04:05.678901+00:00",
        "checksum": result().checksum,
    }


def test_result_reads_back_with_the_same_checksum() -> None:
    kept = result_of(new_result(result(raw="x")).value)
    assert kept == result()
    assert kept.checksum == result().checksum == new_result(kept).checksum


@pytest.mark.parametrize(
    "fields",
    [
        {"agent_name": "other"},
        {"output": []},
        {"tool_calls": []},
        {"created_at": AT + timedelta(microseconds=1)},
        {"output": [TextMessage(role="assistant", content="hi", stop_reason="stop")]},
    ],
)
def test_different_result_has_a_different_checksum(fields: dict[str, Any]) -> None:
    assert result(**fields).checksum != result().checksum


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [TextMessage(role="user", content="p")]},
        {"history": []},
        {"raw": "raw"},
        {"id": "1"},
        {"created_at": AT.astimezone(timezone(timedelta(hours=2)))},
        {"created_at": AT.replace(tzinfo=None)},
    ],
)
def test_tracing_fields_and_time_zones_do_not_change_the_checksum(fields: dict[str, Any]) -> None:
    assert result(**fields).checksum == result().checksum


def test_user_message_is_identified_by_its_id() -> None:
    first = UserMessage(id="m-1", content="hi").result()
    again = UserMessage(id="m-1", content="hi").result()
    assert first.agent_name == "user"
    assert first.output == [TextMessage(role="user", content="hi")]
    assert first.checksum == again.checksum
    assert first.checksum != UserMessage(id="m-2", content="hi").result().checksum
    assert result_of(new_result(first).value) == first
    assert UserMessage(id="m-1", content="hi", client_timestamp=AT).result().created_at == AT


def test_default_format_is_output_and_then_tool_calls() -> None:
    assert default_format(result()) == [*result().output, *result().tool_calls]


def test_message_content_in_parts_is_kept_in_parts() -> None:
    said = TextMessage(role="user", content=[TextContent(text="a"), TextContent(text="b")])
    assert message_of(new_message(said).value) == said
    calls = ToolCallMessage(tools=[CALL])
    assert message_of(new_message(calls).value) == calls


def test_inference_result_is_an_agent_result() -> None:
    assert InferenceResult is AgentResult


TEXT = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(TEXT, parts, max_size=3),
    max_leaves=8,
)


@given(content=JSON, text=TEXT, at=st.datetimes(timezones=st.just(UTC)))
def test_json_answer_of_a_tool_reads_back_unchanged(content: Any, text: str, at: datetime) -> None:
    given = AgentResult(
        agent_name="a",
        output=[TextMessage(role="assistant", content=text)],
        tool_calls=[ToolResultMessage(tool=ToolCall(id="1", name="n"), content=content)],
        created_at=at,
    )
    kept = result_of(new_result(given).value)
    assert kept == given
    assert kept.checksum == given.checksum
