"""The views from the log alone: the same fold that writers use, over any stretch of the log."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.refusals import StoreError
from holdlog.projections import fold
from holdlog.projections.fold import State


class Step(NamedTuple):
    """What the fold needs to know of a recorded event."""

    stream: str
    version: int
    at: int
    digest: bytes
    event: Event


Load = Callable[[Sequence[str]], Mapping[str, State]]
"""The states that earlier pages left of these streams; a stream without one is left out."""


def fold_page(page: Sequence[Step], load: Load) -> dict[str, State]:
    """The last state of each stream that a page of the log touches.

    Only streams that the page does not start are loaded. Raises StoreError where versions have a gap.
    """
    begun = {step.stream for step in page if step.version == 1}
    states = dict(load(list({step.stream for step in page} - begun)))
    _advance(states, page)
    return states


def replay(log: Iterable[Recorded[Event]]) -> dict[str, State]:
    """Every stream's state after a log from its beginning, in memory. Raises StoreError where versions have a gap."""
    states: dict[str, State] = {}
    _advance(states, map(_step, log))
    return states


def initial(stream: str) -> State:
    """As `fold.initial`, for a stream that stands in a log. Raises StoreError."""
    try:
        return fold.initial(stream)
    except ValueError as error:
        raise StoreError(f"{error}; a newer holdlog may have written it") from None


def following(state: State, step: Step) -> State:
    """The state after one more event of its stream. Raises StoreError for an event of another kind of stream."""
    if not isinstance(step.event, fold.KINDS[type(state)]):
        raise StoreError(f"event {step.stream}@{step.version} is of another kind than its stream")
    return fold.evolve(state, step.event, step.at, step.digest)  # type: ignore[arg-type]


def _advance(states: dict[str, State], steps: Iterable[Step]) -> None:
    for step in steps:
        state = states.get(step.stream)
        if state is None:
            state = initial(step.stream)
        if step.version != state.version + 1:
            raise StoreError(
                f"event {step.stream}@{step.version} follows version {state.version}: events are missing from the log"
            )
        states[step.stream] = following(state, step)


def _step(recorded: Recorded[Event]) -> Step:
    envelope = recorded.envelope
    return Step(envelope.stream, envelope.version, envelope.at, envelope.digest, recorded.event)
