"""Whatever a history is, its evidence verifies, and no change of an event does."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings

from holdlog.adapters.api.events.event_filter import EventFilter
from holdlog.adapters.cli.evidence_bundle import Case, EvidenceBundle
from holdlog.adapters.stores.event_log.evidence import ProvenEvents
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.domain.checkpoint import Checkpoint, CheckpointNote
from holdlog.domain.refusals import InvalidError
from holdlog.projections.tree import LogTree
from tests.properties.test_mixed_logs import STEPS, Step, follow
from tests.support.evidence import Files, events_of, files_of, is_proven, with_events

OF_CLAIMS = EventFilter(topics=frozenset({"ClaimGranted", "ClaimReleased"}))
FILTERS = st.sampled_from(
    [EventFilter(), EventFilter(agent="ann"), EventFilter(namespace="n"), EventFilter(prefix="x")]
)
OTHERS = st.none() | st.integers(-1, 3) | st.sampled_from(["", "ann", "00", "{}", "null", True, 1.5, [], {}])


def evidence_of(steps: list[Step], choice: EventFilter, has_values: bool, bounds: tuple[int, int]) -> Files:
    """A bundle of a part of this history, between two shares of it."""
    store = open_memory()
    follow(store, steps)
    with TemporaryDirectory() as folder, store.snapshot() as reader:
        tree = LogTree(reader)
        assume(tree.size)
        first, last = (1 + share * (tree.size - 1) // 100 for share in sorted(bounds))
        checkpoint = Checkpoint(reader.meta("store_id") or "", tree.size, tree.root())
        case = Case(first, last, {}, has_values, CheckpointNote(checkpoint))
        try:
            with ZipFile(Path(folder, "case.zip"), "w") as file:
                bundle = EvidenceBundle(file, case, None)
                events = ProvenEvents(reader, tree, checkpoint, (first - 1, last))
                bundle.add_events(events, choice, lambda done, total: None)
                bundle.add_checkpoint()
                bundle.add_report(None, [])
        except InvalidError:
            assume(False)
        return files_of(Path(folder, "case.zip"))


@pytest.mark.check
@settings(max_examples=60, deadline=None)
@given(st.data(), STEPS, FILTERS, st.booleans(), st.tuples(st.integers(0, 100), st.integers(0, 100)))
def test_evidence_of_any_history_verifies_and_no_changed_event_does(
    data: Any, steps: list[Step], choice: EventFilter, has_values: bool, bounds: tuple[int, int]
) -> None:
    files = evidence_of(steps, choice, has_values, bounds)
    assert is_proven(files)
    events = events_of(files)
    event = data.draw(st.sampled_from(events))
    name = data.draw(st.sampled_from(sorted(event)))
    changed = data.draw(OTHERS | st.sampled_from([it[name] for it in events]))
    assume(json.dumps(changed) != json.dumps(event[name]))
    event[name] = changed
    assert not is_proven(with_events(files, events))
    events = events_of(files)
    del events[data.draw(st.integers(0, len(events) - 1))]
    assert not is_proven(with_events(files, events))
