"""Refused calls, as `holdlog log --refusals` lists them among the events."""

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from holdlog.adapters.api.events.ranges import window_of
from holdlog.adapters.api.values.responses import Time
from holdlog.domain.names import acts_for
from holdlog.domain.refusals import every_code
from holdlog.domain.times import utc

if TYPE_CHECKING:
    from holdlog.adapters.api.events.ranges import LogRange
    from holdlog.adapters.api.past.requests import PointInTime
    from holdlog.adapters.runtime.engine import Engine


class RefusalView(BaseModel):
    """A refused call. It is not part of the log: it has no position, and old ones are dropped. `what`: the error, which
    has no values in it."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["Refusal"] = "Refusal"
    at: Time
    code: str
    by: str
    what: str


def refusals_of(
    engine: "Engine", found: "LogRange", first: "PointInTime | None", last: "PointInTime | None", agent: str | None
) -> list[RefusalView]:
    """The refusals of a range of the log that are still stored, oldest first. `first`, `last`: the moments that the
    range was made of. `agent`: only this one and its sub-agents."""
    with engine.store.reader() as reader:
        since, until = window_of(reader, found, first, last)
        refusals = reader.refusals(list(every_code()), since or 0, -1)
    return [
        RefusalView(at=utc(it.at), code=it.code, by=it.by, what=it.what)
        for it in reversed(refusals)
        if (until is None or it.at <= until) and (agent is None or acts_for(it.by, agent))
    ]
