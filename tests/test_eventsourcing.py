"""Events of programs in the log, holdlog's own events for projections, and a read model that is killed."""

import importlib
import io
import sqlite3
import subprocess
import sys
import unittest
from base64 import b64encode
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import (
    DataError,
    IntegrityError,
    JSONTranscoder,
    MapperDeserialisationError,
    NotSupportedError,
    StoredEvent,
)
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner

import holdlog
from tests.conftest import both_stores
from tests.doors.test_eventsourcing import Dog, library_cases, recorder_of
from tests.support.library import in_thread
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.xdist_group("eventsourcing")
published = importlib.import_module("holdlog.eventsourcing")
EXAMPLE = Path(__file__).parents[1] / "examples" / "read_model.py"
on_a_file = pytest.mark.parametrize("kind", ["file"], indirect=True)


@pytest.fixture
def place(kind, request):
    return str(request.getfixturevalue("postgres" if kind == "postgres" else "db"))


def env_of(place, **more):
    return {"PERSISTENCE_MODULE": "holdlog.eventsourcing", "HOLDLOG_DB": place} | more


class Kennel(Application):
    is_snapshotting_enabled = True


class Shelter(Application):
    pass


def save_dog(application, *tricks, name="Fido"):
    dog = Dog(name)
    for trick in tricks:
        dog.add_trick(trick)
    application.save(dog)
    return dog


def stored(version=1, originator="7f", topic="bank:Opened", state=b"\x80\0"):
    return StoredEvent(originator, version, topic, state)


# --- applications of programs


@both_stores
def test_applications_have_events_of_their_own(open_store, place):
    store = open_store()
    store.set("n", "k", 1, updated_by="ann")
    with Kennel(env=env_of(place)) as kennel, Shelter(env=env_of(place)) as shelter:
        fido, rex = save_dog(kennel, "sit"), save_dog(shelter, name="Rex")
        for application, dog, ids in ((kennel, fido, [2, 3]), (shelter, rex, [4])):
            found = application.recorder.select_notifications(start=None, limit=10)
            assert [(it.id, it.originator_id) for it in found] == [(at, str(dog.id)) for at in ids]
            assert application.recorder.max_notification_id() == ids[-1]
            assert [it.id for it in application.notification_log.select(1, 10)] == ids
        assert [it.stream.partition("/")[0] for it in store.events(1).events] == ["foreign:Kennel"] * 2 + [
            "foreign:Shelter"
        ]
    assert recorder_of(place).max_notification_id() == 1


@both_stores
def test_snapshots_shorten_a_replay_and_notify_nobody(open_store, place):
    store = open_store()
    with Kennel(env=env_of(place)) as kennel:
        dog = save_dog(kennel, "sit", "roll")
        kennel.take_snapshot(dog.id)
        (snapshot,) = kennel.snapshots.get(dog.id)
        assert snapshot.originator_version == 3
        assert kennel.repository.get(dog.id).tricks == ["sit", "roll"]
        assert kennel.recorder.max_notification_id() == 3
    assert len(store.events().events) == 4
    assert store.verify()


@both_stores
def test_recorders_pass_more_test_cases_of_the_library(open_store, place):
    open_store()
    library, factory = library_cases(), published.HoldlogFactory({"HOLDLOG_DB": place})

    class Snapshots(library.AggregateRecorderTestCase):
        def create_recorder(self):
            return factory.aggregate_recorder("snapshots")

        def new_originator_id(self):
            return str(uuid4())

    class Interleaving(library.NonInterleavingNotificationIDsBaseCase):
        insert_num = 100

        def create_recorder(self):
            return factory.application_recorder()

        def new_originator_id(self):
            return str(uuid4())

    result = unittest.TestResult()
    for case in (Snapshots("test_insert_and_select"), Interleaving("test")):
        case.run(result)
    assert (result.testsRun, result.errors + result.failures) == (2, [])


class Tricks(Projection):
    @singledispatchmethod
    def process_event(self, domain_event, tracking):
        raise TypeError(type(domain_event))

    @process_event.register
    def registered(self, event: Dog.Registered, tracking):
        self.view.insert_tracking(tracking)

    @process_event.register
    def added(self, event: Dog.TrickAdded, tracking):
        self.view.insert_tracking(tracking)


@both_stores
def test_projection_of_a_program_gets_its_events_alone(open_store, place):
    store = open_store()
    env = env_of(place) | {"TRICKS_PERSISTENCE_MODULE": "eventsourcing.popo"}
    with ProjectionRunner(
        application_class=Shelter, projection_class=Tricks, view_class=POPOTrackingRecorder, env=env
    ) as runner:
        for number in range(3):
            store.set("n", "k", number, updated_by="ann")
            save_dog(runner.app, "sit")
            runner.wait(runner.app.recorder.max_notification_id(), timeout=PATIENCE)
        assert runner.view.max_tracking_id("Shelter") == 9


@both_stores
def test_concurrent_programs_add_each_version_once(open_store, place):
    open_store()

    def add(_):
        recorder, added = recorder_of(place), 0
        for version in range(20):
            try:
                recorder.insert_events([stored(version), stored(version, f"other-{version}")])
                added += 1
            except IntegrityError:
                pass
        return added

    assert sum(worker.result() for worker in [in_thread(add, number) for number in range(3)]) == 20
    recorder = recorder_of(place)
    assert [it.originator_version for it in recorder.select_events("7f")] == list(range(20))
    assert recorder.max_notification_id() == 40


@both_stores
def test_store_is_usable_after_many_refused_events(open_store, place):
    """On PostgreSQL, psycopg prepares what is executed often, and deallocates everything after a rollback."""
    open_store()
    recorder = recorder_of(place)
    recorder.insert_events([stored(0)])
    for version in range(1, 30):
        with pytest.raises(IntegrityError):
            recorder.insert_events([stored(0)])
        assert recorder.insert_events([stored(version)]) == [version + 1]


@both_stores
def test_events_of_programs_are_verified_exported_imported_and_in_no_view(open_store, place, tmp_path):
    store = open_store()
    with Shelter(env=env_of(place)) as shelter:
        dog = save_dog(shelter, "sit")
        recorder_of(place).insert_events([stored(0), stored(9), stored(4)])
    store.set("n", "k", 1, updated_by="ann")
    assert store.verify()
    assert (store.rebuild().changed, store.doctor().sound) == (0, True)
    assert (store.list_namespaces(), store.status().claims) == (["n"], [])
    assert [it.kind for it in store.events(2).events[:1]] == ["foreign:bank:Opened"]
    assert store.events(2).events[0].state == b64encode(b"\x80\0").decode()
    store.export(file := io.BytesIO())
    copy = tmp_path / "copy.db"
    with holdlog.StateStore(copy) as other:
        other.import_(io.BytesIO(file.getvalue()))
        assert other.verify()
    with Shelter(env=env_of(str(copy))) as shelter:
        assert shelter.repository.get(dog.id).tricks == ["sit"]


@both_stores
def test_redacted_event_of_a_program_stays_a_hash(open_store, place):
    store = open_store()
    with Shelter(env=env_of(place)) as shelter:
        dog = save_dog(shelter, "a secret")
        event = f"foreign:Shelter/{dog.id}@2"
        assert store.redact(event, redacted_by="ann", reason="it leaked").redacted == 1
        assert store.verify()
        assert [it.state for it in shelter.recorder.select_events(dog.id, gt=1)] == [b""]
        with pytest.raises(MapperDeserialisationError):
            shelter.repository.get(dog.id)
    assert store.redact(older_than_seconds=0.001, redacted_by="ann", reason="old").redacted == 0


@on_a_file
@pytest.mark.parametrize(
    ("error", "events"),
    [
        (IntegrityError, [stored(2), stored(2)]),
        (IntegrityError, [stored(2), stored(1)]),
        (DataError, [stored(2), stored(-1)]),
        (DataError, [stored(2), stored(3, originator="record:n/k")]),
        (DataError, [stored(2), stored(3, originator="a\0b")]),
        (DataError, [stored(2), stored(3, topic="")]),
        (DataError, [stored(2), stored(3, state=b"x" * 300_000)]),
        (DataError, [stored(number) for number in range(2, 10_100)]),
    ],
)
def test_events_that_cannot_be_stored_change_nothing(open_store, place, kind, error, events):
    open_store()
    recorder = recorder_of(place)
    recorder.insert_events([stored(1)])
    with pytest.raises(error):
        recorder.insert_events(events)
    assert recorder.max_notification_id() == 1
    assert recorder.insert_events([stored(2)]) == [2]


# --- holdlog's own events


@on_a_file
def test_own_events_have_the_fields_of_events_and_no_hash_of_a_token(open_store, place, kind):
    store = open_store()
    store.set("n", "k", {"a": [1]}, updated_by="ann", ttl_seconds=60, reason="why")
    store.token_create("ci", ["read:*"], created_by="ann")
    recorder_of(place).insert_events([stored()])
    with published.HoldlogApplication(env={"HOLDLOG_DB": place}) as application:
        written = next(iter(application.events.get("record:n/k")))
        assert isinstance(written, published.ValueWritten)
        assert (written.namespace, written.key, written.value, written.by) == ("n", "k", {"a": [1]}, "ann")
        assert tuple(written) == tuple(store.events().events[0])
        assert (written.originator_id, written.originator_version) == ("record:n/k", 1)
        assert written.timestamp == store.get("n", "k").updated_at
        found = application.recorder.select_notifications(None, 10)
        assert [it.topic for it in found] == ["ValueWritten", "TokenCreated"]
        assert b'"hash\\":\\"\\"' in found[1].state
        assert "hash" not in application.mapper.to_domain_event(found[1]).fields
        with pytest.raises(NotSupportedError):
            save_dog(application)
    assert store.events().events[-1].kind == "foreign:bank:Opened"


def test_unknown_event_of_holdlog_is_an_error_and_never_an_import():
    mapper: Any = published.LogMapper(JSONTranscoder())
    with pytest.raises(holdlog.StoreError, match="unknown kind"):
        mapper.to_domain_event(StoredEvent("record:n/k", 1, "os:system", b"[]"))
    with pytest.raises(AttributeError):
        _ = published.NoSuchEvent


@on_a_file
def test_store_is_no_place_for_views(open_store, place, kind):
    open_store()
    with pytest.raises(holdlog.StoreError, match="SQLITE_DBNAME"):
        published.HoldlogFactory({"HOLDLOG_DB": place, "SQLITE_DBNAME": place})
    factory = published.HoldlogFactory({"HOLDLOG_DB": place})
    for make in (factory.tracking_recorder, factory.process_recorder):
        with pytest.raises(NotSupportedError, match="PERSISTENCE_MODULE"):
            make()


# --- the example


@pytest.mark.rest
@both_stores
def test_killed_read_model_counts_each_event_once(open_store, place, tmp_path, kind):
    store, view = open_store(), tmp_path / "writes.db"
    words = [sys.executable, str(EXAMPLE), place, str(view)]
    for number in range(3):
        process = subprocess.Popen([*words, "--follow"])
        try:
            for _ in range(50):
                store.set("n", "k", number, updated_by=f"agent-{number}")
            until(partial(_has_counted, view, 50 * number + 10))
        finally:
            process.kill()
            process.wait()
    store.claim("custom://x", agent="ann")
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["agent-0", "50", "agent-1", "50", "agent-2", "50"]


def _has_counted(view, number):
    with closing(sqlite3.connect(view)) as connection:
        try:
            return connection.execute("SELECT COALESCE(SUM(times), 0) FROM writes").fetchone()[0] >= number
        except sqlite3.OperationalError:  # it has no table yet, or is locked
            return False
