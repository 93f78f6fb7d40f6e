"""What changed, who changed it, and undo: `/diff`, `/blame` and `/reverts`."""

from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from holdlog.adapters.api.changes.moments import NamedMoment, moment
from holdlog.adapters.api.changes.responses import Blame, Diff, RevertResult
from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.validation import BEGINNING, NAMED, caller
from holdlog.adapters.api.values.responses import NotFound
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.routing import (
    AFTER,
    CALLER,
    GROUP,
    JSON,
    KEY,
    LIMIT,
    VERSION,
    WRITE_REFUSALS,
    WRITER,
    Answer,
    ApiRoute,
    HttpOperation,
    Parameter,
)
from holdlog.domain.names import Agent, Label, Name, Note
from holdlog.domain.refusals import InvalidError


class RevertBody(BaseModel):
    """Which run to undo, and how. Either `session`, with `agent` if only one of its agents is meant, or
    `correlation_id`."""

    model_config = ConfigDict(extra="forbid")

    session: Annotated[Label, NAMED] | None = None
    correlation_id: Annotated[Label, NAMED] | None = None
    agent: Annotated[Agent, NAMED] | None = None
    since: AwareDatetime | None = None
    namespace: Annotated[Name, NAMED] | None = None
    dry_run: bool = False
    reason: Annotated[Note, NAMED] | None = None


async def _diff(request: HttpRequest) -> Response:
    given = request.query
    group, key = (*request.names, None)[:2]
    start, end = _moment(given, "from"), _moment(given, "to")
    limit, after = given.get("limit", MAX_PAGE), given.get("after")
    call = request.context.requests.changes.diff(str(group), key, start, end, limit, after)
    return answer(await request.context.engine.read_async(call))


async def _blame(request: HttpRequest) -> Response:
    given, (group, key) = request.query, request.names
    fields, limit, after = "fields" in given, given.get("limit", MAX_PAGE), given.get("after")
    call = request.context.requests.changes.blame(group, key, _moment(given, ""), fields, limit, after)
    return answer(await request.context.engine.read_async(call))


async def _revert(request: HttpRequest) -> Response:
    body = await request.json_object(RevertBody.model_fields)
    dry_run, reason = body.pop("dry_run", False), body.pop("reason", None)
    if not isinstance(dry_run, bool):
        raise InvalidError("dry_run: must be true or false")
    calls, engine = request.context.requests.reverts, request.context.engine
    who = caller(request.context.caller, reason=reason)
    writes = await engine.read_async(calls.find(**body))
    if dry_run:
        return answer(await engine.read_async(calls.preview(writes, request.by, who)))
    return answer(await engine.write_async(calls.revert(writes, request.by), who))


def _moment(given: dict[str, Any], argument: str) -> NamedMoment:
    names = (f"{argument}_{kind}" if argument else kind for kind in ("version", "position", "time"))
    return moment(argument, *(given.get(name) for name in names))


def _moments(argument: str, what: str, of_key: bool) -> tuple[Parameter, ...]:
    """The arguments that name a moment. `of_key`: a version names one, too."""
    begin = f"{argument}_" if argument else ""
    version = Parameter(f"{begin}version", f"{what}: a version of the key", VERSION)
    return (
        *((version,) if of_key else ()),
        Parameter(f"{begin}position", f"{what}: a position in the log", VERSION),
        Parameter(f"{begin}time", f"{what}: a time", TypeAdapter(AwareDatetime)),
    )


_FIELDS: Final = (
    Parameter("fields", "Also who changed each field of an object last", TypeAdapter(Literal["1", "true", ""])),
    Parameter("after", "With fields: `next_after` of the previous page", BEGINNING),
    LIMIT,
)
_OF_GROUP: Final = (
    *_moments("from", "The first moment", of_key=False),
    *_moments("to", "The second; now if omitted", of_key=False),
)
_OF_KEY: Final = (
    *_moments("from", "The first moment", of_key=True),
    *_moments("to", "The second; now if omitted", of_key=True),
)
_DIFFERENCE: Final = {200: Answer("The difference.", Diff)}
_PATHS: Final = "Changed values have `paths`, like a JSON Patch (RFC 6902) with the previous values."

routes: Final = [
    ApiRoute(
        "/diff/{group}",
        (GROUP,),
        GET=HttpOperation(
            _diff,
            "What changed in a group between two moments",
            _DIFFERENCE,
            f"Pages of the keys that differ. {_PATHS}",
            (*_OF_GROUP, AFTER, LIMIT),
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/diff/{group}/{key}",
        (GROUP, KEY),
        GET=HttpOperation(
            _diff,
            "What changed in a value between two moments",
            _DIFFERENCE | {404: Answer("The key was never written.", NotFound)},
            _PATHS,
            _OF_KEY,
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/blame/{group}/{key}",
        (GROUP, KEY),
        GET=HttpOperation(
            _blame,
            "Who wrote a value last, and what that relied on",
            {200: Answer("The author.", Blame), 404: Answer("The key did not exist yet.", NotFound)},
            "",
            (*_moments("", "As it was then", of_key=True), *_FIELDS),
            (CALLER,),
        ),
    ),
    ApiRoute(
        "/reverts",
        POST=HttpOperation(
            _revert,
            "Undo what a run wrote",
            {200: Answer("What was reverted, and what was kept as it is.", RevertResult)},
            "Needs the grant admin, on the namespace or on all of them. Files, threads and claims are not changed.",
            headers=WRITER,
            body={JSON: RevertBody},
            refusals=WRITE_REFUSALS,
        ),
    ),
]
