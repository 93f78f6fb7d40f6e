"""A request to REST: the names in its path, its arguments, its writer, its body."""

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Receive, Scope

from holdlog.adapters.api.keyvalue import author
from holdlog.adapters.api.past.requests import PointInTime, position_or_time
from holdlog.adapters.http.request_bodies import json_body, wants_json
from holdlog.adapters.http.url_parameters import decoded, unknown
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.refusals import InvalidError

DEFAULT_WRITER: Final = "http"
"""The writer of a request that names none and has no named token."""


class HttpRequest(NamedTuple):
    """A request, parsed for its handler. `fields`: its header fields; `names`: the names in its path, decoded; `query`:
    the arguments that its operation declares."""

    scope: Scope
    receive: Receive
    fields: dict[bytes, bytes]
    names: list[str]
    query: dict[str, Any]

    @property
    def context(self) -> RequestContext:
        """Of a caller that was authenticated."""
        context: RequestContext = self.scope["state"]["served"]
        return context

    @property
    def app(self) -> Starlette:
        app: Starlette = self.scope["app"]
        return app

    @property
    def prefers_json(self) -> bool:
        return wants_json(self.fields.get(b"accept"))

    @property
    def by(self) -> str:
        """The writer that the request names, or else the name of its token."""
        header = self.fields.get(b"x-agent")
        if header is not None:
            try:
                return header.decode().strip()
            except UnicodeDecodeError:
                raise InvalidError("X-Agent: must be UTF-8") from None
        return author(self.context.caller, DEFAULT_WRITER)

    @property
    def moment(self) -> PointInTime | None:
        """The earlier moment that the argument `at` names; None: now."""
        return self.point("at")

    def point(self, name: str) -> PointInTime | None:
        """The position or time that an argument names; None: it was not given."""
        given = self.query.get(name)
        if given is None:
            return None
        return position_or_time(given.replace(" ", "+") if "T" in given else given, name)  # a plus was not encoded

    @property
    def guard(self) -> list[dict[str, Any]]:
        """The claims that a write relies on: `X-Guard: src%2Fa.py@3, custom:%2F%2Fdeploy@1`; a claim made without a
        session also needs its receipt: `src%2Fa.py@3;receipt=…`."""
        header = self.fields.get(b"x-guard")
        claims = []
        for text in header.decode("latin-1").split(",") if header is not None else ():
            claim, _, receipt = text.strip().partition(";receipt=")
            resource, _, version = claim.rpartition("@")
            if not resource or not re.fullmatch(r"[0-9]{1,18}", version):
                raise InvalidError("X-Guard: must be a list of resource@version, percent-encoded, separated by commas")
            named = {"resource": decoded(resource, "X-Guard"), "version": int(version)}
            claims.append(named | ({"receipt": decoded(receipt, "X-Guard")} if receipt else {}))
        return claims

    async def body(self) -> bytes:
        if b"content-range" in self.fields:
            raise InvalidError("Content-Range: is not supported; send the whole value")  # RFC 9110 section 14.5
        return await Request(self.scope, self.receive).body()

    async def json(self) -> Any:
        """The body, which must be JSON. Raises InvalidError, HTTPException (415)."""
        return json_body(await self.body(), self.fields)

    async def json_object(self, known: Collection[str] | None = None) -> dict[str, Any]:
        """The body, a JSON object; `known`: its possible members. Raises InvalidError, HTTPException (415)."""
        found = await self.json()
        if not isinstance(found, dict):
            raise InvalidError("body: must be a JSON object")
        for name in found:
            if known is not None and name not in known:
                raise InvalidError(f"body: {unknown(name, known, 'a member')}")
        return found
