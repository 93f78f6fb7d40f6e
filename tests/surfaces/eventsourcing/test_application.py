"""The log as an application of the eventsourcing library, with its own projections and view databases."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import singledispatch
from pathlib import Path
from typing import Any

import psycopg
import pytest
from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate
from eventsourcing.persistence import NotSupportedError, ProgrammingError, StoredEvent, Tracking, TrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.utils import get_topic

from holdlog import StateStore, StoreError, copy
from holdlog.adapters.eventsourcing.events import LOG_EVENTS
from holdlog.adapters.stores.event_log.codec import encode
from holdlog.domain.envelope import NO_BASIS, NO_DIGEST
from holdlog.domain.message import NOBODY
from holdlog.domain.record import ValueDeleted
from holdlog.eventsourcing import (
    ClaimGrantedEvent,
    ClaimQueuedEvent,
    HoldlogApplication,
    HoldlogFactory,
    LogEvent,
    LogMapper,
    ThreadStartedEvent,
    ValueDeletedEvent,
    ValueWrittenEvent,
)
from holdlog.projections.fold import EVENTS
from tests.support.projections import (
    MemoryCounts,
    PostgresCounts,
    SqliteCounts,
    caught_up,
    in_log,
    in_postgres,
    in_sqlite,
    runner,
)

DOCUMENT = (Path(__file__).parents[3] / "docs" / "eventsourcing.md").read_text()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store with some events, some of them refused."""
    place = str(tmp_path / "state.db" if request.param == "sqlite" else request.getfixturevalue("postgres"))
    with StateStore(place, session="one") as store:
        store.set("campaign", "a/b", {"_type_": "uuid_hex", "_data_": "x"}, updated_by="ann", reason="begin")
        store.set("campaign", "a/b", 2, updated_by="bob", expected_version=1)
        store.delete("campaign", "a/b", deleted_by="ann")
        store.claim("src/a.py", agent="ann", note="renaming")
        store.release("src/a.py", agent="ann")
    return place


def events_of(place: str) -> list[LogEvent]:
    with HoldlogApplication(env={"HOLDLOG_DB": place}) as application:
        found = application.recorder.select_notifications(None, 100)
        return [application.mapper.to_domain_event(it) for it in found]  # type: ignore[misc]


def test_every_topic_has_a_class_with_the_fields_of_its_event() -> None:
    assert LOG_EVENTS.keys() == EVENTS.keys()
    for topic, kind in LOG_EVENTS.items():
        assert issubclass(kind, EVENTS[topic])
        assert kind.TOPIC == get_topic(kind) == topic
        assert EVENTS[topic].model_fields.keys() <= kind.model_fields.keys()
        assert "envelope" in kind.model_fields


def test_events_have_their_fields_names_and_envelope(place: str) -> None:
    written, changed, deleted, granted, released = events_of(place)
    assert isinstance(written, ValueWrittenEvent)
    assert isinstance(changed, ValueWrittenEvent)
    assert isinstance(deleted, ValueDeletedEvent)
    assert isinstance(granted, ClaimGrantedEvent)
    assert (written.namespace, written.key, written.by, written.author) == ("campaign", "a/b", "ann", "ann")
    assert written.value.value == {"_type_": "uuid_hex", "_data_": "x"}
    assert (written.envelope.caller.reason, changed.envelope.based_on) == ("begin", 1)
    assert (granted.resource, granted.agent, granted.note, released.author) == ("src/a.py", "ann", "renaming", "ann")
    assert [it.originator_version for it in (written, changed, deleted)] == [1, 2, 3]
    assert written.originator_id == "record:campaign/a%2Fb"
    assert [it.envelope.position for it in (written, changed, deleted, granted, released)] == [1, 2, 3, 4, 5]
    assert written.timestamp.timestamp() * 1_000_000 == pytest.approx(written.envelope.at)
    assert written.timestamp <= released.timestamp


def test_redacted_event_is_marked_and_its_value_is_null(tmp_path: Path) -> None:
    place = tmp_path / "state.db"
    with StateStore(place) as store:
        store.set("n", "k", "a secret", updated_by="ann")
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE stored_events SET salt = NULL, payload = NULL, payload_hash = zeroblob(32)")
    connection.close()
    (event,) = events_of(str(place))
    assert isinstance(event, ValueWrittenEvent)
    assert (event.redacted, event.value.value) == (True, None)


def test_events_of_one_stream_are_selected(place: str) -> None:
    with HoldlogApplication(env={"HOLDLOG_DB": place}) as application:
        found = list(application.events.get("record:campaign/a%2Fb", gt=1))
    assert [type(it) for it in found] == [ValueWrittenEvent, ValueDeletedEvent]


def test_classes_of_events_dispatch() -> None:
    @singledispatch
    def named(event: object) -> str:
        return "other"

    @named.register
    def of_claim(event: ClaimQueuedEvent) -> str:
        return "queued"

    envelope: Any = None
    queued = ClaimQueuedEvent.model_construct(agent="ann", turn=1, envelope=envelope, redacted=False)
    assert named(queued) == "queued"
    assert named(ThreadStartedEvent.model_construct(by="ann", envelope=envelope, redacted=False)) == "other"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[type[TrackingRecorder], dict[str, str]]]:
    match request.param:
        case "memory":
            yield MemoryCounts, {}
        case "sqlite":
            yield SqliteCounts, in_sqlite(tmp_path / "view.db")
        case _:
            server, schema = request.getfixturevalue("postgres_server"), f"views_{os.getpid()}"
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f'CREATE SCHEMA "{schema}"')
            yield PostgresCounts, in_postgres(server, schema)
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def test_projection_counts_each_event_once(place: str, view: tuple[type[TrackingRecorder], dict[str, str]]) -> None:
    assert (
        caught_up(place, *view)
        == in_log(place)
        == {
            "ValueWritten": 2,
            "ValueDeleted": 1,
            "ClaimGranted": 1,
            "ClaimReleased": 1,
        }
    )
    with StateStore(place) as store:
        store.set("campaign", "c", 3, updated_by="ann")
    assert caught_up(place, *view) == in_log(place)
    assert in_log(place)["ValueWritten"] == 3


def test_running_projection_follows_new_events(place: str, tmp_path: Path) -> None:
    with StateStore(place) as store, runner(place, SqliteCounts, in_sqlite(tmp_path / "view.db")) as running:
        for number in range(1, 20):
            store.set("n", "k", number, updated_by="ann")
            running.wait(5 + number, timeout=30)
        assert running.view.counts() == in_log(place)


class Deletions(Projection[Any]):
    topics = ("ValueDeleted",)

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        raise AssertionError(f"{domain_event.TOPIC} was not asked for")

    @process_event.register
    def deleted(self, event: ValueDeletedEvent, tracking: Tracking) -> None:
        self.view.count(event.TOPIC, tracking)


def test_topics_of_a_projection_are_stored_names(place: str) -> None:
    assert get_topic(ValueDeletedEvent) == "ValueDeleted"
    with runner(place, MemoryCounts, {}, Deletions) as running:
        running.wait(3, timeout=30)
        assert running.view.counts() == {"ValueDeleted": 1}


def test_view_tracks_two_stores_separately(tmp_path: Path) -> None:
    places = [tmp_path / "one.db", tmp_path / "two.db"]
    for place in places:
        with StateStore(place) as store:
            store.set("n", "k", 1, updated_by="ann")
    names = set()
    for count, place in enumerate(places, 1):
        assert caught_up(place, SqliteCounts, in_sqlite(tmp_path / "view.db")) == {"ValueWritten": count}
        with HoldlogApplication(env={"HOLDLOG_DB": str(place)}) as application:
            names.add(application.name)
    assert len(names) == 2


def test_application_refuses_to_change_the_log(place: str) -> None:
    before = events_of(place)
    with HoldlogApplication(env={"HOLDLOG_DB": place}) as application:
        with pytest.raises(NotSupportedError, match="only reads"):
            application.save(Aggregate())
        with pytest.raises(NotSupportedError, match="only reads"):
            application.events.put([before[0]])
        deleted = ValueDeleted(by="eve")
        forged = encode(deleted, "record:campaign/x", 1, NO_DIGEST, NO_BASIS, 1, 1, NOBODY)
        for stored in ([forged], [StoredEvent("record:campaign/x", 1, "ValueDeleted", b"{}")]):
            with pytest.raises(ProgrammingError, match="unit of work"):
                application.recorder.insert_events(stored)
    assert events_of(place) == before


@pytest.mark.parametrize("name", ["CIPHER_KEY", "CIPHER_TOPIC", "COMPRESSOR_TOPIC"])
def test_cipher_and_compressor_are_refused(tmp_path: Path, name: str) -> None:
    StateStore(tmp_path / "state.db").close()
    env = {"HOLDLOG_DB": str(tmp_path / "state.db")}
    with pytest.raises(ProgrammingError, match=f"unset {name}, or, .* MYAPP_{name}"):
        HoldlogApplication(env={**env, name: "eventsourcing.compressor:ZlibCompressor"})
    HoldlogApplication(env={**env, f"MYAPP_{name}": "eventsourcing.compressor:ZlibCompressor"}).close()


@pytest.mark.parametrize("name", ["SQLITE_DBNAME", "MYAPP_SQLITE_DBNAME"])
def test_views_in_the_file_of_the_store_are_refused(tmp_path: Path, name: str) -> None:
    StateStore(tmp_path / "state.db").close()
    env = {"HOLDLOG_DB": str(tmp_path / "state.db"), "PERSISTENCE_MODULE": "eventsourcing.sqlite"}
    with pytest.raises(ProgrammingError, match=f"{name}: .*state.db is the store; use another file"):
        HoldlogApplication(env={**env, name: f"{tmp_path}/./state.db"})
    HoldlogApplication(env={**env, name: f"{tmp_path}/views.db"}).close()


def test_mapper_decodes_only_what_the_recorder_selected() -> None:
    with pytest.raises(ProgrammingError, match="recorder"):
        LogMapper().to_domain_event(StoredEvent("record:a/b", 1, "os:system", b"{}"))


def test_unknown_topic_is_an_error_and_is_not_imported(tmp_path: Path) -> None:
    place = tmp_path / "state.db"
    with StateStore(place) as store:
        store.set("n", "k", 1, updated_by="ann")
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE stored_events SET topic = 'os:system'")
    connection.close()
    with pytest.raises(StoreError, match="unknown topic"), runner(place, MemoryCounts, {}) as running:
        running.run_forever(timeout=30)


def test_module_is_a_persistence_module_for_applications_that_read(place: str) -> None:
    env = {"HOLDLOG_DB": place, "PERSISTENCE_MODULE": "holdlog.eventsourcing", "IS_SNAPSHOTTING_ENABLED": "y"}
    with Application[str](env=env) as application:
        assert isinstance(application.factory, HoldlogFactory)
        found = map(application.mapper.to_domain_event, application.recorder.select_notifications(2, 2))
        assert [type(it) for it in found] == [ValueWrittenEvent, ValueDeletedEvent]
        with pytest.raises(NotSupportedError):
            application.save(Aggregate())


def test_view_in_the_log_is_refused_with_what_to_set(place: str) -> None:
    with pytest.raises(NotSupportedError, match=r"eventsourcing\.sqlite"):
        runner(place, SqliteCounts, {"PERSISTENCE_MODULE": "holdlog.eventsourcing"})


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("missing.db", r"there is no store at .*missing\.db; set HOLDLOG_DB"),
        (":memory:", "HOLDLOG_DB: a store in memory"),
        ("mysql://host/db", "mysql:// is not a store"),
        (".", "HOLDLOG_DB .* is a folder"),
    ],
)
def test_location_without_a_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=problem):
        HoldlogApplication(env={"HOLDLOG_DB": location})
    assert not list(tmp_path.iterdir())


def test_location_comes_from_the_environment_a_file_or_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / "named.db", tmp_path / ".holdlog" / "state.db"]
    for number, place in enumerate(places):
        place.parent.mkdir(exist_ok=True)
        with StateStore(place) as store:
            store.set("n", "k", number, updated_by="ann")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "location").write_text("named.db\n")
    for env, number in (({}, 1), ({"HOLDLOG_DB": "named.db"}, 0), ({"HOLDLOG_DB_FILE": "location"}, 0)):
        with HoldlogApplication(env=env) as application:
            (found,) = application.notification_log.select(None, 10)
            event = application.mapper.to_domain_event(found)
            assert isinstance(event, ValueWrittenEvent)
            assert event.value.value == number


def test_copy_of_a_store_has_another_name_of_the_application(tmp_path: Path) -> None:
    places = [tmp_path / "state.db", tmp_path / "copy.db"]
    StateStore(places[0]).close()
    copy(places[0], places[1])
    names = []
    for place in places:
        with HoldlogApplication(env={"HOLDLOG_DB": str(place)}) as application:
            names.append(application.name)
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"holdlog/[0-9a-f-]{36}", name) for name in names)


def test_runner_can_be_made_from_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StateStore(tmp_path / "state.db") as store:
        store.set("n", "k", 1, updated_by="ann")
    monkeypatch.setenv("HOLDLOG_DB", str(tmp_path / "state.db"))
    made = ProjectionRunner(application_class=HoldlogApplication, projection_class=Deletions, view_class=MemoryCounts)
    with made as running:
        assert running.app.recorder.max_notification_id() == 1


def test_eventsourcing_document_runs_and_prints_what_its_comments_state(tmp_path: Path) -> None:
    text = "\n".join(re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE))
    printed = re.findall(r"print\(.*\)  # (.*)$", text, re.MULTILINE)
    assert len(printed) >= 3
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == printed
