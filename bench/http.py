"""One server for many, over HTTP: calls against a FastMCP tool that does nothing, served by FastMCP itself; REST
against MCP; a thousand waits; clients that vanish."""

import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench import http_gone, http_waits
from bench.bench import Bench
from bench.clients import ERAS, Server, call, complete, crowd, fresh, holdlog, received, request, serving, session
from bench.contestants import AGENT, NAMESPACE, VALUE
from bench.figures import Figure, Rounds, interleaved

GROUP = "http"
CLIENTS = (1, 16, 64)
AT_MOST = 1.3
REST_AT_LEAST = 5.0

PLACE = {"namespace": NAMESPACE, "key": "key-1"}
WRITE = PLACE | {"value": VALUE, "updated_by": AGENT}


def run(bench: Bench) -> Iterator[Figure]:
    with bench.folder(bench.disk) as folder, ExitStack() as stack:
        empty = stack.enter_context(serving([sys.executable, "-m", "bench.empty_server"]))
        ours = stack.enter_context(holdlog(folder / "state.db"))
        for era in ERAS:
            yield from _tools(bench, era, empty, ours)
        yield from _rest(bench, ours)
    yield from http_waits.run(bench)
    yield from http_gone.run(bench)


def _tools(bench: Bench, era: str, empty: Server, ours: Server) -> Iterator[Figure]:
    headers = session(ours, era)
    contestants = {
        "empty": (empty, call(era, "nothing", PLACE, session(empty, era))),
        "set": (ours, call(era, "holdlog_set", WRITE | {"force": True}, headers)),
        "get": (ours, call(era, "holdlog_get", PLACE, headers)),
    }
    ours.once(contestants["set"][1])
    for clients in CLIENTS:
        measured = _compare(bench, f"{era}, {clients} clients", contestants, clients)
        for tool in ("get", "set"):
            what = f"{tool} over MCP {era}, {_many(clients)}"
            yield Figure(
                GROUP, what, measured.ratio(tool, "empty"), "x empty", AT_MOST, beside=measured.described(" µs")
            )


def _rest(bench: Bench, ours: Server) -> Iterator[Figure]:
    path = f"/kv/{NAMESPACE}/key-1"
    contestants = {
        "get over MCP": (ours, call(ERAS[1], "holdlog_get", PLACE)),
        "PUT": (ours, request("PUT", path, json.dumps(VALUE))),
        "GET": (ours, request("GET", path)),
    }
    ours.once(contestants["PUT"][1])
    for clients in CLIENTS:
        measured = _compare(bench, f"REST, {clients} clients", contestants, clients)
        for method, target in (("GET", REST_AT_LEAST), ("PUT", None)):
            ratio = measured.ratio("get over MCP", method)
            what, unit = f"REST {method}, {_many(clients)}", "x the rate of MCP get"
            yield Figure(GROUP, what, ratio, unit, target, True, beside=measured.described(" µs"))


def _many(clients: int) -> str:
    return f"{clients} client{'s' if clients > 1 else ''}"


def _compare(bench: Bench, what: str, contestants: dict[str, tuple[Server, bytes]], clients: int) -> Rounds:
    """Microseconds per call: of one client its wait, of many the time of all by their number."""
    calls = bench.pick(100, 40) if clients == 1 else bench.pick(400, 200)

    def measure(name: str) -> list[float]:
        bench.progress(f"{what}: {name}")
        server, sent = contestants[name]
        with crowd(server.port, clients) as many:
            _time(many, sent, clients)
            return [_time(many, sent, calls)]

    for name in contestants:
        measure(name)
    return interleaved(tuple(contestants), bench.pick(15, 5), measure, lambda turn: None)


def _time(crowd: list[socket.socket], sent: bytes, calls: int) -> float:
    """Each client sends its next call as soon as it has the answer to the last."""
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        left = calls
        for client in crowd[:calls]:
            client.sendall(fresh(sent))
            left -= 1
            selector.register(client, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select():
                client, got = key.fileobj, key.data
                assert isinstance(client, socket.socket)
                got += received(client)
                if not complete(got):
                    continue
                assert any(it in got for it in _RIGHT), bytes(got)
                got.clear()
                if left:
                    client.sendall(fresh(sent))
                    left -= 1
                else:
                    selector.unregister(client)
    return (time.perf_counter() - started) / calls * 1e6


_RIGHT = (
    b'"status":"ok"',
    b'\\"status\\":\\"ok\\"',
    json.dumps(VALUE, separators=(",", ":")).encode()[:20],
    b"\r\n\r\nOK",
)
"""What stands in a right answer: of a tool, of GET, of PUT."""
