"""Whether a history of concurrent calls has an order that explains it; and what a value and a claim may answer."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple


class Call(NamedTuple):
    """`begin`, `end`: on a clock that all callers share. `end` and `response` are None when the caller was killed: it
    may have happened or not."""

    what: tuple[Any, ...]
    begin: int
    end: int | None = None
    response: Any = None


Step = Callable[[Any, tuple[Any, ...]], tuple[Any, Any]]


def linearizable(history: list[Call], initial: Hashable, step: Step) -> bool:
    """Wing and Gong's search (1993), with Lowe's memory of what was tried: calls done and the state they left."""
    endless = max((call.end or call.begin for call in history), default=0) + 1
    ends = [endless if call.end is None else call.end for call in history]
    needed = sum(1 << number for number, call in enumerate(history) if call.end is not None)
    tried: set[Any] = {(0, initial)}
    ahead: list[tuple[int, Any]] = [(0, initial)]
    while ahead:
        done, state = ahead.pop()
        if done & needed == needed:
            return True
        left = [number for number in range(len(history)) if not done >> number & 1]
        first_end = min(ends[number] for number in left)
        for number in left:
            call = history[number]
            if call.begin > first_end:
                continue
            after, response = step(state, call.what)
            found = (done | 1 << number, after)
            if (call.end is None or response == call.response) and found not in tried:
                tried.add(found)
                ahead.append(found)
    return False


def register(state: tuple[int, bool, Any], what: tuple[Any, ...]) -> tuple[tuple[int, bool, Any], Any]:
    """A versioned value: (version, exists, value)."""
    version, exists, value = state
    actual = version if exists else 0
    match what:
        case ("read",):
            return state, (actual, value)
        case ("write", _, expected) | ("delete", expected) if expected is not None and exists and expected != actual:
            return state, ("conflict", actual)
        case ("delete", _):
            return ((version + 1, False, None), ("ok", version + 1)) if exists else (state, ("not_found",))
        case ("write", _, expected) if expected:
            return (state, ("conflict", 0)) if not exists else ((version + 1, True, what[1]), ("ok", version + 1))
        case ("write", new, _):
            return (version + 1, True, new), ("ok", version + 1)
    raise AssertionError(what)


def lock(state: tuple[int, str | None, int], what: tuple[Any, ...]) -> tuple[tuple[int, str | None, int], Any]:
    """A claim: (version, holder, version of the grant)."""
    version, holder, granted = state
    match what:
        case ("claim", agent) if holder is None:
            return (version + 1, agent, version + 1), ("claimed", version + 1)
        case ("claim", agent):
            return state, ("already_claimed", granted) if holder == agent else ("busy", granted)
        case ("guard", agent, of):
            return state, holder == agent and granted == of
        case ("release", _) if version == 0:
            return state, ("not_found", None)
        case ("release", _) if holder is None:
            return state, ("already_free", None)
        case ("release", agent):
            return (
                ((version + 1, None, granted), ("released", version + 1))
                if holder == agent
                else (state, ("not_holder", None))
            )
        case ("status",):
            return state, (holder, granted if holder else None)
    raise AssertionError(what)
