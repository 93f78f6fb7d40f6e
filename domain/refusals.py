"""All refusals of a call. All but UnavailableError mean: decided, nothing happened."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple

from holdlog.domain.message import Message
from holdlog.domain.times import utc

TO_START_A_THREAD: Final = "; start it first"
"""The end of a refusal for a missing thread; a read of the past omits it."""


class HoldlogError(Exception):
    """Base of all refusals. `code` names it in responses and in the table of refusals; `http_status` (RFC 9110) and
    `rpc_code` (JSON-RPC 2.0) are those of responses that carry only an error.

    `servers`: the processes whose liveness the refusal depends on; if one has ended, the same command may succeed.
    `operation`: index of the operation of a transaction that was refused; None: the call has only one.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    rpc_code: ClassVar[int] = -32603
    servers: tuple[str, ...] = ()
    operation: int | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.operation is None else f"operations[{self.operation}]: {text}"


class InvalidError(HoldlogError, ValueError):
    """An argument breaks a rule; the message names the argument and the rule, never the value."""

    code = "invalid"
    http_status = 400
    rpc_code = -32602


class TokenError(InvalidError):
    """The caller's token became invalid while its call waited."""

    http_status = 401

    def __init__(self) -> None:
        super().__init__("the token is not valid, or no longer valid; ask the person you work for to replace it")


class TooLargeError(InvalidError):
    """A value, message or result exceeds the limit of bytes as JSON. `argument`: the one that does."""

    code = "too_large"
    http_status = 413

    def __init__(self, limit: int, argument: str = "value") -> None:
        super().__init__(f"{argument}: must have at most {limit} bytes as JSON; split it, or store a reference to it")


class TooMuchWorkError(InvalidError):
    """Updates in the store would keep other writers waiting for too long."""

    code = "too_large"
    http_status = 413

    def __init__(self) -> None:
        super().__init__(
            "this takes too much work in the store; split it, or read the value and write the result with its version"
        )


class InapplicableError(HoldlogError):
    """An update does not apply to the current value. The message names what does not, never the value."""

    code = "inapplicable"
    http_status = 409
    rpc_code = -32602


class ReusedError(InvalidError):
    """A request_id was reused for a different request."""

    code = "reused"
    http_status = 422


class DeniedError(HoldlogError):
    """The caller's token does not allow the call. `needed`: the grant that would, such as `write:build-1`."""

    code = "denied"
    http_status = 403
    rpc_code = -32602

    def __init__(self, needed: str) -> None:
        super().__init__(
            f"the token does not allow this call; it needs a grant of {needed}; ask the person you work for to add it"
        )
        self.needed = needed


class ConflictDetail(Message):
    """What exists instead of the expected version. `actual_version` 0: there is no value now; author and time are
    then those of the deletion, or None if the key never existed. `actual_principal`: who was authenticated.
    `redacted`: the actual value was redacted."""

    namespace: str
    key: str
    expected_version: int
    actual_version: int
    actual_value: Any
    actual_updated_by: str | None
    actual_updated_at: datetime | None
    actual_principal: str | None = None
    redacted: Literal[True] | None = None


class ConflictError(HoldlogError):
    """The record changed since the version that the caller knows. `repeatable`: the operation does not contain
    the whole value, so the same call may be right for another version. `is_own`: the caller made the current one."""

    code = "conflict"
    http_status = 409

    def __init__(self, detail: ConflictDetail) -> None:
        name, expected, actual = f"{detail.namespace}/{detail.key}", detail.expected_version, detail.actual_version
        super().__init__(
            f"{name}: expected version {expected}, found {actual}; merge your change into detail.actual_value and"
            f" retry with expected_version={actual}"
            if actual
            else f"{name}: expected version {expected}, but there is no value now, which counts as version 0"
        )
        self.detail = detail
        self.repeatable = False
        self.is_own = False


class DataConflictDetail(Message):
    """The data of a thread changed since the expected version; `changed_keys`: those that did."""

    thread_id: str
    expected_data_version: int
    actual_data_version: int
    changed_keys: tuple[str, ...]


class DataConflictError(HoldlogError):
    """The data of a thread changed since the version that the caller knows."""

    code = "conflict"
    http_status = 409

    def __init__(self, detail: DataConflictDetail) -> None:
        super().__init__(
            f"thread {detail.thread_id}: expected data version {detail.expected_data_version}, "
            f"found {detail.actual_data_version}; read its data again, then decide whether your change still applies"
        )
        self.detail = detail


class NotFoundError(HoldlogError, LookupError):
    """There is no such value, claim or thread. `facts`: namespace and key, or resource, or thread_id and key; for a
    deleted value also `version`, `deleted_by` and `deleted_at`; for an expired one `expires_at`, too, and `deleted_by`
    is its writer."""

    code = "not_found"
    http_status = 404
    rpc_code = -32002

    def __init__(self, message: str, facts: dict[str, Any]) -> None:
        super().__init__(message)
        self.facts = facts

    @classmethod
    def of_record(
        cls,
        namespace: str,
        key: str,
        version: int = 0,
        by: str = "",
        at: int = 0,
        expires_at: int | None = None,
        principal: str | None = None,
    ) -> "NotFoundError":
        facts: dict[str, Any] = {"namespace": namespace, "key": key}
        if version:
            facts |= {"version": version, "deleted_by": by, "deleted_at": utc(at)}
        if principal is not None:
            facts["principal"] = principal
        if expires_at is not None:
            facts["expires_at"] = utc(expires_at)
        return cls(f"{namespace}/{key} does not exist", facts)

    @classmethod
    def of_thread(cls, thread: str) -> "NotFoundError":
        return cls(f"thread {thread} does not exist{TO_START_A_THREAD}", {"thread_id": thread})

    @classmethod
    def of_claim(cls, resource: str) -> "NotFoundError":
        return cls(f"{resource} was never claimed", {"resource": resource})


class Hold(NamedTuple):
    """What blocks a claim, and since when. Durations in microseconds, `claimed_at` in microseconds UTC.

    `version` is that of the grant. `covered_by`: the claim that overlaps the resource. `holders`: if there are several.
    `servers`: the processes that keep them alive. `same_name`: the holder has the caller's name. `in_line`: it only
    waits ahead of the caller. `shared_by_caller`: the caller shares it and wants it exclusively. `former`: an ended
    session of the caller's name holds what covers the resource. `without_session`: it was claimed without a session,
    so only a receipt identifies its holder. `session_ended`: the holder's session is known to have ended. `principal`:
    that of `held_by`; `holder_principals`: those of `holders`, in their order.
    """

    resource: str
    held_by: str
    claimed_at: int
    version: int
    expires_in: int
    idle: int
    servers: tuple[str, ...]
    queue_length: int = 0
    covered_by: str | None = None
    holders: tuple[str, ...] = ()
    note: str | None = None
    same_name: bool = False
    in_line: bool = False
    shared_by_caller: bool = False
    former: bool = False
    without_session: bool = False
    session_ended: bool = False
    principal: str | None = None
    holder_principals: tuple[str | None, ...] = ()


class BusyError(HoldlogError):
    """Another agent holds the resource."""

    code = "busy"
    http_status = 409

    def __init__(self, hold: Hold) -> None:
        super().__init__(f"{hold.resource} is held by {hold.held_by}")
        self.hold = hold
        self.servers = hold.servers


class Link(NamedTuple):
    """One step of a cycle: the agent holds what the previous one waits for, and waits for what the next one holds."""

    agent: str
    holds: str
    waits_for: str
    principal: str | None = None


@dataclass(eq=False, repr=False)
class DeadlockError(HoldlogError):
    """Waiting would never end: the agents of `cycle` would wait for each other."""

    code = "deadlock"

    resource: str
    cycle: tuple[Link, ...]

    def __post_init__(self) -> None:
        agents = len(self.cycle)
        super().__init__(f"{self.resource}: waiting would deadlock {agents} agents; release one of your claims first")


@dataclass(eq=False, repr=False)
class NotHolderError(HoldlogError):
    """Only the holder may release a claim. `cause`: what distinguishes the caller from the holder: the agent's
    name, the session, the token, or the receipt that it did not pass. `reason`: why a person took the claim."""

    code = "not_holder"

    resource: str
    held_by: str | None
    cause: Literal["agent", "session", "receipt", "token"] = "agent"
    reason: str | None = None
    servers: tuple[str, ...] = ()
    held_by_principal: str | None = None

    def __post_init__(self) -> None:
        super().__init__(f"{self.resource} is not held by the caller")


@dataclass(eq=False, repr=False)
class ExpiredError(HoldlogError):
    """The lease of the claim had already ended. `of_this_session`: the caller's session held it; otherwise another
    session of its name did. `replayed`: the call repeats a request whose claim has ended since."""

    code = "expired"

    resource: str
    held_by: str | None
    of_this_session: bool = True
    replayed: bool = False
    held_by_principal: str | None = None

    def __post_init__(self) -> None:
        super().__init__(f"the lease of {self.resource} had expired; claim it again")


@dataclass(eq=False, repr=False)
class FencedError(HoldlogError):
    """A write relies on a claim that its writer no longer holds.

    `current_version`, `held_by`: the writer's own current grant if it has one, otherwise another agent's. `ended`: how
    that claim ended, if it was the last one. `reason`: why a person took it. `needs_receipt`: it is claimed under
    the writer's name without a session, so the guard must include its receipt."""

    code = "fenced"
    http_status = 409

    resource: str
    version: int
    current_version: int | None = None
    held_by: str | None = None
    reason: str | None = None
    ended: Literal["released", "expired", "forced"] | None = None
    is_own: bool = False
    needs_receipt: bool = False
    servers: tuple[str, ...] = ()
    held_by_principal: str | None = None

    def __post_init__(self) -> None:
        super().__init__(
            f"{self.resource}: the writer does not hold the claim with version {self.version}; claim it again and pass"
            " its new version"
        )


class UnavailableError(HoldlogError):
    """The store could not accept the call; try the same call again after `retry_after` seconds.

    `in_doubt`: the write may have happened (the error came from the commit itself); the same `request_id` resolves it.
    """

    code = "unavailable"
    http_status = 503

    def __init__(self, message: str, retry_after: float = 1.0, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.in_doubt = in_doubt


class ReplacedError(UnavailableError):
    """The file of the store was deleted or replaced, for example by a restore. Only a restart opens the current one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was deleted or replaced; restart this process to open the current file")


class ReadOnlyError(UnavailableError):
    """This process can read the store, but not write it. Only other rights, and a restart, change that. `why`: in one
    line, with what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(why, retry_after=60.0)


class ConnectionLostError(UnavailableError):
    """The connection to the store was lost, and no events were written: the same commands may run again. `in_doubt`:
    leases may have been renewed."""


class OverLimitError(UnavailableError):
    """The store's quota is exhausted; delete something first."""

    http_status = 429


class StoreError(HoldlogError):
    """The store cannot be opened or understood; the message is one line with what to do."""

    code = "store"

    @classmethod
    def closed(cls) -> "StoreError":
        return cls("the store is closed")

    @classmethod
    def forked(cls) -> "StoreError":
        return cls("this store was opened before a fork; open it again in the child process")


class SealedError(StoreError):
    """The store moved elsewhere: it stays readable but accepts no more writes. Nothing happened."""

    code = "sealed"
    http_status = 503


def every_code() -> frozenset[str]:
    """The codes of all refusals."""

    def below(kind: type[HoldlogError]) -> set[str]:
        return {kind.code}.union(*map(below, kind.__subclasses__()))

    return frozenset(below(HoldlogError))
