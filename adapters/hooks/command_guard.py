"""What hooks do about the shell commands of an agent, with an open store: git commands over the work of others, and
files of others that a command changed."""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.commands import after_command
from holdlog.adapters.hooks.digests import MISSING, SHA256_LENGTH, digest_of
from holdlog.adapters.hooks.dirty import GitFailedError
from holdlog.adapters.hooks.guarding import GitFinding, Source, findings, party_of_call
from holdlog.adapters.hooks.holder import Holder
from holdlog.adapters.hooks.ledger import ReaderLedger
from holdlog.adapters.hooks.notes import ALL, HookFiles, Notes
from holdlog.adapters.hooks.problems import describe_unguarded_git
from holdlog.adapters.hooks.session import main_of, name_of
from holdlog.adapters.hooks.texts import describe_changed, describe_news
from holdlog.adapters.hooks.works import Sessions
from holdlog.adapters.operating_system.ancestry import HostProcess
from holdlog.adapters.policy.in_force import policy_at
from holdlog.adapters.policy.policy import FILE
from holdlog.domain.refusals import InvalidError

MAX_ENDED: Final = 100
"""Agents of a session whose end is noted."""


class CommandGuard:
    """One call of an agent's shell, while no other hook of its session runs. `own`: the session of its host."""

    def __init__(self, call: HookCall, holder: Holder, own: str, files: HookFiles, notes: Notes) -> None:
        self._call = call
        self._holder = holder
        self._own = own
        self._files = files
        self._notes = notes

    def judge(self, warnings: list[str]) -> str | None:
        """Why the call is denied, because of its git commands. Adds what the agent is warned about."""
        try:
            source = source_of(self._call, self._holder, self._own, self._files, self._notes)
            found = findings(self._call, source) if self._call.git else []
        except (GitFailedError, sqlite3.Error) as error:
            self._files.record_failure("pre-edit", str(error))
            warnings.append(describe_unguarded_git(str(error)))
            return None
        for finding in found:
            mode = policy_at(finding.root).policy.git
            if mode == "deny" and finding.judgement.denies:
                return finding.judgement.text
            if mode != "off":
                warnings.append(_warn(finding))
        return None

    def compare(self) -> str:
        """Record which files of others changed while a command ran, note it for their holders, and describe it."""
        call, name = self._call, name_of(self._call, self._notes)
        before = self._notes.before.get(call.agent)
        if before is None or not (call.git or call.reports):
            return ""
        ledger, changed = ReaderLedger(self._holder.engine), list[tuple[str, str]]()
        for path, file in after_command(call, self._notes, name):
            now = digest_of(path)
            known = ledger.last_change(file.resource)
            if known is not None and known.at > before.at and (known.sha256 or MISSING) == now:
                continue  # a hook has recorded it
            if now == MISSING or len(now) == SHA256_LENGTH:
                with suppress(InvalidError):
                    self._holder.record_change(path, name, None if now == MISSING else now, by_command=True)
            self._files.note_news(file.session, file.agent, file.resource, name)
            changed.append((file.resource, file.agent))
        return describe_changed(self._holder.engine, changed)

    def news(self) -> str:
        """What commands of others changed of what the agent holds; empty if the host does not pass it on."""
        session, main = self._holder.session, main_of(self._call)
        if not self._call.reaches_agent or not self._files.has_news(session):
            return ""
        name, is_whole = name_of(self._call, self._notes), self._call.agent == main == ""
        news = self._files.take_news(session, lambda agent: is_whole or agent == name)
        return describe_news(self._holder.engine, news)


def source_of(call: HookCall, holder: Holder, own: str, files: HookFiles, notes: Notes) -> Source:
    """The source for a call, with an open store. `own`: the session of the call's host."""
    ledger, engine = ReaderLedger(holder.engine), holder.engine
    party = party_of_call(call, notes, {own, *holder.sessions})._replace(principal=holder.caller.principal)
    store = engine.location if isinstance(engine.location, Path) else None
    return Source(store, files, ledger, ledger.names, Sessions(files), party)


def _warn(finding: GitFinding) -> str:
    return finding.judgement.text + (f" {FILE} only warns." if finding.judgement.denies else "")


def note_process(notes: Notes, call: HookCall, name: str, host: HostProcess | None) -> None:
    """Note which process runs the session of a call, and whether its agent has ended. `name`: of the agent."""
    if host is not None:
        notes.host, notes.folder = host, call.folder
    match call.event:
        case "session-end" | "subagent-end" if main_of(call):  # each agent is a session of the host
            notes.ended = [name, *notes.ended][:MAX_ENDED]
        case "session-end":
            notes.ended = [ALL]
        case "subagent-end":
            pass  # its work is that of the session
        case "turn-end":
            notes.before.pop(call.agent, None)
        case "post-edit" | "read":
            pass  # of a call that ends after its session, as after /clear
        case _:
            notes.ended = [it for it in notes.ended if it not in (name, ALL)]
