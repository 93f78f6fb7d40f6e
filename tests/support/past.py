"""Reads of the past, and a second implementation of it: folds the views of events into plain dictionaries, in its own
way."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdlog.adapters.api.requests import Requests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.identity import Identity
from holdlog.adapters.operating_system.liveness import Liveness
from holdlog.adapters.operating_system.notifications import ProcessNotifier
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from holdlog.domain.ports import Store
from tests.support.clock import Clock

Body = dict[str, Any]


class Past:
    """Reads what was."""

    def __init__(self, store: Store, clock: Clock) -> None:
        server = Liveness()
        rules = RequestRules(Settings(), clock, clock.steady, server.connected, Identity("salt"))
        self._engine = Engine(store, ProcessNotifier(), NOBODY, Requests(rules), server)
        self.requests = self._engine.requests

    def read(self, query: Any) -> Any:
        return self._engine.read(query)

    def events(self) -> list[Body]:
        choice = self.requests.events.choice(None, None, None, None, None, None)
        page = self.read(self.requests.events.page(choice, 0, 1000))
        assert page.next_position == page.bookmark
        return [event.model_dump(mode="json") for event in page.events]


@dataclass
class Replay:
    """The state after some events. Values by namespace and key: version, value, author, expiry. Holds and tickets by
    resource and version. Threads: items by version, data, version."""

    values: dict[tuple[str, str], tuple[int, Any, str, datetime | None]] = field(default_factory=dict)
    holds: dict[tuple[str, int], Body] = field(default_factory=dict)
    tickets: dict[tuple[str, int], Body] = field(default_factory=dict)
    items: dict[str, list[tuple[int, str, Any]]] = field(default_factory=dict)
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    ended: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, event: Body) -> None:
        kind, version = event["kind"], event["version"]
        if kind.startswith("Value"):
            self._add_value(event, (event["namespace"], event["key"]), kind, version)
        elif kind.startswith("Claim"):
            self._add_claim(event, event["resource"], kind, version)
        elif "thread" in event:
            self._add_item(event, event["thread"], kind, version)

    def _add_value(self, event: Body, address: tuple[str, str], kind: str, version: int) -> None:
        if kind == "ValueWritten":
            ends = datetime.fromisoformat(event["expires_at"]) if "expires_at" in event else None
            self.values[address] = (version, event["value"], event["by"], ends)
        else:
            self.values.pop(address, None)

    def _add_claim(self, event: Body, resource: str, kind: str, version: int) -> None:
        for ended in ("grant", "instead_of"):
            if ended in event:
                gone = self.holds.pop((resource, event[ended]))
                if kind == "ClaimReleased":
                    outcome = "forced" if "forced_by" in event else event["outcome"]
                    self.ended[resource] = (gone["agent"], outcome)
                elif kind == "ClaimExpired" and event["collected"]:
                    self.ended[resource] = (gone["agent"], "expired")
        if "ticket" in event:
            del self.tickets[resource, event["ticket"]]
        if kind in ("ClaimGranted", "ClaimResumed"):
            self.holds[resource, version] = event
        elif kind == "ClaimQueued":
            self.tickets[resource, version] = event

    def _add_item(self, event: Body, thread: str, kind: str, version: int) -> None:
        items, data = self.items.setdefault(thread, []), self.data.setdefault(thread, {})
        self.versions[thread] = version
        match kind:
            case "MessageAppended":
                items.append((version, "message", event["value"]))
            case "ResultAppended":
                items.append((version, "result", event["value"]))
            case "ResultsCleared":
                items[:] = [it for it in items if it[1] == "message"]
            case "ThreadDataChanged":
                data |= event["value"]
                for key in event.get("deleted", ()):
                    data.pop(key, None)


def end_of(hold: Body, later: list[Body]) -> Body | None:
    """The event that ended a hold, among the events after the moment."""
    for event in later:
        if event["stream"] == hold["stream"] and hold["version"] in (event.get("grant"), event.get("instead_of")):
            return event
    return None
