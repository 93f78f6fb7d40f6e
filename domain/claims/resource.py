"""One spelling for each resource: a path, `file://<workspace>/<path>` or `custom://<name>`; and which overlap."""

from typing import Annotated, Final

from pydantic import AfterValidator, Strict

from holdlog.domain.names import name

_CUSTOM: Final = "custom://"
_FILE: Final = "file://"
_HALF: Final = (_CUSTOM[:-1], _FILE[:-1])


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
    if not path or path.startswith(_HALF):  # as a subtree, `custom:/` would hold every custom name
        raise ValueError("must be a path, file://<workspace>/<path> or custom://<name>")
    return path


Resource = Annotated[str, Strict(), AfterValidator(canonical)]


def overlap(one: str, other: str) -> bool:
    """Whether two resources have something in common: they are the same, or one is a subtree (trailing slash) that
    holds the other. Judged by segment: `src/` holds `src/a.py` and `src` itself, but not `src-app`."""
    return one == other or _holds(one, other) or _holds(other, one)


def covering(resource: str) -> tuple[str, ...]:
    """Every name that a claim may have which overlaps this resource and is not below it: `a/b` gives
    `a/`, `a/b`, `a/b/`."""
    bare = resource.removesuffix("/")  # one: custom names may end with several
    start = bare.find("://") + 3 if "://" in bare else 1
    above = [bare[: at + 1] for at in range(start, len(bare)) if bare[at] == "/"]
    return tuple(dict.fromkeys((*above, bare, bare + "/")))


def _path(text: str) -> str:
    path = text.replace("\\", "/")
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if ".." in segments:
        raise ValueError("must not climb with '..'; name what is no path custom://<name>")
    if not segments:
        raise ValueError("must name something inside the workspace")
    return name(("/" if path.startswith("/") else "") + "/".join(segments) + ("/" if path.endswith("/") else ""))


def _holds(subtree: str, other: str) -> bool:
    return subtree.endswith("/") and (other.startswith(subtree) or other == subtree[:-1])
