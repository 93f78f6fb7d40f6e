"""Findings of a doctor that do not depend on the kind of store."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, Literal, NamedTuple

from holdlog.adapters.operating_system.location import shown
from holdlog.adapters.stores.event_log.audit import Audit, Faults, Row
from holdlog.adapters.stores.event_log.sealing import SEAL, line_of
from holdlog.adapters.stores.event_log.snapshots import check_snapshots
from holdlog.adapters.stores.event_log.tree import check_tree
from holdlog.adapters.stores.sql.inspection import SqlInspection
from holdlog.domain.checkpoint import Checkpoint, is_store_id
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.merkle import SUBTREE
from holdlog.domain.progress import Progress
from holdlog.domain.redaction import UNFINISHED
from holdlog.domain.refusals import StoreError
from holdlog.domain.store_log import LogForked
from holdlog.projections.claims import TICKETS, claim_of
from holdlog.projections.tree import LogTree

Level = Literal["ok", "warn", "bad"]
CLOCK_TOLERANCE: Final = 5
"""Seconds. A log that is further ahead of the clock is reported: machines correct small differences themselves."""


class Finding(NamedTuple):
    """The subject of a check, its status, and one line about it. `position`: of the first event that differs."""

    name: str
    level: Level
    text: str
    position: int | None = None


class Verdict(NamedTuple):
    """Whether a log is consistent, and up to which position checkpoints show that it is unchanged; 0: not shown.
    `position`: of the first event that differs, as far as one is known. `text`: all that on one line."""

    consistent: bool
    unchanged_to: int
    position: int | None
    text: str


NOT_PROVEN = Finding(
    "proof",
    "ok",
    "consistent; not proven unchanged: without a checkpoint kept elsewhere, anyone who can write the store could have"
    " changed events and computed every digest again, or removed the newest events",
)

REBUILD_LEFT = Finding(
    "rebuild",
    "warn",
    "a rebuild is running, or was interrupted; the views in use are complete, and the next rebuild cleans up",
)


REDACTION_LEFT = Finding(
    "redaction",
    "warn",
    "a redaction is running, or was interrupted; files of the store may still have its text; run"
    " `holdlog redact --finish`",
)


def contents(inspection: SqlInspection, size: int, now: int) -> list[Finding]:
    """Findings about the store's contents. `size`: bytes; `now`: microseconds UTC by the clock of its writers."""
    store_id = inspection.meta("store_id")
    if not is_store_id(store_id):
        return [Finding("contents", "bad", "the store has no id, or one that holdlog did not write")]
    events, live, deleted = inspection.counts()
    counts = f"{counted(events, 'event')}, {counted(live, 'record')} ({deleted:,} deleted)"
    text = f"store {shown(store_id)}: {counts}, {size / 1e6:,.1f} MB"
    unfinished = [REDACTION_LEFT] if inspection.meta(UNFINISHED) else []
    return [Finding("contents", "ok", text), *_seal(inspection.meta(SEAL)), *unfinished, *_clock(inspection, now)]


def _clock(inspection: SqlInspection, now: int) -> Iterator[Finding]:
    """That the newest event is in the future: times of a log never run backwards, so the store takes its time for the
    current one until the clock has caught up."""
    gain = (inspection.last_time() - now) // SECOND
    if gain > CLOCK_TOLERANCE:
        span = f"{gain / 3600:,.1f} h" if gain >= 3600 else f"{gain / 60:.1f} min" if gain >= 60 else f"{gain} s"
        text = (
            f"the log's time is {span} ahead of the clock, which was ahead once, or is behind now; until it catches up,"
            " values with a TTL, and tokens, that end within this time have expired early, and new ones expire late"
        )
        yield Finding("clock", "warn", text)


def _seal(text: str | None) -> Iterator[Finding]:
    try:
        if (line := line_of(text)) is not None:
            yield Finding("seal", "warn", shown(line))
    except (ValueError, TypeError):
        yield Finding("seal", "bad", "the store is sealed, but its seal cannot be read")


def checks_of(
    inspection: SqlInspection, progress: Progress, checkpoints: Sequence[Checkpoint]
) -> dict[str, Callable[[], list[Finding]]]:
    """The checks of the log and of what depends on it, by name. They raise what the database raises."""
    tree = cache(lambda: LogTree(inspection.reader(), trusts_view=False))  # computed once, by the first check
    return {
        "log": lambda: _log(inspection, progress, checkpoints, tree),
        "snapshots": lambda: [_snapshots(inspection)],
        "tree": lambda: [_tree(inspection, tree())],
        "leases": lambda: [_leases(inspection)],
        "kept": lambda: [_retained(inspection)],
    }


def _log(
    inspection: SqlInspection, progress: Progress, checkpoints: Sequence[Checkpoint], tree: Callable[[], LogTree]
) -> list[Finding]:
    audit = Audit(inspection, progress)
    audit.run()
    proof = [] if audit.digests.count and not checkpoints else _proof(inspection, checkpoints, tree)
    return [
        _judged("positions", audit.positions, f"1 to {audit.events:,} without a gap", "events are missing"),
        _judged("versions", audit.versions, f"of {audit.streams:,} streams, without a gap", "events are missing"),
        _judged("times", audit.times, "never run backwards", "are earlier than the event before"),
        _judged("digests", audit.digests, f"all {audit.events:,} verify", "do not verify"),
        *proof,
        _judged("redactions", audit.redactions, "every missing text was redacted", "differ from the log"),
        _judged("events", audit.unreadable, "all can be read", "cannot be read"),
        _judged(
            "views",
            audit.views,
            "agree with the log",
            "differ from the log; run `holdlog rebuild`",
        ),
    ]


def _proof(
    inspection: SqlInspection, checkpoints: Sequence[Checkpoint], computed: Callable[[], LogTree]
) -> list[Finding]:
    """Compare the log with checkpoints, of it or of the logs that it was copied from, and with its LogForked events."""
    forks = [it for it in inspection.facts() if isinstance(it, LogForked)]
    if not checkpoints and not forks:
        return [NOT_PROVEN]
    tree = computed()
    copied = {fork.source: fork.at_position for fork in forks}
    store_id = inspection.meta("store_id")
    faults = Faults()
    for fork in forks:
        if (root := _root(tree, fork.at_position)) is None or root.hex() != fork.root:
            faults.add(f"up to position {fork.at_position:,}")
    source = _judged("source", faults, "the copied events are unchanged", "copied logs were changed")
    is_known = [it.origin == store_id or it.size <= copied.get(it.origin, 0) for it in checkpoints]
    found = [_compared(tree, it, known) for it, known in zip(checkpoints, is_known, strict=True)]
    return [*([source] if forks else []), *(found or [NOT_PROVEN])]


def _compared(tree: LogTree, checkpoint: Checkpoint, is_known: bool) -> Finding:
    if not is_known:
        return Finding("checkpoint", "bad", f"is of another store, {shown(checkpoint.origin)}")
    if checkpoint.size > tree.size:
        text = f"ends at position {checkpoint.size:,}, but the log at {tree.size:,}: the newest events were removed"
        return Finding("checkpoint", "bad", text, tree.size + 1)
    if _root(tree, checkpoint.size) != checkpoint.root:
        return Finding(
            "checkpoint", "bad", f"events up to position {checkpoint.size:,} are not those of the checkpoint"
        )
    return Finding("checkpoint", "ok", f"events up to position {checkpoint.size:,} are those of the checkpoint")


def _root(tree: LogTree, size: int) -> bytes | None:
    """The root of the first events; None if some are missing."""
    try:
        return tree.root(size) if size <= tree.size else None
    except StoreError:
        return None


def verdict_of(findings: Sequence[Finding], checkpoints: Sequence[Checkpoint]) -> Verdict:
    """Sum up the findings about a log that was compared with these checkpoints, in this order."""
    compared = [it for it in findings if it.name == "checkpoint"]
    unchanged_to = max(
        (it.size for it, found in zip(checkpoints, compared, strict=False) if found.level == "ok"), default=0
    )
    bad = [it for it in findings if it.level == "bad"]
    position = min((it.position for it in bad if it.position is not None), default=None)
    if position is not None:  # a checkpoint commits to digests; a text that does not have its digest was changed
        unchanged_to = min(unchanged_to, position - 1)
    unchanged = f"unchanged up to position {unchanged_to:,}" if unchanged_to else "not proven unchanged"
    where = "" if position is None else f"; the first event that differs is at position {position:,}"
    unchecked = next((it.text for it in findings if (it.name, it.level) == ("log", "warn")), None)
    if unchecked is not None:
        return Verdict(False, 0, None, f"the log was {unchecked}")
    if not any(it.name == "digests" for it in findings):
        return Verdict(False, 0, None, "the log cannot be read; nothing is proven")
    if any(it.name != "checkpoint" for it in bad):
        names = ", ".join(dict.fromkeys(it.name for it in bad))
        return Verdict(False, unchanged_to, position, f"not consistent ({names}){where}; {unchanged}")
    if bad:
        return Verdict(False, unchanged_to, position, f"consistent, but not as in the checkpoint{where}; {unchanged}")
    return Verdict(True, unchanged_to, None, f"consistent; {unchanged}{'' if checkpoints else ' (see --checkpoint)'}")


def _snapshots(inspection: SqlInspection) -> Finding:
    """Compare the snapshots of the board with the log."""
    faults = Faults()
    count = check_snapshots(inspection.reader(), faults)
    return _judged(
        "snapshots", faults, f"{counted(count, 'snapshot')} of the board", "differ from the log; run `holdlog rebuild`"
    )


def _tree(inspection: SqlInspection, computed: LogTree) -> Finding:
    """Compare the kept roots of the Merkle tree with the events."""
    faults = Faults()
    count = check_tree(inspection.reader(), computed, faults)
    text = "do not match the events: these were changed later, or the roots are damaged (then run: holdlog rebuild)"
    return _judged("tree", faults, f"{counted(count, 'root')} of {SUBTREE:,} events each", text)


def _leases(inspection: SqlInspection) -> Finding:
    """Compare claims and leases. A grant or ticket may lack its lease, as in a copy of the log; it then lasts for the
    grace period."""
    kept = {(resource, version): who for resource, version, *who in inspection.leases()}
    held = unknown = 0
    waiting = set()
    expected: dict[Row, list[object]] = {}
    for row in inspection.active_claims():
        try:
            claim = claim_of(row)
        except (ValueError, TypeError):
            continue  # reported for the views
        held += bool(claim.grants)
        expected |= {(claim.resource, it.version): ["grant", it.agent, it.principal] for it in claim.grants}
    for resource, version, agent, principal, *_ in inspection.all_rows(TICKETS):
        waiting.add((agent, principal))
        expected[resource, version] = ["ticket", agent, principal]
    for key, who in expected.items():
        found = kept.get(key)
        unknown += found is None
        if found == who:
            del kept[key]
    text = f"{counted(held, 'claim')} held, {counted(len(waiting), 'agent')} waiting"
    text += (
        f"; {unknown:,} without a lease, which expire{'s' if unknown == 1 else ''} after the grace period"
        if unknown
        else ""
    )
    if not kept:
        return Finding("leases", "ok", text)
    faults = Faults()
    for resource, version in kept:
        faults.add(f"{resource}@{version}")
    return Finding(
        "leases", "warn", f"{text}; {faults.count:,} leases match no claim and grant nothing: {shown(str(faults))}"
    )


def _retained(inspection: SqlInspection) -> Finding:
    requests, refusals = inspection.kept()
    return Finding("kept", "ok", f"responses to {counted(requests, 'request')}, {counted(refusals, 'refusal')}")


def counted(number: int, noun: str) -> str:
    """A number and its noun, which is plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _judged(name: str, faults: Faults, fine: str, problem: str) -> Finding:
    if faults.count == 0:
        return Finding(name, "ok", fine)
    return Finding(name, "bad", f"{faults.count:,} {problem}: {shown(str(faults))}", faults.first)
