"""The digest: its bytes are fixed for ever, so they are written out here by hand."""

import hashlib
import json
from typing import Any

import pytest

from holdlog.domain.envelope import NO_DIGEST, Digested, digest, digest_2, payload_hash
from holdlog.domain.message import NOBODY, Caller

SALT = bytes(range(16))
RECORDED = [field for field in Caller.model_fields if field != "server"]


def sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_payload_hash_is_sha256_of_salt_and_payload() -> None:
    assert payload_hash(SALT, '{"a":"é"}') == hashlib.sha256(SALT + b'{"a":"\xc3\xa9"}').digest()
    assert payload_hash(b"", "").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_digest_of_a_first_event_without_a_payload_is_fixed() -> None:
    assert digest(NO_DIGEST, "claim:a.py", 1, "ClaimGranted", 42, NOBODY, '{"agent":"ann"}', None) == sha256(
        '["","claim:a.py",1,"ClaimGranted",42,null,null,null,null,null,"{\\"agent\\":\\"ann\\"}",null]'
    )


def test_digest_of_a_later_event_with_payload_and_caller_is_fixed() -> None:
    previous = bytes(range(32))
    caller = Caller(principal="org/é", session="s-1", request_id="r-1", reason='say "why"', correlation_id="c-1")
    assert digest(
        previous, "record:n/k", 7, "ValueWritten", 1_700_000_000_000_000, caller, '{"by":"ann"}', b"\xff" * 32
    ) == sha256(
        '["000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f","record:n/k",7,"ValueWritten",'
        '1700000000000000,"org/é","s-1","r-1","say \\"why\\"","c-1","{\\"by\\":\\"ann\\"}",'
        '"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"]'
    )


def test_digest_escapes_every_character_as_the_json_module_does() -> None:
    text = "".join(chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000)
    fields = ["", text, 1, "t", 0, None, None, None, None, None, text, None]
    assert digest(NO_DIGEST, text, 1, "t", 0, NOBODY, text, None) == sha256(
        json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    )


def test_digest_is_shown_in_hexadecimal() -> None:
    known = digest(NO_DIGEST, "record:n/k", 1, "ValueDeleted", 0, NOBODY, "{}", None)
    assert known.hex() == "b6fb7504f674ec4b5034bc82af86ad996c3468ac23b25688366ee799f4bcb5db"


SAID: dict[str, Any] = {
    "previous": b"\x01" * 32,
    "stream": "record:n/k",
    "version": 2,
    "topic": "ValueWritten",
    "at": 5,
    "caller": Caller(principal="p", session="s", request_id="r", reason="w", correlation_id="c"),
    "body": '{"by":"ann"}',
    "payload": b"\x02" * 32,
}


@pytest.mark.parametrize(
    "change",
    [
        {"previous": NO_DIGEST},
        {"previous": b"\x01" * 31 + b"\x00"},
        {"stream": "record:n/l"},
        {"version": 3},
        {"topic": "ValueDeleted"},
        {"at": 6},
        {"body": '{"by":"bob"}'},
        {"payload": None},
        {"payload": b"\x02" * 31 + b"\x03"},
        {"caller": NOBODY},
        *({"caller": SAID["caller"].model_copy(update={field: "x"})} for field in RECORDED),
        *({"caller": SAID["caller"].model_copy(update={field: None})} for field in RECORDED),
        # moved from one field to its neighbour
        {"caller": Caller(principal="s", session="p", request_id="r", reason="w", correlation_id="c")},
        {"stream": "record:n/k2", "version": 22},
    ],
)
def test_every_changed_field_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest(**SAID | change) != digest(**SAID)


def test_digest_of_null_differs_from_that_of_the_text_null() -> None:
    absent = digest(NO_DIGEST, "s", 1, "t", 1, NOBODY, "{}", None)
    assert digest(NO_DIGEST, "s", 1, "t", 1, Caller(principal="null"), "{}", None) != absent


def test_digest_excludes_the_process_that_keeps_a_session_alive() -> None:
    caller = SAID["caller"].model_copy(update={"server": "x"})
    assert digest(**SAID | {"caller": caller}) == digest(**SAID)


# --- format 2

SAID_2: Digested = Digested(
    stream="record:n/k",
    version=7,
    topic="ValueWritten",
    at=1_700_000_000_000_000,
    clock=1_699_999_000_000_000,
    principal="org/é",
    session="s-1",
    request_id="r-1",
    correlation_id="c-1",
    operation="set",
    based_on=6,
    forced=None,
    guard='[{"resource":"a.py","version":3}]',
    body='{"by":"ann"}',
    payload="ff" * 32,
    reason="ee" * 32,
)
NOTHING_SAID: Digested = SAID_2._make(None for _ in SAID_2)


def test_digest_of_format_2_begins_with_its_tag_and_the_previous_digest() -> None:
    assert digest_2(bytes(range(32)), SAID_2) == sha256(
        '["holdlog/2","000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f","record:n/k",7,"ValueWritten",'
        '1700000000000000,1699999000000000,"org/é","s-1","r-1","c-1","set",6,null,'
        '"[{\\"resource\\":\\"a.py\\",\\"version\\":3}]","{\\"by\\":\\"ann\\"}",'
        f'"{"ff" * 32}","{"ee" * 32}"]'
    )


def test_digest_of_format_2_of_a_first_event_is_fixed() -> None:
    event = NOTHING_SAID._replace(stream="claim:a.py", version=1, topic="ClaimGranted", at=42, body='{"agent":"ann"}')
    assert digest_2(NO_DIGEST, event) == sha256(
        '["holdlog/2","","claim:a.py",1,"ClaimGranted",42,null,null,null,null,null,null,null,null,null,'
        '"{\\"agent\\":\\"ann\\"}",null,null]'
    )


@pytest.mark.parametrize("field", Digested._fields)
@pytest.mark.parametrize("other", [None, 1, 2, "x"])
def test_every_changed_field_changes_the_digest_of_format_2(field: str, other: Any) -> None:
    changed = SAID_2._replace(**{field: other})
    assert (digest_2(NO_DIGEST, changed) == digest_2(NO_DIGEST, SAID_2)) is (changed == SAID_2)


def test_field_moved_to_its_neighbour_changes_the_digest_of_format_2() -> None:
    found = {digest_2(NO_DIGEST, NOTHING_SAID._replace(**{field: "x"})) for field in Digested._fields}
    assert len(found) == len(Digested._fields)


def test_previous_digest_and_tag_are_part_of_the_digest_of_format_2() -> None:
    assert digest_2(b"\x01" * 32, SAID_2) != digest_2(NO_DIGEST, SAID_2)
    assert digest(NO_DIGEST, "s", 1, "t", 1, NOBODY, "{}", None) != digest_2(
        NO_DIGEST, NOTHING_SAID._replace(stream="s", version=1, topic="t", at=1, body="{}")
    )
