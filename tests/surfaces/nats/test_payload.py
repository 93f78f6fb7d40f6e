"""What is published is a CloudEvent that says what the log says."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unicodedata import normalize

from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.nats import payload
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.adapters.stores.sqlite.store import SqliteStore
from holdlog.domain.agent import Register
from holdlog.domain.claims.commands import AcquireClaim
from holdlog.domain.commands import AnyCommand
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Caller, Event
from tests.support.clock import Clock
from tests.support.commands import HERE, put, run, transact, whole_log
from tests.support.thread_story import KINDS, change_data, fork, start, story
from tests.surfaces.nats.test_subjects import is_name

ID = "4b0c3a5e-0000-4000-8000-000000000001"
REQUIRED = {"specversion": "1.0", "source": f"urn:uuid:{ID}", "datacontenttype": "application/json"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def recorded(*commands: AnyCommand, caller: Caller | None = None) -> Recorded[Event]:
    """The newest event after these commands."""
    clock = Clock()
    store = open_memory(clock, clock.steady)
    for command in commands:
        run(store, command, caller or Caller())
    with store.reader() as reader:
        return reader.log(0, -1)[-1]


def told(*commands: AnyCommand, caller: Caller | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload.text_of(ID, recorded(*commands, caller=caller), **more))
    return found


def test_published_value_has_its_names_and_whole_envelope() -> None:
    caller = Caller(principal="p", session="s", request_id="r", reason="because", correlation_id="c")
    event = recorded(transact(put("budget", {"amount": 7}, namespace="campaign")), caller=caller)
    body = json.loads(payload.text_of(ID, event))
    assert body == {
        **REQUIRED,
        "id": "record:campaign/budget@1",
        "type": "holdlog.ValueWritten",
        "subject": "record:campaign/budget",
        "time": datetime.fromtimestamp(event.envelope.at / 1e6, UTC).isoformat().replace("+00:00", "Z"),
        "position": 1,
        "version": 1,
        "digest": event.envelope.digest.hex(),
        "principal": "p",
        "requestid": "r",
        "correlationid": "c",
        "reason": "because",
        "data": {
            "namespace": "campaign",
            "key": "budget",
            "by": "ann",
            "operation": "set",
            "value": {"amount": 7},
        },
    }


def test_published_event_contains_no_session() -> None:
    assert "secret-session" not in payload.text_of(
        ID, recorded(transact(put("k", 1)), caller=Caller(session="secret-session"))
    )


def test_published_events_of_claims_and_agents_contain_their_names() -> None:
    claimed = told(AcquireClaim(resource="src/a.py", agent="ann", note="mine"), caller=HERE)
    assert claimed["type"] == "holdlog.ClaimGranted"
    facts = {"agent": "ann", "session": HERE.session, "mode": "exclusive", "note": "mine"}
    assert claimed["data"] == {"resource": "src/a.py", **facts}
    registered = told(Register(agent="claude/tests", model="m", purpose="tests"))
    assert registered["data"] == {"agent": "claude/tests", "model": "m", "purpose": "tests"}


def test_published_times_are_timestamps_instead_of_numbers() -> None:
    data = told(transact(put("k", 1, ttl=60)))["data"]
    assert datetime.fromisoformat(data["expires_at"]).tzinfo is not None


def test_redacted_value_is_published_as_null_and_marked() -> None:
    event = recorded(transact(put("k", None)))._replace(redacted=True)
    body = json.loads(payload.text_of(ID, event))
    assert (body["redacted"], body["data"]["value"]) == (True, None)


def test_null_value_is_published_and_not_marked_as_redacted() -> None:
    body = told(transact(put("k", None)))
    assert "redacted" not in body
    assert body["data"]["value"] is None


def test_omitted_value_is_published_as_null_and_marked() -> None:
    body = told(transact(put("k", "x" * 100)), omit=True)
    assert (body["omitted"], body["data"]["value"]) == (True, None)


# --- threads


def of_threads(tell: Callable[[SqliteStore], None]) -> list[Recorded[Event]]:
    clock = Clock()
    store = open_memory(clock, clock.steady)
    tell(store)
    return whole_log(store)


def test_published_thread_event_has_its_id_and_author() -> None:
    events = [json.loads(payload.text_of(ID, it)) for it in of_threads(lambda store: story(store, "run 7"))]
    assert [it["type"] for it in events] == [f"holdlog.{kind}" for kind in KINDS]
    assert {(it["subject"], it["data"]["thread"], it["data"]["by"]) for it in events} == {
        ("thread:run%207", "run 7", "ann")
    }
    began, first, message, result, changed, cleared, _ = (it["data"] for it in events)
    assert began == cleared == {"thread": "run 7", "by": "ann"}
    assert first["value"] == {"plan": "search", "files": {"a.py": "1"}}
    assert message["value"] == {"type": "text", "role": "user", "content": "which file?"}
    assert (result["agent"], result["checksum"]) == ("writer", result["value"]["checksum"])
    assert changed == {
        "thread": "run 7",
        "by": "ann",
        "written": ["plan"],
        "deleted": ["files"],
        "value": {"plan": "write"},
    }


def test_published_fork_names_its_parent() -> None:
    def tell(store: SqliteStore) -> None:
        start(store)
        fork(store, "run-8")

    event = payload.read(payload.text_of(ID, of_threads(tell)[-1]))
    assert event.data == {"thread": "run-8", "by": "ann", "parent": "run-7", "parent_version": 1}


@given(st.dictionaries(st.text(min_size=1, max_size=9).filter(is_name), VALUES, min_size=1, max_size=4))
def test_published_thread_data_is_an_object(data: dict[str, Any]) -> None:
    def tell(store: SqliteStore) -> None:
        start(store)
        change_data(store, data)

    event = payload.read(payload.text_of(ID, of_threads(tell)[-1]))
    named = {normalize("NFC", key): value for key, value in data.items()}
    assert event.data["value"] == named
    assert set(event.data["written"]) == set(named)


def test_event_too_large_for_a_message_omits_its_value_and_then_its_keys() -> None:
    keys = {f"key {number}": "x" * 100 for number in range(100)}

    def tell(store: SqliteStore) -> None:
        start(store)
        change_data(store, {**keys, "é": 1})

    event = of_threads(tell)[-1]
    whole, without, least = (payload.text_within(ID, event, most) for most in (100_000, 4000, 1000))
    assert payload.read(whole.decode()).data["value"] == {**keys, "é": 1}
    for text, most in ((without, 4000), (least, 1000)):
        read = payload.read(text.decode())
        assert (read.omitted, read.data["value"]) == (True, None)
        assert len(text) <= most
    assert len(payload.read(without.decode()).data["written"]) == 101
    assert payload.read(least.decode()).data == {"thread": "run-7", "by": "ann", "value": None}
    assert payload.text_within(ID, event, len(whole)) == whole
    assert payload.text_within(ID, event, len(whole) - 1) == without


@given(VALUES)
def test_published_value_reads_back_unchanged(value: Any) -> None:
    event = recorded(transact(put("k", value)))
    read = payload.read(payload.text_of(ID, event))
    assert read.data["value"] == value
    assert (read.position, read.version, read.subject) == (1, 1, "record:n/k")


def test_published_number_keeps_all_its_digits() -> None:
    assert f'"value":{10**30}' in payload.text_of(ID, recorded(transact(put("k", 10**30))))


def test_required_cloudevent_attributes_are_not_empty_and_in_lower_case() -> None:
    body = told(transact(put("k", 1)))
    assert all(name.isalnum() and name == name.lower() for name in body)
    assert all(body[name] for name in ("id", "source", "specversion", "type"))
