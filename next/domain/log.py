"""Events about the log itself."""

from typing import NamedTuple


class Imported(NamedTuple):
    """All earlier events come from the store with the id `store`, whose log ended at position `last` with `digest`."""

    stream: str
    store: str
    last: int
    digest: str


class TextsRedacted(NamedTuple):
    """The events at these positions lost payload and salt."""

    stream: str
    by: str
    positions: tuple[int, ...]
    reason: str | None = None
