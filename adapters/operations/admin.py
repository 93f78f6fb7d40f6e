"""Audit and maintenance: verify, checkpoint, redact, rebuild, doctor."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field, Strict, model_validator

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Reader, Snapshot
from holdlog.adapters.operations.base import Agent, Duration, Note, Query, Task
from holdlog.adapters.stores import check, redact, sql
from holdlog.adapters.stores.chain import DamageError, verify_log
from holdlog.adapters.stores.codec import FIRST_DIGEST
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.redaction import MAX_TEXTS, Quotes, Text, TextsRedacted, require_other
from holdlog.domain.refusals import CurrentError, HoldlogError, StoreError, UnavailableError
from holdlog.domain.results import utc
from holdlog.domain.state import Reads
from holdlog.projections.fold import fold
from holdlog.projections.results import Checkpoint, Damaged, Diagnosis, Finding, Rebuilt, Redaction, Verified

_CHECKPOINT: Final = re.compile(r"([0-9]{1,19}) ([0-9a-f]{64})(?: \S+)?\s*")
_EVENT_ID: Final = re.compile(r"[^\0\ud800-\udfff]+@[0-9]{1,18}")


def check_checkpoint(text: str) -> str:
    """Raises ValueError unless it is a checkpoint."""
    if _CHECKPOINT.fullmatch(text) is None:
        raise ValueError("must be a line of the command checkpoint: position, digest, time")
    return text


def check_event_id(text: str) -> str:
    """Raises ValueError unless it is the id of an event."""
    if _EVENT_ID.fullmatch(text) is None:
        raise ValueError("must be the id of an event: STREAM@VERSION")
    return text


class Verify(Query, name="verify", group="audit", positional="checkpoint", scope="admin"):
    """Verify that no event was changed, added or removed, and that the views are what follows from the log. Events that
    were removed at its end, or another history, show only against a checkpoint that is kept elsewhere."""

    results = (Verified, Damaged)
    checkpoint: Annotated[str, Strict(), AfterValidator(check_checkpoint)] | None = Field(
        default=None, description="A line that checkpoint returned: the log must contain it"
    )

    def read(self, reader: Reader) -> Verified | Damaged:
        place = _CHECKPOINT.fullmatch(self.checkpoint) if self.checkpoint is not None else None
        known = (int(place[1]), place[2]) if place is not None else None
        try:
            with reader.snapshot() as snapshot:
                chain = verify_log(snapshot, known)
                for change in check.list_changes(snapshot, chain.claims):
                    return Damaged("views", f"the view of {change.row} differs from the log; run doctor --rebuild")
        except DamageError as error:
            return error.damage
        head = chain.head
        return Verified(head.position, head.digest.hex(), utc(head.at), known and known[0])


class MakeCheckpoint(Query, name="checkpoint", group="audit"):
    """The end of the log: position, digest and time. Keep the line elsewhere: with it, verify finds every change of the
    events before it."""

    is_quick = True
    results = (Checkpoint,)

    def read(self, reader: Reader) -> Checkpoint:
        position, digest, at = (reader.read(sql.HEAD, {}) or [(0, FIRST_DIGEST, 0)])[0]
        return Checkpoint(position, bytes(digest).hex(), utc(at))


class Redact(Task, name="redact", group="audit", positional="event", scope="admin"):
    """Remove a former text from the log, or all that are older than an age: payload and salt. The hash stays, so that
    the log verifies. Write or delete a current value first, and release a live claim. Backups and exports keep the
    text."""

    results = (Redaction,)
    event: Annotated[str, Strict(), AfterValidator(check_event_id)] | None = Field(
        default=None, description="The id of an event: STREAM@VERSION"
    )
    older_than_seconds: Duration | None = Field(default=None, description="Redact all former texts of this age")
    redacted_by: Agent
    reason: Note

    @model_validator(mode="after")
    def _require_one(self) -> "Redact":
        if (self.event is None) == (self.older_than_seconds is None):
            raise ValueError("give either event or older_than_seconds")
        return self

    def run(self, engine: Engine, caller: Caller) -> Redaction:
        engine.require_open()
        count, (texts, former) = 0, self._find(engine, 0)
        try:
            while True:
                done, position = self._remove(engine, caller, former)
                count += done
                if len(texts) < MAX_TEXTS:
                    return Redaction(count, position)
                texts, former = self._find(engine, texts[-1].position)
        except UnavailableError as error:
            error.in_doubt |= count > 0
            raise
        finally:
            engine.erase()

    def _find(self, engine: Engine, after: int) -> tuple[list[Text], list[Text]]:
        """Texts after a position, and those of them that may be removed."""
        with engine.store.snapshot() as snapshot:
            if self.older_than_seconds is not None:
                before = snapshot.now() - round(self.older_than_seconds * SECOND)
                texts = redact.find_old_texts(snapshot, before, after)
            else:
                stream, _, version = (self.event or "").rpartition("@")
                texts = redact.find_text(snapshot, stream, int(version))
                for text in texts:
                    require_other(self.reason, text)
            former = [text for text in texts if not redact.is_current(snapshot, text)]
        if self.event is not None and len(former) < len(texts):
            what = "is a current value, or the note of a live claim"
            raise CurrentError(f"{self.event} {what}; first write or delete the value, or release the claim")
        return texts, former

    def _remove(self, engine: Engine, caller: Caller, texts: list[Text]) -> tuple[int, int]:
        """Redact former texts in one transaction. Returns how many, and the end of the log."""
        store = engine.store
        position, stream = (store.read(sql.HEAD, {}) or [(0,)])[0][0], f"store:{store.read(sql.STORE_ID, {})[0][0]}"
        if not texts:
            return 0, position
        quoting = [*redact.list_quoting_requests(store.read, Quotes(texts), 0)]  # before others have to wait
        with engine.write_alone([(Reads((stream,)), caller)]) as batch:
            positions = redact.remove_texts(store.execute, texts, quoting, position)
            position = batch.head.position
            if positions:
                event = TextsRedacted(stream, self.redacted_by, positions, self.reason)
                engine.append(event, fold(batch.state, event, position := position + 1), caller, batch)
        return len(positions), position


class Rebuild(Task, name="rebuild", group="audit", scope="admin"):
    """Rebuild the views of values and claims from the log. Others wait meanwhile."""

    results = (Rebuilt,)

    def run(self, engine: Engine, caller: Caller) -> Rebuilt:
        engine.require_open()
        execute = engine.store.execute
        try:
            with engine.store.snapshot() as snapshot:
                chain = verify_log(snapshot)
            with engine.write_alone() as batch:
                changed = check.rebuild(chain, Snapshot(execute, batch.at, batch.steady), execute)
                return Rebuilt(changed, batch.head.position)
        except DamageError as error:
            raise StoreError(f"the log is damaged, so nothing was rebuilt: {error}") from None


class Diagnose(Task, name="doctor", group="audit", scope="admin"):
    """Look for damage: of the file, of the log, and of the views, which rebuild repairs."""

    results = (Diagnosis,)

    def run(self, engine: Engine, caller: Caller) -> Diagnosis:
        findings: list[Finding] = []
        try:
            damage = engine.store.list_damage()
            findings += [Finding("pages", "bad", text) for text in damage] or [Finding("pages", "ok", "no damage")]
            result = engine.query(Verify())
            if isinstance(result, Damaged):
                findings.append(Finding("views" if result.part == "views" else "log", "bad", result.problem))
            else:
                findings.append(Finding("log", "ok", f"verifies up to position {result.position}, and so do the views"))
        except HoldlogError as error:  # it cannot be read
            findings.append(Finding("pages", "bad", str(error)))
        return Diagnosis(all(finding.level == "ok" for finding in findings), findings)
