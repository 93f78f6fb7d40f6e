"""Conditions of a request on the current version (RFC 9110 section 13). The entity tag of a value is its version."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from holdlog.adapters.api.validation import MAX_VERSION
from holdlog.domain.refusals import InvalidError

_TAG: Final = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*(?:,|$)')
_EMPTY: Final = re.compile(r"\s*,")
_VERSION: Final = re.compile(r"0|[1-9][0-9]{0,18}")


class Tags(NamedTuple):
    """`*`, or versions; tags that are not versions match nothing."""

    any: bool
    versions: frozenset[int] = frozenset()

    def match(self, version: int) -> bool:
        """Whether a version matches; 0: there is no value."""
        return version in self.versions or (self.any and version > 0)


class Conditions(NamedTuple):
    if_match: Tags | None
    if_none_match: Tags | None

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes], least: int = 1) -> "Conditions":
        """Parse the conditions. `least`: the lowest possible version. Raises InvalidError."""
        match, none_match = headers.get(b"if-match"), headers.get(b"if-none-match")
        if match is None and none_match is None:
            return UNCONDITIONAL
        return cls(
            None if match is None else _tags(match, "If-Match", least, strong=True),
            None if none_match is None else _tags(none_match, "If-None-Match", least, strong=False),
        )

    def allow(self, version: int) -> bool:
        """Whether a write may replace this version; 0: no value."""
        return (self.if_match is None or self.if_match.match(version)) and not (
            self.if_none_match is not None and self.if_none_match.match(version)
        )

    @property
    def expected(self) -> int | None:
        """The only version that a write may replace; None: there are none or several."""
        match self:
            case (Tags(any=False, versions=versions), None) if len(versions) == 1:
                return next(iter(versions))
            case (None, Tags(any=True)):
                return 0
            case _:
                return None


UNCONDITIONAL: Final = Conditions(None, None)


def etag(version: int) -> str:
    return f'"{version}"'


def _tags(header: bytes, name: str, least: int, strong: bool) -> Tags:
    text = header.decode("latin-1").strip()
    if text == "*":
        return Tags(any=True)
    versions, index = set[int](), 0
    while index < len(text):
        if empty := _EMPTY.match(text, index):  # a list may have empty elements (section 5.6.1)
            index = empty.end()
            continue
        tag = _TAG.match(text, index)
        if tag is None:
            break
        index = tag.end()
        weak, opaque = tag.groups()
        if _VERSION.fullmatch(opaque) and least <= int(opaque) <= MAX_VERSION and not (weak and strong):
            versions.add(int(opaque))
    if index < len(text) or '"' not in text:
        raise InvalidError(f'{name}: must be * or versions in quotes, such as "7"')
    return Tags(any=False, versions=frozenset(versions))
