"""The routes that are derived from operations, below /v1."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final
from urllib.parse import unquote

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from holdlog.adapters.http.calls import Calls, Cancellable, fail, render
from holdlog.adapters.http.metrics import LOG
from holdlog.adapters.operations import changes, claims, log, past, threads, values  # noqa: F401  # OPERATIONS
from holdlog.adapters.operations.base import OPERATIONS, Operation, Query
from holdlog.adapters.operations.json import BUG, refusal_to_object
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import HoldlogError, InvalidError

VERSION: Final = "/v1"
BY_HAND: Final = ("events",)
GONE: Final = 499
"""The code of a response that nobody reads, as in nginx."""
HEADERS: Final = ("holdlog-session", "idempotency-key", "holdlog-correlation")


class RawRoute(Route):
    """Matches the path as it was sent: a slash separates names, and %2F belongs to one."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or not (match := self.path_regex.match(scope["raw_path"].decode("latin-1"))):
            return Match.NONE, {}
        parameters = {name: unquote(text) for name, text in match.groupdict().items()}
        is_full = self.methods is None or scope["method"] in self.methods
        child = {"endpoint": self.endpoint, "path_params": parameters}
        return Match.FULL if is_full else Match.PARTIAL, child


def list_operations() -> dict[str, dict[str, type[Operation]]]:
    """The operations by path and method. A query whose last name may be left out has a shorter path, too."""
    paths: dict[str, dict[str, type[Operation]]] = {}
    for kind in OPERATIONS.values():
        method, _, path = kind.route.partition(" ")
        if not path or kind.name in BY_HAND:
            continue
        paths.setdefault(path, {})[method] = kind
        rest, _, last = path.rpartition("/")
        if last[0] == "{" and issubclass(kind, Query) and not kind.model_fields[last[1:-1]].is_required():
            paths.setdefault(rest, {})[method] = kind
    return paths


def derive_routes(calls: Calls) -> list[Route]:
    routes: list[Route] = []
    for path, kinds in list_operations().items():
        pattern = VERSION + path.replace("{resource}", "{resource:path}")
        routes.append(RawRoute(pattern, _make_endpoint(calls, kinds), methods=list(kinds)))
    return routes


def _make_endpoint(calls: Calls, kinds: dict[str, type[Operation]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        kind = kinds["GET" if request.method == "HEAD" else request.method]
        try:
            body = {} if request.method in ("GET", "HEAD") else await _read_body(request)
            arguments = request.path_params | read_query(request, kind) | body
            caller = name_caller(calls, request)
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal))
        return await respond_unless_gone(calls, request, kind, arguments, caller)

    return endpoint


async def respond_unless_gone(
    calls: Calls, request: Request, kind: type[Operation], arguments: dict[str, Any], caller: Caller
) -> Response:
    """Carry out an operation, which is cancelled when the client disconnects."""
    await request.body()
    response = None
    with Cancellable(request.receive):
        response = await calls.respond(kind, arguments, caller, request.scope["access"])
    return Response(status_code=GONE) if response is None else render(response)


def name_caller(calls: Calls, request: Request) -> Caller:
    """Who makes a request, by its headers. Raises InvalidError."""
    session, request_id, task = (request.headers.get(name) for name in HEADERS)
    return calls.name_caller(request.scope["access"], session, request_id, task)


def read_query(request: Request, kind: type[Operation] | None, allowed: Collection[str] = ()) -> dict[str, Any]:
    """The arguments in the query; a list is repeated. Raises InvalidError for other repeated and unknown ones."""
    fields = {} if kind is None else {field.alias or name: field for name, field in kind.model_fields.items()}
    arguments: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if fields and name in fields and "list[" in str(fields[name].annotation) and text[:1] != "[":
            arguments.setdefault(name, []).append(text)
        elif name in arguments or name in request.path_params:
            raise InvalidError(f"{name}: is given twice")
        elif kind is None and name not in allowed:
            raise InvalidError(f"{name}: unknown argument")
        else:
            arguments[name] = text
    return arguments


async def _read_body(request: Request) -> dict[str, Any]:
    """Raises InvalidError."""
    body = await request.body()
    if not body:
        return {}
    arguments = parse_json(body)
    if not isinstance(arguments, dict):
        raise InvalidError("body: must be a JSON object")
    if names := arguments.keys() & (request.path_params.keys() | request.query_params.keys()):
        raise InvalidError(f"{min(names)}: is given twice")
    return arguments


def parse_json(body: bytes) -> Any:
    """Raises InvalidError."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError:
        raise InvalidError("body: must be JSON") from None


async def handle_error(request: Request, error: Any) -> Response:
    """Of Starlette: an unknown path or method, or a body that is too large."""
    texts = {404: "there is no such path; see /openapi.json", 405: "this path has other methods; see allow"}
    headers = {"connection": "close"} if error.status_code == 413 else error.headers
    return fail(error.status_code, texts.get(error.status_code, error.detail), headers)


async def handle_bug(request: Request, error: Exception) -> Response:
    LOG.error("a request failed", exc_info=error)
    return render(BUG)
