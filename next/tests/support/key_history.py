"""Whether a history of calls of one key has an order that explains every result and keeps the order of real time.

The search of Wing and Gong (1993) with the memory of Lowe (2017): take any call that began before all others ended.
"""

from typing import Any, NamedTuple

INFINITE = float("inf")


class Call(NamedTuple):
    """`result`: None for a call that was never answered, which may have taken place or not."""

    name: str
    tried: Any
    expected: int | None
    began: float
    ended: float
    result: dict[str, Any] | None


class Key(NamedTuple):
    """`value` None: does not exist now; its versions go on."""

    value: Any = None
    version: int = 0


UNWRITTEN = Key()


def calls(lines: list[dict[str, Any]]) -> list[Call]:
    """Of one process, which says each call before and after it."""
    begun: dict[Any, dict[str, Any]] = {}
    found: list[Call] = []
    for line in lines:
        if "began" in line:
            begun[line["tried"]] = line
        elif "ended" in line:
            it = begun.pop(line["tried"])
            found.append(Call(it["call"], it["tried"], it["expected"], it["began"], line["ended"], line))
    return found + [Call(it["call"], it["tried"], it["expected"], it["began"], INFINITE, None) for it in begun.values()]


def explain(call: Call, key: Key) -> Key | None:
    """The key after the call, if its result is the one that it has then; None if not."""
    refusal = (call.result or {}).get("error")
    if call.name == "get":
        seen = None if refusal else (call.result or {}).get("value"), (call.result or {}).get("version", 0)
        fits = call.result is None or (key.value is None if refusal else seen == key)
        return key if fits else None
    current = key.version if key.value is not None else 0
    refused = key.value is None if call.name == "delete" else call.expected not in (None, current)
    if refused:
        return key if call.result is None or refusal in ("NotFoundError", "ConflictError") else None
    after = Key(None if call.name == "delete" else call.tried, key.version + 1)
    fits = call.result is None or (refusal is None and call.result.get("version") == after.version)
    return after if fits else None


def is_linearizable(history: list[Call], key: Key = UNWRITTEN) -> bool:
    seen: set[tuple[frozenset[int], Key]] = set()
    todo = [(frozenset(range(len(history))), key)]
    while todo:
        left, key = todo.pop()
        if all(history[it].result is None for it in left):
            return True
        if (left, key) in seen:
            continue
        seen.add((left, key))
        first_end = min(history[it].ended for it in left)
        for it in left:
            after = explain(history[it], key) if history[it].began <= first_end else None
            if after is not None:
                todo.append((left - {it}, after))
    return False
