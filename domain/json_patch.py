"""JSON patches (RFC 6902). Their work is bounded, as that of all updates. Imported only when needed: the library takes
some milliseconds to load."""

from typing import Any, Final

from jsonpatch import (
    AddOperation,
    JsonPatchException,
    JsonPatchTestFailed,
    MoveOperation,
    RemoveOperation,
    ReplaceOperation,
    TestOperation,
)
from jsonpointer import EndOfList, JsonPointer, JsonPointerException
from pydantic_core import to_json

from holdlog.domain.refusals import InapplicableError, InvalidError, TooLargeError, TooMuchWorkError
from holdlog.domain.updates import Work, within
from holdlog.domain.value import MAX_NESTING, Json, nesting

MAX_STEPS: Final = 1_000
_STEP: Final = 1_000
"""Work for each step."""
_TOKEN: Final = 80
"""Work for each part of a JSON pointer."""
_COMPARED: Final = 15
"""Work for each byte of a value in a test."""
_NESTED: Final = 5_000
"""Work to find out how deep a value is nested."""
_SHIFTED: Final = 64
"""Items of a list that one unit of work shifts."""
_MEMBERS: Final = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "move": ("from", "path"),
    "copy": ("from", "path"),
    "test": ("path", "value"),
}
"""The operations of RFC 6902, and the members that each requires."""


def patch(value: Json, steps: Json, max_bytes: int, work: Work) -> Json:
    """Apply a JSON patch (RFC 6902) that `require_patch` accepts. The result of every step is checked, because `copy`
    may double the value. Raises InapplicableError, TooLargeError, TooMuchWorkError."""
    patched = _Patched(value, max_bytes, work)
    for number, step in enumerate(work.parse(steps)):
        try:
            patched.apply(step)
        except JsonPatchTestFailed:
            raise InapplicableError(f"patch[{number}]: the test failed; the value has something else there") from None
        except (JsonPatchException, JsonPointerException):
            raise InapplicableError(
                f"patch[{number}]: {step['op']} does not apply; the value has no such place"
            ) from None
        except (InapplicableError, TooLargeError, TooMuchWorkError) as refusal:
            refusal.args = (f"patch[{number}]: {refusal.args[0]}",)
            raise
    return within(work.encode(patched.document), max_bytes)


def require_patch(steps: Json) -> None:
    """Check the form of a JSON patch. Raises InvalidError."""
    found = steps.value
    if not isinstance(found, list):
        raise InvalidError("patch: must be a list of operations (RFC 6902)")
    if len(found) > MAX_STEPS:
        raise InvalidError(f"patch: must have at most {MAX_STEPS} operations")
    for number, step in enumerate(found):
        if not isinstance(step, dict):
            raise InvalidError(f"patch[{number}]: must be an object")
        operation = step.get("op")
        if not isinstance(operation, str) or operation not in _MEMBERS:
            raise InvalidError(f"patch[{number}].op: must be one of {', '.join(_MEMBERS)}")
        for member in _MEMBERS[operation]:
            if member not in step:
                raise InvalidError(f"patch[{number}].{member}: is required")
            if member != "value" and not _is_pointer(step[member]):
                raise InvalidError(f"patch[{number}].{member}: must be a JSON pointer, such as /items/0")


class _Patched:
    """A document that a patch changes. Its size is tracked as an upper bound, in bytes of JSON: to encode all of it
    after every step would take too long."""

    def __init__(self, value: Json, max_bytes: int, work: Work) -> None:
        self.document = work.parse(value)
        self._bound = _size(value)
        self._max_bytes = max_bytes
        self._work = work

    def apply(self, step: dict[str, Any]) -> None:
        """Raises the library's errors, whose texts may contain parts of the document."""
        pointer = self._pointer(step["path"])
        match step["op"]:
            case "add":
                self._put(AddOperation, pointer, step, step["value"])
            case "replace":
                self._bound -= _size(self._work.encode(_found(pointer, self.document)))
                self._put(ReplaceOperation, pointer, step, step["value"])
            case "copy":
                copied = self._work.encode(_found(self._pointer(step["from"]), self.document))
                self._put(AddOperation, pointer, step, self._work.parse(copied))
            case "move":
                source = self._pointer(step["from"])
                moved = self._work.encode(_found(source, self.document))
                self._require_depth(pointer, moved)
                self._shift(source)
                self.document = MoveOperation(step).apply(self.document)
                self._shift(pointer)
                self._bound += _overhead(pointer)
            case "remove":
                removed = self._work.encode(_found(pointer, self.document))
                self._shift(pointer)
                self.document = RemoveOperation(step).apply(self.document)
                self._bound -= _size(removed)
            case _:
                self._work.spend(len(self._work.encode(step["value"]).text) * _COMPARED)
                TestOperation(step).apply(self.document)
        if self._bound > self._max_bytes:
            self._bound = _size(self._work.encode(self.document))
            if self._bound > self._max_bytes:
                raise TooLargeError(self._max_bytes)

    def _put(
        self,
        operation: type[AddOperation | ReplaceOperation],
        pointer: JsonPointer,
        step: dict[str, Any],
        value: Any,
    ) -> None:
        encoded = self._work.encode(value)
        self._require_depth(pointer, encoded)
        self._shift(pointer)
        self.document = operation(step | {"value": _Uncopied(value)}).apply(self.document)
        self._bound += _size(encoded) + _overhead(pointer)

    def _pointer(self, text: str) -> JsonPointer:
        pointer = JsonPointer(text)
        self._work.spend(_STEP + len(pointer.parts) * _TOKEN)
        return pointer

    def _require_depth(self, pointer: JsonPointer, value: Json) -> None:
        depth, text = len(pointer.parts), value.text
        if depth + text.count("[") + text.count("{") <= MAX_NESTING:
            return
        self._work.spend(_NESTED)
        if depth + nesting(text) > MAX_NESTING:
            raise InapplicableError(f"the result would have more than {MAX_NESTING} levels of nesting")

    def _shift(self, pointer: JsonPointer) -> None:
        """Count what it costs to shift the items of a list, if the pointer is to one of them."""
        parent, _ = pointer.to_last(self.document)
        if isinstance(parent, list):
            self._work.spend(len(parent) // _SHIFTED)


def _found(pointer: JsonPointer, document: Any) -> Any:
    found = pointer.resolve(document)
    if isinstance(found, EndOfList):
        raise JsonPointerException("there is no item after the last one")
    return found


def _overhead(pointer: JsonPointer) -> int:
    """Bytes of a member besides its value, at most: its name, a colon and a comma."""
    return len(to_json(pointer.parts[-1])) + 2 if pointer.parts else 0


def _size(value: Json) -> int:
    return len(value.text.encode())


class _Uncopied:
    """A value in a step, which nothing else refers to. The library's copy of it would take longer than all else."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __deepcopy__(self, memo: object) -> Any:
        return self._value


def _is_pointer(given: object) -> bool:
    try:
        return isinstance(given, str) and JsonPointer(given) is not None
    except JsonPointerException:
        return False
