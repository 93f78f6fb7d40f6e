"""All refusals of a call. Each but UnavailableError means: decided, nothing happened."""

from datetime import datetime
from typing import Any, ClassVar

from holdlog.domain.results import Conflict, Fenced, NotFound


class HoldlogError(Exception):
    """Base of all refusals. `code` is the status of a response, `operation` the index of the refused operation of a
    transaction, and `detail` the result that surfaces return, if the refusal has facts."""

    code: ClassVar[str] = "error"
    detail: Any = None
    operation: int | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.operation is None else f"operations[{self.operation}]: {text}"

    def __reduce__(self) -> Any:
        """Process pools pickle refusals."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[HoldlogError], arguments: tuple[Any, ...], facts: dict[str, Any]) -> HoldlogError:
    refusal = kind.__new__(kind)
    refusal.args = arguments
    refusal.__dict__.update(facts)
    return refusal


class InvalidError(HoldlogError, ValueError):
    """An argument breaks a rule; the message names the argument and the rule, never the value."""

    code = "invalid"


class ValueRefusal(HoldlogError):
    """Base of refusals about a value, which are complete once the engine has read the event at `position`: the decider
    knows only the version, and the value must not be read while the write lock is held."""

    position: int = 0

    def explain(self, by: str | None, at: datetime, value: Any) -> None:
        """Add what the event at `position` says."""
        raise NotImplementedError


class ConflictError(ValueRefusal):
    """The value changed since the version that the caller knows; `.detail` has the current one."""

    code = "conflict"
    detail: Conflict

    def __init__(self, detail: Conflict, position: int = 0) -> None:
        actual = f"found {detail.actual_version}" if detail.actual_version else "but there is no value now"
        super().__init__(f"{detail.namespace}/{detail.key}: expected version {detail.expected_version}, {actual}")
        self.detail = detail
        self.position = position

    def explain(self, by: str | None, at: datetime, value: Any) -> None:
        value, at = value if self.detail.actual_version else None, self.detail.actual_updated_at or at
        self.detail = self.detail._replace(actual_value=value, actual_updated_by=by, actual_updated_at=at)


class NotFoundError(ValueRefusal, LookupError):
    """There is no such value."""

    code = "not_found"
    detail: NotFound

    def __init__(self, detail: NotFound, position: int = 0) -> None:
        super().__init__(f"{detail.namespace}/{detail.key} does not exist")
        self.detail = detail
        self.position = position

    def explain(self, by: str | None, at: datetime, value: Any) -> None:
        self.detail = self.detail._replace(deleted_by=by, deleted_at=self.detail.deleted_at or at)


class FencedError(HoldlogError):
    """A write relies on a claim that its writer no longer holds."""

    code = "fenced"
    detail: Fenced

    def __init__(self, detail: Fenced) -> None:
        super().__init__(f"{detail.resource}: the writer does not hold the claim with version {detail.version}")
        self.detail = detail
        self.resource = detail.resource
        self.version = detail.version
        self.held_by = detail.held_by
        self.current_version = detail.current_version
        self.reason = detail.reason


class BusyError(HoldlogError):
    """A block was not granted; `hold` says who has its resource."""

    code = "busy"

    def __init__(self, hold: Any) -> None:
        super().__init__(f"{hold.resource} is held by {hold.held_by}")
        self.detail = self.hold = hold


class DeadlockError(HoldlogError):
    """The wait for a block would never end."""

    code = "deadlock"

    def __init__(self, detail: Any) -> None:
        super().__init__(f"{detail.resource}: waiting would never end")
        self.detail = detail


class CurrentError(HoldlogError):
    """A text cannot be redacted because it is a current value or the note of a live claim."""

    code = "current"


class InapplicableError(HoldlogError):
    """An update does not apply to the current value. The message never contains the value."""

    code = "inapplicable"


class UnavailableError(HoldlogError):
    """The store could not accept the call; try the same call again after `retry_after` seconds. If it is `in_doubt`,
    the write may have happened, and the same `request_id` resolves it."""

    code = "unavailable"

    def __init__(self, message: str, retry_after: float = 1.0, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.in_doubt = in_doubt


class LostError(UnavailableError):
    """Nothing was written, as the connection to the database was lost or the head was stale: the engine runs the
    commands again."""


class StoreError(HoldlogError):
    """The store cannot be opened or understood; the message is one line with what to do."""

    code = "store"


class NoStoreError(StoreError):
    """There is no store, and a call that only reads creates none."""
