"""The routes of REST: one declaration of each, which routing, the check of arguments and the OpenAPI document read."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import unquote

from pydantic import Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdlog.adapters.api.pagination import MAX_PAGE
from holdlog.adapters.api.validation import AGENT, BEGINNING, MAX_VERSION, NAME, SESSION, what_is_wrong
from holdlog.adapters.http.request import HttpRequest
from holdlog.adapters.http.url_parameters import arguments, decoded, fields
from holdlog.domain.refusals import InvalidError

JSON: Final = "application/json"
TEXT: Final = "text/plain"

Handler = Callable[[HttpRequest], Awaitable[ASGIApp]]


class Parameter(NamedTuple):
    """A part of a path, a query argument or a header. `rule`: the type of its value, and the check of an argument. Of a
    list the values may be separated by commas, or the argument repeated."""

    name: str
    description: str
    rule: TypeAdapter[Any]
    is_list: bool = False


class Answer(NamedTuple):
    """A response. `content`: the type of its JSON body, or of its body by media type; None: no body."""

    description: str
    content: Any = None
    headers: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class HttpOperation:
    """One method of a path. `query`: its arguments; None: any, and all are ignored. `body`: types by media type.
    `refusals`: the statuses that describe a refusal (openapi.py), besides `answers`. `public`: needs no token."""

    handler: Handler
    summary: str
    answers: Mapping[int, Answer]
    description: str = ""
    query: tuple[Parameter, ...] | None = ()
    headers: tuple[Parameter, ...] = ()
    body: Mapping[str, Any] | None = None
    refusals: tuple[int, ...] = (400, 401, 403, 408, 413, 421, 429, 431, 503)
    public: bool = False


class ApiRoute(Route):
    """A path and its operations by method; GET also serves HEAD. The path is split at literal slashes, so an encoded
    one is part of a name; a last part `{name:path}` is all that follows. `names`: describes the parts in braces."""

    def __init__(self, path: str, names: tuple[Parameter, ...] = (), **operations: HttpOperation) -> None:
        super().__init__(path, _Endpoint(operations), methods=list(operations))
        self.names = names
        self.operations = operations
        self.template = path.replace(":path}", "}")
        self._parts = path[1:].split("/")
        self._is_open = path.endswith(":path}")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        raw: bytes = scope["raw_path"]
        if root := scope.get("root_path"):
            raw = raw.removeprefix(root.encode("latin-1"))
        last = len(self._parts) - 1
        found = raw.count(b"/") - 1
        if found < last or (found > last and not self._is_open):
            return Match.NONE, {}
        given = raw[1:].decode("latin-1").split("/", last)
        names = []
        for part, text in zip(self._parts, given, strict=True):
            if part.startswith("{"):
                names.append(text)
            elif text != part and ("%" not in text or unquote(text) != part):
                return Match.NONE, {}
        match = Match.FULL if scope["method"] in (self.methods or ()) else Match.PARTIAL
        return match, {"endpoint": self.endpoint, "path_params": {"names": names}}


class _Endpoint:
    """Parses a request and calls the handler of its method. An ASGI application: raises HoldlogError and HTTPException,
    which app.py turns into responses."""

    def __init__(self, operations: Mapping[str, HttpOperation]) -> None:
        self._operations = {**operations, **({"HEAD": operations["GET"]} if "GET" in operations else {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operations[scope["method"]]
        names = [decoded(name) for name in scope["path_params"]["names"]]
        query = {} if operation.query is None else _parsed(scope, operation.query)
        request = HttpRequest(scope, receive, fields(scope), names, query)
        if b"x-guard" in request.fields and operation.body is not None and GUARD not in operation.headers:
            raise InvalidError("X-Guard: only works for values under /kv; leave it out")
        response = await operation.handler(request)
        await response(scope, receive, send)


def _parsed(scope: Scope, known: tuple[Parameter, ...]) -> dict[str, Any]:
    """The query arguments, each with the type of its rule. Raises InvalidError."""
    if not scope["query_string"]:
        return {}
    given = arguments(scope, {it.name: it.is_list for it in known})
    return {it.name: checked_argument(given[it.name], it) for it in known if it.name in given}


def checked_argument(given: str | list[str], parameter: Parameter) -> Any:
    """The value of an argument. Raises InvalidError."""
    try:
        rule = parameter.rule
        return rule.validate_strings(given) if isinstance(given, str) else rule.validate_python(given)
    except ValidationError as error:
        finding = error.errors(include_url=False, include_input=False)[0]
        raise InvalidError(f"{parameter.name}: {_WORDS.get(finding['type']) or what_is_wrong(finding)}") from None


_WORDS: Final = {
    "int_parsing": "must be a whole number",
    "int_parsing_size": "has too many digits",
    "float_parsing": "must be a number",
}

ANY_TEXT: Final = TypeAdapter(str)
VERSION: Final = TypeAdapter(Annotated[int, Field(ge=0, le=MAX_VERSION)])
SECONDS: Final = TypeAdapter(Annotated[float, Field(ge=0, allow_inf_nan=False)])
_ROWS: Final = TypeAdapter(Annotated[int, Field(ge=1, le=MAX_PAGE)])
_TAG: Final = TypeAdapter(Annotated[str, Field(pattern='^"(0|[1-9][0-9]*)"$')])

_MOMENT: Final = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "format": "date-time"}]}
AT: Final = Parameter(
    "at",
    "As it was then: a position of the log, or a time (RFC 3339), which means the last position until then",
    TypeAdapter(Annotated[str, WithJsonSchema(_MOMENT)]),
)
AFTER: Final = Parameter("after", "`next_after` of the previous page", BEGINNING)
GROUP: Final = Parameter("group", "The group (namespace); percent-encode all but letters, digits and -._~", NAME)
KEY: Final = Parameter("key", "The key; write a slash within it as %2F", NAME)
LIMIT: Final = Parameter("limit", "Rows of a page", _ROWS)
CALLER: Final = Parameter("Holdlog-Session", "The caller's conversation, if known", SESSION)
GUARD: Final = Parameter(
    "X-Guard", "Claims that this write relies on, as src%2Fa.py@3; fenced if one is not held", ANY_TEXT
)
WRITER: Final = (
    Parameter("X-Agent", "The author's name, which others see; the token's name if omitted", AGENT),
    Parameter(
        "Idempotency-Key", "A repeated request with the same key runs once and gets the same response (24 h)", SESSION
    ),
    Parameter("Holdlog-Correlation", "Joins the writes of one task, which can be reverted together", SESSION),
    CALLER,
)
WRITE_REFUSALS: Final = (*HttpOperation.refusals, 415, 422)


def header_conditions(what: str, one: str) -> tuple[Parameter, ...]:
    """The headers of conditions: `what` has versions, `one` exists or not."""
    return (
        Parameter(
            "If-Match", f"Only if {what} has one of these versions, in quotes; *: only if {one} exists", ANY_TEXT
        ),
        Parameter("If-None-Match", f"Only if it has none of these versions; *: only if {one} does not exist", ANY_TEXT),
    )


def entity_tag(what: str) -> Parameter:
    return Parameter("ETag", f"{what}, in quotes", _TAG)
