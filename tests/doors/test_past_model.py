"""At every position and time of random histories, the past is what a fold of the events says: a second implementation
of every view, in this file."""

from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdlog

NAMESPACES, KEYS = ("n", "m"), ("a", "b", "a/b")
RESOURCES = ("src/a", "src/", "x", "custom://x")
AGENTS = ("ann", "ben", "cid")

_addresses = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(KEYS))
_values = st.sampled_from([None, 0, 1, "x", [1], {"a": 1}])
_agents, _resources = st.sampled_from(AGENTS), st.sampled_from(RESOURCES)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _addresses, _values, _agents, st.sampled_from([None, None, 3600, 0.000_001])),
        st.tuples(st.just("delete"), _addresses, _agents),
        st.tuples(st.just("swap"), _values, _agents),
        st.tuples(st.just("clear"), st.sampled_from(NAMESPACES), _agents),
        st.tuples(st.just("claim"), _resources, _agents, st.sampled_from(["exclusive", "exclusive", "shared"])),
        st.tuples(st.just("claim"), _resources, _agents, st.just("exclusive")),
        st.tuples(st.just("release"), _resources, _agents),
    ),
    min_size=10,
    max_size=30,
)


def take(store, step):
    """Run a step; whether it was refused does not matter."""
    name, *more = step
    with suppress(holdlog.ConflictError, holdlog.NotFoundError):
        _TAKE[name](store, *more)


_TAKE = {
    "set": lambda store, at, value, by, ttl: store.set(*at, value, updated_by=by, ttl_seconds=ttl),
    "delete": lambda store, at, by: store.delete(*at, deleted_by=by),
    "swap": lambda store, value, by: store.transact(
        [{"op": "set", "namespace": it, "key": "a", "value": value} for it in NAMESPACES], updated_by=by
    ),
    "clear": lambda store, namespace, by: store.clear_namespace(namespace, deleted_by=by),
    "claim": lambda store, resource, by, mode: store.claim(resource, agent=by, mode=mode),
    "release": lambda store, resource, by: store.release(resource, agent=by, outcome="modified"),
}


class Fold:
    """Values by namespace and key: version, value, author, expiry. Holds by resource and version: agent, mode."""

    def __init__(self):
        self.values, self.holds, self.histories = {}, {}, {}

    def add(self, event):
        if event.kind.startswith("Value"):
            address = (event.namespace, event.key)
            value = event.value if event.kind == "ValueWritten" else None
            self.histories.setdefault(address, []).insert(0, (event.version, value, event.position))
            self.values.pop(address, None)
            if event.kind == "ValueWritten":
                ends = getattr(event, "expires_at", None)
                ends = ends if ends is None else datetime.fromisoformat(str(ends))
                self.values[address] = (event.version, event.value, event.by, ends)
        elif event.kind == "ClaimGranted":
            mode = getattr(event, "mode", None) or "exclusive"
            self.holds.pop((event.resource, getattr(event, "instead_of", None)), None)
            self.holds[event.resource, event.version] = (event.agent, mode)
        elif event.kind in ("ClaimReleased", "ClaimExpired"):
            del self.holds[event.resource, event.grant]

    def at_time(self, time):
        """The same without values that were due by then, whenever the log recorded it."""
        other = Fold()
        other.holds = self.holds
        other.values = {name: it for name, it in self.values.items() if it[3] is None or it[3] > time}
        return other

    def holders(self, resource):
        def covers(one, other):
            return one == other or (one.endswith("/") and other.startswith(one))

        return {
            agent for (held, _), (agent, _) in self.holds.items() if covers(held, resource) or covers(resource, held)
        }


def require(fold, read):
    """`read(*words, **more)` returns the board, a list, a value or a status."""
    for namespace in NAMESPACES:
        expected = {key: it[:3] for (name, key), it in sorted(fold.values.items()) if name == namespace}
        assert {it.key: (it.version, it.value, it.updated_by) for it in read(namespace).records} == expected
        for key in KEYS:
            try:
                value = read(namespace, key).value
                assert value == expected[key][1]
            except holdlog.NotFoundError:
                assert key not in expected
    assert {(it.resource, it.version): (it.held_by, it.mode) for it in read().claims} == fold.holds
    for resource in RESOURCES:
        status, holders = read(resource=resource), fold.holders(resource)
        assert (status.held_by in holders) if holders else status.status == "available"


def at(store, moment):
    def read(*words, **more):
        result = store.at(moment, *words, **more)
        assert result.as_of.position >= 1
        return result

    return read


def now(store):
    def read(*words, **more):
        if "resource" in more or not words:
            return store.status(*more.values())
        return store.get(*words) if len(words) == 2 else store.list(*words)

    return read


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_every_moment_is_read_as_a_fold_of_the_events_until_then(steps):
    with holdlog.StateStore(":memory:") as store:
        for step in [("set", ("n", "a"), 0, "ann", None), *steps]:
            take(store, step)
        events = store.events(limit=1000).events
        assert [it.position for it in events] == list(range(1, len(events) + 1))
        fold = Fold()
        for event, following in pairwise([*events, None]):
            fold.add(event)
            require(fold, at(store, event.position))
            if following is None or following.at > event.at:
                require(fold.at_time(event.at), at(store, event.at))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_what_is_read_now_is_a_fold_of_all_events(steps):
    with holdlog.StateStore(":memory:") as store:
        for step in steps:
            take(store, step)
        fold = Fold()
        for event in store.events(limit=1000).events:
            fold.add(event)
        require(fold.at_time(datetime.now(UTC)), now(store))
        for address, history in fold.histories.items():
            found = [(it.version, it.value, it.position) for it in store.history(*address)]
            assert found[-len(history) :] == history
