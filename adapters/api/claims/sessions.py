"""Who works with a store: a row for each session that holds or waits for something, and for each idle process."""

from collections.abc import Mapping, Sequence

from holdlog.adapters.api.claims import presenter, responses
from holdlog.adapters.api.claims.presenter import Moment
from holdlog.adapters.operating_system.liveness import Process
from holdlog.domain.agent import Profile
from holdlog.domain.claims.board import ClaimBoard
from holdlog.domain.claims.lease import Lease
from holdlog.domain.names import mixed_scripts


def rows(
    board: ClaimBoard,
    moment: Moment,
    profiles: Mapping[str, Profile],
    agent: str | None,
    processes: Sequence[Process],
) -> list[responses.SessionPart]:
    """Rows by agent, principal and session. `agent`: only this one and its sub-agents, without idle processes."""
    live = [lease for lease in board.leases.values() if board.lease(*lease.key) is not None]
    sessions: dict[tuple[str, str, str], list[Lease]] = {}
    for lease in live:
        if presenter.concerns(lease.agent, agent):
            sessions.setdefault((lease.agent, lease.principal or "", lease.session or ""), []).append(lease)
    known = {process.server: process for process in processes}
    found = [_row(sessions[key], moment, profiles, known) for key in sorted(sessions)]
    if agent is not None:
        return found
    busy = {lease.server for lease in live}
    return found + [_idle(process) for process in processes if process.server not in busy]


def _row(
    leases: list[Lease], moment: Moment, profiles: Mapping[str, Profile], processes: Mapping[str, Process]
) -> responses.SessionPart:
    first = leases[0]
    profile = presenter.profile_of(profiles, first.agent, first.principal)
    process = next((processes[lease.server] for lease in leases if lease.server in processes), None)
    return responses.SessionPart(
        agent=first.agent,
        principal=first.principal,
        claims=sum(lease.kind != "waits" for lease in leases),
        waits=sum(lease.kind == "waits" for lease in leases),
        connected=any(presenter.is_connected(lease, moment) for lease in leases),
        idle_seconds=min(max(0, moment.steady - lease.last_call_at) for lease in leases) / 1_000_000,
        process=process.pid or None if process else None,
        program=process.program or None if process else None,
        folder=process.folder or None if process else None,
        host=process.host or None if process else None,
        session=first.session,
        name=profile.name,
        model=profile.model,
        purpose=profile.purpose,
        mixed_scripts=mixed_scripts(first.agent) or None,
    )


def _idle(process: Process) -> responses.SessionPart:
    return responses.SessionPart(
        agent=f"process {process.pid}" if process.pid else process.server,
        claims=0,
        waits=0,
        connected=True,
        process=process.pid or None,
        program=process.program or None,
        folder=process.folder or None,
        host=process.host or None,
    )
