"""Fencing conditions: a write that relies on a claim is refused once its writer no longer holds it."""

from typing import Any

from holdlog.domain.refusals import FencedError
from holdlog.domain.results import Fenced
from holdlog.domain.state import Moment, State


def require_guard(command: Any, state: State, moment: Moment) -> list[dict[str, Any]] | None:
    """Require that the caller holds the claims that the command names. Returns them as its events record them. Raises
    FencedError."""
    if command.guard:
        raise FencedError(Fenced(command.guard[0].resource, command.guard[0].version))
    return None
