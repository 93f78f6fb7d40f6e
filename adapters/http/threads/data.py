"""The data of a thread, by keys. The entity tag is the data_version, common to all keys."""

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field
from starlette.responses import Response

from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.threads.responses import DataChanged, DataConflict, ThreadData, ThreadNotFound
from holdlog.adapters.api.validation import NAME
from holdlog.adapters.http.answers import SAFE, answer, body_of, json_response
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import (
    AFTER,
    CALLER,
    JSON,
    WRITE_REFUSALS,
    WRITER,
    Answer,
    ApiRoute,
    HttpOperation,
    Parameter,
    entity_tag,
    header_conditions,
)
from holdlog.adapters.http.threads.items import NO_THREAD, THREAD
from holdlog.adapters.http.values.conditional import written_where
from holdlog.adapters.http.values.conditions import Conditions, etag
from holdlog.domain.names import Name
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import DataConflictDetail, DataConflictError
from holdlog.domain.value import REDACTED


class EntityState(NamedTuple):
    """The current state of a key, or of all keys together. `there`: whether the key has a value; for all keys together,
    whether any was ever written."""

    version: int
    there: bool


async def _all(request: HttpRequest) -> Response:
    (name,), context = request.names, request.context
    found = await context.engine.read_async(context.requests.thread_data.page(name, request.query.get("after")))
    state, given = EntityState(found.data_version, found.data_version > 0), _conditions(request)
    if not _matches(given, state):
        return _conflict(request, state, given)
    headers = {"etag": etag(found.data_version)}
    return _same(headers) if _is_known(given, state) else answer(found, headers=headers)


async def _get(request: HttpRequest) -> Response:
    """The value itself, as JSON."""
    name, key = request.names
    datum, version = await request.context.engine.read_async(request.context.requests.thread_data.datum(name, key))
    state, given = EntityState(version, True), _conditions(request)
    if not _matches(given, state):
        return _conflict(request, state, given)
    headers = SAFE | {"etag": etag(version)} | ({"holdlog-redacted": "true"} if datum.value is REDACTED else {})
    return _same(headers) if _is_known(given, state) else Response(datum.value.text, headers=headers, media_type=JSON)


async def _put(request: HttpRequest) -> Response:
    (name, key), by, calls, value = request.names, request.by, request.context.requests, await request.json()
    return await _changed(request, lambda version: calls.thread_data.set(name, key, value, by, version), _one_key)


async def _delete(request: HttpRequest) -> Response:
    (name, key), by, calls = request.names, request.by, request.context.requests
    return await _changed(request, lambda version: calls.thread_data.delete(name, key, by, version), _one_key)


async def _patch(request: HttpRequest) -> Response:
    """Change the keys that the body names; null deletes a key."""
    (name,), by, calls, body = request.names, request.by, request.context.requests, await request.json_object()
    written = {key: value for key, value in body.items() if value is not None}
    deleted = [key for key, value in body.items() if value is None]
    return await _changed(
        request, lambda version: calls.thread_data.change(name, written, deleted, by, version), _any_key
    )


def _any_key(request: HttpRequest) -> Query[EntityState]:
    facts = request.context.requests.threads.facts(*request.names)

    def current(reader: Reader) -> EntityState:
        version = facts.answer(reader).data_version
        return EntityState(version, version > 0)

    return Query(current)


def _one_key(request: HttpRequest) -> Query[EntityState]:
    has = request.context.requests.thread_data.has(*request.names)

    def current(reader: Reader) -> EntityState:
        found = has.answer(reader)
        return EntityState(found.data_version, found.has)

    return Query(current)


async def _changed(
    request: HttpRequest,
    call: Callable[[int | None], CommandRequest[DataChanged]],
    current: Callable[[HttpRequest], Query[EntityState]],
) -> Response:
    """Make a write and respond. `call`: builds the write for the data_version that it expects, None: any. `current`:
    reads the current state."""
    context, conditions = request.context, _conditions(request)

    async def attempt() -> int | Response:
        found = await context.engine.read_async(current(request))
        if not _matches(conditions, found) or _is_known(conditions, found):
            return _conflict(request, found, conditions)
        return found.version

    allowed = "If-Match with one version, and no other condition"
    result = await written_where(context, conditions, _only(conditions), call, attempt, allowed)
    return answer(result, headers={"etag": etag(result.data_version)}) if isinstance(result, DataChanged) else result


def _same(headers: dict[str, str]) -> Response:
    return Response(status_code=304, headers=headers)


def _conflict(request: HttpRequest, current: EntityState, conditions: Conditions) -> Response:
    """The 412 response."""
    expected = _only(conditions)
    detail = DataConflictDetail(
        thread_id=request.names[0],
        expected_data_version=expected or 0,
        actual_data_version=current.version,
        changed_keys=(),
    )
    body = body_of(request.context.requests.refused(DataConflictError(detail)))
    if expected is None:
        del body["expected_data_version"]  # there is no value
    return json_response(body, 412)


# --- conditions


def _conditions(request: HttpRequest) -> Conditions:
    return Conditions.of(request.fields, least=0)


def _only(conditions: Conditions) -> int | None:
    """The only version that may be current; None: there are none or several."""
    match = conditions.if_match
    if match is None or match.any or len(match.versions) != 1 or conditions.if_none_match is not None:
        return None
    return next(iter(match.versions))


def _matches(conditions: Conditions, current: EntityState) -> bool:
    match = conditions.if_match
    return match is None or (current.there if match.any else current.version in match.versions)


def _is_known(conditions: Conditions, current: EntityState) -> bool:
    none = conditions.if_none_match
    return none is not None and (current.there if none.any else current.version in none.versions)


# --- routes

_KEY: Final = Parameter("key", "The key; write a slash within it as %2F", NAME)
_ETAG: Final = (entity_tag("The data_version"),)
_VERSIONS: Final = header_conditions("the data", "the key")
_NO_KEY: Final = Answer("There is no such thread, or no such key now.", ThreadNotFound)
_SAME: Final = Answer("The data still has a data_version in If-None-Match.", None, _ETAG)
_CONFLICT: Final = Answer("The condition does not hold; the keys that changed.", DataConflict)
_CHANGED: Final = Answer("Done; the keys that changed.", DataChanged, _ETAG)
_WRITING: Final = (*_VERSIONS, *WRITER)

routes: Final = [
    ApiRoute(
        "/threads/{thread_id}/data",
        (THREAD,),
        GET=HttpOperation(
            _all,
            "The data of a thread, by key",
            {
                200: Answer("All data, or what fits into a page.", ThreadData, _ETAG),
                304: _SAME,
                404: NO_THREAD,
                412: _CONFLICT,
            },
            query=(AFTER,),
            headers=(*_VERSIONS, CALLER),
        ),
        PATCH=HttpOperation(
            _patch,
            "Write several keys",
            {200: _CHANGED, 404: NO_THREAD, 412: _CONFLICT},
            "Members are keys and their new values, which replace the old ones; null deletes a key.",
            headers=_WRITING,
            body={JSON: Annotated[dict[Name, Any], Field(min_length=1)]},
            refusals=WRITE_REFUSALS,
        ),
    ),
    ApiRoute(
        "/threads/{thread_id}/data/{key}",
        (THREAD, _KEY),
        GET=HttpOperation(
            _get,
            "The value of a key",
            {200: Answer("The value.", Any, _ETAG), 304: _SAME, 404: _NO_KEY, 412: _CONFLICT},
            headers=(*_VERSIONS, CALLER),
        ),
        PUT=HttpOperation(
            _put,
            "Write the value of a key",
            {200: _CHANGED, 404: NO_THREAD, 412: _CONFLICT},
            headers=_WRITING,
            body={JSON: Any},
            refusals=WRITE_REFUSALS,
        ),
        DELETE=HttpOperation(
            _delete,
            "Delete a key",
            {200: _CHANGED, 404: _NO_KEY, 412: _CONFLICT},
            headers=_WRITING,
            refusals=WRITE_REFUSALS,
        ),
    ),
]
