"""The data of a thread, by keys. The entity tag is the data_version, common to all keys."""

from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.threads.responses import DataChanged
from holdlog.adapters.http.answers import body_of, json_response
from holdlog.adapters.http.threads.routing import SAFE, RawRoute, answer, object_of, value_of
from holdlog.adapters.http.url_parameters import arguments
from holdlog.adapters.http.values.conditional import written_where
from holdlog.adapters.http.values.conditions import Conditions, etag
from holdlog.adapters.http.values.key_value_request import KeyValueRequest
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import DataConflictDetail, DataConflictError


class EntityState(NamedTuple):
    """The current state of a key, or of all keys together. `there`: whether the key has a value; for all keys together,
    whether any was ever written."""

    version: int
    there: bool


async def _all(request: KeyValueRequest) -> Response:
    given = arguments(request.scope, "after")
    (name,), context = request.names, request.context
    found = await context.engine.read_async(context.requests.thread_data.page(name, given.get("after")))
    state, conditions = EntityState(found.data_version, found.data_version > 0), _conditions(request)
    if not _matches(conditions, state):
        return _conflict(request, state, conditions)
    headers = {"etag": etag(found.data_version)}
    return _same(headers) if _is_known(conditions, state) else answer(found, headers=headers)


async def _get(request: KeyValueRequest) -> Response:
    """The value itself, as JSON."""
    arguments(request.scope)
    name, key = request.names
    datum, version = await request.context.engine.read_async(request.context.requests.thread_data.datum(name, key))
    state, conditions = EntityState(version, True), _conditions(request)
    if not _matches(conditions, state):
        return _conflict(request, state, conditions)
    headers = {"etag": etag(version), "cache-control": "no-store", **SAFE}
    if _is_known(conditions, state):
        return _same(headers)
    return Response(datum.value.text, headers=headers, media_type="application/json")


async def _put(request: KeyValueRequest) -> Response:
    arguments(request.scope)
    (name, key), by, calls, value = request.names, request.by, request.context.requests, await value_of(request)
    return await _changed(request, lambda version: calls.thread_data.set(name, key, value, by, version), _one_key)


async def _delete(request: KeyValueRequest) -> Response:
    arguments(request.scope)
    (name, key), by, calls = request.names, request.by, request.context.requests
    return await _changed(request, lambda version: calls.thread_data.delete(name, key, by, version), _one_key)


async def _patch(request: KeyValueRequest) -> Response:
    """Change the keys that the body names; null deletes a key."""
    arguments(request.scope)
    (name,), by, calls, body = request.names, request.by, request.context.requests, await object_of(request)
    written = {key: value for key, value in body.items() if value is not None}
    deleted = [key for key, value in body.items() if value is None]
    return await _changed(
        request, lambda version: calls.thread_data.change(name, written, deleted, by, version), _any_key
    )


def _any_key(request: KeyValueRequest) -> Query[EntityState]:
    facts = request.context.requests.threads.facts(*request.names)

    def current(reader: Reader) -> EntityState:
        version = facts.answer(reader).data_version
        return EntityState(version, version > 0)

    return Query(current)


def _one_key(request: KeyValueRequest) -> Query[EntityState]:
    has = request.context.requests.thread_data.has(*request.names)

    def current(reader: Reader) -> EntityState:
        found = has.answer(reader)
        return EntityState(found.data_version, found.has)

    return Query(current)


async def _changed(
    request: KeyValueRequest,
    call: Callable[[int | None], CommandRequest[DataChanged]],
    current: Callable[[KeyValueRequest], Query[EntityState]],
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
    return _done(result) if isinstance(result, DataChanged) else result


def _done(result: DataChanged) -> Response:
    return answer(result, headers={"etag": etag(result.data_version)})


def _same(headers: dict[str, str]) -> Response:
    return Response(status_code=304, headers=headers)


def _conflict(request: KeyValueRequest, current: EntityState, conditions: Conditions) -> Response:
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


def _conditions(request: KeyValueRequest) -> Conditions:
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


routes: Final[list[Route]] = [
    RawRoute("/threads/{thread_id}/data", GET=_all, PATCH=_patch),
    RawRoute("/threads/{thread_id}/data/{key}", GET=_get, PUT=_put, DELETE=_delete),
]
