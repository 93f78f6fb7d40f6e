"""Finds out whether a host obeys the denials of its hooks."""

import time

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.digests import MISSING, digest_of
from holdlog.adapters.hooks.holder import Holder
from holdlog.adapters.hooks.notes import Denial, HookFiles, Notes
from holdlog.adapters.hooks.observed import note_observation


class Denials:
    """The denials of one session, during one call of its hook."""

    def __init__(self, call: HookCall, holder: Holder, files: HookFiles, notes: Notes) -> None:
        self._call = call
        self._holder = holder
        self._files = files
        self._notes = notes

    def note(self, path: str, digest: str) -> None:
        """Note that the call is denied. `path`: without symbolic links; `digest`: of its content."""
        self._notes.denied.append(Denial(self._call.agent, path, digest, time.time_ns() // 1000))

    def observe(self) -> None:
        """Find out whether the host obeyed earlier denials: then the file is as before, or as another session has left
        it, when the agent edits it again, or its turn ends. Raises OSError."""
        due, denied = list[Denial](), list[Denial]()
        for it in self._notes.denied:
            (due if self._is_over(it) else denied).append(it)
        self._notes.denied = denied
        client = f"{self._call.client} {self._call.version or 'unknown'}"
        for it in due:
            now = digest_of(it.path)
            if self._call.event == "post-edit":
                note_observation(self._files, client, obeyed=False)
            elif now == it.digest or self._is_of_another(it, now):
                note_observation(self._files, client, obeyed=True)

    def _is_over(self, denial: Denial) -> bool:
        """Whether the host has either run the denied call, or will not run it any more."""
        match self._call.event:
            case "pre-edit" | "post-edit":
                return denial.agent == self._call.agent and denial.path in self._call.real_paths
            case "subagent-end":
                return denial.agent == self._call.agent
            case "prompt" | "turn-end" | "session-end":
                return self._call.is_of_session(denial.agent)
            case _:
                return False

    def _is_of_another(self, denial: Denial, digest: str) -> bool:
        """Whether another session has recorded this content of a file since its edit was denied."""
        resource = self._holder.file(denial.path)
        change = None if resource is None else self._holder.change_by_another(resource, denial.at, None)
        return change is not None and (change.sha256 or MISSING) == digest
