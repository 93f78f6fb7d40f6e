"""Removes the messages of redacted events from the stream."""

import json
from contextlib import suppress

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from holdlog.adapters.nats.stream import is_ours
from holdlog.domain.store_log import Part, PayloadRedacted


async def purge(js: JetStreamContext, stream: str, subject: str, store_id: str, redacted: PayloadRedacted) -> None:
    """Delete the messages of these events, as far as the stream has them; JetStream overwrites what it deletes.
    `subject`: of all events of their log stream. Repeatable: a relay may be killed in between."""
    last = max(end for _, end in redacted.versions)
    sequence, version = 0, 0
    while version < last:
        try:
            message = await js.get_msg(stream, sequence + 1, subject, next=True)
        except NotFoundError:
            return
        sequence = message.seq or sequence + 1
        if not is_ours(message.headers, store_id):
            continue
        version = int((message.headers or {})["Version"])
        is_redacted = any(first <= version <= end for first, end in redacted.versions)
        if is_redacted and _has_text(message.data, redacted.part):
            with suppress(NotFoundError):  # another relay deleted it
                await js.delete_msg(stream, sequence)


def _has_text(data: bytes | None, part: Part) -> bool:
    """Whether a message has the text: not if it was published after the redaction."""
    event = json.loads(data or b"{}")
    return "reason" in event if part == "reason" else not event.get("redacted", False)
