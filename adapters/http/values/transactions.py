"""`POST /transactions`: several operations on values, all or none."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from holdlog.adapters.api.validation import MAX_VERSION, NAMED, caller
from holdlog.adapters.api.values.responses import Conflict, Failed, Fenced, NotFound, TransactionResult
from holdlog.adapters.api.values.transactions import MAX_OPERATIONS
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import JSON, WRITE_REFUSALS, WRITER, Answer, ApiRoute, HttpOperation
from holdlog.domain.names import AllowedAgent, Name, Note
from holdlog.domain.record import MAX_GUARDS, MAX_TTL_SECONDS, MIN_TTL_SECONDS
from holdlog.domain.refusals import InvalidError

Version = Annotated[int, Field(ge=0, le=MAX_VERSION)]


class _Part(BaseModel):
    """These models describe the body; the requests of all surfaces check it."""

    model_config = ConfigDict(extra="forbid")


class _OfKey(_Part):
    namespace: Annotated[Name, NAMED]
    key: Annotated[Name, NAMED]
    expected_version: Version | None = None


class SetOperation(_OfKey):
    op: Literal["set"]
    value: Any
    ttl_seconds: Annotated[float, Field(ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)] | None = None


class DeleteOperation(_OfKey):
    op: Literal["delete"]


class CheckOperation(_OfKey):
    op: Literal["check"]
    expected_version: Version


class MergeOperation(_OfKey):
    op: Literal["merge"]
    value: Any


class IncrementOperation(_OfKey):
    op: Literal["increment"]
    by: float


class AppendOperation(_OfKey):
    op: Literal["append"]
    value: Any
    unique: bool = False


class PatchOperation(_OfKey):
    op: Literal["patch"]
    patch: list[dict[str, Any]]


class GuardBody(_Part):
    resource: Annotated[Name, NAMED]
    version: Annotated[int, Field(ge=1, le=MAX_VERSION)]
    receipt: Annotated[str, Field(min_length=1)] | None = None


AnyOperationBody = Annotated[
    SetOperation
    | DeleteOperation
    | CheckOperation
    | MergeOperation
    | IncrementOperation
    | AppendOperation
    | PatchOperation,
    Field(discriminator="op"),
]


class TransactionBody(_Part):
    operations: Annotated[list[AnyOperationBody], Field(min_length=1, max_length=MAX_OPERATIONS)]
    updated_by: Annotated[AllowedAgent, NAMED] | None = None
    guard: Annotated[list[GuardBody], Field(max_length=MAX_GUARDS)] | None = None
    reason: Annotated[Note, NAMED] | None = None


async def _transact(request: HttpRequest) -> Response:
    body = await request.json_object(TransactionBody.model_fields)
    if "operations" not in body:
        raise InvalidError("operations: is required")
    reason, by, guard = body.get("reason"), body.get("updated_by"), body.get("guard")
    context = request.context
    call = context.requests.transactions.transact(
        body["operations"], request.by if by is None else by, () if guard is None else guard
    )
    return answer(await context.engine.write_async(call, caller(context.caller, reason=reason)))


_REFUSED: Final = {
    404: Answer("`operation` deletes or patches a value that does not exist.", NotFound),
    409: Answer(
        "A conflict at `operation`, with the current value; a claim in `guard` that is not held; or an update that does"
        " not apply to the value.",
        Conflict | Fenced | Failed,
    ),
}

routes: Final = [
    ApiRoute(
        "/transactions",
        POST=HttpOperation(
            _transact,
            "Change several values, all or none",
            {200: Answer("What each operation did, in their order.", TransactionResult), **_REFUSED},
            "Up to 1,000 operations on any keys, 4 MiB in all, in one transaction. merge (RFC 7396), increment, append"
            " and patch (RFC 6902) compute the value in the store. Without `expected_version` any version is replaced.",
            headers=WRITER,
            body={JSON: TransactionBody},
            refusals=WRITE_REFUSALS,
        ),
    ),
]
