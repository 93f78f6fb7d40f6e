"""Redacts texts: from the log, then from the files of the store; and finds out where else they are. Also applies the
retention of namespaces."""

from holdlog.adapters.api.redaction.requests import FoundTexts
from holdlog.adapters.api.redaction.responses import RedactionResult
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.retention.responses import RetentionRun
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import Caller
from holdlog.domain.ports import Scrubbed
from holdlog.domain.progress import Progress
from holdlog.domain.refusals import HoldlogError

_AGAIN = "{}; then run: holdlog redact --finish"


def redact(engine: Engine, query: Query[FoundTexts], by: str, caller: Caller) -> RedactionResult:
    """Redact what the query finds; the caller's reason is recorded. What fails after that commit is a line of the
    response. Raises InvalidError, UnavailableError."""
    requests = engine.requests.redactions
    found = engine.read(query)
    texts, position = engine.write(requests.redact(found, by), caller)
    copies = engine.read(requests.copies(found))
    scrubbed = _scrubbed(engine)._asdict()
    return RedactionResult(
        redacted=texts, position=position, also_in=list(copies.texts), more=copies.more or None, **scrubbed
    )


def finish(engine: Engine) -> RedactionResult:
    """Finish redactions that the log has, but not yet all files of the store."""
    position = engine.read_now(lambda reader: reader.position())
    return RedactionResult(redacted=[], position=position, also_in=[], **_scrubbed(engine)._asdict())


def run_retention(engine: Engine, progress: Progress) -> RetentionRun:
    """Remove all former values that are due now. `progress`: called with the position that it
    reached, and the last one."""
    removed, more = 0, True
    while more:
        applied = engine.write(engine.requests.retention.apply(), engine.caller)
        removed, more = removed + applied.removed, applied.more
        progress(applied.reached, applied.position)
    return RetentionRun(removed=removed, unfinished=list(_scrubbed(engine).unfinished) if removed else [])


def _scrubbed(engine: Engine) -> Scrubbed:
    try:
        return engine.store.scrub()
    except HoldlogError as error:
        return Scrubbed(unfinished=(_AGAIN.format(error),))
