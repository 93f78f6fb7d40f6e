"""The routes of echoValue: `/kv/{group}/{key}`, with versions as ETags (RFC 9110), and `/token`."""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.auth.quota import PREFIX
from holdlog.adapters.http.calls import SAFE, Calls, fail, render
from holdlog.adapters.http.routes import RawRoute, name_caller, parse_json, read_query
from holdlog.adapters.operations.base import Command, Operation
from holdlog.adapters.operations.json import Object, refusal_to_object, to_text
from holdlog.adapters.operations.kv import DEFAULT_TTL
from holdlog.adapters.operations.tokens import TokenCreate
from holdlog.adapters.operations.values import Delete, Get, SetValue
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import HoldlogError, InvalidError
from holdlog.domain.results import utc

AUTHOR: Final = "http"
"""Who writes, if the server needs no tokens."""
NEVER: Final = 2**62
"""A version that no value has."""
ATTEMPTS: Final = 10
"""How often a conditional write is tried whose condition still holds after others have written."""
NEW_TOKEN: Final = b"token=new"
LIFETIME: Final = 2 * 365 * 24 * 3600
"""Seconds that a token is valid which callers created."""
_TAGS: Final = re.compile(r'\s*(W/)?"([^"]*)"\s*')


class EchoValue:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list_routes(self) -> list[Route]:
        return [
            RawRoute("/kv/{group}/{key}", self._respond, methods=["GET", "POST", "DELETE"]),
            RawRoute("/token", self._respond_token, methods=["GET", "POST"]),
        ]

    async def _respond(self, request: Request) -> Response:
        try:
            arguments = read_query(request, None, ("ttl",) if request.method == "POST" else ())
            names = {"namespace": request.path_params["group"], "key": request.path_params["key"]}
            if request.method in ("GET", "HEAD"):
                return await self._read(request, names)
            author = request.scope["access"].principal or AUTHOR
            if request.method == "DELETE":
                return await self._write(request, Delete, names | {"deleted_by": author})
            body = await request.body()
            if len(body) > self._calls.settings.max_value_bytes:
                return fail(413, f"body: must have at most {self._calls.settings.max_value_bytes} bytes")
            if request.headers.get("content-encoding", "identity") != "identity":
                return fail(415, "content-encoding: send the body as it is")
            value = {"value": _read_value(request, body), "ttl_seconds": _read_ttl(arguments.get("ttl", "0"))}
            return await self._write(request, SetValue, names | value | {"updated_by": author})
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal))

    async def _read(self, request: Request, names: Object) -> Response:
        response = await self._call(request, Get, names)
        if response["status"] != "ok":
            return _explain(response)
        version = response["version"]
        if choose_version(request.headers, version) not in (None, version):
            if "if-match" in request.headers:
                return fail(412, "if-match: the value has another version")
            return Response(status_code=304, headers={"etag": f'"{version}"'})
        headers = SAFE | {"etag": f'"{version}"', "holdlog-updated-at": response["updated_at"]}
        if "expires_at" in response:
            headers["holdlog-expires-at"] = response["expires_at"]
        value = response["value"]
        text, media = (value, "text/plain") if isinstance(value, str) else (to_text(value), "application/json")
        return Response(text, headers=headers, media_type=media)

    async def _write(self, request: Request, kind: type[Operation], arguments: Object) -> Response:
        """Write under the condition in the headers, if there is one."""
        names = {name: arguments[name] for name in ("namespace", "key")}
        expected, current = None, 0
        if choose_version(request.headers, current) is not None:
            current = (await self._call(request, Get, names)).get("version", 0)
        for _ in range(ATTEMPTS):
            expected = choose_version(request.headers, current)
            condition = {"force": True} if expected is None else {"expected_version": expected}
            response = await self._call(request, kind, arguments | condition)
            if response["status"] != "conflict":
                break
            current = response["actual_version"]
            if choose_version(request.headers, current) != current:
                break
        return _explain(response)

    async def _call(self, request: Request, kind: type[Operation], arguments: Object) -> Object:
        caller = name_caller(self._calls, request) if issubclass(kind, Command) else Caller()
        return await self._calls.respond(kind, arguments, caller, request.scope["access"])

    async def _respond_token(self, request: Request) -> Response:
        try:
            read_query(request, None)
            if request.method == "POST":
                return await self._create_token(request)
        except HoldlogError as refusal:
            return render(refusal_to_object(refusal))
        access = request.scope["access"]
        facts = {"principal": access.principal, "allow": list(access.allow), "space": access.space}
        if access.expires_at is not None:
            facts["expires_at"] = utc(access.expires_at).isoformat(timespec="microseconds")
        return render({"status": "ok"} | {name: fact for name, fact in facts.items() if fact is not None})

    async def _create_token(self, request: Request) -> Response:
        """A token with its own space, for anybody."""
        if not self._calls.settings.open_tokens:
            return fail(403, "this server creates no tokens; its operator can, or can start it with --open-tokens")
        if (await request.body()).strip() != NEW_TOKEN:
            raise InvalidError("body: must be token=new")
        name = PREFIX + secrets.token_hex(8)
        facts: Any = {"name": name, "space": name, "allow": ["write:*"], "created_by": AUTHOR, "ttl_seconds": LIFETIME}
        token = await self._calls.quota.create(TokenCreate.parse(facts), Caller())
        if token is None:
            return fail(403, "all tokens that this server creates are in use; ask its operator for one")
        return Response(token.token, headers=SAFE, media_type="text/plain")


def choose_version(headers: Mapping[str, str], current: int) -> int | None:
    """The version that a request expects which found the version `current`, 0: no value. It is not `current` if the
    condition does not hold, and None without a condition. Raises InvalidError."""
    if (text := headers.get("if-match")) is not None:
        if text.strip() == "*":
            return current or 1
        return current if str(current) in _read_tags("if-match", text, is_strong=True) else NEVER
    if (text := headers.get("if-none-match")) is not None:
        is_met = text.strip() == "*" or str(current) in _read_tags("if-none-match", text, is_strong=False)
        return 0 if is_met else current
    return None


def _read_tags(name: str, text: str, is_strong: bool) -> set[str]:
    matches = [_TAGS.fullmatch(part) for part in text.split(",")]
    if None in matches:
        raise InvalidError(f'{name}: must be * or versions in quotes, such as "2"')
    return {match[2] for match in matches if match is not None and not (is_strong and match[1])}


def _read_value(request: Request, body: bytes) -> Any:
    """Raises InvalidError."""
    if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        return parse_json(body)
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidError("body: must be UTF-8") from None


def _read_ttl(text: str) -> int:
    """Raises InvalidError."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidError("ttl: must be a number of seconds; 0: 30 days")
    return int(text) or DEFAULT_TTL


def _explain(response: Object) -> Response:
    """Of a write, or of what was not read."""
    match response["status"]:
        case "ok":
            return Response("OK", headers=SAFE | {"etag": f'"{response["version"]}"'}, media_type="text/plain")
        case "not_found":
            return Response("Key Not Found", 404, SAFE, "text/plain")
        case "conflict":
            hint = f'Merge your change into actual_value and send it with If-Match: "{response["actual_version"]}".'
            del response["expected_version"]  # it may be NEVER
            return render(response | {"hint": hint}, 412)
        case _:
            return render(response)
