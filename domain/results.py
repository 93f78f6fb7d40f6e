"""What commands return, and the details of refusals. What queries return is in projections/, which a hook does not
need: each class of a result takes it 0.1 ms.

A field that has the default None is absent: it is left out of JSON. A field without a default is always there, also if
it is null. `status` comes first in JSON. Times are UTC; durations are seconds.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def utc(microseconds: int) -> datetime:
    """The time of microseconds since 1970."""
    return _EPOCH + microseconds * _MICROSECOND


class Lost(NamedTuple):
    """A claim of an agent of the session that ended without its holder's doing. `held_by`: who holds it now."""

    resource: str
    why: str
    held_by: str | None = None
    reason: str | None = None


class SetResult(NamedTuple):
    """A value was written. Its `previous_version` is None if it did not exist."""

    namespace: str
    key: str
    version: int
    previous_version: int | None
    position: int
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


class UpdateResult(NamedTuple):
    """The store computed and wrote a value. `version` is unchanged if the value is."""

    namespace: str
    key: str
    value: Any
    version: int
    previous_version: int | None
    position: int
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


class DeleteResult(NamedTuple):
    """A value was deleted: its version was `deleted_version`, and `version` is that of the deletion."""

    namespace: str
    key: str
    deleted_by: str
    deleted_version: int
    version: int
    position: int
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


class ClearResult(NamedTuple):
    namespace: str
    deleted_count: int
    deleted_keys: list[str]
    deleted_by: str
    position: int
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


class Step(NamedTuple):
    """The result of one operation of a transaction, with the `value` that the store computed, if it did."""

    namespace: str
    key: str
    version: int
    value: Any = None


class TransactionResult(NamedTuple):
    results: list[Step]
    position: int
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


class RedactedRequest(NamedTuple):
    """An earlier request with the same id was carried out, and its result redacted. Nothing was done again. `position`:
    the end of the log after it."""

    position: int
    redacted: bool = True
    lost: list[Lost] | None = None
    status: Literal["ok"] = "ok"


class Conflict(NamedTuple):
    """The version is not the expected one. `actual_version` 0: there is no value now; author and time are those of
    its deletion."""

    namespace: str
    key: str
    expected_version: int
    actual_version: int
    actual_value: Any
    actual_updated_by: str | None = None
    actual_updated_at: datetime | None = None
    operation: int | None = None
    status: Literal["conflict"] = "conflict"

    @property
    def hint(self) -> str:
        if not self.actual_version:
            return "There is no value now. Call get(), then decide whether your change still applies."
        return f"Merge your change into actual_value and call again with expected_version={self.actual_version}."


class NotFound(NamedTuple):
    """There is no such value. If there was one, `version`, `deleted_by` and `deleted_at` say what became of it."""

    namespace: str
    key: str
    version: int | None = None
    deleted_by: str | None = None
    deleted_at: datetime | None = None
    hint: str = "Call list() to see the keys of this namespace."
    status: Literal["not_found"] = "not_found"


class Fenced(NamedTuple):
    """The write relied on a claim that its writer does not hold."""

    resource: str
    version: int
    current_version: int | None = None
    held_by: str | None = None
    reason: str | None = None
    hint: str = (
        "The writer does not hold this with that version. Call claim() again, read the values again, and pass the new"
        " version."
    )
    status: Literal["fenced"] = "fenced"
