"""A command at a terminal of its own, which a test reads and types into."""

import os
import pty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INTERRUPT = "\x03"
END_OF_INPUT = "\x04"


class Terminal:
    def __init__(self, command: Sequence[str]) -> None:
        self.shown = ""
        self._pid, self._end = pty.fork()
        if self._pid == 0:
            os.execvp(command[0], list(command))

    def wait_for(self, text: str) -> None:
        """Wait until the command has printed a text since the last wait."""
        start = len(self.shown)
        while text not in self.shown[start:]:
            assert self._read(), self.shown

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def send(self, number: int) -> None:
        os.kill(self._pid, number)

    def end(self) -> int:
        """Wait until the command has ended. Returns its exit code."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def close(self) -> None:
        os.close(self._end)

    def _read(self) -> bool:
        """Read what the command prints. Returns whether it still runs."""
        try:
            part = os.read(self._end, 4096)
        except OSError:  # its end was closed
            return False
        self.shown += part.decode(errors="replace")
        return part != b""


@contextmanager
def terminal(*command: str) -> Iterator[Terminal]:
    opened = Terminal(command)
    try:
        yield opened
    finally:
        opened.close()
