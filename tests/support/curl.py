"""A client of the application in memory, as curl would be of a server."""

import asyncio
from typing import Any

import httpx2

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.values.responses import StateRecord
from holdlog.adapters.http.app import build_app
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.http.shutdown import Shutdown
from holdlog.adapters.http.tenants import Tenants
from holdlog.adapters.mcp.server import build_server
from holdlog.adapters.runtime.engine import Engine
from tests.support.agent import engine

JSON = {"content-type": "application/json"}
AS_JSON = {"accept": "application/json"}
PATCH = {"content-type": "application/merge-patch+json"}
MONTH = 30 * 24 * 60 * 60


class Curl(httpx2.AsyncClient):
    """`store`: what the application serves; `app`: itself."""

    def __init__(self, store: Engine) -> None:
        spaces = Tenants(":memory:", store, Settings())
        app = build_app(build_server(None, ("claims",)), spaces, None, HttpOptions(max_requests=0), Shutdown())
        self.app = app
        super().__init__(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420")
        self.store = store

    def record(self, group: str, key: str) -> StateRecord:
        return self.store.read(self.store.requests.values.get(group, key))


def openapi_document() -> dict[str, Any]:
    """What `GET /openapi.json` returns."""

    async def read(store: Engine) -> dict[str, Any]:
        async with Curl(store) as curl:
            found: dict[str, Any] = (await curl.get("/openapi.json")).json()
            return found

    with engine() as store:
        return asyncio.run(read(store))
