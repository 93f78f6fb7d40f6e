"""What hooks do about the shell commands of an agent, with an open store: git commands over the work of others, and
files of others that a command changed."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from holdlog.adapters.hooks.calls import HookCall
from holdlog.adapters.hooks.commands import Difference, after_command, former_changes, lasting_differences
from holdlog.adapters.hooks.digests import MISSING, SHA256_LENGTH, digest_of
from holdlog.adapters.hooks.dirty import GitFailedError
from holdlog.adapters.hooks.guarding import GitFinding, Source, findings, party_of_call
from holdlog.adapters.hooks.holder import Holder
from holdlog.adapters.hooks.ledger import ReaderLedger
from holdlog.adapters.hooks.notes import ALL, HookFiles, News, Notes
from holdlog.adapters.hooks.problems import describe_unguarded_git
from holdlog.adapters.hooks.session import main_of, name_of
from holdlog.adapters.hooks.texts import describe_differences, describe_former, describe_news
from holdlog.adapters.hooks.works import Sessions
from holdlog.adapters.hooks.written import MAX_WRITTEN, writes_files, written_since
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
        """Record what happened to files of others while a command ran, note it for them, and describe it."""
        call, name = self._call, name_of(self._call, self._notes)
        before = self._notes.before.get(call.agent)
        if before is None or not (call.git or call.reports):
            return ""
        differences = after_command(call, self._files, self._holder.session, self._notes)
        found = self._record(differences, before.at, name)
        if writes_files(call):
            self._record_written(before.latest, name)
        return describe_differences(self._holder.engine, found)

    def _record_written(self, since: int, name: str) -> None:
        """Record the files that a command has written since a time, unless somebody has recorded this content."""
        ledger = ReaderLedger(self._holder.engine)
        try:
            for path in islice(written_since(self._call, since), MAX_WRITTEN):
                resource, now = self._holder.file(path), digest_of(path)
                known = None if resource is None else ledger.last_change(resource)
                is_known = known is not None and (known.sha256 or MISSING) == now
                if not is_known and (now == MISSING or len(now) == SHA256_LENGTH):
                    with suppress(InvalidError):
                        self._holder.record_change(path, name, None if now == MISSING else now, by_command=True)
        except GitFailedError as error:
            self._files.record_failure(self._call.event, str(error))

    def compare_lasting(self, ends: bool) -> None:
        """As `compare`, at the end of a turn, or at that of the session if `ends`, for commands that may still run: the
        agent gets the description with its next call."""
        session = self._holder.session
        for agent in [it for it in self._notes.before if self._call.is_of_session(it)]:
            name, before = name_of(self._call._replace(agent=agent), self._notes), self._notes.before[agent]
            is_killed = agent == self._call.agent and not before.lasts
            found = lasting_differences(self._files, session, self._notes, agent, ends or is_killed)
            for it in self._record(found, before.at, name):
                if not ends:
                    self._files.note_news(session, name, News(it.file.resource, it.file.agent, "lasted"))

    def _record(self, differences: Sequence[Difference], since: int, name: str) -> list[Difference]:
        """Record what commands of an agent did to files of others since a time, and note it for them. Returns what no
        hook has recorded."""
        ledger, found = ReaderLedger(self._holder.engine), list[Difference]()
        for it in differences:
            file, now = it.file, digest_of(it.path)
            known = ledger.last_change(file.resource) if it.verb == "changed" else None
            if known is not None and known.at > since and (known.sha256 or MISSING) == now:
                continue
            if it.verb == "changed" and (now == MISSING or len(now) == SHA256_LENGTH):
                with suppress(InvalidError):
                    self._holder.record_change(it.path, name, None if now == MISSING else now, by_command=True)
            self._files.note_news(file.session, file.agent, News(file.resource, name, it.verb))
            found.append(it)
        return found

    def describe_former(self, claimed: Mapping[str, str]) -> str:
        """Describe whose last, uncommitted changes the files are in that the agent has claimed, and note for them that
        it changes these. `claimed`: paths by resource."""
        source = source_of(self._call, self._holder, self._own, self._files, self._notes)
        try:
            found = former_changes(source, claimed)
        except GitFailedError as error:
            self._files.record_failure(self._call.event, str(error))
            return ""
        for it in found:
            news = News(it.resource, name_of(self._call, self._notes), "edited")
            self._files.note_news(it.session, it.agent, news)
        return describe_former(self._holder.engine, found)

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
        case "turn-end" | "post-edit" | "read":
            pass  # of a call that ends after its session, as after /clear
        case _:
            notes.ended = [it for it in notes.ended if it not in (name, ALL)]
