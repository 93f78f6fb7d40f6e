"""The page `/`: one static file. It holds no data; its script calls the other routes with a token. `/?terminals` is
where agents work: for people, and therefore not part of the API."""

import hashlib
import re
from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.api.request import Query
from holdlog.adapters.api.values.responses import Part, Result
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.terminals import Terminals, describe_terminal
from holdlog.adapters.http.answers import answer
from holdlog.adapters.http.authentication import TERMINALS
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.ports import Reader

FILE: Final = Path(__file__).with_name("page.html")

_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class PageFile(NamedTuple):
    text: str
    headers: dict[str, str]


class PageTerminal(Part):
    """Where an agent works, and the first words of its session's first prompt."""

    agent: str
    terminal: str
    prompt: str


class PageTerminals(Result):
    """Empty for a token without the grant `admin:*`, and for a store without the files of hooks."""

    terminals: list[PageTerminal]


async def terminals(request: Request) -> Response:
    """Where the agents work that hold or await something."""
    context: RequestContext = request.scope["state"]["served"]
    location = context.engine.location
    if not context.requests.rules.grants.allows("admin", "*") or not isinstance(location, Path):
        return answer(PageTerminals(terminals=[]))
    known = Terminals(HookFiles(location))

    def read(reader: Reader) -> PageTerminals:
        leases = reader.leases.of([claim.resource for claim in reader.claims(None, -1)])
        agents = sorted({(it.agent, it.session) for it in leases if it.session is not None and it.principal is None})
        found = [(agent, known.of(session, agent)) for agent, session in agents]
        return PageTerminals(
            terminals=[
                PageTerminal(agent=agent, terminal=describe_terminal(it), prompt=it.prompt)
                for agent, it in found
                if it is not None
            ]
        )

    return answer(await context.engine.read_async(Query(read, large=True)))


async def page(request: Request) -> Response:
    if request.scope["query_string"] == TERMINALS:
        return await terminals(request)
    text, headers = loaded()
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(text, headers=headers, media_type="text/html")


@lru_cache(1)
def loaded() -> PageFile:
    """The file, and headers that make the browser run only its one script and connect only to this server."""
    text = FILE.read_text("utf-8")
    inline = {kind: _digest(found) for kind, found in _INLINE.findall(text)}
    policy = {
        "default-src": "'none'",
        "script-src": f"'{inline['script']}'",
        "style-src": f"'{inline['style']}'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return PageFile(
        text,
        {
            "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-cache",
            "etag": f'"{_digest(text)}"',
        },
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()


routes: Final = [Route("/", page)]
