"""Real servers over HTTP: `holdlog serve --transport http` on a free port, known by its ready line."""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STARTS_WITHIN = 60.0
ENDS_WITHIN = 30.0


class HttpServer:
    """One server process. `url`: without a slash at its end; `ready`: its line on stderr."""

    def __init__(self, place: Path | str, *options: str, env: dict[str, str] | None = None) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDLOG_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdlog", "serve", "--db", str(place), *_over_http(options)],
            env={**kept, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.said: list[str] = []
        self.url = self.ready = ""

    def start(self) -> "HttpServer":
        """Requests are answered when this returns."""
        while not self.url:
            line = self._line()
            assert line, f"the server ended: {self.said}"
            if found := re.search(r"serving (http://\S+[0-9])", line):
                self.url, self.ready = found[1], line
        return self

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell it to end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """The exit code of a server that ends, which leaves all it said in `said`."""
        try:
            _, rest = self.process.communicate(timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.said += rest.decode().splitlines()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stderr is not None
        text, deadline = b"", time.monotonic() + STARTS_WITHIN
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                assert selector.select(deadline - time.monotonic()), f"not ready in time: {self.said}"
                if not (byte := self.process.stderr.read(1)):
                    break
                text += byte
        line = text.decode().rstrip("\n")
        self.said += [line] if line else []
        return line


@contextmanager
def http_server(place: Path | str, *options: str, env: dict[str, str] | None = None) -> Iterator[HttpServer]:
    """A started server for the store `place`, which is killed after the block if it still runs. No HOLDLOG_ variable
    of the tests reaches it; `env` may set some."""
    server = HttpServer(place, *options, env=env)
    try:
        yield server.start()
    finally:
        server.close()


@contextmanager
def serving(folder: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """The base URL of a server with a store of its own in `folder`."""
    with http_server(folder / "state.db", *options, env=env) as server:
        yield server.url


def _over_http(options: tuple[str, ...]) -> list[str]:
    port = [] if "--port" in options else ["--port", "0"]
    return ["--transport", "http", *port, *options]
