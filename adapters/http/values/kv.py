"""The key-value API: `/kv/{group}/{key}` as in echoValue, with versions, conditions, lists and histories.

A group is a namespace. A string is returned as text, any other value as JSON.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import quote

from pydantic import Field, PlainValidator, TypeAdapter
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdlog.adapters.api.keyvalue import DEFAULT_TTL
from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.past.requests import PointInTime
from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.validation import BEGINNING
from holdlog.adapters.api.values.responses import (
    Conflict,
    DeleteResult,
    Failed,
    Fenced,
    NamespaceList,
    NotFound,
    RecordList,
    Result,
    SetResult,
    Time,
)
from holdlog.adapters.http.answers import SAFE, answer, json_response
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.request_bodies import JSON_PATCH, MERGE_PATCH, patch_of, value_of
from holdlog.adapters.http.routing import (
    AFTER,
    ANY_TEXT,
    AT,
    CALLER,
    GROUP,
    GUARD,
    JSON,
    KEY,
    LIMIT,
    TEXT,
    VERSION,
    WRITE_REFUSALS,
    WRITER,
    Answer,
    ApiRoute,
    HttpOperation,
    Parameter,
    entity_tag,
    header_conditions,
)
from holdlog.adapters.http.values.conditional import conflict, written
from holdlog.adapters.http.values.conditions import Conditions, etag
from holdlog.domain.record import MAX_TTL_SECONDS, Record, not_found
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.times import microseconds, utc
from holdlog.domain.value import REDACTED

AnyResult = TypeVar("AnyResult", bound=Result)

_TTL: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_VARY: Final = {"vary": "accept"}
_SAFE: Final = [
    *((name.encode(), text.encode()) for name, text in (SAFE | _VARY).items()),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
]
"""Headers that keep browsers from rendering a value as a page, whatever it contains."""


class _Value:
    """Sends a value: without a response object, because this is the most frequent request."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self._start = {"type": "http.response.start", "status": status, "headers": headers}
        self._body = {"type": "http.response.body", "body": body}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(self._start)
        await send(self._body)


# --- reading


async def _get(request: HttpRequest) -> ASGIApp:
    """One value, or its history."""
    if request.query:
        moment = request.moment
        if moment is None or len(request.query) > 1:
            return await _history(request)
        return await _get_at(request, moment)
    group, key = request.names
    record = await request.context.engine.read_async(request.context.requests.values.record(group, key))
    if not record.live:
        return _missing(request, not_found(record))
    given = Conditions.of(request.fields)
    if given.if_match is not None and not given.if_match.match(record.version):
        return conflict(request.context, record, given)
    headers = [(b"etag", etag(record.version).encode()), *_facts(record), *_SAFE]
    if given.if_none_match is not None and given.if_none_match.match(record.version):
        return _Value(304, headers)
    return _value(request, record, headers)


async def _get_at(request: HttpRequest, moment: PointInTime) -> ASGIApp:
    """The value that a key had."""
    requests = request.context.requests
    query = requests.past.plain(requests.values.record(*request.names), moment)
    record, as_of = await request.context.engine.read_async(query)
    if not record.live:
        error = not_found(record)
        return _missing(request, NotFoundError(str(error), {**error.facts, "as_of": as_of}))
    then = [(b"holdlog-as-of", f"{as_of.position}".encode()), (b"holdlog-as-of-time", _time(microseconds(as_of.at)))]
    then += [(b"holdlog-clock-suspect", b"true")] if as_of.clock_suspect else []
    then += [(b"holdlog-may-change", b"true")] if as_of.may_change else []
    return _value(request, record, [(b"etag", etag(record.version).encode()), *then, *_facts(record), *_SAFE])


def _value(request: HttpRequest, record: Record, headers: list[tuple[bytes, bytes]]) -> _Value:
    plain = record.value.text.startswith('"') and not request.prefers_json
    body = (record.value.value if plain else record.value.text).encode()
    headers += [
        (b"content-type", b"text/plain; charset=utf-8" if plain else b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    return _Value(200, headers, b"" if request.scope["method"] == "HEAD" else body)


def _facts(record: Record) -> list[tuple[bytes, bytes]]:
    facts = [
        (b"holdlog-updated-by", quote(record.updated_by, safe="/:@ ").encode()),
        (b"holdlog-updated-at", _time(record.updated_at)),
    ]
    if record.principal is not None:
        facts.append((b"holdlog-principal", quote(record.principal, safe="/:@ ").encode()))
    if record.value is REDACTED:
        facts.append((b"holdlog-redacted", b"true"))
    if record.expires_at is not None:
        facts.append((b"holdlog-expires-at", _time(record.expires_at)))
    return facts


def _time(at: int) -> bytes:
    return utc(at).isoformat(timespec="microseconds").encode()


async def _groups(request: HttpRequest) -> Response:
    call = request.context.requests.values.namespaces(request.query.get("limit", MAX_PAGE), request.query.get("after"))
    return await _answered(request, call)


async def _list(request: HttpRequest) -> Response:
    given = request.query
    call = request.context.requests.values.records(
        request.names[0], given.get("prefix", ""), given.get("limit", MAX_PAGE), given.get("after")
    )
    return await _answered(request, call)


async def _history(request: HttpRequest) -> Response:
    given = request.query
    if "history" not in given:
        raise InvalidError("history: must be 1 or true; for a value, limit and before require it")
    group, key = request.names
    call = request.context.requests.values.history(group, key, given.get("limit", 100), given.get("before"))
    return await _answered(request, call)


async def _answered(request: HttpRequest, query: Query[AnyResult]) -> Response:
    """The response to a query about now, or about the moment that the request names."""
    moment = request.moment
    if moment is not None:
        query = request.context.requests.past.of(query, moment)
    return answer(await request.context.engine.read_async(query))


def _missing(request: HttpRequest, error: NotFoundError) -> Response:
    if request.prefers_json:
        return answer(request.context.requests.refused(error), 404, _VARY)
    return Response("Key Not Found", 404, SAFE | _VARY, TEXT)


# --- writing


async def _set(request: HttpRequest) -> Response:
    seconds = request.query.get("ttl", DEFAULT_TTL)
    value = value_of(await request.body(), request.fields)
    (group, key), by, guard, calls = request.names, request.by, request.guard, request.context.requests
    return await _written(request, lambda version: calls.values.set(group, key, value, by, version, guard, seconds))


async def _patch(request: HttpRequest) -> Response:
    seconds, keeps = request.query.get("ttl", DEFAULT_TTL), "ttl" not in request.query
    media, patch = patch_of(await request.body(), request.fields)
    (group, key), by, guard, calls = request.names, request.by, request.guard, request.context.requests
    if media == JSON_PATCH:
        if not keeps:
            raise InvalidError("ttl: only works with a merge patch; a JSON patch keeps the expiry of the value")
        return await _written(
            request, lambda version: calls.transactions.update(group, key, by, version, guard, patch=patch)
        )
    return await _written(
        request, lambda version: calls.values.merge(group, key, patch, by, version, guard, seconds, keeps)
    )


async def _delete(request: HttpRequest) -> Response:
    (group, key), by, guard, calls = request.names, request.by, request.guard, request.context.requests
    return await _written(request, lambda version: calls.values.delete(group, key, by, version, guard))


async def _written(
    request: HttpRequest, call: Callable[[int | None], CommandRequest[SetResult] | CommandRequest[DeleteResult]]
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
    headers, status = dict(_VARY), 200
    if isinstance(result, SetResult):
        headers["etag"] = etag(result.version)
        if result.previous_version is None and request.scope["method"] != "POST":
            status = 201  # RFC 9110 section 9.3.4; a POST responds as echoValue does
    if request.prefers_json:
        return json_response(result.body(), status, headers)
    return Response("OK", status, SAFE | headers, TEXT)


def _seconds(ttl: str) -> float | None:
    """The time to live in seconds; None: unlimited."""
    if ttl == "never":
        return None
    if not _TTL.fullmatch(ttl) or float(ttl) > MAX_TTL_SECONDS:
        raise ValueError(f"must be a number of seconds up to {MAX_TTL_SECONDS}, 0 for 30 days, or never")
    return float(ttl) or DEFAULT_TTL


# --- routes

_PREFIX: Final = Parameter("prefix", "Only keys that begin with this", BEGINNING)
_ETAG: Final = entity_tag("The version")
_FACTS: Final = (
    _ETAG,
    Parameter("Holdlog-Updated-By", "The author, percent-encoded", ANY_TEXT),
    Parameter(
        "Holdlog-Principal",
        "The author's authenticated principal, percent-encoded, such as token:ci; absent for the local user",
        ANY_TEXT,
    ),
    Parameter("Holdlog-Updated-At", "When it was written", TypeAdapter(Time)),
    Parameter("Holdlog-Expires-At", "When the value expires; absent if it does not", TypeAdapter(Time)),
    Parameter("Holdlog-As-Of", "With `at`: the position that the value was read at", VERSION),
    Parameter("Holdlog-As-Of-Time", "With `at`: the time of that position", TypeAdapter(Time)),
    Parameter(
        "Holdlog-Clock-Suspect", "`true` if a clock was ahead then, so times are not exact; else absent", ANY_TEXT
    ),
    Parameter("Holdlog-May-Change", "`true` if a later event may change what is read there; else absent", ANY_TEXT),
)
_Seconds = Annotated[float, Field(ge=0, le=MAX_TTL_SECONDS)] | Literal["never"]
_LIFETIME: Final = Parameter(
    "ttl",
    "Seconds until the value expires, or `never`; 30 days if omitted or 0",
    TypeAdapter(Annotated[Any, PlainValidator(_seconds, json_schema_input_type=_Seconds)]),
)
_HISTORY: Final = (
    Parameter("history", "Return its versions instead, newest first", TypeAdapter(Literal["1", "true", ""])),
    Parameter("before", "With history: only versions less than this one", VERSION),
    LIMIT,
    AT,
)
_CONDITIONS: Final = header_conditions("the value", "a value")
_WRITING: Final = (*WRITER, GUARD, *_CONDITIONS)
_BODY: Final = {TEXT: str, JSON: Any}
_MISSING: Final = Answer(
    "There is no value: it was never written, was deleted or expired.",
    {TEXT: Literal["Key Not Found"], JSON: NotFound},
)
_CONFLICT: Final = Answer("A condition does not hold; the current value.", Conflict)
_FENCED: Final = Answer("A claim in X-Guard is not held, or no longer held.", Fenced)
_INAPPLICABLE: Final = Answer(
    "A claim in X-Guard is not held, or no longer held; or the patch does not apply to the value.", Fenced | Failed
)
_SET: Final = Answer(
    "Written. With Accept: application/json, the version and position as JSON.",
    {TEXT: Literal["OK"], JSON: SetResult},
    (_ETAG,),
)
_NEW: Final = _SET._replace(description="Written; there was no value before.")
_REFUSED: Final = {409: _FENCED, 412: _CONFLICT}

routes: Final = [
    ApiRoute(
        "/kv",
        GET=HttpOperation(
            _groups,
            "Groups with values",
            {200: Answer("A page.", NamespaceList)},
            query=(AT, AFTER, LIMIT),
            headers=(CALLER,),
        ),
    ),
    ApiRoute(
        "/kv/{group}",
        (GROUP,),
        GET=HttpOperation(
            _list,
            "Values of a group",
            {200: Answer("A page.", RecordList)},
            "One snapshot of a page, ordered by key.",
            (_PREFIX, AT, AFTER, LIMIT),
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/kv/{group}/{key}",
        (GROUP, KEY),
        GET=HttpOperation(
            _get,
            "A value, or its history",
            {
                200: Answer("The value, or its history.", _BODY, _FACTS),
                304: Answer("The value still has a version in If-None-Match.", None, _FACTS),
                404: _MISSING,
                412: _CONFLICT,
            },
            "A string is returned as text, any other value as JSON; with Accept: application/json, always as JSON.",
            _HISTORY,
            (CALLER, *_CONDITIONS),
        ),
        PUT=HttpOperation(
            _set,
            "Write a value",
            {200: _SET, 201: _NEW, **_REFUSED},
            "",
            (_LIFETIME,),
            _WRITING,
            _BODY,
            WRITE_REFUSALS,
        ),
        POST=HttpOperation(
            _set,
            "Write a value, as echoValue does",
            {200: _SET, **_REFUSED},
            "",
            (_LIFETIME,),
            _WRITING,
            _BODY,
            WRITE_REFUSALS,
        ),
        PATCH=HttpOperation(
            _patch,
            "Patch a value",
            {200: _SET, 201: _NEW, 404: _MISSING, **_REFUSED, 409: _INAPPLICABLE},
            "A merge patch (RFC 7396): members replace those of the value, null removes one, and a missing value is"
            " created. Or a JSON patch (RFC 6902), which keeps the expiry.",
            (_LIFETIME,),
            _WRITING,
            {MERGE_PATCH: Any, JSON_PATCH: list[dict[str, Any]]},
            WRITE_REFUSALS,
        ),
        DELETE=HttpOperation(
            _delete,
            "Delete a value",
            {200: Answer("Deleted.", {TEXT: Literal["OK"], JSON: DeleteResult}), 404: _MISSING, **_REFUSED},
            headers=_WRITING,
            refusals=WRITE_REFUSALS,
        ),
    ),
]
