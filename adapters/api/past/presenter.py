"""Converts the claims of an earlier moment to responses."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdlog.adapters.api.claims.presenter import concerns, holder_names, past, profile_of
from holdlog.adapters.api.claims.responses import Queue, Waiter
from holdlog.adapters.api.past import responses
from holdlog.adapters.api.values.presenter import seconds_between
from holdlog.domain.agent import Profile
from holdlog.domain.claims.acquire import MAX_WAITERS_SHOWN
from holdlog.domain.claims.board import Key
from holdlog.domain.claims.claim import Claim, Grant, PastHold, Ticket, wants
from holdlog.domain.claims.resource import overlap
from holdlog.domain.names import mixed_scripts
from holdlog.domain.times import utc
from holdlog.domain.token import Token, has_ended
from holdlog.projections.past_board import Ending


class PastGrant(NamedTuple):
    """A grant that was live. `ending`: how it has ended since; None: it has not."""

    resource: str
    grant: Grant
    ending: Ending | None


class PastState(NamedTuple):
    """Claims at a moment. `at`: microseconds UTC. `tickets`: of these claims; `waiting`: of all, which queues count.
    `lapsed`: the grants whose leases had expired by then, although the log recorded that later; by resource."""

    at: int
    grants: Sequence[PastGrant]
    tickets: Sequence[Ticket]
    waiting: Collection[Ticket]
    lapsed: Mapping[str, PastGrant]


def state_of(
    claims: Sequence[Claim], waiting: Collection[Ticket], endings: Mapping[Key, Ending], at: int, by_time: bool
) -> PastState:
    """`waiting`: all tickets. `by_time`: an expiry counts from when it was due, not from when the log recorded it."""
    live: list[PastGrant] = []
    lapsed: dict[str, PastGrant] = {}
    for claim in claims:
        for grant in claim.grants:
            found = PastGrant(claim.resource, grant, endings.get((claim.resource, grant.version)))
            if by_time and found.ending is not None and found.ending.outcome == "expired" and found.ending.at <= at:
                lapsed[claim.resource] = max(lapsed.get(claim.resource, found), found, key=_end)
            else:
                live.append(found)
    shown = {claim.resource for claim in claims}
    return PastState(at, live, [it for it in waiting if it.resource in shown], waiting, lapsed)


def status(
    resource: str, state: PastState, ended: tuple[PastHold, int] | None
) -> responses.PastHeld | responses.PastAvailable:
    """Who held a resource, as an unrelated caller saw it. `ended`: how its last recorded hold had ended, and when the
    log recorded that."""
    found = [it for it in state.grants if overlap(it.resource, resource)]
    if found:
        first, *others = sorted(found, key=lambda it: (it.resource != resource, it.grant.claimed_at))
        names = list(dict.fromkeys((it.grant.agent, it.grant.principal) for it in (first, *others)))
        return held(resource, first, state).model_copy(
            update={**holder_names(names if len(names) > 1 else ()), "not_recorded": responses.NOT_RECORDED}
        )
    if (lapsed := state.lapsed.get(resource)) is not None:
        ended = _past_hold(lapsed)
    return responses.PastAvailable(
        resource=resource,
        **past(resource, resource if ended else None, ended[0] if ended else None),
        previous_noticed_at=None if ended is None else utc(ended[1]),
        not_recorded=responses.NOT_RECORDED,
    )


def board(
    page: Sequence[str], state: PastState, profiles: Mapping[str, Profile], agent: str | None, more: bool
) -> responses.PastClaims:
    """One page of resources: their claims, their queues, and the agents in them. `agent`: only this one and its
    sub-agents."""
    state = state._replace(
        grants=[it for it in state.grants if concerns(it.grant.agent, agent)],
        tickets=[it for it in state.tickets if concerns(it.agent, agent)],
    )
    queues = {name: [ticket for ticket in state.tickets if ticket.resource == name] for name in page}
    return responses.PastClaims(
        claims=[held(it.resource, it, state) for it in state.grants],
        queues=[
            Queue(resource=name, length=len(line), line=[_waiter(it, state.at) for it in line[:MAX_WAITERS_SHOWN]])
            for name, line in queues.items()
            if line
        ],
        agents=agents(state, profiles),
        not_recorded=responses.NOT_RECORDED,
        next_after=page[-1] if more else None,
    )


def held(resource: str, held: PastGrant, state: PastState) -> responses.PastHeld:
    grant, ending = held.grant, held.ending
    return responses.PastHeld(
        resource=resource,
        held_by=grant.agent,
        held_by_principal=grant.principal,
        session=grant.session,
        mode=grant.mode,
        version=grant.version,
        claimed_at=utc(grant.claimed_at),
        held_for_seconds=seconds_between(grant.claimed_at, state.at),
        queue_length=sum(1 for it in state.waiting if wants(it, (resource,))),
        covered_by=held.resource if held.resource != resource else None,
        ended_at=None if ending is None else utc(ending.at),
        outcome=None if ending is None else ending.outcome,
        noticed_at=None if ending is None else utc(ending.noticed_at),
        forced_by=None if ending is None else ending.forced_by,
        mixed_scripts=any(map(mixed_scripts, (resource, held.resource, grant.agent))) or None,
    )


def agents(state: PastState, profiles: Mapping[str, Profile], registered: bool = False) -> list[responses.PastAgent]:
    """Who held or waited for something, by name. `registered`: also those that had registered."""
    counts: dict[tuple[str, str | None], list[int]] = {}
    if registered:
        counts = {(it.agent, it.principal): [0, 0] for it in profiles.values()}
    for held in state.grants:
        counts.setdefault((held.grant.agent, held.grant.principal), [0, 0])[0] += 1
    for ticket in state.tickets:
        counts.setdefault((ticket.agent, ticket.principal), [0, 0])[1] += 1
    who = sorted(counts, key=lambda it: (it[0], it[1] or ""))
    return [_agent(agent, principal, counts[agent, principal], profiles) for agent, principal in who]


def token(token: Token, at: int) -> responses.PastToken:
    """`at`: microseconds UTC."""
    return responses.PastToken(
        name=token.name,
        state="revoked" if not token.is_known else "expired" if has_ended(token, at) else "active",
        allow=list(token.allow),
        space=token.space,
        issued_by=token.issued_by,
        issued_at=utc(token.issued_at),
        expires_at=None if token.expires_at is None else utc(token.expires_at),
        rotated_at=None if token.rotated_at is None else utc(token.rotated_at),
        revoked_at=None if token.revoked_at is None else utc(token.revoked_at),
    )


def _agent(
    agent: str, principal: str | None, counts: Sequence[int], profiles: Mapping[str, Profile]
) -> responses.PastAgent:
    profile = profile_of(profiles, agent, principal)
    return responses.PastAgent(
        agent=agent,
        principal=principal,
        claims=counts[0],
        waits=counts[1],
        name=profile.name,
        model=profile.model,
        purpose=profile.purpose,
        registered_at=utc(profile.registered_at) if profile.version else None,
        mixed_scripts=mixed_scripts(agent) or None,
    )


def _waiter(ticket: Ticket, at: int) -> Waiter:
    return Waiter(
        agent=ticket.agent,
        principal=ticket.principal,
        since_seconds=seconds_between(ticket.since, at),
        mode=ticket.mode,
        mixed_scripts=mixed_scripts(ticket.agent) or None,
    )


def _past_hold(lapsed: PastGrant) -> tuple[PastHold, int]:
    grant, ending = lapsed.grant, lapsed.ending
    assert ending is not None
    hold = PastHold(
        grant.agent,
        "expired",
        ending.at,
        principal=grant.principal,
        session=grant.session,
        version=grant.version,
    )
    return hold, ending.noticed_at


def _end(held: PastGrant) -> int:
    return held.ending.at if held.ending is not None else 0
