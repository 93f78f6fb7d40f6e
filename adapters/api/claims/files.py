"""Who changed a file: the events FileChanged that hooks recorded for its resource. Reads only."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final, Literal

from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import page_size
from holdlog.adapters.api.values.responses import Part, Result, Time
from holdlog.domain.claims.claim import FileChanged
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader
from holdlog.domain.times import utc

MAX_EVENTS: Final = 10_000
"""Events of one resource that a call reads."""
_PAGE: Final = 200


class FileChange(Part):
    """A change of a file. `sha256`: of its new content; None: it was removed. `position`: of the event in the log."""

    agent: str
    principal: str | None = None
    at: Time
    position: int
    sha256: str | None = None


class FileBlame(Result):
    """`status`: `not_found` if hooks recorded no change of the file. `changes`: newest first. `more`: there are older
    ones."""

    status: Literal["ok", "not_found"]
    resource: str
    changes: list[FileChange]
    more: Literal[True] | None = None


def file_blame(rules: RequestRules, path: str, limit: int) -> Query[FileBlame]:
    """The last changes of a file. Raises InvalidError, DeniedError."""
    resource, size = rules.find(path) or rules.resource(path), page_size(limit)
    rules.require_to_see(resource)

    def answer(reader: Reader) -> FileBlame:
        found = list(islice(changes(reader, resource), size + 1))
        blame = FileBlame(
            status="ok" if found else "not_found",
            resource=resource,
            changes=[_shown(it) for it in found[:size]],
            more=True if len(found) > size else None,
        )
        return rules.shown(blame)

    return Query(answer, large=True)


def change_by_another(
    reader: Reader, resource: str, sessions: Collection[str], since: int, name: str | None
) -> FileChange | None:
    """The last change by somebody else after `since` (microseconds UTC): by a known session that is not in `sessions`,
    or, if `name` is given, by an agent of another name in one of them. A later change by the caller does not hide it,
    because another agent of the session may have made that."""
    for recorded in changes(reader, resource, since):
        change, session = _shown(recorded), recorded.envelope.caller.session
        if session is not None and (session not in sessions or name not in (None, change.agent)):
            return change
    return None


def changes(reader: Reader, resource: str, since: int = 0) -> Iterator[Recorded[Event]]:
    """The changes of a file after `since` (microseconds UTC), newest first."""
    before: int | None = None
    for _ in range(MAX_EVENTS // _PAGE):
        page = reader.history(claim_stream(resource), before, _PAGE)
        recent = [it for it in page if it.envelope.at > since]
        yield from (it for it in recent if isinstance(it.event, FileChanged))
        if len(recent) < _PAGE:
            return
        before = page[-1].envelope.version


def _shown(recorded: Recorded[Event]) -> FileChange:
    envelope, event = recorded.envelope, recorded.event
    assert isinstance(event, FileChanged)
    return FileChange(
        agent=event.agent,
        principal=event.principal,
        at=utc(envelope.at),
        position=envelope.position,
        sha256=event.sha256,
    )
