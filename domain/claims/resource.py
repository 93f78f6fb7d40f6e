"""The canonical name of a resource (a path, `file://<workspace>/<path>` or `custom://<name>`), and which overlap."""

import re
from functools import lru_cache
from typing import Final

from holdlog.domain.names import check_name, check_printable

CUSTOM: Final = "custom://"
FILE: Final = "file://"
_HALF: Final = (CUSTOM[:-1], FILE[:-1])
_MALFORMED: Final = re.compile(r"custom(:(?!//)|[\\/]{2})", re.IGNORECASE)


@lru_cache(1024)
def check_resource(text: str) -> str:
    """Return the canonical spelling: `./a//b.py` and `a\\b.py` are `a/b.py`; a trailing slash stays. Raises ValueError
    for `..` and unknown schemes."""
    text = check_name(text)
    if text.startswith(CUSTOM):
        if not check_name(text.removeprefix(CUSTOM)).strip("/"):
            raise ValueError("must name something behind custom://")
        return text
    if text.startswith(FILE):
        return FILE + _check_path(text.removeprefix(FILE))
    path = _check_path(text) if "://" not in text else ""
    if not path or path.startswith(_HALF):  # as a subtree, `custom:/` would cover every custom name
        raise ValueError("must be a path, file://<workspace>/<path> or custom://<name>")
    return path


@lru_cache(1024)
def check_claimable(text: str) -> str:
    """Like `check_resource`, for a new claim: refuses characters that look blank, and patterns, which protect nothing.
    Raises ValueError, which says what to use instead."""
    _require_well_formed(text)
    resource = check_resource(check_name(check_printable(text)))
    _require_well_formed(resource)
    if not resource.startswith(CUSTOM) and ("*" in resource or "?" in resource):
        raise ValueError(
            "must not contain * or ?: a pattern protects nothing; claim the folder with a trailing slash, such as src/,"
            " or list the files in also"
        )
    return resource


@lru_cache(1024)
def list_covering(*resources: str) -> tuple[str, ...]:
    """These resources, and each folder whose claim would cover one of them: `a/b/`, `a/` for `a/b`."""
    return tuple(dict.fromkeys(name for resource in resources for name in _list_covering(resource)))


def _list_covering(resource: str) -> tuple[str, ...]:
    names = [resource, resource.removesuffix("/") if resource.endswith("/") else f"{resource}/"]
    at = resource.rfind("/", 0, -1)
    while at > 0:
        names.append(resource[: at + 1])
        at = resource.rfind("/", 0, at)
    return tuple(names)


def overlap(one: str, other: str) -> bool:
    """Whether two resources overlap: they are the same, or one is a subtree (trailing slash) that contains the other.
    Compared by segment: `src/` contains `src/a.py` and `src` itself, but not `src-app`."""
    return one == other or _contains(one, other) or _contains(other, one)


def _require_well_formed(text: str) -> None:
    """Refuse a misspelled `custom://<name>`, which would otherwise be a path."""
    if _MALFORMED.match(text):
        raise ValueError("must have the form custom://<name>, with a colon and two slashes, such as custom://merge")


def _check_path(text: str) -> str:
    path = text.replace("\\", "/")
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if ".." in segments:
        raise ValueError("must not contain '..'; if it is not a path, use custom://<name>")
    if not segments:
        raise ValueError("must name something inside the workspace")
    return check_name(("/" if path.startswith("/") else "") + "/".join(segments) + ("/" if path.endswith("/") else ""))


def _contains(subtree: str, other: str) -> bool:
    return subtree.endswith("/") and (other.startswith(subtree) or other == subtree[:-1])
