"""Writers of one store in sessions of their own, and people who undo what they wrote."""

from typing import Any

from holdlog.adapters.api.changes.responses import RevertResult
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import Caller


class Runs:
    """Writers of one store, each in a session of its own."""

    def __init__(self, engine: Engine, namespace: str = "n") -> None:
        self.engine = engine
        self.namespace = namespace

    def caller(self, run: str, **facts: Any) -> Caller:
        return Caller(session=self.session(run), server=self.engine.caller.server, **facts)

    def session(self, run: str) -> str:
        return self.engine.identity.session("option", run)

    def put(self, run: str, key: str, value: Any, ttl: float | None = None, guard: Any = (), **facts: Any) -> int:
        call = self.engine.requests.values.set(self.namespace, key, value, run, None, guard, ttl)
        return self.engine.write(call, self.caller(run, **facts)).version

    def drop(self, run: str, key: str) -> None:
        self.engine.write(self.engine.requests.values.delete(self.namespace, key, run, None), self.caller(run))

    def claim(self, run: str, resource: str) -> int:
        answer = self.engine.claim(self.engine.requests.claims.claim(resource, run), self.caller(run))
        return int(answer.body()["version"])

    def revert(self, by: str = "boss", dry_run: bool = False, **named: Any) -> RevertResult:
        requests, caller = self.engine.requests.reverts, self.caller(by)
        writes = self.engine.read(requests.find(**named))
        if dry_run:
            return self.engine.read(requests.preview(writes, by, caller))
        return self.engine.write(requests.revert(writes, by), caller)

    def now(self) -> dict[str, Any]:
        page = self.engine.read(self.engine.requests.values.all_records(self.namespace))
        return {it.key: it.value for it in page}

    def events(self) -> list[dict[str, Any]]:
        page = self.engine.read(
            self.engine.requests.events.page(self.engine.requests.events.choice(self.namespace), limit=1000)
        )
        return [it.model_dump(mode="json") for it in page.events]
