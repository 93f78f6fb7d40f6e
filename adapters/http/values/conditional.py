"""Conditional writes: the store's own transaction checks the conditions."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from starlette.responses import Response

from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.api.values import responses
from holdlog.adapters.http.answers import answer, body_of, json_response
from holdlog.adapters.http.values.conditions import UNCONDITIONAL, Conditions
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.record import Record, not_found
from holdlog.domain.refusals import ConflictDetail, ConflictError, DataConflictError, InvalidError, UnavailableError
from holdlog.domain.times import utc
from holdlog.domain.value import REDACTED

ATTEMPTS: Final = 20
"""Attempts of a write that depends on what it read; an attempt fails only if another client wrote."""

Done = TypeVar("Done", bound=responses.Result, covariant=True)


async def written(
    context: RequestContext,
    address: tuple[str, str],
    conditions: Conditions,
    call: Callable[[int | None], CommandRequest[Done]],
    creates: bool,
) -> Done | Response:
    """The result of the write, or a 412 response. `call` builds the write that expects a version, None: any; `creates`:
    whether it may create the value. Raises NotFoundError if it may not."""

    async def attempt() -> int | Response:
        record = await context.engine.read_async(context.requests.values.record(*address))
        version = record.version if record.live else 0
        if not record.live and not creates:
            raise not_found(record)
        return version if conditions.allow(version) else conflict(context, record, conditions)

    allowed = "If-Match with one version, or If-None-Match: *, and no other condition"
    return await written_where(context, conditions, conditions.expected, call, attempt, allowed)


async def written_where(
    context: RequestContext,
    conditions: Conditions,
    expected: int | None,
    call: Callable[[int | None], CommandRequest[Done]],
    attempt: Callable[[], Awaitable[int | Response]],
    allowed: str,
) -> Done | Response:
    """The result of the write, or a 412 response. `expected`: the only version that the conditions allow to replace.
    `attempt`: returns the current version, or the response if the conditions fail. `allowed`: describes, for an error,
    the conditions that a repeatable write may have, because one transaction must check them."""
    if expected is not None or conditions is UNCONDITIONAL:
        try:
            return await context.engine.write_async(call(expected), context.caller)
        except (ConflictError, DataConflictError) as error:
            return answer(context.requests.refused(error), 412)
    if context.caller.request_id is not None:
        raise InvalidError(f"Idempotency-Key: can only be combined with {allowed}")
    call(None)  # report bad arguments and denials first
    for _ in range(ATTEMPTS):
        found = await attempt()
        if isinstance(found, Response):
            return found
        try:
            return await context.engine.write_async(call(found), context.caller)
        except (ConflictError, DataConflictError):
            continue
    raise UnavailableError(f"gave up after {ATTEMPTS} concurrent changes; nothing was written")


def conflict(context: RequestContext, record: Record, conditions: Conditions) -> Response:
    """The 412 response, with the current value."""
    detail = ConflictDetail(
        namespace=record.namespace,
        key=record.key,
        expected_version=conditions.expected or 0,
        actual_version=record.version if record.live else 0,
        actual_value=record.value.value,
        redacted=True if record.value is REDACTED else None,
        actual_updated_by=record.updated_by or None,
        actual_principal=record.principal,
        actual_updated_at=utc(record.updated_at) if record.version else None,
    )
    body = body_of(context.requests.refused(ConflictError(detail)))
    if conditions.expected is None:
        del body["expected_version"]  # there is no value
    return json_response(body, 412)
