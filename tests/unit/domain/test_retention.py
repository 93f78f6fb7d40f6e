"""Which payloads are due, over random histories."""

from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.domain.ports import Store
from holdlog.domain.retention import ChangeRetention, due
from tests.support.clock import SECOND, Clock
from tests.support.commands import change, drop, put, run

KEPT = 100
"""Seconds."""
STEPS = st.lists(
    st.tuples(st.sampled_from(["n", "n/a", "m"]), st.sampled_from("ab"), st.sampled_from(["put", "drop", "wait"])),
    max_size=40,
)


def due_versions(store: Store, examined: int, most: int) -> set[tuple[str, int]]:
    """All versions that are due, found in steps."""
    found: set[tuple[str, int]] = set()
    done: dict[str, int] = {}
    more = True
    while more:
        with store.reader() as reader:
            part = due(reader, reader.store_log(), done, examined, most)
        versions = {(it.stream, version) for it in part.former for version in range(it.first, it.last + 1)}
        assert not versions & found
        found |= versions
        done, more = dict(part.done), part.more
    return found


@given(steps=STEPS, examined=st.integers(1, 50), most=st.integers(1, 20))
def test_versions_whose_successors_are_old_enough_are_due_once(
    steps: list[tuple[str, str, str]], examined: int, most: int
) -> None:
    clock = Clock()
    store = open_memory(clock, clock.steady)
    run(store, ChangeRetention(namespace="n", seconds=KEPT, by="ann"))
    live: set[tuple[str, str]] = set()
    for namespace, key, step in steps:
        match step:
            case "put":
                change(store, put(key, 1, namespace=namespace))
                live.add((namespace, key))
            case "drop" if (namespace, key) in live:
                change(store, drop(key, namespace=namespace))
                live.discard((namespace, key))
            case _:
                clock.pass_by(30)
    with store.reader() as reader:
        events = [it.envelope for it in reader.log(0, -1)]
        now = reader.at
    expected = {
        (it.stream, version)
        for it in events
        if it.stream.startswith("record:n/") and it.at <= now - KEPT * SECOND
        for version in range(1, it.version)
    }
    assert due_versions(store, examined, most) == expected
    store.close()
