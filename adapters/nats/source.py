"""The stream that a subscriber reads."""

from typing import NamedTuple

from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.nats.stream import STORE


class EventSource(NamedTuple):
    """A stream, and the store whose events are in it."""

    info: StreamInfo
    store_id: str

    @property
    def root(self) -> str:
        """The common prefix of its subjects."""
        return _first_subject(self.info).removesuffix(".>")


async def find(js: JetStreamContext, options: NatsOptions, store_id: str | None) -> EventSource:
    """The stream of the store, or of the options' name, or the only one that exists. Raises NatsError,
    NotFoundError."""
    if store_id is not None or options.name is not None:
        info = await js.stream_info(options.stream(store_id or ""))
    else:
        info = await _only_stream(js, options)
    owner = (info.config.metadata or {}).get(STORE)
    if owner is None or (store_id is not None and owner != store_id):
        raise NatsError(f"the stream {info.config.name} does not belong to this store")
    return EventSource(info, owner)


async def _only_stream(js: JetStreamContext, options: NatsOptions) -> StreamInfo:
    found = [
        info
        for info in await js.streams_info()
        if STORE in (info.config.metadata or {}) and _first_subject(info).startswith(f"{options.prefix}.")
    ]
    if not found:
        raise NotFoundError
    if len(found) > 1:
        names = ", ".join(sorted(_first_subject(info).split(".")[-2] for info in found))
        raise NatsError(f"several stores publish at {options.address}; choose one of {names}")
    return found[0]


def _first_subject(info: StreamInfo) -> str:
    return str((info.config.subjects or [">"])[0])
