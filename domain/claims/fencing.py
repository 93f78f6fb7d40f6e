"""Fencing conditions: a write that relies on a claim is refused once its writer no longer holds it."""

from typing import Any

from holdlog.domain.claims.board import Board
from holdlog.domain.moment import Moment
from holdlog.domain.refusals import FencedError
from holdlog.domain.results import Fenced
from holdlog.domain.state import State


def list_resources(command: Any) -> tuple[str, ...]:
    """What a command's reads must contain for `require_guard`."""
    return tuple(condition.resource for condition in command.guard) if command.guard else ()


def require_guard(command: Any, by: str, state: State, moment: Moment) -> list[dict[str, Any]] | None:
    """Count the call of a holder, and require that it holds the claims that the command names. Returns them as events
    record them. Raises FencedError."""
    if state.board is None:
        return None
    board: Board = state.board
    who = board.start(moment, by)
    for condition in command.guard or ():
        claim = board.find_hold(condition.resource, condition.version)
        if claim is None or not board.is_held_by(claim, who):
            grants = (claim for claim in board.list_grants(condition.resource))
            own = board.find_own(condition.resource, who)
            other = own or next((claim for claim in grants if claim.resource == condition.resource), None)
            end = board.find_last_end((condition.resource,))
            reason = end.note if end is not None and end.forced_by is not None else None
            current, holder = (None, None) if other is None else (other.version, other.who.agent)
            raise FencedError(Fenced(condition.resource, condition.version, current, holder, reason))
    return [{"resource": it.resource, "version": it.version} for it in command.guard] if command.guard else None
