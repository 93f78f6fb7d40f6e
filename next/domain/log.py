"""Events about the log itself."""

from typing import NamedTuple


class Imported(NamedTuple):
    """All earlier events come from the store with the id `store`, whose log ended at position `last` with `digest`."""

    stream: str
    store: str
    last: int
    digest: str
