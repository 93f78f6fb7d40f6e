"""The page `/`: one static file. It holds no data; its script calls the other routes with a token."""

import hashlib
import re
from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILE: Final = Path(__file__).with_name("page.html")

_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class PageFile(NamedTuple):
    text: str
    headers: dict[str, str]


async def page(request: Request) -> Response:
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
