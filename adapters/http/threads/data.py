"""The data of a thread, by keys. The entity tag is the data_version, common to all keys."""

from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.threads.responses import DataChanged
from holdlog.adapters.http.answers import json_response
from holdlog.adapters.http.threads.routing import SAFE, RawRoute, answer, object_of, value_of
from holdlog.adapters.http.url_parameters import arguments
from holdlog.adapters.http.values.conditional import written_where
from holdlog.adapters.http.values.conditions import Conditions, etag
from holdlog.adapters.http.values.key_value_request import KeyValueRequest
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import DataConflictDetail, DataConflictError


class EntityState(NamedTuple):
    """`there`: whether the key has a value; for all keys together, whether any was ever written."""

    version: int
    there: bool


async def _all(asked: KeyValueRequest) -> Response:
    given = arguments(asked.scope, "after")
    (name,), context = asked.names, asked.context
    found = await context.engine.read_async(context.requests.thread_data(name, given.get("after")))
    state, conditions = EntityState(found.data_version, found.data_version > 0), _conditions(asked)
    if not _matches(conditions, state):
        return _conflict(asked, state, conditions)
    headers = {"etag": etag(found.data_version)}
    return _same(headers) if _is_known(conditions, state) else answer(found, headers=headers)


async def _get(asked: KeyValueRequest) -> Response:
    """The value itself, as JSON."""
    arguments(asked.scope)
    name, key = asked.names
    datum, version = await asked.context.engine.read_async(asked.context.requests.thread_datum(name, key))
    state, conditions = EntityState(version, True), _conditions(asked)
    if not _matches(conditions, state):
        return _conflict(asked, state, conditions)
    headers = {"etag": etag(version), "cache-control": "no-store", **SAFE}
    if _is_known(conditions, state):
        return _same(headers)
    return Response(datum.value.text, headers=headers, media_type="application/json")


async def _put(asked: KeyValueRequest) -> Response:
    arguments(asked.scope)
    (name, key), by, calls, value = asked.names, asked.by, asked.context.requests, await value_of(asked)
    return await _changed(asked, lambda version: calls.thread_set(name, key, value, by, version), _one_key)


async def _delete(asked: KeyValueRequest) -> Response:
    arguments(asked.scope)
    (name, key), by, calls = asked.names, asked.by, asked.context.requests
    return await _changed(asked, lambda version: calls.thread_delete(name, key, by, version), _one_key)


async def _patch(asked: KeyValueRequest) -> Response:
    """Change the keys that the body names; null deletes a key."""
    arguments(asked.scope)
    (name,), by, calls, body = asked.names, asked.by, asked.context.requests, await object_of(asked)
    written = {key: value for key, value in body.items() if value is not None}
    deleted = [key for key, value in body.items() if value is None]
    return await _changed(asked, lambda version: calls.thread_change(name, written, deleted, by, version), _any_key)


def _any_key(asked: KeyValueRequest) -> Query[EntityState]:
    facts = asked.context.requests.thread(*asked.names)

    def standing(reader: Reader) -> EntityState:
        version = facts.answer(reader).data_version
        return EntityState(version, version > 0)

    return Query(standing)


def _one_key(asked: KeyValueRequest) -> Query[EntityState]:
    has = asked.context.requests.thread_has(*asked.names)

    def standing(reader: Reader) -> EntityState:
        found = has.answer(reader)
        return EntityState(found.data_version, found.has)

    return Query(standing)


async def _changed(
    asked: KeyValueRequest,
    call: Callable[[int | None], CommandRequest[DataChanged]],
    standing: Callable[[KeyValueRequest], Query[EntityState]],
) -> Response:
    """Make a write and respond. `call`: builds the write for the data_version that it expects, None: any. `standing`:
    reads the current state."""
    context, conditions = asked.context, _conditions(asked)

    async def look() -> int | Response:
        found = await context.engine.read_async(standing(asked))
        if not _matches(conditions, found) or _is_known(conditions, found):
            return _conflict(asked, found, conditions)
        return found.version

    goes_with = "If-Match of one version, and with no other condition"
    result = await written_where(context, conditions, _only(conditions), call, look, goes_with)
    return _done(result) if isinstance(result, DataChanged) else result


def _done(result: DataChanged) -> Response:
    return answer(result, headers={"etag": etag(result.data_version)})


def _same(headers: dict[str, str]) -> Response:
    return Response(status_code=304, headers=headers)


def _conflict(asked: KeyValueRequest, standing: EntityState, conditions: Conditions) -> Response:
    """The 412 response."""
    expected = _only(conditions)
    detail = DataConflictDetail(
        thread_id=asked.names[0],
        expected_data_version=expected or 0,
        actual_data_version=standing.version,
        changed_keys=(),
    )
    body = asked.context.requests.refused(DataConflictError(detail)).body()
    if expected is None:
        del body["expected_data_version"]  # there is no value
    return json_response(body, 412)


# --- conditions


def _conditions(asked: KeyValueRequest) -> Conditions:
    return Conditions.of(asked.fields, least=0)


def _only(conditions: Conditions) -> int | None:
    """The only version that may be current; None: there are none or several."""
    match = conditions.if_match
    if match is None or match.any or len(match.versions) != 1 or conditions.if_none_match is not None:
        return None
    return next(iter(match.versions))


def _matches(conditions: Conditions, standing: EntityState) -> bool:
    match = conditions.if_match
    return match is None or (standing.there if match.any else standing.version in match.versions)


def _is_known(conditions: Conditions, standing: EntityState) -> bool:
    none = conditions.if_none_match
    return none is not None and (standing.there if none.any else standing.version in none.versions)


routes: Final[list[Route]] = [
    RawRoute("/threads/{thread_id}/data", GET=_all, PATCH=_patch),
    RawRoute("/threads/{thread_id}/data/{key}", GET=_get, PUT=_put, DELETE=_delete),
]
