"""Concurrent claims of threads and processes, some of them killed: one order must explain all that they saw. Values so
are in test_faults_processes."""

import json
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.claims import process
from tests.support.library import in_thread
from tests.support.linearizable import Call, linearizable, lock, register
from tests.support.waiting import PATIENCE

CLIENTS, CALLS = 4, 12
NOTHING = (0, False, None)
FREE = (0, None, 0)


def is_current(store, agent, version):
    try:
        store.set("n", agent, 1, updated_by=agent, guard=[{"resource": "custom://r", "version": version}])
    except holdlog.FencedError:
        return False
    return True


def held(store):
    status = store.status("custom://r")
    return (status.held_by, status.version) if status.status == "claimed" else (None, None)


def locks(store, name, chance, call):
    """Claims, guarded writes, releases and looks at one resource."""
    for _ in range(CALLS):
        done = call(("claim", name), lambda: short(store.claim("custom://r", agent=name)))
        if chance.random() < 0.5:
            call(("guard", name, done[1]), lambda done=done: is_current(store, name, done[1]))
        if chance.random() < 0.3:
            call(("status",), lambda: held(store))
        call(("release", name), lambda: short(store.release("custom://r", agent=name)))


def short(response):
    return response.status, getattr(response, "version", None)


def test_claims_of_threads_are_linearizable(open_store, kind):
    """With a store for each thread where it is shared; else all have one."""
    stores = [open_store() for _ in range(CLIENTS if kind in ("file", "postgres") else 1)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        require_linearizable((stores * CLIENTS)[:CLIENTS])
    finally:
        sys.setswitchinterval(before)


def require_linearizable(stores):
    history = []
    start = threading.Barrier(CLIENTS)

    def client(number):
        def call(what, do):
            begin = time.monotonic_ns()
            response = do()
            history.append(Call(what, begin, time.monotonic_ns(), response))
            return response

        start.wait(PATIENCE)
        locks(stores[number], f"c{number}", random.Random(number), call)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    assert linearizable(history, FREE, lock), history


# --- processes, of which some are killed

PROGRAM = """
import json, random, sys, time
sys.path.insert(0, {root!r})
import holdlog
from tests.doors.test_claim_interleavings import locks
store = holdlog.StateStore({place!r})
def call(what, do):
    print(json.dumps([what, time.monotonic_ns()]), flush=True)
    response = do()
    print(json.dumps([response, time.monotonic_ns()]), flush=True)
    return response
sys.stdin.readline()
locks(store, {name!r}, random.Random({name!r}), call)
store.close()
"""


@pytest.mark.rest
@both_stores
def test_claims_of_processes_that_are_killed_are_linearizable(request, kind, pytestconfig):
    place = str(request.getfixturevalue("postgres" if kind == "postgres" else "db"))
    chance = random.Random(kind)
    with ExitStack() as stack:
        root = str(pytestconfig.rootpath)
        texts = [PROGRAM.format(root=root, place=place, name=f"c{number}") for number in range(CLIENTS)]
        programs = [stack.enter_context(process(text)) for text in texts]
        for program in programs:
            program.stdin.write("go\n")
            program.stdin.flush()
        readings = [
            in_thread(transcript, program, chance.randrange(5, 30) if number % 2 else None)
            for number, program in enumerate(programs)
        ]
        history = [call for reading in readings for call in reading.result()]
    assert sum(call.end is None for call in history) <= CLIENTS
    assert linearizable(history, FREE, lock), history


def transcript(program, lines):
    """What it called; it is killed after so many lines."""
    calls = []
    for number, text in enumerate(program.stdout):
        found, moment = json.loads(text)
        found = tuple(found) if isinstance(found, list) else found
        calls = (
            [*calls[:-1], calls[-1]._replace(end=moment, response=found)]
            if number % 2
            else [*calls, Call(found, moment)]
        )
        if number == lines:
            program.kill()
    return calls


# --- the check itself


def test_checker_detects_what_no_order_explains():
    for seen in ((0, None), (1, "x")):
        for end in (4, None):  # concurrent, and of a killed caller
            write_and_read = [Call(("write", "x", 0), 1, end, ("ok", 1)), Call(("read",), 2, 3, seen)]
            assert linearizable(write_and_read, NOTHING, register)
    first, killed = Call(("write", "x", 0), 1, 4, ("ok", 1)), Call(("write", "x", 0), 1)
    missed, theirs = Call(("read",), 5, 6, (0, None)), Call(("write", "y", 0), 2, 3, ("ok", 1))
    for calls in ([first, missed], [first, theirs], [killed, Call(("read",), 2, 3, (1, "x")), missed]):
        assert not linearizable(calls, NOTHING, register)
    two = [Call(("claim", name), 1, 2, ("claimed", version)) for version, name in ((1, "x"), (2, "y"))]
    assert not linearizable(two, FREE, lock)
