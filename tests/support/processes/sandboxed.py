"""Commands in a process that may not write, or not read, some folders: by their modes or on a read-only mount, and for
root without its right to ignore modes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes.hosts import ENVIRONMENT

_MOUNT = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
_AS_OWNER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
_COMMANDS = """\
import contextlib, io, json, sys
from holdlog.adapters.cli.main import main

def run(words):
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
        out.flush()
    return [code, out.buffer.getvalue().decode(), err.getvalue()]

print(json.dumps([run(words) for words in json.load(sys.stdin)]))
"""


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


class Sandbox:
    """Runs processes in a folder. `before`: what a process is started with."""

    def __init__(self, folder: Path, *before: str) -> None:
        self.folder = folder
        self.before = before

    def start(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        """Start a Python process with pipes."""
        command = [*self.before, sys.executable, *words]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, text=True, **pipes | options)

    def run(self, *commands: Sequence[str]) -> list[Ran]:
        """Run commands of holdlog, all in one process."""
        process = self.start("-c", _COMMANDS)
        out, err = process.communicate(json.dumps([list(words) for words in commands]), timeout=60)
        assert process.returncode == 0, err
        return [Ran(*it) for it in json.loads(out)]

    def hook(self, **given: Any) -> Ran:
        process = self.start("-m", "holdlog", "hook")
        facts = {"session_id": "s-1", "cwd": str(self.folder), **given}
        out, err = process.communicate(json.dumps(facts), timeout=30)
        return Ran(process.returncode, out, err)


def read_only_mount(folder: Path, mounted: Path) -> Sandbox:
    """A sandbox in which a folder is on a read-only mount. Raises LookupError where the system has none."""
    unshare = ("unshare", "-m" if os.geteuid() == 0 else "-rm")
    probe = [*unshare, "sh", "-c", _MOUNT, str(mounted), "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, check=False, capture_output=True).returncode:
        raise LookupError("no read-only mount can be made here")
    return Sandbox(folder, *unshare, "sh", "-c", _MOUNT, str(mounted))


def bound_by_modes(folder: Path) -> Sandbox:
    """A sandbox that obeys modes, also for root. Raises LookupError where that is impossible."""
    if os.geteuid() != 0:
        return Sandbox(folder)
    if shutil.which("setpriv") is None:
        raise LookupError("only setpriv takes its rights from root")
    return Sandbox(folder, *_AS_OWNER)
