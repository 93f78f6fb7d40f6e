"""All commands and their outcomes."""

from typing import NamedTuple

from holdlog.domain.agent import Register, RegisterOutcome
from holdlog.domain.claims.commands import (
    AcquireClaim,
    ClaimAcquired,
    CollectLostClaims,
    EndSession,
    LostClaims,
    Queued,
    RecordFileChange,
    ReleaseClaim,
    ReleaseOutcome,
    Renew,
    StopWaiting,
    Sweep,
    SweepOutcome,
    TouchSessions,
)
from holdlog.domain.record import ClearNamespace, Transact, Written
from holdlog.domain.redaction import Redact, Redacted
from holdlog.domain.retention import ApplyRetention, ChangeRetention, RetentionApplied, RetentionChange
from holdlog.domain.revert import Revert, Reverted
from holdlog.domain.threads.commands import ThreadChanged, ThreadCommand
from holdlog.domain.token import TokenChanged, TokenCommand

AnyCommand = (
    Transact
    | ClearNamespace
    | Revert
    | AcquireClaim
    | ReleaseClaim
    | StopWaiting
    | RecordFileChange
    | Register
    | Sweep
    | Renew
    | CollectLostClaims
    | TouchSessions
    | EndSession
    | ChangeRetention
    | ApplyRetention
    | Redact
    | TokenCommand
    | ThreadCommand
)


class RecordsChanged(NamedTuple):
    """The outcome of a change to records: what each operation did, and the position of the last event."""

    results: tuple[Written, ...]
    position: int


Outcome = (
    RecordsChanged
    | Reverted
    | ClaimAcquired
    | Queued
    | ReleaseOutcome
    | RegisterOutcome
    | SweepOutcome
    | LostClaims
    | TokenChanged
    | ThreadChanged
    | RetentionChange
    | RetentionApplied
    | Redacted
)
