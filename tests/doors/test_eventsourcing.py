"""The log as an application of the eventsourcing library: read models of programs, and the library's own test cases."""

import importlib
import sys
import unittest
from types import ModuleType
from uuid import uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import InfrastructureFactory, Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder
from eventsourcing.utils import Environment, get_topic

import holdlog
from tests.doors.conftest import both_stores
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("eventsourcing")


@pytest.fixture
def place(kind, request):
    return str(request.getfixturevalue("postgres" if kind == "postgres" else "db"))


def recorder_of(place, name=""):
    env = Environment(name, {"PERSISTENCE_MODULE": "holdlog.eventsourcing", "HOLDLOG_DB": place})
    return InfrastructureFactory.construct(env).application_recorder()


def work(store):
    """Five events."""
    store.set("n", "a/b", 1, updated_by="ann")
    store.set("n", "a/b", 2, updated_by="bob", expected_version=1)
    store.delete("n", "a/b", deleted_by="ann")
    store.claim("custom://x", agent="ann")
    store.release("custom://x", agent="ann")


@both_stores
def test_events_of_the_log_are_notifications(open_store, place):
    work(open_store())
    recorder = recorder_of(place)
    found = recorder.select_notifications(start=1, limit=10)
    assert [(it.id, it.topic, it.originator_version) for it in found] == [
        (1, "ValueWritten", 1),
        (2, "ValueWritten", 2),
        (3, "ValueDeleted", 3),
        (4, "ClaimGranted", 1),
        (5, "ClaimReleased", 2),
    ]
    assert len({it.originator_id for it in found}) == 2
    assert recorder.max_notification_id() == 5
    assert [it.id for it in recorder.select_notifications(2, 10, stop=4, topics=["ValueWritten", "ClaimGranted"])] == [
        2,
        4,
    ]
    assert [it.originator_version for it in recorder.select_events(found[0].originator_id, gt=1, desc=True)] == [3, 2]


# --- read models


class Counts(SQLiteTrackingRecorder):
    def construct_create_table_statements(self):
        table = "CREATE TABLE IF NOT EXISTS counts (topic TEXT PRIMARY KEY, number INTEGER)"
        return [*super().construct_create_table_statements(), table]

    def count(self, topic, tracking):
        statement = "INSERT INTO counts VALUES (?, 1) ON CONFLICT (topic) DO UPDATE SET number = number + 1"
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(statement, (topic,))

    def counts(self):
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT topic, number FROM counts")
            return dict(map(tuple, cursor.fetchall()))


class Counting(Projection[Counts]):
    @singledispatchmethod
    def process_event(self, domain_event, tracking: Tracking) -> None:
        self.view.count(get_topic(type(domain_event)), tracking)


def running(place, view):
    application = importlib.import_module("holdlog.eventsourcing").HoldlogApplication
    env = {"HOLDLOG_DB": place, "PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(view)}
    return ProjectionRunner(application_class=application, projection_class=Counting, view_class=Counts, env=env)


def counted(place, view):
    """The view once it has all that the log has."""
    with running(place, view) as runner:
        runner.wait(runner.app.recorder.max_notification_id(), timeout=PATIENCE)
        return runner.view.counts()


@both_stores
def test_read_model_counts_each_event_once_over_several_runs(open_store, place, tmp_path):
    store, view = open_store(), tmp_path / "view.db"
    work(store)
    counts = {"ValueWritten": 2, "ValueDeleted": 1, "ClaimGranted": 1, "ClaimReleased": 1}
    assert counted(place, view) == counted(place, view) == counts
    store.set("n", "c", 3, updated_by="ann")
    assert counted(place, view) == counts | {"ValueWritten": 3}


@pytest.mark.parametrize("kind", ["file"], indirect=True)
def test_running_read_model_follows_new_events(open_store, place, tmp_path):
    store = open_store()
    store.set("n", "k", 0, updated_by="ann")
    with running(place, tmp_path / "view.db") as runner:
        for number in range(2, 8):
            store.set("n", "k", number, updated_by="ann")
            runner.wait(number, timeout=PATIENCE)
        assert runner.view.counts() == {"ValueWritten": 7}


@pytest.mark.parametrize("kind", ["file"], indirect=True)
def test_location_without_a_store_is_refused(tmp_path, kind):
    for missing in (str(tmp_path / "missing.db"), ":memory:", "mysql://host/db"):
        with pytest.raises(holdlog.StoreError):
            recorder_of(missing)
    assert not (tmp_path / "missing.db").exists()


# --- applications that write


class Dog(Aggregate):
    @event("Registered")
    def __init__(self, name):
        self.tricks = []
        self.name = name

    @event("TrickAdded")
    def add_trick(self, trick):
        self.tricks.append(trick)


@both_stores
def test_application_of_a_program_writes_into_the_log(open_store, place, command):
    store = open_store()
    store.set("n", "k", 1, updated_by="ann")
    env = {"PERSISTENCE_MODULE": "holdlog.eventsourcing", "HOLDLOG_DB": place}
    with Application(env=env) as application:
        dog = Dog("Fido")
        dog.add_trick("roll over")
        application.save(dog)
        assert application.repository.get(dog.id).tricks == ["roll over"]
    store.set("n", "k", 2, updated_by="ann", expected_version=1)
    assert [it.key for it in store.list_keys("n")] == ["k"]
    assert store.status().claims == []
    for words in (("verify", "--db", place), ("export", "--db", place)):
        assert command(*words).code == 0
    with Application(env=env) as application:
        assert application.repository.get(dog.id).name == "Fido"


def library_cases():
    """The library's module of test cases, which imports a package for encryption that no test here uses."""
    for name in ("Crypto", "Crypto.Cipher", "Crypto.Cipher.AES", "Crypto.Cipher._mode_gcm"):
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules["Crypto.Cipher"].AES = sys.modules["Crypto.Cipher.AES"]
    sys.modules["Crypto.Cipher.AES"].key_size = (16, 24, 32)
    sys.modules["Crypto.Cipher._mode_gcm"].GcmMode = object
    from eventsourcing.tests import persistence

    return persistence


@pytest.mark.parametrize(
    "case",
    [
        "test_insert_select",
        pytest.param("test_concurrent_no_conflicts", marks=pytest.mark.rest),
        "test_concurrent_throughput",
        "optional_test_insert_subscribe",
    ],
)
@both_stores
def test_recorder_passes_the_test_cases_of_the_library(open_store, place, case):
    open_store()

    class Case(library_cases().ApplicationRecorderTestCase):
        def create_recorder(self):
            return recorder_of(place)

        def new_originator_id(self):
            return str(uuid4())

    result = unittest.TestResult()
    Case(case).run(result)
    assert result.testsRun == 1
    assert result.errors + result.failures == []
