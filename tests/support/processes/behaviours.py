"""What the worker processes do: `python behaviours.py NAME ARGUMENTS…`. Each acknowledged call is a JSON line."""

import asyncio
import itertools
import json
import multiprocessing
import os
import random
import resource
import secrets
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdlog import (
    AsyncStateStore,
    ConflictError,
    HoldlogError,
    NotFoundError,
    SealedError,
    StateStore,
    UnavailableError,
)
from holdlog.adapters.operating_system import notifications
from holdlog.adapters.operating_system.write_lock import WriteLock
from holdlog.adapters.runtime import group_commit as writer
from holdlog.adapters.stores.sqlite import schema
from holdlog.adapters.stores.sqlite.recorder import uri_of
from holdlog.domain.message import NOBODY
from holdlog.domain.threads.commands import Append, ChangeData, NewMessage, NewResult, StartThread
from holdlog.domain.value import Json


def say(**facts: Any) -> None:
    # One write of less than a pipe's size: a killed worker leaves no half line among whole ones. Past Python's buffer,
    # whose lock a child that is forked meanwhile would inherit shut.
    os.write(1, (json.dumps(facts) + "\n").encode())


def hear() -> str:
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return line.strip()


def attempt(call: Callable[[], Any]) -> dict[str, Any]:
    """What became of a call, and how long it took."""
    started = time.monotonic()
    try:
        answer = call()
    except HoldlogError as refusal:
        facts = {"error": type(refusal).__name__, "message": str(refusal), "in_doubt": False}
        if isinstance(refusal, UnavailableError):
            facts["in_doubt"] = refusal.in_doubt
    except BaseException as error:
        facts = {"error": type(error).__name__, "message": str(error), "raw": True}
    else:
        facts = {"answer": answer.body() if hasattr(answer, "body") else answer}
    return facts | {"seconds": time.monotonic() - started}


def write(store: StateStore, key: str, value: Any = 1) -> dict[str, Any]:
    """A write as `soundness.require_acknowledged` takes it."""
    request = secrets.token_hex(8)
    done = attempt(lambda: store.set("n", key, value, updated_by="worker", request_id=request))
    facts = {"key": key, "value": value, "request_id": request, **done}
    if "answer" in done:
        facts["version"] = done["answer"]["version"]
    return facts


def write_thread(store: StateStore, thread: str) -> None:
    """Five events and their rows, in three transactions."""
    value, run = Json.of("x"), store._engine.writer.run
    run(StartThread(thread=thread, by="worker"), NOBODY)
    result = NewResult(value=value, agent="worker", checksum=secrets.token_hex(16))
    run(Append(thread=thread, items=(NewMessage(value=value), result), by="worker"), NOBODY)
    run(ChangeData(thread=thread, written={"k": value, secrets.token_hex(4): value}, by="worker"), NOBODY)


# --- load


def load(path: str, name: str) -> None:
    """Write for ever, in two threads of the process: own keys, shared keys, deletions, claims, threads. Say which
    values were acknowledged."""
    store = StateStore(path)
    say(ready=True)
    lock = threading.Lock()

    def acknowledged(**facts: Any) -> None:
        with lock:
            say(**facts)

    def run(thread: str) -> None:
        mine = f"{name}-{thread}"
        for number in itertools.count():
            key = random.choice([mine, "shared", f"{mine}-{number % 7}"])
            value = {"by": mine, "number": number, "text": "x" * random.choice([10, 10, 10, 3000])}
            written = store.set("n", key, value, updated_by=mine)
            acknowledged(key=key, version=written.version, value=value)
            if number % 5 == 0:
                with suppress(ConflictError, NotFoundError):
                    deleted = store.delete("n", key, deleted_by=mine, expected_version=written.version)
                    acknowledged(key=key, version=deleted.version, value=None)
            if number % 4 == 0:
                write_thread(store, random.choice(["t", mine]))
            if number % 3 == 0:
                store.claim("src/", agent=mine)
                store.release("src/", agent=mine)

    second = threading.Thread(target=run, args=("b",), daemon=True)
    second.start()
    run("a")


def write_until_sealed(place: str, name: str) -> None:
    """Write own and shared keys until that is refused for good; say what was acknowledged, and the refusal."""
    with StateStore(place) as store:
        for number in itertools.count():
            key, value = ("shared" if number % 3 else name), {"by": name, "number": number}
            try:
                written = _patiently(store, key, value, name)
            except SealedError as refusal:
                say(refused=str(refusal))
                return
            if number == 0:
                say(ready=True)
            say(key=key, version=written, value=value)


def _patiently(store: StateStore, key: str, value: Any, name: str) -> int:
    while True:
        with suppress(UnavailableError):
            request = f"{name}-{value['number']}"
            return store.set("n", key, value, updated_by=name, request_id=request).version


def count_up(path: str, key: str, times: str) -> None:
    """Add one to a number, so many times."""
    with StateStore(path) as store:
        say(ready=True)
        hear()
        for _ in range(int(times)):
            store.update("n", key, lambda value: (value or 0) + 1, updated_by="worker")
        say(done=True)


def increment(path: str, key: str, times: str) -> None:
    """Add one to a number in the store, so many times, each with one call."""
    with StateStore(path) as store:
        say(ready=True)
        hear()
        values = [store.update("n", key, updated_by="worker", increment=1).value for _ in range(int(times))]
        say(values=values)


def transfer(path: str, accounts: str, seed: str) -> None:
    """Move random amounts between accounts until killed, and say each transfer once it is acknowledged."""
    dice = random.Random(int(seed))
    with StateStore(path) as store:
        while True:
            source, target = dice.sample(range(int(accounts)), 2)
            amount = dice.randrange(1, 100)
            done = store.transact(
                [
                    {"op": "increment", "namespace": "bank", "key": f"account/{source}", "by": -amount},
                    {"op": "increment", "namespace": "bank", "key": f"account/{target}", "by": amount},
                    {"op": "append", "namespace": "bank", "key": f"book/{seed}", "value": [source, target, amount]},
                ],
                updated_by=f"clerk-{seed}",
            )
            say(entries=len(done.results[2].value), position=done.position)


def compete(path: str, key: str, seconds: str, enough: str) -> None:
    """Compare and set one number for so many seconds, and longer on a slow machine: until it is `enough`. Say how often
    it went well."""
    with StateStore(path) as store:
        say(ready=True)
        hear()
        won = 0
        value, version = 0, 0
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end or version < int(enough):
            try:
                version = store.set("n", key, value + 1, updated_by="worker", expected_version=version).version
                value += 1
                won += 1
            except ConflictError as conflict:
                value, version = conflict.detail.actual_value or 0, conflict.detail.actual_version
        say(won=won)


def open_together(path: str) -> None:
    """Open the store at the moment that stdin tells, as others do; write once."""
    say(ready=True)
    moment = float(hear())
    while time.time() < moment:
        pass
    with StateStore(path) as store:
        say(**write(store, f"p{os.getpid()}", 1))
        say(seen=len(store.list_keys("n")))
    say(closed=True)


def open_and_close(path: str, times: str) -> None:
    """Open, read, write and close again and again: nobody may be refused because another one comes or goes."""
    for number in range(int(times)):
        store = StateStore(path)
        say(read=attempt(store.list_namespaces), wrote=write(store, f"p{os.getpid()}", number))
        store.close()


# --- faults at system calls


def forks(path: str, call: str, when: str) -> None:
    """For each number n on stdin: a child that opens the store, writes three values and a thread and closes, and whose
    n-th system call of that name is the `when`-th of its life, which strace disturbs."""
    burnt = os.open("/dev/null", os.O_RDWR)
    burn: dict[str, Callable[[], Any]] = {
        "pwrite64": lambda: os.pwrite(burnt, b"x", 0),
        "pread64": lambda: os.pread(burnt, 1, 0),
        "fdatasync": lambda: _suppressed(os.fdatasync, burnt),
        "ftruncate": lambda: _suppressed(os.ftruncate, burnt, 0),
        "unlink": lambda: _suppressed(os.unlink, "/nowhere/at/all"),
        "rename": lambda: _suppressed(os.rename, "/nowhere/at/all", "/nowhere/else"),
        "flock": lambda: __import__("fcntl").flock(burnt, 8),
        "fcntl": lambda: __import__("fcntl").fcntl(burnt, 1),
    }
    say(ready=True)
    while True:
        number = int(hear())
        child = os.fork()
        if child == 0:
            for _ in range(int(when) - number):
                burn[call]()
            _write_three(path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(status=status)


def _suppressed(function: Callable[..., Any], *arguments: Any) -> None:
    with suppress(OSError):
        function(*arguments)


def _write_three(path: str) -> None:
    try:
        store = StateStore(path)
    except HoldlogError as refusal:
        say(opening=type(refusal).__name__, message=str(refusal))
        return
    except BaseException as error:
        say(opening=type(error).__name__, message=str(error), raw=True)
        return
    for number in range(3):
        say(**write(store, "k", f"{os.getpid()}-{number}"))
        say(read=attempt(lambda: store.get("n", "k").version))
    begun = StartThread(thread=secrets.token_hex(4), data={"k": Json.of("x")}, by="worker")  # rows in three views
    attempt(lambda: store._engine.writer.run(begun, NOBODY))
    say(closing=attempt(store.close))


def limited(path: str, bytes_free: str) -> None:
    """Write until a limit of the file size strikes, lift it, write again."""
    store = StateStore(path)
    say(**write(store, "before", 1))
    size = max(os.path.getsize(path), os.path.getsize(path + "-wal")) + int(bytes_free)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    for number in range(40):
        written = write(store, f"k{number}", f"{number} {'x' * 2000}")
        say(**written)
        if "error" in written:
            break
    say(read=attempt(lambda: store.get("n", "before")))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    say(**write(store, "after", 1))
    say(closing=attempt(store.close))


# --- locks


def serve(path: str) -> None:
    """Do what stdin says: `set KEY`, `get KEY`, `status`, `wait SECONDS`, `close` …"""
    store = StateStore(path)
    say(ready=True, pid=os.getpid())
    calls: dict[str, Callable[..., Any]] = {
        "get": lambda key: store.get("n", key),
        "delete": lambda key: store.delete("n", key, deleted_by="worker"),
        "claim": lambda resource, agent: store.claim(resource, agent=agent),
        "release": lambda resource, agent: store.release(resource, agent=agent),
        "status": store.status,
        "wait": lambda resource, seconds: store.wait(resource, float(seconds)),
        "watch": lambda key, since, seconds: store.watch("n", key, int(since), float(seconds)),
        "close": store.close,
    }
    while True:
        verb, *rest = hear().split()
        if verb == "set":
            say(**write(store, *rest))
            continue
        if verb in ("wait", "watch"):
            say(waits=True)
        say(**attempt(partial(calls[verb], *rest)))


def write_hastily(path: str, patience: str, how: str) -> None:
    """After a line of input: one write with so many seconds of patience, and beats that show that the process runs."""
    writer.COMMIT_TIMEOUT = float(patience)  # type: ignore[misc]
    store = StateStore(path)
    other = AsyncStateStore.__new__(AsyncStateStore)
    other._engine, other._requests = store._engine, store._requests
    say(ready=True)
    hear()
    done: dict[str, Any] = {}

    async def alone() -> Any:
        return await other.set("n", "k", 1, updated_by="worker")

    def run() -> None:
        one = partial(asyncio.run, alone()) if how == "async" else lambda: store.set("n", "k", 1, updated_by="worker")
        done.update(attempt(one))

    thread = threading.Thread(target=run)
    thread.start()
    while not store._engine.writer._led:
        time.sleep(0.001)
    while thread.is_alive():
        thread.join(0.05)
        say(beat=True)
    say(done=True, **done)


def hold_gate(path: str) -> None:
    """Hold the gate until told to let go."""
    gate = WriteLock(Path(path + ".gate"))
    gate.acquire(time.monotonic() + 10)
    say(held=True)
    hear()
    gate.release()
    say(held=False)
    hear()


def hold_lock(path: str) -> None:
    """A foreign program: a write transaction that knows no gate, until told to end."""
    connection = sqlite3.connect(uri_of(Path(path)), uri=True, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say(held=True)
    hear()
    connection.execute("ROLLBACK")
    say(held=False)
    hear()


def inside(path: str) -> None:
    """Begin a write, say so in the middle of it, go on when told."""
    store = StateStore(path)
    with store._engine.store.transaction(time.monotonic() + 10) as transaction:
        say(inside=True)
        hear()
        transaction.wrote = True
    say(done=True)
    hear()


def queue_behind_a_slow_disk(path: str) -> None:
    """One write whose sync hangs (the ninth of its thread), and others that come meanwhile."""
    store = StateStore(path)
    lock = threading.Lock()

    def run(who: str, idle: int = 0) -> None:
        for _ in range(idle):
            _suppressed(os.fdatasync, 0)
        done = write(store, who)
        with lock:
            say(who=who, **done)

    first = threading.Thread(target=run, args=("first", 8))
    first.start()
    while not store._engine.writer._led or store._engine.writer._waiting:
        time.sleep(0.001)
    threads = [threading.Thread(target=run, args=(f"thread {number}",)) for number in range(2)]
    for thread in threads:
        thread.start()

    async def coroutines() -> None:
        async def one(who: str) -> None:
            started = time.monotonic()
            try:
                await AsyncStateStore.set(beside, "n", who, 1, updated_by="worker")
            except UnavailableError as refusal:
                facts = {"error": type(refusal).__name__, "in_doubt": refusal.in_doubt}
            else:
                facts = {"error": "none"}
            with lock:
                say(who=who, **facts, seconds=time.monotonic() - started)

        await asyncio.gather(one("coroutine 0"), one("coroutine 1"))

    beside = AsyncStateStore.__new__(AsyncStateStore)
    beside._engine, beside._requests = store._engine, store._requests
    asyncio.run(coroutines())
    for thread in [first, *threads]:
        thread.join()


def interrupted_at_the_gate(path: str) -> None:
    """Wait for the gate, be interrupted there, write again."""
    try:
        gate = WriteLock(Path(path + ".gate"))
        say(waits=True)
        gate.acquire(time.monotonic() + 30)
    except KeyboardInterrupt:
        say(interrupted=True)
    gate.acquire(time.monotonic() + 30)
    gate.release()
    with StateStore(path) as store:
        say(**write(store, "k"))


# --- forks


def fork_and_write(path: str, how: str) -> None:
    """Fork twenty children that end as an interpreter does, while a thread writes."""
    store = StateStore(path)
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            say(**write(store, "k", "x" * 2000))

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(20):
        if how == "multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=len, args=("",))
            child.start()
            child.join(20)
            code = child.exitcode
        else:
            forked = os.fork()
            if forked == 0:
                sys.exit(0)
            code = _exit_code(forked, 20)
        say(code=code)
    ended.set()
    thread.join()
    store.close()


def fork_and_close(path: str) -> None:
    """Fork a child that waits, close the store, and let the child end as an interpreter does when told."""
    store = StateStore(path)
    write(store, "k")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        sys.exit(0)
    store.close()
    say(child=child)
    hear()
    os.close(write_end)
    say(code=_exit_code(child, 20))


def write_and_stop(path: str) -> None:
    """Write, say so, and wait to be killed with the store open."""
    store = StateStore(path)
    written = [write(store, "k") for _ in range(5)][-1]
    say(**written)
    hear()


def _exit_code(child: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def wait_and_fork(path: str) -> None:
    """Wait in a thread, fork a child that stays."""
    store = StateStore(path)
    store.claim("src/", agent="ann")
    threading.Thread(target=store.wait, args=("src/", 50), daemon=True).start()
    while store._engine.notifier._listener is None:  # type: ignore[attr-defined]
        time.sleep(0.002)
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(done, b".")  # what holdlog does after a fork is done by now
        while True:
            time.sleep(60)
    os.read(ready, 1)
    say(child=child)
    hear()


# --- builds


def newer_major(path: str) -> None:
    """A newer build that changes the schema, through the gate."""
    gate = WriteLock(Path(path + ".gate"))
    gate.acquire(time.monotonic() + 10)
    connection = sqlite3.connect(uri_of(Path(path)), uri=True, isolation_level=None)
    connection.execute(f"PRAGMA user_version = {(schema.MAJOR + 1) * schema.MINORS_PER_MAJOR}")
    connection.close()
    gate.release()


def newer_minor(path: str) -> None:
    """A build whose schema only added: a column, a table. It writes both and our own."""
    schema.MINOR += 1  # type: ignore[misc]
    store = StateStore(path)
    connection = sqlite3.connect(uri_of(Path(path)), uri=True, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ALTER TABLE current ADD COLUMN colour TEXT")
    connection.execute(f"ALTER TABLE {schema.EVENTS_TABLE} ADD COLUMN colour TEXT")
    connection.execute("CREATE TABLE colours (name TEXT PRIMARY KEY, shade INTEGER) WITHOUT ROWID")
    connection.execute(f"PRAGMA user_version = {schema.MAJOR * schema.MINORS_PER_MAJOR + schema.MINOR}")
    connection.execute("COMMIT")
    connection.close()
    say(**write(store, "newer", 1))
    hear()
    say(**write(store, "shared", "newer"))
    hear()
    store.close()
    say(closed=True)


def as_somebody_else(path: str) -> None:
    """Open a store as a user who may not write there."""
    os.setgid(65534)
    os.setuid(65534)
    say(**attempt(lambda: StateStore(path)))


def with_umask(path: str, umask: str) -> None:
    """Make a store and all its side files under this umask, and keep it open."""
    os.umask(int(umask))
    try:
        store = StateStore(path)
        store.claim("src/a.py", agent="ann")
        store.wait("src/a.py", 0.01)
    except HoldlogError as error:
        say(error=str(error))
        return
    say(ready=True)
    hear()
    store.close()


# --- bells


def serve_without_looking(path: str) -> None:
    """As `serve`, with ears only."""
    notifications.POLL_EVERY = 3600  # type: ignore[misc]
    serve(path)


def without_loopback(path: str) -> None:
    """As `serve`, in a sandbox that gives no sockets."""

    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError("no sockets here")

    socket.socket = refused  # type: ignore[misc, assignment]
    serve(path)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
