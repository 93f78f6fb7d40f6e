"""Threads over HTTP."""

from typing import Final

from starlette.routing import Route

from holdlog.adapters.http.threads.data import routes as data
from holdlog.adapters.http.threads.items import routes as items

routes: Final[list[Route]] = [*items, *data]
