"""What a hook call does in one store: it claims the files that the agent is about to change, records its changes,
releases the files that it did not change, and reports losses and waiters to the agent. Quick to import."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import (
    PROCESS_SESSION,
    SHELL,
    Adopt,
    Conversation,
    Rename,
    is_live,
    list_conversations,
    name_call,
    name_session,
    shorten_id,
)
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Batch
from holdlog.adapters.hooks.calls import HookCall, Output, limit
from holdlog.adapters.hooks.describe import Describer, shorten
from holdlog.adapters.hooks.files import (
    MISSING,
    File,
    Known,
    describe_settings,
    find_settings,
    hash_content,
    list_uncommitted,
)
from holdlog.adapters.hooks.places import Place
from holdlog.adapters.operating_system.location import prepare_folder, read_variable
from holdlog.adapters.operating_system.processes import identify_host, is_alive
from holdlog.adapters.operating_system.workspaces import Workspaces, find_workspaces
from holdlog.adapters.policy.in_force import FILE, find_rule_below, is_shared, read_policy
from holdlog.adapters.stores import sql
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.claim import Claim, Outcome, wants
from holdlog.domain.claims.commands import Acquire, Call, Release
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.results import Busy, Claimed
from holdlog.domain.moment import IDLE_LIMIT, LEASE, SECOND, Caller
from holdlog.domain.names import check_agent
from holdlog.domain.results import Lost
from holdlog.domain.state import Reads

MAX_FACTS: Final = 200
MAX_CALLS: Final = 8
RESUME_WITHIN: Final = 10 * SECOND
"""Microseconds. If a conversation ends in order to be resumed, and its host starts a resumed one within this time, the
two are the same."""
_PLACE: Final = "place "
"""Prefix of a fact in a row that names another place, as JSON."""


@contextmanager
def open_work(call: HookCall, place: Place, paths: Sequence[str], is_own: bool) -> Iterator["Work"]:
    """Open the store of a place for a call, and close it after the block. Creates a missing store. `paths`, `is_own`:
    see Work. Raises StoreError, UnavailableError."""
    if not os.path.lexists(place.store):
        prepare_folder(place.store, os.environ)
    engine = open_engine(place.store)
    try:
        yield Work(call, place, paths, engine, is_own)
    finally:
        engine.close()


class Work:
    """One call in one store. `paths`: the files of the call that belong there. `is_own`: the agent works there."""

    def __init__(self, call: HookCall, place: Place, paths: Sequence[str], engine: Engine, is_own: bool) -> None:
        self.call, self.place, self.engine = call, place, engine
        self._is_own = is_own
        self.host = identify_host()
        session = name_session(call.session)
        self._rows = list_conversations(engine.store, self.host, session)
        servers = [it for it in self._rows if it.session.startswith(PROCESS_SESSION) and it.host == self.host]
        self._servers = [it.name for it in servers]
        self.workspaces = self._find_workspaces()
        times = next((it.facts for it in servers if is_alive(it.name)), ()) or (LEASE, IDLE_LIMIT)
        lease, idle = _read_seconds("lease_seconds", times[0]), _read_seconds("idle_limit", times[1])
        self.caller = Caller(session, host=self.host, lease=lease, idle_limit=idle)
        self._ended = self._list_ended()
        self._row = self._find_row(call.agent)
        self.name = self._row.name
        self._claimed: list[str] = []
        self.new_problem = ""
        """Why the call is not guarded; empty if an earlier call has reported it to the agent."""
        self.released: list[str] = []
        """The resources that the end of a turn has released."""
        self.former_name = ""
        """The agent's name before this call, if the call has renamed it."""
        self._losses: list[Lost] = []
        self.held: tuple[Claim, ...] = ()
        """What the agent and its sub-agents hold."""
        self._waiting: tuple[Claim, ...] = ()
        """The tickets of agents that wait for these claims."""
        self._new_waiting: tuple[Claim, ...] = ()
        self._texts: list[str] = []
        self._paths = paths
        self.files = list(self._name_files(paths))

    @property
    def who(self) -> HolderId:
        return HolderId(self.name, self.caller.session)

    @property
    def others(self) -> set[str]:
        """The names of the other agents of the conversation. One may be the same as that of this agent."""
        rows = [it for it in self._rows if it.session == self.caller.session]
        return {it.name for it in rows if it.agent != self.call.agent}

    @property
    def _describer(self) -> Describer:
        return Describer(self.name, self.workspaces.format_name)

    def handle(self) -> Output:
        """Handle the event of the call. Returns the output for the host."""
        if self._ended:
            self._resume()
        match self.call.event:
            case "pre-edit":
                return self._check_edit()
            case "post-edit" | "read":
                return self._record_changes()
            case "prompt" | "start":
                return self._report()
            case "turn-end":
                self._end_turn()
            case _:
                self._end()
        return Output()

    def note_place(self, place: Place) -> None:
        """Record in this store that the conversation may hold something in the store of another place."""
        self._note_once(f"{_PLACE}{json.dumps(place)}")

    def list_places(self) -> list[Place]:
        """The other places where the conversation may hold something."""
        own = [it for it in self._rows if it.session == self.caller.session]
        facts = {fact for row in (*own, *self._ended, self._row) for fact in row.facts}
        return [Place(*json.loads(fact.removeprefix(_PLACE))) for fact in sorted(facts) if fact.startswith(_PLACE)]

    def release(self) -> None:
        """Release what this call has claimed, because another store has denied the call."""
        with self._transact(claims="all") as batch:
            for resource in self._claimed:
                self._decide(Release(self.name, resource), batch)

    # --- events

    def _check_edit(self) -> Output:
        call = self.call
        if call.called_name is not None:
            self._rename(call.called_name)
        problem = call.targets.problem if self._is_own else ""
        if problem and self._note_once(f"problem {problem}"):
            self.new_problem = problem
            end = "" if "not guarded" in problem else ", so this call is not guarded"
            self._texts.append(f"holdlog: {problem}{end}.")
        reason = self._check_policy() or self._check_command() or self._claim()
        waiting = self._describe_waiting(self._waiting if self.files else self._new_waiting)
        texts = [*self._texts, self._describe_losses(), waiting]
        settings = find_settings(self._paths)
        if reason is None and settings is not None:
            texts.insert(0, describe_settings(settings, call.folder))
            return Output(" ".join(filter(None, texts)), "ask")
        return Output(" ".join(filter(None, [reason, *texts])), "deny" if reason is not None else "")

    def _record_changes(self) -> Output:
        """Record the files that the agent has read or changed; a change only if the content differs from the last."""
        is_edit = self.call.event == "post-edit"
        files = [] if self.call.failed else self.files
        digests = {file: hash_content(file.path) for file in files}
        with self._transact(files) as batch:
            known = self._read_known(files)
            changes: list[tuple[str, str | None]] = []
            for file, digest in digests.items():
                row = known.get(file.resource)
                if row is not None and row.digest == digest:
                    continue
                if is_edit and (digest == MISSING or len(digest) == 64):
                    changes.append((file.resource, None if digest == MISSING else digest))
                self._put_file(file, digest, batch, row.grant if row is not None else 0)
            self._note_call(batch, ends=self.call.id if is_edit else None, changes=changes)
        texts = (
            self._describe_losses(),
            self._report_others_files() if is_edit else "",
            self._describe_waiting(self._new_waiting),
        )
        return limit(" ".join(filter(None, texts)))

    def _report(self) -> Output:
        """Report losses, claims and waiters at the start of a conversation and with each prompt."""
        with self._transact() as batch:
            self._note_call(batch, ends="*")
        describer, is_start = self._describer, self.call.event == "start"
        parts = [f"your agent name is {self.name}; hooks claim the files that you edit"] if is_start else []
        parts += describer.describe_losses(self._losses, self.held)
        if self._waiting:
            parts.append(f"waiting for you: {describer.describe_waiting(self._waiting)}")
        if self.held:
            parts.append(f"you hold {describer.list(sorted({it.resource for it in self.held}))}")
        if is_start and (notice := read_policy(self.place.root).notice) is not None:
            parts.append(f"{notice} (holdlog doctor shows why)")
        return limit(f"holdlog: {'; '.join(parts)}." if parts and self.call.reaches_agent else "")

    def _end_turn(self) -> None:
        """Release the files that hooks claimed for the agent, if it did not change them, or if git has committed the
        changes."""
        with self._transact() as batch:
            self._note_call(batch, ends="*")
            held = {it.key for it in self.held if it.who == self.who}
            rows = [Known(*row) for row in self._execute(sql.MADE, self._key)]
            rows = [row for row in rows if (row.resource, row.grant) in held]
            outcomes = {row.resource: self._find_outcome(row) for row in rows}
        changed = [row for row in rows if outcomes[row.resource] != "released"]
        uncommitted = list_uncommitted(self.place.root, [row.path for row in changed])
        released = [row for row in rows if not (row in changed and row.path in uncommitted)]
        self.released = [row.resource for row in released]
        if released:
            with self._transact(claims="all") as batch:
                for row in released:
                    self._decide(Release(self.name, row.resource, outcome=outcomes[row.resource]), batch)

    def _end(self) -> None:
        """Release all that a sub-agent or a conversation that has ended holds or waits for."""
        call = self.call
        is_session = call.event == "session-end"
        if not is_session and not call.agent:
            return
        if is_session and call.resumes:  # it continues under another id, which takes over its claims
            with self.engine.write_alone() as batch:
                for row in [it for it in self._rows if it.session == self.caller.session]:
                    ended = row._replace(has_ended=True, calls={}, seen_at=batch.steady)
                    self._execute(sql.PUT_CONVERSATION, ended.encode())
            return
        with self._transact(claims="all") as batch:
            self._note_call(batch, ends="*", is_kept=False)
            board, own = batch.state.board, self.who
            mine = {own.agent} - self.others
            names = {it.agent for it in board.holders if it[1:] == own[1:]} if is_session else mine
            grants = [it for it in board.claims.values() if not it.is_ticket and it.who[1:] == own[1:]]
            for claim in [grant for grant in grants if grant.who.agent in names]:
                facts = Known(claim.resource, "", "", 0, claim.version)
                self._decide(Release(claim.who.agent, claim.resource, outcome=self._find_outcome(facts)), batch)
            for name in sorted(names):
                self._decide(Release(name), batch)
            self._execute(sql.END_CONVERSATION if is_session else sql.END_AGENT, self._key)

    # --- claims

    def _claim(self) -> str | None:
        """Claim all files that the call changes, or none. Returns why the call is denied, None if it is allowed."""
        elsewhere = {file.resource: self.workspaces.list_elsewhere(file.resource) for file in self.files}
        more = tuple(name for others in elsewhere.values() for _, name in others)
        with self._transact(self.files, more) as batch:
            known = self._read_known(self.files)
            blocked = [file for file in self.files if file.mode != "warn"]
            busy = self._acquire(blocked, known, batch) if blocked else None
            if busy is not None:
                has_server = any(map(is_alive, self._servers))  # of this store, which the agent's host runs
                reason: str | None = self._describer.describe_denial(busy, has_server)
            else:
                for file in self.files:
                    if file.mode == "warn" and (other := self._acquire([file], known, batch)) is not None:
                        self._texts.append(self._describer.describe_warning(other))
                self._warn_of_others(elsewhere, batch)
                reason = self._check_reads(known, batch)
            self._note_call(batch, begins=self.call.id if reason is None and self._begins_call() else None)
        return reason

    def _acquire(self, files: Sequence[File], known: dict[str, Known], batch: Batch) -> Busy | None:
        first, *rest = [file.resource for file in files]
        result = self._decide(Acquire(first, self.name, also=rest or None), batch)
        if not isinstance(result, Claimed):
            return result if isinstance(result, Busy) else None
        versions = {first: result.version, **{it.resource: it.version for it in result.also or ()}}
        for file in files:
            row, version = known.get(file.resource), versions[file.resource]
            grant = batch.state.board.claims.get((file.resource, version))
            is_new = grant is not None and grant.position > batch.head.position
            if is_new or (row is not None and row.grant):
                self._claimed += [file.resource] if is_new else []
                self._put_file(file, row.digest if row is not None else hash_content(file.path), batch, version, row)
        return None

    def _warn_of_others(self, elsewhere: dict[str, list[tuple[str, str]]], batch: Batch) -> None:
        """Warn once of those who edit the same file in another worktree."""
        for resource, others in elsewhere.items():
            names = [
                (workspace, claim.who.agent)
                for workspace, name in others
                for claim in batch.state.board.list_grants(name)
                if claim.who.agent != self.name
            ]
            if names and self._note_once(f"elsewhere {resource}"):
                self._texts.append(self._describer.describe_elsewhere(resource, names))

    def _check_reads(self, known: dict[str, Known], batch: Batch) -> str | None:
        """Warn about files that have changed since the agent read them, once for each content. Returns why the edit is
        denied, if the policy is to deny it."""
        reason, mode = None, read_policy(self.place.root).stale_reads
        for file in self.files:
            row = known.get(file.resource)
            if row is None or (digest := hash_content(file.path)) == row.digest:
                continue
            own = batch.state.board.find_own(file.resource, self.who)
            is_by_hook = row.grant or file.resource in self._claimed
            self._put_file(file, digest, batch, own.version if is_by_hook and own is not None else 0)
            change = self._find_change(file.resource, row.at)
            text = self._describer.describe_stale(file.resource, change)
            if mode == "deny" and change is not None:
                reason = reason or text
            elif mode != "off":
                self._texts.append(text)
        return reason

    def _find_change(self, resource: str, since: int) -> tuple[int, str, bool] | None:
        """The last change of a file by another agent since a time (microseconds since 1970): when, by which agent, and
        whether it removed the file."""
        for at, by, session, digest in self._execute(sql.CHANGES_SINCE, {"stream": f"claim:{resource}", "version": 0}):
            if at < since:
                break
            if (by, session) != (self.name, self.caller.session):
                return at, by, digest is None
        return None

    def _find_outcome(self, row: Known) -> Outcome:
        """What the agent has done to a file since the claim was granted."""
        changes = self._execute(sql.CHANGES_SINCE, {"stream": f"claim:{row.resource}", "version": row.grant})
        own = [change for change in changes if change[2] == self.caller.session]
        if own:
            return "deleted" if own[0][3] is None else "modified"
        return "modified" if row.path and hash_content(row.path) != row.digest else "released"

    # --- the agent

    def _find_row(self, agent: str) -> Conversation:
        """The row of an agent of this conversation, or a new one. A conversation that resumes under another id keeps
        its names."""
        session = self.caller.session
        earlier = {it.agent: it for it in self._rows if it.session == session} | {it.agent: it for it in self._ended}
        row = earlier.get(agent)
        if row is not None:
            return row._replace(session=session, host=self.host or "-", has_ended=False)
        if agent:
            name = f"{self._find_row('').name}/{shorten_id(agent)}"
        else:
            name = f"{self.call.client}-{shorten_id(self.call.session)}"
        return Conversation(session, agent, name, self.host or "-", 0, {}, False, ())

    def _list_ended(self) -> list[Conversation]:
        """The agents of the conversation that this one resumes: if the host reports a resumption at the start, and only
        one conversation of the host has just ended."""
        if self.call.event != "start" or not self.call.resumes:
            return []
        since, session = self.engine.store.steady() - RESUME_WITHIN, self.caller.session
        ended = [it for it in self._rows if it.has_ended and it.host == self.host and it.session != session]
        ended = [it for it in ended if it.seen_at >= since]
        return ended if len({it.session for it in ended}) == 1 else []

    def _resume(self) -> None:
        """Take over the claims and records of the conversation that this one resumes, as after /clear."""
        moved = {"before": self._ended[0].session, "session": self.caller.session}
        with self._transact(claims="all") as batch:
            self._decide(Adopt(moved["before"]), batch)
            for row in self._ended:
                facts = row._replace(session=moved["session"], has_ended=False, seen_at=batch.steady)
                self._execute(sql.PUT_CONVERSATION, facts.encode())
            self._execute(sql.MOVE_CONVERSATION, moved)
            self._execute(sql.MOVE_FILES, moved)

    def _rename(self, name: str) -> None:
        """Give the claims that hooks acquired for the agent the name that it passes to our tools: another name would be
        another holder. Its sub-agents that hooks have named are renamed, too."""
        try:
            name = check_agent(name)
        except ValueError:
            return  # the tool refuses it, too
        if self.name == name:
            return
        with self._transact(claims="all") as batch:
            if (before := self._row).name == name:
                return
            self.former_name = before.name
            own = [it for it in self._rows if it.session == before.session and it.agent != before.agent]
            below = [it for it in own if it.name == f"{before.name}/{shorten_id(it.agent)}"]
            for row in (before, *below):
                claimed = self._execute(sql.MADE, {"session": row.session, "agent": row.agent})
                renamed = row._replace(name=name + row.name.removeprefix(before.name))
                grants = tuple((it[0], it[4]) for it in claimed)
                self._decide(Rename(row.name, renamed.name, grants), batch)
                self._execute(sql.PUT_CONVERSATION, renamed.encode())

    def _note_call(
        self,
        batch: Batch,
        begins: str | None = None,
        ends: str | None = None,
        changes: Sequence[tuple[str, str | None]] = (),
        is_kept: bool = True,
    ) -> None:
        """Count the call of the agent, and write its row if it changed. `begins`, `ends`: the id of a call that starts
        or has ended; `*`: all. `is_kept`: unless the row will be removed."""
        lasts = self.caller.idle_limit if self.call.command else self.caller.lease
        if self.call.agent:
            lasts = min(lasts, self.caller.lease)
        self._decide(Call(self.name, None, begins, lasts, ends, tuple(changes)), batch)
        self._read_board(batch.state.board)
        calls = {} if ends == "*" else {key: kind for key, kind in self._row.calls.items() if key != ends}
        if self.call.event == "pre-edit" and (kind := self._find_announcement()) is not None:
            calls = dict([*calls.items(), (self.call.id, kind)][-MAX_CALLS:])
        facts = self._row.facts
        self._new_waiting = ()
        if self.call.reaches_agent:
            self._new_waiting = tuple(it for it in self._waiting if _ticket_key(it) not in facts)
            facts += tuple(map(_ticket_key, self._new_waiting))
        row = self._row._replace(calls=calls, facts=facts[-MAX_FACTS:])
        is_old = batch.steady - row.seen_at > self.caller.idle_limit // 8
        if is_kept and (is_old or row not in self._rows):
            self._execute(sql.PUT_CONVERSATION, row._replace(seen_at=batch.steady).encode())
        self._row = row

    def _read_board(self, board: Board) -> None:
        if not board.is_quiet and self.call.reaches_agent:
            self._losses += board.take_losses()
        own, family = self.who, f"{self.name}/"
        self.held = tuple(
            claim
            for claim in board.list_grants(*{claim.resource for claim in board.claims.values()})
            if claim.who[1:] == own[1:] and (claim.who == own or claim.who.agent.startswith(family))
        )
        resources = tuple(claim.resource for claim in self.held)
        waiters = board.list_waiters() if self.held else ()
        self._waiting = tuple(it for it in waiters if it.who != own and wants(it, resources))

    def _find_announcement(self) -> str | None:
        """How the row announces the call to a server of the host, which cannot know the conversation otherwise; None if
        it need not be announced."""
        if self.call.called_name is not None:
            return name_call(self.name)
        if not self.call.command:
            return None
        now = self.engine.store.steady()
        others = {it.session for it in self._rows if is_live(it, now) and it.host == self.host} - {self.caller.session}
        return SHELL if (self.call.agent or others) and "holdlog" in self.call.command else None

    def _begins_call(self) -> bool:
        """Whether the call counts as open until its end is reported: a command that only reads does not."""
        targets = self.call.targets
        return not self.call.command or targets.reports or bool(targets.git or targets.paths)

    def _note_once(self, fact: str) -> bool:
        """Record that a fact is reported to the agent. Returns False if it already was."""
        if fact in self._row.facts:
            return False
        self._row = self._row._replace(facts=(*self._row.facts, fact))
        return True

    def _describe_losses(self) -> str:
        lost = "; ".join(self._describer.describe_losses(self._losses, self.held))
        return f"holdlog: {lost}." if lost else ""

    def _describe_waiting(self, waiting: Sequence[Claim]) -> str:
        listed = self._describer.describe_waiting(waiting)
        return f"holdlog: waiting for you: {listed}; finish these files first." if listed else ""

    # --- files and policy

    def _find_workspaces(self) -> Workspaces:
        environ = {**os.environ, "CLAUDE_PROJECT_DIR": self.place.root}
        workspaces = find_workspaces(environ, self.place.root, self.place.store, (), is_shared)
        if self._is_own:
            workspaces.start = os.path.realpath(self.call.folder)
        return workspaces

    def _name_files(self, paths: Sequence[str]) -> Iterator[File]:
        for named in paths:
            is_folder = named.endswith("/") or (os.path.isdir(named) and not os.path.islink(named))
            path = os.path.realpath(named) + "/" * is_folder
            resource = None if path.startswith(self.place.store) else self.workspaces.name_file(path)
            if resource is not None:
                yield File(path.rstrip("/"), resource, *self._find_rule(path))

    def _find_rule(self, path: str) -> tuple[str, ...]:
        """The mode of a path, and the path below it that has this mode."""
        if self.call.event != "pre-edit":
            return ()
        roots = (it.root for it in self.workspaces.known if it.find_path(path.rstrip("/")) is not None)
        root = next(roots, self.place.root)
        inside = os.path.relpath(path, root)
        if os.path.isdir(path):
            rule, below = find_rule_below(root, "" if inside == "." else inside)
        else:
            rule, below = read_policy(root).find_rule(inside), ""
        return rule.mode, below

    def _check_policy(self) -> str | None:
        for file in self.files:
            if file.mode == "human":
                name = shorten(os.path.join(os.path.relpath(file.path, self.call.folder), file.below).rstrip("/"))
                remedy = "Describe the change that you need to your user instead"
                return f"holdlog: only a person may change {name} ({FILE}). {remedy}."
        return None

    def _check_command(self) -> str | None:
        """Why a shell command is denied because of the commands of holdlog or git in it; None if it is allowed. Then it
        records the state of the files that the command may change."""
        if self.call.targets.own and (denial := self._shell().judge_own(self.call.targets.own)):
            return str(denial)
        if self.call.reading is None:
            return None
        denial, warnings = self._shell().judge(self.call.reading, self.call.folder)
        self._texts += warnings
        if not denial:
            self._shell().note(self.call.reading, self.call.folder, self.call.id)
        return denial or None

    def _report_others_files(self) -> str:
        """Describe what the command did to files of other agents; empty if nothing."""
        key = {"session": self.caller.session, "agent": f"before {self.call.id}"}
        has_marks = self.call.command and self.engine.store.read(sql.MARKS, key)
        return self._shell().compare(self.call.id) if has_marks else ""

    def _shell(self) -> Any:
        from holdlog.adapters.hooks.shell_calls import ShellCall  # only shell commands need it

        return ShellCall(self.engine, self.who, self.caller, self.workspaces, self.place.store)

    # --- the store

    @contextmanager
    def _transact(self, files: Sequence[File] = (), more: tuple[str, ...] = (), claims: Any = "own") -> Iterator[Batch]:
        """A transaction that first reads the rows again: another hook of the agent may have changed them."""
        resources = (*(file.resource for file in files), *more)
        reads = Reads(resources=resources, claims=claims, agent=self.name, queues=True)
        with self.engine.write_alone([(reads, self.caller)]) as batch:
            facts = self._row.facts
            self._rows = list_conversations(self.engine.store, self.host, self.caller.session)
            self._row = self._find_row(self.call.agent)
            self._row = self._row._replace(facts=tuple(dict.fromkeys((*self._row.facts, *facts))))
            self.name = self._row.name
            yield batch

    def _decide(self, command: Any, batch: Batch) -> Any:
        return self.engine.decide(command, self.caller, batch)

    def _execute(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        return self.engine.store.execute(statement, parameters)

    @property
    def _key(self) -> dict[str, Any]:
        return {"session": self.caller.session, "agent": self.call.agent}

    def _read_known(self, files: Sequence[File]) -> dict[str, Known]:
        if not files:
            return {}
        names = json.dumps([file.resource for file in files])
        rows = self._execute(sql.FILES, {**self._key, "names": names})
        return {row[0]: Known(*row) for row in rows}

    def _put_file(self, file: File, digest: str, batch: Batch, grant: int, row: Known | None = None) -> None:
        at = row.at if row is not None else batch.at
        facts = {"resource": file.resource, "path": file.path, "digest": digest, "at": at, "made": grant}
        self._execute(sql.PUT_FILE, {**self._key, **facts})


def _ticket_key(waiting: Claim) -> str:
    return f"ticket {waiting.resource}@{waiting.version}"


def _read_seconds(setting: str, default: int | str) -> int:
    """A duration from the environment, in microseconds."""
    with suppress(ValueError, OverflowError):
        return max(SECOND, round(float(read_variable(setting) or "") * SECOND))
    return int(default)
