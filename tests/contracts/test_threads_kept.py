"""Threads beyond the day: in rebuilt views, in copies, under the doctor's eyes, redacted, and beside older servers."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdlog.adapters.python.copying import copy
from holdlog.adapters.stores.event_log import audit
from holdlog.adapters.stores.event_log import rebuild as rebuilding
from holdlog.adapters.stores.event_log.codec import event_of
from holdlog.domain.refusals import InvalidError
from holdlog.domain.threads.thread import KINDS
from tests.contracts.test_threads import a_long_story, holds
from tests.support.commands import did, require_views_equal_the_log, rows
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.places import Place, Somewhere, engine, places
from tests.support.slow import slow
from tests.support.threads import Holds, append, change_data, fork, message, result, start

STORY = Holds({"plan": "z", "é": [1]}, ["m:hi", "m:ho", "r:a", "m:hey"])


@pytest.fixture
def somewhere(tmp_path: Path, postgres_server: str) -> Iterator[Somewhere]:
    with places(tmp_path, postgres_server) as found:
        yield found


@pytest.fixture(params=["file", "schema"])
def kind(request: pytest.FixtureRequest, somewhere: Somewhere) -> Kind:
    """A store with threads, not open."""
    place = somewhere(request.param)
    with engine(place) as store:
        a_long_story(store)
        did(store, fork("new", version=9))
    return InFile(place) if isinstance(place, Path) else InDatabase(place)


def place_of(kind: Kind) -> Place:
    return Path(kind.place) if isinstance(kind, InFile) else str(kind.place)


@pytest.mark.parametrize(
    ("kind", "target"),
    [("file", "schema"), ("schema", "file"), *slow(("file", "file"), ("schema", "schema"))],
    indirect=["kind"],
)
def test_copy_of_a_store_has_its_threads(kind: Kind, target: str, somewhere: Somewhere) -> None:
    there = somewhere(target)
    copy(kind.place, there)
    with engine(place_of(kind)) as ours, engine(there) as theirs:
        assert rows(theirs)[:-1] == rows(ours)
        assert holds(theirs) == holds(ours) == STORY
        require_views_equal_the_log(theirs)
        assert did(theirs, append(result("a"), result("new"))).already == 1


@pytest.mark.parametrize("page", [3, *slow(1, 1000)])
def test_rebuild_restores_threads_exactly(kind: Kind, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", page)
    before, schema = kind.views(), kind.tables()
    kind.doctored(
        "DELETE FROM threads WHERE thread = 't'",
        "UPDATE thread_items SET at = 1, name = 'x' WHERE version = 3",
        "DELETE FROM thread_items WHERE kind = 'clear'",
        "INSERT INTO thread_items VALUES ('t', 'data', 99, 'stray', 1)",
        "UPDATE thread_data SET value = '7', version = 2",
        "INSERT INTO thread_data VALUES ('t', 'stray', 6, 1, '1')",
        "DROP INDEX thread_items_name",
    )
    assert "views" in kind.bad()
    report = kind.rebuilt()
    assert {name: report.rows[name] for name in ("threads", "thread_items", "thread_data")} == {
        "threads": 3,
        "thread_items": len(before["thread_items"]),
        "thread_data": len(before["thread_data"]),
    }
    assert kind.views() == before
    assert kind.tables() == schema
    assert kind.unsound() == []


def test_rebuild_includes_threads_written_between_its_pages(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PAGE_EVENTS", 7)
    with engine(place_of(kind)) as others:

        def append_more(done: int, total: int) -> None:
            did(others, start(f"at {done}", done=done))
            did(others, append(message(done), result("a"), result(f"{done}")))
            did(others, change_data(None, "plan", done=done))
            did(others, change_data(None, plan=done))

        report = kind.rebuilt(append_more)
        assert report.events == len(rows(others)) > 45
        assert holds(others).items[:4] == STORY.items
        require_views_equal_the_log(others)
    assert kind.unsound() == []


@pytest.mark.parametrize("kind", ["file", *slow("schema")], indirect=True)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM threads WHERE thread = 't'", "threads has no row for thread:t"),
        ("UPDATE threads SET results = 2 WHERE thread = 't'", "threads and the log differ in results for thread:t"),
        ("DELETE FROM thread_items WHERE thread = 's' AND kind = 'result'", "thread_items has no row for thread:s"),
        ("DELETE FROM thread_items WHERE version = 12", "thread_items has no row for thread:t"),
        ("UPDATE thread_items SET at = 7 WHERE version = 16", "thread_items and the log differ in at for thread:t"),
        ("UPDATE thread_items SET version = 99 WHERE version = 16", "a row t/message/99/ that is not in the log"),
        (
            "INSERT INTO thread_items VALUES ('t', 'message', 4, '', 1)",
            "thread_items has a row t/message/4/ that is not in the log",
        ),
        ("INSERT INTO thread_items VALUES ('u', 'clear', 1, '', 1)", "thread_items has a row u/clear/1/ that is not"),
        ("DELETE FROM thread_data WHERE key = 'draft' AND thread = 't'", "thread_data has no row for thread:t"),
        ("UPDATE thread_data SET value = '7' WHERE key = 'é'", "thread_data and the log differ in value for thread:t"),
        ("UPDATE thread_data SET live = 1 WHERE key = 'draft' AND thread = 't'", "differ in live for thread:t"),
        (
            "INSERT INTO thread_data VALUES ('t', 'stray', 13, 1, '1')",
            "thread_data has a row t/stray that is not in the log",
        ),
        ("INSERT INTO thread_data VALUES ('u', 'k', 1, 1, '1')", "thread_data has a row u/k that is not in the log"),
    ],
)
def test_doctor_reports_thread_rows_that_differ_are_missing_or_not_in_the_log(
    kind: Kind, damage: str, said: str
) -> None:
    assert kind.bad() == {}
    kind.doctored(damage)
    assert said in kind.bad()["views"]
    assert kind.bad().keys() == {"views"}
    kind.rebuilt()
    assert kind.unsound() == []


def test_doctor_reports_one_stray_thread_row_once(kind: Kind) -> None:
    kind.doctored("INSERT INTO thread_items VALUES ('t', 'message', 4, '', 1)")
    assert kind.bad()["views"].startswith("1 differ from the log")


def test_doctor_reads_an_event_of_many_keys_only_a_few_times(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(place_of(kind)) as store:
        did(store, start("many", **{f"k{number}": number for number in range(900)}))
    read: list[str] = []
    monkeypatch.setattr(audit, "event_of", lambda *row: (read.append(row[0]), event_of(*row))[1])
    kind.doctored(
        "INSERT INTO thread_items VALUES ('many', 'data', 2, 'stray', 1)",
        "INSERT INTO thread_data VALUES ('many', 'stray', 2, 1, '1')",
    )
    assert kind.bad()["views"].startswith("2 differ from the log")
    assert read.count("thread:many") < 10


def test_redacted_thread_parts_read_as_null_and_the_rest_remains(kind: Kind) -> None:
    kind.doctored(
        "UPDATE stored_events SET payload = NULL, salt = NULL, payload_hash = BYTES('x')"
        " WHERE originator_id = 'thread:t' AND originator_version IN (2, 3, 15)"
    )
    with engine(place_of(kind)) as store:
        assert holds(store, version=2) == Holds({"draft": None, "plan": None}, [])
        assert holds(store) == STORY._replace(items=["m:None", "m:ho", "r:None", "m:hey"])
        with store.reader() as reader:
            events = reader.thread_events("t", KINDS, 0, None, -1, newest=False)
        assert [it.envelope.version for it in events if it.redacted] == [2, 3, 15]
        assert did(store, append(result("a"))).already == 1


def test_fork_omits_what_was_redacted(kind: Kind) -> None:
    kind.doctored(
        "UPDATE stored_events SET payload = NULL, salt = NULL, payload_hash = BYTES('x')"
        " WHERE originator_id = 'thread:t' AND originator_version IN (3, 15)"
    )
    with engine(place_of(kind)) as store:
        told = did(store, fork("f"))
        assert (told.appended, told.messages, told.results) == (2, 2, 0)
        assert holds(store, "f") == STORY._replace(items=["m:ho", "m:hey"])
        assert did(store, append(result("a"), thread="f")).appended == 1


def test_thread_names_too_long_for_an_index_are_refused_and_change_nothing(somewhere: Somewhere) -> None:
    dice = random.Random(1)
    thread, key = ("".join(chr(dice.randrange(0x20000, 0x2A000)) for _ in range(512)) for _ in range(2))
    with engine(somewhere("schema")) as store:
        did(store, start(thread))
        with pytest.raises(InvalidError, match="2,704 bytes"):
            did(store, change_data(None, thread=thread, **{key: 1}))
        require_views_equal_the_log(store)
        assert did(store, append(message("hi"), thread=thread)).version == 2


def test_rebuild_drops_a_value_whose_event_was_redacted(kind: Kind) -> None:
    kind.doctored(
        "UPDATE stored_events SET payload = NULL, salt = NULL, payload_hash = BYTES('x')"
        " WHERE originator_id = 'thread:t' AND originator_version = 13"
    )
    kind.rebuilt()
    with engine(place_of(kind)) as store:
        assert holds(store).data == {"plan": None, "é": None}
