"""The application on uvicorn, until the process is told to end."""

import asyncio
import logging

import uvicorn
from starlette.types import ASGIApp

from holdlog.adapters.http.options import HttpOptions

SHUTDOWN_SECONDS = 10

_log = logging.getLogger("holdlog")


def run_http(app: ASGIApp, options: HttpOptions) -> None:
    """Serve until SIGTERM or SIGINT; calls in flight are answered first."""
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )
    asyncio.run(uvicorn.Server(config).serve())
