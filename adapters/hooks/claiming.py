"""Hooks that read or change claims: with an open store, that of the hook's process or of its host's server."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdlog.adapters.api.values.responses import Lost
from holdlog.adapters.hooks.binding import BoundServer
from holdlog.adapters.hooks.calls import PLAIN, SHARED_SERVER, HookCall, add_context, ask_person, denial, warning
from holdlog.adapters.hooks.command_guard import CommandGuard, note_process
from holdlog.adapters.hooks.denials import Denials
from holdlog.adapters.hooks.digests import MISSING, SHA256_LENGTH, digest_of
from holdlog.adapters.hooks.dirty import uncommitted
from holdlog.adapters.hooks.guard_files import describe_settings, find_settings
from holdlog.adapters.hooks.holder import Check, Holder, HookAgent, allow
from holdlog.adapters.hooks.notes import MAX_SESSIONS, HookClaim, HookFiles, Notes
from holdlog.adapters.hooks.reads import Reads, read_now
from holdlog.adapters.hooks.session import HookSession, main_of, name_of, own_session, session_of, terminal_of
from holdlog.adapters.hooks.texts import (
    describe_denial,
    describe_elsewhere,
    describe_human,
    describe_losses,
    describe_session,
    describe_stale,
    describe_unexamined,
    describe_waiting,
    describe_warning,
)
from holdlog.adapters.hooks.works import Sessions
from holdlog.adapters.operating_system.ancestry import HostProcess, host_process
from holdlog.adapters.policy.in_force import FolderRule, project_policy, rule_below, rule_of
from holdlog.adapters.policy.policy import DEFAULT_RULE, PathRule, Policy
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.claims.lease import BY_LEASE
from holdlog.domain.names import allowed_agent_name
from holdlog.domain.refusals import BusyError, Hold, HoldlogError, UnavailableError

MAX_WARNED: Final = 256 * 1024
"""Bytes of the list of files about whose other worktrees a session was warned."""


def perform(
    context: RequestContext, call: HookCall, files: HookFiles, server: BoundServer | None, check: Check = allow
) -> dict[str, Any]:
    """Do what the event requires, and return the output for the host. The engine of `context`, or the server of its
    caller, keeps the session of the hook alive. `check`: as for Holder. Raises HoldlogError and OSError."""
    session = session_of(call, server, context.engine.identity)
    host = None if server is not None and server.server == BY_LEASE else host_process(os.getpid())
    with files.change(session.held_by) as notes:
        holder = Holder(context, session.held_by, check)
        return HookWork(call, holder, session, files, notes, host).run()


class HookWork:
    """The work of one hook call, while no other hook of its session runs. `host`: the process that runs the session."""

    def __init__(
        self,
        call: HookCall,
        holder: Holder,
        session: HookSession,
        files: HookFiles,
        notes: Notes,
        host: HostProcess | None = None,
    ) -> None:
        self._call = call
        self._files = files
        self._reads = Reads(files, session.held_by, call.agent)
        self._engine = holder.engine
        self._session = session
        self._notes = notes
        self._denials = Denials(call, holder, files, notes)
        self._warnings: list[str] = []
        self._sessions: list[str] = []
        self._claimed: dict[str, str] = {}
        """What this call has claimed, and no claim of the agent before: paths by resource."""
        self._losses: list[Lost] = []
        self._holder = holder
        self._denied_before = {it.path for it in notes.denied if it.agent == call.agent}
        """Files whose edit was denied just before: the agent may have queued for them since, only to edit them."""
        self._own = own_session(call, holder.engine.identity)
        self._host = host
        self._commands = CommandGuard(call, holder, self._own, files, notes)
        self._is_outlived = self._own != session.held_by and call.client not in SHARED_SERVER
        """Whether the session that holds the claims stays when the host's session is replaced by another one."""

    def run(self) -> dict[str, Any]:
        """Do what the event requires, and return the output for the host."""
        if self._is_replaced():
            return {}
        self._note_use()
        self._note_terminal()
        self._adopt()
        note_process(self._notes, self._call, self._name, self._host)
        self._denials.observe()
        output = self._answer()
        self._finish()
        return output

    def _is_replaced(self) -> bool:
        """Whether this is the late end of a host's session, or of its turn, although another one uses its server now,
        as after /clear."""
        is_end = self._call.event in ("turn-end", "session-end")
        return is_end and self._is_outlived and self._own in self._notes.sessions[1:]

    def _note_use(self) -> None:
        """Note that the host's session uses its server now."""
        if self._is_outlived and self._call.event in ("start", "prompt", "pre-edit"):
            self._notes.sessions = list(dict.fromkeys([self._own, *self._notes.sessions]))[:MAX_SESSIONS]

    def _note_terminal(self) -> None:
        """Note where the agent works, except over HTTP: there, its notes are not those of this machine's user."""
        if self._call.event not in ("start", "prompt", "pre-edit") or self._session.server == BY_LEASE:
            return
        terminal = terminal_of(self._call, self._notes, self._engine.identity)
        if terminal is not None:
            self._notes.terminals[self._main] = terminal

    def _adopt(self) -> None:
        """Keep the agent's name through /clear, a resumed session and a restarted server. Move what hooks claimed and
        noted for the host's session before its server was connected, restarted, or ended. If the former server lives,
        the session runs in another host, too, which keeps its claims."""
        names, held_by = self._notes.names, self._session.held_by
        host = self._files.read(self._own)
        if self._main not in names:
            named = Notes(dict(host.names), {})
            names[self._main] = name_of(self._call._replace(agent=self._main), named)
        former = next(iter(host.sessions), self._own)
        sessions = list(dict.fromkeys([held_by, *host.sessions]))[:MAX_SESSIONS]
        alive = self._files.sessions_with_server() if len(sessions) > 1 else set()
        self._holder.sessions |= set(sessions) - alive
        # Claims are moved from the first one: a former server that lives stays there until it has ended.
        self._sessions = list(dict.fromkeys([former, *sessions])) if former in alive else sessions
        if former != held_by and former not in alive:
            self._reads.adopt(former)
            holder = self._holder.of(former)
            for claim in self._taken_from(former):
                if holder.may_claim_again(claim):
                    holder.release(claim)
                    self._claim_again(claim)

    def _taken_from(self, session: str) -> list[HookClaim]:
        """Remove the claims of the host's session from the notes of another session that held them."""
        with self._files.change(session) as notes:
            taken = [it for it in notes.claims.values() if self._call.is_of_session(it.by)]
            notes.claims = {key: it for key, it in notes.claims.items() if it not in taken}
            return taken

    def _finish(self) -> None:
        """Note the agent's name with the host's session, for its return in another process."""
        names = self._notes.names
        if self._own == self._session.held_by:
            self._notes.sessions = self._sessions
        else:
            with self._files.change(self._own) as host:
                host.names = {self._main: names[self._main]}
                host.sessions = self._sessions
                note_process(host, self._call, self._name, self._host)
            if self._call.event == "session-end" and not self._call.resumes:
                for key in [key for key in names if self._call.is_of_session(key)]:
                    del names[key]
        if self._call.event == "session-end":
            if not self._call.resumes:
                self._notes.terminals.pop(self._main, None)
            self._files.remove_old()

    def _answer(self) -> dict[str, Any]:
        call = self._call
        match call.event:
            case "pre-edit":
                if call.called_name is not None:
                    self._rename(call.called_name)
                    self._hand_over()
                reason = self._commands.judge(self._warnings) or self._claim_all() or self._check_reads()
                if self._claimed:
                    self._note_losses()
                if reason is None and self._claimed:
                    self._warnings.append(self._commands.describe_former(self._claimed))
                lost, waiting = (
                    describe_losses(self._agent, self._losses),
                    self._report_waiting(is_again=bool(call.paths)),
                )
                if reason is not None:
                    return denial(call, " ".join(filter(None, [reason, lost, waiting])))
                text = " ".join(filter(None, [*self._warnings, self._commands.news(), lost, waiting]))
                if (settings := find_settings(call.paths)) is not None:
                    question = describe_settings(settings, call.folder)
                    return ask_person(call, f"{question} {text}".rstrip())
                return warning(call, text) if text else {}
            case "prompt" if call.client == "cursor":  # it adds nothing to the context: the next edit reports losses
                self._renew()
            case "start" | "prompt":
                self._note_losses()
                self._renew()
                is_start = call.event == "start"
                failures, notice = (self._files.take_failures(), self._policy_notice()) if is_start else ([], None)
                text = describe_session(self._agent, is_start, self._losses, failures, notice)
                self._report_waiting()
                text = " ".join(filter(None, [self._commands.news(), text]))
                return add_context(call, text) if text else {}
            case "post-edit":
                self._record_changes()
                changed = self._commands.compare()
                return self._context(" ".join(filter(None, [changed, self._commands.news(), self._report_waiting()])))
            case "read":
                for path in self._call.real_paths:
                    self._reads.note(path, read_now(path))
                return self._context(" ".join(filter(None, [self._commands.news(), self._report_waiting()])))
            case "turn-end":
                self._commands.compare_lasting(ends=False)
                self._release_unchanged()
            case "subagent-end":
                if call.agent:
                    self._release(lambda it: it.by == call.agent)
            case "session-end":
                self._commands.compare_lasting(ends=True)
                self._release(lambda it: call.is_of_session(it.by))
        return {}

    def _context(self, text: str) -> dict[str, Any]:
        """The output after a call."""
        add = warning if self._call.client in PLAIN else add_context
        return add(self._call, text) if text else {}

    def _report_waiting(self, is_again: bool = False) -> str:
        """Who waits for what the agent holds, once for each waiter, or with `is_again` each time. Empty if the host
        does not pass it on."""
        call, agent = self._call, self._agent
        others = [it for it in self._notes.reported if it[0] != call.agent]
        now = [(call.agent, *it.key) for it in agent.waiting]
        is_new = not set(now) <= set(self._notes.reported)
        if call.reaches_agent:
            self._notes.reported = [*others, *now]
        return describe_waiting(agent) if is_again or (is_new and call.reaches_agent) else ""

    @property
    def _agent(self) -> HookAgent:
        """The agent and what it holds now."""
        return self._holder.agent(self._name, self._call.holds_all)

    @property
    def _name(self) -> str:
        return name_of(self._call, self._notes)

    @property
    def _main(self) -> str:
        """The main agent, as in `HookCall.agent`."""
        return main_of(self._call)

    def _policy_notice(self) -> str | None:
        """That `holdlog.toml` is not in force although there is one."""
        return project_policy(os.environ, Path(self._call.folder))[1].notice

    def _policy_of(self, path: str) -> tuple[Policy, PathRule]:
        workspaces = self._engine.requests.rules.settings.workspaces
        return (Policy(), DEFAULT_RULE) if workspaces is None else rule_of(workspaces.located, path)

    def _rule_of(self, path: str) -> FolderRule:
        """The rule for a path, and for what is below it if it is a folder."""
        workspaces = self._engine.requests.rules.settings.workspaces
        if workspaces is not None and os.path.isdir(path) and not os.path.islink(path):
            return rule_below(workspaces.located, path)
        return FolderRule(self._policy_of(path)[1])

    def _check_reads(self) -> str | None:
        """Warn about files that changed since the agent read them, once for each content. Returns why the edit is
        denied, if the policy is to deny it."""
        reason = None
        for path in self._call.real_paths:
            read, resource = self._reads.of(path), self._holder.file(path)
            if read is None or resource is None or self._reads.is_current(path):
                continue
            digest = digest_of(path)
            is_new = self._reads.note_content(path, digest)
            policy, _ = self._policy_of(path)
            if not is_new or policy.stale_reads == "off":
                continue
            name = self._name if self._call.client in SHARED_SERVER else None
            change = self._holder.change_by_another(resource, read.at, name)
            text = describe_stale(self._engine, resource, change, self._name)
            self._warnings.append(text)
            if policy.stale_reads == "deny" and change is not None:
                self._denials.note(path, digest)
                reason = reason or text
        return reason

    def _record_changes(self) -> None:
        """Record the files that the call has changed, each once for each content."""
        for path in self._call.real_paths:
            now, claim, read = read_now(path), self._noted(path), self._reads.of(path)
            known = read.latest if read is not None else claim.digest if claim is not None else ""
            if now.digest != known and (now.digest == MISSING or len(now.digest) == SHA256_LENGTH):
                self._holder.record_change(path, self._name, None if now.digest == MISSING else now.digest)
            self._reads.note(path, now)

    def _claim_all(self) -> str | None:
        """Claim what the call is about to change, or nothing. Returns why the edit is denied. Raises HoldlogErrors if
        some files are not guarded."""
        new: list[str] = []
        failed: HoldlogError | None = None
        for path in self._call.paths:
            rule, below, is_complete = self._rule_of(path)
            name = os.path.relpath(path, self._call.folder) + (f"/{below}" if below else "")
            if rule.mode == "human":
                return self._denied(path, new, describe_human(name, rule))
            if not is_complete:
                self._warnings.append(describe_unexamined(name))
            try:
                if self._claim(path):
                    new.append(os.path.realpath(path))
            except BusyError as refusal:
                if self._holder.is_own(refusal.hold, self._names_of_others()):
                    continue
                if rule.mode == "warn":
                    self._warnings.append(describe_warning(self._engine, refusal.hold, rule, self._name))
                    continue
                bound = self._session.server != "" or self._call.client == "codex"
                hold = self._with_end(refusal.hold)
                return self._denied(path, new, describe_denial(self._engine, hold, self._name, bound))
            except UnavailableError:
                raise
            except HoldlogError as error:  # the other files are guarded nevertheless
                failed = failed or error
        if failed is not None:
            raise failed
        return None

    def _with_end(self, hold: Hold) -> Hold:
        """The hold, as ended if hooks know that its agent has ended."""
        lease = self._holder.lease_of(hold)
        if lease is None or lease.session is None or not Sessions(self._files).has_ended(lease.session, lease.agent):
            return hold
        return hold._replace(session_ended=True)

    def _denied(self, path: str, new: list[str], reason: str) -> str:
        """Release what this call has claimed, and note the denial to see whether the host obeys it."""
        self._release(lambda it: it.by == self._call.agent and it.path in new)
        real = os.path.realpath(path)
        self._denials.note(real, digest_of(real))
        return reason

    def _claim(self, path: str) -> bool:
        """Claim a file, and note it. Returns whether the agent did not hold it before: a file outside of every
        workspace never is."""
        real = os.path.realpath(path)
        claimed = self._holder.claim(path, self._name)
        if claimed is None:
            return False
        resource, version, is_new, elsewhere = claimed
        if self._call.event == "pre-edit":
            self._warn_of_others(resource, elsewhere)
        if is_new:
            self._claimed[resource] = path
        before = self._noted(real)
        if before is None or (before.version, before.agent) != (version, self._name):
            made = is_new or real in self._denied_before
            claim = HookClaim(self._call.agent, real, resource, version, self._name, made, digest_of(real))
            self._notes.note(claim)
        return is_new

    def _warn_of_others(self, resource: str, elsewhere: Sequence[tuple[str, str]]) -> None:
        """Warn once, for each file and agent, that others edit the same file in another worktree."""
        others = [it for it in elsewhere if it[1] != self._name]
        text = describe_elsewhere(self._engine, resource, others) if others else ""
        file = f"{self._session.held_by}.elsewhere"
        line = json.dumps([self._call.agent, resource])
        if text and line not in self._files.text_of(file, MAX_WARNED).splitlines():
            self._files.append(file, f"{line}\n")
            self._warnings.append(text)

    def _noted(self, path: str) -> HookClaim | None:
        return self._notes.claims.get((self._call.agent, path))

    def _note_losses(self) -> None:
        """Note what the session lost, also before it was replaced: it is reported once."""
        for session in sorted(self._holder.sessions):
            self._losses += self._holder.of(session).lost()

    def _claim_again(self, claim: HookClaim) -> None:
        """Claim under the current session and name what was released under another one."""
        self._notes.claims.pop((claim.by, claim.path), None)
        name = self._notes.names.setdefault(claim.by, claim.agent)
        try:
            claimed = self._holder.claim(claim.path, name)
        except HoldlogError:  # somebody waited for it: the next edit is denied
            return
        if claimed is not None:
            resource, version, is_new, _ = claimed
            self._notes.note(claim._replace(resource=resource, version=version, agent=name, made=is_new))

    def _rename(self, name: str) -> None:
        """The agent calls itself `name` in our tools: its claims get that name, because another name is another
        holder."""
        try:
            name = allowed_agent_name(name)
        except ValueError:
            return  # the tool refuses it, too
        if name == self._notes.names.get(self._call.agent):
            return
        self._notes.names[self._call.agent] = name
        for claim in list(self._notes.claims.values()):
            if claim.by == self._call.agent and claim.agent != name and claim.made:
                self._holder.release(claim)
                self._claim_again(claim)

    def _hand_over(self) -> None:
        """Release what the agent is about to claim by our tools, if they claim in another session than hooks, that of a
        server over HTTP: otherwise the agent would wait for itself."""
        if self._call.claiming and self._session.held_by.startswith("hook-"):
            names = {self._holder.resource(it) for it in self._call.claiming}
            self._release(lambda it: it.by == self._call.agent and it.resource in names)

    def _names_of_others(self) -> set[str]:
        """The names of the session's other agents, without the main agent, for which the others work."""
        names = {name for key, name in self._notes.names.items() if key != self._call.agent}
        names |= {it.agent for it in self._notes.claims.values() if it.by != self._call.agent}
        return names - {self._name, self._notes.names[self._main]}

    def _renew(self) -> None:
        """Renew what the agent holds: one call renews all. What has ended is claimed again when the agent edits it."""
        live = {(it.resource, it.version) for it in self._holder.leases()}
        claims = self._notes.claims
        self._notes.claims = {key: it for key, it in claims.items() if (it.resource, it.version) in live}
        for claim in self._notes.claims.values():
            if claim.agent == self._name:
                with suppress(HoldlogError):  # it ended just now
                    self._claim(claim.path)
                return

    def _release_unchanged(self) -> None:
        """Release what the agent did not change, or what git has committed; with paths, only those."""
        own = [it for it in self._notes.claims.values() if it.by == self._call.agent and it.made]
        if self._call.paths:
            own = [it for it in own if it.path in self._call.real_paths]
        kept = uncommitted([it.path for it in own if digest_of(it.path) != it.digest])
        self._release(lambda it: it in own and it.path not in kept)

    def _release(self, is_released: Callable[[HookClaim], bool]) -> None:
        for key, claim in list(self._notes.claims.items()):
            if is_released(claim):
                del self._notes.claims[key]
                if claim.made:
                    self._holder.release(claim)
