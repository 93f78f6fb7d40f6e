"""How a row of the log is an event again. Apart from the codec, as a hook needs none of these classes."""

import json
from typing import Any, Final

from holdlog.adapters.stores.codec import CONTENT, FOREIGN
from holdlog.domain import threads, tokens
from holdlog.domain.claims import claim
from holdlog.domain.records import ValueDeleted, ValueExpired, ValueWritten
from holdlog.domain.redaction import Imported, TextsRedacted
from holdlog.domain.refusals import StoreError

_KINDS: Final = (
    *(ValueWritten, ValueDeleted, ValueExpired, claim.ClaimGranted, claim.ClaimReleased, claim.ClaimExpired),
    *(claim.OfferExpired, claim.ClaimQueued, claim.ClaimUnqueued, claim.ClaimHandedOver, claim.FileChanged),
    *(threads.MessageAppended, threads.ResultAppended, threads.ResultsCleared),
    *(tokens.TokenCreated, tokens.TokenRevoked, Imported, TextsRedacted),
)
TYPES: Final = {kind.__name__: kind for kind in _KINDS}
assert TYPES.keys() == CONTENT.keys()
_parse: Final[Any] = vars(json.JSONDecoder())["scan_once"]


def decode_event(stream: str, topic: str, meta: str, payload: str | None) -> Any:
    """The event of a row of the log; None if it is foreign. Texts of a payload that is redacted, or not passed because
    nobody needs them, are None; do not pass that of a value, which is a text in an event. Raises StoreError for an
    unknown kind."""
    kind: Any = TYPES.get(topic)
    if kind is None:
        if topic.startswith(FOREIGN) and stream.startswith(FOREIGN):
            return None
        raise StoreError(f"the log has an event of an unknown kind, {topic[:50]!r}; update holdlog")
    fields = _parse(meta, 0)[0]
    if payload is not None and payload != "{}":
        fields |= _parse(payload, 0)[0]
    for name in ("also", "allow", "positions"):
        if name in fields:
            fields[name] = tuple(fields[name])
    return kind(stream, *[fields.get(name, kind._field_defaults.get(name)) for name in kind._fields[1:]])
