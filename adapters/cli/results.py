"""Results for people: a sentence that begins with the status, or a table."""

import json
import shlex
from datetime import datetime
from typing import Any, Final

from holdlog.adapters.cli.fields import list_names, name_metavar
from holdlog.adapters.cli.texts import (
    show_author,
    show_clock,
    show_fields,
    show_line,
    show_since,
    show_table,
    show_time,
    show_value,
)
from holdlog.adapters.operating_system.files import format_duration
from holdlog.adapters.operations.base import Operation
from holdlog.adapters.operations.json import Object

SUCCESSES: Final = ("ok", "claimed", "already_claimed", "released", "already_free", "available", "deleted")
_FIRST_CLAIM: Final = "to claim a file: holdlog claim README.md"
_WRITTEN: Final = ("value", "previous")  # by agents; shown as JSON
_MORE: Final = {
    "next_after": ("after_key", "after_version", "after"),
    "next_before": ("before_version", "before"),
    "next_start": ("start",),
}
"""Fields that say that there are more rows, and the arguments to which their values are passed."""


def describe(command: str, response: Object, store: str) -> str:
    """The text for the result of a command. `store`: its name, for texts that say that nothing was found."""
    if response.get("status", "ok") != "ok":
        advice = _advise(command, response)
        return _show_sentence(response) + _show_elsewhere(response) + (f"\n{advice}" if advice else "")
    if command == "revert" and not response["reverted"] and not response["kept"]:
        return "no such write of this session or task is known; to see whose a value is: holdlog blame NAMESPACE KEY"
    if "value" in response:
        return "redacted" if response.get("redacted") else json.dumps(response["value"], ensure_ascii=False, indent=2)
    if command == "checkpoint":
        return f"{response['position']} {response['digest']} {response['at']}"
    if command == "verify":
        last = f"the last at {_clock(response['at'])}, with digest {response['digest']}"
        return f"the log is whole: {response['position']} events, {last}"
    if command == "token" and "token" in response:
        return str(response["token"])
    if command == "thread" and "items" in response:
        return "\n".join(_show_item(item) for item in response["items"]) or "nothing was appended"
    if command in ("set", "delete"):
        return f"version {response['version']}"
    if "records" in response or "namespaces" in response:
        return _show_list(response, store)
    if "history" in response:
        rows = [_show_hold(row) if "held_by" in row else _show_version(row) for row in response["history"]]
        return show_table(rows) or f"nothing of this name is in {store}; to see what there is: holdlog list"
    if "claims" in response and "values" not in response:
        return show_board(response) or f"nothing is claimed in {store}; {_FIRST_CLAIM}"
    return _show_any(response)


def add_remark(command: str, response: Object) -> str:
    """A note for people after a result; empty for most."""
    if command == "delete" and "deleted_version" in response:
        return f"the history keeps the value of version {response['deleted_version']}; to remove it: holdlog redact -h"
    if command == "update" and "version" in response:
        return f"version {response['version']}"
    if command == "get" and "expires_in_seconds" in response:
        return f"expires in {format_duration(response['expires_in_seconds'])}"
    return ""


def describe_rest(kind: type[Operation], response: Object) -> str:
    """How to get the next page; empty if this is the last one."""
    mark = next((mark for mark in _MORE if mark in response), None)
    if mark is None:
        return ""
    names = [name for name in _MORE[mark] if name in kind.model_fields]
    name = names[-1 if "claims" in response else 0]  # `at` pages claims by resource, values by key
    option = name_metavar(name) if name in kind.positional else list_names(kind, name)[-1]
    return f"there are more; to read on, pass {option} {shlex.quote(str(response[mark]))}"


def describe_loss(lost: Object) -> str:
    """A claim that the session lost since its last command."""
    why = "its lease expired" if lost["why"] == "expired" else "it was taken from you"
    reason = f": {lost['reason']}" if "reason" in lost else ""
    holder = f"; {lost['held_by']} holds it now" if "held_by" in lost else ""
    return f"you lost {lost['resource']}: {why}{reason}{holder}"


def show_board(board: Object) -> str:
    """The claims, and below each its queue."""
    queues = {queue["resource"]: queue["line"] for queue in board["queues"]}
    rows: list[tuple[str, ...]] = []
    for held in board["claims"]:
        rows.append(_show_claim(held))
        rows += _show_queue(queues.pop(held["resource"], []))
    for resource, waiters in queues.items():
        rows += [(resource, *[""] * 5), *_show_queue(waiters)]
    return show_table(rows)


# --- values


def _show_list(response: Object, store: str) -> str:
    if "namespaces" in response:
        counts = [(row["namespace"], "1 value" if row["count"] == 1 else f"{row['count']:,} values")
                  for row in response["namespaces"]]  # fmt: skip
        return show_table(counts) or f"no values in {store}; to write one: holdlog set NAMESPACE KEY VALUE --version 0"
    empty = f"no values in namespace {response['namespace']} of {store}; to see all namespaces: holdlog list"
    return show_table([_show_record(row) for row in response["records"]]) or empty


def _show_record(row: Object) -> tuple[str, ...]:
    author = show_author(row["updated_by"], row.get("principal"))
    return row["key"], f"v{row['version']}", author, show_value(row["value"], row.get("redacted"))


def _show_version(row: Object) -> tuple[str, ...]:
    author, kind = show_author(row["updated_by"], row.get("principal")), row["event_type"]
    value = show_value(row["value"]) if kind == "write" else ""
    forced = "by force" if row.get("forced") else ""
    time = show_time(datetime.fromisoformat(row["updated_at"]))
    return f"v{row['version']}", kind, author, time, value, forced, row.get("reason", "")


# --- claims


def _show_claim(held: Object) -> tuple[str, ...]:
    author = show_author(held["held_by"], held.get("principal"))
    left = f"expires in {format_duration(held['expires_in_seconds'])}" if "expires_in_seconds" in held else ""
    away = ", not connected" if held.get("holder_connected") is False else ""
    shared = "shared" if held["mode"] == "shared" else ""
    since = f"for {format_duration(held['held_for_seconds'])}"
    return held["resource"], author, shared, since, left + away, held.get("holder_note", "")


def _show_queue(waiters: list[Object]) -> list[tuple[str, ...]]:
    return [
        (
            f"  {number}. in queue",
            show_author(waiter["agent"], waiter.get("principal")),
            "shared" if waiter["mode"] == "shared" else "",
            f"for {format_duration(waiter['since_seconds'])}",
            "away" if waiter.get("present") is False else "",
            waiter.get("note", ""),
        )
        for number, waiter in enumerate(waiters, 1)
    ]


def _show_hold(row: Object) -> tuple[str, ...]:
    end = row.get("outcome", "holds it")
    if "outcome_at" in row:
        end += f" {show_time(datetime.fromisoformat(row['outcome_at']))}"
    end += f" by {row['forced_by']}" if "forced_by" in row else ""
    start = show_time(datetime.fromisoformat(row["claimed_at"]))
    return row["resource"], row["held_by"], f"claimed {start}", end, str(row.get("outcome_note", row.get("note", "")))


def _show_sentence(response: Object) -> str:
    """One line that begins with the status."""
    status, resource = response["status"], response.get("resource")
    if "released" in response:
        return f"{status} {', '.join(row['resource'] for row in response['released'])}"
    if status == "claimed" and "held_by" not in response:
        names = ", ".join([str(resource), *(row["resource"] for row in response.get("also", ()))])
        return f"{status} {names} (version {response['version']}){_show_end(response)}"
    if status == "released":
        successor = f"; {response['granted_to']}, next in the queue, holds it" if "granted_to" in response else ""
        return f"{status} {resource} (version {response['version']}){successor}"
    if status == "already_free":
        return f"{status} {resource}" if resource else f"{status}: nothing was held"
    if status == "available" and "previous_holder" not in response:
        return f"{status} {resource}"
    text = _show_claim_refusal(response) if resource else response.get("problem") or _show_value_refusal(response)
    return f"{status}: {text or response.get('message') or show_fields(response)}"


def _show_claim_refusal(response: Object) -> str:
    resource, version = response["resource"], response.get("version")
    match response["status"]:
        case "already_claimed":
            return f"you hold {resource} since {_clock(response['claimed_at'])} (version {version})"
        case "available":
            return f"{resource}{_show_end(response)}"
        case "claimed" | "busy" | "timeout":
            since = show_since(datetime.fromisoformat(response["claimed_at"]), response["held_for_seconds"])
            return f"{resource} is held by {response['held_by']} {since}{_show_details(response)}"
        case "not_holder" if "held_by" in response:
            reason = f"; it was taken from you: {response['reason']}" if "reason" in response else ""
            return f"{resource} is held by {response['held_by']}{reason}"
        case "not_holder" if "reason" in response:
            return f"{resource} was taken from you: {response['reason']}"
        case "expired":
            holder = f", and {response['held_by']} holds it now" if "held_by" in response else ""
            return f"the claim of {resource} expired{holder}"
        case "deadlock":
            links = (f"{it['agent']} holds {it['holds']} and waits for {it['waits_for']}" for it in response["cycle"])
            return f"{resource}: {', '.join(links)}"
        case "not_found":
            return f"{resource} was never claimed"
        case "fenced":
            holder = f"; {response['held_by']} holds it now" if "held_by" in response else ""
            return f"{resource} is not held with version {version}{holder}"
        case _:
            return ""


def _show_details(hold: Object) -> str:
    """Details of a hold, for an agent that wants the resource."""
    shared = ", shared" if hold.get("mode") == "shared" else ""
    covered = f", who claimed {hold['covered_by']}" if "covered_by" in hold else ""
    note = f": {hold['holder_note']}" if "holder_note" in hold else ""
    waiting = f"; {hold['queue_length']} in the queue" if hold.get("queue_length") else ""
    place = f", you are number {hold['queue_position']}" if "queue_position" in hold else ""
    current = f"; this version is {'' if hold['current'] else 'not '}current" if "current" in hold else ""
    return shared + covered + note + waiting + place + current


def _show_elsewhere(response: Object) -> str:
    rows = response.get("also_claimed_in", ())
    return "".join(f"\nalso claimed in workspace {row['workspace']} by {row['held_by']}" for row in rows)


def _show_end(response: Object) -> str:
    """How the last hold ended."""
    if "previous_holder" not in response:
        return ""
    holder, end = response["previous_holder"], response.get("previous_outcome", "")
    ended = {"expired": f"claim of {holder} expired", "forced": f"taken from {holder}"}.get(end, f"{end} by {holder}")
    to = f" to {response['moved_to']}" if "moved_to" in response else ""
    at = f" at {_clock(response['previous_outcome_at'])}" if "previous_outcome_at" in response else ""
    note = f": {response['previous_note']}" if "previous_note" in response else ""
    return f" ({ended}{to}{at}{note})"


# --- refusals of values


def _show_value_refusal(response: Object) -> str:
    if "key" not in response:
        return ""
    name, version = f"{response['namespace']}/{response['key']}", response.get("version")
    match response["status"]:
        case "not_found" | "deleted" if "deleted_by" in response:
            return f"{name} was deleted by {response['deleted_by']} at {_clock(response['deleted_at'])}"
        case "not_found":
            return f"{name} has no value"
        case "deleted":
            return f"{name} has no value any more (version {version})"
        case "conflict" if not response["actual_version"]:
            return f"{name} has no value now, so it is not at version {response['expected_version']}"
        case "conflict":
            actual = f"version {response['actual_version']} by {response.get('actual_updated_by')}"
            return f"{name} is at {actual}, not {response['expected_version']}: {show_value(response['actual_value'])}"
        case "timeout":
            return f"{name} did not change after version {response['since_version']}"
        case _:
            return ""


def _advise(command: str, response: Object) -> str:
    """What to do after a refusal; empty if there is nothing to do."""
    name, hint = shlex.quote(response.get("resource", "")), response.get("hint", "")
    key = f"{shlex.quote(response.get('namespace', ''))} {shlex.quote(response.get('key', ''))}"
    version = response.get("actual_version")
    match response["status"]:
        case "exists" | "not_found" if command == "token":
            return ""
        case "conflict" | "not_found" if "operation" in response:
            return f"Operation {response['operation']} was refused, and nothing changed."
        case "conflict" if command == "update":
            return f"If your change still applies, repeat the command with --version {version}, or without it."
        case "conflict" if command == "delete":
            return f"To delete this value: holdlog delete {key} --version {version}" if version else ""
        case "conflict" if version:
            return f"Merge your change into this value, then: holdlog set {key} VALUE --version {version}"
        case "conflict":
            return f"To create it: holdlog set {key} VALUE --version 0"
        case "timeout" if "key" in response:
            return f"To wait again: holdlog watch {key} --since {response['since_version']}"
        case "timeout":
            return f"To wait again: holdlog wait {name}; to queue for it: holdlog claim {name} --wait 30"
        case "not_holder" if "held_by" in response:
            return f"{hint}\nA person can take it: holdlog release {name} --force --reason TEXT"
        case "already_claimed":
            return ""
        case _:
            return str(hint).replace("wait_seconds=30", "--wait 30").replace("wait_seconds", "--wait")


# --- threads


def _show_item(item: Object) -> str:
    at = f"v{item['version']}  {show_time(datetime.fromisoformat(item['at']))}"
    if item.get("redacted"):
        return f"{at}  {item['by']}  redacted"
    if item["kind"] == "cleared":
        return f"{at}  {item['by']} replaced the results"
    if "message" in item:
        return f"{at}  {_show_message(item['message'])}"
    result = item["result"]
    messages = [*result.get("output", ()), *result.get("tool_calls", ())]
    return "\n".join([f"{at}  result of {result['agent_name']}", *(f"  {_show_message(it)}" for it in messages)])


def _show_message(message: Object) -> str:
    content = message.get("content", message.get("tools", ""))
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        content = " ".join(part["text"] for part in content)
    text = content if isinstance(content, str) else show_value(content)
    return f"{message['role']}: {text}"


# --- the rest


def _show_any(response: Object) -> str:
    """A line for each field, then each list of objects as a table."""
    fields, tables = list[tuple[str, ...]](), list[str]()
    for name, content in response.items():
        if name == "events":
            tables += map(show_line, content)
        elif isinstance(content, list) and (not content or isinstance(content[0], dict)):
            tables.append(f"\n{_title(name)}:\n{_show_rows(content) or 'nothing was found'}")
        elif name not in ("status", "hint", "lost", *_MORE):
            fields.append((_title(name), _show_content(name, content)))
    return "\n".join([show_table(fields), *tables]).strip("\n")


def _show_rows(rows: list[Object]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [tuple(_show_content(name, row.get(name)) for name in names) for row in rows]
    return show_table([tuple(_title(name).upper() for name in names), *cells])


def _title(name: str) -> str:
    return name.removeprefix("is_").removesuffix("_seconds").replace("_", " ")


def _show_content(name: str, content: Any) -> str:
    """The text of a field in a table, which depends on its name and type."""
    if content is None or isinstance(content, bool):
        return "" if content is None else "yes" if content else "no"
    if name in _WRITTEN:
        return show_value(content)
    if name == "sha256":
        return str(content)[:10]  # --json has all of it
    if name == "at" or name.endswith("_at"):
        return show_time(datetime.fromisoformat(content))
    if name.endswith("_seconds"):
        return format_duration(content)
    if isinstance(content, list):
        return "; ".join(_show_part(item) if name == "paths" else _show_content("", item) for item in content)
    if isinstance(content, dict):
        return ", ".join(f"{_title(key)} {_show_content(key, part)}" for key, part in content.items())
    return str(content)


def _show_part(part: Object) -> str:
    """A part of a value that differs between two moments."""
    path, new, old = part["path"] or "all", show_value(part.get("value")), show_value(part.get("previous"))
    texts = {"add": f"{path} added: {new}", "remove": f"{path} removed: {old}"}
    return texts.get(part["op"], f"{path}: {old} -> {new}")


def _clock(text: str) -> str:
    return show_clock(datetime.fromisoformat(text))
