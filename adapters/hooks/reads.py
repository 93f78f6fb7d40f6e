"""What the agents of a session have read: the digest of each file at their last read or edit.

One private file per session next to the store, of lines that are only appended; not synced, because a lost line costs
only a warning. Standard library only and quick to import: the hook's fast path uses it.
"""

import json
import time
from typing import Final, NamedTuple

from holdlog.adapters.hooks.digests import MISSING, digest_of, stamp_of
from holdlog.adapters.hooks.notes import HookFiles

MAX_WARNED: Final = 10
"""Contents of one file that an agent is not warned about again."""
MAX_READS: Final = 1024 * 1024
"""Bytes; beyond, only the last line of each file is kept."""


class FileRead(NamedTuple):
    """`digest`, `stamp`: of the content that the agent knows (digests.py); `at`: microseconds UTC. `warned`: digests of
    other contents before an edit, about which the agent was warned; the last one was seen last."""

    digest: str
    stamp: str
    at: int
    warned: tuple[str, ...] = ()

    @property
    def latest(self) -> str:
        """The digest of the last content that a hook of the agent saw."""
        return self.warned[-1] if self.warned else self.digest


class Reads:
    """The reads of one agent of a session. `agent`: as in `HookCall.agent`."""

    def __init__(self, files: HookFiles, session: str, agent: str) -> None:
        self._files = files
        self._name = f"{session}.reads"
        self._agent = agent
        self._all = _parsed(files.text_of(self._name, 2 * MAX_READS))

    def of(self, path: str) -> FileRead | None:
        """The last read of a file; None if the agent has not read it."""
        return self._all.get((self._agent, path))

    def is_current(self, path: str) -> bool:
        """Whether the file is as a hook of the agent saw it last, or the agent has never read it."""
        read = self.of(path)
        return read is None or (not read.warned and stamp_of(path) == read.stamp) or digest_of(path) == read.latest

    def has_current(self, path: str) -> bool:
        """Whether nothing has written the file since the agent read it: the same content, written again, is a new
        read, after the changes of others in between. So is a file that was removed again."""
        read = self.of(path)
        return read is not None and not read.warned and stamp_of(path) == read.stamp != MISSING

    def adopt(self, session: str) -> None:
        """Note what the agents read while their claims were held by another session. Raises OSError."""
        for key, read in _parsed(self._files.text_of(f"{session}.reads", 2 * MAX_READS)).items():
            if key not in self._all or self._all[key].at < read.at:
                self._all[key] = read
        self._rewrite()

    def note_content(self, path: str, digest: str) -> bool:
        """Note the content before an edit of a file that the agent has read. Returns whether the agent neither read it
        nor was warned about it before. Raises OSError."""
        read = self._all[self._agent, path]
        others = [it for it in read.warned if it != digest]
        self.note(path, read._replace(warned=(*others, digest)[-MAX_WARNED:]))
        return digest not in (read.digest, *read.warned)

    def note(self, path: str, read: FileRead) -> None:
        """Note what the agent knows of a file. Raises OSError."""
        self._all[self._agent, path] = read
        if self._files.append(self._name, _line(self._agent, path, read)) > MAX_READS:
            self._rewrite()

    def _rewrite(self) -> None:
        self._files.replace_text(self._name, "".join(_line(*key, it) for key, it in self._all.items()))


def read_now(path: str) -> FileRead:
    """A read of the file as it is. If it changes meanwhile, the read counts as the earlier one."""
    at, stamp = time.time_ns() // 1000, stamp_of(path)
    return FileRead(digest_of(path), stamp, at)


def _line(agent: str, path: str, read: FileRead) -> str:
    return json.dumps([agent, path, *read]) + "\n"


def _parsed(text: str) -> dict[tuple[str, str], FileRead]:
    found: dict[tuple[str, str], FileRead] = {}
    for line in text.splitlines():
        try:
            agent, path, digest, stamp, at, warned = json.loads(line)
            found[str(agent), str(path)] = FileRead(str(digest), str(stamp), int(at), tuple(map(str, warned)))
        except (ValueError, TypeError, OverflowError, RecursionError):
            continue  # cut off, or damaged
    return found
