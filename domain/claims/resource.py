"""The one spelling of a resource: a path, `file://<workspace>/<path>` or `custom://<name>`; and which overlap."""

import re
from functools import lru_cache
from typing import Annotated, Final

from pydantic import AfterValidator, Strict

from holdlog.domain.names import name, require_allowed

_CUSTOM: Final = "custom://"
_FILE: Final = "file://"
_HALF: Final = (_CUSTOM[:-1], _FILE[:-1])
_MALFORMED: Final = re.compile(r"custom(:(?!//)|[\\/]{2})", re.IGNORECASE)


@lru_cache(1024)
def canonical(text: str) -> str:
    """`./a//b.py` and `a\\b.py` are `a/b.py`; a trailing slash stays. Raises ValueError for `..`, unknown schemes."""
    text = name(text)
    if text.startswith(_CUSTOM):
        if not name(text.removeprefix(_CUSTOM)).strip("/"):
            raise ValueError("must name something behind custom://")
        return text
    if text.startswith(_FILE):
        return _FILE + _path(text.removeprefix(_FILE))
    path = _path(text) if "://" not in text else ""
    if not path or path.startswith(_HALF):  # as a subtree, `custom:/` would cover every custom name
        raise ValueError("must be a path, file://<workspace>/<path> or custom://<name>")
    return path


@lru_cache(1024)
def claimable(text: str) -> str:
    """Like `canonical`, but for a new claim: refuses characters that look blank, and names that protect nothing, such
    as patterns. Existing claims may have such names. Raises ValueError, which says what to use instead."""
    require_well_formed(text)
    resource = canonical(require_allowed(text))
    require_well_formed(resource)
    if not resource.startswith(_CUSTOM) and ("*" in resource or "?" in resource):
        raise ValueError(
            "must not contain * or ?: a pattern protects nothing; claim the folder with a trailing slash, such as src/,"
            " or list the files in also"
        )
    return resource


Resource = Annotated[str, Strict(), AfterValidator(canonical)]
"""For events, and for commands about existing claims."""
ClaimableResource = Annotated[str, Strict(), AfterValidator(claimable)]
"""For commands that claim it, or name it as the target of a move."""


def custom_name(path: str) -> str | None:
    """The name to put after custom:// for a resource given as a path; None if it is not a valid name."""
    name = canonical(path)
    if name.startswith(_FILE):
        name = name.removeprefix(_FILE).partition("/")[2]
    try:
        return name if claimable(_CUSTOM + name) == _CUSTOM + name and not name.startswith(_CUSTOM) else None
    except ValueError:
        return None


def overlap(one: str, other: str) -> bool:
    """Whether two resources overlap: they are the same, or one is a subtree (trailing slash) that contains the other.
    Compared by segment: `src/` contains `src/a.py` and `src` itself, but not `src-app`."""
    return one == other or _holds(one, other) or _holds(other, one)


@lru_cache(1024)
def covering(resource: str) -> tuple[str, ...]:
    """Every name that a claim may have which overlaps this resource and is not below it: `a/b` gives
    `a/`, `a/b`, `a/b/`."""
    bare = resource.removesuffix("/")  # only one slash: custom names may end with several
    start = bare.find("://") + 3 if "://" in bare else 1
    above = [bare[: at + 1] for at in range(start, len(bare)) if bare[at] == "/"]
    return tuple(dict.fromkeys((*above, bare, bare + "/")))


def require_well_formed(text: str) -> None:
    """Raise ValueError for a misspelled `custom://<name>`, which would otherwise be read as a path."""
    if _MALFORMED.match(text):
        raise ValueError("must have the form custom://<name>, with a colon and two slashes, such as custom://merge")


def _path(text: str) -> str:
    path = text.replace("\\", "/")
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if ".." in segments:
        raise ValueError("must not contain '..'; if it is not a path, use custom://<name>")
    if not segments:
        raise ValueError("must name something inside the workspace")
    return name(("/" if path.startswith("/") else "") + "/".join(segments) + ("/" if path.endswith("/") else ""))


def _holds(subtree: str, other: str) -> bool:
    return subtree.endswith("/") and (other.startswith(subtree) or other == subtree[:-1])
