"""Hands a checkpoint of the store to the operator's command at intervals, while a server runs. Uses one thread."""

import logging
import threading
from collections.abc import Callable

from holdlog.domain.checkpoint import Checkpoint
from holdlog.domain.refusals import HoldlogError

_log = logging.getLogger("holdlog.anchor")


class Anchoring:
    """`checkpoint`: computes the current one; `hand_over`: gives it to the command. `every`: seconds between two; a
    log without new events is skipped. Failures are logged and retried at the next interval."""

    def __init__(
        self, checkpoint: Callable[[], Checkpoint], hand_over: Callable[[Checkpoint], None], every: float
    ) -> None:
        self._checkpoint = checkpoint
        self._hand_over = hand_over
        self._every = every
        self._last: Checkpoint | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdlog-anchor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Hand over the last checkpoint, then end."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            is_last = self._ended.is_set()
            self._run_once()
            if is_last:
                return
            self._ended.wait(self._every)

    def _run_once(self) -> None:
        try:
            found = self._checkpoint()
            if found != self._last:
                self._hand_over(found)
                self._last = found
        except HoldlogError as error:
            _log.warning("no checkpoint was kept: %s", error)
        except Exception:
            _log.exception("no checkpoint was kept")
