"""The board of claims and queues, as text."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import Field

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.past.responses import PastHeld
from holdlog.adapters.api.request import Query
from holdlog.adapters.cli.texts import duration, marked, short, table
from holdlog.domain.ports import Reader

PAGE = 1000
SESSION_CHARACTERS = 6
"""Characters of a session's hash in a table."""


AnyHeld = TypeVar("AnyHeld", bound=claims.Held | PastHeld)
Facts = tuple[str, str, str, str]


class BoardWithSessions(claims.Board):
    """The board, and the sessions of the claims: by resource as shown, and version; and the resources whose folder is
    gone. JSON leaves them out."""

    sessions: dict[tuple[str, int], str] = Field(default={}, exclude=True)
    gone: frozenset[str] = Field(default=frozenset(), exclude=True)


def board_with_sessions(requests: Any, agent: str | None, after: str | None) -> Query[BoardWithSessions]:
    board: Query[claims.Board] = requests.claims.board(agent, PAGE, after)

    def answer(reader: Reader) -> BoardWithSessions:
        found = board.answer(reader)
        shown = requests.rules.spell
        grants = [(shown(claim.resource), grant) for claim in reader.claims(None, -1) for grant in claim.grants]
        sessions = {(name, grant.version): grant.session for name, grant in grants if grant.session is not None}
        workspaces = requests.rules.settings.workspaces
        names = (it.resource for it in found.claims)
        gone = frozenset(filter(workspaces.is_gone, names) if workspaces is not None else ())
        return BoardWithSessions(**found.__dict__, sessions=sessions, gone=gone)

    return Query(answer, large=True)


def describe_board(board: claims.Board) -> str:
    sessions = board.sessions if isinstance(board, BoardWithSessions) else {}
    gone = board.gone if isinstance(board, BoardWithSessions) else frozenset()

    def facts(held: claims.Held) -> Facts:
        left = f"expires in {duration(held.expires_in_seconds)}"
        return (
            f"{left}{'' if held.holder_connected else ', not connected'}{', gone' if held.resource in gone else ''}",
            _note(held.holder_note),
            ", ".join(filter(None, (held.agent_name, held.agent_model))),
            session_start(sessions.get((held.resource, held.version))),
        )

    return board_table(board.claims, board.queues, facts)


def board_table(board: Iterable[AnyHeld], queues: Iterable[claims.Queue], facts: Callable[[AnyHeld], Facts]) -> str:
    """The claims, and below each its queue. `facts`: the last columns of a claim."""
    waiters = {queue.resource: queue.line for queue in queues}
    rows: list[tuple[str, ...]] = []
    for held in board:
        holder, shared = author(marked(held.held_by), held.held_by_principal), "shared" if held.mode == "shared" else ""
        rows.append((marked(held.resource), holder, shared, f"for {duration(held.held_for_seconds)}", *facts(held)))
        rows += _queue(waiters.pop(held.resource, []))
    for resource, line in waiters.items():
        rows += [(marked(resource), *[""] * 7), *_queue(line)]
    return table(rows)


def _queue(line: Sequence[claims.Waiter]) -> list[tuple[str, ...]]:
    return [
        (
            f"  {number}. in queue",
            author(marked(waiter.agent), waiter.principal),
            "shared" if waiter.mode == "shared" else "",
            f"for {duration(waiter.since_seconds)}",
            "away" if waiter.present is False else "",
            _note(waiter.note),
            "",
            "",
        )
        for number, waiter in enumerate(line, start=1)
    ]


def _note(note: str | None) -> str:
    return "" if note is None else short(note)


def session_start(session: str | None) -> str:
    """The beginning of a session's hash; empty if each command is a session, which is the default here."""
    if session is None or session.startswith("shell-"):
        return ""
    source, _, hash_ = session.partition("-")
    return f"session {source}-{hash_[:SESSION_CHARACTERS]}"


def describe_agents(board: claims.AgentSessions) -> str:
    last_calls = [
        "" if it.idle_seconds is None else f"last call {duration(it.idle_seconds)} ago" for it in board.agents
    ]
    return table(
        [
            (
                author(marked(agent.agent), agent.principal),
                _connection(agent),
                _process(agent),
                agent.folder or "",
                _held_and_wanted(agent),
                ago,
                session_start(agent.session),
                ", ".join(filter(None, (agent.name, agent.model, agent.purpose))),
            )
            for agent, ago in zip(board.agents, last_calls, strict=True)
        ]
    )


def _connection(agent: claims.SessionPart) -> str:
    if agent.connected and agent.session is not None and agent.session.startswith("hook-"):
        return "by hooks"  # without a process
    return "connected" if agent.connected else "not connected"


def _process(agent: claims.SessionPart) -> str:
    is_named = agent.process is None or agent.agent == f"process {agent.process}"
    pid = None if is_named else f"process {agent.process}"
    host = None if agent.host is None else f"from {agent.host}"
    return ", ".join(filter(None, (pid, agent.program, host)))


def _held_and_wanted(agent: claims.SessionPart) -> str:
    held = "1 claim" if agent.claims == 1 else f"{agent.claims} claims"
    return f"{held}, waits for {agent.waits}" if agent.waits else held
