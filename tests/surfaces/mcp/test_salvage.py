"""The tolerant scan finds what `json.loads` would find, and never fails where it would."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.mcp.salvage import BATCH, HEAD, MAX_MEMBERS, Fault, Lines, TooLong, answer, salvage

names = st.sampled_from(["id", "method", "params", "jsonrpc", "result", 'a"b', "\\", "é", "{"]) | st.text(max_size=5)
ids = st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(names, values, max_size=6)


@given(objects, ids, st.booleans(), st.sampled_from([None, 1]), st.randoms())
def test_salvaged_id_and_method_are_those_json_reads(
    members: dict[str, Any], identity: Any, ascii_only: bool, indent: int | None, random: Any
) -> None:
    rows = [*members.items(), ("id", identity), ("method", "tools/call")]
    random.shuffle(rows)
    # Built by hand: a name may stand twice, and the last one counts.
    text = "{" + ",".join(f"{json.dumps(k)} : {json.dumps(v, indent=indent)}" for k, v in rows) + "}"
    read = json.loads(text)
    if not ascii_only:
        text = "{" + ",".join(f"{json.dumps(k)}:{json.dumps(v, ensure_ascii=False)}" for k, v in rows) + "}"
    found = salvage(text.encode("utf-8", "surrogatepass"))
    assert found.complete
    assert found.names == frozenset(read)
    if isinstance(read["id"], str | int | float) and not isinstance(read["id"], bool):
        assert found.id is not None
        assert json.loads(found.id.decode("utf-8", "surrogatepass")) == read["id"]
    else:
        assert found.id is None
    assert found.method == (read["method"] if isinstance(read["method"], str) else None)


@given(objects, st.integers(), st.integers(min_value=0))
def test_salvage_finds_an_id_before_the_place_where_the_text_ends(
    members: dict[str, Any], identity: int, cut: int
) -> None:
    members.pop("id", None)
    start = f'{{"id":{identity},'
    text = start + json.dumps(members)[1:]
    found = salvage(text[: max(len(start), cut % len(text))].encode())
    assert found.id == str(identity).encode()


@given(st.binary())
def test_salvage_never_fails_on_any_bytes(line: bytes) -> None:
    for text in (line, b'{"id":1,' + line, b'{"id":"' + line):
        assert json.loads(answer(salvage(text), BATCH))["jsonrpc"] == "2.0"


@pytest.mark.parametrize(
    ("line", "identity"),
    [
        (b'{"id":1,"id":2}', b"2"),
        (b'{"\\u0069d":3}', b"3"),
        (b'\xef\xbb\xbf {"id":4}', b"4"),
        (b'{"id":"\\ud800"}', b'"\\ud800"'),
        (b'{"id":-1.5e3}', b"-1500.0"),
        (b'{"params":{"id":5,"a":"}\\"{"},"id":6}', b"6"),
        (b'{"params":"\xff","id":7}', b"7"),
        (b'{"params":[{],"id":8', None),
        (b'{"id":"\xff"}', None),
        (b'{"id":true}', None),
        (b'{"id":NaN}', None),
        (b'{"id":01}', None),
        (b'{"id":[1]}', None),
        (b'[{"id":1}]', None),
        (b'{"id', None),
        (b"", None),
    ],
)
def test_salvaged_id_is_returned_as_it_was_sent_or_not_at_all(line: bytes, identity: bytes | None) -> None:
    assert salvage(line).id == identity


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b'{"id":1,"method":"ping"', True),
        (b'{"id":null,"method":"ping"}', True),
        (b'{"id":1}', True),
        (b"nonsense", True),
        (b'{"method":"ping","params":{', True),
        (b'{"method":"ping","params":[]}', False),
        (b'{"method":"notifications/cancelled","params":{', False),
        (b'{"id":1,"result":[]}', False),
    ],
)
def test_salvage_answers_requests_and_ignores_notifications_and_responses(line: bytes, wanted: bool) -> None:
    assert salvage(line).wants_answer is wanted


@pytest.mark.check
@pytest.mark.parametrize("body", [b"[", b"[]", b'{"a":[1,"b"]},', b'\\"', b'"', b'"a":{', b"]"])
def test_salvage_scans_millions_of_bytes_in_linear_time(body: bytes) -> None:
    line = b'{"id":1,"method":"tools/call","params":{"value":[' + body * (2_000_000 // len(body))
    assert salvage(line).id == b"1"  # in quadratic time the test would run into its time limit


def test_salvage_reads_only_the_first_members_of_a_broken_message() -> None:
    many = b'"":1,' * (2 * MAX_MEMBERS)
    assert salvage(b'{"id":1,' + many + b'"params":').id == b"1"
    assert salvage(b"{" + many + b'"id":1,"params":').id is None  # each costs microseconds: a line may have a million


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" "))), st.integers(1, 7))
def test_lines_are_split_the_same_however_their_bytes_arrive(lines: list[bytes], step: int) -> None:
    text = b"\n".join(lines)
    cut = Lines(limit=20)
    got = [line for at in range(0, len(text), step) for line in cut.feed(text[at : at + step])] + cut.feed(b"")
    want = [line for line in lines if line.strip() or len(line) > 20]
    assert [line.head if isinstance(line, TooLong) else line for line in got] == [
        line if len(line) <= 20 else got_line.head if isinstance(got_line := got[at], TooLong) else b"not too long"
        for at, line in enumerate(want)
    ]


@pytest.mark.parametrize("order", ["first", "last"])
def test_overlong_line_is_skipped_and_its_id_found_at_either_end(order: str) -> None:
    rest = b'"method":"tools/call","params":{"value":"' + b"x" * 4 * HEAD + b'"}'
    line = b'{"id":7,' + rest + b"}" if order == "first" else b"{" + rest + b',"jsonrpc":"2.0","id":7}'
    cut = Lines(limit=2 * HEAD)
    got = [found for at in range(0, len(line), 1000) for found in cut.feed(line[at : at + 1000])]
    got += cut.feed(b'\n{"id":8}\n')
    assert isinstance(got[0], TooLong)
    assert len(got[0].head) <= HEAD
    assert len(got[0].tail) <= HEAD
    assert got[0].salvaged().id == b"7"
    assert got[0].salvaged().method == "tools/call"
    assert got[1:] == [b'{"id":8}']


def test_bad_tool_arguments_are_reported_to_the_agent_and_other_errors_to_the_client() -> None:
    fault = Fault(-32700, "so it is")
    call = json.loads(answer(salvage(b'{"id":1,"method":"tools/call","params":{'), fault))
    assert call["result"]["isError"] is True
    assert json.loads(call["result"]["content"][0]["text"]) == {"status": "error", "message": "so it is"}
    other = json.loads(answer(salvage(b'{"id":1,"method":"tools/list","params":{'), fault))
    assert other == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32700, "message": "so it is"}}
