"""Objects as responses: their codes, and JSON."""

import math
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from holdlog.adapters.operations.json import Object, to_text

CODES: Final = {
    "error": 400,
    "denied": 403,
    "not_found": 404,
    "busy": 409,
    "conflict": 409,
    "deadlock": 409,
    "exists": 409,
    "expired": 409,
    "fenced": 409,
    "not_holder": 409,
    "unavailable": 503,
}
"""Of statuses; 200 of all others."""
_REPEATED: Final = "request_id: this id belongs"
SAFE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def render(response: Object, code: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    status = response["status"]
    code = code or CODES.get(status, 200)
    more = dict(headers or {})
    if status == "unavailable":
        more["retry-after"] = str(math.ceil(response["retry_after"]))
    elif status == "error" and response["message"].startswith(_REPEATED):
        code = 422
    return Response(to_text(response), code, SAFE | more, "application/json")


def fail(code: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return render({"status": "error", "message": message}, code, headers)
