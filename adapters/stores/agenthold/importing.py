"""Imports a file of agenthold into a new store."""

from itertools import chain
from typing import Final, NamedTuple
from uuid import uuid4

from holdlog.adapters.operating_system import platform
from holdlog.adapters.stores.agenthold.conversion import Conversion, LiveClaim, plain_addresses
from holdlog.adapters.stores.agenthold.file import AgentholdFile
from holdlog.adapters.stores.copying.carried import BEFORE_COPY
from holdlog.adapters.stores.copying.writing import CopySteps, LogTally, Target, write_log
from holdlog.adapters.stores.sql.tables import LEASES
from holdlog.domain.claims.lease import SECOND, Lease
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.projections.projection import Row

UNTIMED_SECONDS: Final = 300.0
"""The lease of an imported claim that would not have expired in agenthold: the default of holdlog."""


class ImportReport(NamedTuple):
    """What was imported. `changes`: rows of the history, of which `unchanged` are no event in holdlog, such as the
    activity of an agent. `claims`: those that are held; `expired`: those whose time was over. `renumbered`: keys and
    claims with other versions than in agenthold. `renamed`: names that holdlog does not allow, as they are now.
    `as_text`: values that JSON cannot carry, such as NaN."""

    changes: int
    events: int
    unchanged: int
    values: int
    claims: int
    expired: int
    agents: int
    renumbered: int
    renamed: tuple[str, ...]
    as_text: int
    store_id: str


def import_into(
    target: Target, source: AgentholdFile, claim_ttl: float | None, progress: Progress = ignore_progress
) -> ImportReport:
    """Create a store with the whole history of a file. `claim_ttl`: that of agenthold's server, in seconds; None: its
    claims do not expire, and get `UNTIMED_SECONDS` here. Either all is imported and verified, or no store is created.

    Raises StoreError, OccupiedError, UnavailableError."""
    source.require_sound()
    now, total = platform.now(), source.count()
    conversion = Conversion(plain_addresses(source.changes()), now)
    steps, tally = CopySteps(total, progress), LogTally()
    with target.prepared():
        converted = chain(conversion.events(source.changes()), conversion.expirations(claim_ttl))
        write_log(target, tally.of(steps.of(map(tuple, converted))), tally, steps)
        claims = conversion.live_claims()
        target.put(LEASES, [_lease(it, claim_ttl, now, target.steady()) for it in claims])
        store_id = str(uuid4())
        target.publish(store_id, {})
    counts = conversion.counts
    return ImportReport(
        changes=counts.changes,
        events=counts.events,
        unchanged=counts.unchanged,
        values=len(conversion.live_values),
        claims=len(claims),
        expired=counts.expired,
        agents=len(conversion.profiles),
        renumbered=len(counts.renumbered),
        renamed=tuple(sorted(counts.renamed)),
        as_text=counts.as_text,
        store_id=store_id,
    )


def _lease(claim: LiveClaim, claim_ttl: float | None, now: int, steady: int) -> Row:
    """The lease of a session that has ended, as in a copy: the next session with the holder's name can resume it."""
    duration = round((UNTIMED_SECONDS if claim_ttl is None else claim_ttl) * SECOND)
    idle = 0 if claim_ttl is None else max(0, now - claim.active_at)
    lease = Lease(
        claim.resource, claim.version, "held", claim.agent, None, BEFORE_COPY, "",
        deadline=steady + duration - idle, duration=duration, last_call_at=steady - idle,
        position=claim.position, last_seen_at=steady - idle, ended_at=now,
    )  # fmt: skip
    return tuple(int(it) if isinstance(it, bool) else it for it in lease)
