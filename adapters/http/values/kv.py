"""The key-value API: `/kv/{group}/{key}` as in echoValue, with versions, conditions, lists and histories.

A group is a namespace. A string is returned as text, any other value as JSON.
"""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdlog.adapters.api.keyvalue import DEFAULT_TTL
from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.api.values.responses import DeleteResult, SetResult
from holdlog.adapters.http.answers import answer, failed, json_response
from holdlog.adapters.http.url_parameters import arguments, below, fields, number, segments
from holdlog.adapters.http.values.conditional import conflict, written
from holdlog.adapters.http.values.conditions import Conditions, etag
from holdlog.adapters.http.values.key_value_request import KeyValueRequest
from holdlog.adapters.http.values.request_bodies import patch_of, value_of
from holdlog.domain.record import MAX_TTL_SECONDS, Record, not_found
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.times import utc

_TTL: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_SAFE: Final = [
    (b"cache-control", b"no-store"),
    (b"vary", b"accept"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
]
"""Headers that keep browsers from rendering a value as a page, whatever it contains."""


class KeyValue:
    """An ASGI application for `/kv` and all paths below it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            names = segments(scope, "kv")
            request = KeyValueRequest(scope, receive, scope["state"]["served"], fields(scope), names)
            if len(names) == 2 and scope["method"] in ("GET", "HEAD") and not scope["query_string"]:
                await _get(request, send)
                return
            response = await _answered(request)
        except HTTPException as error:
            response = failed(error.detail, error.status_code, dict(error.headers or {}))
        response.raw_headers.extend(it for it in _SAFE if it[0].decode() not in response.headers)
        await response(scope, receive, send)


routes: Final[list[Route]] = below("/kv", KeyValue(), ["GET", "POST", "PUT", "PATCH", "DELETE"])


async def _answered(request: KeyValueRequest) -> Response:
    method = request.scope["method"]
    match len(request.names), method:
        case 0, "GET" | "HEAD":
            return await _groups(request)
        case 1, "GET" | "HEAD":
            return await _list(request)
        case 2, "GET" | "HEAD":
            return await _history(request)
        case 2, "PUT" | "POST":
            return await _set(request)
        case 2, "PATCH":
            return await _patch(request)
        case 2, "DELETE":
            return await _delete(request)
        case 1, _:
            raise HTTPException(405, "a group can only be read", {"allow": "GET, HEAD"})
        case _:
            raise HTTPException(404, "values are at /kv/{group}/{key}; write a slash within a name as %2F")


# --- reading


async def _get(request: KeyValueRequest, send: Send) -> None:
    """Respond with one value. The most frequent request, so it skips the response object and the result model."""
    group, key = request.names
    record = await request.context.engine.read_async(request.context.requests.values.record(group, key))
    if not record.live:
        await _missing(request, not_found(record))(request.scope, request.receive, send)
        return
    conditions = Conditions.of(request.fields)
    if conditions.if_match is not None and not conditions.if_match.match(record.version):
        await conflict(request.context, record, conditions)(request.scope, request.receive, send)
        return
    headers = [(b"etag", etag(record.version).encode()), *_facts(record), *_SAFE]
    if conditions.if_none_match is not None and conditions.if_none_match.match(record.version):
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    plain = record.value.text.startswith('"') and not request.json
    body = (record.value.value if plain else record.value.text).encode()
    headers += [
        (b"content-type", b"text/plain; charset=utf-8" if plain else b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.scope["method"] == "HEAD" else body})


def _facts(record: Record) -> list[tuple[bytes, bytes]]:
    facts = [
        (b"holdlog-updated-by", quote(record.updated_by, safe="/:@ ").encode()),
        (b"holdlog-updated-at", _time(record.updated_at)),
    ]
    if record.principal is not None:
        facts.append((b"holdlog-principal", quote(record.principal, safe="/:@ ").encode()))
    if record.expires_at is not None:
        facts.append((b"holdlog-expires-at", _time(record.expires_at)))
    return facts


def _time(at: int) -> bytes:
    return utc(at).isoformat(timespec="microseconds").encode()


async def _groups(request: KeyValueRequest) -> Response:
    given = arguments(request.scope, "after", "limit")
    call = request.context.requests.values.namespaces(number(given, "limit", MAX_PAGE), given.get("after"))
    return answer(await request.context.engine.read_async(call))


async def _list(request: KeyValueRequest) -> Response:
    given = arguments(request.scope, "prefix", "after", "limit")
    call = request.context.requests.values.records(
        request.names[0], given.get("prefix", ""), number(given, "limit", MAX_PAGE), given.get("after")
    )
    return answer(await request.context.engine.read_async(call))


async def _history(request: KeyValueRequest) -> Response:
    given = arguments(request.scope, "history", "limit", "before")
    if given.get("history") not in ("", "1", "true"):
        raise InvalidError("history: must be 1 or true; for a value, limit and before require it")
    before = number(given, "before", 0) if "before" in given else None
    group, key = request.names
    call = request.context.requests.values.history(group, key, number(given, "limit", 100), before)
    return answer(await request.context.engine.read_async(call))


def _missing(request: KeyValueRequest, error: NotFoundError) -> Response:
    if request.json:
        return answer(request.context.requests.refused(error), 404)
    return Response("Key Not Found", 404, {"cache-control": "no-store"}, "text/plain")


# --- writing


async def _set(request: KeyValueRequest) -> Response:
    seconds = _seconds(arguments(request.scope, "ttl").get("ttl"))
    value = value_of(await request.body(), request.fields)
    (group, key), by, guard, calls = request.names, request.by, request.guard, request.context.requests
    return await _written(request, lambda version: calls.values.set(group, key, value, by, version, guard, seconds))


async def _patch(request: KeyValueRequest) -> Response:
    ttl = arguments(request.scope, "ttl").get("ttl")
    seconds, keeps = _seconds(ttl), ttl is None
    patch = patch_of(await request.body(), request.fields)
    (group, key), by, guard, calls = request.names, request.by, request.guard, request.context.requests
    return await _written(
        request, lambda version: calls.values.merge(group, key, patch, by, version, guard, seconds, keeps)
    )


async def _delete(request: KeyValueRequest) -> Response:
    arguments(request.scope)
    (group, key), by, guard, calls = request.names, request.by, request.guard, request.context.requests
    return await _written(request, lambda version: calls.values.delete(group, key, by, version, guard))


async def _written(
    request: KeyValueRequest, call: Callable[[int | None], CommandRequest[SetResult] | CommandRequest[DeleteResult]]
) -> Response:
    """Make a write and respond. `call`: builds the write for the version that it expects."""
    group, key = request.names
    conditions, creates = Conditions.of(request.fields), request.scope["method"] != "DELETE"
    try:
        result = await written(request.context, (group, key), conditions, call, creates)
    except NotFoundError as error:
        return _missing(request, error)
    if isinstance(result, Response):
        return result
    headers, status = {}, 200
    if isinstance(result, SetResult):
        headers["etag"] = etag(result.version)
        if result.previous_version is None and request.scope["method"] != "POST":
            status = 201  # RFC 9110 section 9.3.4; a POST responds as echoValue does
    if request.json:
        return json_response(result.body(), status, headers)
    return Response("OK", status, {"cache-control": "no-store"} | headers, "text/plain")


def _seconds(ttl: str | None) -> float | None:
    """The time to live in seconds; None: unlimited."""
    if ttl == "never":
        return None
    if ttl is None:
        return DEFAULT_TTL
    if not _TTL.fullmatch(ttl) or float(ttl) > MAX_TTL_SECONDS:
        raise InvalidError(f"ttl: must be a number of seconds up to {MAX_TTL_SECONDS}, 0 for 30 days, or never")
    return float(ttl) or DEFAULT_TTL
