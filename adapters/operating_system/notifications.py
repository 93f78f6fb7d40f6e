"""Notifications that wake waiters: within this process directly, in other processes by a datagram on loopback.

Measured against polling, inotify, pipes and Unix sockets: docs/decisions/0005-bells.md.
"""

import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.operating_system.platform import network_namespace
from holdlog.adapters.operating_system.private import NOFOLLOW, make_private_folder, open_private
from holdlog.adapters.operating_system.write_lock import lock_file
from holdlog.domain.refusals import StoreError

MAGIC: Final = b"holdlog bell"
POLL_EVERY: Final = 0.1
"""Seconds between polls for writers that do not notify, while a waiter exists."""
POLL_EVERY_WITHOUT_LOOPBACK: Final = 0.02
LINGER: Final = 2.0
"""Seconds that the listener stays up after the last waiter, so that the next waiter can reuse it."""
_FRESH: Final = 50_000_000
"""Nanoseconds in which a folder may change again without getting a new time stamp."""

_log = logging.getLogger("holdlog")


class ProcessNotifier:
    """A notifier within one process."""

    def __init__(self) -> None:
        self._wakers: list[Callable[[], None]] = []

    def notify(self) -> None:
        self.wake()

    def wake(self) -> None:
        """Wake every waiter of this process, so that it reads again."""
        for wake in tuple(self._wakers):
            wake()

    @contextmanager
    def listen(self, wake: Callable[[], None]) -> Iterator[None]:
        self._wakers.append(wake)
        try:
            yield
        finally:
            self._wakers.remove(wake)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def detach_after_fork(self) -> None:
        """In a forked child: release what belongs to the parent, without notifying other processes."""


class MachineNotifier(ProcessNotifier):
    """A notifier for all processes of a machine that share `folder`.

    Each waiting process has one socket, and a file in the folder named after its port; a writer sends a datagram to
    each port. `changed` cheaply returns whether any process wrote since its previous call; it is called every 100 ms
    while a waiter exists.
    """

    def __init__(self, folder: Path, changed: Callable[[], bool]) -> None:
        super().__init__()
        self._folder = folder
        self._name = str(folder)  # os.lstat of a Path costs another microsecond
        self._changed = changed
        self._namespace = network_namespace()
        self._lock = threading.Lock()
        self._listener: _Listener | None = None
        self._send_socket: socket.socket | None = None
        self._seen = -1
        self._ports: list[int] = []

    def notify(self) -> None:
        if self._wakers:
            self.wake()
        for port in self._others():
            with suppress(OSError):
                if self._send_socket is None:
                    self._send_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    self._send_socket.setblocking(False)
                self._send_socket.sendto(MAGIC, ("127.0.0.1", port))

    @contextmanager
    def listen(self, wake: Callable[[], None]) -> Iterator[None]:
        with super().listen(wake):
            with self._lock:
                if self._listener is None or not self._listener.keep():
                    self._listener = _Listener(
                        self._folder, self._namespace, self.wake, self._changed, self._is_awaited
                    )
            yield

    def close(self) -> None:
        with self._lock:
            if self._listener is not None:
                self._listener.stop()
            if self._send_socket is not None:
                self._send_socket.close()

    def detach_after_fork(self) -> None:
        if self._listener is not None:
            self._listener.detach_after_fork()

    def _is_awaited(self) -> bool:
        return bool(self._wakers)

    def _others(self) -> list[int]:
        """Ports of the other waiting processes; reads the folder only if it changed."""
        try:
            status = os.lstat(self._name)
            if not stat.S_ISDIR(status.st_mode):
                return []
            stamp = status.st_mtime_ns
            if stamp != self._seen or time.time_ns() - stamp < _FRESH:
                self._ports = [
                    port for port in self._registered() if self._listener is None or port != self._listener.port
                ]
                self._seen = stamp
        except OSError:
            return []
        return self._ports

    def _registered(self) -> Iterator[int]:
        for name in os.listdir(self._folder):
            namespace, _, port = name.partition("-")
            if namespace == str(self._namespace) and port.isdigit():
                yield int(port)


class _Listener:
    """One socket and one thread that listen for all waiters of a process."""

    def __init__(
        self,
        folder: Path,
        namespace: int,
        on_notified: Callable[[], None],
        changed: Callable[[], bool],
        is_awaited: Callable[[], bool],
    ) -> None:
        self._on_notified = on_notified
        self._changed = changed
        self._is_awaited = is_awaited
        self._stopped = threading.Event()
        self._ending = threading.Lock()
        self._ended = False
        self._last_awaited = time.monotonic()
        self._socket = _open_socket()
        self.port = self._socket.getsockname()[1] if self._socket else 0
        self._registration = _register(folder, f"{namespace}-{self.port}") if self._socket else None
        changed()
        self._thread = threading.Thread(target=self._run, name="holdlog-notifications", daemon=True)
        self._thread.start()

    def keep(self) -> bool:
        """Stay up for a new waiter; False if this listener is shutting down."""
        with self._ending:
            self._last_awaited = time.monotonic()
            return not self._ended

    def stop(self) -> None:
        """Stop the listener. After it returns, `changed` is not called again."""
        with self._ending:
            self._end()
        with suppress(OSError):
            if self._socket is not None:
                self._socket.sendto(MAGIC, ("127.0.0.1", self.port))
        self._thread.join()

    def detach_after_fork(self) -> None:
        if self._ended:
            return
        if self._socket is not None:
            self._socket.close()
        if self._registration is not None:
            os.close(self._registration.descriptor)

    def _run(self) -> None:
        while not self._stopped.is_set():
            if self._receives():
                self._on_notified()
            now = time.monotonic()
            if self._is_awaited():
                self._last_awaited = now
            elif now - self._last_awaited > LINGER:
                with self._ending:
                    if time.monotonic() - self._last_awaited > LINGER:
                        self._end()
        if self._socket is not None:
            self._socket.close()

    def _receives(self) -> bool:
        """Wait briefly; True if there may be changes."""
        if self._socket is None:
            self._stopped.wait(POLL_EVERY_WITHOUT_LOOPBACK)
            return self._changed()
        try:
            return self._socket.recv(64) == MAGIC or self._changed()
        except TimeoutError:
            return self._changed()
        except OSError:
            self._stopped.wait(POLL_EVERY_WITHOUT_LOOPBACK)
            return self._changed()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._stopped.set()
        if self._registration is not None:
            self._registration.remove()


class _Registration:
    """A file that announces a waiter's port. It is locked while its process lives, so that other processes can remove a
    stale one."""

    def __init__(self, folder: Path, name: str) -> None:
        _remove_dead_sockets(folder)
        self._path = folder / name
        unready = folder / f".{name}"
        self.descriptor = open_private(unready, os.O_RDWR)
        lock_file(self.descriptor)
        os.rename(unready, self._path)

    def remove(self) -> None:
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self.descriptor)


def _register(folder: Path, name: str) -> _Registration | None:
    """Register the port; None if that is impossible (full disk, deleted folder): then polling must suffice."""
    try:
        make_private_folder(folder)
        return _Registration(folder, name)
    except OSError:
        return None
    except StoreError as error:
        _log.warning("%s; until then, waiting calls poll every %s s", error, POLL_EVERY)
        return None


def _remove_dead_sockets(folder: Path) -> None:
    for name in os.listdir(folder):
        with suppress(OSError):
            descriptor = os.open(folder / name, os.O_RDWR | os.O_CLOEXEC | NOFOLLOW)
            try:
                if not name.startswith(".") and lock_file(descriptor):
                    os.unlink(folder / name)
            finally:
                os.close(descriptor)


def _open_socket() -> socket.socket | None:
    try:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind(("127.0.0.1", 0))
        opened.settimeout(POLL_EVERY)
    except OSError:
        return None
    return opened
