"""Positions and times as people write them: time zones, clock changes, and errors."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from holdlog.adapters.cli.moments import parse_moment
from holdlog.adapters.cli.texts import clock, moment
from holdlog.domain.refusals import InvalidError

NOW = datetime(2026, 11, 23, 15, 30, 45, 250_000, tzinfo=UTC)
"""16:30:45.25 in Berlin."""


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", getattr(request, "param", "Europe/Berlin"))
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("14:03", "2026-11-23T13:03:00+00:00"),
        ("9:05", "2026-11-23T08:05:00+00:00"),
        ("14:03:20", "2026-11-23T13:03:20+00:00"),
        ("14:03 UTC", "2026-11-23T14:03:00+00:00"),
        ("today 14:03", "2026-11-23T13:03:00+00:00"),
        ("Yesterday  9:00", "2026-11-22T08:00:00+00:00"),
        ("2026-11-23 14:03", "2026-11-23T13:03:00+00:00"),
        ("2026-06-01 14:03", "2026-06-01T12:03:00+00:00"),
        ("2026-11-23T14:03:20", "2026-11-23T13:03:20+00:00"),
        ("2026-11-23T14:03:20Z", "2026-11-23T14:03:20+00:00"),
        ("2026-11-23 14:03:20.123456-05:30", "2026-11-23T19:33:20.123456+00:00"),
        ("2027-01-01 14:03", "2027-01-01T13:03:00+00:00"),
        ("10 minutes ago", "2026-11-23T15:20:45.250000+00:00"),
        ("1.5h ago", "2026-11-23T14:00:45.250000+00:00"),
        ("an hour ago", "2026-11-23T14:30:45.250000+00:00"),
        ("2 days ago", "2026-11-21T15:30:45.250000+00:00"),
        ("now", "2026-11-23T15:30:45.250000+00:00"),
    ],
)
def test_time_is_read_in_the_local_zone_unless_it_names_another(zone: None, text: str, expected: str) -> None:
    assert parse_moment(text, now=NOW) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(("text", "expected"), [("#1234", 1234), ("1234", 1234), (" 0 ", 0)])
def test_number_is_a_position_of_the_log(text: str, expected: int) -> None:
    assert parse_moment(text) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "must be 14:03"),
        ("soon", "must be 14:03"),
        ("-5", "must be 14:03"),
        ("9" * 30, "must be 14:03"),
        ("٣", "must be 14:03"),
        ("14:60", "must be 14:03"),
        ("25:00", "must be 14:03"),
        ("2026-02-30 14:03", "must be 14:03"),
        ("0001-01-01 00:00", "must be 14:03"),
        ("2 fortnights ago", "must be 14:03"),
        ("999999999 weeks ago", "must be 14:03"),
        ("2026-11-23", 'needs a time of day, such as "2026-11-23 14:03"'),
        ("yesterday", 'needs a time of day, such as "yesterday 14:03"'),
        ("17:00", 'is later today; for the day before, write "yesterday 17:00"'),
        ("today 17:00:30 utc", 'is later today; for the day before, write "yesterday 17:00:30 UTC"'),
        ("2026-03-29 02:30", 'clocks skipped this time; write "2026-03-29 01:30:00" or "2026-03-29 03:30:00"'),
        ("2026-10-25 02:30", "write 2026-10-25T00:30:00Z or 2026-10-25T01:30:00Z"),
    ],
)
def test_error_of_a_moment_is_one_line_for_its_argument(zone: None, text: str, error: str) -> None:
    with pytest.raises(InvalidError) as refused:
        parse_moment(text, "since", NOW)
    assert str(refused.value).startswith("since: ")
    assert error in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("zone", ["America/Los_Angeles"], indirect=True)
def test_day_without_a_date_is_that_of_the_zone_it_is_written_in(zone: None) -> None:
    early = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)  # the evening of the 22nd in Los Angeles

    assert parse_moment("17:30", now=early) == datetime(2026, 11, 23, 1, 30, tzinfo=UTC)
    assert parse_moment("1:30 UTC", now=early) == datetime(2026, 11, 23, 1, 30, tzinfo=UTC)


def test_time_copied_from_a_listing_includes_its_millisecond() -> None:
    event = datetime.now(UTC).replace(microsecond=123_456)

    for copied in (moment(event), clock(event)):
        assert parse_moment(copied, now=event.replace(microsecond=999_999)) == event.replace(microsecond=123_999)
