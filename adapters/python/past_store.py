# Generated from adapters/python/async_past_store.py by `make generate`. Do not edit.
"""The library for threads: a store as it was at an earlier moment."""

from holdlog.adapters.api.past import responses
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.threads import responses as threads
from holdlog.adapters.api.values.responses import AsOf, Past, RecordList, StateRecord
from holdlog.adapters.python.calls import AnyAnswer
from holdlog.adapters.runtime.engine import Engine


class PastStore:
    """A store as it was at a position of its log, or at a time: the read methods of the store, with the same names.

    Made by `StateStore.at`. The first call finds the position; all further calls read at the same one. Every
    response has `as_of`: the position, its time, `clock_suspect` if a clock was ahead around it, and `may_change` if a
    later event may still change the response. By position, a value or claim has expired once the log recorded it; by
    time, from when it was due. Every method raises InvalidError for a moment that the log does not have and
    UnavailableError if the store cannot handle the call now.
    """

    def __init__(self, engine: Engine, point: PointInTime) -> None:
        self._engine = engine
        self._point = point
        self._requests = engine.requests

    def as_of(self) -> AsOf:
        """Return the moment: the last position until then, and its time."""
        found = (self._resolved()).as_of
        assert found is not None
        return found

    def get(self, namespace: str, key: str) -> StateRecord:
        """Return the value that the key had. Raises NotFoundError."""
        return self._read(self._requests.values.get(namespace, key))

    def list_records(
        self,
        namespace: str,
        *,
        prefix: str = "",
        limit: int = 1000,
        after_key: str | None = None,
        deleted: bool = False,
    ) -> RecordList:
        """Return a page of the values of a namespace, sorted by key; `next_after` is set if there are more."""
        return self._read(self._requests.values.records(namespace, prefix, limit, after_key, deleted))

    def list_keys(self, namespace: str) -> list[StateRecord]:
        """Return all values of a namespace, sorted by key."""
        return self._read_all(self._requests.values.all_records(namespace))

    def list_namespaces(self) -> list[str]:
        """Return the namespaces that had values, sorted by name."""
        query = self._requests.values.all_namespaces()
        names, _ = self._engine.read(self._requests.past.plain(query, self._resolved()))
        return names

    def history(self, namespace: str, key: str, limit: int = 100, before_version: int | None = None) -> list[Past]:
        """Return the changes of a key until then, newest first; empty if there were none."""
        return self._read_all(self._requests.values.all_history(namespace, key, limit, before_version))

    def status(self, resource: str) -> responses.PastHeld | responses.PastAvailable:
        """Return who held a resource, since when, and how that hold ended if it has ended by now."""
        return self._engine.read(self._requests.past.status(resource, self._resolved()))

    def board(self, *, agent: str | None = None, limit: int = 100, after: str | None = None) -> responses.PastClaims:
        """List claims and queues, in pages by resource; with `agent`, only those of this agent and its sub-agents."""
        return self._engine.read(self._requests.past.board(self._resolved(), agent, limit, after))

    def agents(self) -> responses.PastAgents:
        """Return the agents that had registered, or held or waited for something."""
        return self._engine.read(self._requests.past.agents(self._resolved()))

    def tokens(self) -> responses.PastTokens:
        """Return the tokens that had been issued, with their states, never their secrets."""
        return self._engine.read(self._requests.past.tokens(self._resolved()))

    def list_threads(self, *, limit: int = 1000, after: str | None = None) -> threads.ThreadList:
        """Return a page of the threads that had started, sorted by name."""
        return self._read(self._requests.threads.listed(limit, after))

    def thread(
        self, thread_id: str, *, limit: int = 50, after_version: int | None = None, before_version: int | None = None
    ) -> threads.ThreadItems | threads.ThreadMessages:
        """Return a page of the messages and results of a thread: the newest, or the first above `after_version`. Raises
        NotFoundError if it started later."""
        return self._read(self._requests.threads.page(thread_id, limit, after_version, before_version))

    def thread_data(self, thread_id: str, *, after_key: str | None = None) -> threads.ThreadData:
        """Return the data of a thread, or a page of it. Raises NotFoundError if it started later."""
        return self._read(self._requests.thread_data.page(thread_id, after_key))

    def _read(self, query: Query[AnyAnswer]) -> AnyAnswer:
        answer = self._engine.read(self._requests.past.of(query, self._point))
        if self._point.as_of is None:
            self._point = self._point._replace(as_of=answer.as_of)
        return answer

    def _read_all(self, query: Query[list[AnyAnswer]]) -> list[AnyAnswer]:
        return self._engine.read(self._requests.past.all_of(query, self._resolved()))

    def _resolved(self) -> PointInTime:
        if self._point.as_of is None:
            found = self._engine.read(self._requests.past.resolved(self._point))
            self._point = self._point._replace(as_of=found)
        return self._point
