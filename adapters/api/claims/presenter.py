"""Convert outcomes, boards and refusals about claims to responses. Hints are fixed text, never stored text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdlog.adapters.api.claims import responses
from holdlog.adapters.api.values import presenter
from holdlog.adapters.api.values.responses import Lost
from holdlog.domain.agent import Profile
from holdlog.domain.claims.acquire import MAX_WAITERS_SHOWN
from holdlog.domain.claims.board import ClaimBoard, LiveHold, Waiting
from holdlog.domain.claims.claim import Grant, PastHold
from holdlog.domain.claims.commands import ClaimAcquired, Queued, QueuedTicket, ReleaseOutcome
from holdlog.domain.claims.lease import Lease, Loss
from holdlog.domain.names import acts_for, mixed_scripts
from holdlog.domain.refusals import Hold
from holdlog.domain.times import utc


class Moment(NamedTuple):
    """The time of a response: `at` in microseconds UTC, `steady` on the clock of leases; and who is connected then.
    `grace`: microseconds that remain of a lease whose process has ended.
    """

    at: int
    steady: int
    connected: Callable[[str], bool]
    grace: int


def acquired(
    outcome: ClaimAcquired,
    elsewhere: list[responses.Elsewhere],
    folder: bool = False,
    is_kept: bool = True,
    receipt: str | None = None,
    instead: str | None = None,
    nested: bool = False,
) -> responses.Claimed | responses.AlreadyClaimed:
    """The response to an acquired claim. `folder`: the caller named a folder without a trailing slash. `is_kept`: the
    lease is renewed even without calls. `receipt`: identifies a holder without a session. `instead`: the custom:// name
    to suggest if a claimed path does not exist. `nested`: the file belongs to a repository inside this one."""
    facts: dict[str, Any] = {
        "resource": outcome.resource,
        "version": outcome.version,
        "claimed_at": utc(outcome.claimed_at),
        "expires_at": utc(outcome.at + outcome.expires_in),
        "expires_in_seconds": _seconds(outcome.expires_in),
        "receipt": receipt,
        "renewal": _renewal(receipt, is_kept),
        "also": _versions(outcome.also) if outcome.also else None,
        "waiting": [_queued(it, outcome.at) for it in outcome.waiting] if outcome.waiting else None,
        "also_claimed_in": elsewhere or None,
    }
    if outcome.already:
        hint = _joined(receipt is None and _ALREADY, elsewhere and _ELSEWHERE)
        return responses.AlreadyClaimed(**facts, hint=hint)
    facts |= past(outcome.resource, outcome.past_of, outcome.past)
    resumed_from = outcome.previous_session_ended_at
    if resumed_from is not None:
        facts |= {"resumed": True, "previous_session_ended_at": utc(resumed_from)}
    facts["former_session_lost"] = _former_losses(outcome)
    ended = facts.get("previous_outcome", "")
    lost_work = ended in ("deleted", "moved", "expired", "forced")
    hint = _joined(
        resumed_from is not None and _RESUMED,
        lost_work and _PASTS.get(ended),
        instead and _NO_FILE.format(instead),
        folder and _FOLDER,
        nested and _NESTED,
        not lost_work and _PASTS.get(ended),
        elsewhere and _ELSEWHERE,
    )
    return responses.Claimed(**facts, position=outcome.position, hint=hint)


def _former_losses(outcome: ClaimAcquired) -> list[Lost] | None:
    """The last loss here of another session with the holder's name. If that session returns, its own response lists
    it."""
    past = outcome.past
    if past is None or past.outcome not in ("expired", "forced") or not outcome.is_former:
        return None
    resource, reason = outcome.past_of or outcome.resource, past.note if past.outcome == "forced" else None
    return [Lost(resource=resource, version=past.version or 0, why=past.outcome, reason=reason)]


def _renewal(receipt: str | None, is_kept: bool) -> str | None:
    if receipt is not None:
        return "by calling claim again with the receipt"
    return None if is_kept else "by your calls only"


def queued(outcome: Queued, moment: Moment, receipt: str | None = None, cap: float | None = None) -> responses.Busy:
    hint = (_QUEUED_RECEIPT if receipt else _QUEUED).format(outcome.position)
    facts = busy(outcome.hold, moment) | {"hint": hint, "receipt": receipt}
    return responses.Busy(**facts, ticket=outcome.ticket, queue_position=outcome.position, capped_at_seconds=cap)


def released(
    outcome: ReleaseOutcome, resource: str | None, several: bool
) -> responses.Released | responses.AlreadyFree:
    if outcome.already:
        return responses.AlreadyFree(resource=resource)
    return responses.Released(
        resource=resource,
        version=dict(outcome.released).get(resource or ""),
        outcome=outcome.outcome,
        granted_to=outcome.granted_to,
        granted_to_principal=outcome.granted_to_principal,
        released=_versions(outcome.released) if several else None,
    )


def _versions(of: Iterable[tuple[str, int]]) -> list[responses.Version]:
    return [responses.Version(resource=name, version=version) for name, version in of]


def status(
    resource: str,
    board: ClaimBoard,
    moment: Moment,
    version: int | None,
    profiles: Iterable[Profile],
    elsewhere: list[responses.Elsewhere],
) -> responses.Available | responses.Held:
    """Status as an unrelated caller sees it: available, or held; a holder of this exact resource comes before those of
    overlapping ones."""
    holds = blocking_holds(resource, board)
    if not holds:
        return available(resource, board, elsewhere=elsewhere)
    held = held_response(resource, holds[0], board, moment)
    profile = next((it for it in profiles if (it.agent, it.principal) == (held.held_by, held.held_by_principal)), None)
    holders = list(dict.fromkeys((hold.grant.agent, hold.grant.principal) for hold in holds))
    current = (resource, version) in [(hold.resource, hold.grant.version) for hold in holds]
    return held.model_copy(
        update={
            **holder_names(holders if len(holders) > 1 else ()),
            "current": None if version is None else current,
            "agent_name": profile.name if profile else None,
            "agent_model": profile.model if profile else None,
            "also_claimed_in": elsewhere or None,
            "hint": _ELSEWHERE if elsewhere else None,
        }
    )


def blocking_holds(resource: str, board: ClaimBoard) -> list[LiveHold]:
    """Holds that block an unrelated caller: those of the resource itself first, then by age."""
    conflicting = board.conflicting_holds(resource, "exclusive", None)
    return sorted(conflicting, key=lambda hold: (hold.resource != resource, hold.grant.claimed_at))


def board(
    page: list[str], board: ClaimBoard, moment: Moment, profiles: dict[str, Profile], agent: str | None, more: bool
) -> responses.Board:
    """One page of resources: their claims, their queues, and the agents in them."""
    holds = [hold for name in page for hold in board.holds(name) if concerns(hold.grant.agent, agent)]
    everybody = [it for it in board.waiting() if concerns(it.ticket.agent, agent)]
    queues = {name: [it for it in everybody if it.resource == name] for name in page if board.claim(name).waiting}
    leases = [*(hold.lease for hold in holds), *(it.lease for queue in queues.values() for it in queue)]
    agents = []
    for name, principal in sorted({(it.agent, it.principal) for it in leases}, key=lambda it: (it[0], it[1] or "")):
        mine = [lease for lease in leases if (lease.agent, lease.principal) == (name, principal)]
        profile = profile_of(profiles, name, principal)
        agents.append(
            responses.AgentPart(
                agent=name,
                principal=principal,
                claims=sum(1 for lease in mine if lease.kind != "waits"),
                connected=any(is_connected(lease, moment) for lease in mine),
                idle_seconds=min(_seconds(moment.steady - lease.last_call_at) for lease in mine),
                name=profile.name,
                model=profile.model,
                purpose=profile.purpose,
                mixed_scripts=mixed_scripts(name) or None,
            )
        )
    return responses.Board(
        claims=[_named(held_response(hold.resource, hold, board, moment), hold, profiles) for hold in holds],
        queues=[
            responses.Queue(
                resource=name, length=len(queue), line=[_waiter(it, moment) for it in queue[:MAX_WAITERS_SHOWN]]
            )
            for name, queue in queues.items()
            if queue
        ],
        agents=agents,
        next_after=page[-1] if more else None,
    )


def available(
    resource: str,
    board: ClaimBoard,
    elapsed: float | None = None,
    elsewhere: list[responses.Elsewhere] | None = None,
) -> responses.Available:
    rounded = None if elapsed is None else round(elapsed, 3)
    of, ended = board.last_end((resource,)) or (None, None)
    return responses.Available(
        resource=resource,
        elapsed_seconds=rounded,
        also_claimed_in=elsewhere or None,
        **past(resource, of, ended),
        hint=_ELSEWHERE if elsewhere else None,
    )


def profile_of(profiles: Mapping[str, Profile], agent: str, principal: str | None) -> Profile:
    """What the agent registered; empty if another principal registered the name."""
    found = profiles.get(agent)
    return found if found is not None and found.principal == principal else Profile(agent)


def _named(held: responses.Held, hold: LiveHold, profiles: Mapping[str, Profile]) -> responses.Held:
    profile = profile_of(profiles, hold.grant.agent, hold.grant.principal)
    return held.model_copy(update={"agent_name": profile.name, "agent_model": profile.model})


def claimed_in(workspace: str, grant: Grant) -> responses.Elsewhere:
    return responses.Elsewhere(workspace=workspace, held_by=grant.agent, held_by_principal=grant.principal)


def wait_timeout(
    resource: str, hold: LiveHold, moment: Moment, elapsed: float, cap: float | None
) -> responses.WaitTimeout:
    return responses.WaitTimeout(
        resource=resource,
        held_by=hold.grant.agent,
        held_by_principal=hold.grant.principal,
        claimed_at=utc(hold.grant.claimed_at),
        held_for_seconds=presenter.seconds_between(hold.grant.claimed_at, moment.at),
        elapsed_seconds=round(elapsed, 3),
        capped_at_seconds=cap,
        hint=_STILL_HELD,
    )


def lost(losses: Iterable[Loss], holder_of: Callable[[str], Grant | None]) -> list[Lost]:
    found = [(loss, holder_of(loss.resource)) for loss in losses]
    return [
        Lost(
            resource=it.resource,
            version=it.version,
            why=it.why,
            held_by=grant.agent if grant else None,
            held_by_principal=grant.principal if grant else None,
            reason=it.note,
        )
        for it, grant in found
    ]


def past(resource: str, of: str | None, ended: PastHold | None) -> dict[str, Any]:
    if ended is None:
        return {}
    to_itself = ended.outcome == "moved" and ended.moved_to == of  # version 0.1 recorded a rename under both names
    return {
        "previous_resource": of if of != resource else None,
        "previous_outcome": "created" if to_itself else ended.outcome,
        "previous_holder": ended.holder,
        "previous_holder_principal": ended.principal,
        "previous_outcome_at": utc(ended.at),
        "previous_note": ended.note if ended.outcome != "forced" else None,  # not a person's reason
        "moved_to": None if to_itself else ended.moved_to,
    }


def busy(hold: Hold, moment: Moment) -> dict[str, Any]:
    """The fields of a `busy` response."""
    if hold.former:
        hint = _FORMER
    elif hold.same_name:
        hint = _SAME_NAME_RECEIPT if hold.without_session else _SAME_NAME
    elif hold.shared_by_caller:
        hint = _UPGRADE
    elif hold.in_line:
        hint = _BEFORE
    else:
        hint = _BUSY
    return {
        "resource": hold.resource,
        "held_by": hold.held_by,
        "held_by_principal": hold.principal,
        "same_name": True if hold.same_name else None,
        "claimed_at": utc(hold.claimed_at),
        "held_for_seconds": presenter.seconds_between(hold.claimed_at, moment.at),
        "expires_in_seconds": _seconds(hold.expires_in),
        "version": hold.version,
        "holder_connected": not hold.session_ended and any(moment.connected(server) for server in hold.servers),
        "holder_idle_seconds": _seconds(hold.idle),
        "holder_note": hold.note,
        "queue_length": hold.queue_length,
        "covered_by": hold.covered_by,
        **holder_names(tuple(zip(hold.holders, hold.holder_principals, strict=True))),
        "hint": hint,
    }


def held_response(resource: str, hold: LiveHold, board: ClaimBoard, moment: Moment) -> responses.Held:
    left = hold.lease.deadline - moment.steady
    if hold.lease.server and not hold.lease.explicit and not moment.connected(hold.lease.server):
        left = min(left, moment.grace)  # the deadline that the next claim would set; a read changes no lease
    return responses.Held(
        resource=resource,
        held_by=hold.grant.agent,
        held_by_principal=hold.grant.principal,
        claimed_at=utc(hold.grant.claimed_at),
        held_for_seconds=presenter.seconds_between(hold.grant.claimed_at, moment.at),
        expires_at=utc(moment.at + left),
        expires_in_seconds=_seconds(left),
        version=hold.grant.version,
        mode=hold.grant.mode,
        queue_length=len(board.queued_for(resource)),
        holder_connected=is_connected(hold.lease, moment),
        holder_idle_seconds=_seconds(moment.steady - hold.lease.last_call_at),
        holder_note=hold.lease.note,
        covered_by=hold.resource if hold.resource != resource else None,
        mixed_scripts=any(map(mixed_scripts, (resource, hold.resource, hold.grant.agent))) or None,
    )


def is_connected(lease: Lease, moment: Moment) -> bool:
    return not lease.has_ended(moment.steady) and moment.connected(lease.server)


def _queued(waiting: QueuedTicket, at: int) -> responses.Waiter:
    since = presenter.seconds_between(waiting.since, at)
    return responses.Waiter(
        agent=waiting.agent,
        principal=waiting.principal,
        since_seconds=since,
        note=waiting.note,
        mixed_scripts=mixed_scripts(waiting.agent) or None,
    )


def _waiter(waiting: Waiting, moment: Moment) -> responses.Waiter:
    return responses.Waiter(
        agent=waiting.ticket.agent,
        principal=waiting.ticket.principal,
        since_seconds=presenter.seconds_between(waiting.ticket.since, moment.at),
        note=waiting.lease.note,
        mode=waiting.ticket.mode,
        present=waiting.lease.waiting_until > moment.steady,
        mixed_scripts=mixed_scripts(waiting.ticket.agent) or None,
    )


def holder_names(holders: Sequence[tuple[str, str | None]]) -> dict[str, list[str] | None]:
    """Names of several holders, and their principals in the same order, empty for the local user."""
    principals = [principal or "" for _, principal in holders]
    return {
        "holders": [agent for agent, _ in holders] or None,
        "holder_principals": principals if any(principals) else None,
    }


def concerns(name: str, agent: str | None) -> bool:
    """Whether `name` is this agent or one of its sub-agents. Any name matches if `agent` is None."""
    return agent is None or acts_for(name, agent)


def _joined(*hints: object) -> str | None:
    """Join the hints that apply, in order, as far as they fit."""
    joined: str | None = None
    for hint in hints:
        if hint:
            longer = str(hint) if joined is None else f"{joined} {hint}"
            if presenter.hint_length(longer) <= presenter.MAX_HINT:
                joined = longer
    return joined


def _seconds(microseconds: int) -> float:
    return max(0, microseconds) / 1_000_000


_BUSY = (
    "Work on something else, or call claim() again with wait_seconds=30 to queue for it. wait() only notifies you; it"
    " does not reserve a place."
)
_BEFORE = "Another agent queued for it before you. Call claim() again with wait_seconds=30 to join the queue."
_STILL_HELD = "It is still held. Work on something else, or call claim() with wait_seconds=30 to queue for it."
_QUEUED = (
    "You are number {} in the queue. Call claim() again with wait_seconds=30 within two minutes; until then others may"
    " overtake you."
)
_QUEUED_RECEIPT = (
    "You are number {} in the queue. Call claim() again with wait_seconds=30 and this receipt within two minutes; until"
    " then others may overtake you."
)
_SAME_NAME = (
    "Another session with this name holds it. Choose a name of your own, for example claude-7f3a, and call claim()"
    " again under that name, with wait_seconds=30 to queue."
)
_SAME_NAME_RECEIPT = (
    "It is claimed under your agent name, without a session. If that was you, call claim() again with the receipt you"
    " were given. Otherwise choose a name of your own, such as claude-7f3a."
)
_FORMER = (
    "An ended session with your name holds the resource in covered_by, which overlaps this one. Call claim() with that"
    " resource to resume its claim."
)
_UPGRADE = (
    "You share it with other agents. Call release() for your shared claim first, then claim() with mode=exclusive and"
    " wait_seconds=30."
)
_ALREADY = "You already hold it. A sub-agent needs a different name, such as claude-7f3a/task."
_RESUMED = "A former session with your name held it. Work may be half done: look before you edit."
_FOLDER = (
    "You claimed only the folder's name, not its contents. To claim everything below it, call claim() again with a / at"
    " the end of its name."
)
_NESTED = (
    "This file belongs to a repository inside this one, whose agents do not see this claim: it has its own store. Run"
    " holdlog there; hooks claim the file there by themselves."
)
_NO_FILE = (
    "No such file in this worktree. If you mean something that exists once for all worktrees, release this and claim"
    " {}."
)
_ELSEWHERE = "Another worktree has a claim on this path. It does not block you; coordinate before you merge."
MOVED: Final = (
    "The previous holder moved it. Call release() for this one first, then claim() with the path in moved_to."
)
MOVED_UNSEEN: Final = (
    "The previous holder moved it to a path that you are not allowed to see. If you no longer need it, call release()."
)
_PASTS = {
    "modified": "The previous holder modified it. Read it again before you edit.",
    "created": "The previous holder created it. Read it before you edit.",
    "deleted": "The previous holder deleted it. If you no longer need it, call release().",
    "moved": MOVED,
    "expired": "The previous claim expired without a release. Work may be half done: look before you edit.",
    "forced": "A person took it from the previous holder. Work may be half done: look before you edit.",
}
