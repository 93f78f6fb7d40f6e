"""Waking between processes; what does not ring, or cannot be heard, is found by looking."""

import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.operating_system import notifications
from tests.processes.conftest import Start
from tests.support.processes.soundness import require_sound
from tests.support.processes.workers import Worker, until

LONG = 45
"""Seconds of a wait that only a wake-up ends."""


def waiting(worker: Worker, path: Path) -> Worker:
    """A worker that serves and now waits for a resource."""
    worker.hear()
    worker.tell(f"wait src/ {LONG}")
    assert worker.hear()["waits"]
    return worker


def registered(path: Path) -> set[str]:
    folder = Path(f"{path}.bells")
    return {name for name in os.listdir(folder) if not name.startswith(".")} if folder.exists() else set()


def woken(worker: Worker) -> dict[str, Any]:
    """The worker's answer; before its time was over."""
    answer: dict[str, Any] = worker.hear(LONG)
    assert answer["seconds"] < LONG - 15, answer
    return answer


def test_release_wakes_a_wait_in_another_process(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = waiting(start("serve", path), path)
        until(lambda: registered(path))
        store.release("src/", agent="ann")
        assert woken(worker)["answer"]["status"] == "available"


def test_write_deletion_and_new_value_each_wake_a_watch_in_another_process(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        worker = start("serve", path)
        worker.hear()
        for version, change in enumerate(("set", "delete", "set"), start=1):
            worker.tell(f"watch k {version - 1} {LONG}")
            worker.hear()
            until(lambda: registered(path))
            if change == "set":
                store.set("n", "k", version, updated_by="test")
            else:
                store.delete("n", "k", deleted_by="test")
            assert woken(worker)["answer"]["version"] == version


def test_notification_alone_wakes_a_waiter(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = waiting(start("serve_without_looking", path), path)
        until(lambda: registered(path))
        store.release("src/", agent="ann")
        assert woken(worker)["answer"]["status"] == "available"


def test_write_of_a_process_without_notifications_is_noticed(
    path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications.MachineNotifier, "notify", lambda notifier: None)
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = waiting(start("serve", path), path)
        until(lambda: registered(path))
        store.release("src/", agent="ann")
        assert woken(worker)["answer"]["status"] == "available"


@pytest.mark.check
def test_deleting_the_notification_folder_during_a_wait_only_adds_latency(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = waiting(start("serve", path), path)
        until(lambda: registered(path))
        shutil.rmtree(f"{path}.bells")
        store.release("src/", agent="ann")
        assert woken(worker)["answer"]["status"] == "available"
        store.claim("src/", agent="ann")
        assert store.wait("src/", 0.05).status == "timeout"


def test_unusable_notification_folder_only_adds_latency(path: Path, start: Start) -> None:
    Path(f"{path}.bells").touch(0o600)
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = waiting(start("serve", path), path)
        store.release("src/", agent="ann")
        assert woken(worker)["answer"]["status"] == "available"


def test_sockets_of_a_killed_waiter_are_removed_by_the_next(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = waiting(start("serve", path), path)
        left = until(lambda: registered(path))
        worker.kill()
        worker.rest()
        store.wait("src/", 0.05)
        assert not left & registered(path)


def test_forged_datagrams_neither_wake_nor_block_a_waiter(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = waiting(start("serve", path), path)
        port = int(until(lambda: registered(path)).pop().partition("-")[2])
        ended = threading.Event()

        def flood() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                while not ended.is_set():
                    for text in (b"", b"holdlog", b"x" * 60_000, notifications.MAGIC):
                        sender.sendto(text, ("127.0.0.1", port))

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            worker.tell("get nothing")  # it still waits: nothing is answered before the release
            store.release("src/", agent="ann")
            assert woken(worker)["answer"]["status"] == "available"
            assert worker.hear()["error"] == "NotFoundError"
        finally:
            ended.set()
            flooding.join()


def test_forged_datagrams_do_not_keep_a_waiter_from_checking(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of what is no bell, and a writer that does not ring."""
    monkeypatch.setattr(notifications.MachineNotifier, "notify", lambda notifier: None)
    with StateStore(path) as store, StateStore(path) as other:
        other.claim("src/", agent="ann")
        ended = threading.Event()

        def flood() -> None:
            port = int(until(lambda: registered(path)).pop().partition("-")[2])
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"no bell", ("127.0.0.1", port))
                other.release("src/", agent="ann")
                while not ended.is_set():
                    sender.sendto(b"no bell", ("127.0.0.1", port))

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            answer = store.wait("src/", LONG)
        finally:
            ended.set()
            flooding.join()
        assert answer.status == "available"
        assert (answer.elapsed_seconds or 0) < LONG - 15


@pytest.mark.check
@pytest.mark.parametrize("sandbox", ["no sockets", "no loopback"])
def test_waits_are_woken_without_a_loopback_interface(path: Path, start: Start, sandbox: str) -> None:
    before: tuple[str, ...] = ()
    if sandbox == "no loopback":
        if not shutil.which("unshare") or os.system("unshare -n true 2>/dev/null"):
            pytest.skip("no network namespace can be made here")
        before = ("unshare", "-n")
    with StateStore(path) as store:
        store.claim("src/", agent="ann")
        worker = start("without_loopback" if sandbox == "no sockets" else "serve", path, before=before)
        waiting(worker, path)
        store.release("src/", agent="ann")
        assert woken(worker)["answer"]["status"] == "available"
        worker.tell("set k")
        assert worker.hear()["version"] == 1
    require_sound(path)


@pytest.mark.check
def test_waiter_is_woken_while_the_file_was_being_recovered(path: Path, start: Start) -> None:
    """Killed writers leave a log that the next one recovers; whoever waits meanwhile goes on hearing."""
    with StateStore(path) as store:
        store.claim("free/", agent="ann")
        worker = start("serve", path)
        worker.hear()
        worker.tell(f"wait free/ {LONG}")
        worker.hear()
        for _ in range(5):
            loader = start("load", path, "x")
            for _ in range(20):
                loader.hear()
            loader.kill()
            loader.rest()
            store.set("n", "alive", 1, updated_by="test")
        store.release("free/", agent="ann")
        assert woken(worker)["answer"]["status"] == "available"
