"""Random histories of values: the library does what a dictionary with versions does, and its log says what was done."""

from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import holdlog

KEYS = ["a", "b", "é/%"]
SMALL = st.one_of(st.none(), st.integers(-3, 3), st.just([]), st.just({"x": 1}), st.text(max_size=2))


class Entry(NamedTuple):
    """What the dictionary knows of a key. `version` also counts deletions."""

    version: int = 0
    exists: bool = False
    value: Any = None


OPERATION = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["set", "set", "delete", "check", "merge", "increment", "append"]),
        "key": st.sampled_from(KEYS),
        "value": SMALL,
        "by": st.integers(-2, 2),
        "unique": st.booleans(),
        "expected": st.sampled_from([None, None, "current", "current", 0, 1, 5]),
    }
)
SCRIPT = st.lists(st.one_of(OPERATION, st.lists(OPERATION, min_size=1, max_size=4), st.just("clear")), max_size=25)


class Refused(Exception):
    """The dictionary refuses the step."""


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def computed(step: dict[str, Any], entry: Entry) -> Any:
    match step["op"]:
        case "set":
            return step["value"]
        case "merge":
            return merged(entry.value if entry.exists else None, step["value"])
        case "increment":
            before = entry.value if entry.exists else 0
            if not isinstance(before, int):
                raise Refused
            return before + step["by"]
        case _:
            before = entry.value if entry.exists else []
            if not isinstance(before, list):
                raise Refused
            return before if step["unique"] and step["value"] in before else [*before, step["value"]]


def apply(model: dict[str, Entry], step: dict[str, Any]) -> None:
    entry = model.get(step["key"], Entry())
    if step["op"] == "delete" and not entry.exists:
        raise Refused
    if (expected := version_of(step, model)) is not None and expected != (entry.version if entry.exists else 0):
        raise Refused
    if step["op"] == "check":
        return
    if step["op"] == "delete":
        model[step["key"]] = Entry(entry.version + 1)
        return
    value = computed(step, entry)
    if step["op"] == "append" and step["unique"] and entry.exists and value == entry.value:
        return
    model[step["key"]] = Entry(entry.version + 1, True, value)


def version_of(step: dict[str, Any], model: dict[str, Entry]) -> int | None:
    entry = model.get(step["key"], Entry())
    if step["expected"] == "current":
        return entry.version if entry.exists else 0
    if step["expected"] is None and step["op"] == "check":
        return 0
    return step["expected"]


def operation(step: dict[str, Any], model: dict[str, Entry]) -> dict[str, Any]:
    """As the library takes it."""
    made = {"op": step["op"], "namespace": "n", "key": step["key"]}
    if step["op"] in ("set", "merge", "append"):
        made["value"] = step["value"]
    if step["op"] == "increment":
        made["by"] = step["by"]
    if step["op"] == "append":
        made["unique"] = step["unique"]
    if (expected := version_of(step, model)) is not None:
        made["expected_version"] = expected
    return made


def run(store: Any, model: dict[str, Entry], step: Any) -> dict[str, Entry]:
    """One step in both; they agree whether it is done. The dictionary afterwards."""
    after = dict(model)
    if step == "clear":
        live = sorted(key for key, entry in model.items() if entry.exists)
        assert store.clear_namespace("n", deleted_by="ann").deleted_keys == live
        return after | {key: Entry(model[key].version + 1) for key in live}
    steps = step if isinstance(step, list) else [step]
    operations = []
    try:
        for one in steps:
            operations.append(operation(one, after))
            apply(after, one)
    except Refused:
        with pytest.raises(holdlog.HoldlogError):
            store.transact(operations, updated_by="ann")
        return model
    done = store.transact(operations, updated_by="ann")
    last = {it.key: it.version for it in done.results}
    assert last == {key: after.get(key, Entry()).version if after.get(key) else 0 for key in last}
    return after


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=SCRIPT)
def test_random_histories_do_what_a_dictionary_does(script):
    model = dict[str, Entry]()
    with holdlog.StateStore(":memory:") as store:
        for step in script:
            model = run(store, model, step)
        live = {key: entry for key, entry in model.items() if entry.exists}
        listed = [(it.key, it.version, it.value) for it in store.list_keys("n")]
        assert listed == [(key, live[key].version, live[key].value) for key in sorted(live)]
        for key, entry in model.items():
            assert [it.version for it in store.history("n", key)] == list(range(entry.version, 0, -1))
        assert len(store.events(limit=1000).events) == sum(entry.version for entry in model.values())
