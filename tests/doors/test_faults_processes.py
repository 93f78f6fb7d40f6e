"""Several processes on one store: linearizable, no lost update, stopped and forked ones disturb nobody."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

import holdlog
from tests.support.faults import CHANGES, SHIM, SYNC
from tests.support.library import in_thread
from tests.support.linearizable import Call, linearizable, register
from tests.support.soundness import require_acknowledged, require_sound, require_sound_log
from tests.support.waiting import until
from tests.support.work import CLAIMS
from tests.support.workers import is_stopped

STOPPED = int(signal.SIGSTOP)


def place_of(request, kind):
    return request.getfixturevalue("postgres" if kind == "postgres" else "db")


def rounds(few, many):
    """`kind` and `times`, few and quick on a file, many on both stores."""
    more = (pytest.param(kind, many, marks=pytest.mark.rest) for kind in ("file", "postgres"))
    return pytest.mark.parametrize(("kind", "times"), [("file", few), *more], indirect=["kind"])


# --- one key, seen from several processes


@rounds(40, 120)
def test_calls_of_one_key_from_four_processes_are_linearizable(open_store, worker, kind, request, times):
    process = worker("several", 4, "calls_of_one_key", place_of(request, kind), times)
    victim = process.start_together(4)[3]
    for _ in range(times):
        process.hear()
    os.kill(victim, signal.SIGKILL)
    process.rest()
    history = [call for who in range(4) for call in calls([it for it in process.heard if it.get("who") == who])]
    assert sum(it.end is not None for it in history) > 2 * times
    assert linearizable(history, (0, False, None), write)
    require_sound_log(open_store())


def calls(lines):
    """The history of one process, which says each call before and after it."""
    begun, found = {}, []
    for line in lines:
        if "began" in line:
            begun[line["tried"]] = line
        elif "ended" in line:
            found.append(call_of(begun.pop(line["tried"]), line))
    return found + [call_of(it, None) for it in begun.values()]


def call_of(line, result):
    what = {"get": ("read",), "delete": ("delete", None)}.get(line["call"], ("write", line["tried"], line["expected"]))
    if result is None:
        return Call(what, line["began"])
    nothing = (0, None) if what == ("read",) else ("not_found",)
    refusals = {"NotFoundError": nothing, "ConflictError": ("conflict",)}
    if "error" in result:
        return Call(what, line["began"], result["ended"], refusals[result["error"]])
    done = (result["version"], result["value"]) if what == ("read",) else ("ok", result["version"])
    return Call(what, line["began"], result["ended"], done)


def write(state, what):
    """As `register`; a conflict does not say the version."""
    after, response = register(state, what)
    return after, response[:1] if response[0] == "conflict" else response


# --- counters


@rounds(15, 80)
def test_four_processes_lose_no_update_of_a_shared_key_and_of_their_own(open_store, worker, kind, request, times):
    process = worker("several", 4, "count", place_of(request, kind), times)
    process.start_together(4)
    assert sum("done" in it for it in process.rest()) == 4, process.errors
    store = open_store()
    assert store.get("n", "shared").value == 4 * times
    assert [it.version for it in store.history("n", "shared", limit=1000)] == list(range(4 * times, 0, -1))
    assert [store.get("n", f"own-{number}").value for number in range(4)] == [times] * 4
    require_sound_log(store)


@pytest.mark.rest
def test_eight_processes_that_start_at_once_make_one_store(db, worker):
    lines = worker("several", 8, "story", db).rest()
    assert [it["exit"] for it in lines if "exit" in it] == [0] * 8
    refused = {
        it["error"]
        for line in lines
        for it in (line, *(part for part in line.values() if type(part) is dict))
        if "error" in it
    }
    assert refused <= {"NotFoundError"}, "that another one deleted the key"
    with holdlog.StateStore(db) as store:
        require_acknowledged(store, [it for it in lines if it.get("tried") is not None])
        assert store.get("n", "counter").value == 8
    require_sound(db)


# --- processes that are stopped, and locks of others


@pytest.fixture
def stopped_story(faults, worker, tmp_path):
    """Stops a process that is the story at this call, has `others` go on, and lets it end well."""
    path = tmp_path / "store" / "state.db"
    forks = worker("forks", path, env=faults.env)
    forks.hear()
    with holdlog.StateStore(path) as store:
        store.set("m", "k", 1, updated_by="ann")
        faults.arm(CHANGES, 0)
        forks.story("counted")
        faults.calls = faults.count

        def run(kinds, number, others):
            faults.arm(kinds, -STOPPED, number, number)
            child = forks.start_story(f"story {number}")
            until(lambda: is_stopped(child))
            try:
                others(store, child)
            finally:
                os.kill(child, signal.SIGCONT)
            lines, status = forks.end_of_story()
            assert (status, [it for it in lines if "error" in it]) == (0, [])
            require_acknowledged(store, [it for it in lines if it.get("tried") is not None])
            require_sound_log(store)

        yield run


@SHIM
def test_writer_stopped_inside_its_commit_blocks_no_reader_and_is_named(stopped_story):
    def others(store, stopped):
        assert store.get("m", "k").version == 1
        if CLAIMS:
            assert store.status("a.md").status == "available"
        with pytest.raises(holdlog.UnavailableError, match=str(stopped)) as refusal:
            store.set("m", "k", 2, updated_by="ann")
        assert not refusal.value.in_doubt
        assert store.get("m", "k").version == 1

    stopped_story(SYNC, 1, others)


@SHIM
@pytest.mark.rest
def test_process_stopped_between_any_two_system_calls_leaves_no_call_of_others_unanswered(stopped_story, faults):
    """What SQLite locks for a moment (a new log, a checkpoint) may refuse reads, too."""

    def others(store, _):
        for call in (lambda: store.get("m", "k"), lambda: store.set("m", "k", 2, updated_by="ann")):
            try:
                doubt = call().version == 0
            except holdlog.UnavailableError as refusal:
                doubt = refusal.in_doubt
            assert not doubt

    for number in random.sample(range(1, faults.calls - 20), 8):
        stopped_story(CHANGES, number, others)


def test_writes_behind_an_endless_lock_are_refused_in_time_while_reads_go_on(db):
    with holdlog.StateStore(db) as store, closing(sqlite3.connect(db, isolation_level=None)) as other:
        store.set("n", "k", 1, updated_by="ann")
        other.execute("BEGIN IMMEDIATE")
        writing = in_thread(store.set, "n", "k", 2, updated_by="ann")
        reads = []

        def has_ended():
            reads.append((store.get("n", "k").version, store.wait("src/", 0).status if CLAIMS else "available"))
            return not writing.is_running

        until(has_ended)
        assert {*reads} == {(1, "available")}
        with pytest.raises(holdlog.UnavailableError) as refusal:
            writing.result()
        assert not refusal.value.in_doubt
        assert refusal.value.retry_after > 0
        assert len(reads) > 10
        other.execute("ROLLBACK")
        assert store.set("n", "k", 3, updated_by="ann").version == 2


@pytest.mark.rest
async def test_overload_is_refused_with_retry_after_and_never_queued_without_limit(db):
    """Behind a lock that does not end, the queue fills; what is beyond its limit is refused at once."""
    async with holdlog.AsyncStateStore(db) as store:
        await store.set("n", "k", 1, updated_by="ann")
        with closing(sqlite3.connect(db, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writes = [asyncio.ensure_future(store.set("n", "k", 2, updated_by="ann")) for _ in range(12_000)]
            done, waiting = await asyncio.wait(writes, return_when=asyncio.FIRST_EXCEPTION)
            assert waiting, "those in the queue still wait"
            assert writes[-1] in done, "the queue was full when it came"
            refused = [it.exception() for it in done]
            assert all(isinstance(it, holdlog.UnavailableError) and not it.in_doubt for it in refused)
            assert all(it.retry_after > 0 for it in refused)
            other.execute("ROLLBACK")
            results = await asyncio.gather(*waiting, return_exceptions=True)
        written = [it.version for it in results if not isinstance(it, BaseException)]
        assert all(isinstance(it, holdlog.UnavailableError) for it in results if isinstance(it, BaseException))
        assert (await store.get("n", "k")).version == max(written, default=1)
        assert len(await store.history("n", "k", limit=1000)) == min(1000, 1 + len(written))


# --- interrupts


@pytest.mark.rest
@SHIM
def test_interrupt_before_any_system_call_leaves_neither_lock_nor_transaction(faults, worker, tmp_path):
    """The signal of Ctrl-C, at which Python raises KeyboardInterrupt in the call of the story that runs."""
    path = tmp_path / "store" / "state.db"
    forks = worker("forks", path, env=faults.env)
    forks.hear()
    interrupted = 0
    with holdlog.StateStore(path) as store:
        for number in range(1, 400, 2):
            faults.arm(CHANGES, -int(signal.SIGINT), number, number)
            lines, status = forks.story(f"story {number}")
            assert status == 0
            calls = [it for line in lines for it in (line, *line.values()) if type(it) is dict]
            errors = [it["error"] for it in calls if it.get("error") not in (None, "NotFoundError")]
            assert errors in ([], ["KeyboardInterrupt"]), lines
            interrupted += len(errors)
            require_acknowledged(store, [it for it in lines if it.get("tried") is not None])
            assert store.set("m", "k", number, updated_by="ann").version == (number + 1) // 2
            if faults.count < number:
                break
        require_sound_log(store)
    assert interrupted > 10


@pytest.mark.parametrize("times", [200, pytest.param(3_000, marks=pytest.mark.rest)])
def test_interrupted_thread_releases_the_store_and_fails_no_other_silently(db, worker, times):
    """At any point between two instructions; the other threads' calls are acknowledged, or refused as in doubt."""
    process = worker("interrupted", db, times)
    lines = process.rest()
    assert lines[-1]["struck"] > times // 10, process.errors
    calls = [it for it in lines if "key" in it]
    assert len(calls) == 3 * times
    for it in (it for it in calls if "error" in it):
        assert it["error"] == "KeyboardInterrupt" if it["key"] == "main" else it["in_doubt"], it
    with holdlog.StateStore(db) as store:
        require_acknowledged(store, calls)
    require_sound(db)


@pytest.mark.parametrize("times", [200, pytest.param(3_000, marks=pytest.mark.rest)])
def test_interrupted_block_releases_its_claim(db, worker, times):
    lines = worker("interrupted_blocks", db, times).rest()
    assert {line.get("error") for line in lines} == {None, "KeyboardInterrupt"}
    assert {line["holder"] for line in lines} == {"available"}


# --- forks


@pytest.mark.parametrize("how", ["used", pytest.param("opened", marks=pytest.mark.rest)])
def test_forked_child_is_refused_in_one_line_and_its_parent_goes_on(db, worker, how):
    lines = {name: line[name] for line in worker("fork", db, how).rest() for name in line}
    parent, code = lines.pop("parent"), lines.pop("code")
    assert (code, parent["version"]) == (0, 2)
    assert len(lines) == {"opened": 1, "used": 5 if CLAIMS else 3}[how]
    for refusal in lines.values():
        assert refusal["error"] == "StoreError"
        assert "fork" in refusal["message"]
        assert "\n" not in refusal["message"]
    require_sound(db)


FORKING = """
import os, sys, time, holdlog
store = holdlog.StateStore(sys.argv[1])
child = os.fork()
if child == 0:
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
for number in range(10**9):
    store.set("n", "k", number, updated_by="parent")
"""


@pytest.mark.rest
def test_forked_child_does_not_keep_the_lock_of_its_killed_parent(db):
    for _ in range(8):  # most kills strike while the parent has the lock
        with subprocess.Popen([sys.executable, "-c", FORKING, db], stdout=subprocess.PIPE, text=True) as parent:
            child = int(parent.stdout.readline())
            with holdlog.StateStore(db) as store:
                until(lambda: store.list("n").count)
                parent.kill()
                parent.wait()
                try:
                    assert store.set("m", "k", 1, updated_by="ann").version
                finally:
                    os.kill(child, signal.SIGKILL)


def test_forked_child_may_open_what_its_parent_had_closed(db):
    with holdlog.StateStore(db) as store:
        store.set("n", "k", 1, updated_by="ann")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with holdlog.StateStore(db) as store:
                code = 0 if store.set("n", "k", 2, updated_by="ann").version == 2 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    require_sound(db)
