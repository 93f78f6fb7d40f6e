"""Build views from the log alone, with the fold that writers use, over any range of the log."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.ports import State
from holdlog.domain.refusals import StoreError
from holdlog.projections import fold
from holdlog.projections.fold import Folded
from holdlog.projections.projection import Cell, Drop, Put, RowChange
from holdlog.projections.threads import ITEMS


class FoldStep(NamedTuple):
    """The parts of a recorded event that the fold needs."""

    stream: str
    version: int
    at: int
    digest: bytes
    event: Event
    principal: str | None = None


Load = Callable[[Sequence[str]], Mapping[str, Folded]]
"""Load the states that earlier pages left of these streams; omit streams without one."""


class DetailRows:
    """The detail rows that the events of one stream add, without those that its later events replace or remove.

    Rows that are never replaced are returned immediately: of a long thread, only its data is in memory.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[Cell, ...], Put] = {}

    def by(self, state: State, event: Event, at: int) -> list[Put]:
        """Return the rows that can be written now. `state`: after the event."""
        final: list[Put] = []
        for change in fold.detail_rows(state, event, at):
            if isinstance(change, Drop):
                self._last.pop(change.key, None)
            elif change.table is ITEMS:
                final.append(change)
            else:
                self._last[change.key] = change
        return final

    def at_the_end(self) -> Collection[Put]:
        return self._last.values()


def fold_page(page: Sequence[FoldStep], load: Load) -> tuple[dict[str, Folded], list[RowChange]]:
    """Return the last state of each stream that a page of the log touches, and the changes of detail rows in order.

    Loads only streams that do not start in the page. Raises StoreError for a gap in the versions.
    """
    begun = {step.stream for step in page if step.version == 1}
    states = dict(load(list({step.stream for step in page} - begun)))
    rows = [row for step, (state, _) in _advance(states, page) for row in fold.detail_rows(state, step.event, step.at)]
    return states, rows


def replay(log: Iterable[Recorded[Event]]) -> dict[str, Folded]:
    """Fold a log from its beginning, in memory, into the state of every stream. Raises StoreError for a version gap."""
    states: dict[str, Folded] = {}
    for _ in _advance(states, map(_step, log)):
        pass
    return states


def initial(stream: str) -> State:
    """Like `fold.initial`, but for a stream found in a log. Raises StoreError."""
    try:
        return fold.initial(stream)
    except ValueError as error:
        raise StoreError(f"{error}; a newer holdlog may have written it") from None


def following(state: State, step: FoldStep) -> Folded:
    """The state after its stream's next event. Raises StoreError for an event of another kind of stream."""
    if not isinstance(step.event, fold.KINDS[type(state)].events):
        raise StoreError(f"event {step.stream}@{step.version} is of another kind than its stream")
    return Folded(fold.evolve(state, step.event, step.at, step.principal), step.digest)


def _advance(states: dict[str, Folded], steps: Iterable[FoldStep]) -> Iterator[tuple[FoldStep, Folded]]:
    for step in steps:
        found = states.get(step.stream)
        state = initial(step.stream) if found is None else found.state
        if step.version != state.version + 1:
            raise StoreError(
                f"event {step.stream}@{step.version} follows version {state.version}: events are missing from the log"
            )
        states[step.stream] = following(state, step)
        yield step, states[step.stream]


def _step(recorded: Recorded[Event]) -> FoldStep:
    envelope = recorded.envelope
    principal = envelope.caller.principal
    return FoldStep(envelope.stream, envelope.version, envelope.at, envelope.digest, recorded.event, principal)
