"""Checkpoints of durable subscribers, stored in NATS: the position up to which a name has handled everything."""

import json
import re
import secrets
from typing import Final

from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from holdlog.adapters.nats.errors import NatsError
from holdlog.domain.refusals import InvalidError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Checkpoints:
    """The checkpoint of one durable name. It belongs to one subscriber at a time: the newest."""

    def __init__(self, name: str) -> None:
        """Check the durable name. Raises InvalidError."""
        if not _NAME.fullmatch(name):
            raise InvalidError("durable: must have 1 to 64 letters, digits, _ and -")
        self._name = name
        self._by = secrets.token_hex(8)
        self._bucket: KeyValue | None = None
        self._revision = 0

    async def open(self, js: JetStreamContext, stream: str) -> int | None:
        """The last saved position; None for a new name. Raises NatsError when another subscriber took over."""
        bucket = f"{stream}_places"
        try:
            self._bucket = await js.key_value(bucket)
        except NotFoundError:
            try:
                self._bucket = await js.create_key_value(bucket=bucket, description="positions of durable subscribers")
            except BadRequestError:  # another subscriber created it at the same moment
                self._bucket = await js.key_value(bucket)
        revision, position, by = await self._read()
        if self._revision and position is not None and by != self._by:
            raise self._conflict()
        self._revision = revision
        return position

    async def keep(self, position: int) -> None:
        """Save a position. Raises NatsError when another subscriber uses this name now."""
        assert self._bucket is not None
        value = json.dumps({"position": position, "by": self._by}).encode()
        try:
            self._revision = await self._bucket.update(self._name, value, last=self._revision)
        except KeyWrongLastSequenceError:
            revision, kept, by = await self._read()
            if kept is not None and by != self._by:
                raise self._conflict() from None
            self._revision = await self._bucket.update(self._name, value, last=revision)

    async def _read(self) -> tuple[int, int | None, str]:
        """Revision, position, and the subscriber that saved it; None if it was never saved, or was deleted. Raises
        NatsError."""
        assert self._bucket is not None
        try:
            entry = await self._bucket.get(self._name)
        except KeyNotFoundError as error:
            return (error.entry.revision or 0) if error.entry is not None else 0, None, ""
        try:
            saved = json.loads(entry.value or b"{}")
            return entry.revision or 0, int(saved["position"]), str(saved["by"])
        except (ValueError, KeyError, TypeError):
            raise NatsError(
                f"the position of the durable name {self._name} cannot be read; delete that key to start over"
            ) from None

    def _conflict(self) -> NatsError:
        return NatsError(f"another subscriber uses the durable name {self._name}; choose a different name for each")
