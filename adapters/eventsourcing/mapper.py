"""The codec of the log as the library's `Mapper`."""

from typing import Final, NoReturn

from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import JSONTranscoder, Mapper, NotSupportedError, ProgrammingError, StoredEvent

from holdlog.adapters.eventsourcing.events import LogEvent, log_event
from holdlog.adapters.stores.event_log.codec import EncodedEvent, decode

READ_ONLY: Final = "this application only reads holdlog's log; change it with StateStore"


class LogMapper(Mapper[str]):
    """Decodes events of the log. The library's transcoder is not used: it corrupts values that look like its own type
    tags. Nor are its cipher and compressor: the log is plain, and digests cover its bytes."""

    def __init__(self) -> None:
        super().__init__(JSONTranscoder())

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> NoReturn:
        """Refuse: only holdlog's own commands make events, because each continues the digest of the one before it."""
        raise NotSupportedError(READ_ONLY)

    def to_domain_event(self, stored_event: StoredEvent | EncodedEvent) -> LogEvent:
        """Decode an event that holdlog's recorder selected. Raises StoreError as `decode`: topics are never imported,
        and an unknown one is an error."""
        if not isinstance(stored_event, EncodedEvent):
            raise ProgrammingError("only events that holdlog's recorder selected can be decoded")
        return log_event(decode(stored_event))
