"""Redaction over every store: what it removes, what it records, and what every surface shows afterwards."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog import ConflictError, InapplicableError, InvalidError
from holdlog.adapters.api.changes.moments import moment
from holdlog.adapters.api.events.event_view import event_view
from holdlog.adapters.api.past.requests import point_in_time
from holdlog.adapters.api.redaction.responses import RedactionResult
from holdlog.adapters.api.validation import caller
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.redacting import finish, redact
from holdlog.adapters.stores.postgres.store import PostgresStore
from holdlog.domain.claims.commands import AcquireClaim, ReleaseClaim
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Store
from holdlog.domain.redaction import Redact, Redacted, RedactionTarget
from holdlog.domain.store_log import PayloadRedacted, Redactions
from tests.support.commands import (
    HERE,
    PATIENCE,
    change,
    drop,
    require_chained,
    require_views_equal_the_log,
    run,
    whole_log,
    write,
)
from tests.support.commands import redact as redact_at
from tests.support.threads import append as append_items
from tests.support.threads import change_data, message, start

SECRET = "sk-1234567890"


def of_value(engine: Engine, *addresses: str, reason: str = "leaked", field: str | None = None) -> RedactionResult:
    query = engine.requests.redactions.of_values("n", addresses, field)
    return redact(engine, query, "boss", caller(engine.caller, reason=reason))


def of_events(engine: Engine, *positions: int, field: str | None = None) -> RedactionResult:
    query = engine.requests.redactions.of_events(positions, field)
    return redact(engine, query, "boss", caller(engine.caller, reason="leaked"))


def set_value(engine: Engine, key: str, value: Any, **facts: str) -> None:
    engine.write(engine.requests.values.set("n", key, value, "ann", None), caller(engine.caller, **facts))


# --- the log


def test_redaction_is_an_event_with_its_reason_and_the_digests_still_verify(store: Store) -> None:
    write(store, "k", SECRET)
    write(store, "k", 2)
    outcome = run(
        store, Redact(targets=(RedactionTarget(stream="record:n/k", version=1),), by="boss"), Caller(reason="r")
    )
    assert outcome == Redacted((RedactionTarget(stream="record:n/k", version=1),), (), 3)
    first, _, last = whole_log(store)
    assert first.redacted
    assert last.event == PayloadRedacted(target="record:n/k", versions=((1, 1),), by="boss")
    assert (last.envelope.stream, last.envelope.version, last.envelope.caller.reason) == ("store:log", 1, "r")
    require_chained(store)
    require_views_equal_the_log(store)


def test_versions_of_one_stream_are_recorded_as_ranges(store: Store) -> None:
    for number in range(5):
        write(store, "k", f"{SECRET}{number}")
    targets = tuple(RedactionTarget(stream="record:n/k", version=it) for it in (5, 1, 2))
    run(store, Redact(targets=targets, by="boss"), Caller(reason="r"))
    assert [it.event.versions for it in whole_log(store)[5:] if isinstance(it.event, PayloadRedacted)] == [
        ((1, 2), (5, 5))
    ]
    assert [it.redacted for it in whole_log(store)[:5]] == [True, True, False, False, True]
    require_views_equal_the_log(store)


def test_second_redaction_of_a_text_records_nothing(store: Store) -> None:
    write(store, "k", SECRET)
    redact_at(store, 1)
    redact_at(store, 1)
    assert len(whole_log(store)) == 2


def test_redaction_of_what_an_event_does_not_have_is_refused_and_records_nothing(store: Store) -> None:
    write(store, "k", SECRET)
    change(store, drop("k"))
    for stream, version, part, why in (
        ("record:n/k", 3, "payload", "there is no such event"),
        ("record:n/other", 1, "payload", "there is no such event"),
        ("record:n/k", 2, "payload", "ValueDeleted without a payload"),
        ("record:n/k", 1, "reason", "ValueWritten without a reason"),
    ):
        wanted = (
            RedactionTarget(stream="record:n/k", version=1),
            RedactionTarget.model_validate({"stream": stream, "version": version, "part": part}),
        )
        with pytest.raises(InvalidError, match=why):
            run(store, Redact(targets=wanted, by="boss"), Caller(reason="r"))
    assert [it.redacted for it in whole_log(store)] == [False, False]


@pytest.mark.parametrize("reason", [SECRET, f"it had {SECRET} in it"])
def test_reason_of_a_redaction_must_not_contain_the_text(store: Store, reason: str) -> None:
    write(store, "k", {"token": SECRET})
    with pytest.raises(InvalidError, match="reason: contains the text") as refused:
        run(store, Redact(targets=(RedactionTarget(stream="record:n/k", version=1),), by="boss"), Caller(reason=reason))
    assert SECRET not in str(refused.value)
    assert len(whole_log(store)) == 1


def test_text_is_redacted_in_threads_claims_and_profiles(store: Store) -> None:
    for command in (start(), append_items(message(SECRET)), change_data(k=SECRET, l=2)):
        run(store, command)
    run(store, AcquireClaim(resource="src/a.py", agent="ann", note=SECRET), HERE)
    run(store, AcquireClaim(resource="src/b.py", agent="ann"), HERE)
    run(store, ReleaseClaim(resource="src/b.py", agent="ann", note=SECRET), HERE)
    with store.transaction(time.monotonic() + PATIENCE) as transaction:
        transaction.put_snapshot(6, [transaction.claim("src/b.py")], [])
    for position in (2, 3, 4, 6):
        redact_at(store, position)
    assert [it.redacted for it in whole_log(store)[:6]] == [False, True, True, True, False, True]
    with store.reader() as reader:
        assert reader.leases.of(["src/a.py"])[0].note is None
        _, (then,), _ = reader.snapshot_before(6)
        for claim in (reader.claim("src/b.py"), then):
            assert claim.past is not None
            assert (claim.past.holder, claim.past.note) == ("ann", None)
    require_chained(store)
    require_views_equal_the_log(store)


def test_redaction_events_cover_their_versions_and_parts() -> None:
    events = [
        PayloadRedacted(target="record:n/k", versions=((1, 2), (5, 5)), by="boss"),
        PayloadRedacted(target="record:n/k", versions=((3, 3),), part="reason", by="boss"),
    ]
    known = Redactions(events)
    assert [it for it in range(8) if known.cover("record:n/k", it, "payload")] == [1, 2, 5]
    assert [it for it in range(8) if known.cover("record:n/k", it, "reason")] == [3]
    assert not known.cover("record:n/other", 1, "payload")


# --- responses


def test_every_response_marks_a_redacted_value(engine: Engine) -> None:
    set_value(engine, "k", SECRET)
    set_value(engine, "k", {"token": SECRET})
    of_value(engine, "k@1", "k@2")
    calls = engine.requests
    get = engine.read(calls.values.get("n", "k")).body()
    (listed,) = engine.read(calls.values.records("n")).body()["records"]
    newer, older = engine.read(calls.values.history("n", "k", 10)).body()["history"]
    (exported,) = engine.read(calls.values.export("n")).body()["records"]
    watched = engine.wait(calls.values.watch("n", "k", 1, 0.1)).body()
    past = engine.read(calls.past.of(calls.values.get("n", "k"), point_in_time(1, None))).body()
    blame = engine.read(calls.changes.blame("n", "k", moment(""))).body()
    for found in (get, listed, newer, older, exported, *exported["history"], watched, past):
        assert (found["value"], found["redacted"]) == (None, True)
    assert (blame["value"], blame["author"]["redacted"]) == (None, True)
    (diff,) = engine.read(calls.changes.diff("n", "k", moment("from", 1), moment("to", 2))).body()["changes"]
    assert diff["redacted"] is True
    shown = [event_view(it).model_dump() for it in whole_log(engine.store)[:2]]
    assert [(it["value"], it["redacted"]) for it in shown] == [(None, True), (None, True)]
    assert SECRET not in json.dumps([get, listed, newer, older, exported, watched, past, blame, diff], default=str)


def test_null_value_is_not_marked_as_redacted(engine: Engine) -> None:
    set_value(engine, "k", None)
    assert "redacted" not in engine.read(engine.requests.values.get("n", "k")).body()
    assert "redacted" not in engine.read(engine.requests.values.history("n", "k", 1)).body()["history"][0]


def test_redacted_value_keeps_its_version_and_is_overwritten_normally(engine: Engine) -> None:
    set_value(engine, "k", SECRET)
    of_value(engine, "k@1")
    calls = engine.requests
    with pytest.raises(ConflictError) as refused:
        engine.write(calls.values.set("n", "k", 2, "ann", 0), NOBODY)
    assert (refused.value.detail.actual_value, refused.value.detail.redacted) == (None, True)
    assert calls.refused(refused.value).body()["redacted"] is True
    for update in ({"increment": 1}, {"append": 1}, {"merge": {"a": 1}}):
        with pytest.raises(InapplicableError, match="redacted"):
            engine.write(calls.transactions.update("n", "k", "ann", **update), NOBODY)
    assert engine.write(calls.values.set("n", "k", 2, "ann", 1), NOBODY).version == 2
    assert engine.read(calls.values.get("n", "k")).redacted is None


def test_thread_responses_mark_what_was_redacted(engine: Engine) -> None:
    for command in (start(), append_items(message(SECRET)), change_data(k=SECRET), change_data(l=None)):
        run(engine.store, command)
    for position in (2, 3):
        redact_at(engine.store, position)
    calls = engine.requests
    value = engine.read(calls.thread_data.get("t", "k")).body()
    assert (value["value"], value["redacted"]) == (None, True)
    page = engine.read(calls.thread_data.page("t")).body()
    assert (page["data"], page["redacted"]) == ({"k": None, "l": None}, ["k"])
    (item,) = engine.read(calls.threads.page("t")).body()["items"]
    assert item["redacted"] is True
    assert "message" not in item
    assert "redacted" not in engine.read(calls.thread_data.get("t", "l")).body()


# --- where else the text is


def test_response_lists_other_places_of_the_text_without_the_text(engine: Engine) -> None:
    set_value(engine, "a", SECRET)
    set_value(engine, "b", {"deep": [SECRET]})
    set_value(engine, "c", 1, reason=f"not {SECRET}")
    set_value(engine, "d", "something else")
    result = of_value(engine, "a@1")
    assert [(it.id, it.field, it.position) for it in result.also_in] == [
        ("record:n/b@1", "value", 2),
        ("record:n/c@1", "reason", 3),
    ]
    assert SECRET not in result.model_dump_json()
    assert of_events(engine, 2).also_in == result.also_in[1:]
    assert of_events(engine, 3, field="reason").also_in == []
    assert [it.already for it in of_value(engine, "a@1").redacted] == [True]


def test_short_text_is_only_found_where_it_is_the_whole_text(engine: Engine) -> None:
    set_value(engine, "a", "1234")
    set_value(engine, "b", "1234")
    set_value(engine, "c", "12345678")
    set_value(engine, "d", 1234)
    assert [it.id for it in of_value(engine, "a@1").also_in] == ["record:n/b@1", "record:n/d@1"]


@pytest.mark.parametrize("text", ['with "quotes" and \\', "a line\nbreak", "ünïcödé text"])
def test_escaped_text_is_found_in_values_and_notes(engine: Engine, text: str) -> None:
    set_value(engine, "a", text)
    set_value(engine, "b", [text])
    engine.writer.run(AcquireClaim(resource="src/a.py", agent="ann", note=text.replace("\n", " ")), HERE)
    found = [it.id for it in of_value(engine, "a@1").also_in]
    assert found == ["record:n/b@1"] + ([] if "\n" in text else ["claim:src/a.py@1"])


@pytest.mark.parametrize(
    ("field", "why"),
    [("note", "no note; it can have value or reason"), ("purpose", "no purpose"), ("other", "no other")],
)
def test_field_that_an_event_cannot_have_is_refused(engine: Engine, field: str, why: str) -> None:
    set_value(engine, "a", SECRET)
    for request in (
        lambda: of_events(engine, 1, field=field),
        lambda: of_value(engine, "a@1", field=field),
    ):
        with pytest.raises(InvalidError, match=why):
            request()
    assert len(whole_log(engine.store)) == 1


@pytest.mark.parametrize("address", ["a", "a@", "a@0", "a@x", "@1", "a@99999999999999999999"])
def test_address_without_a_version_is_refused(engine: Engine, address: str) -> None:
    with pytest.raises(InvalidError, match="KEY@VERSION"):
        of_value(engine, address)


def test_position_that_the_log_does_not_have_is_refused(engine: Engine) -> None:
    set_value(engine, "a", SECRET)
    for position in (0, 2):
        with pytest.raises(InvalidError, match="the log has 1 to 1"):
            of_events(engine, position)


def test_postgres_is_named_as_what_keeps_former_rows(engine: Engine) -> None:
    set_value(engine, "a", SECRET)
    result = of_value(engine, "a@1")
    assert ["VACUUM FULL" in line for line in result.remaining] == [True] * isinstance(engine.store, PostgresStore)
    assert finish(engine).unfinished == []


@given(ranges=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)).map(lambda it: (it[0], sum(it))), max_size=8))
def test_redactions_cover_exactly_the_versions_of_their_ranges(ranges: list[tuple[int, int]]) -> None:
    known = Redactions(PayloadRedacted(target="record:n/k", versions=(it,), by="boss") for it in ranges)
    expected = {version for first, last in ranges for version in range(first, last + 1)}
    assert {it for it in range(50) if known.cover("record:n/k", it, "payload")} == expected
