"""Faults of the system under a process: faults.c, what it is told, and the disk that a power cut leaves."""

import functools
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOURCE = Path(__file__).with_name("faults.c")
SHIM = pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="faults.c: Linux and gcc")
READ, WRITE, SYNC, CUT, NAME, LOCK, RANGE = (1 << bit for bit in range(7))
"""Kinds of system calls on files: LOCK is flock, RANGE the locks of fcntl."""
CHANGES = WRITE | SYNC | CUT | NAME | LOCK | RANGE
"""Between any two others, nothing changes that another process could see."""
_FIELDS = ("wall", "steady", "stands", "asleep", "count", "first", "last", "action", "kinds")
_SECOND = 1_000_000_000
_ENDLESS = 2**62


@functools.cache
def _library() -> Path:
    """Compiled once for each test process."""
    built = Path(tempfile.mkdtemp(prefix="holdlog-doors-")) / "faults.so"
    built.parent.chmod(0o755)  # database servers run as another user
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", built, SOURCE, "-ldl"], check=True)
    return built


class Faults:
    """Of all processes that start with this `env`: their clocks, boot ids, and calls on files in `folder`."""

    def __init__(self, folder: Path, control: Path) -> None:
        control.mkdir()
        (control / "control").write_bytes(bytes(8 * len(_FIELDS)))
        (control / "control").chmod(0o666)
        with (control / "control").open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)
        self._boot_id = control / "boot_id"
        self.journal = control / "journal"
        self.env = {
            "LD_PRELOAD": str(_library()),
            "HOLDLOG_TEST_CONTROL": str(control / "control"),
            "HOLDLOG_TEST_FOLDER": str(folder),
        }

    def _read(self, name: str) -> int:
        return int(struct.unpack_from("q", self._control, _FIELDS.index(name) * 8)[0])

    def _write(self, **fields: int) -> None:
        for name, value in fields.items():
            struct.pack_into("q", self._control, _FIELDS.index(name) * 8, value)

    # --- calls

    @property
    def count(self) -> int:
        """Calls of the armed kinds since."""
        return self._read("count")

    def arm(self, kinds: int, action: int, first: int = 1, last: int = _ENDLESS) -> None:
        """`action`: the errno with which these calls fail; below 0 the signal that comes before each."""
        self._write(first=0)
        self._write(count=0, last=last, action=action, kinds=kinds)
        self._write(first=first)

    def disarm(self) -> None:
        self._write(first=0)

    # --- clocks

    def turn_wall_clock(self, seconds: int) -> None:
        """To so many seconds before or after the true time."""
        self._write(wall=seconds * _SECOND)

    def pass_time(self, seconds: float) -> None:
        """By all clocks."""
        for name in ("wall", "steady", "asleep"):
            self._write(**{name: self._read(name) + int(seconds * _SECOND)})

    def fall_asleep(self) -> None:
        """The steady clock stands, as in a machine whose lid is closed."""
        self._write(stands=time.monotonic_ns() + self._read("steady"))

    def wake_up(self, seconds: int) -> None:
        """So many seconds later by all clocks but the steady one, which goes on where it stood."""
        self._write(wall=seconds * _SECOND, asleep=seconds * _SECOND)
        self._write(steady=self._read("stands") - time.monotonic_ns())
        self._write(stands=0)

    # --- machines

    def boot(self, name: str) -> dict[str, str]:
        """The environment of a process on a machine that was started another time, or on another machine."""
        file = self._boot_id.with_name(f"boot-{name}")
        digits = name.encode().hex().ljust(32, "0")[:32]
        file.write_text("-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])) + "\n")
        return self.env | {"HOLDLOG_TEST_BOOT_ID": str(file)}

    @property
    def recorded(self) -> dict[str, str]:
        """The environment of a process whose calls are noted in the journal."""
        return self.env | {"HOLDLOG_TEST_JOURNAL": str(self.journal)}


STEP = 20


def pass_time(faults: Faults, other: Any, seconds: int) -> None:
    """In steps of 20 s with a write of another process after each: a longer silence prolongs lives (design 7)."""
    for _ in range(seconds // STEP):
        faults.pass_time(STEP)
        assert other.call("set", "n", "tick", 1, updated_by="tick")["status"] == "ok"
    faults.pass_time(seconds % STEP)


class Clock:
    """The clocks of this process, which runs with the `env` of Faults."""

    def __init__(self) -> None:
        with open(os.environ["HOLDLOG_TEST_CONTROL"], "r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)

    def pass_time(self, seconds: float) -> None:
        """By all clocks."""
        for name in ("wall", "steady", "asleep"):
            place = _FIELDS.index(name) * 8
            (now,) = struct.unpack_from("q", self._control, place)
            struct.pack_into("q", self._control, place, now + int(seconds * _SECOND))


WROTE, TRUNCATED, SYNCED, CREATED, UNLINKED, RENAMED, LINKED = range(1, 8)
SECTOR = 512


class Entry(NamedTuple):
    kind: int
    name: str
    offset: int
    data: bytes


def entries(journal: Path) -> Iterator[Entry]:
    """What faults.c noted, in order."""
    text, at = journal.read_bytes(), 0
    while at < len(text):
        kind, name, offset, length = struct.unpack_from("4q", text, at)
        at += 32
        yield Entry(kind, text[at : at + name].decode(), offset, text[at + name : at + name + length])
        at += name + length


@dataclass
class File:
    """`data`: what was synced; `pending`: what came since."""

    data: bytearray = field(default_factory=bytearray)
    pending: list[Entry] = field(default_factory=list)


class Disk:
    """Files as a machine has them that loses its power: what was synced is there; of what came later, each sector may
    be there or not. Names are as on a journaling file system: whatever is synced takes all earlier ones with it."""

    def __init__(self) -> None:
        self._open: dict[str, File] = {}
        self._named: dict[str, File] = {}
        self._names: list[dict[str, File]] = []

    def add(self, entry: Entry) -> None:
        if entry.kind == SYNCED:
            self._named, self._names = (self._names or [self._named])[-1], []
            if file := self._open.get(entry.name):
                _apply(file.data, file.pending)
                file.pending.clear()
        elif entry.kind in (WROTE, TRUNCATED):
            self._open[entry.name].pending.append(entry)
        else:
            if entry.kind == CREATED:
                self._open[entry.name] = File()
            elif entry.kind == LINKED:
                self._open[entry.data.decode()] = self._open[entry.name]
            elif entry.name in self._open:
                file = self._open.pop(entry.name)
                if entry.kind == RENAMED:
                    self._open[entry.data.decode()] = file
            self._names.append(dict(self._open))

    def lose_power(self, folder: Path, dice: random.Random, kept: float) -> None:
        """Write what is left to a folder: of what was not synced, this share."""
        named = [self._named, *self._names][round(len(self._names) * kept)]
        for name, file in named.items():
            if name.endswith("-shm"):
                continue  # is memory, and made anew
            data = bytearray(file.data)
            _apply(data, [part for it in file.pending for part in _sectors(it) if dice.random() < kept])
            folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            folder.joinpath(name).write_bytes(data)
            folder.joinpath(name).chmod(0o600)


def _sectors(entry: Entry) -> Iterator[Entry]:
    if entry.kind != WROTE:
        yield entry
    for at in range(0, len(entry.data), SECTOR) if entry.kind == WROTE else ():
        yield entry._replace(offset=entry.offset + at, data=entry.data[at : at + SECTOR])


def _apply(file: bytearray, pending: list[Entry]) -> None:
    for kind, _, offset, data in pending:
        end = offset + len(data)
        if len(file) < end or kind == TRUNCATED:
            file.extend(bytes(max(0, end - len(file))))
        if kind == TRUNCATED:
            del file[offset:]
        else:
            file[offset:end] = data
