"""The data of a thread at one version, as a State shows it and writes its changes."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, Protocol, TypeVar, cast

from pydantic import ValidationError

from holdlog.adapters.api.validation import first_finding
from holdlog.domain.names import name
from holdlog.domain.refusals import InvalidError
from holdlog.domain.value import Json

T = TypeVar("T")
WriteData = Callable[[Mapping[str, Json], Collection[str], int], int]
"""Writes values by key, deletes keys, and expects a data version, in this order of arguments. Returns the new data
version. Raises refusals; nothing has changed then."""


class ModelType(Protocol[T]):
    """How data of one type is read, written and shown. `T`: dict, or a pydantic model."""

    def beginning(self) -> dict[str, Json]:
        """The initial data of a new thread, by key. Raises InvalidError."""

    def read(self, stored: Mapping[str, Json]) -> T:
        """A copy of stored data; its changes are not stored. Raises InvalidError if the data does not fit."""

    def dump(self, data: T) -> dict[str, Json]:
        """Data by key, to store. Raises InvalidError for what cannot be stored."""

    def known(self, stored: Mapping[str, Json]) -> dict[str, Json]:
        """The stored keys that the type knows, as it reads them, with defaults. Raises InvalidError as `read`."""

    def view(self, shown: "ShownData[T]") -> T:
        """What `state.data` returns."""

    def replaced(self, draft: T, given: object) -> T:
        """The data after an update function: the draft, or the model that it returned if models are frozen."""


class View(Protocol):
    def _holdlog_follow(self, written: Mapping[str, Json], deleted: Collection[str]) -> None:
        """Show a change that was written."""


class ShownData(Generic[T]):
    """`view`: what `state.data` returns. `stored`: the value of each key in the log; `version`: the data version. They
    change only by the methods here: a State that reads newer data shows another object."""

    view: T

    def __init__(
        self, kind: ModelType[T], stored: Mapping[str, Json], version: int, write: WriteData, lock: threading.RLock
    ) -> None:
        self.stored = dict(stored)
        self.version = version
        self.lock = lock
        self._kind = kind
        self._write = write
        self._known = kind.known(stored)
        self.view = kind.view(self)

    @property
    def values(self) -> dict[str, Json]:
        """The value of each key, with the defaults of fields that are not stored."""
        return dict(sorted((self.stored | self._known).items()))

    def draft(self) -> T:
        return self._kind.read(self.values)

    def assign(self, values: Mapping[str, object], deleted: Collection[str] = ()) -> None:
        """Write values by key, and delete other keys, as one event. Raises DataConflictError if another caller changed
        the data, InvalidError for a value that cannot be stored; nothing has changed then."""
        written = {require_key(key): checked_json(key, value) for key, value in values.items()}
        with self.lock:
            left = {key: value for key, value in self.values.items() if key not in deleted}
            self._change(left | written, self.version)

    def replace(self, data: T, version: int) -> None:
        """Write all differences to `data`, which was made from a draft of a version, as one event. Raises as
        `assign`."""
        dumped = self._kind.dump(data)
        with self.lock:
            unknown = {key: value for key, value in self.stored.items() if key not in self._known}
            self._change(unknown | dumped, version)

    def _change(self, wanted: dict[str, Json], version: int) -> None:
        if version != self.version:
            self._write({}, (), version)  # raises DataConflictError
        known, before = self._kind.known(wanted), self.values
        deleted = [key for key in before if key not in wanted]
        after = {key: value for key, value in sorted((wanted | known).items()) if key not in deleted}
        written = {key: value for key, value in after.items() if before.get(key) != value}
        gone = [key for key in deleted if key in self.stored]
        self.version = self._write(written, gone, version)
        self.stored = {key: value for key, value in (self.stored | written).items() if key not in gone}
        self._known = known
        cast(View, self.view)._holdlog_follow(written, deleted)


def checked_json(key: object, value: object) -> Json:
    try:
        return Json.of(value)
    except ValueError as error:
        raise InvalidError(f"{printable(key)}: {error}") from None


def require_key(key: object) -> str:
    """Check a key of data. Raises InvalidError if it is not a name."""
    if not isinstance(key, str):
        raise InvalidError("data: its keys must be strings")
    try:
        if name(key) != key:
            raise ValueError("must be in Unicode normalization form NFC")
    except ValueError as error:
        raise InvalidError(f"data: a key {error}") from None
    return key


def printable(key: object) -> str:
    """The key for an error; `data` if it is too long or unprintable."""
    return key if isinstance(key, str) and len(key) <= 64 and key.isprintable() else "data"


_EXPLICIT_ERRORS: Final = frozenset(("value_error", "assertion_error", "union_tag_invalid"))
"""Types of pydantic errors whose texts may contain a value."""


def why(error: ValidationError) -> str:
    """Why a model refused its data, without the value."""
    finding = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = f"{printable(finding['loc'][0])}: " if finding["loc"] else ""
    if finding["type"] in _EXPLICIT_ERRORS:
        return f"{field}a validator rejected it"
    if finding["type"] == "extra_forbidden":
        return f"{field}unknown field of the model"
    return f"{field}{first_finding(error).rpartition(': ')[2]}"
