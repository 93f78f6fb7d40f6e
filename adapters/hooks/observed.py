"""Records whether hosts obey denials: some ignore them, so it is observed, never assumed. A small file next to the
store keeps what was seen of each host and version."""

import json
import time
from typing import Final, NamedTuple

from holdlog.adapters.hooks.notes import OBSERVED, HookFiles

MAX_BYTES: Final = 64 * 1024
MAX_CLIENTS: Final = 50


class Observed(NamedTuple):
    """What was seen of a host and its version. `guarded`: when a denied call was not run, and its file stayed as it
    was; `bypassed`: when a denied call was run. Times in ISO 8601, UTC."""

    guarded: str | None = None
    bypassed: str | None = None

    @property
    def state(self) -> str:
        """`guarded`, `bypassed` (which weighs more), or `unverified`."""
        return "bypassed" if self.bypassed else "guarded" if self.guarded else "unverified"


def observations(files: HookFiles) -> dict[str, Observed]:
    """What was seen, by client and version, such as `claude 2.1.319`."""
    try:
        given = json.loads(files.text_of(OBSERVED, MAX_BYTES) or "{}")
        return {str(client): Observed(it.get("guarded"), it.get("bypassed")) for client, it in given.items()}
    except (ValueError, AttributeError, RecursionError):
        return {}


def note_observation(files: HookFiles, client: str, obeyed: bool) -> None:
    """Note what a host did with a denial. Raises OSError."""
    found = observations(files)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    before = found.pop(client, Observed())
    found[client] = before._replace(guarded=now) if obeyed else before._replace(bypassed=now)
    kept = dict(list(found.items())[-MAX_CLIENTS:])
    files.replace_text(OBSERVED, json.dumps({name: it._asdict() for name, it in kept.items()}))
