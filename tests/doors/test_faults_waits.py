"""No wake-up is lost between processes: whatever the order of write and wait, and whoever else waits and dies."""

import random
import shutil
import subprocess
import sys

import pytest

import holdlog
from tests.support.programs import python
from tests.support.soundness import require_sound

LONG = 45
NO_LOOPBACK = ("unshare", "-n")


def in_queue(store):
    status = store.status("a.md")
    return status.queue_length if status.status == "claimed" else 0


@pytest.mark.parametrize(
    ("kind", "times"),
    [("file", 60), *(pytest.param(kind, 200, marks=pytest.mark.rest) for kind in ("file", "postgres"))],
    indirect=["kind"],
)
def test_no_wake_up_of_another_process_is_lost_in_any_order(open_store, worker, request, kind, times):
    """The write comes before the wait, with it, or when it has begun; it may be two, or a deletion."""
    store, dice = open_store(), random.Random()
    version = store.set("n", "k", 0, updated_by="ann").version
    process = worker("serve", request.getfixturevalue("postgres" if kind == "postgres" else "db"))
    process.hear()
    for _ in range(times):
        since, writes = version, dice.choice((1, 1, 2))
        early = dice.randrange(writes + 1)
        for number in range(writes):
            if number == early:
                process.begin("watch", "n", "k", since, timeout_seconds=LONG)
            if version > since and dice.random() < 0.3:
                version = store.delete("n", "k", deleted_by="ann").version
            else:
                version = store.set("n", "k", version, updated_by="ann").version
        if early == writes:
            process.begin("watch", "n", "k", since, timeout_seconds=LONG)
        assert since < process.hear()["version"] <= version


WITHOUT_FILES = """
import resource, sys, threading
import holdlog

class Slow:  # an export into it keeps the only connection that reads
    def write(self, text):
        reads.set()
        go_on.wait()

def wait():
    try:
        print(store.wait("a.md", timeout_seconds=3600).status)
    except holdlog.UnavailableError:
        print("unavailable")
    go_on.set()

reads, go_on, store = threading.Event(), threading.Event(), holdlog.StateStore(sys.argv[1])
threading.Thread(target=wait).start()
while "holdlog-listener" not in [it.name for it in threading.enumerate()]:
    pass
threading.Thread(target=store.export, args=(Slow(),)).start()
reads.wait()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print("ready", flush=True)
"""


def test_waiter_that_cannot_look_what_happened_is_not_left_asleep(db):
    with holdlog.StateStore(db) as store:
        store.claim("a.md", agent="ann")
        with subprocess.Popen([sys.executable, "-c", WITHOUT_FILES, db], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            store.release("a.md", agent="ann")
            try:
                assert process.communicate(timeout=LONG)[0] in ("unavailable\n", "available\n")
            finally:
                process.kill()


@pytest.mark.rest
@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*NO_LOOPBACK, "true"], capture_output=True).returncode != 0,
    reason="no network namespace can be made here",
)
def test_process_that_no_notification_reaches_is_woken(db, worker):
    with holdlog.StateStore(db) as store:
        process = worker("serve", db, before=NO_LOOPBACK)
        process.hear()
        for version in range(1, 6):
            process.begin("watch", "n", "k", version - 1, timeout_seconds=LONG)
            store.set("n", "k", version, updated_by="ann")
            assert process.hear()["version"] == version
        assert process.call("set", "n", "l", 1, updated_by="ben")["version"] == 1


NO_FILES_LEFT = """
import os, resource, sys, holdlog
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
with holdlog.StateStore(sys.argv[1]) as store:
    store.set("n", "k", 1, updated_by="ann")
    taken = []
    try:
        while True: taken.append(os.dup(0))
    except OSError: pass
    try: store.watch("n", "k", 1, timeout_seconds=0.1)
    except holdlog.UnavailableError as error: print("refused:", error)
    print(store.set("n", "k", 2, updated_by="ann").version)
    for each in taken: os.close(each)
    print(store.watch("n", "k", 2, timeout_seconds=0.1).status)
"""


def test_process_without_a_free_descriptor_is_refused_a_wait_and_goes_on(db):
    refusal, version, status = python(NO_FILES_LEFT, db)
    assert (refusal[:8], version, status) == ("refused:", "2", "timeout")
    require_sound(db)


@pytest.mark.rest
@pytest.mark.parametrize("call", ["watch", "wait"])
def test_waiting_processes_that_die_disturb_nobody(db, worker, call):
    with holdlog.StateStore(db) as store:

        def begin():
            process = worker("serve", db)
            process.hear()
            if call == "wait":
                process.begin("wait", "a.md", LONG)
            else:
                process.begin("watch", "n", "a", 0, timeout_seconds=LONG)
            return process

        if call == "wait":
            store.claim("a.md", agent="ann")
        for _ in range(3):
            begin().kill()
        survivor = begin()
        for number in range(20):
            assert store.set("n", "k", number, updated_by="ann").version == number + 1
        if call == "wait":
            store.release("a.md", agent="ann")
            assert survivor.hear()["status"] == "available"
        else:
            store.set("n", "a", 1, updated_by="ann")
            assert survivor.hear()["version"] == 1
    require_sound(db)
