"""The conversations of agents, as hooks of their hosts have reported them, and in which of them a process acts.

Liveness, not history: rows of the table `conversations`, which are in no event. Quick to import.
"""

import json
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operating_system.processes import NAMED
from holdlog.adapters.stores.sql import CONVERSATIONS, END_CONVERSATION, PUT_CONVERSATION
from holdlog.domain.claims.board import Board
from holdlog.domain.claims.holder import RECEIPT, HolderId
from holdlog.domain.claims.queue import grant_waiting
from holdlog.domain.moment import IDLE_LIMIT, Caller, Moment
from holdlog.domain.names import MAX_AGENT, check_label
from holdlog.domain.refusals import InvalidError
from holdlog.domain.state import Decision, Reads, State

SHELL: Final = "shell"
"""Marks an announced call of a shell."""
PROCESS_SESSION: Final = "process-"
"""Prefix of the session of a server whose conversation is not known yet. Such a session has a row, too: `name` is the
handle of the server, `facts` are the lease and the idle limit for the agents of its host, in microseconds."""


class Conversation(NamedTuple):
    """An agent of a conversation. `agent`: its id from the host, empty for the main agent. `name`: its name as a holder
    of claims. `seen_at`: microseconds of the steady clock. `calls`: running calls, by id: SHELL or `name_call(name)`.
    `has_ended`: it continues under another id, which is in `host` once the new conversation has started. `facts`: what
    its hooks have already reported to it, so that they do so once."""

    session: str
    agent: str
    name: str
    host: str
    seen_at: int
    calls: dict[str, str]
    has_ended: bool
    facts: tuple[str, ...]

    @classmethod
    def read(cls, session: str, agent: str, name: str, host: str, seen: int, calls: str, ended: int, facts: str) -> Any:
        """From a row."""
        return cls(session, agent, name, host, seen, json.loads(calls), bool(ended), tuple(json.loads(facts)))

    def encode(self) -> dict[str, Any]:
        """The parameters of PUT_CONVERSATION."""
        texts = {"calls": json.dumps(self.calls), "has_ended": int(self.has_ended), "told": json.dumps(self.facts)}
        return self._asdict() | texts


def require_text(name: str, text: Any, check: Callable[[str], str] = check_label) -> str:
    """A text that the caller passes in this argument, as its check returns it. Raises InvalidError."""
    try:
        if isinstance(text, str):
            return check(text)
    except ValueError as error:
        raise InvalidError(f"{name}: {error}") from None
    raise InvalidError(f"{name}: must be a text")


def require_session(text: Any, name: str = "session") -> str:
    """A session that the caller names itself. Raises InvalidError."""
    if (session := require_text(name, text)).startswith(RECEIPT):
        raise InvalidError(f"{name}: must not begin with {RECEIPT}; pass a receipt as receipt")
    return session


def name_session(conversation: str) -> str:
    """The session of a conversation: its id, if that can be one."""
    if conversation.isascii() and conversation.isprintable() and len(conversation) <= MAX_AGENT:
        return conversation.strip() or "-"
    return sha256(conversation.encode(errors="surrogatepass")).hexdigest()


def shorten_id(text: str) -> str:
    """Six characters that distinguish the agents of one repository, as a part of a name."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]


def name_call(name: str) -> str:
    """Marks an announced call of a tool of holdlog, to which the agent passes this name."""
    return f"tool {name}"


def list_conversations(reader: Reader, host: str | None, session: str) -> list[Conversation]:
    """The agents of all conversations below a host, and those of a session."""
    return [Conversation.read(*row) for row in reader.read(CONVERSATIONS, {"host": host or "-", "session": session})]


def list_candidates(reader: Reader, host: str | None, call: str = SHELL) -> list[Conversation]:
    """The conversations in which a process below a host (`identify_host`) may act, an agent of each: the one that its
    environment names; those whose hook announced the call (SHELL, or `name_call(agent)` for a tool); or all live ones.
    If there is only one, a caller acts in its `session`, and under its `name` unless it passes another."""
    named = next((os.environ[name] for name in NAMED if os.environ.get(name)), "") if call == SHELL else ""
    rows = [it for it in list_conversations(reader, host, named) if is_live(it, reader.steady())]
    rows = [it for it in rows if it.session == named] or [it for it in rows if host is not None and it.host == host]
    if announced := [it for it in rows if call in it.calls.values()]:
        return list({it.session: it for it in announced}.values())
    return list({it.session: it for it in sorted(rows, key=lambda it: it.agent, reverse=True)}.values())


def find_conversation(reader: Reader, host: str | None) -> Conversation | None:
    """The conversation in which a process acts, None if it is not known: there are no candidates, or several."""
    candidates = list_candidates(reader, host)
    return candidates[0] if len(candidates) == 1 else None


class Adopt(NamedTuple):
    """Give the caller's session what the former session of its conversation holds or waits for. `agent`: only the
    claims of this agent, the agents above it, and its sub-agents."""

    session: str
    agent: str = ""

    def reads(self) -> Reads:
        return Reads(claims="all")

    def decide(self, state: State, moment: Moment) -> Decision:
        board: Board = state.board
        board.start(moment)
        own = HolderId(self.agent, self.session, moment.caller.principal)
        others = [holder for holder in board.holders.values() if holder.who[1:] == own[1:]]
        left = [holder for holder in others if not self.agent or holder.who.is_family(own)]
        for holder in left:
            board.keep_holder(holder._replace(handles=(), open_calls=(), has_left=True))
        for holder in left:
            board.hand_over(holder.who, holder.who._replace(session=moment.caller.session))
        grant_waiting(board)
        return board.events, None


class Rename(NamedTuple):
    """Rename an agent of the caller's session: these claims (resources and versions) and its open calls get the new
    name. In one transaction, so that no other agent gets a claim in between."""

    before: str
    name: str
    claims: tuple[tuple[str, int], ...]

    def reads(self) -> Reads:
        return Reads(claims="all")

    def decide(self, state: State, moment: Moment) -> Decision:
        board: Board = state.board
        who = board.start(moment, self.name)
        former = board.holders.get(who._replace(agent=self.before))
        held = [claim for key in self.claims if (claim := board.claims.get(key)) is not None]
        if former is None:
            return board.events, None
        for claim in [claim for claim in held if claim.who == former.who]:
            board.enter(who)
            board.give(claim, who)
        board.keep_holder(former._replace(open_calls=()))
        if (holder := board.holders.get(who)) is not None:
            for call, end in former.open_calls:
                holder = holder.begin_call(call, end)
            board.keep_holder(holder)
        grant_waiting(board)
        return board.events, None


def enter_server(engine: Any, caller: Caller) -> None:
    """Record that a server runs below a host and beats for the host's agents, so that hooks know. `caller`: makes the
    server's calls that are in no conversation. Raises UnavailableError."""
    times = (str(caller.lease), str(caller.idle_limit))
    row = Conversation(caller.session, "", caller.handle or "", caller.host or "-", 0, {}, False, times)
    engine.beats.serve(caller)
    with engine.write_alone() as batch:
        engine.store.execute(PUT_CONVERSATION, row._replace(seen_at=batch.steady).encode())


def leave_server(engine: Any, caller: Caller) -> None:
    with engine.write_alone():
        engine.store.execute(END_CONVERSATION, {"session": caller.session})


def is_live(conversation: Conversation, now: int) -> bool:
    if conversation.session.startswith(PROCESS_SESSION):
        return False
    return not conversation.has_ended and now - conversation.seen_at < IDLE_LIMIT
