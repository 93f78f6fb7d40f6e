"""Given these events, when this command, then these events or this refusal: sentences about deciders.

Those about claims start from a board (tests/support/boards.py).
"""

from typing import TypeVar

import pytest

from holdlog.domain import record
from holdlog.domain.claims import claim
from holdlog.domain.claims.claim import Claim, ClaimEvent, Ticket
from holdlog.domain.record import Operation, Record, RecordEvent
from holdlog.domain.refusals import HoldlogError

Event = RecordEvent | ClaimEvent
Refusal = TypeVar("Refusal", bound=HoldlogError)

SECOND = 1_000_000
"""Microseconds: the n-th event of a sentence happens n seconds after 1970."""


def given(*events: Event) -> "Given":
    """The past of one record `shop/tea`, or of one claim `src/tea.py`."""
    return Given(events)


class Given:
    def __init__(self, past: tuple[Event, ...]) -> None:
        self._past = past

    def when(self, command: Operation, by: str = "cleo", at: int | None = None) -> "When":
        """`at`: seconds after 1970; one after the last event when nothing is said."""
        return When(self._past, command, by, len(self._past) + 1 if at is None else at)

    @property
    def record(self) -> Record:
        """The record that the events make."""
        state = Record("shop", "tea")
        for number, event in enumerate(self._past, start=1):
            assert isinstance(event, RecordEvent)
            state = record.evolve(state, event, at=number * SECOND)
        return state

    @property
    def claim(self) -> Claim:
        """The claim that the events make."""
        state = Claim("src/tea.py")
        for number, event in enumerate(self._past, start=1):
            assert isinstance(event, ClaimEvent)
            state = claim.evolve(state, event, at=number * SECOND)
        return state

    @property
    def queue(self) -> list[Ticket]:
        """The tickets that the events leave in the queue of the claim."""
        state, queue = Claim("src/tea.py"), dict[int, Ticket]()
        for number, event in enumerate(self._past, start=1):
            assert isinstance(event, ClaimEvent)
            state = claim.evolve(state, event, at=number * SECOND)
            if (ticket := claim.new_ticket(state, event, at=number * SECOND)) is not None:
                queue[ticket.version] = ticket
            queue.pop(claim.ended_ticket(event) or 0, None)
        assert state.waiting == len(queue)
        return list(queue.values())


class When:
    def __init__(self, past: tuple[Event, ...], command: Operation, by: str, at: int) -> None:
        self._past = Given(past)
        self._at = at * SECOND
        self._command = command
        self._by = by

    def then(self, *expected: Event) -> None:
        """These events follow, and no others."""
        assert self._decide() == list(expected)

    def refused(self, kind: type[Refusal]) -> Refusal:
        """The command is refused; answers with the refusal, so that a test can look at its facts."""
        with pytest.raises(kind) as refused:
            self._decide()
        return refused.value

    def _decide(self) -> list[RecordEvent]:
        return record.decide(self._command, self._by, self._past.record, self._at)
