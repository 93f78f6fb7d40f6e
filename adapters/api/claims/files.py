"""Who changed a file: the events FileChanged that hooks recorded for its resource. Reads only."""

from collections.abc import Iterator
from typing import Final, Literal

from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
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
    session: str | None = None
    at: Time
    position: int
    sha256: str | None = None


class FileBlame(Result):
    """`status`: `not_found` if hooks recorded no change of the file. `changes`: newest first. `more`: there are older
    ones."""

    status: Literal["found", "not_found"]
    resource: str
    changes: list[FileChange]
    more: bool


def file_blame(rules: RequestRules, path: str, limit: int) -> Query[FileBlame]:
    """The last changes of a file."""
    resource = rules.resource(path)

    def answer(reader: Reader) -> FileBlame:
        found = []
        for recorded in changes(reader, resource):
            found.append(recorded)
            if len(found) > limit:
                break
        shown = [_shown(it) for it in found[:limit]]
        status: Literal["found", "not_found"] = "found" if shown else "not_found"
        return rules.shown(FileBlame(status=status, resource=resource, changes=shown, more=len(found) > limit))

    return Query(answer)


def last_change(reader: Reader, resource: str, but_of: str) -> FileChange | None:
    """The last change by another known session than `but_of`; None if there is none, or `but_of` changed the file
    later."""
    for recorded in changes(reader, resource):
        session = recorded.envelope.caller.session
        return _shown(recorded) if session is not None and session != but_of else None
    return None


def changes(reader: Reader, resource: str) -> Iterator[Recorded[Event]]:
    """The changes of a file, newest first."""
    before: int | None = None
    for _ in range(MAX_EVENTS // _PAGE):
        page = reader.history(claim_stream(resource), before, _PAGE)
        yield from (it for it in page if isinstance(it.event, FileChanged))
        if len(page) < _PAGE:
            return
        before = page[-1].envelope.version


def _shown(recorded: Recorded[Event]) -> FileChange:
    envelope, event = recorded.envelope, recorded.event
    assert isinstance(event, FileChanged)
    return FileChange(
        agent=event.agent,
        principal=event.principal,
        session=envelope.caller.session,
        at=utc(envelope.at),
        position=envelope.position,
        sha256=event.sha256,
    )
