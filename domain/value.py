"""A JSON value and its compact text."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, JsonValue, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticSerializationError, SchemaValidator, core_schema, from_json, to_json

from holdlog.domain.refusals import StoreError

MAX_NESTING: Final = 100
"""Levels of lists and objects that a value may have (RFC 8259 section 9 lets us set a limit)."""

MAX_DIGITS: Final = 4300
"""Digits of an integer: Python can write more, but not read them
(https://docs.python.org/3/library/stdtypes.html#int-max-str-digits)."""

_NO_BRACKETS: Final = re.compile(r"[^][{}]+")
_STRICT_JSON: Final = TypeAdapter[JsonValue](JsonValue, config={"strict": True, "allow_inf_nan": False}).validator


def _plain_json() -> SchemaValidator:
    """Accepts values of exactly the types that JSON has. `_STRICT_JSON` also accepts their subclasses, for which it
    calls a Python function with every part of a value."""
    value, text = core_schema.definition_reference_schema("json"), core_schema.str_schema(strict=True)
    of_type: dict[Any, CoreSchema] = {
        str: text,
        int: core_schema.int_schema(strict=True),
        float: core_schema.float_schema(strict=True, allow_inf_nan=False),
        bool: core_schema.bool_schema(strict=True),
        type(None): core_schema.none_schema(),
        list: core_schema.list_schema(value, strict=True),
        dict: core_schema.dict_schema(text, value, strict=True),
    }
    schema = core_schema.tagged_union_schema(of_type, discriminator=type, ref="json")
    return SchemaValidator(core_schema.definitions_schema(value, [schema]))


_PLAIN_JSON: Final = _plain_json()


class Json:
    """A JSON value, kept as its compact text, so that it is checked and encoded only once.

    `value` parses a new copy, which the caller may change. Two values are equal if their texts are.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Wrap a text that `of` has encoded. `text`: compact JSON from `of`; not checked again."""
        self.text = text

    @classmethod
    def of(cls, value: Any) -> "Json":
        """Check and encode a Python value.

        Raises ValueError for anything that JSON cannot carry unchanged: NaN and infinities, keys that are not
        strings, lone surrogates, objects of other types, more than `MAX_NESTING` levels.
        """
        if isinstance(value, Json):
            return value
        try:
            text = to_json(_validated(value)).decode()
        except ValidationError as error:
            raise ValueError(_why_not_json(error)) from None
        except PydanticSerializationError:
            raise ValueError("a string with a lone surrogate is not JSON text") from None
        except TypeError:  # pydantic looks up the class of an object, and this one has no hash
            raise ValueError(_NOT_JSON) from None
        if text.count("[") + text.count("{") > MAX_NESTING and nesting(text) > MAX_NESTING:
            raise ValueError(f"a value may have at most {MAX_NESTING} levels of nesting")
        if len(text) > MAX_DIGITS:
            _require_readable(text)
        return cls(text)

    @property
    def value(self) -> Any:
        """The value as Python objects, a new copy each time. Raises StoreError for a text that the store damaged."""
        try:
            return from_json(self.text)
        except ValueError:
            raise StoreError("a stored value is not JSON: the store is damaged; run `holdlog doctor`") from None

    def is_above(self, limit: int) -> bool:
        """Whether its text has more than `limit` bytes; counts them only if there may be that many."""
        return len(self.text) > limit or (len(self.text) * 4 > limit and len(self.text.encode()) > limit)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Json({self.text})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(lambda json_value: json_value.value)
        )


NULL: Final = Json("null")
REDACTED: Final = Json("null")
"""In the place of a value that was redacted. Known by identity (`is`): it reads as null, and equals it."""


def parts(value: Json) -> dict[str, Json]:
    """The members of an object; empty for other values."""
    found = value.value
    return {name: Json(to_json(part).decode()) for name, part in found.items()} if isinstance(found, dict) else {}


def joined(members: Mapping[str, Json]) -> Json:
    """The object with these members: the inverse of `parts`."""
    return Json(f"{{{','.join(f'{to_json(name).decode()}:{part.text}' for name, part in members.items())}}}")


def nesting(text: str) -> int:
    """Levels of lists and objects in a compact JSON text."""
    if "[" not in text and "{" not in text:
        return 0
    outside_strings = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    brackets = _NO_BRACKETS.sub("", "".join(outside_strings)).replace("{", "[").replace("}", "]")
    levels = 0
    while "[]" in brackets:
        brackets = brackets.replace("[]", "")  # the innermost of each branch
        levels += 1
    return levels


def _validated(value: Any) -> Any:
    try:
        return _PLAIN_JSON.validate_python(value)
    except ValidationError:
        return _STRICT_JSON.validate_python(value)


def _require_readable(text: str) -> None:
    try:
        from_json(text)
    except ValueError:
        raise ValueError(f"an integer may have at most {MAX_DIGITS} digits") from None


def _why_not_json(error: ValidationError) -> str:
    """One line without the value itself: the input of one agent is untrusted for the next."""
    kind = error.errors(include_url=False, include_context=False, include_input=False)[0]["type"]
    if kind in ("recursion_loop", "recursion_depth_exceeded"):
        return f"a value may have at most {MAX_NESTING} levels of nesting, and must not contain itself"
    if kind == "finite_number":
        return "a number must be finite"
    if kind == "string_type":
        return "the keys of an object must be strings"
    return _NOT_JSON


_NOT_JSON: Final = "a value must be JSON: null, true, false, a finite number, a string, a list or an object"
