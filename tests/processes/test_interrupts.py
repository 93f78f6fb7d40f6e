"""Ctrl-C at any moment of a write: the store is not left locked, and nobody who waits is stranded."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdlog import StateStore, UnavailableError
from holdlog.adapters.operating_system.write_lock import WriteLock, unlock_file
from tests.support.processes.soundness import require_sound

OURS = ("/adapters/", "/domain/", "/projections/")


class Interrupted(BaseException):
    """As KeyboardInterrupt, but only the test raises it."""


def interrupted_after(number: int, call: Callable[[], Any]) -> bool:
    """Run the call, interrupted as its `number`-th call of C returns: where a signal comes that arrived in it.

    Not after a lock's `acquire`, which looks for signals itself, before it has the lock. False: there were fewer.
    """
    count = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        ours = any(folder in frame.f_code.co_filename for folder in OURS)
        if ours and event == "c_return" and argument.__name__ != "acquire":
            count += 1
            if count == number:
                raise Interrupted

    sys.setprofile(watch)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


def put(store: StateStore, key: str = "k") -> int:
    return store.set("n", key, 1, updated_by="test").version


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """What the call answers, from a thread that may be left behind."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert answers, "it hangs"
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


def test_write_interrupted_anywhere_leaves_no_lock_behind(path: Path) -> None:
    with StateStore(path) as store, StateStore(path) as other:
        put(store)
        number = 1
        while interrupted_after(number, lambda: put(store)):
            gate = WriteLock(path.with_name(path.name + ".gate"))
            gate.acquire(time.monotonic() + 1)
            gate.release()
            gate.close()
            version = within(10, lambda: put(other, "theirs"))
            assert version == number, number
            within(10, lambda: put(store, "ours"))
            number += 1
        assert number > 20
    require_sound(path)


@pytest.mark.check
def test_write_to_a_database_interrupted_anywhere_leaves_no_lock_behind(postgres: str) -> None:
    with StateStore(postgres) as store, StateStore(postgres) as other:
        put(store)
        number = 1
        while interrupted_after(number, lambda: put(store)):
            assert within(10, lambda: put(other, "theirs")) == number, number
            assert within(10, lambda: put(store, "ours")) == number, number
            number += 1
        assert number > 20


@pytest.mark.check
def test_interrupted_batch_leader_leaves_every_waiting_caller_answered(path: Path) -> None:
    with StateStore(path) as store:
        put(store)
        number = 1
        interrupted = True
        while interrupted:
            gate = WriteLock(path.with_name(path.name + ".gate"))
            gate.acquire(time.monotonic() + 5)
            answers: list[object] = []
            over = threading.Event()

            def follow(answers: list[object] = answers, over: threading.Event = over) -> None:
                while not store._engine.writer._led and not over.is_set():
                    time.sleep(0.0005)
                try:
                    answers.append(put(store, "followed"))
                except UnavailableError as refusal:
                    answers.append(refusal)

            followers = [threading.Thread(target=follow, daemon=True) for _ in range(3)]
            for follower in followers:
                follower.start()
            opener = threading.Timer(0.02, unlock_file, (gate._descriptor,))  # as its thread would
            opener.start()
            interrupted = interrupted_after(number, lambda: put(store))
            over.set()
            opener.join()
            gate.close()
            for follower in followers:
                follower.join(10)
                assert not follower.is_alive(), number
            assert within(10, lambda: put(store)), number
            number += 1
    require_sound(path)


@pytest.mark.check
def test_interrupted_new_leader_leaves_every_caller_of_its_batch_answered(path: Path) -> None:
    with StateStore(path) as store:
        put(store)
        waiting = store._engine.writer
        number = 1
        interrupted = True
        while interrupted:
            gate = WriteLock(path.with_name(path.name + ".gate"))
            over, shut = threading.Event(), threading.Event()

            def follow(behind: int, over: threading.Event = over) -> None:
                while len(waiting._waiting) < behind and not over.is_set():
                    time.sleep(0.0002)
                with suppress(UnavailableError):
                    put(store, "followed")

            def shut_gate(gate: WriteLock = gate, over: threading.Event = over, shut: threading.Event = shut) -> None:
                gate.acquire(time.monotonic() + 5)
                shut.set()
                while len(waiting._waiting) < 4 and not over.is_set():
                    time.sleep(0.0002)
                gate.release()

            opener = threading.Thread(target=shut_gate)
            opener.start()
            shut.wait(10)
            first = threading.Thread(target=follow, args=(0,), daemon=True)
            first.start()
            while not (waiting._led and not waiting._waiting):
                time.sleep(0.0002)
            others = [threading.Thread(target=follow, args=(behind,), daemon=True) for behind in (1, 2, 3)]
            for thread in others:
                thread.start()
            interrupted = interrupted_after(number, lambda: put(store))
            over.set()
            for thread in (first, *others, opener):
                thread.join(10)
                assert not thread.is_alive(), number
            gate.close()
            assert within(10, lambda: put(store)), number
            number += 1
    require_sound(path)


@pytest.mark.parametrize("call", ["get", "list", "wait"])
def test_read_interrupted_anywhere_keeps_no_reader_open(path: Path, call: str) -> None:
    with StateStore(path) as store:
        put(store)
        calls: dict[str, Callable[[], Any]] = {
            "get": lambda: store.get("n", "k"),
            "list": lambda: store.list_keys("n"),
            "wait": lambda: store.wait("src/", 1),
        }
        number = 1
        while interrupted_after(number, calls[call]):
            for idle in store._engine.store._idle:  # type: ignore[attr-defined]
                assert not idle.in_transaction, number
            assert store.wait("src/", 1).status == "available"
            number += 1
        assert put(store) == 2
