"""Writes under conditions: decided in the store's own transaction, whatever the conditions are."""

from collections.abc import Callable
from typing import Final, TypeVar

from starlette.responses import Response

from holdlog.adapters import results
from holdlog.adapters.call import Write
from holdlog.adapters.http.answers import answer, json_response
from holdlog.adapters.http.values.conditions import UNCONDITIONAL, Conditions
from holdlog.adapters.served import Served
from holdlog.domain.record import Record, not_found
from holdlog.domain.refusals import Conflict, ConflictError, InvalidError, UnavailableError
from holdlog.domain.times import utc

ATTEMPTS: Final = 20
"""Of a write that depends on what it read: each that fails, another has written."""

Done = TypeVar("Done", bound=results.Result, covariant=True)


async def written(
    served: Served,
    place: tuple[str, str],
    conditions: Conditions,
    call: Callable[[int | None], Write[Done]],
    creates: bool,
) -> Done | Response:
    """What the write did, or the answer 412. `call` makes the write that expects a version, None: any; `creates`:
    whether it may where nothing stands. Raises NotFoundError where it may not."""
    expected = conditions.expected
    if expected is not None or conditions is UNCONDITIONAL:
        try:
            return await served.opened.write_async(call(expected), served.caller)
        except ConflictError as error:
            return answer(served.calls.refused(error), 412)
    if served.caller.request_id is not None:
        raise InvalidError("Idempotency-Key: goes with If-Match of one version or with If-None-Match: *, no others")
    call(None)  # what is wrong or denied is told first
    read = served.calls.record(*place)
    for _ in range(ATTEMPTS):
        record = await served.opened.read_async(read)
        version = record.version if record.live else 0
        if not record.live and not creates:
            raise not_found(record)
        if not conditions.allow(version):
            return conflict(served, record, conditions)
        try:
            return await served.opened.write_async(call(version), served.caller)
        except ConflictError:
            continue
    raise UnavailableError("others write here all the time; nothing was written")


def conflict(served: Served, record: Record, conditions: Conditions) -> Response:
    """The answer 412, with what stands there instead."""
    detail = Conflict(
        namespace=record.namespace,
        key=record.key,
        expected_version=conditions.expected or 0,
        actual_version=record.version if record.live else 0,
        actual_value=record.value.value,
        actual_updated_by=record.updated_by or None,
        actual_updated_at=utc(record.updated_at) if record.version else None,
    )
    body = served.calls.refused(ConflictError(detail)).body()
    if conditions.expected is None:
        del body["expected_version"]  # there is not one
    return json_response(body, 412)
