"""`state.kv`: the keys of `state.data`."""

from collections.abc import Callable
from typing import Any

from holdlog.adapters.api.validation import NAME, text
from holdlog.adapters.python.state.live import Live


class KeyValues:
    """The stored value of each key as JSON, with the method names of AgentKit. A key that `data` has only by a default
    of its model has no value here."""

    def __init__(self, live: Callable[[], Live[Any]]) -> None:
        self._live = live

    def set(self, key: str, value: Any) -> None:
        """Store a value. Raises DataConflictError if another caller changed the data, InvalidError if it is not
        JSON."""
        self._live().assign({text(key, "key", NAME): value})

    def get(self, key: str, default: Any = None) -> Any:
        """A copy of the value; only `set` stores changes."""
        found = self._live().stored.get(text(key, "key", NAME))
        return default if found is None else found.value

    def delete(self, key: str) -> bool:
        """Delete a key; False if it had no value. Raises as `set`."""
        live = self._live()
        key = text(key, "key", NAME)
        with live.lock:
            was = key in live.stored
            live.assign({}, [key])
            return was

    def has(self, key: str) -> bool:
        return text(key, "key", NAME) in self._live().stored

    def all(self) -> dict[str, Any]:
        """Copies of all values."""
        live = self._live()
        with live.lock:
            return {key: value.value for key, value in live.stored.items()}
