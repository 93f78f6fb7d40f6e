"""Formats threads for people. Text of agents is escaped, so that no terminal interprets it, and indented behind a
margin, so that no line of it can imitate our output."""

import json
from datetime import datetime
from typing import Any, Final

from holdlog.adapters.api.authors import author
from holdlog.adapters.cli.texts import moment, printable, short, table
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.threads.thread import ThreadDataChanged
from holdlog.domain.times import utc

MARGIN: Final = "    "

_BOLD: Final = "\x1b[1m{}\x1b[0m"


def describe(action: str, body: dict[str, Any], coloured: bool) -> str:
    """Format the response to `holdlog thread <action>`."""
    match action:
        case "list":
            return _threads(body)
        case "read":
            return _items(body, coloured)
        case "data":
            return _data(body)
        case _:
            return table([_change(it) for it in body["history"]])


def _threads(body: dict[str, Any]) -> str:
    rows = [
        (
            it["thread_id"],
            f"v{it['version']}",
            _count(it["messages"], "message"),
            _count(it["results"], "result"),
            author(it["updated_by"], it.get("updated_by_principal")),
            _moment(it["updated_at"]),
            f"from {it['parent']}" if "parent" in it else "",
        )
        for it in body["threads"]
    ]
    return table(rows) or "there are no threads yet; an agent starts one with thread_start (docs/threads.md)"


def _items(body: dict[str, Any], coloured: bool) -> str:
    """A line with the author, and the text below it."""
    found: list[str] = []
    for it in body["items"]:
        head = printable(f"v{it['version']}  {_moment(it['at'])}  {_by(it)}  {_what(it)}", kept="")
        found.append(_BOLD.format(head) if coloured else head)
        lines = _of_result(it["result"]) if "result" in it else _lines(it["message"]) if "message" in it else []
        found += [MARGIN + printable(line, kept="") for line in lines]
    return "\n".join(found) or printable(f"there are no messages or results in {body['thread_id']} there", kept="")


def _data(body: dict[str, Any]) -> str:
    if "data" not in body:
        if "redacted" in body:
            return "redacted"
        return printable(json.dumps(body["value"], ensure_ascii=False, indent=2))
    redacted = set(body.get("redacted", ()))
    data = [(key, "redacted" if key in redacted else short(value)) for key, value in body["data"].items()]
    return table(data) or "this thread has no data"


def past(recorded: Recorded[Event], key: str) -> dict[str, Any]:
    """A change of data as JSON, limited to one key."""
    envelope, event = recorded.envelope, recorded.event
    assert isinstance(event, ThreadDataChanged)
    facts: dict[str, Any] = {
        "version": envelope.version,
        "kind": "delete" if key in event.deleted else "write",
        "by": event.by,
        **({} if (principal := envelope.caller.principal) is None else {"principal": principal}),
        "at": utc(envelope.at).isoformat(timespec="microseconds"),
        "position": envelope.position,
    }
    if recorded.redacted:
        facts["redacted"] = True
    elif key not in event.deleted:
        facts["value"] = event.values()[key].value
    if envelope.caller.reason is not None:
        facts["reason"] = envelope.caller.reason
    return facts


def _change(it: dict[str, Any]) -> tuple[str, ...]:
    value = short(it["value"]) if "value" in it else "redacted" if "redacted" in it else ""
    reason = f"  # {it['reason']}" if "reason" in it else ""
    return (f"v{it['version']}", it["kind"], _by(it), _moment(it["at"]), value + reason)


def _by(it: dict[str, Any]) -> str:
    return author(it["by"], it.get("principal"))


def _what(it: dict[str, Any]) -> str:
    match it:
        case {"result": {"agent_name": str(agent)}}:
            return f"result of {agent}"
        case {"message": {"role": str(role)}}:
            return role
        case _:
            return f"{it['kind']}, redacted" if it["kind"] not in it else str(it["kind"])


def _of_result(result: object) -> list[str]:
    match result:
        case {"output": list(output), "tool_calls": list(answers)}:
            return [line for message in (*output, *answers) for line in _lines(message)]
        case _:
            return _lines(result)


def _lines(message: object) -> list[str]:
    """The lines of a message; unknown types as JSON."""
    match message:
        case {"type": "text", "content": str(text)}:
            return text.split("\n")
        case {"type": "text", "content": list(parts)} if all(isinstance(it, dict) and "text" in it for it in parts):
            return "".join(str(it["text"]) for it in parts).split("\n")
        case {"type": "tool_call", "tools": list(tools)} if all(isinstance(it, dict) for it in tools):
            return [f"calls {it.get('name')} {_json(it.get('input'))}" for it in tools]
        case {"type": "tool_result", "tool": {"name": str(name)}, "content": content}:
            return [f"{name} returned {_json(content)}"]
        case _:
            return [_json(message)]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _moment(time: str) -> str:
    return moment(datetime.fromisoformat(time))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
