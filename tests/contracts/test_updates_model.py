"""Random transactions on every store and on a plain dictionary: equal outcomes, equal values."""

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from holdlog.domain.commands import RecordsChanged
from holdlog.domain.ports import Store
from holdlog.domain.record import AnyOperation, AppendItem, Increment, Merge, Patch
from holdlog.domain.refusals import ConflictError, HoldlogError, InapplicableError, NotFoundError
from holdlog.domain.value import Json
from tests.support.clock import Clock
from tests.support.commands import HERE, check, drop, put, require_chained, run, transact

_namespaces = itertools.count()

Step = tuple[str, str, Any, int | None]
"""A kind, a key, what it takes, and the expected version; -1: the current one."""
EXPIRES_AFTER = 50.0


class Kept(NamedTuple):
    """What the dictionary has of a key. `end`: when it expires; None: never."""

    version: int = 0
    live: bool = False
    value: Any = None
    end: float | None = None


class Refused(Exception):
    pass


class Model:
    """The contract, as a dictionary has it: nothing of the product is in here."""

    def __init__(self) -> None:
        self.keys: dict[str, Kept] = {}
        self.now = 0.0

    def current(self, kept: Kept) -> Kept:
        if not kept.live or kept.end is None or kept.end > self.now:
            return kept
        return Kept(kept.version + 1)

    def transact(self, steps: list[Step]) -> list[Any]:
        """Key, version and computed value of every step, or what refused one and its index."""
        keys, done = dict(self.keys), []
        for index, (kind, key, argument, expected) in enumerate(steps):
            before = keys.get(key, Kept())
            kept = self.current(before)
            if kind in ("drop", "patch") and not kept.live:
                return [NotFoundError, index]
            if expected not in (None, -1, kept.version if kept.live else 0):
                return [ConflictError, index]
            computed = None
            if kind == "put":
                value, ttl = argument
                after = Kept(kept.version + 1, True, value, None if ttl is None else self.now + ttl)
            elif kind == "drop":
                after = Kept(kept.version + 1)
            elif kind == "check":
                after = before
            else:
                try:
                    value = COMPUTED[kind](kept.value if kept.live else None, argument, kept.live)
                except (TypeError, LookupError):
                    return [InapplicableError, index]
                after = before if value is UNCHANGED else Kept(kept.version + 1, True, value, kept.end)
                computed = Json.of(after.value).text
            keys[key] = after
            done.append((key, after.version, computed))
        self.keys = keys
        return done


UNCHANGED: Any = object()


def added(value: Any, by: Any, live: bool) -> Any:
    value = value if live else 0
    if type(value) not in (int, float):
        raise TypeError
    total = Fraction(str(value)) + Fraction(str(by))
    if type(value) is type(by) is int:
        return int(total)
    if abs(total) > 2**53 and Fraction(str(float(total))) != total:
        raise TypeError
    return float(total)


def appended(value: Any, item: Any, live: bool) -> Any:
    return [*as_list(value, live), item]


def appended_once(value: Any, item: Any, live: bool) -> Any:
    found = as_list(value, live)
    return UNCHANGED if any(repr(it) == repr(item) for it in found) else [*found, item]


def as_list(value: Any, live: bool = True) -> list[Any]:
    if live and type(value) is not list:
        raise TypeError
    return value if live else []


def merged(value: Any, members: Any, live: bool) -> Any:
    if type(members) is not dict:
        return members
    result = dict(value) if type(value) is dict else {}
    for name, member in members.items():
        result.pop(name, None) if member is None else result.update({name: merged(result.get(name), member, True)})
    return result


def patched(value: Any, letters: str, live: bool) -> Any:
    for letter in letters:
        if letter == "r":
            value = {"a": [0]}
            continue
        if type(value) is not dict or (letter == "t" and repr(value) != "{'a': [0, 1]}"):
            raise TypeError
        value = dict(value)
        match letter:
            case "a":
                inner = value["a"]
                value["a"] = {**inner, "-": 1} if type(inner) is dict else [*as_list(inner), 1]
            case "x":
                del value["a"]
            case "c":
                value["b"] = value["a"]
            case "m":
                value["b"] = value.pop("a")
    return value


PATCHES: dict[str, Any] = {
    "r": {"op": "replace", "path": "", "value": {"a": [0]}},
    "a": {"op": "add", "path": "/a/-", "value": 1},
    "x": {"op": "remove", "path": "/a"},
    "c": {"op": "copy", "from": "/a", "path": "/b"},
    "m": {"op": "move", "from": "/a", "path": "/b"},
    "t": {"op": "test", "path": "", "value": {"a": [0, 1]}},
}
COMPUTED: dict[str, Callable[[Any, Any, bool], Any]] = {
    "increment": added,
    "append": appended,
    "append once": appended_once,
    "merge": merged,
    "patch": patched,
}

values = st.sampled_from([None, True, 1, 0.1, "a", [1], {"a": [0]}, {"a": {"b": 1}}])
arguments: dict[str, st.SearchStrategy[Any]] = {
    "put": st.tuples(values, st.sampled_from([None, None, EXPIRES_AFTER])),
    "drop": st.none(),
    "check": st.none(),
    "increment": st.sampled_from([1, -1, 0.1, 0.2, 10**20]),
    "append": values,
    "append once": values,
    "merge": values | st.sampled_from([{"a": None}, {"a": {"b": None, "c": [1]}}, {"b": 1}]),
    "patch": st.text("raxcmt", max_size=4),
}
steps = st.sampled_from(sorted(arguments)).flatmap(
    lambda kind: st.tuples(
        st.just(kind), st.sampled_from("kkkkl"), arguments[kind], st.sampled_from([*[None] * 6, -1, 0, 1, 2])
    )
)
transactions = st.lists(
    st.lists(steps, min_size=1, max_size=1) | st.lists(steps, min_size=1, max_size=4) | st.just("wait"),
    min_size=4,
    max_size=12,
)


def operation(step: Step, namespace: str, expected: int | None) -> AnyOperation:
    kind, key, argument, _ = step
    named: Any = {"namespace": namespace, "key": key, "expected_version": expected}
    match kind:
        case "put":
            return put(key, argument[0], expected, namespace, argument[1])
        case "drop":
            return drop(key, expected, namespace)
        case "check":
            return check(key, expected, namespace)
        case "increment":
            return Increment(**named, by=Json.of(argument))
        case "merge":
            return Merge(**named, patch=Json.of(argument), max_bytes=10_000)
        case "patch":
            return Patch(**named, patch=Json.of([PATCHES[letter] for letter in argument]), max_bytes=10_000)
        case _:
            return AppendItem(**named, value=Json.of(argument), unique=kind == "append once", max_bytes=10_000)


def outcome_of(store: Store, operations: list[AnyOperation], request: str) -> list[Any]:
    try:
        outcome = run(store, transact(*operations), HERE.model_copy(update={"request_id": request}))
    except HoldlogError as refusal:
        return [type(refusal), refusal.operation]
    assert isinstance(outcome, RecordsChanged)
    return [(it.key, it.version, it.value) for it in outcome.results]


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=transactions)
def test_transactions_do_what_a_dictionary_does(store: Store, clock: Clock, script: list[Any]) -> None:
    namespace, model = f"n{next(_namespaces)}", Model()
    for number, several in enumerate(script):
        if several == "wait":
            clock.pass_by(EXPIRES_AFTER + 1)
            model.now += EXPIRES_AFTER + 1
            continue
        known = {key: model.current(kept) for key, kept in model.keys.items()}
        current = {key: kept.version if kept.live else 0 for key, kept in known.items()}
        exact = [(*step[:3], current.get(step[1], 0) if step[3] == -1 else step[3]) for step in several]
        operations = [operation(step, namespace, step[3]) for step in exact]
        with store.reader() as reader:
            before = reader.position()
        done = model.transact(exact)
        for _ in range(2):  # the second time by the same request
            assert outcome_of(store, operations, f"{namespace}-{number}") == done
        with store.reader() as reader:
            if isinstance(done[0], type):
                assert reader.position() == before
            for key, kept in model.keys.items():
                record = reader.record(namespace, key)
                assert (record.version, record.live, record.value.text) == (
                    kept.version,
                    kept.live,
                    Json.of(kept.value).text,
                )


def test_random_transactions_leave_a_sound_log(store: Store) -> None:
    run(
        store, transact(operation(("increment", "k", 1, None), "n", None), operation(("patch", "k", "r", None), "n", 1))
    )
    require_chained(store)
