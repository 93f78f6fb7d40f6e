"""`state.kv`: the keys of `state.data`, one by one."""

from collections.abc import Callable
from typing import Any

from holdlog.adapters.api.validation import NAME, text
from holdlog.adapters.python.state.live import Live


class KeyValues:
    """What stands in the log under each key, as JSON; AgentKit's calls. A key that `data` shows by a default of its
    model alone has no value here."""

    def __init__(self, live: Callable[[], Live[Any]]) -> None:
        self._live = live

    def set(self, key: str, value: Any) -> None:
        """Raises DataConflictError when somebody else changed the data, InvalidError for what is no JSON."""
        self._live().assign({text(key, "key", NAME): value})

    def get(self, key: str, default: Any = None) -> Any:
        """A copy: changes of it are written by `set` only."""
        found = self._live().stored.get(text(key, "key", NAME))
        return default if found is None else found.value

    def delete(self, key: str) -> bool:
        """False: there was nothing. Raises as `set`."""
        live = self._live()
        key = text(key, "key", NAME)
        with live.lock:
            was = key in live.stored
            live.assign({}, [key])
            return was

    def has(self, key: str) -> bool:
        return text(key, "key", NAME) in self._live().stored

    def all(self) -> dict[str, Any]:
        """Copies."""
        live = self._live()
        with live.lock:
            return {key: value.value for key, value in live.stored.items()}
