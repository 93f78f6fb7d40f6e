"""Threads over HTTP."""

from typing import Final

from holdlog.adapters.http.routing import ApiRoute
from holdlog.adapters.http.threads.data import routes as data
from holdlog.adapters.http.threads.items import routes as items

routes: Final[list[ApiRoute]] = [*items, *data]
