"""Moments as people write them: time zones, clocks that are set, and errors."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdlog.adapters.operations.moments import parse_moment


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-23 14:03", "2026-11-23T13:03:00Z"),
        ("2026-06-01  9:03", "2026-06-01T07:03:00Z"),
        ("2026-11-23T14:03:20", "2026-11-23T13:03:20Z"),
        ("2026-11-23T14:03:20.5Z", "2026-11-23T14:03:20.500000Z"),
        ("2026-11-23 14:03 UTC", "2026-11-23T14:03:00Z"),
        ("2026-11-23 14:03:20.123456-05:30", "2026-11-23T19:33:20.123456Z"),
        ("2026-10-25 02:30+01:00", "2026-10-25T01:30:00Z"),
    ],
)
def test_time_is_read_in_the_local_zone_unless_it_names_another(berlin: None, text: str, expected: str) -> None:
    assert parse_moment(text) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("text", "days", "clock"),
    [("0:00 utc", 0, "00:00"), ("Today 0:00Z", 0, "00:00"), ("yesterday 9:05 UTC", 1, "09:05")],
)
def test_day_is_today_or_yesterday_of_the_zone_that_is_named(text: str, days: int, clock: str) -> None:
    before, parsed, after = (datetime.now(UTC), parse_moment(text), datetime.now(UTC))
    days_then = {f"{now - timedelta(days=days):%Y-%m-%d}" for now in (before, after)}
    assert parsed in [datetime.fromisoformat(f"{day}T{clock}:00Z") for day in days_then]


@pytest.mark.parametrize(
    ("text", "seconds"), [("10 minutes ago", 600), ("1.5h ago", 5400), ("an hour ago", 3600), ("2 days ago", 172_800)]
)
def test_time_ago_counts_from_now(text: str, seconds: int) -> None:
    before, parsed, after = (datetime.now(UTC), parse_moment(text), datetime.now(UTC))
    assert isinstance(parsed, datetime)
    assert before <= parsed + timedelta(seconds=seconds) <= after


def test_positions_versions_and_times_stay_what_they_are() -> None:
    aware = datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    naive = aware.astimezone(UTC).replace(tzinfo=None)
    points = [parse_moment(moment) for moment in (12, "12", "#12", " V3 ", "NOW", aware, naive)]
    assert points == [12, 12, 12, "v3", "now", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    "given",
    [
        *("", "soon", "-5", "9" * 30, "٣", "14:60", "25:00", "2026-02-30 14:03", "0001-01-01 00:00", "2026-11-23"),
        *("yesterday", "2 fortnights ago", "999999999 weeks ago", "500 ms ago", "v", -1, True, 1.5, None),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_what_is_no_moment_is_refused_with_examples(berlin: None, given: object) -> None:
    with pytest.raises(ValueError, match="must be a moment such as #1234"):
        parse_moment(given)


@pytest.mark.parametrize("text", ["2026-03-29 02:30", "2026-10-25 02:30"])
def test_time_that_clocks_skipped_or_showed_twice_is_refused(berlin: None, text: str) -> None:
    with pytest.raises(ValueError, match="write it with its offset"):
        parse_moment(text)
