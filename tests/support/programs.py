"""Commands of holdlog as processes: what ends by itself, and servers over HTTP."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import requests

from tests.support.waiting import PATIENCE, until

HOLDLOG = str(Path(sys.executable).with_name("holdlog"))


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of the test, without settings of holdlog and of hosts that the tests themselves may run in."""
    ours = ("HOLDLOG_", "CLAUDE", "CODEX", "CURSOR", "OPENCODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"FASTMCP_LOG_ENABLED": "false"} | dict(more or {})


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*words: str | Path, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Done:
    """One command, from its first word after `holdlog` on, until it ends."""
    process = subprocess.run(
        [HOLDLOG, *map(str, words)],
        input=stdin,
        env=environment(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(process.returncode, process.stdout, process.stderr)


def python(text: str, *arguments: object, cwd: Path | None = None) -> list[str]:
    """The lines that a program prints, which must end well and say nothing on stderr."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


class HttpServer:
    """`holdlog serve --transport http` on a free port. `url` has no slash at its end; `log` is what stderr shows."""

    def __init__(
        self, db: Path | str, *options: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        words = ("serve", "--db", str(db), "--transport", "http", "--port", "0", *options)
        self.process = subprocess.Popen(
            [HOLDLOG, *words],
            env=environment(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until(lambda: self.url or self.process.poll() is not None)
        assert self.url, self.log

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            if not self.url and (found := re.search(r"http://[^\s/]+:\d+", line)):
                self.url = found[0]

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """A dictionary as `json` becomes the body."""
        return requests.request(method, self.url + path, timeout=PATIENCE, **options)

    def close(self) -> int:
        """End the server as a service manager does; the exit code."""
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code
