"""One spelling for each resource: a path, `file://<workspace>/<path>` or `custom://<name>`."""

from typing import Annotated, Final

from pydantic import AfterValidator, Strict

from holdlog.domain.names import name

_CUSTOM: Final = "custom://"
_FILE: Final = "file://"


def canonical(text: str) -> str:
    """`./a//b.py` and `a\\b.py` are `a/b.py`; a trailing slash stays. Raises ValueError for `..`, unknown schemes."""
    text = name(text)
    if text.startswith(_CUSTOM):
        name(text.removeprefix(_CUSTOM))
        return text
    if text.startswith(_FILE):
        return _FILE + _path(text.removeprefix(_FILE))
    if "://" in text:
        raise ValueError("must be a path, file://<workspace>/<path> or custom://<name>")
    return _path(text)


Resource = Annotated[str, Strict(), AfterValidator(canonical)]


def _path(text: str) -> str:
    path = text.replace("\\", "/")
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if ".." in segments:
        raise ValueError("must not climb with '..'; name what is no path custom://<name>")
    if not segments:
        raise ValueError("must name something inside the workspace")
    return name(("/" if path.startswith("/") else "") + "/".join(segments) + ("/" if path.endswith("/") else ""))
