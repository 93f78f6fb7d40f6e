"""Results as JSON objects."""

from datetime import UTC, datetime

from holdlog.adapters.operations.json import list_statuses, refusal_to_object, to_object, to_text
from holdlog.domain.claims.results import Busy, Claimed, Granted
from holdlog.domain.refusals import ConflictError, InvalidError, UnavailableError
from holdlog.domain.results import Conflict, SetResult
from holdlog.projections.results import EventEntry, EventPage, RecordPage, StateRecord

AT = datetime(2026, 11, 23, 14, 3, tzinfo=UTC)


def test_status_comes_first_and_absent_fields_are_left_out():
    claimed = Claimed("a", 1, 2, AT, 60.0, also=[Granted("b", 1)])
    assert to_text(to_object(claimed)) == (
        '{"status":"claimed","resource":"a","version":1,"position":2,"expires_at":"2026-11-23T14:03:00.000000+00:00",'
        '"expires_in_seconds":60.0,"also":[{"resource":"b","version":1}]}'
    )


def test_null_that_is_stored_is_kept():
    assert to_object(SetResult("n", "k", 1, None, 7))["previous_version"] is None
    record = StateRecord("n", "k", {"a": None}, 1, "ann", AT)
    assert to_object(record)["value"] == {"a": None}
    (part,) = to_object(RecordPage("n", 1, [record._replace(value=None)], 7))["records"]
    assert part["value"] is None
    assert "status" not in part


def test_derived_hints_are_included():
    assert "wait_seconds=30" in to_object(Busy("a", "ann", AT, 1.0, 1.0, 1, 0))["hint"]
    assert "hint" not in to_object(Claimed("a", 1, 2, AT, 60.0))


def test_event_has_the_fields_of_its_kind():
    event = EventEntry(1, "record:n/k@1", "record:n/k", 1, "ValueWritten", AT, "ann", {"value": None})
    (part,) = to_object(EventPage([event], 1, "1.00"))["events"]
    assert (part["by"], part["value"], "fields" in part) == ("ann", None, False)


def test_refusals_are_results_with_a_status():
    assert refusal_to_object(ConflictError(Conflict("n", "k", 0, 1, None)))["status"] == "conflict"
    assert refusal_to_object(InvalidError("key: is required")) == {"status": "error", "message": "key: is required"}
    busy = {"status": "unavailable", "message": "no", "retry_after": 1.0, "in_doubt": False}
    assert refusal_to_object(UnavailableError("no")) == busy
    assert list_statuses((SetResult, Conflict)) == ["ok", "conflict", "unavailable"]
