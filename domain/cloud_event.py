"""Attributes of events as CloudEvents 1.0 (https://github.com/cloudevents/spec), in NATS messages and exports."""

from typing import Any, Final

from holdlog.domain.times import utc

TYPE_PREFIX: Final = "holdlog."
CALLER_ATTRIBUTES: Final = {
    "principal": "principal",
    "requestid": "request_id",
    "correlationid": "correlation_id",
    "reason": "reason",
}
"""Who caused an event, and why: the attributes, and the names of these facts here."""


def source_of(store_id: str) -> str:
    return f"urn:uuid:{store_id}"


def moment(at: int) -> str:
    """A time, in microseconds UTC, as in RFC 3339."""
    return utc(at).isoformat().replace("+00:00", "Z")


def caller_attributes(caller: Any) -> dict[str, str]:
    """The attributes of a caller, or of an encoded event, as far as they were recorded."""
    found = ((name, getattr(caller, fact)) for name, fact in CALLER_ATTRIBUTES.items())
    return {name: value for name, value in found if value is not None}
