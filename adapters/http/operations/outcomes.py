"""Names of commands and outcomes, from the program's own few words: for labels and traces."""

from holdlog.adapters.runtime.group_commit import Job
from holdlog.domain.claims.commands import AcquireClaim, ClaimAcquired, Queued, ReleaseOutcome
from holdlog.domain.commands import AnyCommand
from holdlog.domain.record import Transact
from holdlog.domain.refusals import HoldlogError


def kind_of(command: AnyCommand) -> str:
    """The name of the call: `set`, `claim`, `clear_namespace`; `transact` for several operations."""
    if isinstance(command, Transact) and len(command.operations) == 1:
        return command.operations[0].kind
    return command.kind


def outcome_of(job: Job) -> str:
    """`ok` or another outcome, the code of a refusal, or `error` for an unexpected failure."""
    match job.outcome:
        case ClaimAcquired(already=already):
            return "already_claimed" if already else "claimed"
        case Queued():
            return "queued" if isinstance(job.command, AcquireClaim) and job.command.wait else "busy"
        case ReleaseOutcome(already=already):
            return "already_free" if already else "released"
        case HoldlogError(code=code):
            return code
        case BaseException():
            return "error"
        case _:
            return "ok"
