"""Editing JSON that belongs to others: what is not ours stays as it is."""

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdlog.adapters.cli.setup.json_edit import Entry, add, remove
from holdlog.adapters.cli.setup.json_tree import NotJsonError, parse

SERVER = Entry(
    ("mcpServers", "holdlog"),
    {"command": "holdlog", "args": []},
    is_former=lambda item: isinstance(item, dict) and "command" in item,
)
HOOK = Entry(("hooks", "PreToolUse"), {"matcher": "Edit", "hooks": [{"type": "command"}]}, listed=True)
ALLOWED = Entry(("permissions", "allow"), "mcp__holdlog", listed=True)
ENTRIES = [SERVER, HOOK, ALLOWED]

COMMENTED = """{
    // our servers
    "mcpServers": {
        "other": {"command": "other", "env": {"TOKEN": "s3cr3t"}} // keep
    },
    /* rules */
    "permissions": {
        "allow": [
            "Bash(ls)", // listing
        ],
    },
}
"""


def test_entries_are_added_next_to_comments_and_other_servers() -> None:
    assert (
        add(COMMENTED, ENTRIES)
        == """{
    // our servers
    "mcpServers": {
        "other": {"command": "other", "env": {"TOKEN": "s3cr3t"}}, // keep
        "holdlog": {"command": "holdlog", "args": []}
    },
    /* rules */
    "permissions": {
        "allow": [
            "Bash(ls)", // listing
            "mcp__holdlog",
        ],
    },
    "hooks": {
        "PreToolUse": [{"matcher": "Edit", "hooks": [{"type": "command"}]}]
    },
}
"""
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{ "mcpServers": { "x": {} } }\n',
        '{\n\t"mcpServers": {\n\t\t"x": {}\n\t}\n}\n',
        '{\n  "hooks": {"PreToolUse": [{"matcher": "Bash"}], "Stop": []}\n}',
        COMMENTED,
        "{\n  // mine\n}\n",
        '{\n  "theme": 1, // mine\n}\n',
    ],
)
def test_removing_what_was_added_restores_the_text(text: str) -> None:
    added = add(text, ENTRIES)
    assert added != text
    assert remove(added, ENTRIES) == text


@pytest.mark.parametrize(
    "text",
    ['{"mcpServers": { /* mine */ }}', '{\n  "mcpServers": {}, // mine\n}', '{"a": 1, "mcpServers": {} /* mine */ ,}'],
)
def test_comments_stay_next_to_what_is_added_and_removed(text: str) -> None:
    added = add(text, ENTRIES)
    assert "mine" in added
    removed = remove(added, ENTRIES)
    assert "mine" in removed
    assert parse(removed).plain().get("mcpServers", {}) == {}


def test_adding_twice_changes_nothing_and_replaces_an_older_value() -> None:
    added = add("", ENTRIES)
    assert add(added, ENTRIES) == added
    older = SERVER._replace(value={"command": "/old/holdlog"})
    assert add(add("", [older, HOOK, ALLOWED]), ENTRIES) == added
    assert remove(added, ENTRIES) == "{}\n"


@pytest.mark.parametrize(
    "text",
    ["[]", "1", '{"mcpServers": []}', '{"hooks": {"PreToolUse": {}}}', "{", '{"a": }', "{'a': 1}", "{} {}", "[" * 500],
)
def test_text_that_cannot_be_edited_is_refused(text: str) -> None:
    with pytest.raises(NotJsonError):
        add(text, ENTRIES)


OURS = ("mcpServers", "hooks", "permissions")
names = st.sampled_from([*OURS, "holdlog", "PreToolUse", "allow", "other", "ä"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(names, values, max_size=4),
    st.sampled_from([None, 2, 4, "\t"]),
    st.sampled_from(["", "// a comment\n", "/* a comment */ "]),
)
def test_any_object_keeps_its_other_members(before: dict[str, Any], indent: int | str | None, comment: str) -> None:
    text = comment + json.dumps(before, indent=indent, ensure_ascii=False)
    try:
        added = add(text, ENTRIES)
    except NotJsonError:
        assert any(name in before for name in OURS)  # something else is in the way
        return
    assert added.startswith(comment)
    found = parse(added).plain()
    servers = before.get("mcpServers", {})
    assert found["mcpServers"]["holdlog"] == servers.get("holdlog", SERVER.value)
    assert HOOK.value in found["hooks"]["PreToolUse"]
    assert ALLOWED.value in found["permissions"]["allow"]
    others = {name: value for name, value in before.items() if name not in OURS}
    assert {name: value for name, value in found.items() if name not in OURS} == others
    assert add(added, ENTRIES) == added
    if others == before and before:
        assert remove(added, ENTRIES) == text


@st.composite
def commented(draw: st.DrawFn, depth: int = 0) -> str:
    """An object with comments and trailing commas; the places of our entries may be taken."""

    def gap() -> str:
        return draw(st.sampled_from(["", " ", "\n  ", "/*c*/", " //c\n"]))

    members = []
    for name in draw(st.lists(names, max_size=3, unique=True)):
        inner = depth < 2 and (name in OURS or draw(st.booleans()))
        value = draw(commented(depth + 1)) if inner else draw(st.sampled_from(["[]", "[ /*c*/ ]", '[1, "x",]']))
        members.append(f"{gap()}{json.dumps(name)}: {value}{gap()}")
    end = f",{gap()}" if members and draw(st.booleans()) else ""
    return f"{{{gap()}{','.join(members)}{end}}}"


def without_empty(value: Any) -> Any:
    """The value without the empty objects and arrays in it."""
    if not isinstance(value, dict):
        return value
    return {key: left for key, it in value.items() if (left := without_empty(it)) not in ({}, [])}


@pytest.mark.check
@settings(max_examples=1_000, suppress_health_check=[HealthCheck.too_slow])
@given(commented())
def test_comments_survive_and_what_was_added_is_removed(text: str) -> None:
    try:
        added = add(text, ENTRIES)
    except NotJsonError:
        return  # something else is in the way
    removed = remove(added, ENTRIES)
    for comment in ("/*c*/", "//c"):
        assert added.count(comment) == removed.count(comment) == text.count(comment)
    before = parse(text).plain()
    assert without_empty(parse(removed).plain()) == without_empty(before)
    if before and not before.keys() & OURS:
        assert removed == text


def test_many_comments_take_little_time() -> None:
    text = '{"a": 1 ' + "/* x */ " * 5_000 + "}"
    began = time.monotonic()
    added = add(text, [Entry(("b",), 2)])
    assert parse(added).plain() == {"a": 1, "b": 2}
    assert remove(added, [Entry(("b",), 2)]) == text
    assert time.monotonic() - began < 10


def test_entry_that_others_need_is_removed_only_with_the_last_one() -> None:
    entries = [Entry(("version",), 1, shared=True), Entry(("hooks", "stop"), "ours", listed=True)]
    text = '{"version": 1, "hooks": {"stop": ["theirs"]}}'
    assert remove(add(text, entries), entries) == text
    assert remove(add("", entries), entries) == "{}\n"


def test_value_that_a_person_wrote_is_kept() -> None:
    entry = Entry(("servers", "holdlog"), {"command": "new"}, is_former=lambda item: item == {"command": "old"})
    text = '{"servers": {"holdlog": {"url": "http://x"}}}'
    assert add(text, [entry]) == text
    assert remove(text, [entry]) == text
    assert (
        add('{"servers": {"holdlog": {"command": "old"}}}', [entry]) == '{"servers": {"holdlog": {"command": "new"}}}'
    )
