"""The JetStream stream of a store: creates or checks it, and finds where in the log it ends."""

import json
from dataclasses import replace
from typing import Any, Final, NamedTuple

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RawStreamMsg, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, BadRequestError, NotFoundError, ServiceUnavailableError

from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.nats.options import NatsOptions
from holdlog.domain.ports import Reader

STORE: Final = "holdlog-store"
"""The key in the stream's metadata that names its store."""

MESSAGE_ID: Final = "Nats-Msg-Id"
POSITION: Final = "Log-Position"
PREVIOUS: Final = "Log-Previous"
"""Header: the position of the previous event, so that a reader can detect a gap."""

OVERLAPS: Final = 10065
"""JetStream's error code for subjects that another stream has (server/errors.json of nats-server)."""
NAME_IN_USE: Final = 10058

OVERLAP: Final = 1000
"""Foreign messages at a stream's end that are skipped."""
PAGE: Final = 1000


class Head(NamedTuple):
    """Where a stream ends: its last sequence, and the log position of the last published event."""

    sequence: int
    position: int


class Anchor(NamedTuple):
    """A past pair of sequence and position, kept in the store; `created` identifies the stream among those of that
    name."""

    created: str
    sequence: int
    position: int


async def ensure_stream(js: JetStreamContext, options: NatsOptions, store_id: str) -> StreamInfo:
    """The store's stream, created if missing. Raises NatsError when the existing stream is not one."""
    name = options.stream(store_id)
    try:
        info = await js.stream_info(name)
    except NotFoundError:
        try:
            info = await js.add_stream(wanted(options, store_id))
        except BadRequestError as error:
            if error.err_code != NAME_IN_USE:  # else another client created it at the same moment
                raise _not_made(error, options, store_id) from None
            info = await js.stream_info(name)
        except APIError as error:
            if isinstance(error, ServiceUnavailableError):
                raise
            raise _not_made(error, options, store_id) from None
    require_ours(info, options, store_id)
    limited = _limited(info.config, options)
    return await js.update_stream(limited) if limited != info.config else info


def wanted(options: NatsOptions, store_id: str) -> StreamConfig:
    """The configuration of a new stream."""
    made = StreamConfig(
        name=options.stream(store_id),
        description="events of a holdlog store",
        subjects=[f"{options.root(store_id)}.>"],
        storage=StorageType.FILE,
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        allow_direct=True,
        metadata={STORE: store_id},
    )
    return _limited(made, options)


def require_ours(info: StreamInfo, options: NatsOptions, store_id: str) -> None:
    """Check the stream. Raises NatsError for one that is not this store's, or would lose events."""
    config, name = info.config, options.stream(store_id)
    owner = (config.metadata or {}).get(STORE)
    if owner is None:
        raise NatsError(f"the stream {name} was not created by holdlog; choose another name with --nats-name")
    if owner != store_id:
        raise NatsError(f"the stream {name} belongs to another store ({owner}); choose another name with --nats-name")
    if config.subjects != [f"{options.root(store_id)}.>"]:
        raise NatsError(f"the stream {name} has other subjects: {', '.join(config.subjects or ())}")
    if config.storage != StorageType.FILE or config.retention != RetentionPolicy.LIMITS:
        raise NatsError(f"the stream {name} must use file storage and the retention policy limits")


async def find_head(js: JetStreamContext, info: StreamInfo, store_id: str, reader: Reader) -> Head:
    """Where the stream ends, from its newest message, or, if it has none left, from the anchor and by counting.

    Counting is exact: each event of the log is one message, in order. Raises NatsError when the stream has events that
    are missing in the log.
    """
    name, last = str(info.config.name), info.state.last_seq
    newest, foreign = await _newest(js, info, store_id)
    if newest is None:
        anchor = _anchor(reader, info)
        base = (info.config.first_seq or 1) - 1
        known = anchor if anchor is not None and anchor.sequence <= last else Anchor("", base, 0)
        position, missing = _count_on(reader, known.position, last - known.sequence - foreign)
        if missing:
            raise _beyond_log(name, f"had {missing:,} more events than this store")
        return Head(last, position)
    sequence = newest.seq or last
    position, digest = placed(newest.headers, newest.data)
    events = reader.log(position - 1, 1)
    if not events or events[0].envelope.position != position or events[0].envelope.digest.hex() != digest:
        raise _beyond_log(name, f"has an event at position {position} that this store does not have")
    return Head(max(last, sequence), _count_on(reader, position, last - sequence - foreign)[0])


def anchor_text(info: StreamInfo, head: Head) -> str:
    return json.dumps(Anchor(str(info.created), *head))


def anchor_name(info: StreamInfo) -> str:
    return f"relay:{info.config.name}"


def _anchor(reader: Reader, info: StreamInfo) -> Anchor | None:
    text = reader.meta(anchor_name(info))
    anchor = Anchor(*json.loads(text)) if text else None
    return anchor if anchor is not None and anchor.created == str(info.created) else None


async def _newest(js: JetStreamContext, info: StreamInfo, store_id: str) -> tuple[RawStreamMsg | None, int]:
    """Our newest message, if there is one, and the number of foreign ones after it."""
    name, root = str(info.config.name), str((info.config.subjects or [""])[0])
    try:
        message = await js.get_last_msg(name, root)
    except NotFoundError:
        return None, 0
    foreign = 0
    sequence = message.seq or info.state.last_seq
    while not is_ours(message.headers, store_id):
        foreign += 1
        sequence -= 1
        if foreign > OVERLAP:
            raise NatsError(f"the stream {name} has messages of other programs; only holdlog may publish below {root}")
        if sequence < max(1, info.state.first_seq):
            return None, foreign
        try:
            message = await js.get_msg(name, sequence)
        except NotFoundError:
            foreign -= 1  # a deleted message: its owner is not known, so it counts as an event
    return message, foreign


def is_ours(headers: dict[str, str] | None, store_id: str) -> bool:
    """Whether a relay of this store published a message."""
    return bool(headers) and str((headers or {}).get(MESSAGE_ID, "")).startswith(f"{store_id}:")


def placed(headers: dict[str, str] | None, data: bytes | None) -> tuple[int, str]:
    """Read position and digest from one of our messages."""
    payload: Any = json.loads(data or b"{}")
    return int((headers or {})[POSITION]), str(payload.get("digest", ""))


def _count_on(reader: Reader, position: int, events: int) -> tuple[int, int]:
    """The position of the n-th event after a position, or of the newest if there are fewer; and how many are
    missing."""
    while events > 0:
        page = reader.log(position, min(events, PAGE))
        if not page:
            break
        events -= len(page)
        position = page[-1].envelope.position
    return position, max(0, events)


def _beyond_log(name: str, what: str) -> NatsError:
    return NatsError(
        f"the stream {name} {what}: the store is an older copy, or another one took its place; "
        "choose another name with --nats-name, or delete the stream"
    )


def _limited(config: StreamConfig, options: NatsOptions) -> StreamConfig:
    """The configuration with the limits that the options set; the others stay."""
    limits = options.limits
    changed: dict[str, Any] = {
        "max_age": limits.max_age,
        "max_bytes": limits.max_bytes,
        "max_msgs": limits.max_messages,
        "num_replicas": limits.replicas,
    }
    return replace(config, **{name: value for name, value in changed.items() if value is not None})


def _not_made(error: APIError, options: NatsOptions, store_id: str) -> NatsError:
    name = options.stream(store_id)
    if error.err_code == OVERLAPS:
        return NatsError(
            f"the stream {name} cannot be created: another stream has subjects below {options.root(store_id)}; "
            "choose another name with --nats-name or another prefix with --nats-prefix"
        )
    return NatsError(f"the stream {name} cannot be created: {error.description}")
