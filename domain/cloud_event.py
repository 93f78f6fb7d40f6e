"""Attributes of events as CloudEvents 1.0 (https://github.com/cloudevents/spec), in NATS messages and exports."""

from typing import Final

from holdlog.domain.message import Caller
from holdlog.domain.times import utc

TYPE_PREFIX: Final = "holdlog."


def source_of(store_id: str) -> str:
    return f"urn:uuid:{store_id}"


def moment(at: int) -> str:
    """A time, in microseconds UTC, as in RFC 3339."""
    return utc(at).isoformat().replace("+00:00", "Z")


def caller_attributes(caller: Caller) -> dict[str, str]:
    """Who caused an event, and why, as far as that was recorded."""
    facts = {
        "principal": caller.principal,
        "requestid": caller.request_id,
        "correlationid": caller.correlation_id,
        "reason": caller.reason,
    }
    return {name: value for name, value in facts.items() if value is not None}
